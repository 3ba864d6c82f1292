//! A server without clients has nothing left.

use std::sync::atomic::Ordering;

use latchd_core::Instant;

use crate::server_state::ServerState;

impl ServerState {
    /// Asserts that every count, charge, registration and table is empty.
    pub(crate) fn check_empty(&self, now: Instant) {
        self.shards.check_empty(now);
        assert_eq!(self.waiters.registered(), [], "G1");
        for budget in [&self.unfinished, &self.unsent] {
            budget.check();
            assert_eq!(budget.kept_now(), (0, 0), "Q1");
        }
        assert!(self.connection_table.is_empty() && self.watch.wanted().is_none());
        assert_eq!(self.lingering.load(Ordering::Relaxed), 0);
        for mailbox in &*self.mailboxes {
            assert_eq!(mailbox.clients().load(Ordering::Relaxed), 0);
        }
    }
}
