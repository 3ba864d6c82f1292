//! The right to change an item: the owner's own, or that of a grant.
//!
//! - E2: An item that another owner has locked is not changed, nor made.
//! - L15: The item of a shared key is not changed or made by any owner.
//! - G1: A change or a release with a fence (`G`) happens if and only if that grant is in force, and then as its
//!   holder's, on any connection.
//! - G2: a change that gives a lock back happens only for its holder.

use latchd_protocol::Owner;
use latchd_protocol::command::LockAfter;
use latchd_protocol::fence::Fence;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Refusal, Reply};

use crate::engine::rules::{Access, Rules};
use crate::store::{Full, Store};

/// The right in which a change is requested, and its effect on the lock.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Right {
    pub(in crate::engine) owner: Owner,
    pub(in crate::engine) fence: Option<Fence>,
    pub(in crate::engine) lock: LockAfter,
}

/// Why a change may not be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::engine) enum Forbidden {
    /// The grant with the fence of the request is not in force (G1).
    GrantIsOver,
    /// The request releases a lock that its owner does not hold (G2).
    NotHolder,
    /// Another owner holds the lock (E2), or it is shared (L15).
    HeldByAnother,
}

impl From<Forbidden> for Reply<'static> {
    fn from(forbidden: Forbidden) -> Self {
        match forbidden {
            Forbidden::GrantIsOver => Reply::Exists,
            Forbidden::NotHolder => Reply::Refused(Refusal::NotLocked),
            Forbidden::HeldByAnother => Reply::Refused(Refusal::Locked),
        }
    }
}

impl Right {
    /// A change by `owner` that leaves every lock as it is.
    pub(in crate::engine) const fn own(owner: Owner) -> Self {
        Self {
            owner,
            fence: None,
            lock: LockAfter::Keep,
        }
    }
}

impl<S: Store, M: Access> Rules<'_, S, M> {
    /// Whether an item that was found may be changed.
    ///
    /// # Errors
    /// The reason, if it may not.
    pub(in crate::engine) fn may_change(
        &mut self,
        key: Key<'_>,
        right: Right,
        header: &ItemHeader,
    ) -> Result<(), Forbidden> {
        self.may(key, right, header.locked)
    }

    /// Whether an item may be made where there is none.
    ///
    /// # Errors
    /// The reason, if it may not.
    pub(in crate::engine) fn may_make(
        &mut self,
        key: Key<'_>,
        right: Right,
    ) -> Result<(), Forbidden> {
        let may_be_held = self.items.is_noted(key);
        self.may(key, right, may_be_held)
    }

    fn may(&mut self, key: Key<'_>, right: Right, may_be_held: bool) -> Result<(), Forbidden> {
        let Right { owner, fence, lock } = right;
        let held = if may_be_held {
            self.manager.locks.table.in_force(key)
        } else {
            None
        };
        if held.is_some_and(|held| held.mode.is_shared()) {
            return Err(self.why_not_shared(key, right));
        }
        if let Some(fence) = fence {
            return match held {
                Some(held) if held.fence == fence => Ok(()),
                Some(_) | None => {
                    self.items.counters.fence_refusals += 1;
                    Err(Forbidden::GrantIsOver)
                }
            };
        }
        let is_own = held.is_some_and(|held| held.owner == owner);
        match lock {
            // The reply to a request for holders only shows whether its owner is one, not which other owner is.
            LockAfter::Release if !is_own => Err(Forbidden::NotHolder),
            LockAfter::Keep if held.is_some() && !is_own => {
                self.items.counters.lock_refusals += 1;
                Err(Forbidden::HeldByAnother)
            }
            LockAfter::Keep | LockAfter::Release => Ok(()),
        }
    }

    /// Why the item of a key that is shared may not be changed (L15).
    #[cold]
    fn why_not_shared(&mut self, key: Key<'_>, right: Right) -> Forbidden {
        let Right { owner, fence, lock } = right;
        if fence.is_some_and(|fence| self.manager.locks.table.grant(key, fence).is_none()) {
            self.items.counters.fence_refusals += 1;
            return Forbidden::GrantIsOver;
        }
        let is_own = fence.is_some() || self.manager.locks.table.held_as(key, owner).is_some();
        match lock {
            LockAfter::Release if !is_own => Forbidden::NotHolder,
            LockAfter::Keep | LockAfter::Release => {
                self.items.counters.lock_refusals += 1;
                Forbidden::HeldByAnother
            }
        }
    }

    /// Whether an item of this size may be made of a key: if it is held, it is pinned from the
    /// first.
    ///
    /// # Errors
    /// [`Full`]: it may not.
    pub(in crate::engine) fn may_pin_new(
        &self,
        key: Key<'_>,
        value_bytes: usize,
    ) -> Result<(), Full> {
        let Some(holding) = self.without_item(key) else {
            return Ok(());
        };
        let held = self.manager.locks.table.held_by(holding.owner);
        let held = held.expect("L4: an owner is open");
        let bytes = self
            .items
            .store
            .bytes_for(key.as_bytes().len(), value_bytes);
        if self
            .manager
            .locks
            .may_pin(held, (self.items.shard, bytes), 0, &self.manager.limits)
        {
            Ok(())
        } else {
            Err(Full)
        }
    }

    /// Releases the lock of a key that was changed, if the request asks for that. There need not be an item any more.
    pub(in crate::engine) fn end_lock(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        slot: Option<S::Slot>,
        lock: LockAfter,
    ) {
        match lock {
            LockAfter::Keep => {}
            LockAfter::Release => self.release(owner, key, slot),
        }
    }
}
