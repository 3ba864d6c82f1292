//! The effects of locks on items: the one place where both meet.
//!
//! - L3: An item is marked locked in the store if and only if its key is in the lock table.
//! - L13: A lock with an expired lease has no holder, whatever happens next. The locks that expire in one step end
//!   first, and are handed over then: so the bounds of an owner do not count its expired locks.

use latchd_protocol::Owner;
use latchd_protocol::fence::Fence;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;

use super::table::Holding;
use super::{Effect, Item, Pinned};
use crate::engine::manager::{DueKey, Part};
use crate::engine::rules::{Access, Rules};
use crate::store::Store;

impl<S: Store, M: Access> Rules<'_, S, M> {
    /// Applies an effect to the item in `slot`, with this header: returns its header then, or its place if it is removed.
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

    /// The item in `slot`, if any, for a lock of its key.
    pub(in crate::engine) fn pinned(&self, slot: Option<S::Slot>) -> Pinned {
        Pinned {
            shard: self.items.shard,
            bytes: slot.map(|slot| self.items.store.item_bytes(slot)),
        }
    }

    /// Releases the lock or the share that `owner` holds of `key`, with the item in `slot`, if any, and hands it over.
    pub(in crate::engine) fn release(&mut self, owner: Owner, key: Key<'_>, slot: Option<S::Slot>) {
        let item = slot.map(|slot| self.item(slot));
        let manager = &mut *self.manager;
        let counters = &mut manager.counters;
        let effect = manager.locks.release(key, owner, item, counters);
        let slot = self.apply_if_any(slot, effect);
        self.hand_over(key, slot);
    }

    /// Ends a lock or a share that is over, and hands it over to no waiter yet. Returns where the item is, if it stays.
    fn end(
        &mut self,
        key: Key<'_>,
        share: Option<Fence>,
        slot: Option<S::Slot>,
    ) -> Option<S::Slot> {
        let item = slot.map(|slot| self.item(slot));
        let manager = &mut *self.manager;
        let counters = &mut manager.counters;
        let effect = match share {
            Some(fence) => manager.locks.end_share(key, fence, item, counters),
            None => manager.locks.end(key, item, counters),
        };
        self.apply_if_any(slot, effect)
    }

    /// Ends a lock or a share that is due and over, and hands it over to no waiter yet.
    pub fn end_due(&mut self, due: &DueKey) {
        let key = due.key();
        match due.part {
            Part::Lock(None) if !self.manager.locks.table.is_over_alone(key) => {}
            Part::Lock(share) => {
                let slot = self.slot_of(key);
                self.end(key, share, slot);
            }
            Part::Win => {}
        }
    }

    /// Updates a key that is due: ends the lock or the share that is over, serves its waiters, and brings its win and the gets
    /// that wait into line with its item.
    pub fn update_due(&mut self, due: &DueKey) {
        let key = due.key();
        match due.part {
            Part::Lock(_) => {
                self.end_due(due);
                self.serve(key);
            }
            // The end of its lock can end the item.
            Part::Win if self.manager.locks.table.is_over(key) => return self.update(key),
            Part::Win => {}
        }
        self.update_win(key);
        self.conclude(key);
    }

    /// Updates a key that a command is about: ends all of its lock that is over, and does the same.
    #[cold]
    pub(in crate::engine) fn update(&mut self, key: Key<'_>) {
        if self.manager.locks.table.is_over_alone(key) {
            let slot = self.slot_of(key);
            self.end(key, None, slot);
        } else {
            let (over, looks) = self.manager.locks.table.over_shares(key);
            self.items.work.charge(looks + over.len());
            let slot = self.slot_of(key);
            let end = |slot, fence| self.end(key, Some(fence), slot);
            over.into_iter().fold(slot, end);
        }
        self.serve(key);
        self.update_win(key);
        self.conclude(key);
    }

    /// Hands the lock of `key` over to the waiters that can have it.
    fn serve(&mut self, key: Key<'_>) {
        let queue = &self.manager.locks.queue;
        if queue.waiting(key) > 0 && !queue.are_withheld() {
            let slot = if self.manager.locks.table.get(key).is_some() {
                self.slot_of(key)
            } else {
                self.free_slot_of(key)
            };
            self.hand_over(key, slot);
        }
    }

    /// The slot of the item of a key in the lock table, if there is one.
    fn slot_of(&self, key: Key<'_>) -> Option<S::Slot> {
        let has_item = self.manager.locks.table.has_item(key);
        has_item.then(|| self.items.store.find(key).ok().expect("L3: it has an item"))
    }

    /// The slot of the item of a key without a lock, if there is one.
    fn free_slot_of(&mut self, key: Key<'_>) -> Option<S::Slot> {
        let slot = self.items.store.find(key).ok()?;
        let header = self.items.store.header(slot);
        if self.items.is_past(&header) {
            self.items.reclaim(slot, &header);
            return None;
        }
        Some(slot)
    }

    /// Hands the lock of `key`, which has ended or has one sharer less, to the waiters that can have it now (Q6). The item, if
    /// any, is in `slot`.
    #[inline]
    pub(in crate::engine) fn hand_over(&mut self, key: Key<'_>, slot: Option<S::Slot>) {
        let queue = &self.manager.locks.queue;
        if queue.is_empty() || queue.are_withheld() {
            return;
        }
        let item = self.pinned(slot);
        let waiting = queue.waiting(key);
        let (locks, mut context) = self.manager.locks_in_context();
        let effect = locks.hand_over(key, item, &mut context);
        // Each grant is work, and each waiter that cannot have the lock.
        let left = locks.queue.waiting(key);
        self.items.work.charge(waiting - left);
        if effect == Effect::Lock {
            self.note_locked(key);
        }
        self.apply_if_any(slot, effect);
    }

    /// `key` is locked: its item does not end by itself.
    pub(in crate::engine) fn note_locked(&mut self, key: Key<'_>) {
        if !self.manager.wins.queue.is_empty() {
            self.manager.wins.queue.set_end(key, None);
        }
    }

    /// An item was made: if its key is locked, it is locked (L3).
    pub(in crate::engine) fn lock_made_item(&mut self, key: Key<'_>, slot: S::Slot) {
        if self.items.is_noted(key) {
            let bytes = self.items.store.item_bytes(slot);
            let manager = &mut *self.manager;
            let counters = &mut manager.counters;
            let effect = manager.locks.gain_item(key, bytes, counters);
            self.apply_if_any(Some(slot), effect);
        }
    }

    /// The lock in force of a key without an item.
    pub(in crate::engine) fn without_item(&self, key: Key<'_>) -> Option<Holding> {
        if !self.items.is_noted(key) {
            return None;
        }
        let holding = self.manager.locks.table.in_force(key);
        holding.filter(|holding| !holding.has_item)
    }
}
