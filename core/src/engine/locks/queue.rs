//! The queues of the clients that wait for locks, without the locks.
//!
//! Q1 to Q4 are those of all queues (`queues.rs`).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::command::{Lease, Mode};
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;
use latchd_protocol::wait::Outcome;

use crate::deadlock::WaitTarget;
use crate::engine::locks::table::{LockTable, charge};
use crate::engine::locks::withheld::Withheld;
use crate::engine::owned_key::as_key;
use crate::engine::queues::{Place, Queues, Waits};

/// The bytes of a wait besides its key and the lock that it may become: its places in the queue, among the owners and
/// among the deadlines, in trees that are seldom full, and in the list of notices. The first waiter of a key also pays
/// for the queue and for two places of the lock.
const WAIT_BYTES: usize = 768;

/// The waiters for locks.
pub type WaitTable = Queues<Waiter>;

/// The request of a client that waits for a lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Waiter {
    /// When it waits no more.
    pub until: Instant,
    /// Whether the lock can be shared.
    pub mode: Mode,
    /// The bound of sharers that it asks for: from [`Self::mode`] and the limit of the core.
    pub max_sharers: u32,
    /// The ttl of the lock from the moment of the grant; with `None` it lasts as long as its owner.
    pub lease: Option<Lease>,
    /// It wants the lock only if there is an item.
    pub needs_item: bool,
}

impl Waits for Waiter {
    /// The metadata of the lock that it may get.
    type Kept = Option<Box<[u8]>>;
    type Queue = Among;
    type Table = Withheld;

    fn until(&self) -> Instant {
        self.until
    }

    fn outcome(&self, at: Instant, has_item: bool) -> Outcome {
        if self.until <= at {
            Outcome::TimedOut
        } else if self.needs_item && !has_item {
            Outcome::NotFound
        } else {
            Outcome::TooManyLocks
        }
    }

    fn bytes_for(key: Key<'_>) -> usize {
        WaitTable::bytes_for(key)
    }

    fn kept_bytes(metadata: &Self::Kept) -> usize {
        charge(metadata.as_deref().map(<[u8]>::len))
    }

    fn next_of(withheld: &Self::Table) -> Option<Instant> {
        withheld.next()
    }
}

/// The bounds of sharers of all waiters in a queue, with their numbers. They show the least bound before a waiter
/// without a walk over all of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Among(BTreeSet<(u32, u64)>);

impl Among {
    /// The bound of sharers for the waiter with this number, which asks for `max_sharers`: the least one up to there.
    fn before(&self, number: u64, max_sharers: u32) -> u32 {
        let mut from = 0;
        while let Some((least, first)) = self.0.range((from, 0)..(max_sharers, 0)).next() {
            if *first < number {
                return *least;
            }
            from = least + 1;
        }
        max_sharers
    }
}

impl WaitTable {
    /// Whether grants are withheld, and until when.
    pub(in crate::engine) const fn withheld(&self) -> &Withheld {
        &self.table
    }

    pub(in crate::engine) fn set_withheld(&mut self, withheld: Withheld) {
        self.table = withheld;
        self.note_next();
    }

    /// The key that `owner` waits for.
    #[must_use]
    pub fn waits_for(&self, owner: Owner) -> Option<Key<'_>> {
        self.place(owner).map(|place| as_key(&place.key))
    }

    /// The metadata of the lock that `owner` waits for, if it has some.
    #[must_use]
    pub fn metadata(&self, owner: Owner) -> Option<&[u8]> {
        self.place(owner)?.kept.as_deref()
    }

    /// The lock that `owner` waits for, unless its time is over by `now`.
    pub(in crate::engine) fn target_of(
        &self,
        owner: Owner,
        now: Instant,
    ) -> Option<WaitTarget<'_>> {
        let place = self.place(owner)?;
        if place.waiter.until <= now {
            return None;
        }
        let key = as_key(&place.key);
        let max_sharers = self.among_before(key, place.number, place.waiter.max_sharers);
        Some(WaitTarget { key, max_sharers })
    }

    /// The bound of sharers for a request that came now and asked for `max_sharers`, once all waiters have had the lock.
    pub(in crate::engine) fn max_sharers_behind(&self, key: Key<'_>, max_sharers: u32) -> u32 {
        self.among_before(key, self.next_number(), max_sharers)
    }

    fn among_before(&self, key: Key<'_>, number: u64, max_sharers: u32) -> u32 {
        let queue = self.queue_of(key);
        queue.map_or(max_sharers, |queue| {
            queue.beside.before(number, max_sharers)
        })
    }

    /// The bytes that a waiter of this key without metadata would add to [`Self::table_bytes`]. The lock that it gets adds no more than
    /// that to the table of locks, which has free memory for it then.
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        WAIT_BYTES + 2 * key.as_bytes().len() + LockTable::bytes_for_share(key)
    }

    /// `owner`, which waits for nothing, waits for `key` behind all others.
    pub(in crate::engine) fn join(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        waiter: Waiter,
        metadata: Option<Box<[u8]>>,
    ) {
        let (queue, number) = self.put(key, owner, waiter, metadata);
        queue.beside.0.insert((waiter.max_sharers, number));
    }

    /// Removes `owner` from its queue. Returns its place; `None` if it did not wait.
    pub(in crate::engine) fn leave(&mut self, owner: Owner) -> Option<Place<Waiter>> {
        let (place, _) = self.take_out(owner)?;
        if let Some(queue) = self.queue_mut(as_key(&place.key)) {
            queue
                .beside
                .0
                .remove(&(place.waiter.max_sharers, place.number));
        }
        Some(place)
    }

    /// Wakes the first `count` waiters of `key` ([`Queues::wake`]).
    pub(in crate::engine) fn wake_first(
        &mut self,
        key: Key<'_>,
        count: usize,
        at: Instant,
        has_item: bool,
    ) {
        if count < self.waiting(key) {
            let first = self.in_turn(key).take(count);
            let first: Vec<_> = first
                .map(|(_, place)| (place.waiter.max_sharers, place.number))
                .collect();
            let queue = self.queue_mut(key).expect("Q1: they wait in it");
            for place in first {
                queue.beside.0.remove(&place);
            }
        }
        self.wake(key, count, at, has_item);
    }

    /// Q1 to Q4, and the bounds of sharers.
    #[cfg(any(test, feature = "verify"))]
    pub(in crate::engine) fn check(&self) {
        self.check_queues();
        for key in self.keys() {
            let places = self.queue(key).filter_map(|(owner, _)| self.place(owner));
            let due = places.map(|place| (place.waiter.max_sharers, place.number));
            let due = Among(due.collect());
            let known = self.queue_of(key).map(|queue| &queue.beside);
            assert_eq!(known, Some(&due), "Q1: among how many each would hold it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u64) -> Owner {
        Owner::from_number(number)
    }

    fn key(bytes: &'static [u8]) -> Key<'static> {
        Key::new(bytes).unwrap()
    }

    fn waiter(until_ms: u64) -> Waiter {
        Waiter {
            until: Instant::from_millis(until_ms),
            mode: Mode::Exclusive,
            max_sharers: 1,
            lease: None,
            needs_item: false,
        }
    }

    fn leave_first(table: &mut WaitTable) -> Option<(Owner, Waiter)> {
        let first = table.first(key(b"a"))?;
        table.leave(first.0)?;
        Some(first)
    }

    #[test]
    fn least_bound_before_a_waiter_counts() {
        let mut table = WaitTable::default();
        let now = Instant::from_millis(9);
        let max_sharers = |table: &WaitTable, number| {
            table.target_of(owner(number), now).map(|it| it.max_sharers)
        };
        for (number, max_sharers) in [(1, 5), (2, 3), (3, 9), (4, 1), (5, 2)] {
            table.join(
                key(b"a"),
                owner(number),
                Waiter {
                    max_sharers,
                    ..waiter(10)
                },
                None,
            );
        }
        table.check();
        let all = [1, 2, 3, 4, 5, 6].map(|number| max_sharers(&table, number));
        assert_eq!(all, [Some(5), Some(3), Some(3), Some(1), Some(1), None]);
        assert_eq!(table.max_sharers_behind(key(b"a"), 7), 1);
        table.leave(owner(2));
        table.leave(owner(4));
        assert_eq!(max_sharers(&table, 3), Some(5));
        assert_eq!(max_sharers(&table, 5), Some(2));
        assert_eq!(table.max_sharers_behind(key(b"a"), 7), 2);
        assert_eq!(table.max_sharers_behind(key(b"b"), 7), 7);
        assert_eq!(table.target_of(owner(1), Instant::from_millis(10)), None);
        table.check();
    }

    #[test]
    fn first_waiter_leaves_first() {
        let mut table = WaitTable::default();
        for number in [3, 1, 2] {
            table.join(key(b"a"), owner(number), waiter(10 * number), None);
        }
        table.join(key(b"b"), owner(4), waiter(5), None);
        table.check();
        assert_eq!(table.waiting(key(b"a")), 3);
        let left = table.leave(owner(1)).map(|place| place.waiter);
        assert_eq!(left, Some(waiter(10)));
        assert!(table.leave(owner(1)).is_none());
        let first = leave_first(&mut table);
        assert_eq!(first, Some((owner(3), waiter(30))));
        table.check();
        assert_eq!(leave_first(&mut table).map(|(it, _)| it), Some(owner(2)));
        assert_eq!(leave_first(&mut table), None);
        assert_eq!(table.waits_for(owner(4)), Some(key(b"b")));
        table.leave(owner(4));
        assert!(table.is_empty());
        assert_eq!((table.table_bytes(), table.next()), (0, None));
        table.check();
    }

    #[test]
    fn a_wait_ends_by_itself() {
        let mut table = WaitTable::default();
        table.join(key(b"a"), owner(1), waiter(20), None);
        table.join(key(b"a"), owner(2), waiter(10), None);
        assert_eq!(table.next(), Some(Instant::from_millis(10)));
        assert_eq!(table.overdue(Instant::from_millis(9), &mut 0), None);
        let now = Instant::from_millis(10);
        assert_eq!(table.overdue(now, &mut 0), Some(owner(2)));
        table.leave(owner(2));
        assert_eq!(table.overdue(now, &mut 0), None);
        table.check();
    }
}
