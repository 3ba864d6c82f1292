//! The rules of locks: who is given one, and how it ends.
//!
//! A lock ties one key to one open connection. It ends by `unlock` or `mu`, by the connection closing,
//! with its lease, if it has one, and, if it was taken as that of an item, by its owner deleting this:
//! never by eviction. What `lock` takes and what `ml` takes is the same lock.
//!
//! - L3: an item is marked as locked in the store if and only if its key is in the lock table.
//! - L6: a lock is granted if and only if nobody holds it, or it can be shared ([`crate::engine::locks::shared`]), nobody waits for
//!   it, within the bounds, and, where that is asked for, there is an item.
//! - L12: every grant has a fence of its own, which is greater than that of every grant before.
//! - L13: a lock whose lease has passed is held by nobody, whatever happens next.
//! - L11: what locks pin, and what the table of them takes, stays within its bound, and what a
//!   connection has of both within its share.
//! - L7: what a lock has held off (expiry, a flush) happens when it ends, and nothing else does.
//!
//! When many locks end at once, with their connection or with their leases, that is one step whatever
//! their number: nobody holds them from then on (L9, [`LockTable`]). Their items are let go of one after the other: when somebody looks one up,
//! a few with every command and more with every tick. Until then such an item is pinned and, to
//! everybody who asks, free.
//!
//! Source: yrmcds `docs/locking.md`. Where we differ: docs/PROTOCOL.md, "Locks".

pub(in crate::engine) mod queue;
mod shared;
pub(in crate::engine) mod table;
mod waits;

use alloc::vec::Vec;

use crate::command::{Acquire, Lease, Mode, Release};
use crate::engine::Core;
use crate::engine::locks::table::{Grant, Held, Holding, LockTable, Taken, as_key};
use crate::fence::Fence;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::owner::Owner;
use crate::reply::{Granted, LockSeen, Refusal, Reply};
use crate::store::{Full, Store};

impl<S: Store> Core<S> {
    pub(in crate::engine) fn lock(&mut self, conn: Owner, key: Key<'_>) -> Reply<'static> {
        self.stats.counters.cmd_lock += 1;
        let Ok((slot, header)) = self.find_live(key) else {
            return self.lock_of_nothing(conn, key, Reply::NotFound);
        };
        let slot = match self
            .may_lock(conn, key, Some(slot), header.locked)
            .and_then(|()| self.make_room_for_lock(LockTable::bytes_for(key), Some(slot)))
        {
            Ok(kept) => kept.expect("what is kept stays"),
            Err(refusal) => return Reply::Refused(refusal),
        };
        self.grant(conn, key, Some(slot), Taken::WithItem, Mode::Exclusive);
        self.store.set_header(
            slot,
            ItemHeader {
                locked: true,
                ..header
            },
        );
        Reply::Locked
    }

    /// The answer to one who wants to lock an item that is not there: `missing`, unless somebody
    /// holds its key.
    pub(in crate::engine) fn lock_of_nothing(
        &mut self,
        conn: Owner,
        key: Key<'_>,
        missing: Reply<'static>,
    ) -> Reply<'static> {
        if self.bare(key).is_none() {
            self.stats.counters.lock_misses += 1;
            return missing;
        }
        if self.locks.held_by(conn).is_none() {
            return Reply::Refused(Refusal::ConnectionClosed);
        }
        self.stats.counters.lock_contended += 1;
        Reply::Refused(Refusal::Locked)
    }

    /// `ml`.
    pub(in crate::engine) fn acquire<'a>(
        &'a mut self,
        conn: Owner,
        acquire: Acquire<'a>,
    ) -> Reply<'a> {
        let key = acquire.key;
        let found = self.find_live(key).ok();
        let is_held = match found {
            Some((_, header)) => header.locked,
            None => self.bare(key).is_some(),
        };
        let own = if is_held {
            self.locks.held_as(key, conn)
        } else {
            None
        };
        // In the other mode it is refused like anybody: there is no way from one to the other.
        if let Some(held) = own.filter(|held| held.mode.is_shared() == acquire.mode.is_shared()) {
            if held.is_untold {
                // What it has waited for: its lease lasts from when it was granted.
                self.stats.counters.cmd_lock += 1;
                self.locks.set_untold(key, conn, false);
                return self.granted(&acquire, found, held.fence);
            }
            if let Some(lease) = acquire.lease {
                self.stats.counters.cmd_lock += 1;
                return self.renew(conn, &acquire, found, held.fence, lease);
            }
        }
        // Only a holder has a lease to take off.
        let is_of_holder = acquire.lease == Some(Lease::Off) && own.is_none();
        if is_of_holder || found.is_none() && !is_held && acquire.needs_item {
            self.stats.counters.cmd_lock += 1;
            self.stats.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        let slot = found.map(|(slot, _)| slot);
        if is_held && self.locks.held_by(conn).is_some() && !self.may_join(conn, &acquire) {
            // A request that waits is counted when it is answered.
            return self.contended(conn, &acquire, slot);
        }
        self.stats.counters.cmd_lock += 1;
        if found.is_none() && acquire.needs_item && self.locks.held_by(conn).is_some() {
            self.stats.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        let of_table = LockTable::bytes_in(acquire.mode, key);
        let slot = match self
            .may_acquire(conn, &acquire, slot)
            .and_then(|()| self.make_room_for_lock(of_table, slot))
        {
            Ok(slot) => slot,
            Err(refusal) => return Reply::Refused(refusal),
        };
        let fence = self.grant(conn, key, slot, Taken::ForKey, acquire.mode);
        if let Some(lease) = acquire.lease {
            self.locks.set_lease(key, conn, self.end_of(lease));
        }
        let found = slot.zip(found).map(|(slot, (_, before))| (slot, before));
        self.granted(&acquire, found, fence)
    }

    /// The holder asks again: the lock lasts so long from now on, under the same number, and it is one of
    /// the key if it was not.
    fn renew(
        &mut self,
        conn: Owner,
        acquire: &Acquire<'_>,
        found: Option<(S::Slot, ItemHeader)>,
        fence: Fence,
        lease: Lease,
    ) -> Reply<'_> {
        if found.is_none() && acquire.needs_item {
            self.stats.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        self.stats.counters.lock_renewed += 1;
        self.locks.set_lease(acquire.key, conn, self.end_of(lease));
        self.locks.keep_without_item(acquire.key);
        self.granted(acquire, found, fence)
    }

    /// The answer to an acquire that was granted: with the item, which is held now.
    fn granted(
        &mut self,
        acquire: &Acquire<'_>,
        found: Option<(S::Slot, ItemHeader)>,
        fence: Fence,
    ) -> Reply<'_> {
        let item = found.map(|(slot, before)| {
            let mut after = ItemHeader {
                locked: true,
                ..before
            };
            if acquire.looks {
                after.fetched = true;
                after.last_access = self.clock.tick();
                self.store.record_hit(slot);
            }
            if after != before {
                self.store.set_header(slot, after);
            }
            (slot, before)
        });
        let item = item.map(|(slot, before)| self.shown(slot, &before));
        Reply::Granted(Granted { fence, item })
    }

    /// Takes up to `locks_max` locks whose leases have passed out of the table, and lets go of their
    /// items. Only then are those given away that are waited for: what somebody has lost is not in the way of what he is
    /// given (L13).
    pub(in crate::engine) fn settle_leases(&mut self, locks_max: usize) {
        let mut waited = Vec::new();
        for _ in 0..locks_max {
            let Some((key, share)) = self.locks.next_expired() else {
                break;
            };
            self.work.charge(1);
            let is_waited = self.locks.is_waited(as_key(&key));
            let slot = self.slot_of(as_key(&key));
            let slot = match share {
                Some(fence) => self.end_share(as_key(&key), fence, slot),
                None => self.end(as_key(&key), slot),
            };
            if is_waited {
                waited.push((key, slot.is_some()));
            } else {
                self.pass_on(as_key(&key), slot);
            }
        }
        for (key, has_item) in waited {
            // It may have moved since, or gone.
            let found = self.store.find(as_key(&key)).ok();
            self.pass_on(as_key(&key), found.filter(|_| has_item));
        }
    }

    /// `mu`.
    pub(in crate::engine) fn give_back(
        &mut self,
        conn: Owner,
        release: &Release<'_>,
    ) -> Reply<'static> {
        let Release { key, fence } = *release;
        let found = self.find_live(key).ok();
        let may_be_held = found.map_or(self.locks.has_bare(), |(_, header)| header.locked);
        let held = if may_be_held {
            self.locks.held_as(key, conn)
        } else {
            None
        };
        match held {
            Some(held) if fence.is_none_or(|fence| fence == held.fence) => {
                let slot = found.map(|(slot, _)| slot);
                self.end_hold(conn, key, slot, held.mode);
                Reply::Unlocked
            }
            Some(_) | None => Reply::NotFound,
        }
    }

    /// The lock of a key, as others see it.
    pub(in crate::engine) fn lock_seen(&self, key: Key<'_>) -> Option<LockSeen> {
        let held = self.locks.in_force(key)?;
        let held_ms = self.clock.now.as_millis() - held.since.as_millis();
        Some(LockSeen {
            holder: held.owner,
            fence: held.fence,
            held_s: held_ms / 1000,
            is_shared: held.mode.is_shared(),
            waiting: self.waits.waiting(key),
        })
    }

    /// The lock in force of a key of which no item was found.
    pub(in crate::engine) fn bare(&self, key: Key<'_>) -> Option<Holding> {
        if !self.locks.has_bare() {
            return None;
        }
        self.locks.in_force(key).filter(|holding| !holding.has_item)
    }

    /// Whether `conn` may take the lock of a key, whose item, if there is one, is in `slot`, and which
    /// somebody holds or not.
    ///
    /// # Errors
    /// [`Refusal::Locked`] if anyone holds it, `conn` included: the reference server refuses a
    /// second lock by the same client, and a counting lock would leave `unlock` with two meanings.
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`] as they say.
    pub(in crate::engine) fn may_lock(
        &mut self,
        conn: Owner,
        key: Key<'_>,
        slot: Option<S::Slot>,
        is_held: bool,
    ) -> Result<(), Refusal> {
        let held = self.locks.held_by(conn).ok_or(Refusal::ConnectionClosed)?;
        if is_held {
            self.stats.counters.lock_contended += 1;
            return Err(Refusal::Locked);
        }
        let has_room = self.has_room_in_table(LockTable::bytes_for(key));
        if has_room && self.is_within_bounds(held, key, Mode::Exclusive, slot) {
            Ok(())
        } else {
            Err(Refusal::TooManyLocks)
        }
    }

    /// Sees to it that the table of locks has room for `of_table` bytes more within the memory limit, if need be at
    /// the cost of other items than the one in `slot`, if there is one, which may be in another slot
    /// then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] if nothing else may be evicted.
    pub(in crate::engine) fn make_room_for_lock(
        &mut self,
        of_table: usize,
        slot: Option<S::Slot>,
    ) -> Result<Option<S::Slot>, Refusal> {
        self.set_tables_aside(of_table, slot)
            .map_err(|Full| Refusal::TooManyLocks)
    }

    /// Whether items may take `pinned` more bytes, and the table `of_table` more, for a connection
    /// that has what `held` says: within what all may pin, and within its share.
    pub(in crate::engine) fn may_pin(&self, held: Held, pinned: usize, of_table: usize) -> bool {
        self.pinned_bytes() + pinned <= self.limits.locked_bytes_max
            && self.is_within_share(held, pinned + of_table)
    }

    /// Whether a connection that has what `held` says may have so many bytes more.
    pub(in crate::engine) const fn is_within_share(&self, held: Held, bytes: usize) -> bool {
        held.bytes + bytes <= self.limits.lock_bytes_per_connection_max
    }

    /// What the items of locks in force take of the memory limit.
    pub(in crate::engine) fn pinned_bytes(&self) -> usize {
        self.store.usage().locked_bytes - self.locks.ended_pinned_bytes()
    }

    /// Whether the item in `slot`, if it is held, may take a value of this size. One that does not
    /// grow always may.
    pub(in crate::engine) fn may_grow(&self, slot: S::Slot, value_bytes: usize) -> bool {
        let key = self.store.key(slot);
        let before = self.store.item_bytes(slot);
        let after = self.store.bytes_for(key.as_bytes().len(), value_bytes);
        let Some(owner) = self.locks.owner(key) else {
            return true;
        };
        let held = self.locks.held_by(owner).expect("L4: an owner is open");
        after <= before || self.may_pin(held, after - before, 0)
    }

    /// Enters a lock, or a share, that [`Self::may_lock`] or [`Self::may_acquire`] has allowed; the caller marks
    /// the item.
    pub(in crate::engine) fn grant(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        slot: Option<S::Slot>,
        taken: Taken,
        mode: Mode,
    ) -> Fence {
        self.stats.counters.lock_granted += 1;
        if self.locks.has_bare() {
            // One that is over and waits to be taken out makes room (L9).
            let over = self.locks.get(key).filter(|holding| holding.is_over);
            if over.is_some_and(|holding| !holding.has_item) {
                self.take_out(key, 0);
            }
        }
        let fence = self.next_fence;
        self.next_fence = fence.step(self.cas_stride.into());
        let grant = Grant {
            owner,
            fence,
            now: self.clock.now,
            lease_until: None,
            taken,
        };
        let pinned_bytes = slot.map(|slot| self.store.item_bytes(slot));
        match mode {
            Mode::Exclusive => self.locks.acquire(key, grant, pinned_bytes),
            Mode::Shared { among } => self.locks.acquire_share(key, grant, among, pinned_bytes),
        }
        if !self.win_waits.is_empty() {
            // Held, it does not go by itself.
            self.win_waits.set_end(key, None);
        }
        fence
    }

    pub(in crate::engine) fn unlock(&mut self, conn: Owner, key: Key<'_>) -> Reply<'static> {
        let Ok((slot, header)) = self.find_live(key) else {
            return match self.bare(key).and_then(|_| self.locks.held_as(key, conn)) {
                Some(held) => {
                    self.end_hold(conn, key, None, held.mode);
                    Reply::Unlocked
                }
                None => Reply::Refused(Refusal::NotLockedNotFound),
            };
        };
        let held = if header.locked {
            self.locks.held_as(key, conn)
        } else {
            None
        };
        let Some(held) = held else {
            return Reply::Refused(Refusal::NotLocked);
        };
        self.end_hold(conn, key, Some(slot), held.mode);
        Reply::Unlocked
    }

    pub(in crate::engine) fn unlock_all(&mut self, conn: Owner) -> Reply<'static> {
        self.stats.counters.lock_released += self.locks.end_term(conn) as u64;
        self.settle_what_is_waited_for();
        Reply::Unlocked
    }

    /// Everything `conn` held is free, and nothing can be given to it any more (L4).
    pub(in crate::engine) fn close(&mut self, conn: Owner) {
        self.leave(conn);
        self.win_waits.leave(conn);
        self.stats.counters.lock_died += self.locks.close(conn) as u64;
        if !self.bound_wins.is_empty() {
            self.bound_wins.end(conn);
            self.reopen_wins(self.limits.locks_settled_max);
        }
        self.settle_what_is_waited_for();
    }

    /// Many locks have ended at once, and wins: does some of what there is to do for those who wait for them or for their
    /// items, and sees to it that the rest is done soon. Which of the items are waited for is not known here, so where more
    /// have ended than are let go of now, all items that are waited for are looked at.
    fn settle_what_is_waited_for(&mut self) {
        let each_max = self.limits.locks_settled_max;
        if self.locks.has_handovers() || !self.win_waits.is_empty() {
            self.settle(each_max);
        }
        let has_ended = self.locks.has_ended() || self.bound_wins.has_line();
        if has_ended && !self.win_waits.is_empty() {
            self.win_waits.begin_round();
            self.settle_wins(each_max);
        }
    }

    /// Ends the lock of the item in `slot`, whose key is `key`. What the lock has held off happens
    /// now: the item goes if its TTL has passed or a `flush_all` came over it (L7). If it stays, it
    /// is in the same slot.
    pub(in crate::engine) fn release(
        &mut self,
        key: Key<'_>,
        slot: S::Slot,
    ) -> Result<ItemHeader, S::Vacancy> {
        let pinned_bytes = self.store.item_bytes(slot);
        let holding = self
            .take_out(key, pinned_bytes)
            .expect("L3: the item says that it is locked");
        let header = ItemHeader {
            locked: false,
            ..self.store.header(slot)
        };
        self.store.set_header(slot, header);
        if self.outlives(holding, &header) {
            Ok(header)
        } else if holding.flush_pending {
            Err(self.store.remove(slot))
        } else {
            Err(self.reclaim(slot, &header))
        }
    }

    /// Whether an item stays when its lock ends.
    fn outlives(&self, holding: Holding, header: &ItemHeader) -> bool {
        !holding.flush_pending && !self.is_past(header)
    }

    /// Whether an item that looks held is there for a client: it is if somebody holds it, or if
    /// nobody does any more and it stays.
    pub(in crate::engine) fn is_there(&self, key: Key<'_>, header: &ItemHeader) -> bool {
        // In this order: to know whether somebody holds what has ended may take a look at all its shares.
        !self.locks.is_flush_pending(key) && !self.is_past(header)
            || self.locks.owner(key).is_some()
    }

    /// Takes up to `locks_max` locks that are over out of the table, those that somebody waits for first, and lets
    /// go of their items.
    pub(in crate::engine) fn settle(&mut self, locks_max: usize) {
        for _ in 0..locks_max {
            self.work.charge(1);
            let next = self.locks.next_handover();
            if next.is_none()
                && let Some((key, fence)) = self.locks.next_ended_share()
            {
                self.let_share_go(as_key(&key), fence);
                continue;
            }
            let Some(key) = next.or_else(|| self.locks.next_ended()) else {
                return;
            };
            let key = Key::new(&key).expect("it was made from a key");
            if let Some(holding) = self.locks.get_alone(key)
                && holding.is_over
            {
                self.let_go(key, holding);
            }
        }
    }

    /// Takes a share out of the table, if it is still there, whose turn has come. Who waits for the lock is given it.
    fn let_share_go(&mut self, key: Key<'_>, fence: Fence) {
        if self.locks.is_share_that_is_over(key, fence) {
            let slot = self.slot_of(key);
            let slot = self.end_share(key, fence, slot);
            self.pass_on(key, slot);
        }
    }

    /// Takes a lock that is over out of the table, and lets go of its item; of one that is shared what is over. Who waits for
    /// it is given it.
    pub(in crate::engine) fn let_go(&mut self, key: Key<'_>, holding: Holding) {
        let slot = self.end_what_is_over(key, holding);
        self.pass_on(key, slot);
    }

    /// The same, but that it is given to nobody yet. Says where the item is, if it stays.
    fn end_what_is_over(&mut self, key: Key<'_>, holding: Holding) -> Option<S::Slot> {
        let slot = self.slot_of(key);
        match holding.mode {
            Mode::Exclusive => self.end(key, slot),
            Mode::Shared { .. } => self.end_shares_that_are_over(key, slot),
        }
    }

    /// Where the item is of a key whose lock is in the table, if there is one.
    fn slot_of(&self, key: Key<'_>) -> Option<S::Slot> {
        self.locks.has_item(key).then(|| self.slot_of_held(key))
    }

    /// Where the item is of a key that is held.
    pub(in crate::engine) fn slot_of_held(&self, key: Key<'_>) -> S::Slot {
        self.store.find(key).ok().expect("L3: it has an item")
    }

    /// Ends the lock of `key`, whose item, if there is one, is in `slot`; whether this stays is told to nobody.
    /// Who waits for the lock is given it (Q6).
    pub(in crate::engine) fn free(&mut self, key: Key<'_>, slot: Option<S::Slot>) {
        let stays = self.end(key, slot);
        self.pass_on(key, stays);
    }

    /// The same, but that it is given to nobody yet. Says where the item is, if it stays.
    pub(in crate::engine) fn end(
        &mut self,
        key: Key<'_>,
        slot: Option<S::Slot>,
    ) -> Option<S::Slot> {
        if slot.is_none() {
            self.take_out(key, 0);
        }
        slot.filter(|slot| self.release(key, *slot).is_ok())
    }

    /// The lock of `key` has ended, or a share of it has, and its item, if there is one, is in `slot`: whoever waits for one or the
    /// other is seen to.
    fn pass_on(&mut self, key: Key<'_>, slot: Option<S::Slot>) {
        self.hand_over(key, slot);
        if self.has_wins() {
            self.tend(key);
        }
    }

    /// Takes a lock out of the table, with all its shares, whose item takes `pinned_bytes`. Says what it was; `None`
    /// if there was none.
    pub(in crate::engine) fn take_out(
        &mut self,
        key: Key<'_>,
        pinned_bytes: usize,
    ) -> Option<Holding> {
        let mut holding = self.locks.release(key, pinned_bytes)?;
        self.stats.counters.lock_expired += u64::from(holding.is_expired);
        while holding.mode.is_shared()
            && let Some(next) = self.locks.release(key, pinned_bytes)
        {
            self.stats.counters.lock_expired += u64::from(next.is_expired);
            holding = next;
        }
        Some(holding)
    }
}
