//! When locks end by themselves.
//!
//! - L13: a lock with a lease is listed by the moment at which it ends, and no other is.

use alloc::sync::Arc;

use latchd_protocol::Owner;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use super::{Grant, Holders, LockTable};
use crate::engine::owned_key::{OwnedKey, as_key};

impl LockTable {
    /// The lock of `key` that `owner` has ends by itself at this moment, or not at all.
    pub(in crate::engine) fn set_lease(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        until: Option<Instant>,
    ) {
        let Some((key, entry)) = self.by_key.get_key_value(key.as_bytes()) else {
            return;
        };
        match entry.holders {
            Holders::Alone(grant) if grant.lease_until == until => {}
            Holders::Alone(grant) => {
                let key = Arc::clone(key);
                self.list_lease(&key, grant.lease_until, until);
                if let Some(entry) = self.by_key.get_mut(&key)
                    && let Holders::Alone(grant) = &mut entry.holders
                {
                    grant.lease_until = until;
                }
            }
            Holders::Shared(group) => {
                let key = Arc::clone(key);
                if let Some(fence) = self.fence_of_share(as_key(&key), owner) {
                    self.set_lease_of_share(&key, group.id, fence, until);
                }
            }
        }
    }

    /// The same of a share.
    pub(super) fn set_lease_of_share(
        &mut self,
        key: &OwnedKey,
        group: Fence,
        fence: Fence,
        until: Option<Instant>,
    ) {
        let Some(share) = self.shares.by_fence.get_mut(&(group, fence)) else {
            return;
        };
        let before = core::mem::replace(&mut share.grant.lease_until, until);
        let first = |table: &Self| table.shares.first_lease(group).map(|(until, _)| until);
        let first_before = first(self);
        if let Some(before) = before {
            self.shares.leases.remove(&(group, before, fence));
        }
        if let Some(until) = until {
            self.shares.leases.insert((group, until, fence));
        }
        self.list_lease(key, first_before, first(self));
    }

    /// The first lease of `key` ended at one moment, and does at another now.
    fn list_lease(&mut self, key: &OwnedKey, before: Option<Instant>, until: Option<Instant>) {
        if before == until {
            return;
        }
        let is_waited = self.by_key.get(key).is_some_and(|entry| entry.is_waited);
        let leases = if is_waited {
            &mut self.waited_leases
        } else {
            &mut self.leases
        };
        if let Some(before) = before {
            leases.remove(&(before, Arc::clone(key)));
        }
        if let Some(until) = until {
            leases.insert((until, Arc::clone(key)));
        }
        self.lease_next = self.first_lease();
    }

    /// Moves the first lease of `key` to the list of keys with waiters, or back (L14).
    pub(super) fn list_waited_lease(
        &mut self,
        key: &OwnedKey,
        first: Option<Instant>,
        is_waited: bool,
    ) {
        let Some(until) = first else {
            return;
        };
        let lease = (until, Arc::clone(key));
        if is_waited {
            self.leases.remove(&lease);
            self.waited_leases.insert(lease);
        } else {
            self.waited_leases.remove(&lease);
            self.leases.insert(lease);
        }
    }

    pub(super) fn first_lease(&self) -> Option<Instant> {
        let firsts = [self.leases.first(), self.waited_leases.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// It is `now`: every lease that has passed has ended its lock (L9), in one step. Says whether there
    /// is one.
    pub(in crate::engine) fn pass_leases(&mut self, now: Instant) -> bool {
        self.ends.now = now;
        let is_due = self.lease_next.is_some_and(|at| at <= now);
        if is_due {
            self.leases_passed = now;
        }
        is_due
    }

    /// A key with an expired lease and, if it is shared, the fence of a share with an expired lease. It is to be removed; one
    /// with waiters first (L14).
    pub(in crate::engine) fn next_expired(&self) -> Option<(OwnedKey, Option<Fence>)> {
        let passed = |(at, _): &&(Instant, OwnedKey)| *at <= self.leases_passed;
        let waited = self.waited_leases.first().filter(passed);
        let (_, key) = waited.or_else(|| self.leases.first().filter(passed))?;
        let fence = match &self.by_key.get(key)?.holders {
            Holders::Alone(_) => None,
            Holders::Shared(group) => self.shares.first_lease(group.id).map(|(_, fence)| fence),
        };
        Some((Arc::clone(key), fence))
    }

    /// The next moment at which a lease expires.
    pub(in crate::engine) const fn next_lease(&self) -> Option<Instant> {
        self.lease_next
    }

    /// The next moment at which the lease of a lock with waiters expires.
    pub(in crate::engine) fn next_waited_lease(&self) -> Option<Instant> {
        self.waited_leases.first().map(|(at, _)| *at)
    }

    pub(super) fn has_expired(&self, grant: &Grant) -> bool {
        grant
            .lease_until
            .is_some_and(|until| until <= self.leases_passed)
    }
}
