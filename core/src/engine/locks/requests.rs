//! The requests for locks and their replies: `lock`, `unlock`, `ml`, `mu`, and the waits that are over.
//!
//! - L6: A lock is acquired if and only if the machine allows it, the tables have memory for it and, if the request requires
//!   an item, the item exists.

use latchd_protocol::Owner;
use latchd_protocol::command::{Acquire, Lease, Mode, Release, ReleaseOf, Wait};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Granted, LockInfo, Refusal, Reply};

use super::Terms;
use super::queue::WaitTable;
use super::table::{LockScope, LockTable, charge};
use super::waits::end_of;
use crate::deadlock::Deadlock;
use crate::engine::rules::{Access, Rules};
use crate::store::Store;

impl<'a, S: Store, M: Access> Rules<'a, S, M> {
    /// `lock`.
    pub(in crate::engine) fn lock(&mut self, owner: Owner, key: Key<'_>) -> Reply<'static> {
        self.items.counters.cmd_lock += 1;
        let Ok((slot, header)) = self.find_live(key) else {
            return self.lock_without_item(owner, key, Reply::NotFound);
        };
        match self.lock_item(owner, key, slot, &header) {
            Ok(slot) => {
                let locked = true;
                let header = ItemHeader { locked, ..header };
                self.items.store.set_header(slot, header);
                Reply::Locked
            }
            Err(refusal) => Reply::Refused(refusal),
        }
    }

    /// Locks the item in `slot`, which may be in another slot then. The caller marks it.
    ///
    /// # Errors
    /// [`Refusal::Locked`] if any connection holds the lock, also this one: the reference server refuses a second lock by the
    /// same client, and a counting lock would leave `unlock` with two meanings. The same while grants are withheld (L17).
    /// [`Refusal::TooManyLocks`]; [`Refusal::ConnectionClosed`].
    pub(in crate::engine) fn lock_item(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        slot: S::Slot,
        header: &ItemHeader,
    ) -> Result<S::Slot, Refusal> {
        if header.locked || self.manager.locks.queue.are_withheld() {
            if self.manager.locks.table.held_by(owner).is_none() {
                return Err(Refusal::ConnectionClosed);
            }
            self.items.counters.lock_contended += 1;
            return Err(Refusal::Locked);
        }
        let slot = self.admit_lock(owner, key, LockTable::bytes_for(key), Some(slot))?;
        let terms = Terms {
            mode: Mode::Exclusive,
            scope: LockScope::Item,
            lease_until: None,
        };
        self.acquire_lock(owner, key, terms, slot);
        Ok(slot.expect("the item that is kept stays"))
    }

    /// The reply to a request to lock an item that does not exist: `missing`, unless the key is locked or grants are withheld.
    pub(in crate::engine) fn lock_without_item(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        missing: Reply<'static>,
    ) -> Reply<'static> {
        if self.without_item(key).is_none() && !self.manager.locks.queue.are_withheld() {
            self.items.counters.lock_misses += 1;
            return missing;
        }
        if self.manager.locks.table.held_by(owner).is_none() {
            return Reply::Refused(Refusal::ConnectionClosed);
        }
        self.items.counters.lock_contended += 1;
        Reply::Refused(Refusal::Locked)
    }

    /// Checks that `owner` may acquire the lock of `key`, which is free or admits it and takes so many bytes of the table,
    /// and makes free memory for it, if need be by evicting other items than the one in `slot`. Returns the slot of that item
    /// then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`]; [`Refusal::ConnectionClosed`].
    fn admit_lock(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        of_table: usize,
        slot: Option<S::Slot>,
    ) -> Result<Option<S::Slot>, Refusal> {
        let item = self.pinned(slot);
        let manager = &*self.manager;
        manager
            .locks
            .may_acquire(owner, key, of_table, item, &manager.limits)?;
        self.admit_to_tables(of_table, slot)
    }

    /// Acquires a lock that [`Self::admit_lock`] has admitted.
    fn acquire_lock(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        terms: Terms,
        slot: Option<S::Slot>,
    ) -> Fence {
        let item = self.pinned(slot);
        let (locks, mut context) = self.manager.locks_in_context();
        let fence = locks.acquire(key, owner, terms, item, &mut context);
        self.note_locked(key);
        fence
    }

    /// `ml`. The first row that fits decides. "Holds it" means in the requested mode; `x` of the request requires an item, and
    /// "withheld" is L17.
    ///
    /// | requester | key | result |
    /// | --- | --- | --- |
    /// | holds it, and has no reply to the wait that brought it | any | the grant; the lease lasts from the hand-over |
    /// | holds it, and has a lease or takes it off | any | renewed; not found without a required item |
    /// | holds it, and is a session | any | the same grant; not found without a required item |
    /// | takes a lease off, and holds nothing | any | not found |
    /// | any | free, not withheld, without a required item | not found |
    /// | may not join the holders | held or withheld | waits, contended, or would deadlock |
    /// | any | without a required item | not found |
    /// | is over a bound, or closed | any | refused |
    /// | any | any | granted, with a new fence |
    pub(in crate::engine) fn acquire(mut self, owner: Owner, acquire: Acquire<'a>) -> Reply<'a> {
        let key = acquire.key;
        let found = self.find_live(key).ok();
        let is_held = match found {
            Some((_, header)) => header.locked,
            None => self.without_item(key).is_some(),
        };
        let own = if is_held {
            self.manager.locks.table.held_as(key, owner)
        } else {
            None
        };
        // A holder that asks for the other mode is refused like any other requester.
        if let Some(held) = own.filter(|held| held.mode.is_shared() == acquire.mode.is_shared()) {
            let is_there = found.is_some() || !acquire.needs_item;
            if held.is_unacknowledged && (is_there || !owner.is_session()) {
                // It has waited for this lock. The lease lasts from the hand-over.
                self.items.counters.cmd_lock += 1;
                let found = match self.replace_metadata(owner, &acquire, found, held.fence) {
                    Ok(found) => found,
                    Err(refusal) => return Reply::Refused(refusal),
                };
                self.manager
                    .locks
                    .table
                    .set_unacknowledged(key, owner, false);
                return self.granted(&acquire, found, held.fence);
            }
            if let Some(lease) = acquire.lease {
                self.items.counters.cmd_lock += 1;
                return self.renew(owner, &acquire, found, held.fence, lease);
            }
            if owner.is_session() {
                self.items.counters.cmd_lock += 1;
                if !is_there {
                    self.items.counters.lock_misses += 1;
                    return Reply::NotFound;
                }
                return match self.replace_metadata(owner, &acquire, found, held.fence) {
                    Ok(found) => self.granted(&acquire, found, held.fence),
                    Err(refusal) => Reply::Refused(refusal),
                };
            }
        }
        let is_taken = is_held || self.manager.locks.queue.are_withheld();
        // Only a holder can remove its lease.
        let needs_hold = acquire.lease == Some(Lease::Off) && own.is_none();
        if needs_hold || found.is_none() && !is_taken && acquire.needs_item {
            self.items.counters.cmd_lock += 1;
            self.items.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        let slot = found.map(|(slot, _)| slot);
        let is_open = |rules: &Self| rules.manager.locks.table.held_by(owner).is_some();
        if is_taken && is_open(&self) && !self.manager.locks.may_join(owner, &acquire) {
            // A request that waits is counted when it has its reply.
            let reply = self.contended(owner, &acquire, slot);
            self.conclude(key);
            return self.with_metadata(reply);
        }
        self.items.counters.cmd_lock += 1;
        if found.is_none() && acquire.needs_item && is_open(&self) {
            self.items.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        let of_table = LockTable::bytes_in(acquire.mode, key) + charge_for(&acquire);
        let slot = match self.admit_lock(owner, key, of_table, slot) {
            Ok(slot) => slot,
            Err(refusal) => return Reply::Refused(refusal),
        };
        let lease = acquire.lease;
        let terms = Terms {
            mode: acquire.mode,
            scope: LockScope::Key,
            lease_until: lease.and_then(|lease| end_of(lease, self.manager.now)),
        };
        let fence = self.acquire_lock(owner, key, terms, slot);
        if let Some(metadata) = acquire.metadata {
            let table = &mut self.manager.locks.table;
            table.set_metadata(owner, fence, metadata.to_bytes());
        }
        let found = slot.zip(found).map(|(slot, (_, before))| (slot, before));
        self.granted(&acquire, found, fence)
    }

    /// The holder asks again: it renews its lock, and keeps its fence.
    fn renew(
        mut self,
        owner: Owner,
        acquire: &Acquire<'_>,
        found: Option<(S::Slot, ItemHeader)>,
        fence: Fence,
        lease: Lease,
    ) -> Reply<'a> {
        if found.is_none() && acquire.needs_item {
            self.items.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        let found = match self.replace_metadata(owner, acquire, found, fence) {
            Ok(found) => found,
            Err(refusal) => return Reply::Refused(refusal),
        };
        self.items.counters.lock_renewed += 1;
        let until = end_of(lease, self.manager.now);
        self.manager.locks.renew(acquire.key, owner, until);
        self.granted(acquire, found, fence)
    }

    /// The holder asks again: if the request has metadata, it replaces that of the grant. Returns where the item in `found` is
    /// then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`]: there is no memory for longer metadata, and the grant stays as it is.
    fn replace_metadata(
        &mut self,
        owner: Owner,
        acquire: &Acquire<'_>,
        found: Option<(S::Slot, ItemHeader)>,
        fence: Fence,
    ) -> Result<Option<(S::Slot, ItemHeader)>, Refusal> {
        let Some(metadata) = acquire.metadata else {
            return Ok(found);
        };
        let (mut found, manager) = (found, &*self.manager);
        let before = manager.locks.table.metadata_bytes(fence);
        let more = charge_for(acquire).saturating_sub(before);
        if more > 0 {
            if !manager.locks.may_grow(owner, more, &manager.limits) {
                return Err(Refusal::TooManyLocks);
            }
            let slot = self.admit_to_tables(more, found.map(|(slot, _)| slot))?;
            found = slot.zip(found).map(|(slot, (_, header))| (slot, header));
        }
        let table = &mut self.manager.locks.table;
        table.set_metadata(owner, fence, metadata.to_bytes());
        Ok(found)
    }

    /// A reply to a request for a lock that is held, with the metadata of the holder.
    fn with_metadata(self, reply: Reply<'static>) -> Reply<'a> {
        if let Reply::Contended(seen) = reply {
            return Reply::Contended(self.show_metadata(seen));
        }
        if let Reply::WouldDeadlock(seen) = reply {
            return Reply::WouldDeadlock(self.show_metadata(seen));
        }
        reply
    }

    /// The lock with its metadata.
    fn show_metadata(self, seen: LockInfo<'static>) -> LockInfo<'a> {
        let Self { items, manager } = self;
        let metadata = manager.locks.table.metadata(seen.fence);
        items.metadata.keep(metadata);
        LockInfo {
            metadata: items.metadata.get(),
            ..seen
        }
    }

    /// The reply to an acquire that was granted: with the item, which is locked now.
    fn granted(
        mut self,
        acquire: &Acquire<'_>,
        found: Option<(S::Slot, ItemHeader)>,
        fence: Fence,
    ) -> Reply<'a> {
        self.conclude(acquire.key);
        let items = self.items;
        let item = found.map(|(slot, before)| {
            let mut after = ItemHeader {
                locked: true,
                ..before
            };
            if acquire.reads_item {
                after.fetched = true;
                after.last_access = items.clock.tick();
                items.store.record_hit(slot);
            }
            if after != before {
                items.store.set_header(slot, after);
            }
            (slot, before)
        });
        let item = item.map(|(slot, before)| items.shown(slot, &before));
        Reply::Granted(Granted { fence, item })
    }

    /// The reply to an acquire of a lock that another connection holds or waits for, or that is withheld.
    fn contended(
        &mut self,
        owner: Owner,
        acquire: &Acquire<'_>,
        slot: Option<S::Slot>,
    ) -> Reply<'static> {
        let (key, now) = (acquire.key, self.manager.now);
        let seen = self.manager.locks.info(key, now);
        let Wait::UpTo { ms: ms @ 1.. } = acquire.wait else {
            self.count_refused();
            let waiting = self.manager.locks.queue.waiting(key);
            return seen.map_or(Reply::Withheld { waiting }, Reply::Contended);
        };
        let ms = ms.min(self.manager.limits.wait_ms_max);
        if self.manager.locks.is_same_wait(owner, acquire, now) {
            let before = self.manager.locks.metadata_bytes_of_wait(owner);
            let more = charge_for(acquire).saturating_sub(before);
            if more > 0
                && let Err(refusal) = self.admit_to_tables(more, slot)
            {
                return self.refuse_wait(refusal);
            }
            self.manager.locks.change_wait(owner, acquire, ms, now);
            self.manager.begin_wait(owner);
            return Reply::Waits;
        }
        let (locks, context) = self.manager.locks_in_context();
        let (chain, read) = locks.chain(owner, acquire, &context);
        self.items.work.charge(read);
        match chain {
            Deadlock::No => {}
            Deadlock::Yes => {
                let seen = seen.expect("a cycle goes through a holder");
                self.count_refused();
                self.items.counters.lock_deadlocks += 1;
                return Reply::WouldDeadlock(seen);
            }
            Deadlock::TooLong => return self.refuse_wait(Refusal::TooManyLocks),
        }
        if let Err(refusal) = self.admit_wait(owner, acquire, slot) {
            return self.refuse_wait(refusal);
        }
        let (locks, mut context) = self.manager.locks_in_context();
        locks.wait(owner, acquire, ms, &mut context);
        self.manager.begin_wait(owner);
        Reply::Waits
    }

    fn count_refused(&mut self) {
        self.items.counters.cmd_lock += 1;
        self.items.counters.lock_contended += 1;
    }

    fn refuse_wait(&mut self, refusal: Refusal) -> Reply<'static> {
        self.items.counters.cmd_lock += 1;
        Reply::Refused(refusal)
    }

    /// Checks that `owner` may wait for the lock that it asks for, and makes free memory for the wait.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`]; [`Refusal::ConnectionClosed`].
    fn admit_wait(
        &mut self,
        owner: Owner,
        acquire: &Acquire<'_>,
        slot: Option<S::Slot>,
    ) -> Result<(), Refusal> {
        let key = acquire.key;
        let held = self.manager.locks.table.held_by(owner);
        let held = held.ok_or(Refusal::ConnectionClosed)?;
        if self.manager.is_waiting(owner)
            || held.locks >= self.manager.limits.locks_per_connection_max
            || self.manager.locks.queue.waiting(key) >= self.manager.limits.waits_per_key_max
            || self.manager.waiting_in_all() >= self.manager.limits.waits_max
        {
            return Err(Refusal::TooManyLocks);
        }
        let of_wait = WaitTable::bytes_for(key) + charge_for(acquire);
        let of_tables = of_wait + self.manager.locks.table.bytes_for_waited(key);
        self.admit_to_tables(of_tables, slot).map(|_| ())
    }

    /// `mu`.
    pub(in crate::engine) fn release_key(
        &mut self,
        owner: Owner,
        release: &Release<'_>,
    ) -> Reply<'static> {
        let Release { key, of } = *release;
        let found = self.find_live(key).ok();
        let may_be_held =
            found.map_or_else(|| self.items.is_noted(key), |(_, header)| header.locked);
        let table = &self.manager.locks.table;
        let held = match of {
            _ if !may_be_held => None,
            ReleaseOf::Own => table.held_as(key, owner),
            ReleaseOf::OwnGrant(fence) => {
                let own = table.held_as(key, owner);
                own.filter(|held| held.fence == fence)
            }
            ReleaseOf::Grant(fence) => table.grant(key, fence),
        };
        match (held, of) {
            (Some(held), _) => {
                self.release(held.owner, key, found.map(|(slot, _)| slot));
                Reply::Unlocked
            }
            (None, ReleaseOf::Grant(_)) => {
                self.items.counters.fence_refusals += 1;
                Reply::Exists
            }
            (None, ReleaseOf::Own | ReleaseOf::OwnGrant(_)) => Reply::NotFound,
        }
    }

    /// `unlock`.
    pub(in crate::engine) fn unlock(&mut self, owner: Owner, key: Key<'_>) -> Reply<'static> {
        let Ok((slot, header)) = self.find_live(key) else {
            let without_item = self.without_item(key);
            return if without_item.is_some()
                && self.manager.locks.table.held_as(key, owner).is_some()
            {
                self.release(owner, key, None);
                Reply::Unlocked
            } else {
                Reply::Refused(Refusal::NotLockedNotFound)
            };
        };
        if header.locked && self.manager.locks.table.held_as(key, owner).is_some() {
            self.release(owner, key, Some(slot));
            Reply::Unlocked
        } else {
            Reply::Refused(Refusal::NotLocked)
        }
    }
}

/// The bytes that the metadata of a request takes of the tables.
fn charge_for(acquire: &Acquire<'_>) -> usize {
    charge(acquire.metadata.map(|metadata| metadata.len()))
}
