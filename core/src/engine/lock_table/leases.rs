//! When locks end by themselves.
//!
//! - L13: a lock with a lease is listed by the moment at which it ends, and no other is.

use alloc::sync::Arc;

use super::{Hold, LockTable, OwnedKey, Tenure};
use crate::conn_id::ConnId;
use crate::key::Key;
use crate::time::Instant;

impl LockTable {
    /// The lock of `key` that `owner` has ends by itself at this moment, or not at all.
    pub(in crate::engine) fn set_lease(
        &mut self,
        key: Key<'_>,
        owner: ConnId,
        until: Option<Instant>,
    ) {
        let Some((key, entry)) = self.by_key.get_key_value(key.as_bytes()) else {
            return;
        };
        let before = match &entry.hold {
            Hold::Alone(tenure) => tenure.lease_until,
            Hold::Shared => self.lease_of_share(key, owner),
        };
        if before == until {
            return;
        }
        let key = Arc::clone(key);
        let leases = if entry.is_waited {
            &mut self.waited_leases
        } else {
            &mut self.leases
        };
        if let Some(before) = before {
            leases.remove(&(before, Arc::clone(&key), owner));
        }
        if let Some(until) = until {
            leases.insert((until, Arc::clone(&key), owner));
        }
        if let Some(tenure) = self.tenure_mut(&key, owner) {
            tenure.lease_until = until;
        }
        self.lease_next = self.first_lease();
    }

    fn tenure_mut(&mut self, key: &[u8], owner: ConnId) -> Option<&mut Tenure> {
        match &mut self.by_key.get_mut(key)?.hold {
            Hold::Alone(tenure) => Some(tenure),
            Hold::Shared => {
                let mut shares = self.shares.get_mut(key)?.iter_mut();
                let share = shares.find(|share| share.tenure.owner == owner)?;
                Some(&mut share.tenure)
            }
        }
    }

    fn lease_of_share(&self, key: &[u8], owner: ConnId) -> Option<Instant> {
        let mut shares = self.shares.get(key)?.iter();
        let share = shares.find(|share| share.tenure.owner == owner)?;
        share.tenure.lease_until
    }

    pub(super) fn first_lease(&self) -> Option<Instant> {
        let firsts = [self.leases.first(), self.waited_leases.first()];
        firsts.into_iter().flatten().map(|(at, ..)| *at).min()
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

    /// A key whose lease has passed. Its lock is to be released.
    pub(in crate::engine) fn next_expired(&self) -> Option<OwnedKey> {
        let passed = |(at, ..): &&(Instant, OwnedKey, ConnId)| *at <= self.leases_passed;
        let waited = self.waited_leases.first().filter(passed);
        let (_, key, _) = waited.or_else(|| self.leases.first().filter(passed))?;
        Some(Arc::clone(key))
    }

    /// When the first lease ends of a lock that somebody waits for.
    pub(in crate::engine) fn next_waited_lease(&self) -> Option<Instant> {
        self.waited_leases.first().map(|(at, ..)| *at)
    }

    pub(super) fn has_expired(&self, tenure: &Tenure) -> bool {
        tenure
            .lease_until
            .is_some_and(|until| until <= self.leases_passed)
    }
}
