//! The rules of shared locks: which request gets a share.
//!
//! - L6: A key is shared if and only if it is free, or its sharers are fewer than the request and each of them has asked for;
//!   and, in both cases, no client waits for it.
//! - L15: While a key is shared, no owner changes or makes its item, a sharer included, and not with the fence of a share
//!   either (`items/fenced.rs`).
//!
//! An owner holds a key once: a sharer cannot acquire the exclusive lock as well, and the exclusive holder no share.

use latchd_protocol::Owner;
use latchd_protocol::command::{Acquire, Mode};
use latchd_protocol::key::Key;

use super::Locks;
use super::waits::max_sharers;
use crate::deadlock::WaitTarget;
use crate::limits::Limits;

impl Locks {
    /// Whether `owner` can have a share at once of a lock that other owners hold.
    pub(in crate::engine) fn may_join(&self, owner: Owner, acquire: &Acquire<'_>) -> bool {
        let Acquire { key, mode, .. } = *acquire;
        mode.is_shared()
            && !self.queue.are_withheld()
            && self.table.held_as(key, owner).is_none()
            && self.queue.waiting(key) == 0
            && self.table.has_room(key, mode)
    }

    /// The lock that this request would wait for ([`would_deadlock`](crate::deadlock::would_deadlock)).
    pub(in crate::engine) fn target<'a>(
        &self,
        acquire: &Acquire<'a>,
        limits: &Limits,
    ) -> WaitTarget<'a> {
        let max_sharers = max_sharers(acquire.mode, limits);
        WaitTarget {
            key: acquire.key,
            max_sharers: self.queue.max_sharers_behind(acquire.key, max_sharers),
        }
    }

    /// Whether an owner without a part in the lock of `key` can have it in this mode.
    pub(in crate::engine) fn has_room(&self, key: Key<'_>, mode: Mode, limits: &Limits) -> bool {
        self.table.has_room(key, mode) && self.table.share_count(key) < limits.sharers_per_key_max
    }
}
