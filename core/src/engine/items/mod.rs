//! Items: one shard of them, and the commands that read, store, count and remove them.
//!
//! [`Items`] has no owners: an item is marked as locked, and the lock manager has its lock. Other keys that the manager
//! has something about are *noted*. A command about a key that is neither marked nor noted does not touch the manager.
//! The rules in these files change the store. A file about the lock or the win of an item belongs beside its table, in
//! `locks/` or `wins/`.
//!
//! - N6: A key is noted if there is more about it than the mark of its item shows: a lock without an item, waiters of a
//!   free lock, a bound win, or a get that waits. A key that needs its note no more loses it when it is updated.

mod arithmetic;
pub(in crate::engine) mod dump_format;
mod fenced;
mod guard;
mod read;
mod remove;
mod write;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Deref;

use latchd_protocol::command::NewCas;
use latchd_protocol::item::{Cas, ItemHeader, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::{Clock, Instant};
use latchd_protocol::watch::Evicted;

use crate::engine::config::Config;
use crate::engine::locks::table::{MetadataBuffer, Shard};
use crate::engine::manager::LockManager;
use crate::engine::owned_key::OwnedKey;
use crate::engine::stats::detail::Detail;
use crate::limits::Limits;
use crate::store::{Full, Store};
use crate::work::Meter;

/// A shard of items: the store, its CAS numbers, its time and its counters.
#[derive(Clone, Debug)]
pub struct Items<S> {
    /// Its number among all shards.
    pub(in crate::engine) shard: Shard,
    /// N6.
    pub(in crate::engine) noted: BTreeSet<OwnedKey>,
    pub(in crate::engine) store: S,
    pub(in crate::engine) limits: Limits,
    pub(in crate::engine) clock: Clock,
    pub(in crate::engine) next_cas: Cas,
    pub(in crate::engine) cas_stride: u32,
    pub(in crate::engine) flush_at: Option<Instant>,
    /// Evictions to be handed out.
    pub(in crate::engine) evicted: Option<(Vec<Evicted>, u64)>,
    pub(in crate::engine) counters: Counters,
    pub(in crate::engine) detail: Detail,
    /// The metadata that the present reply shows.
    pub(in crate::engine) metadata: MetadataBuffer,
    /// The work of steps besides the commands themselves.
    pub(in crate::engine) work: Meter,
}

impl<S: Store> Items<S> {
    /// The shard with this number of so many shards, with its share of the bounds. The CAS numbers of shard `i` of `n` are
    /// `i + 1`, `i + 1 + n`, and so on, so no two shards give the same (E3).
    ///
    /// # Panics
    /// There are more than 256 shards.
    #[must_use]
    pub fn new(config: &Config, store: S, shard: usize, shards: usize) -> Self {
        let number = |number: usize| u32::try_from(number).expect("few shards");
        Self {
            shard: Shard::try_from(shard).expect("at most 256 shards"),
            noted: BTreeSet::new(),
            store,
            limits: config.limits.share(shards),
            clock: Clock {
                now: Instant::default(),
                unix_s_at_start: config.unix_s_at_start,
            },
            next_cas: config.cas_first.step(number(shard)),
            cas_stride: number(shards),
            flush_at: None,
            evicted: None,
            counters: Counters::default(),
            detail: Detail::new(config.prefix_delimiter),
            metadata: MetadataBuffer::default(),
            work: Meter::default(),
        }
    }

    /// The bounds: its share of those of all shards.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// It is `now`. A time before the last one counts as the last one.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        self.clock.now = self.clock.now.max(now);
    }

    /// The time of the last step.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.clock.now
    }

    /// Whether a `flush_all` is due by `now`.
    #[inline]
    #[must_use]
    pub fn is_flush_due(&self, now: Instant) -> bool {
        self.flush_at.is_some_and(|at| at <= now)
    }

    /// Removes every item that is not held; those that are go when they are unlocked.
    pub(in crate::engine) fn flush(&mut self) {
        // Also if this one was asked for at once: the one that was still to come is overtaken.
        self.flush_at = None;
        self.store.clear();
    }

    /// Whether the lock manager has something about a key that the mark of its item does not show (N6).
    #[inline]
    pub(in crate::engine) fn is_noted(&self, key: Key<'_>) -> bool {
        !self.noted.is_empty() && self.noted.contains(key.as_bytes())
    }

    /// Leaves `bytes` of the memory free for the tables of the lock manager, if need be by evicting other items than the one
    /// in `slot`. Returns the slot of that item then.
    ///
    /// # Errors
    /// [`Full`] if nothing else may be evicted.
    pub(in crate::engine) fn set_aside(
        &mut self,
        slot: Option<S::Slot>,
        bytes: usize,
    ) -> Result<Option<S::Slot>, Full> {
        let tick = self.clock.tick();
        let counters = &mut self.counters;
        self.store.set_aside(tick, slot, bytes, counters)
    }

    /// The evictions since the last call are to be handed out. From now on they are remembered if `is_watched`.
    pub(in crate::engine) fn read_evictions(&mut self, is_watched: bool) {
        self.evicted = Some(self.take_evicted(is_watched));
    }

    /// The evictions since the last call, and the number of missed ones. From now on they are remembered if `is_watched`.
    pub fn take_evicted(&mut self, is_watched: bool) -> (Vec<Evicted>, u64) {
        let evicted = self.store.take_evicted();
        self.store.watch_evictions(is_watched);
        evicted
    }

    /// The wall clock was looked at: unix seconds at [`Instant`] 0.
    pub fn set_wall_clock(&mut self, unix_s_at_start: u64) {
        self.clock.unix_s_at_start = unix_s_at_start;
    }

    /// Whether a tick leaves expired items.
    #[must_use]
    pub fn wants_tick(&self) -> bool {
        self.store.wants_crawl(self.clock.tick())
    }

    /// The work of its steps so far, besides one unit a command.
    #[inline]
    #[must_use]
    pub fn work(&self) -> u64 {
        self.work.units().saturating_add(self.store.work())
    }

    /// The item of a key as a client would find it now.
    pub fn peek(
        &self,
        manager: &impl Deref<Target = LockManager>,
        key: Key<'_>,
    ) -> Option<(ItemHeader, &[u8])> {
        let slot = self.store.find(key).ok()?;
        let header = self.store.header(slot);
        if !self.is_there(manager, key, &header) {
            return None;
        }
        let locked = header.locked && manager.locks.table.owner(key).is_some();
        let is_won = header.win != WinMark::None;
        let win = if is_won {
            manager.wins.mark(key, &header)
        } else {
            header.win
        };
        let header = ItemHeader {
            win,
            locked,
            ..header
        };
        Some((header, self.store.value(slot)))
    }

    /// Looks at some items for those that have expired.
    pub(in crate::engine) fn crawl(&mut self) {
        let tick = self.clock.tick();
        let counters = &mut self.counters;
        self.store
            .crawl(tick, self.limits.crawl_items_max, counters);
    }

    /// Removes an item after its TTL.
    pub(in crate::engine) fn reclaim(&mut self, slot: S::Slot, header: &ItemHeader) -> S::Vacancy {
        let counters = &mut self.counters;
        counters.reclaimed += 1;
        counters.expired_unfetched += u64::from(!header.fetched);
        self.store.remove(slot)
    }

    /// Whether the TTL of an item has passed.
    pub(in crate::engine) fn is_past(&self, header: &ItemHeader) -> bool {
        header
            .deadline
            .is_some_and(|deadline| deadline.has_passed(self.clock.tick()))
    }

    /// The CAS of a change that is about to happen. It is used up by [`Self::commit_cas`] only, so
    /// a change that does not happen leaves no trace.
    pub(in crate::engine) const fn peek_cas(&self, new_cas: NewCas) -> Cas {
        match new_cas {
            NewCas::Next => self.next_cas,
            NewCas::Is(cas) => cas,
        }
    }

    /// E3: the CAS that [`Self::peek_cas`] showed is given.
    pub(in crate::engine) const fn commit_cas(&mut self, new_cas: NewCas) {
        if let NewCas::Next = new_cas {
            self.next_cas = self.next_cas.step(self.cas_stride);
        }
    }
}
