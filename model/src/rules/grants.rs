//! The fates of a lock: its holder after an event, and its number; and the right in which a change
//! may be made.
//!
//! Source: docs/PROTOCOL.md, "Locks" and "Locks of keys".

use latchd_core::Owner;
use latchd_protocol::command::{
    GlobalCommand, ItemCommand, Lease, LockAfter, Release, ReleaseOf, Removal,
};

use super::{Cause, Change, Changing, all_keys};
use crate::action::name;
use crate::frame::Judged;
use crate::invariants::Witness;
use crate::reply_seen::ReplySeen;
use crate::snapshot::LockOf;

impl Change<'_> {
    /// L12.
    pub(super) fn grants(&mut self) -> Judged {
        for key in all_keys() {
            let (before, after) = (self.before.locks[key], self.after.locks[key]);
            let due = self.due(key, before, after);
            demand!(
                Grants,
                after == due,
                "the lock of {} is {after:?}, and {due:?} is due",
                name(key)
            )?;
            if let Some(lock) = after
                && before.is_none_or(|before| before.fence != lock.fence)
            {
                self.granted(lock)?;
            }
            if after.is_some() && self.after.items[key].is_none() {
                self.witnessed.add(Witness::HeldWithoutItem);
                if before.is_some() && self.before.items[key].is_some() {
                    self.witnessed.add(Witness::LockOutlivesItem);
                }
            }
        }
        Ok(())
    }

    /// A lock that has been granted has a number above all others.
    fn granted(&mut self, lock: LockOf) -> Judged {
        let given = self.fence_given;
        demand!(
            Grants,
            lock.fence > given,
            "fence {} is given after {given}",
            lock.fence
        )?;
        if given > 0 {
            self.witnessed.add(Witness::GrantedAgain);
        }
        self.fence_given = lock.fence;
        Ok(())
    }

    /// The lock that a key has to have after the event; the number of a new one is the core's to say.
    fn due(&self, key: usize, before: Option<LockOf>, after: Option<LockOf>) -> Option<LockOf> {
        let new = |conn: Owner, is_of_key| {
            Some(LockOf {
                lease_until_ms: None,
                owner: conn,
                listed: Some(conn),
                fence: after.map_or(0, |after| after.fence),
                is_of_key,
            })
        };
        let (conn, asked, command, answer) = match self.cause {
            Cause::AskedAll {
                conn,
                command: GlobalCommand::UnlockAll,
            }
            | Cause::Closed { conn } => return before.filter(|lock| lock.owner != *conn),
            Cause::AskedAll { .. } | Cause::Time => return before,
            Cause::Asked { .. } => self.asked()?,
        };
        if asked != key {
            return before;
        }
        let ends_with_item = before.filter(|lock| lock.is_of_key);
        match (command, answer) {
            (ItemCommand::Lock { .. }, ReplySeen::Locked) => new(conn, false),
            (ItemCommand::Get(get), ReplySeen::Hit(_)) if get.lock => new(conn, false),
            (ItemCommand::Acquire(acquire), ReplySeen::Granted { fence, .. }) => {
                let lease_until_ms = match acquire.lease {
                    // A span ends a millisecond after its length.
                    Some(Lease::For { ms }) => Some(self.now_ms + ms + 1),
                    Some(Lease::Off) | None => None,
                };
                // The holder has the same grant for longer.
                let is_own = before.filter(|lock| lock.owner == conn);
                let lock = is_own.or_else(|| new(conn, true).map(|lock| LockOf { fence, ..lock }));
                lock.map(|lock| LockOf {
                    lease_until_ms,
                    is_of_key: true,
                    ..lock
                })
            }
            (ItemCommand::Unlock { .. } | ItemCommand::Release(_), ReplySeen::Unlocked) => None,
            (command, answer) if answer.is_change() && Changing::unlocks(command) => None,
            (ItemCommand::Delete(delete), ReplySeen::Deleted)
                if delete.removal == Removal::Remove =>
            {
                ends_with_item
            }
            (ItemCommand::SetTooLarge { .. }, _) => {
                let is_own = before.is_some_and(|lock| lock.owner == conn);
                let takes_item = self.before.items[key].is_some() && is_own;
                if takes_item { ends_with_item } else { before }
            }
            _ => before,
        }
    }

    /// Whether `conn` may change the item of a key, or the absence of one, as far as its lock goes.
    pub(super) fn may_change(&self, conn: Owner, key: usize, command: &ItemCommand<'_>) -> bool {
        let lock = self.before.locks[key];
        let changing = Changing::of(command).map(|it| (it.fence, it.lock));
        let right = if let ItemCommand::Release(Release {
            of: ReleaseOf::Grant(fence),
            ..
        }) = command
        {
            (Some(*fence), LockAfter::Release)
        } else {
            changing.unwrap_or((None, LockAfter::Keep))
        };
        match right {
            (Some(fence), _) => lock.is_some_and(|lock| lock.fence == fence.number()),
            (None, LockAfter::Release) => lock.is_some_and(|lock| lock.owner == conn),
            (None, LockAfter::Keep) => lock.is_none_or(|lock| lock.owner == conn),
        }
    }

    /// G1; `None` if the request has no fence.
    pub(super) fn fenced(&mut self) -> Option<Judged> {
        let (conn, key, command, answer) = self.asked()?;
        Changing::of(command)?.fence?;
        let is_in_force = self.may_change(conn, key, command);
        let is_refused = answer == ReplySeen::Exists;
        let is_done = answer.is_change();
        let lock = self.before.locks[key];
        if is_in_force && is_done && lock.is_some_and(|lock| lock.owner != conn) {
            self.witnessed.add(Witness::FencedByOther);
        }
        if !is_in_force {
            self.witnessed.add(Witness::FenceOver);
        }
        Some(demand!(
            Fenced,
            is_in_force || is_refused,
            "{answer:?} in the right of a grant that is over: {lock:?}"
        ))
    }
}
