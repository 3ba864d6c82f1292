//! The effects of locks on items, and the steps that end locks: the one place where both meet.
//!
//! - L3: An item is marked locked in the store if and only if its key is in the lock table.
//! - L13: A lock with an expired lease has no holder, whatever happens next. The locks that expire in one step end
//!   first, and are handed over then: so the bounds of an owner do not count its expired locks.

use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::command::Mode;
use latchd_protocol::fence::Fence;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::wait::Outcome;

use super::table::Holding;
use super::{Effect, Ended, Item};
use crate::engine::owned_key::as_key;
use crate::engine::queues::STALE_MAX;
use crate::engine::rules::{Access, Rules};
use crate::store::Store;

/// A step that ends many locks leaves the rest to the next one when it has granted as many to waiters. So it grants at
/// most this many, and those that the last of these locks has waiters for.
const GRANTS_A_STEP: u64 = 256;

impl<S: Store, M: Access> Rules<'_, S, M> {
    /// Applies an effect to the item in `slot`, with this header: returns its header then, or its place if it is gone.
    fn apply(
        &mut self,
        slot: S::Slot,
        header: ItemHeader,
        effect: Effect,
    ) -> Result<ItemHeader, S::Vacancy> {
        let locked = match effect {
            Effect::None => return Ok(header),
            Effect::Lock => true,
            Effect::Unlock | Effect::Flush | Effect::Expire => false,
        };
        let header = ItemHeader { locked, ..header };
        self.items.store.set_header(slot, header);
        match effect {
            Effect::Flush => Err(self.items.store.remove(slot)),
            Effect::Expire => Err(self.items.reclaim(slot, &header)),
            Effect::None | Effect::Lock | Effect::Unlock => Ok(header),
        }
    }

    /// The same if there may be no item. Returns where it is, if it stays.
    fn apply_if_any(&mut self, slot: Option<S::Slot>, effect: Effect) -> Option<S::Slot> {
        let slot = slot?;
        if effect == Effect::None {
            return Some(slot);
        }
        let header = self.items.store.header(slot);
        self.apply(slot, header, effect).ok().map(|_| slot)
    }

    /// The item in `slot`, as the machine of locks sees it.
    fn item(&self, slot: S::Slot) -> Item {
        Item {
            bytes: self.items.store.item_bytes(slot),
            has_expired: self.items.is_past(&self.items.store.header(slot)),
        }
    }

    /// Ends the lock of the item in `slot`, and hands it over to no waiter yet. If the item stays, it is in the same slot.
    pub(in crate::engine) fn unlock_item(
        &mut self,
        key: Key<'_>,
        slot: S::Slot,
    ) -> Result<ItemHeader, S::Vacancy> {
        let item = self.item(slot);
        let effect = self
            .manager
            .locks
            .end(key, Some(item), &mut self.items.stats.counters);
        self.apply(slot, self.items.store.header(slot), effect)
    }

    /// Releases the lock or the share that `owner` holds of `key`, with the item in `slot`, if any, and hands it over.
    pub(in crate::engine) fn release(&mut self, owner: Owner, key: Key<'_>, slot: Option<S::Slot>) {
        let item = slot.map(|slot| self.item(slot));
        let effect = self
            .manager
            .locks
            .release(key, owner, item, &mut self.items.stats.counters);
        let slot = self.apply_if_any(slot, effect);
        self.pass_on(key, slot);
    }

    /// Ends a lock or a share that is over, and hands it over to no waiter yet. Returns where the item is, if it stays.
    fn end(
        &mut self,
        key: Key<'_>,
        share: Option<Fence>,
        slot: Option<S::Slot>,
    ) -> Option<S::Slot> {
        let item = slot.map(|slot| self.item(slot));
        let counters = &mut self.items.stats.counters;
        let effect = match share {
            Some(fence) => self.manager.locks.end_share(key, fence, item, counters),
            None => self.manager.locks.end(key, item, counters),
        };
        self.apply_if_any(slot, effect)
    }

    /// Ends all of the lock of `key` that is over, and hands it over.
    pub(in crate::engine) fn end_if_over(&mut self, key: Key<'_>, holding: Holding) {
        let slot = self.slot_of(key);
        let slot = match holding.mode {
            Mode::Exclusive => self.end(key, None, slot),
            Mode::Shared { .. } => {
                let (over, looks) = self.manager.locks.table.over_shares(key);
                self.items.work.charge(looks + over.len());
                let end = |slot, fence| self.end(key, Some(fence), slot);
                over.into_iter().fold(slot, end)
            }
        };
        self.pass_on(key, slot);
    }

    /// The slot of the item of a key in the lock table, if there is one.
    pub(super) fn slot_of(&self, key: Key<'_>) -> Option<S::Slot> {
        let has_item = self.manager.locks.table.has_item(key);
        has_item.then(|| self.items.store.find(key).ok().expect("L3: it has an item"))
    }

    /// Hands the lock of `key`, which has ended or has one sharer less, to the waiters that can have it now (Q6). The item, if
    /// any, is in `slot`.
    #[inline]
    pub(in crate::engine) fn hand_over(&mut self, key: Key<'_>, slot: Option<S::Slot>) {
        if self.manager.locks.queue.is_empty() || self.manager.locks.queue.are_withheld() {
            return;
        }
        let pinned_bytes = slot.map(|slot| self.items.store.item_bytes(slot));
        let waiting = self.manager.locks.queue.waiting(key);
        let (locks, mut context) = self.locks_in_context();
        let effect = locks.hand_over(key, pinned_bytes, &mut context);
        // Each grant is work, and each waiter that cannot have the lock.
        self.items
            .work
            .charge(waiting - self.manager.locks.queue.waiting(key));
        if effect == Effect::Lock {
            self.note_locked(key);
        }
        self.apply_if_any(slot, effect);
    }

    /// Hands the lock of `key` over, and then its win.
    fn pass_on(&mut self, key: Key<'_>, slot: Option<S::Slot>) {
        self.hand_over(key, slot);
        if !self.manager.wins.is_empty() {
            self.update_win(key);
        }
    }

    /// `key` is locked: its item does not end by itself.
    pub(in crate::engine) fn note_locked(&mut self, key: Key<'_>) {
        if !self.manager.wins.queue.is_empty() {
            self.manager.wins.queue.set_end(key, None);
        }
    }

    /// An item was made: if its key is locked, it is locked (L3).
    pub(in crate::engine) fn lock_made_item(&mut self, key: Key<'_>, slot: S::Slot) {
        if self.manager.locks.table.has_bare() {
            let bytes = self.items.store.item_bytes(slot);
            let effect = self
                .manager
                .locks
                .gain_item(key, bytes, &mut self.items.stats.counters);
            self.apply_if_any(Some(slot), effect);
        }
    }

    /// `mu` of all keys: `owner` releases all of its locks in one step.
    pub(in crate::engine) fn unlock_all(&mut self, owner: Owner) -> Reply<'static> {
        self.items.stats.counters.lock_released += self.manager.locks.table.end_term(owner) as u64;
        self.sweep_for_waiters();
        Reply::Unlocked
    }

    /// Ends all locks and wins of `owner`, which can acquire nothing from now on (L4).
    pub(in crate::engine) fn close(&mut self, owner: Owner) {
        self.leave(owner);
        self.manager.wins.queue.leave(owner);
        self.items.stats.counters.lock_died += self.manager.locks.table.close(owner) as u64;
        if !self.manager.wins.bound.is_empty() {
            self.manager.wins.bound.end(owner);
            self.reopen_wins(self.items.limits.locks_settled_max);
        }
        self.sweep_for_waiters();
    }

    /// Many locks or wins have ended at once: hands over some of them now, and sees to it that the rest follows soon. A get may
    /// wait for the item of any of them. If more have ended than are removed now, the gets that wait are all checked.
    fn sweep_for_waiters(&mut self) {
        let each_max = self.items.limits.locks_settled_max;
        if self.manager.locks.table.has_handovers() || !self.manager.wins.queue.is_empty() {
            self.sweep_ended_locks(each_max);
        }
        let has_ended = self.manager.locks.table.has_ended() || self.manager.wins.bound.has_line();
        if has_ended && !self.manager.wins.queue.is_empty() {
            self.manager.wins.queue.begin_round();
            self.sweep_gets(each_max);
        }
    }

    /// The number of grants so far at which a step that hands over many locks leaves the rest to the next one.
    pub(super) const fn grants_max(&self) -> u64 {
        self.items.stats.counters.lock_granted + GRANTS_A_STEP
    }

    /// Removes up to `locks_max` ended locks from the table, those with waiters first, and hands each over.
    pub(in crate::engine) fn sweep_ended_locks(&mut self, locks_max: usize) {
        let grants_max = self.grants_max();
        for _ in 0..locks_max {
            if self.items.stats.counters.lock_granted >= grants_max {
                return;
            }
            self.items.work.charge(1);
            let Some(Ended { key, share }) = self.manager.locks.next_ended() else {
                return;
            };
            let key = as_key(&key);
            if self.manager.locks.is_over(key, share) {
                let slot = self.slot_of(key);
                let slot = self.end(key, share, slot);
                self.pass_on(key, slot);
            }
        }
    }

    /// Ends up to `locks_max` locks with expired leases, and then hands them over (L13).
    pub(in crate::engine) fn expire_locks(&mut self, locks_max: usize) {
        let mut waited = Vec::new();
        let mut waiting = 0;
        for _ in 0..locks_max {
            if waiting >= GRANTS_A_STEP {
                break;
            }
            let Some(Ended { key, share }) = self.manager.locks.next_expired() else {
                break;
            };
            self.items.work.charge(1);
            let is_waited = self.manager.locks.table.is_waited(as_key(&key));
            let slot = self.slot_of(as_key(&key));
            let slot = self.end(as_key(&key), share, slot);
            if is_waited {
                waiting += self.manager.locks.queue.waiting(as_key(&key)) as u64;
                waited.push((key, slot.is_some()));
            } else {
                self.pass_on(as_key(&key), slot);
            }
        }
        for (key, has_item) in waited {
            // It may have moved since, or be gone.
            let found = self.items.store.find(as_key(&key)).ok();
            self.pass_on(as_key(&key), found.filter(|_| has_item));
        }
    }

    /// Ends up to `waits_max` waits for locks at their deadlines.
    pub(in crate::engine) fn expire_waits(&mut self, waits_max: usize) {
        let mut stale_max = STALE_MAX;
        for _ in 0..waits_max {
            let Some(owner) = self
                .manager
                .locks
                .queue
                .overdue(self.items.clock.now, &mut stale_max)
            else {
                break;
            };
            self.leave(owner);
            self.manager.notices.push(owner, Outcome::TimedOut);
            self.items.stats.counters.lock_wait_timeouts += 1;
        }
        self.items.work.charge(STALE_MAX - stale_max);
    }

    /// `owner` waits for no lock any more, if it did. If it was the first of its queue, the next may have the lock now.
    fn leave(&mut self, owner: Owner) {
        let key = self.manager.locks.leave(owner, &self.items.limits);
        if let Some(key) = key {
            self.serve_queue(as_key(&key));
        }
    }

    /// A session leaves the places in queues that its last connection has left to it, and gets no notice of them: it would
    /// be taken for the end of a later wait.
    pub(in crate::engine) fn leave_all(&mut self, owner: Owner) {
        self.leave(owner);
        self.manager.wins.queue.leave(owner);
        let read = self.manager.notices.forget(owner);
        self.items.work.charge(read);
    }

    /// Some waits or leases have expired, or many locks have ended at once: does a part of the work that this leaves, and all of
    /// it for `key`, which a command is about to read.
    #[cold]
    pub(in crate::engine) fn catch_up(&mut self, key: Option<Key<'_>>) {
        self.sweep(self.items.limits.locks_settled_max);
        let Some(key) = key else {
            return;
        };
        self.serve_if_unserved(key);
        if let Some(holding) = self.manager.locks.table.get(key)
            && (holding.is_over && holding.is_waited || holding.mode.is_shared())
        {
            self.end_if_over(key, holding);
        }
    }

    /// Does up to `each_max` of each kind of the work that ended waits, locks and wins have left.
    pub(in crate::engine) fn sweep(&mut self, each_max: usize) {
        self.expire_waits(each_max);
        self.expire_locks(each_max);
        self.sweep_ended_locks(each_max);
        self.serve_withheld(each_max);
        self.reopen_wins(each_max);
        if !self.manager.wins.queue.is_empty() {
            self.sweep_gets(each_max);
        }
    }
}
