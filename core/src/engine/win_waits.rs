//! Which gets wait for a value or a win, and in which order: the queues, without the items.
//!
//! - Z3: a connection waits for at most one key, and what keys know of those who wait and what these know
//!   of their keys is the same.
//! - Z4: those who wait for a key stand in the order in which they came.
//! - Z5: every wait ends: it is listed by the moment at which it does so by itself; and so is the end of
//!   the item that is waited for, as far as it is known.
//! - Z6: what is counted is what is there: the table's own bytes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
#[cfg(feature = "verify")]
use alloc::vec::Vec;
use core::ops::Bound;

use super::bound_wins::BoundWins;
use super::lock_table::as_key;
use crate::command::{Get, NewCas, TtlSteps};
use crate::conn_id::ConnId;
use crate::key::{Key, KeyForm};
use crate::time::Instant;

/// What a wait takes beyond its key and the win that it may become, in bytes: what its get asks for, its places in
/// the queue, among the connections and among the deadlines, in trees that are seldom full, and in the list
/// of notices; for the first of a key that of the queue.
const WAIT_BYTES: usize = 640;

/// A key, shared by its queue and those who wait in it.
type OwnedKey = Arc<[u8]>;

/// Who waits for what.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct WinWaits {
    /// Never a queue of nobody.
    by_key: BTreeMap<OwnedKey, Queue>,
    /// Z3 holds by type for one half: a map has one value a connection.
    by_conn: BTreeMap<ConnId, Place>,
    /// By the moments at which the waits end by themselves (Z5).
    deadlines: BTreeSet<(Instant, ConnId)>,
    /// By the moments at which the items are gone (Z5).
    ends: BTreeSet<(Instant, OwnedKey)>,
    /// The first of all these moments, so that who meets none looks at one number.
    next: Option<Instant>,
    /// What the next to come draws.
    next_number: u64,
    /// All items that are waited for are looked at, from this key on.
    round: Option<Round>,
    table_bytes: usize,
}

/// How far a look at all items has come.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Round {
    Begins,
    Behind(OwnedKey),
}

/// Those who wait for a key.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Queue {
    /// By the numbers they have drawn (Z4).
    conns: BTreeMap<u64, ConnId>,
    /// When the item is gone.
    end: Option<Instant>,
}

/// Where a connection waits.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Place {
    key: OwnedKey,
    number: u64,
    waiter: WinWaiter,
}

/// What a get that waits has asked for: what is to be known of it when it is its turn.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct WinWaiter {
    /// When it waits no more.
    pub until: Instant,
    /// As [`Get::steps`].
    pub steps: TtlSteps,
    /// As [`Get::key_form`].
    pub key_form: KeyForm,
    /// As [`Get::new_cas`].
    pub new_cas: NewCas,
    /// As [`Get::bump`].
    pub bump: bool,
    /// As [`Get::binds`].
    pub binds: bool,
}

impl WinWaiter {
    pub(super) const fn new(get: &Get<'_>, until: Instant) -> Self {
        Self {
            until,
            steps: get.steps,
            key_form: get.key_form,
            new_cas: get.new_cas,
            bump: get.bump,
            binds: get.binds,
        }
    }

    /// The get, which does not wait any more.
    pub(super) const fn get(self, key: Key<'_>) -> Get<'_> {
        Get {
            key_form: self.key_form,
            steps: self.steps,
            bump: self.bump,
            new_cas: self.new_cas,
            recaches: true,
            binds: self.binds,
            ..Get::new(key)
        }
    }
}

impl WinWaits {
    /// Whether `conn` waits.
    #[must_use]
    pub fn is_waiting(&self, conn: ConnId) -> bool {
        self.by_conn.contains_key(&conn)
    }

    /// How many wait for `key`.
    #[must_use]
    pub fn waiting(&self, key: Key<'_>) -> usize {
        let queue = self.by_key.get(key.as_bytes());
        queue.map_or(0, |queue| queue.conns.len())
    }

    /// The keys that somebody waits for, in their order.
    pub fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.by_key.keys().map(|key| as_key(key))
    }

    /// Those who wait for `key`, the first to come first.
    pub fn queue(&self, key: Key<'_>) -> impl Iterator<Item = (ConnId, WinWaiter)> {
        let queue = self.by_key.get(key.as_bytes());
        let conns = queue.into_iter().flat_map(|queue| queue.conns.values());
        conns.map(|conn| (*conn, self.by_conn[conn].waiter))
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

    /// What one who waited for this key would add to that. The win that is given to it adds no more than that to the
    /// table of wins, which has room for it then.
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        WAIT_BYTES + 2 * key.as_bytes().len() + BoundWins::bytes_for(key)
    }

    /// When there is something to do of which somebody is to be told.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Whether that is now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.round.is_some() || self.next.is_some_and(|at| at <= now)
    }

    /// Whether all items are being looked at, some with each call: then there is something to do now.
    #[must_use]
    pub const fn is_on_round(&self) -> bool {
        self.round.is_some()
    }

    /// All items that are waited for are to be looked at: any of them may be gone.
    pub(super) fn begin_round(&mut self) {
        if !self.is_empty() {
            self.round = Some(Round::Begins);
        }
    }

    /// As [`Self::begin_round`], unless that is under way.
    pub(super) fn go_on_round(&mut self) {
        if self.round.is_none() {
            self.begin_round();
        }
    }

    /// The next item that is to be looked at.
    pub(super) fn next_of_round(&mut self) -> Option<OwnedKey> {
        let from = match self.round.as_ref()? {
            Round::Begins => Bound::Unbounded,
            Round::Behind(key) => Bound::Excluded(&**key),
        };
        let mut behind = self.by_key.range::<[u8], _>((from, Bound::Unbounded));
        let key = behind.next().map(|(key, _)| Arc::clone(key));
        let has_more = behind.next().is_some();
        self.round = key.clone().filter(|_| has_more).map(Round::Behind);
        key
    }

    /// `conn`, which waits for nothing, waits for `key` behind all others.
    pub(super) fn join(&mut self, key: Key<'_>, conn: ConnId, waiter: WinWaiter) {
        let owned = match self.by_key.get_key_value(key.as_bytes()) {
            Some((owned, _)) => Arc::clone(owned),
            None => Arc::from(key.as_bytes()),
        };
        let number = self.next_number;
        // As many as a server can be asked for in any life: one a nanosecond for 500 years.
        self.next_number += 1;
        let queue = self.by_key.entry(Arc::clone(&owned)).or_default();
        queue.conns.insert(number, conn);
        let place = Place {
            key: owned,
            number,
            waiter,
        };
        self.by_conn.insert(conn, place);
        self.deadlines.insert((waiter.until, conn));
        self.table_bytes += Self::bytes_for(key);
        self.note_next();
    }

    /// `conn` waits no more, if it did.
    pub(super) fn leave(&mut self, conn: ConnId) -> Option<WinWaiter> {
        let Place {
            key,
            number,
            waiter,
        } = self.by_conn.remove(&conn)?;
        let queue = self.by_key.get_mut(&key);
        let queue = queue.expect("Z3: a place is in a queue");
        queue.conns.remove(&number);
        if queue.conns.is_empty() {
            if let Some(end) = queue.end {
                self.ends.remove(&(end, Arc::clone(&key)));
            }
            self.by_key.remove(&key);
        }
        self.deadlines.remove(&(waiter.until, conn));
        self.table_bytes -= Self::bytes_for(as_key(&key));
        if self.is_empty() {
            self.round = None;
        }
        self.note_next();
        Some(waiter)
    }

    /// The first of those who wait for `key` waits no more.
    pub(super) fn leave_first(&mut self, key: Key<'_>) -> Option<(ConnId, WinWaiter)> {
        let (_, conn) = self.by_key.get(key.as_bytes())?.conns.first_key_value()?;
        let conn = *conn;
        self.leave(conn).map(|waiter| (conn, waiter))
    }

    /// The item of `key` is gone at this moment, as it is now.
    pub(super) fn set_end(&mut self, key: Key<'_>, end: Option<Instant>) {
        let Some((owned, queue)) = self.by_key.get_key_value(key.as_bytes()) else {
            return;
        };
        if queue.end == end {
            return;
        }
        let (owned, before) = (Arc::clone(owned), queue.end);
        if let Some(before) = before {
            self.ends.remove(&(before, Arc::clone(&owned)));
        }
        if let Some(end) = end {
            self.ends.insert((end, Arc::clone(&owned)));
        }
        if let Some(queue) = self.by_key.get_mut(&owned) {
            queue.end = end;
        }
        self.note_next();
    }

    /// One whose time is over by `now`.
    pub(super) fn overdue(&self, now: Instant) -> Option<ConnId> {
        let (at, conn) = self.deadlines.first()?;
        (*at <= now).then_some(*conn)
    }

    /// A key whose item may be gone by `now`. It is not named again before [`Self::set_end`].
    pub(super) fn next_end(&mut self, now: Instant) -> Option<OwnedKey> {
        let (at, key) = self.ends.first()?;
        if *at > now {
            return None;
        }
        let key = Arc::clone(key);
        self.set_end(as_key(&key), None);
        Some(key)
    }

    fn note_next(&mut self) {
        let wait = self.deadlines.first().map(|(at, _)| *at);
        let end = self.ends.first().map(|(at, _)| *at);
        self.next = wait.into_iter().chain(end).min();
    }
}

/// What only a view looks at.
#[cfg(feature = "verify")]
impl WinWaits {
    /// Every queue: its key, and who stands in it.
    pub(super) fn laid_open(&self) -> impl Iterator<Item = (Key<'_>, Vec<(ConnId, WinWaiter)>)> {
        // V1: every field is shown here, follows from the items (`ends`) or from the waits, or is a sum. Of
        // the numbers only the order matters, and a round finds nothing that a look at the key does not.
        let Self {
            by_key,
            by_conn: _,
            deadlines: _,
            ends: _,
            next: _,
            next_number: _,
            round: _,
            table_bytes: _,
        } = self;
        by_key.keys().map(|key| {
            let key = as_key(key);
            (key, self.queue(key).collect())
        })
    }
}

#[cfg(any(test, feature = "verify"))]
impl WinWaits {
    /// Z3 to Z6.
    pub(super) fn check(&self) {
        let (mut table_bytes, mut in_queues) = (0, 0);
        let mut ends = BTreeSet::new();
        for (key, queue) in &self.by_key {
            assert!(!queue.conns.is_empty(), "Z3: a queue of nobody");
            ends.extend(queue.end.map(|end| (end, Arc::clone(key))));
            for (number, conn) in &queue.conns {
                in_queues += 1;
                let place = self.by_conn.get(conn);
                assert_eq!(
                    place.map(|place| (&place.key, place.number)),
                    Some((key, *number)),
                    "Z3: one in a queue who does not know"
                );
                assert!(*number < self.next_number, "Z4: a number not yet drawn");
                table_bytes += Self::bytes_for(as_key(key));
            }
        }
        assert_eq!(in_queues, self.by_conn.len(), "Z3: one who is in no queue");
        let deadlines = self.by_conn.iter();
        let deadlines = deadlines.map(|(conn, place)| (place.waiter.until, *conn));
        let deadlines: BTreeSet<_> = deadlines.collect();
        assert_eq!(self.deadlines, deadlines, "Z5: deadlines");
        assert_eq!(self.ends, ends, "Z5: ends of items");
        let firsts = self.deadlines.first().map(|(at, _)| *at).into_iter();
        let next = firsts.chain(self.ends.first().map(|(at, _)| *at)).min();
        assert_eq!(self.next, next, "Z5: the first of them");
        assert_eq!(self.table_bytes, table_bytes, "Z6: the table's own bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn conn(number: u64) -> ConnId {
        ConnId::from_number(number)
    }

    fn key(bytes: &'static [u8]) -> Key<'static> {
        Key::new(bytes).unwrap()
    }

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn join(table: &mut WinWaits, name: &'static [u8], number: u64, until_ms: u64) {
        let waiter = WinWaiter::new(&Get::new(key(name)), at(until_ms));
        table.join(key(name), conn(number), waiter);
        table.check();
    }

    #[test]
    fn who_comes_first_leaves_first() {
        let mut table = WinWaits::default();
        for number in [3, 1, 2] {
            join(&mut table, b"a", number, 10 * number);
        }
        join(&mut table, b"b", 4, 5);
        assert!(table.leave(conn(1)).is_some());
        assert!(table.leave(conn(1)).is_none());
        for expected in [Some(conn(3)), Some(conn(2)), None] {
            let first = table.leave_first(key(b"a"));
            assert_eq!(first.map(|(conn, _)| conn), expected);
            table.check();
        }
        assert_eq!(table.len(), 1);
        table.leave(conn(4));
        assert_eq!((table.table_bytes(), table.next()), (0, None));
        table.check();
    }

    #[test]
    fn the_end_of_an_item_is_told_once() {
        let mut table = WinWaits::default();
        join(&mut table, b"a", 1, 50);
        table.set_end(key(b"a"), Some(at(20)));
        assert_eq!(table.next(), Some(at(20)));
        assert_eq!(table.next_end(at(19)), None);
        assert_eq!(table.next_end(at(20)), Some(b"a"[..].into()));
        assert_eq!(table.next_end(at(20)), None);
        table.check();
        table.set_end(key(b"a"), Some(at(30)));
        table.leave(conn(1));
        table.check();
        assert_eq!(table.next(), None);
    }

    #[test]
    fn a_round_comes_to_every_key_once() {
        let mut table = WinWaits::default();
        for (number, name) in [&b"a"[..], b"b", b"c"].into_iter().enumerate() {
            join(&mut table, name, number as u64, 50);
        }
        assert_eq!(table.next_of_round(), None);
        table.begin_round();
        assert!(table.is_due(at(0)));
        assert_eq!(table.next_of_round(), Some(b"a"[..].into()));
        table.leave(conn(1));
        table.go_on_round();
        assert_eq!(table.next_of_round(), Some(b"c"[..].into()));
        assert_eq!(table.next_of_round(), None);
        assert!(!table.is_on_round());
    }
}
