//! The rules of locks that are shared: who gets a share, and what becomes of the others when one ends.
//!
//! - L6: a key is shared if and only if it is free, or held by sharers who are fewer than the request, and each of
//!   them, has asked for; and, in both cases, nobody waits for it.
//! - L15: while a key is shared nobody changes its item, nor makes one, those who share it included, and not in the right
//!   of a share, either ([`crate::engine::items::fenced`]).
//! - Q6: when a share ends, however it does, the first who waits is given the lock in the same step, if this makes
//!   room for it; and those behind who can be among the sharers, together with it.
//!
//! One connection holds a key once: who shares it gets nothing more by asking for all of it, nor the other way round.

use crate::command::{Acquire, Mode};
use crate::engine::Core;
use crate::engine::locks::table::{Held, LockTable};
use crate::fence::Fence;
use crate::key::Key;
use crate::owner::Owner;
use crate::reply::Refusal;
use crate::store::Store;
use crate::time::Instant;
use crate::wait::Sought;

impl<S: Store> Core<S> {
    /// Whether a request for a lock that somebody holds is one for a share of it that can be had at once. `conn` is the one
    /// who asks.
    pub(in crate::engine) fn may_join(&self, conn: Owner, acquire: &Acquire<'_>) -> bool {
        let Acquire { key, mode, .. } = *acquire;
        mode.is_shared()
            && self.locks.held_as(key, conn).is_none()
            && self.waits.waiting(key) == 0
            && self.locks.has_room(key, mode)
    }

    /// Whether a request of `conn` would wait, or be refused, because of who holds the lock or waits for it already: for
    /// a transport over several cores, which must know before.
    pub fn would_contend(&mut self, now: Instant, conn: Owner, acquire: &Acquire<'_>) -> bool {
        let key = acquire.key;
        if self.advance(now) || self.locks.has_ended() {
            self.catch_up(Some(key));
        }
        self.locks.owner(key).is_some()
            && self.locks.held_as(key, conn).is_none()
            && !self.may_join(conn, acquire)
    }

    /// What whoever makes this request would wait for ([`would_deadlock`](crate::wait::would_deadlock)).
    #[must_use]
    pub fn sought<'a>(&self, acquire: &Acquire<'a>) -> Sought<'a> {
        let among = self.among(acquire.mode);
        Sought {
            key: acquire.key,
            among: self.waits.among_behind(acquire.key, among),
        }
    }

    /// Among how many a lock is held in this mode, within the bound.
    pub(in crate::engine) fn among(&self, mode: Mode) -> u32 {
        mode.among().min(self.limits.sharers_per_key_max)
    }

    /// Whether `conn` may have the lock that it asks for, which is free or has room for it, and whose item, if there is
    /// one, is in `slot`.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`] as they say.
    pub(in crate::engine) fn may_acquire(
        &self,
        conn: Owner,
        acquire: &Acquire<'_>,
        slot: Option<S::Slot>,
    ) -> Result<(), Refusal> {
        let of_table = LockTable::bytes_in(acquire.mode, acquire.key);
        let is_full = self.locks.share_count(acquire.key) >= self.limits.sharers_per_key_max;
        let held = self.locks.held_by(conn).ok_or(Refusal::ConnectionClosed)?;
        if !is_full
            && self.has_room_in_table(of_table)
            && self.is_within_bounds(held, acquire.key, acquire.mode, slot)
        {
            Ok(())
        } else {
            Err(Refusal::TooManyLocks)
        }
    }

    /// Whether a connection that has what `held` says may have one more lock, of this key and in this mode: what all
    /// may pin, and its share, have room for it.
    pub(in crate::engine) fn is_within_bounds(
        &self,
        held: Held,
        key: Key<'_>,
        mode: Mode,
        slot: Option<S::Slot>,
    ) -> bool {
        let of_table = LockTable::bytes_in(mode, key);
        let pinned = slot.map_or(0, |slot| self.store.item_bytes(slot));
        // Who shares it has pinned it already.
        let is_pinned = self.locks.share_count(key) > 0;
        held.locks < self.limits.locks_per_connection_max
            && if is_pinned {
                self.is_within_share(held, pinned + of_table)
            } else {
                self.may_pin(held, pinned, of_table)
            }
    }

    /// Ends what `conn` holds of `key`, whose item, if there is one, is in `slot`: it gives it back.
    pub(in crate::engine) fn end_hold(
        &mut self,
        conn: Owner,
        key: Key<'_>,
        slot: Option<S::Slot>,
        mode: Mode,
    ) {
        self.stats.counters.lock_released += 1;
        if !mode.is_shared() || self.locks.share_count(key) == 1 {
            return self.free(key, slot);
        }
        if let Some(share) = self.locks.held_as(key, conn) {
            self.take_share_out(key, share.fence, slot);
        }
        self.hand_over(key, slot);
    }

    /// Takes out the shares of `key` that are over. Says where the item is, if there is one and it stays.
    pub(in crate::engine) fn end_shares_that_are_over(
        &mut self,
        key: Key<'_>,
        slot: Option<S::Slot>,
    ) -> Option<S::Slot> {
        let (over, looks) = self.locks.over_shares(key);
        self.work.charge(looks + over.len());
        over.into_iter()
            .fold(slot, |slot, fence| self.end_share(key, fence, slot))
    }

    /// Takes out the share of `key` with this fence, if it is over; the item is in `slot`, if there is one. Says where that is,
    /// if it stays.
    pub(in crate::engine) fn end_share(
        &mut self,
        key: Key<'_>,
        fence: Fence,
        slot: Option<S::Slot>,
    ) -> Option<S::Slot> {
        if !self.locks.is_share_that_is_over(key, fence) {
            return slot;
        }
        if self.locks.share_count(key) == 1 {
            return self.end(key, slot);
        }
        self.take_share_out(key, fence, slot);
        slot
    }

    fn take_share_out(&mut self, key: Key<'_>, fence: Fence, slot: Option<S::Slot>) {
        let pinned_bytes = slot.map_or(0, |slot| self.store.item_bytes(slot));
        if let Some(share) = self.locks.release_share(key, fence, pinned_bytes) {
            self.stats.counters.lock_expired += u64::from(share.is_expired);
        }
    }

    /// Somebody who waited for `key` does no more: if that was the first, there may be room for the next.
    pub(in crate::engine) fn hand_over_behind(&mut self, key: Key<'_>) {
        let Some((_, first)) = self.waits.first(key) else {
            return;
        };
        if self.has_room(key, first.mode)
            && let Some(holding) = self.locks.get(key)
        {
            let slot = holding.has_item.then(|| self.slot_of_held(key));
            self.hand_over(key, slot);
        }
    }

    /// Whether the lock of `key` can be had in this mode by one who has no part in it.
    pub(in crate::engine) fn has_room(&self, key: Key<'_>, mode: Mode) -> bool {
        self.locks.has_room(key, mode)
            && self.locks.share_count(key) < self.limits.sharers_per_key_max
    }
}
