//! The counters of expired items, and of those that a flush has taken.
//!
//! An expired item that is not held is invisible to clients. It takes memory until the server
//! notices it: with any request for its key; with the crawl; where room is needed; with the upkeep
//! of its win. Then it is reclaimed. That is counted once, however it came about, and never as an
//! eviction.
//!
//! A held item does not expire. If its time is over, it goes with its lock and is reclaimed then,
//! unless a flush has taken it. If many locks end at once, the server comes to their items one
//! after the other, and they look held until then. Items that clients remove are not reclaimed: by
//! a flush, or by the holder's delete.
//!
//! A request finds an item expired if its time is over and no lock keeps it. An item that a lock
//! has kept goes with the lock. The store may remember a flushed item for a while, until a get asks
//! for it.
//!
//! The moment at which the server notices an item unasked depends on the store, so the comparison
//! looks where items are ([`Oracle::follow_expired`]). Figures that only the core can know are
//! accepted within their possible range.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use latchd_protocol::stats::Counters;

use super::{Evicted, Item, Oracle, quarter};

/// The counters of expired and flushed items.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs)] // As `Counters` has them.
pub struct Expired {
    pub get_expired: u64,
    pub get_flushed: u64,
    pub reclaimed: u64,
    pub expired_unfetched: u64,
}

impl Expired {
    /// The counters of a core.
    #[must_use]
    pub const fn of(counters: &Counters) -> Self {
        Self {
            get_expired: counters.get_expired,
            get_flushed: counters.get_flushed,
            reclaimed: counters.reclaimed,
            expired_unfetched: counters.expired_unfetched,
        }
    }
}

/// Whether a store has an item of a key, visible to clients or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum There {
    /// It has none.
    Nowhere,
    /// It has one.
    Here,
    /// It has one that looks held, and the lock is over.
    Kept,
}

/// The remains of items that clients can no longer see, as far as is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Remains {
    pub(super) counted: Expired,
    /// Items that went with their locks, or with a flush.
    leaving: BTreeMap<Vec<u8>, Leaving>,
    /// Keys of items that expire some day and may look held, though their locks are over.
    kept: BTreeSet<Vec<u8>>,
    /// Keys with items that a flush has taken, and whether the store remembers it, if the
    /// comparison can tell.
    flushed: BTreeMap<Vec<u8>, Option<bool>>,
    /// How many requests have found an item expired, unless it was taken out as one that a lock had kept.
    perhaps_expired: u64,
    /// Flushed keys that gets asked for, if the store remembered the flush.
    perhaps_flushed: Vec<Vec<u8>>,
    /// How many items were reclaimed or flushed, and how many of them were never fetched.
    perhaps_reclaimed: (u64, u64),
    /// Some are leaving for either reason.
    has_doubt: bool,
}

#[derive(Clone, Debug)]
struct Leaving {
    item: Item,
    end: End,
}

/// Why an item goes with its lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// Its time is over: it is reclaimed.
    Expired,
    /// A flush has come over it.
    Flushed,
    /// The one or the other, whichever came first: a flush request finds some items before the
    /// flush.
    Either,
}

impl Oracle {
    /// A client's command names a key.
    pub(super) fn come_for(&mut self, key: &[u8]) {
        let may_be_kept = self.remains.kept.remove(key);
        if let Some(leaving) = self.remains.leaving.remove(key) {
            self.count_leaving(&leaving);
        }
        if self.reclaim(key) {
            if may_be_kept {
                self.remains.perhaps_expired += 1;
            } else {
                self.remains.counted.get_expired += 1;
                self.judged.gone.found_expired += 1;
            }
        }
    }

    /// The command about a key is done: an item that looks held is held.
    pub(super) fn came_for(&mut self, key: &[u8]) {
        self.remains.kept.remove(key);
    }

    /// Reclaims an expired item that is not held. Returns whether it did.
    pub(super) fn reclaim(&mut self, key: &[u8]) -> bool {
        if self.visible(key).is_some() {
            return false;
        }
        let item = self.items.remove(key);
        if let Some(item) = &item {
            self.count_reclaimed(item);
        }
        item.is_some()
    }

    fn count_reclaimed(&mut self, item: &Item) {
        let unfetched = u64::from(!item.fetched);
        self.remains.counted.reclaimed += 1;
        self.remains.counted.expired_unfetched += unfetched;
        self.judged.gone.reclaimed += 1;
        self.judged.gone.unfetched += unfetched;
    }

    fn count_leaving(&mut self, leaving: &Leaving) {
        match leaving.end {
            End::Expired => {
                self.count_reclaimed(&leaving.item);
                self.judged.gone.with_lock += 1;
            }
            End::Flushed => {}
            End::Either => {
                let (all, unfetched) = &mut self.remains.perhaps_reclaimed;
                *all += 1;
                *unfetched += u64::from(!leaving.item.fetched);
            }
        }
    }

    /// The key is no longer held: expiry and flushes that the lock has held off now happen to its
    /// item.
    pub(super) fn let_go(&mut self, key: &[u8]) {
        let Some(item) = self.items.get(key) else {
            return;
        };
        let is_flushed = item.flush_pending;
        let goes = is_flushed || self.is_gone(item);
        if item.gone_at_ms.is_some() {
            self.remains.kept.insert(key.to_vec());
        }
        if goes && let Some(item) = self.items.remove(key) {
            let end = if is_flushed {
                End::Flushed
            } else {
                End::Expired
            };
            let leaving = Leaving { item, end };
            self.remains.leaving.insert(key.to_vec(), leaving);
        }
    }

    /// A flush takes every item that is not held, expired ones included.
    pub(super) fn take_unheld(&mut self) {
        let (locks, now_ms) = (&self.locks, self.now_ms);
        let remains = &mut self.remains;
        for leaving in remains.leaving.values_mut() {
            if leaving.end == End::Expired {
                leaving.end = End::Either;
            }
        }
        // At another flush a store may remember the items that an earlier one has taken.
        remains.flushed.values_mut().for_each(|knows| *knows = None);
        let all = mem::take(&mut self.items).into_iter();
        let (held, taken): (Vec<_>, Vec<_>) = all.partition(|(key, _)| locks.contains_key(key));
        self.items = held.into_iter().collect();
        for (key, item) in taken {
            let is_past = item.gone_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
            let end = if is_past && remains.kept.contains(&key) {
                End::Either
            } else {
                End::Flushed
            };
            // Most are gone: the search shows that.
            let leaving = Leaving { item, end };
            remains.leaving.insert(key.clone(), leaving);
            remains.flushed.insert(key, None);
        }
        remains.has_doubt = true;
    }

    /// The unknowns of the last input are settled now: an item that was flushed and is still there
    /// was not reclaimed before.
    pub(super) fn end_doubt(&mut self) {
        self.remains.perhaps_expired = 0;
        self.remains.perhaps_flushed.clear();
        if !mem::take(&mut self.remains.has_doubt) {
            return;
        }
        for leaving in self.remains.leaving.values_mut() {
            if leaving.end == End::Either {
                leaving.end = End::Flushed;
            }
        }
    }

    /// A get has missed: if that was flushed, it is counted as long as the store knows.
    pub(super) fn miss(&mut self, key: &[u8]) {
        if let Some(Some(true) | None) = self.remains.flushed.get(key) {
            self.remains.perhaps_flushed.push(key.to_vec());
        }
    }

    /// Settles the gets that asked for flushed items: a flush that the store remembers now, as
    /// `knows` says, it also remembered at the get, since the flush came before.
    pub fn follow_misses(&mut self, knows: impl Fn(&[u8]) -> Option<bool>) {
        let asked = self.remains.perhaps_flushed.len();
        self.remains
            .perhaps_flushed
            .retain(|key| knows(key) != Some(true));
        let still_known = asked - self.remains.perhaps_flushed.len();
        self.remains.counted.get_flushed += still_known as u64;
        self.judged.gone.found_flushed += still_known as u64;
    }

    /// Removes the items that a store has noticed unasked: `look` says where it has an item of a
    /// key.
    pub fn follow_expired(&mut self, look: impl Fn(&[u8]) -> There) {
        let is_past = |(key, item): &(&Vec<u8>, &Item)| {
            self.is_gone(item) && !self.locks.contains_key(*key) && look(key) == There::Nowhere
        };
        let gone = self.items.iter().filter(is_past);
        let gone: Vec<_> = gone.map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.reclaim(&key);
        }
        let leaving = self.remains.leaving.keys();
        let left = leaving.filter(|key| look(key) != There::Kept);
        let left: Vec<_> = left.cloned().collect();
        for key in left {
            if let Some(leaving) = self.remains.leaving.remove(&key) {
                self.count_leaving(&leaving);
            }
        }
        self.remains.kept.retain(|key| look(key) == There::Kept);
    }

    /// Notes which flushed items a store remembers: `knows` says that of a key, if it can tell.
    pub fn follow_flushed(&mut self, knows: impl Fn(&[u8]) -> Option<bool>) {
        for (key, is_known) in &mut self.remains.flushed {
            *is_known = knows(key);
        }
    }

    /// Whether the item of a key was there when there was a flush, and the store may know of it.
    #[must_use]
    pub fn was_flushed(&self, key: &[u8]) -> bool {
        self.remains.flushed.contains_key(key)
    }

    /// Items that went with their locks, and are still in the way.
    pub fn leaving(&self) -> impl Iterator<Item = (&[u8], &Item)> {
        let leaving = self.remains.leaving.iter();
        leaving.map(|(key, leaving)| (key.as_slice(), &leaving.item))
    }

    /// Where a server may have an item of a key.
    #[must_use]
    pub fn place(&self, key: &[u8]) -> There {
        if self.items.contains_key(key) {
            There::Here
        } else if self.remains.leaving.contains_key(key) {
            There::Kept
        } else {
            There::Nowhere
        }
    }

    /// The seconds since the last request for an item.
    #[must_use]
    pub const fn age_s(&self, item: &Item) -> u64 {
        (quarter(self.now_ms) - quarter(item.accessed_ms)) / 1000
    }

    /// Every item in the store, expired ones included, apart from those that are leaving.
    pub fn all_items(&self) -> impl Iterator<Item = (&[u8], &Item)> {
        let items = self.items.iter();
        items.map(|(key, item)| (key.as_slice(), item))
    }

    /// The counts that a core which reports `told` should have. Its own word is taken where only it
    /// can know: whether it still remembered the flush of a missed key, and whether it came to an
    /// item before the request did, or before a flush.
    pub fn expired(&mut self, told: &Expired) -> Expired {
        let Remains {
            counted,
            perhaps_expired,
            perhaps_flushed,
            perhaps_reclaimed,
            ..
        } = &mut self.remains;
        let reclaimed = told.reclaimed.saturating_sub(counted.reclaimed);
        let unfetched = told
            .expired_unfetched
            .saturating_sub(counted.expired_unfetched);
        let (all_max, unfetched_max) = mem::take(perhaps_reclaimed);
        let fetched = reclaimed.saturating_sub(unfetched);
        let is_part = unfetched <= reclaimed;
        if is_part && unfetched <= unfetched_max && fetched <= all_max - unfetched_max {
            counted.reclaimed += reclaimed;
            counted.expired_unfetched += unfetched;
        }
        let found = told.get_expired.saturating_sub(counted.get_expired);
        counted.get_expired += found.min(*perhaps_expired);
        *perhaps_expired = 0;
        let known = told.get_flushed.saturating_sub(counted.get_flushed);
        counted.get_flushed += known.min(perhaps_flushed.len() as u64);
        perhaps_flushed.clear();
        *counted
    }

    /// The counters begin again, after all that has happened before was taken in.
    pub fn forget_followed(&mut self) {
        self.evicted = Evicted::default();
        self.remains.counted = Expired::default();
        self.remains.perhaps_expired = 0;
        self.remains.perhaps_flushed.clear();
        self.remains.perhaps_reclaimed = (0, 0);
    }
}
