//! The machine of locks: holders, waiters, and the ends of locks. It knows no store.
//!
//! A lock ties one key to one owner; a shared lock ties it to several. `lock` and `ml` acquire the same lock. A lock
//! changes in five ways: an owner *acquires*, *releases* or *renews* it; it *expires* with its lease; and an ended lock is
//! *handed over* to the next waiter. The end of an owner ends all of its locks. An eviction ends none.
//!
//! Each change is a call of [`Locks`], which returns its [`Effect`] on the item of the key. The engine applies effects in one
//! place (`effects.rs`). The engine tells the machine the size of the item beforehand, and whether it has expired.
//!
//! If many locks end in one step, all of them are free at once (L9, `table.rs`). Their items are unlocked later: if a command
//! looks one up, some with each command, and more with each tick. Until then such an item is pinned, and looks unlocked.
//!
//! - L6: A lock is acquired if and only if it is free or can be shared (`shared.rs`), no client waits for it, the bounds
//!   allow it and, if the request requires an item, the item exists.
//! - L7: An expiry or a flush that a lock has delayed takes effect when the lock ends, and nothing else does.
//! - L11: The bytes that locks pin stay within their bound, and the bytes of one owner within its share.
//! - L12: Each grant has a fence of its own, which is greater than the fences of all grants before it.
//!
//! Source: yrmcds `docs/locking.md`. Where we differ: docs/PROTOCOL.md, "Locks".
//!
//! Models: every one with `Lock`, by `model/src/rules/` and `beliefs.rs`. Fences and leases: `key-locks-*`, `commands-*`,
//! `key-locks-3x2-shards-2`. L9: `locks-2x2-settled-1`, which releases one lock at a time. L11: `locks-2x2-max-1`. L15, L16:
//! `shares-3x1-items`. Liveness: `beliefs::escape` (L8, R5).

mod effects;
pub(in crate::engine) mod queue;
mod requests;
mod shared;
pub(in crate::engine) mod table;
mod waits;
pub(in crate::engine) mod withheld;

use latchd_protocol::Owner;
use latchd_protocol::command::Mode;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::reply::{LockInfo, Refusal};
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Instant;

use self::queue::WaitTable;
use self::table::{Holding, LockScope, LockTable, NewGrant, OwnerUsage, Shard};
use crate::engine::context::Context;
use crate::engine::manager::DueKey;
use crate::limits::Limits;

/// The locks of a core, and the queues of their waiters.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Locks {
    pub(in crate::engine) table: LockTable,
    pub(in crate::engine) queue: WaitTable,
    /// The fence of the next grant (L12).
    pub(in crate::engine) next_fence: Fence,
}

/// The terms on which a lock is acquired.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Terms {
    pub(in crate::engine) mode: Mode,
    pub(in crate::engine) scope: LockScope,
    /// When it expires; `None` is never.
    pub(in crate::engine) lease_until: Option<Instant>,
}

/// The item of a key, when its lock ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Item {
    /// The bytes that it takes of the memory limit.
    pub(in crate::engine) bytes: usize,
    /// Its TTL has passed.
    pub(in crate::engine) has_expired: bool,
}

/// The item that a lock would pin.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Pinned {
    /// The shard of the key.
    pub(in crate::engine) shard: Shard,
    /// The bytes that the item takes of the memory limit; `None` if there is none.
    pub(in crate::engine) bytes: Option<usize>,
}

/// The effect of a change of a lock on the item of its key.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::engine) enum Effect {
    /// The item stays as it is, or there is none.
    None,
    /// The item is locked.
    Lock,
    /// The item is unlocked.
    Unlock,
    /// The item is unlocked and removed: a `flush_all` has come while it was locked (L7).
    Flush,
    /// The item is unlocked and removed: its TTL has passed while it was locked (L7).
    Expire,
}

impl Locks {
    pub(in crate::engine) fn new(first_fence: Fence) -> Self {
        Self {
            table: LockTable::default(),
            queue: WaitTable::default(),
            next_fence: first_fence,
        }
    }

    /// Goes on above the fences of an earlier run.
    pub(in crate::engine) fn resume(&mut self, fence: Fence) {
        self.next_fence = self.next_fence.max(fence);
    }

    /// The lock of a key, as other connections see it, without its metadata.
    pub(in crate::engine) fn info(&self, key: Key<'_>, now: Instant) -> Option<LockInfo<'static>> {
        let held = self.table.in_force(key)?;
        let held_ms = now.as_millis() - held.since.as_millis();
        Some(LockInfo {
            holder: held.owner,
            fence: held.fence,
            held_s: held_ms / 1000,
            is_shared: held.mode.is_shared(),
            waiting: self.queue.waiting(key),
            metadata: None,
        })
    }

    /// Whether `owner` may acquire the lock of `key`, which is free or can be shared, and takes so many bytes of the table.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`]; [`Refusal::ConnectionClosed`].
    pub(in crate::engine) fn may_acquire(
        &self,
        owner: Owner,
        key: Key<'_>,
        of_table: usize,
        item: Pinned,
        limits: &Limits,
    ) -> Result<(), Refusal> {
        let held = self.table.held_by(owner).ok_or(Refusal::ConnectionClosed)?;
        let is_full = self.table.share_count(key) >= limits.sharers_per_key_max;
        if !is_full && self.is_within_bounds(held, key, of_table, item, limits) {
            Ok(())
        } else {
            Err(Refusal::TooManyLocks)
        }
    }

    /// Whether an owner that holds this much may hold the lock of `key` as well: within the bound of all locks, and
    /// within its share (L11).
    fn is_within_bounds(
        &self,
        held: OwnerUsage,
        key: Key<'_>,
        of_table: usize,
        item: Pinned,
        limits: &Limits,
    ) -> bool {
        let pinned = item.bytes.unwrap_or(0);
        // A sharer has pinned it already.
        let is_pinned = self.table.share_count(key) > 0;
        held.locks < limits.locks_per_connection_max
            && if is_pinned {
                is_within_share(held, pinned + of_table, limits)
            } else {
                self.may_pin(held, (item.shard, pinned), of_table, limits)
            }
    }

    /// Whether items may pin `pinned` more bytes, and the table take `of_table` more, for an owner that holds this much.
    pub(in crate::engine) fn may_pin(
        &self,
        held: OwnerUsage,
        (shard, pinned): (Shard, usize),
        of_table: usize,
        limits: &Limits,
    ) -> bool {
        self.table.pinned_bytes(shard) + pinned <= limits.locked_bytes_max
            && is_within_share(held, pinned + of_table, limits)
    }

    /// Whether the table may take `of_table` more bytes for `owner`.
    pub(in crate::engine) fn may_grow(
        &self,
        owner: Owner,
        of_table: usize,
        limits: &Limits,
    ) -> bool {
        let held = self.table.held_by(owner);
        held.is_some_and(|held| is_within_share(held, of_table, limits))
    }

    /// Whether the item of `key` may take `after` bytes instead of `before`. An item that does not grow always may.
    pub(in crate::engine) fn may_resize(
        &self,
        key: Key<'_>,
        before: usize,
        after: usize,
        limits: &Limits,
    ) -> bool {
        let Some(owner) = self.table.owner(key) else {
            return true;
        };
        let held = self.table.held_by(owner);
        let held = held.expect("L4: an owner is open");
        let shard = self.table.shard(key);
        after <= before || self.may_pin(held, (shard, after - before), 0, limits)
    }

    /// Acquires a lock, or a share of it, for `owner`, which may have it. The item of the key is locked from now on.
    pub(in crate::engine) fn acquire(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        terms: Terms,
        item: Pinned,
        context: &mut Context<'_>,
    ) -> Fence {
        context.counters.lock_granted += 1;
        if self.table.has_lock_without_item() {
            // The new lock replaces an ended one (L9).
            let ended = self.table.get(key).filter(|holding| holding.is_over);
            if ended.is_some_and(|holding| !holding.has_item) {
                self.remove_grants(key, 0, context.counters);
            }
        }
        let fence = self.next_fence;
        self.next_fence = fence.step(1);
        let Terms {
            mode,
            scope,
            lease_until,
        } = terms;
        let grant = NewGrant {
            owner,
            fence,
            now: context.now,
            lease_until,
            scope,
            shard: item.shard,
        };
        match mode {
            Mode::Exclusive => self.table.acquire(key, grant, item.bytes),
            Mode::Shared { max_sharers } => {
                self.table
                    .acquire_share(key, grant, max_sharers, item.bytes);
            }
        }
        fence
    }

    /// Releases the lock of `key`, or the share of `owner`. Of an exclusive lock, `owner` need not be the holder: a request
    /// with the fence of the grant acts for the holder.
    pub(in crate::engine) fn release(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        item: Option<Item>,
        counters: &mut Counters,
    ) -> Effect {
        counters.lock_released += 1;
        if self.table.share_count(key) > 1 {
            if let Some(share) = self.table.held_as(key, owner) {
                self.remove_share(key, share.fence, item, counters);
            }
            return Effect::None;
        }
        self.end(key, item, counters)
    }

    /// Renews the lock that `owner` holds: it expires then. From now on it is the lock of the key, and stays if the item goes.
    pub(in crate::engine) fn renew(&mut self, key: Key<'_>, owner: Owner, until: Option<Instant>) {
        self.table.set_lease(key, owner, until);
        self.table.keep_without_item(key);
    }

    /// Ends the lock of `key` with all its shares.
    pub(in crate::engine) fn end(
        &mut self,
        key: Key<'_>,
        item: Option<Item>,
        counters: &mut Counters,
    ) -> Effect {
        let pinned_bytes = item.map_or(0, |item| item.bytes);
        let ended = self.remove_grants(key, pinned_bytes, counters);
        match (ended, item) {
            (None, _) | (_, None) => Effect::None,
            (Some(ended), Some(_)) if ended.flush_pending => Effect::Flush,
            (Some(_), Some(item)) if item.has_expired => Effect::Expire,
            (Some(_), Some(_)) => Effect::Unlock,
        }
    }

    /// Ends the share of `key` with this fence, if it is over; with the last share, the lock.
    pub(in crate::engine) fn end_share(
        &mut self,
        key: Key<'_>,
        fence: Fence,
        item: Option<Item>,
        counters: &mut Counters,
    ) -> Effect {
        if !self.table.is_share_that_is_over(key, fence) {
            return Effect::None;
        }
        if self.table.share_count(key) == 1 {
            return self.end(key, item, counters);
        }
        self.remove_share(key, fence, item, counters);
        Effect::None
    }

    /// Removes one share of several from the table.
    fn remove_share(
        &mut self,
        key: Key<'_>,
        fence: Fence,
        item: Option<Item>,
        counters: &mut Counters,
    ) {
        let pinned_bytes = item.map_or(0, |item| item.bytes);
        if let Some(share) = self.table.release_share(key, fence, pinned_bytes) {
            counters.lock_expired += u64::from(share.is_expired);
        }
    }

    /// Removes all grants of `key` from the table. Returns the last of them; `None` if there was none.
    fn remove_grants(
        &mut self,
        key: Key<'_>,
        pinned_bytes: usize,
        counters: &mut Counters,
    ) -> Option<Holding> {
        let mut holding = self.table.release(key, pinned_bytes)?;
        counters.lock_expired += u64::from(holding.is_expired);
        while holding.mode.is_shared()
            && let Some(next) = self.table.release(key, pinned_bytes)
        {
            counters.lock_expired += u64::from(next.is_expired);
            holding = next;
        }
        Some(holding)
    }

    /// The next key with a lock that is over because its owner has ended or has released all of its locks; a key with waiters
    /// first (L14). It is to be updated.
    pub(in crate::engine) fn next_ended(&self) -> Option<DueKey> {
        let (key, share) = self.table.next_ended()?;
        Some(DueKey::lock(key, share))
    }

    /// The item of `key` was made, and takes `bytes`. If the key is locked, the item is locked with it.
    pub(in crate::engine) fn gain_item(
        &mut self,
        key: Key<'_>,
        bytes: usize,
        counters: &mut Counters,
    ) -> Effect {
        match self.table.get(key).filter(|holding| !holding.has_item) {
            None => Effect::None,
            // Its owner has ended (L9).
            Some(ended) if ended.is_over => {
                self.remove_grants(key, 0, counters);
                Effect::None
            }
            Some(_) => {
                self.table.gain_item(key, bytes);
                Effect::Lock
            }
        }
    }

    /// The locked item of `key`, which takes `bytes`, is about to be removed by a command. Returns whether its lock ends with
    /// it: the lock of an item does, the lock of a key does not.
    pub(in crate::engine) fn lose_item(
        &mut self,
        key: Key<'_>,
        bytes: usize,
        counters: &mut Counters,
    ) -> bool {
        match self.table.in_force(key).map(|holding| holding.scope) {
            Some(LockScope::Key) => {
                self.table.lose_item(key, bytes);
                false
            }
            Some(LockScope::Item) | None => {
                self.remove_grants(key, bytes, counters);
                true
            }
        }
    }
}

/// Whether an owner that holds this much may take so many bytes more.
const fn is_within_share(held: OwnerUsage, bytes: usize, limits: &Limits) -> bool {
    held.bytes + bytes <= limits.lock_bytes_per_connection_max
}
