//! The queues of the clients that wait for a key, for a lock or for a value.
//!
//! An owner is in one of these queues at a time. It leaves when it gets the lock or the value, when its time is over,
//! or when it ends. Each takes a few steps, whatever the length of the queue.
//!
//! One command may end many waits: a store ends all waits for its key. Such waiters leave their queue together
//! ([`Queues::wake`]) and wait for nothing from then on. The table forgets each of them when its notice is taken.
//!
//! - Q1: An owner waits for at most one key, and the lists by key and by owner agree.
//! - Q2: The waiters of a key stand in the order of arrival.
//! - Q3: every wait ends: it is listed by the moment at which it does so by itself.
//! - Q4: The counted bytes are those that the queues take.
//! - Q12: An owner in the table but in no queue was woken, and its notice has not been taken.
//!
//! The deadline of a woken owner stays listed until its notice is taken, or until the deadline passes. A step drops at most
//! [`STALE_MAX`] such deadlines.
//!
//! Models: `waits-*`, `shares-*` and `gets-*`, by `model/src/waits/rules.rs`; those named `settled-1` end one lock or win at
//! a time (Q12, Z13). Liveness: `leads_to_answers` (Q11, Z12).

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
#[cfg(feature = "verify")]
use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Bound;

use crate::engine::owned_key::{OwnedKey, as_key};
use latchd_protocol::Owner;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;
use latchd_protocol::wait::{Notice, Outcome};

/// The most deadlines of woken owners that one step drops.
pub(super) const STALE_MAX: usize = 64;

/// The request of a waiter: for a lock ([`Waiter`](super::Waiter)) or for a value ([`WinWaiter`](super::WinWaiter)).
pub trait Waits: Copy {
    /// The data of one waiter that no rule reads.
    type Kept: Clone + Debug + Default;
    /// The data of one queue besides its waiters.
    type Queue: Clone + Debug + Default;
    /// The data of the table besides its queues.
    type Table: Clone + Debug + Default;

    /// When it waits no more.
    fn until(&self) -> Instant;

    /// The outcome of a wait that ended with others at `at`: the lock or the value was available then, with an item or
    /// without, and was not given to this waiter.
    fn outcome(&self, at: Instant, has_item: bool) -> Outcome;

    /// The bytes that a waiter of this key takes of the memory limit, without its data.
    fn bytes_for(key: Key<'_>) -> usize;

    /// The bytes that the data of a waiter takes of the memory limit.
    fn kept_bytes(kept: &Self::Kept) -> usize;

    /// The next event of the table, besides the ends of waits, that can end a wait.
    fn next_of(table: &Self::Table) -> Option<Instant>;
}

/// The queues of all keys.
#[derive(Clone, Debug)]
pub struct Queues<W: Waits> {
    /// Never an empty queue.
    by_key: BTreeMap<OwnedKey, Queue<W>>,
    /// One half of Q1 holds by type: a map has one value for each owner.
    by_owner: BTreeMap<Owner, Place<W>>,
    /// By the moments at which the waits end by themselves (Q3).
    deadlines: BTreeSet<(Instant, Owner)>,
    /// The first of these moments and of the table's: without a wait that is due, a command reads one number.
    next: Option<Instant>,
    /// The number of the next waiter.
    next_number: u64,
    table_bytes: usize,
    /// The waiters that have left their queues together and have notices that were not taken, the oldest first.
    woken: VecDeque<Woken>,
    /// How many of them are still in `by_owner` (Q12).
    woken_owners: usize,
    pub(super) table: W::Table,
}

/// Waiters that have left a queue together, at one moment.
#[derive(Clone, Debug)]
struct Woken {
    /// By their numbers. Some may have ended since: they are no longer in `by_owner`.
    owners: BTreeMap<u64, Owner>,
    at: Instant,
    has_item: bool,
}

/// The waiters of one key.
#[derive(Clone, Debug)]
pub(super) struct Queue<W: Waits> {
    /// By the numbers they have drawn (Q2).
    owners: BTreeMap<u64, Owner>,
    pub(super) beside: W::Queue,
}

/// The place of an owner in a queue, with its request.
#[derive(Clone, Debug)]
pub(super) struct Place<W: Waits> {
    pub(super) key: OwnedKey,
    /// The order of numbers is that of arrival.
    pub(super) number: u64,
    pub(super) waiter: W,
    pub(super) kept: W::Kept,
}

impl<W: Waits> Place<W> {
    /// The bytes that it takes of the memory limit.
    fn bytes(&self) -> usize {
        W::bytes_for(as_key(&self.key)) + W::kept_bytes(&self.kept)
    }
}

impl<W: Waits> Default for Queues<W> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next: None,
            next_number: 0,
            table_bytes: 0,
            woken: VecDeque::new(),
            woken_owners: 0,
            table: W::Table::default(),
        }
    }
}

impl<W: Waits> Default for Queue<W> {
    fn default() -> Self {
        Self {
            owners: BTreeMap::new(),
            beside: W::Queue::default(),
        }
    }
}

impl<W: Waits> Queues<W> {
    /// How many wait for `key`.
    #[must_use]
    pub fn waiting(&self, key: Key<'_>) -> usize {
        self.queue_of(key).map_or(0, |queue| queue.owners.len())
    }

    /// The waiters of `key`, the first to come first.
    pub fn queue(&self, key: Key<'_>) -> impl Iterator<Item = (Owner, W)> {
        let owners = self.queue_of(key).into_iter();
        let owners = owners.flat_map(|queue| queue.owners.values());
        owners.map(|owner| (*owner, self.by_owner[owner].waiter))
    }

    /// The keys with waiters, in their order.
    pub fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.by_key.keys().map(|key| as_key(key))
    }

    /// Whether `owner` waits, or was woken and has a notice that was not taken.
    #[must_use]
    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.by_owner.contains_key(&owner)
    }

    /// The number of owners that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_owner.len() - self.woken_owners
    }

    /// Whether any owner waits.
    pub(super) fn has_queues(&self) -> bool {
        !self.by_key.is_empty()
    }

    /// The number of owners that wait, or were woken and have a notice that was not taken.
    pub(super) fn places(&self) -> usize {
        self.by_owner.len()
    }

    /// Whether no owner waits, and none that was woken has a notice left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// The bytes that the queues take of the memory limit.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// The first waiter of `key`.
    pub(super) fn first(&self, key: Key<'_>) -> Option<(Owner, W)> {
        let (_, owner) = self.queue_of(key)?.owners.first_key_value()?;
        Some((*owner, self.by_owner[owner].waiter))
    }

    /// The waiters of `key` with their places, the first to come first.
    pub(super) fn in_turn(&self, key: Key<'_>) -> impl Iterator<Item = (Owner, &Place<W>)> {
        let owners = self.queue_of(key).into_iter();
        let owners = owners.flat_map(|queue| queue.owners.values());
        owners.map(|owner| (*owner, &self.by_owner[owner]))
    }

    /// Where `owner` waits.
    pub(super) fn place(&self, owner: Owner) -> Option<&Place<W>> {
        self.by_owner
            .get(&owner)
            .filter(|place| self.is_queued(place))
    }

    /// Whether this place is in a queue. If not, its owner was woken.
    fn is_queued(&self, place: &Place<W>) -> bool {
        let queue = self.by_key.get(&place.key);
        queue.is_some_and(|queue| queue.owners.contains_key(&place.number))
    }

    /// The queue of `key`; `None` if it has no waiters.
    pub(super) fn queue_of(&self, key: Key<'_>) -> Option<&Queue<W>> {
        self.by_key.get(key.as_bytes())
    }

    /// The same, to be changed.
    pub(super) fn queue_mut(&mut self, key: Key<'_>) -> Option<&mut Queue<W>> {
        self.by_key.get_mut(key.as_bytes())
    }

    /// A key with waiters, shared with its queue.
    pub(super) fn owned(&self, key: Key<'_>) -> Option<OwnedKey> {
        let (owned, _) = self.by_key.get_key_value(key.as_bytes())?;
        Some(Arc::clone(owned))
    }

    /// The keys from a bound on, each shared with its queue.
    pub(super) fn keys_from(&self, from: Bound<&[u8]>) -> impl Iterator<Item = &OwnedKey> {
        let behind = self.by_key.range::<[u8], _>((from, Bound::Unbounded));
        behind.map(|(key, _)| key)
    }

    /// The number of the next waiter.
    pub(super) const fn next_number(&self) -> u64 {
        self.next_number
    }

    /// The next moment at which a wait ends by itself, or another event can end one.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// An owner that waits and has reached its deadline by `now`. Drops the deadlines of woken owners before it, at most
    /// `stale_max`, which counts down; if there are more, the rest is left to the next step ([`Self::next`]).
    pub(super) fn overdue(&mut self, now: Instant, stale_max: &mut usize) -> Option<Owner> {
        while let Some((at, owner)) = self.deadlines.first().copied()
            && at <= now
        {
            if self.place(owner).is_some() {
                return Some(owner);
            }
            *stale_max = stale_max.checked_sub(1)?;
            self.deadlines.pop_first();
            self.note_next();
        }
        None
    }

    /// Wakes the first `count` waiters of `key`, which leave their queue together: it was available `at` this moment,
    /// with an item or without. Returns the data of the queue if it is empty now. [`Self::next_woken`] returns their
    /// notices.
    pub(super) fn wake(
        &mut self,
        key: Key<'_>,
        count: usize,
        at: Instant,
        has_item: bool,
    ) -> Option<W::Queue> {
        let queue = self.by_key.get_mut(key.as_bytes())?;
        let is_last = count >= queue.owners.len();
        let owners = if is_last {
            core::mem::take(&mut queue.owners)
        } else {
            let first = (0..count).filter_map(|_| queue.owners.pop_first());
            first.collect()
        };
        self.woken_owners += owners.len();
        self.woken.push_back(Woken {
            owners,
            at,
            has_item,
        });
        let last = if is_last {
            self.by_key.remove(key.as_bytes())
        } else {
            None
        };
        last.map(|queue| queue.beside)
    }

    /// The notice of the next waiter that was woken with others; `None` after the last one of its batch.
    pub(super) fn next_woken(&mut self) -> Option<Notice> {
        let Woken {
            owners,
            at,
            has_item,
        } = self.woken.front_mut()?;
        let (at, has_item) = (*at, *has_item);
        while let Some((_, owner)) = owners.pop_first() {
            // An owner that has ended in the meantime gets no notice.
            if let Some(place) = self.by_owner.get(&owner) {
                let outcome = place.waiter.outcome(at, has_item);
                self.take_out(owner);
                return Some(Notice { owner, outcome });
            }
        }
        self.woken.pop_front();
        if self.woken.is_empty() {
            self.woken = VecDeque::new();
        }
        None
    }

    /// `owner`, which waits for nothing, waits for `key` behind all others. Returns its queue, and the number that it has
    /// drawn.
    pub(super) fn put(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        waiter: W,
        kept: W::Kept,
    ) -> (&mut Queue<W>, u64) {
        let known = self.owned(key);
        let key_bytes = known.unwrap_or_else(|| Arc::from(key.as_bytes()));
        let number = self.next_number;
        // As many as a server can be asked for in any life: one a nanosecond for 500 years.
        self.next_number += 1;
        let place = Place {
            key: Arc::clone(&key_bytes),
            number,
            waiter,
            kept,
        };
        self.table_bytes += place.bytes();
        self.by_owner.insert(owner, place);
        self.deadlines.insert((waiter.until(), owner));
        self.note_next();
        let queue = self.by_key.entry(key_bytes).or_default();
        queue.owners.insert(number, owner);
        (queue, number)
    }

    /// Changes the time of a wait, or its data; its place stays. Nothing happens if `owner` does not wait.
    pub(super) fn change(&mut self, owner: Owner, change: impl FnOnce(&mut W, &mut W::Kept)) {
        if let Some(place) = self.by_owner.get_mut(&owner) {
            let before = place.waiter.until();
            self.table_bytes -= place.bytes();
            change(&mut place.waiter, &mut place.kept);
            self.table_bytes += place.bytes();
            let after = place.waiter.until();
            self.deadlines.remove(&(before, owner));
            self.deadlines.insert((after, owner));
            self.note_next();
        }
    }

    /// Removes `owner` from its queue. Returns its place, and the data of the queue if that is empty now; `None` if it
    /// did not wait.
    pub(super) fn take_out(&mut self, owner: Owner) -> Option<(Place<W>, Option<W::Queue>)> {
        let place = self.by_owner.remove(&owner)?;
        let queue = self.by_key.get_mut(&place.key);
        let is_last = queue.and_then(|queue| {
            queue.owners.remove(&place.number)?;
            Some(queue.owners.is_empty())
        });
        let mut beside = None;
        match is_last {
            Some(true) => {
                let last = self.by_key.remove(&place.key);
                beside = last.map(|queue| queue.beside);
            }
            Some(false) => {}
            // Q12
            None => self.woken_owners -= 1,
        }
        self.deadlines.remove(&(place.waiter.until(), owner));
        self.table_bytes -= place.bytes();
        self.note_next();
        Some((place, beside))
    }

    /// A wait, or something else that is to happen, was added or removed.
    pub(super) fn note_next(&mut self) {
        self.next = self.first_moment();
    }

    fn first_moment(&self) -> Option<Instant> {
        let wait = self.deadlines.first().map(|(at, _)| *at);
        wait.into_iter().chain(W::next_of(&self.table)).min()
    }
}

/// The queues as a view shows them.
#[cfg(feature = "verify")]
impl<W: Waits> Queues<W> {
    /// Every queue: its key, and its waiters.
    pub(super) fn view(&self) -> impl Iterator<Item = (Key<'_>, Vec<(Owner, W)>)> {
        // V1: every field is shown here, follows from the waits, or is a sum (Q4). Of the numbers only the order
        // matters. Of the table's data, ends follow from the items, and a round finds the same as a look at the key. The view
        // shows by itself whether grants are withheld.
        let Self {
            by_key,
            by_owner: _,
            deadlines: _,
            next: _,
            next_number: _,
            table_bytes: _,
            // Shown by `woken_notices`.
            woken: _,
            woken_owners: _,
            table: _,
        } = self;
        by_key.keys().map(|key| {
            let key = as_key(key);
            (key, self.queue(key).collect())
        })
    }

    /// The notices of the waiters that were woken, batch by batch.
    pub(super) fn woken_notices(&self) -> impl Iterator<Item = Vec<Notice>> {
        self.woken.iter().map(|batch| {
            let places = batch
                .owners
                .values()
                .map(|owner| (*owner, self.by_owner.get(owner)));
            let notices = places.filter_map(|(owner, place)| {
                let outcome = place?.waiter.outcome(batch.at, batch.has_item);
                Some(Notice { owner, outcome })
            });
            notices.collect()
        })
    }
}

#[cfg(any(test, feature = "verify"))]
impl<W: Waits> Queues<W> {
    /// Q1 to Q4, and Q12.
    pub(super) fn check_queues(&self) {
        let (mut table_bytes, mut in_queues) = (0, 0);
        for (key, queue) in &self.by_key {
            assert!(!queue.owners.is_empty(), "Q1: a queue of nobody");
            for (number, owner) in &queue.owners {
                in_queues += 1;
                let place = self.by_owner.get(owner);
                assert_eq!(
                    place.map(|place| (&place.key, place.number)),
                    Some((key, *number)),
                    "Q1: one in a queue who does not know"
                );
                assert!(*number < self.next_number, "Q2: a number not yet drawn");
                table_bytes += place.map_or(0, Place::bytes);
            }
        }
        let mut woken = 0;
        for owner in self.woken.iter().flat_map(|batch| batch.owners.values()) {
            if let Some(place) = self.by_owner.get(owner) {
                woken += 1;
                assert!(!self.is_queued(place), "Q12: one who waits was let go");
                table_bytes += place.bytes();
            }
        }
        assert_eq!(self.woken_owners, woken, "Q12: how many were let go");
        let places = in_queues + woken;
        assert_eq!(places, self.by_owner.len(), "Q1: one who is in no queue");
        let deadlines = self.by_owner.iter();
        let deadlines = deadlines.map(|(owner, place)| (place.waiter.until(), *owner, place));
        let mut listed = 0;
        for (until, owner, place) in deadlines {
            let is_listed = self.deadlines.contains(&(until, owner));
            listed += usize::from(is_listed);
            assert!(is_listed || !self.is_queued(place), "Q3: deadlines");
        }
        assert_eq!(self.deadlines.len(), listed, "Q3: a deadline of nobody");
        assert_eq!(self.next, self.first_moment(), "Q3: the first of them");
        assert_eq!(self.table_bytes, table_bytes, "Q4: the table's own bytes");
    }
}
