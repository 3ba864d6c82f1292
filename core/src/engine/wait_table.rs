//! Which connection waits for which key, and in which order: the queues, without the locks.
//!
//! A connection waits for one key at a time. It leaves its queue when the lock is given to it, when its
//! time is over, or when it ends; whatever the length of the queue, that is a few steps.
//!
//! - Q1: a connection waits for at most one key, and what keys know of those who wait and what these
//!   know of their keys is the same.
//! - Q2: those who wait for a key stand in the order in which they came.
//! - Q3: every wait ends: it is listed by the moment at which it does so by itself.
//! - Q4: what is counted is what is there: the table's own bytes.
//! - Q5: a wait that is over has one notice, which is told once.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
#[cfg(feature = "verify")]
use alloc::vec::Vec;

use super::lock_table::{LockTable, as_key};
use crate::command::{Lease, Mode};
use crate::conn_id::ConnId;
use crate::key::Key;
use crate::time::Instant;
use crate::wait::{Notice, Outcome, Sought};

/// What a wait takes beyond its key and the lock that it may become, in bytes: its places in the queue,
/// among the connections and among the deadlines, in trees that are seldom full, and in the list of notices;
/// for the first of a key that of the queue, and two of the lock's.
const WAIT_BYTES: usize = 768;

/// A key, shared by its queue and those who wait in it.
type OwnedKey = Arc<[u8]>;

/// Who waits for what.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct WaitTable {
    /// Those who wait for a key; never none.
    by_key: BTreeMap<OwnedKey, Queue>,
    /// Q1 holds by type for one half: a map has one value a connection.
    by_conn: BTreeMap<ConnId, Place>,
    /// By the moments at which they end by themselves (Q3).
    deadlines: BTreeSet<(Instant, ConnId)>,
    /// The first of these moments, so that who meets no wait looks at one number.
    next: Option<Instant>,
    /// What the next to come draws.
    next_number: u64,
    /// What is still to be told, the oldest first (Q5).
    notices: VecDeque<Notice>,
    table_bytes: usize,
}

/// Those who wait for one key.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Queue {
    /// By the numbers they have drawn (Q2).
    conns: BTreeMap<u64, ConnId>,
    /// Among how many each would hold the lock, with its number: so that the least that is asked for by those who stand
    /// before one is found without a look at all of them.
    among: BTreeSet<(u32, u64)>,
}

impl Queue {
    /// Among how many the lock can be had by the one with this number, who would be among `among`: the least that is
    /// asked for up to there.
    fn among_before(&self, number: u64, among: u32) -> u32 {
        let mut from = 0;
        while let Some((least, first)) = self.among.range((from, 0)..(among, 0)).next() {
            if *first < number {
                return *least;
            }
            from = least + 1;
        }
        among
    }
}

/// Where a connection waits.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Place {
    key: OwnedKey,
    number: u64,
    among: u32,
    waiter: Waiter,
}

/// What a connection waits for a lock with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Waiter {
    /// When it waits no more.
    pub until: Instant,
    /// Who else may hold the lock then.
    pub mode: Mode,
    /// What the lock is to last for, from when it is granted; `None` is as long as the connection.
    pub lease: Option<Lease>,
    /// It wants the lock only if there is an item.
    pub needs_item: bool,
}

impl WaitTable {
    /// The key that `conn` waits for.
    #[must_use]
    pub fn waits_for(&self, conn: ConnId) -> Option<Key<'_>> {
        self.by_conn.get(&conn).map(|place| as_key(&place.key))
    }

    /// What `conn` waits for.
    #[must_use]
    pub fn sought_by(&self, conn: ConnId) -> Option<Sought<'_>> {
        let place = self.by_conn.get(&conn)?;
        let queue = &self.by_key[&place.key];
        Some(Sought {
            key: as_key(&place.key),
            among: queue.among_before(place.number, place.among),
        })
    }

    /// Among how many one who came now could have the lock of `key`, once those who wait have had it: it would be
    /// among `among`.
    pub(super) fn among_behind(&self, key: Key<'_>, among: u32) -> u32 {
        let queue = self.by_key.get(key.as_bytes());
        queue.map_or(among, |queue| queue.among_before(self.next_number, among))
    }

    /// The first of those who wait for `key`.
    pub(super) fn first(&self, key: Key<'_>) -> Option<(ConnId, Waiter)> {
        let (_, conn) = self.by_key.get(key.as_bytes())?.conns.first_key_value()?;
        Some((*conn, self.by_conn[conn].waiter))
    }

    /// How many wait for `key`.
    #[must_use]
    pub fn waiting(&self, key: Key<'_>) -> usize {
        if self.by_conn.is_empty() {
            return 0;
        }
        let queue = self.by_key.get(key.as_bytes());
        queue.map_or(0, |queue| queue.conns.len())
    }

    /// Those who wait for `key`, the first to come first.
    pub fn queue(&self, key: Key<'_>) -> impl Iterator<Item = (ConnId, Waiter)> {
        let conns = self.by_key.get(key.as_bytes());
        let conns = conns.into_iter().flat_map(|queue| queue.conns.values());
        conns.map(|conn| (*conn, self.by_conn[conn].waiter))
    }

    /// The keys that somebody waits for, in their order.
    pub fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.by_key.keys().map(|key| as_key(key))
    }

    /// How many connections wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_conn.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_conn.is_empty()
    }

    /// What the table takes of the memory limit, in bytes.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// What one who waited for this key would add to [`Self::table_bytes`]. The lock that is given to it adds
    /// no more than that to the table of locks, which has room for it then.
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        WAIT_BYTES + 2 * key.as_bytes().len() + LockTable::bytes_for_share(key)
    }

    /// What is still to be told.
    pub fn notices(&self) -> impl Iterator<Item = Notice> {
        self.notices.iter().copied()
    }

    /// When the first of the waits ends by itself.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// How many notices there are or may come to be.
    pub(super) fn untold(&self) -> usize {
        self.by_conn.len() + self.notices.len()
    }

    /// `conn`, which waits for nothing, waits for `key` behind all others, to hold it among `among`.
    pub(super) fn join(&mut self, key: Key<'_>, conn: ConnId, among: u32, waiter: Waiter) {
        let owned = match self.by_key.get_key_value(key.as_bytes()) {
            Some((owned, _)) => Arc::clone(owned),
            None => Arc::from(key.as_bytes()),
        };
        let number = self.next_number;
        // As many as a server can be asked for in any life: one a nanosecond for 500 years.
        self.next_number += 1;
        let queue = self.by_key.entry(Arc::clone(&owned)).or_default();
        queue.conns.insert(number, conn);
        queue.among.insert((among, number));
        let place = Place {
            key: owned,
            number,
            among,
            waiter,
        };
        self.by_conn.insert(conn, place);
        self.deadlines.insert((waiter.until, conn));
        self.next = self.deadlines.first().map(|(at, _)| *at);
        self.table_bytes += Self::bytes_for(key);
    }

    /// `conn` waits no more. Says for which key it did, and with what; `None` if for nothing.
    pub(super) fn leave(&mut self, conn: ConnId) -> Option<(OwnedKey, Waiter)> {
        let Place {
            key,
            number,
            among,
            waiter,
        } = self.by_conn.remove(&conn)?;
        let queue = self.by_key.get_mut(&key);
        let queue = queue.expect("Q1: a place is in a queue");
        queue.conns.remove(&number);
        queue.among.remove(&(among, number));
        if queue.conns.is_empty() {
            self.by_key.remove(&key);
        }
        self.deadlines.remove(&(waiter.until, conn));
        self.next = self.deadlines.first().map(|(at, _)| *at);
        self.table_bytes -= Self::bytes_for(as_key(&key));
        Some((key, waiter))
    }

    /// One whose time is over by `now`.
    pub(super) fn overdue(&self, now: Instant) -> Option<ConnId> {
        let (at, conn) = self.deadlines.first()?;
        (*at <= now).then_some(*conn)
    }

    /// Notes how the wait of `conn`, which has left, has ended.
    pub(super) fn notify(&mut self, conn: ConnId, outcome: Outcome) {
        self.notices.push_back(Notice { conn, outcome });
    }

    /// The oldest notice; it is told with that.
    pub(super) fn take_notice(&mut self) -> Option<Notice> {
        let notice = self.notices.pop_front()?;
        if self.notices.is_empty() {
            // Many may have waited; what their notices took is given back.
            self.notices = VecDeque::new();
        }
        Some(notice)
    }
}

/// What only a view looks at.
#[cfg(feature = "verify")]
impl WaitTable {
    /// Every queue: its key, and who stands in it.
    pub(super) fn laid_open(&self) -> impl Iterator<Item = (Key<'_>, Vec<(ConnId, Waiter)>)> {
        // V1: every field is shown, here or by `notices`, or is a sum (Q4). Of the numbers only the order
        // matters.
        let Self {
            by_key,
            by_conn: _,
            deadlines: _,
            next: _,
            next_number: _,
            notices: _,
            table_bytes: _,
        } = self;
        by_key.keys().map(|key| {
            let key = as_key(key);
            (key, self.queue(key).collect())
        })
    }
}

#[cfg(any(test, feature = "verify"))]
impl WaitTable {
    /// Q1, Q3 and Q4.
    pub(super) fn check(&self) {
        let mut table_bytes = 0;
        let mut in_queues = 0;
        for (key, queue) in &self.by_key {
            assert!(!queue.conns.is_empty(), "Q1: a queue of nobody");
            assert_eq!(queue.conns.len(), queue.among.len(), "Q1: among how many");
            for (number, conn) in &queue.conns {
                in_queues += 1;
                let place = self.by_conn.get(conn);
                assert_eq!(
                    place.map(|place| (&place.key, place.number)),
                    Some((key, *number)),
                    "Q1: one in a queue who does not know"
                );
                let among = place.map_or(0, |place| place.among);
                assert!(
                    queue.among.contains(&(among, *number)),
                    "Q1: among how many {conn} would hold it"
                );
                assert!(*number < self.next_number, "Q2: a number not yet drawn");
                table_bytes += Self::bytes_for(as_key(key));
            }
        }
        assert_eq!(in_queues, self.by_conn.len(), "Q1: one who is in no queue");
        let deadlines = self.by_conn.iter();
        let deadlines = deadlines.map(|(conn, place)| (place.waiter.until, *conn));
        let deadlines: BTreeSet<_> = deadlines.collect();
        assert_eq!(self.deadlines, deadlines, "Q3: deadlines");
        let next = self.deadlines.first().map(|(at, _)| *at);
        assert_eq!(self.next, next, "Q3: the first of them");
        assert_eq!(self.table_bytes, table_bytes, "Q4: the table's own bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn(number: u64) -> ConnId {
        ConnId::from_number(number)
    }

    fn key(bytes: &'static [u8]) -> Key<'static> {
        Key::new(bytes).unwrap()
    }

    fn waiter(until_ms: u64) -> Waiter {
        Waiter {
            until: Instant::from_millis(until_ms),
            mode: Mode::Exclusive,
            lease: None,
            needs_item: false,
        }
    }

    fn leave_first(table: &mut WaitTable) -> Option<(ConnId, Waiter)> {
        let first = table.first(key(b"a"))?;
        table.leave(first.0)?;
        Some(first)
    }

    #[test]
    fn the_least_counts_of_those_who_stand_before() {
        let mut table = WaitTable::default();
        let among = |table: &WaitTable, number| table.sought_by(conn(number)).map(|it| it.among);
        for (number, among) in [(1, 5), (2, 3), (3, 9), (4, 1), (5, 2)] {
            table.join(key(b"a"), conn(number), among, waiter(10));
        }
        table.check();
        let all = [1, 2, 3, 4, 5, 6].map(|number| among(&table, number));
        assert_eq!(all, [Some(5), Some(3), Some(3), Some(1), Some(1), None]);
        assert_eq!(table.among_behind(key(b"a"), 7), 1);
        table.leave(conn(2));
        table.leave(conn(4));
        assert_eq!(among(&table, 3), Some(5));
        assert_eq!(among(&table, 5), Some(2));
        assert_eq!(table.among_behind(key(b"a"), 7), 2);
        assert_eq!(table.among_behind(key(b"b"), 7), 7);
        table.check();
    }

    #[test]
    fn who_comes_first_leaves_first() {
        let mut table = WaitTable::default();
        for number in [3, 1, 2] {
            table.join(key(b"a"), conn(number), 1, waiter(10 * number));
        }
        table.join(key(b"b"), conn(4), 1, waiter(5));
        table.check();
        assert_eq!(table.waiting(key(b"a")), 3);
        assert_eq!(table.leave(conn(1)).map(|(_, it)| it), Some(waiter(10)));
        assert_eq!(table.leave(conn(1)), None);
        let first = leave_first(&mut table);
        assert_eq!(first, Some((conn(3), waiter(30))));
        table.check();
        assert_eq!(leave_first(&mut table).map(|(it, _)| it), Some(conn(2)));
        assert_eq!(leave_first(&mut table), None);
        assert_eq!(table.waits_for(conn(4)), Some(key(b"b")));
        table.leave(conn(4));
        assert!(table.is_empty());
        assert_eq!((table.table_bytes(), table.next()), (0, None));
        table.check();
    }

    #[test]
    fn a_wait_ends_by_itself() {
        let mut table = WaitTable::default();
        table.join(key(b"a"), conn(1), 1, waiter(20));
        table.join(key(b"a"), conn(2), 1, waiter(10));
        assert_eq!(table.next(), Some(Instant::from_millis(10)));
        assert_eq!(table.overdue(Instant::from_millis(9)), None);
        let now = Instant::from_millis(10);
        assert_eq!(table.overdue(now), Some(conn(2)));
        table.leave(conn(2));
        assert_eq!(table.overdue(now), None);
        table.check();
    }
}
