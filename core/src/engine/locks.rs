//! Which connection holds which key.
//!
//! A lock ties one stored item to one open connection. It ends by `unlock`, by its owner deleting
//! the item, or by the connection closing: never by time and never by eviction.
//!
//! - L1: a key has at most one owner.
//! - L2: what keys know of their owner and what connections know of their keys is the same.
//! - L3: a key is locked here if and only if its item is marked as locked in the store.
//! - L4: an owner is an open connection.
//!
//! Source: yrmcds `docs/locking.md`. Where we differ: docs/PROTOCOL.md, "Locks".

use alloc::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Core;
use crate::conn_id::ConnId;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::reply::{Refusal, Reply};
use crate::store::Store;

/// Who holds what. Owned by key and never by place, since items move.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct LockTable {
    /// L1 holds by type: a map has one value a key.
    by_key: BTreeMap<Bytes, Holding>,
    /// The open connections (L4), each with the keys it holds.
    by_conn: BTreeMap<ConnId, BTreeSet<Bytes>>,
}

/// One lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Holding {
    /// Who holds it.
    pub owner: ConnId,
    /// A `flush_all` found the item held and takes effect when it is unlocked.
    pub flush_pending: bool,
}

impl LockTable {
    /// The connection that holds `key`.
    #[must_use]
    pub fn owner(&self, key: Key<'_>) -> Option<ConnId> {
        self.by_key.get(key.as_bytes()).map(|holding| holding.owner)
    }

    /// Every lock, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (Key<'_>, Holding)> {
        self.by_key
            .iter()
            .map(|(key, holding)| (Key::new(key).expect("it was made from a key"), *holding))
    }

    /// Every open connection that was announced, each with the keys it holds.
    #[cfg(feature = "verify")]
    pub(super) fn connections(
        &self,
    ) -> impl Iterator<Item = (ConnId, impl Iterator<Item = Key<'_>>)> {
        // V1: both fields are shown, this one here and the other by `iter`.
        let Self { by_key: _, by_conn } = self;
        by_conn.iter().map(|(conn, keys)| {
            let keys = keys.iter();
            (
                *conn,
                keys.map(|key| Key::new(key).expect("it was made from a key")),
            )
        })
    }

    /// Every open connection that was announced.
    pub fn open_connections(&self) -> impl Iterator<Item = ConnId> {
        self.by_conn.keys().copied()
    }

    /// How many locks are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether nobody holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// How many connections hold a lock.
    #[must_use]
    pub fn holders(&self) -> usize {
        self.by_conn
            .values()
            .filter(|keys| !keys.is_empty())
            .count()
    }

    /// How many locks `conn` holds; `None` if it is not open.
    fn held_by(&self, conn: ConnId) -> Option<usize> {
        self.by_conn.get(&conn).map(BTreeSet::len)
    }

    pub(super) fn open(&mut self, conn: ConnId) {
        self.by_conn.entry(conn).or_default();
    }

    /// Gives `key`, which nobody holds, to `conn`, which is open.
    fn acquire(&mut self, key: Key<'_>, conn: ConnId) {
        let key = Bytes::copy_from_slice(key.as_bytes());
        self.by_conn
            .get_mut(&conn)
            .expect("L4: asked for before")
            .insert(key.clone());
        self.by_key.insert(
            key,
            Holding {
                owner: conn,
                flush_pending: false,
            },
        );
    }

    /// Forgets the lock of `key`, if there is one.
    pub(super) fn release(&mut self, key: Key<'_>) -> Option<Holding> {
        let holding = self.by_key.remove(key.as_bytes())?;
        if let Some(keys) = self.by_conn.get_mut(&holding.owner) {
            keys.remove(key.as_bytes());
        }
        Some(holding)
    }

    /// Takes one of the keys that `conn` holds out of its list, so that the list can be walked
    /// while items change.
    fn any_held_by(&self, conn: ConnId) -> Option<Bytes> {
        self.by_conn.get(&conn)?.first().cloned()
    }

    /// A `flush_all` has happened: it reaches what is held when it is unlocked.
    pub(super) fn postpone_flush(&mut self) {
        for holding in self.by_key.values_mut() {
            holding.flush_pending = true;
        }
    }

    /// The owner of `key` has stored a new value: the flush before it has no claim on it.
    pub(super) fn clear_flush(&mut self, key: Key<'_>) {
        if let Some(holding) = self.by_key.get_mut(key.as_bytes()) {
            holding.flush_pending = false;
        }
    }

    /// L1, L2 and L4.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self) {
        for (key, holding) in &self.by_key {
            let held = self
                .by_conn
                .get(&holding.owner)
                .expect("L4: an owner that is not open");
            assert!(
                held.contains(key),
                "L2: an owner that does not know what it holds"
            );
        }
        for (conn, keys) in &self.by_conn {
            for key in keys {
                let owner = self.by_key.get(key).map(|holding| holding.owner);
                assert_eq!(owner, Some(*conn), "L2: a holding without its lock");
            }
        }
    }
}

impl<S: Store> Core<S> {
    pub(super) fn lock(&mut self, conn: ConnId, key: Key<'_>) -> Reply<'static> {
        self.stats.counters.cmd_lock += 1;
        let Ok((slot, header)) = self.find_live(key) else {
            self.stats.counters.lock_misses += 1;
            return Reply::NotFound;
        };
        if let Err(refusal) = self.may_lock(conn, slot, &header) {
            return Reply::Refused(refusal);
        }
        self.store.set_header(
            slot,
            ItemHeader {
                locked: true,
                ..header
            },
        );
        self.grant(conn, key);
        Reply::Locked
    }

    /// Whether `conn` may take the lock of an item that it has found.
    ///
    /// # Errors
    /// [`Refusal::Locked`] if anyone holds it, `conn` included: the reference server refuses a
    /// second lock by the same client, and a counting lock would leave `unlock` with two meanings.
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`] as they say.
    pub(super) fn may_lock(
        &mut self,
        conn: ConnId,
        slot: S::Slot,
        header: &ItemHeader,
    ) -> Result<(), Refusal> {
        let held = self.locks.held_by(conn).ok_or(Refusal::ConnectionClosed)?;
        if header.locked {
            self.stats.counters.lock_contended += 1;
            return Err(Refusal::Locked);
        }
        let pinned = self.store.usage().locked_bytes + self.store.item_bytes(slot);
        if held >= self.limits.locks_per_connection_max || pinned > self.limits.locked_bytes_max {
            return Err(Refusal::TooManyLocks);
        }
        Ok(())
    }

    /// Enters a lock that [`Self::may_lock`] has allowed; the caller marks the item.
    pub(super) fn grant(&mut self, conn: ConnId, key: Key<'_>) {
        self.stats.counters.lock_granted += 1;
        self.locks.acquire(key, conn);
    }

    pub(super) fn unlock(&mut self, conn: ConnId, key: Key<'_>) -> Reply<'static> {
        let Ok((slot, header)) = self.find_live(key) else {
            return Reply::Refused(Refusal::NotLockedNotFound);
        };
        if !header.locked || self.locks.owner(key) != Some(conn) {
            return Reply::Refused(Refusal::NotLocked);
        }
        self.stats.counters.lock_released += 1;
        self.release(key, slot);
        Reply::Unlocked
    }

    pub(super) fn unlock_all(&mut self, conn: ConnId) -> Reply<'static> {
        self.stats.counters.lock_released += self.release_all(conn);
        Reply::Unlocked
    }

    /// Everything `conn` held is free, and nothing can be given to it any more (L4).
    pub(super) fn close(&mut self, conn: ConnId) {
        self.stats.counters.lock_died += self.release_all(conn);
        self.locks.by_conn.remove(&conn);
    }

    fn release_all(&mut self, conn: ConnId) -> u64 {
        let mut released = 0;
        while let Some(key) = self.locks.any_held_by(conn) {
            let key = Key::new(&key).expect("it was made from a key");
            let slot = self.store.find(key).ok().expect("L3: a lock has an item");
            // Takes the key off the list that is walked, so this ends.
            self.release(key, slot);
            released += 1;
        }
        released
    }

    /// Ends the lock of the item in `slot`, whose key is `key`. What the lock has held off happens
    /// now: the item goes if its TTL has passed or a `flush_all` came over it.
    pub(super) fn release(&mut self, key: Key<'_>, slot: S::Slot) {
        let holding = self
            .locks
            .release(key)
            .expect("the caller has seen the lock");
        let header = ItemHeader {
            locked: false,
            ..self.store.header(slot)
        };
        self.store.set_header(slot, header);
        if holding.flush_pending || !self.is_live(&header) {
            self.store.remove(slot);
        }
    }
}
