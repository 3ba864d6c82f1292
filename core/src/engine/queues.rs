//! Who waits for which key, in which order and until when: the queues, whatever is waited for.
//!
//! A connection stands in one of these queues at a time. It leaves when it is given what it waits for, when its time is over,
//! or when it ends; whatever the length of the queue, that is a few steps.
//!
//! One command may end many waits: a store ends all waits for its key. Such waiters leave their queue together
//! ([`Queues::wake`]) and wait for nothing from then on. The table forgets each of them when its notice is taken.
//!
//! - Q1: a connection waits for at most one key, and what keys know of those who wait and what these know of their
//!   keys is the same.
//! - Q2: those who wait for a key stand in the order in which they came.
//! - Q3: every wait ends: it is listed by the moment at which it does so by itself.
//! - Q4: what is counted is what is there: the queues' own bytes.
//! - Q12: a connection in the table that is in no queue was let go, and its notice has not been taken.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
#[cfg(feature = "verify")]
use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Bound;

use crate::engine::owned_key::{OwnedKey, as_key};
use crate::key::Key;
use crate::owner::Owner;
use crate::time::Instant;
use crate::wait::{Notice, Outcome};

/// What a connection waits with: for a lock ([`Waiter`](super::Waiter)) or for a value
/// ([`WinWaiter`](super::WinWaiter)).
pub trait Waits: Copy {
    /// What a queue of these knows beside who stands in it.
    type Queue: Clone + Debug + Default;
    /// What a table of these knows beside its queues.
    type Table: Clone + Debug + Default;

    /// When it waits no more.
    fn until(&self) -> Instant;

    /// How a wait ended that was let go with others at `at`: what it waited for was free then, with an item or
    /// without, and was not given to it.
    fn outcome(&self, at: Instant, has_item: bool) -> Outcome;

    /// What one who waits for this key takes of the memory limit, in bytes.
    fn bytes_for(key: Key<'_>) -> usize;

    /// When something else is to happen of which those who wait are to be told.
    fn next_of(table: &Self::Table) -> Option<Instant>;
}

/// The queues of all keys.
#[derive(Clone, Debug)]
pub struct Queues<W: Waits> {
    /// Never a queue of nobody.
    by_key: BTreeMap<OwnedKey, Queue<W>>,
    /// Q1 holds by type for one half: a map has one value a connection.
    by_owner: BTreeMap<Owner, Place<W>>,
    /// By the moments at which the waits end by themselves (Q3).
    deadlines: BTreeSet<(Instant, Owner)>,
    /// The first of these moments and of the table's, so that who meets no wait looks at one number.
    next: Option<Instant>,
    /// What the next to come draws.
    next_number: u64,
    table_bytes: usize,
    /// The waiters that have left their queues together and were not told yet, the first to be told first.
    woken: VecDeque<Woken>,
    /// How many of them are still in `by_conn` (Q12).
    woken_owners: usize,
    pub(super) table: W::Table,
}

/// Waiters that have left a queue together, at one moment.
#[derive(Clone, Debug)]
struct Woken {
    /// By their numbers. Some may have ended since: they are in `by_conn` no more.
    owners: BTreeMap<u64, Owner>,
    at: Instant,
    has_item: bool,
}

/// Those who wait for one key.
#[derive(Clone, Debug)]
pub(super) struct Queue<W: Waits> {
    /// By the numbers they have drawn (Q2).
    owners: BTreeMap<u64, Owner>,
    pub(super) beside: W::Queue,
}

/// Where a connection waits, and with what.
#[derive(Clone, Debug)]
pub(super) struct Place<W> {
    pub(super) key: OwnedKey,
    /// The order of numbers is that of arrival.
    pub(super) number: u64,
    pub(super) waiter: W,
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

    /// Those who wait for `key`, the first to come first.
    pub fn queue(&self, key: Key<'_>) -> impl Iterator<Item = (Owner, W)> {
        let owners = self.queue_of(key).into_iter();
        let owners = owners.flat_map(|queue| queue.owners.values());
        owners.map(|owner| (*owner, self.by_owner[owner].waiter))
    }

    /// The keys that somebody waits for, in their order.
    pub fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.by_key.keys().map(|key| as_key(key))
    }

    /// Whether `owner` waits, or was let go and not told yet.
    #[must_use]
    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.by_owner.contains_key(&owner)
    }

    /// How many connections wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_owner.len() - self.woken_owners
    }

    /// Whether any connection waits.
    pub(super) fn has_queues(&self) -> bool {
        !self.by_key.is_empty()
    }

    /// How many connections wait, or were let go and not told yet.
    pub(super) fn places(&self) -> usize {
        self.by_owner.len()
    }

    /// Whether no connection waits, and none that was let go is still to be told.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// What the queues take of the memory limit, in bytes.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// The first of those who wait for `key`.
    pub(super) fn first(&self, key: Key<'_>) -> Option<(Owner, W)> {
        let (_, owner) = self.queue_of(key)?.owners.first_key_value()?;
        Some((*owner, self.by_owner[owner].waiter))
    }

    /// Those who wait for `key`, with their numbers, the first to come first.
    pub(super) fn in_turn(&self, key: Key<'_>) -> impl Iterator<Item = (u64, Owner, W)> {
        let owners = self.queue_of(key).into_iter();
        let owners = owners.flat_map(|queue| &queue.owners);
        owners.map(|(number, owner)| (*number, *owner, self.by_owner[owner].waiter))
    }

    /// Where `owner` waits.
    pub(super) fn place(&self, owner: Owner) -> Option<&Place<W>> {
        self.by_owner
            .get(&owner)
            .filter(|place| self.is_queued(place))
    }

    /// Whether this is a place in a queue: if not, its connection was let go.
    fn is_queued(&self, place: &Place<W>) -> bool {
        let queue = self.by_key.get(&place.key);
        queue.is_some_and(|queue| queue.owners.contains_key(&place.number))
    }

    /// Those who wait for `key`; `None` if nobody does.
    pub(super) fn queue_of(&self, key: Key<'_>) -> Option<&Queue<W>> {
        self.by_key.get(key.as_bytes())
    }

    /// The same, to be changed.
    pub(super) fn queue_mut(&mut self, key: Key<'_>) -> Option<&mut Queue<W>> {
        self.by_key.get_mut(key.as_bytes())
    }

    /// A key that somebody waits for, shared with its queue.
    pub(super) fn owned(&self, key: Key<'_>) -> Option<OwnedKey> {
        let (owned, _) = self.by_key.get_key_value(key.as_bytes())?;
        Some(Arc::clone(owned))
    }

    /// The keys from a bound on, each shared with its queue.
    pub(super) fn keys_from(&self, from: Bound<&[u8]>) -> impl Iterator<Item = &OwnedKey> {
        let behind = self.by_key.range::<[u8], _>((from, Bound::Unbounded));
        behind.map(|(key, _)| key)
    }

    /// What the next to come draws.
    pub(super) const fn next_number(&self) -> u64 {
        self.next_number
    }

    /// When the first of the waits ends by itself, or something else happens of which somebody is to be told.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// One that waits and whose time is over by `now`.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Owner> {
        while let Some((at, owner)) = self.deadlines.first().copied()
            && at <= now
        {
            if self.place(owner).is_some() {
                return Some(owner);
            }
            // It was let go: its time means nothing any more.
            self.deadlines.pop_first();
            self.note_next();
        }
        None
    }

    /// The first `count` of those who wait for `key` leave their queue together: `at` this moment it was free, with an item
    /// or without. Says what the queue knew if it is empty now. [`Self::next_woken`] tells them.
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

    /// The next of those who were let go together, with how its wait ended; `None` if the last of them has been told.
    pub(super) fn next_woken(&mut self) -> Option<Notice> {
        let Woken {
            owners,
            at,
            has_item,
        } = self.woken.front_mut()?;
        let (at, has_item) = (*at, *has_item);
        while let Some((_, owner)) = owners.pop_first() {
            // One that has ended meanwhile is told nothing.
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
    pub(super) fn put(&mut self, key: Key<'_>, owner: Owner, waiter: W) -> (&mut Queue<W>, u64) {
        let owned = self.owned(key);
        let owned = owned.unwrap_or_else(|| Arc::from(key.as_bytes()));
        let number = self.next_number;
        // As many as a server can be asked for in any life: one a nanosecond for 500 years.
        self.next_number += 1;
        let place = Place {
            key: Arc::clone(&owned),
            number,
            waiter,
        };
        self.by_owner.insert(owner, place);
        self.deadlines.insert((waiter.until(), owner));
        self.table_bytes += W::bytes_for(key);
        self.note_next();
        let queue = self.by_key.entry(owned).or_default();
        queue.owners.insert(number, owner);
        (queue, number)
    }

    /// `owner` waits no more. Says where it did, and what its queue knew if nobody is left in it; `None` if it waited for
    /// nothing.
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
        self.table_bytes -= W::bytes_for(as_key(&place.key));
        self.note_next();
        Some((place, beside))
    }

    /// A wait, or something else that is to happen, has come or gone.
    pub(super) fn note_next(&mut self) {
        self.next = self.first_moment();
    }

    fn first_moment(&self) -> Option<Instant> {
        let wait = self.deadlines.first().map(|(at, _)| *at);
        wait.into_iter().chain(W::next_of(&self.table)).min()
    }
}

/// What only a view looks at.
#[cfg(feature = "verify")]
impl<W: Waits> Queues<W> {
    /// Every queue: its key, and who stands in it.
    pub(super) fn view(&self) -> impl Iterator<Item = (Key<'_>, Vec<(Owner, W)>)> {
        // V1: every field is shown here, follows from the waits, or is a sum (Q4). Of the numbers only the
        // order matters. Of what tables know, `notices` are shown by themselves, ends follow from the items, and
        // a round finds nothing that a look at the key does not.
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

    /// The notices of those who were let go, batch by batch.
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
                table_bytes += W::bytes_for(as_key(key));
            }
        }
        let mut woken = 0;
        for owner in self.woken.iter().flat_map(|batch| batch.owners.values()) {
            if let Some(place) = self.by_owner.get(owner) {
                woken += 1;
                assert!(!self.is_queued(place), "Q12: one who waits was let go");
                table_bytes += W::bytes_for(as_key(&place.key));
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
