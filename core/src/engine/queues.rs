//! Who waits for which key, in which order and until when: the queues, whatever is waited for.
//!
//! A connection stands in one of these queues at a time. It leaves when it is given what it waits for, when its time is over,
//! or when it ends; whatever the length of the queue, that is a few steps.
//!
//! - Q1: a connection waits for at most one key, and what keys know of those who wait and what these know of their
//!   keys is the same.
//! - Q2: those who wait for a key stand in the order in which they came.
//! - Q3: every wait ends: it is listed by the moment at which it does so by itself.
//! - Q4: what is counted is what is there: the queues' own bytes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
#[cfg(feature = "verify")]
use alloc::vec::Vec;
use core::fmt::Debug;
use core::ops::Bound;

use super::lock_table::as_key;
use crate::conn_id::ConnId;
use crate::key::Key;
use crate::time::Instant;

/// A key, shared by its queue and those who wait in it.
pub(super) type OwnedKey = Arc<[u8]>;

/// What a connection waits with: for a lock ([`Waiter`](super::Waiter)) or for a value
/// ([`WinWaiter`](super::WinWaiter)).
pub trait Waits: Copy {
    /// What a queue of these knows beside who stands in it.
    type Queue: Clone + Debug + Default;
    /// What a table of these knows beside its queues.
    type Table: Clone + Debug + Default;

    /// When it waits no more.
    fn until(&self) -> Instant;

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
    by_conn: BTreeMap<ConnId, Place<W>>,
    /// By the moments at which the waits end by themselves (Q3).
    deadlines: BTreeSet<(Instant, ConnId)>,
    /// The first of these moments and of the table's, so that who meets no wait looks at one number.
    next: Option<Instant>,
    /// What the next to come draws.
    next_number: u64,
    table_bytes: usize,
    pub(super) table: W::Table,
}

/// Those who wait for one key.
#[derive(Clone, Debug)]
pub(super) struct Queue<W: Waits> {
    /// By the numbers they have drawn (Q2).
    conns: BTreeMap<u64, ConnId>,
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
            by_conn: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next: None,
            next_number: 0,
            table_bytes: 0,
            table: W::Table::default(),
        }
    }
}

impl<W: Waits> Default for Queue<W> {
    fn default() -> Self {
        Self {
            conns: BTreeMap::new(),
            beside: W::Queue::default(),
        }
    }
}

impl<W: Waits> Queues<W> {
    /// How many wait for `key`.
    #[must_use]
    pub fn waiting(&self, key: Key<'_>) -> usize {
        self.queue_of(key).map_or(0, |queue| queue.conns.len())
    }

    /// Those who wait for `key`, the first to come first.
    pub fn queue(&self, key: Key<'_>) -> impl Iterator<Item = (ConnId, W)> {
        let conns = self.queue_of(key).into_iter();
        let conns = conns.flat_map(|queue| queue.conns.values());
        conns.map(|conn| (*conn, self.by_conn[conn].waiter))
    }

    /// The keys that somebody waits for, in their order.
    pub fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.by_key.keys().map(|key| as_key(key))
    }

    /// Whether `conn` waits.
    #[must_use]
    pub fn is_waiting(&self, conn: ConnId) -> bool {
        self.by_conn.contains_key(&conn)
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

    /// What the queues take of the memory limit, in bytes.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// The first of those who wait for `key`.
    pub(super) fn first(&self, key: Key<'_>) -> Option<(ConnId, W)> {
        let (_, conn) = self.queue_of(key)?.conns.first_key_value()?;
        Some((*conn, self.by_conn[conn].waiter))
    }

    /// Where `conn` waits.
    pub(super) fn place(&self, conn: ConnId) -> Option<&Place<W>> {
        self.by_conn.get(&conn)
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

    /// One whose time is over by `now`.
    pub(super) fn overdue(&self, now: Instant) -> Option<ConnId> {
        let (at, conn) = self.deadlines.first()?;
        (*at <= now).then_some(*conn)
    }

    /// `conn`, which waits for nothing, waits for `key` behind all others. Returns its queue, and the number that it has
    /// drawn.
    pub(super) fn put(&mut self, key: Key<'_>, conn: ConnId, waiter: W) -> (&mut Queue<W>, u64) {
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
        self.by_conn.insert(conn, place);
        self.deadlines.insert((waiter.until(), conn));
        self.table_bytes += W::bytes_for(key);
        self.note_next();
        let queue = self.by_key.entry(owned).or_default();
        queue.conns.insert(number, conn);
        (queue, number)
    }

    /// `conn` waits no more. Says where it did, and what its queue knew if nobody is left in it; `None` if it waited for
    /// nothing.
    pub(super) fn take_out(&mut self, conn: ConnId) -> Option<(Place<W>, Option<W::Queue>)> {
        let place = self.by_conn.remove(&conn)?;
        let queue = self.by_key.get_mut(&place.key);
        let queue = queue.expect("Q1: a place is in a queue");
        queue.conns.remove(&place.number);
        let mut beside = None;
        if queue.conns.is_empty() {
            let last = self.by_key.remove(&place.key);
            beside = last.map(|queue| queue.beside);
        }
        self.deadlines.remove(&(place.waiter.until(), conn));
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
    pub(super) fn laid_open(&self) -> impl Iterator<Item = (Key<'_>, Vec<(ConnId, W)>)> {
        // V1: every field is shown here, follows from the waits, or is a sum (Q4). Of the numbers only the
        // order matters. Of what tables know, `notices` are shown by themselves, ends follow from the items, and
        // a round finds nothing that a look at the key does not.
        let Self {
            by_key,
            by_conn: _,
            deadlines: _,
            next: _,
            next_number: _,
            table_bytes: _,
            table: _,
        } = self;
        by_key.keys().map(|key| {
            let key = as_key(key);
            (key, self.queue(key).collect())
        })
    }
}

#[cfg(any(test, feature = "verify"))]
impl<W: Waits> Queues<W> {
    /// Q1 to Q4.
    pub(super) fn check_queues(&self) {
        let (mut table_bytes, mut in_queues) = (0, 0);
        for (key, queue) in &self.by_key {
            assert!(!queue.conns.is_empty(), "Q1: a queue of nobody");
            for (number, conn) in &queue.conns {
                in_queues += 1;
                let place = self.by_conn.get(conn);
                assert_eq!(
                    place.map(|place| (&place.key, place.number)),
                    Some((key, *number)),
                    "Q1: one in a queue who does not know"
                );
                assert!(*number < self.next_number, "Q2: a number not yet drawn");
                table_bytes += W::bytes_for(as_key(key));
            }
        }
        assert_eq!(in_queues, self.by_conn.len(), "Q1: one who is in no queue");
        let deadlines = self.by_conn.iter();
        let deadlines = deadlines.map(|(conn, place)| (place.waiter.until(), *conn));
        let deadlines: BTreeSet<_> = deadlines.collect();
        assert_eq!(self.deadlines, deadlines, "Q3: deadlines");
        assert_eq!(self.next, self.first_moment(), "Q3: the first of them");
        assert_eq!(self.table_bytes, table_bytes, "Q4: the table's own bytes");
    }
}
