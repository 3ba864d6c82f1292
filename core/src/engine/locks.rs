//! The rules of locks: who is given one, and how it ends.
//!
//! A lock ties one stored item to one open connection. It ends by `unlock`, by its owner deleting
//! the item, or by the connection closing: never by time and never by eviction.
//!
//! - L3: a key is in the lock table if and only if its item is marked as locked in the store.
//! - L6: a lock is granted if and only if there is an item that nobody holds, within the bounds.
//! - L11: what locks pin, and what the table of them takes, stays within its bound, and what a
//!   connection has of both within its share.
//! - L7: what a lock has held off (expiry, a flush) happens when it ends, and nothing else does.
//!
//! When many locks end at once, that is one step whatever their number: nobody holds them from then
//! on (L9, [`LockTable`]). Their items are let go of one after the other: when somebody looks one up,
//! a few with every command and more with every tick. Until then such an item is pinned and, to
//! everybody who asks, free.
//!
//! Source: yrmcds `docs/locking.md`. Where we differ: docs/PROTOCOL.md, "Locks".

use super::Core;
use super::lock_table::{Held, Holding, LockTable};
use crate::conn_id::ConnId;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::reply::{Refusal, Reply};
use crate::store::{Full, Store};

impl<S: Store> Core<S> {
    pub(super) fn lock(&mut self, conn: ConnId, key: Key<'_>) -> Reply<'static> {
        self.stats.counters.cmd_lock += 1;
        let Ok((slot, header)) = self.find_live(key) else {
            self.stats.counters.lock_misses += 1;
            return Reply::NotFound;
        };
        let slot = match self
            .may_lock(conn, slot, &header)
            .and_then(|()| self.make_room_for_lock(key, slot))
        {
            Ok(slot) => slot,
            Err(refusal) => return Reply::Refused(refusal),
        };
        self.grant(conn, key, slot);
        self.store.set_header(
            slot,
            ItemHeader {
                locked: true,
                ..header
            },
        );
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
        let of_table = LockTable::bytes_for(self.store.key(slot));
        let has_room = self.locks.table_bytes() + of_table <= self.limits.lock_table_bytes_max;
        if held.locks >= self.limits.locks_per_connection_max
            || !has_room
            || !self.may_pin(held, self.store.item_bytes(slot), of_table)
        {
            return Err(Refusal::TooManyLocks);
        }
        Ok(())
    }

    /// Sees to it that the table of locks has room for one more within the memory limit, if need be at
    /// the cost of other items than the one in `slot`, which may be in another slot then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] if nothing else may be evicted.
    pub(super) fn make_room_for_lock(
        &mut self,
        key: Key<'_>,
        slot: S::Slot,
    ) -> Result<S::Slot, Refusal> {
        let wanted = self.locks.table_bytes() + LockTable::bytes_for(key);
        let now = self.clock.tick();
        self.store
            .set_aside(now, Some(slot), wanted, &mut self.stats.counters)
            .map(|kept| kept.expect("what is kept stays"))
            .map_err(|Full| Refusal::TooManyLocks)
    }

    /// Whether items may take `pinned` more bytes, and the table `of_table` more, for a connection
    /// that has what `held` says: within what all may pin, and within its share.
    fn may_pin(&self, held: Held, pinned: usize, of_table: usize) -> bool {
        self.pinned_bytes() + pinned <= self.limits.locked_bytes_max
            && held.bytes + pinned + of_table <= self.limits.lock_bytes_per_connection_max
    }

    /// What the items of locks in force take of the memory limit.
    pub(super) fn pinned_bytes(&self) -> usize {
        self.store.usage().locked_bytes - self.locks.ended_pinned_bytes()
    }

    /// Whether the item in `slot`, if it is held, may take a value of this size. One that does not
    /// grow always may.
    pub(super) fn may_grow(&self, slot: S::Slot, value_bytes: usize) -> bool {
        let key = self.store.key(slot);
        let before = self.store.item_bytes(slot);
        let after = self.store.bytes_for(key.as_bytes().len(), value_bytes);
        let Some(owner) = self.locks.owner(key) else {
            return true;
        };
        let held = self.locks.held_by(owner).expect("L4: an owner is open");
        after <= before || self.may_pin(held, after - before, 0)
    }

    /// Enters a lock that [`Self::may_lock`] has allowed; the caller marks the item.
    pub(super) fn grant(&mut self, conn: ConnId, key: Key<'_>, slot: S::Slot) {
        self.stats.counters.lock_granted += 1;
        let pinned_bytes = self.store.item_bytes(slot);
        self.locks.acquire(key, conn, pinned_bytes);
    }

    pub(super) fn unlock(&mut self, conn: ConnId, key: Key<'_>) -> Reply<'static> {
        let Ok((slot, header)) = self.find_live(key) else {
            return Reply::Refused(Refusal::NotLockedNotFound);
        };
        if !header.locked || self.locks.owner(key) != Some(conn) {
            return Reply::Refused(Refusal::NotLocked);
        }
        self.stats.counters.lock_released += 1;
        // Whether the item stays is told to nobody.
        let _ = self.release(key, slot);
        Reply::Unlocked
    }

    pub(super) fn unlock_all(&mut self, conn: ConnId) -> Reply<'static> {
        self.stats.counters.lock_released += self.locks.end_term(conn) as u64;
        Reply::Unlocked
    }

    /// Everything `conn` held is free, and nothing can be given to it any more (L4).
    pub(super) fn close(&mut self, conn: ConnId) {
        self.stats.counters.lock_died += self.locks.close(conn) as u64;
    }

    /// Ends the lock of the item in `slot`, whose key is `key`. What the lock has held off happens
    /// now: the item goes if its TTL has passed or a `flush_all` came over it (L7). If it stays, it
    /// is in the same slot.
    pub(super) fn release(
        &mut self,
        key: Key<'_>,
        slot: S::Slot,
    ) -> Result<ItemHeader, S::Vacancy> {
        let pinned_bytes = self.store.item_bytes(slot);
        let holding = self
            .locks
            .release(key, pinned_bytes)
            .expect("L3: the item says that it is locked");
        let header = ItemHeader {
            locked: false,
            ..self.store.header(slot)
        };
        self.store.set_header(slot, header);
        if self.outlives(holding, &header) {
            Ok(header)
        } else {
            Err(self.store.remove(slot))
        }
    }

    /// Whether an item stays when its lock ends.
    fn outlives(&self, holding: Holding, header: &ItemHeader) -> bool {
        !holding.flush_pending && !self.is_past(header)
    }

    /// Whether an item that looks held is there for a client: it is if somebody holds it, or if
    /// nobody does any more and it stays.
    pub(super) fn is_there(&self, key: Key<'_>, header: &ItemHeader) -> bool {
        let holding = self.locks.get(key).expect("L3: the item says it is locked");
        !holding.is_over || self.outlives(holding, header)
    }

    /// Takes up to `locks_max` locks that are over out of the table, and lets go of their items.
    pub(super) fn settle(&mut self, locks_max: usize) {
        for _ in 0..locks_max {
            let Some(key) = self.locks.next_ended() else {
                return;
            };
            let key = Key::new(&key).expect("it was made from a key");
            if self.locks.get(key).is_some_and(|holding| holding.is_over) {
                let slot = self.store.find(key).ok().expect("L3: a lock has an item");
                // Nobody has asked for it.
                let _ = self.release(key, slot);
            }
        }
    }
}
