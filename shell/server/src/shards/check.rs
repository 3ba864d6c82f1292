//! The state after all clients are closed, for proofs.

use latchd_core::Instant;
use latchd_core::engine::shards::Shards as _;
use latchd_core::engine::{LockManager, check};

use super::Shards;

impl Shards {
    /// Asserts the invariants of the items and of the locks.
    pub(crate) fn check(&self, now: Instant) {
        self.at(now).together(|all, manager| check(all, manager));
    }

    /// The locks in force, and whether a request waits or has a notice to come.
    pub(crate) fn left(&self, now: Instant) -> (usize, bool) {
        let left = |manager: &mut _| {
            (
                LockManager::locks_in_force(manager).count(),
                manager.has_waits(),
            )
        };
        self.at(now).manage(left)
    }

    /// The number of sessions, and of those with a connection.
    pub(crate) fn sessions_left(&self, now: Instant) -> (usize, usize) {
        self.at(now)
            .manage(|manager| (manager.sessions().len(), manager.sessions().attached()))
    }

    /// The memory of the tables, in bytes.
    pub(crate) fn table_bytes(&self, now: Instant) -> usize {
        self.at(now).manage(|manager| manager.table_bytes())
    }
}
