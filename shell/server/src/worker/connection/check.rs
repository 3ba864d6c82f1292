//! The rules of a client between two rounds of its worker.

use super::{Backend, ClientConn, ENDING, EventFlags, Holder, IN_TURN, Socket};
use crate::clients::budget::Budget;

impl<S: Socket, B: Backend> ClientConn<S, B> {
    /// Checks its buffers (B2, B4, B6, B7), and that the budgets count exactly what it keeps (Q1). They count nothing
    /// for a `doomed` client, which they are about to close.
    pub(crate) fn check(
        &self,
        holder: Holder,
        unfinished: &Budget,
        unsent: &Budget,
        is_doomed: bool,
    ) {
        let (begun, unsent_records) = self.transport.kept_bytes();
        let input = self.input.capacity() + begun;
        let output = self.pending.copied_room() + unsent_records;
        let values: Vec<_> = self.pending.shared_values().collect();
        unfinished.check_charge(holder, (input, &[]), is_doomed);
        unsent.check_charge(holder, (output, &values), is_doomed);
        assert!(
            !self.has_deferred,
            "B7: a deferred reply is sent in its round"
        );
        let sends = self.waits_for == EventFlags::OUT || self.waits_for == IN_TURN;
        assert!(self.pending.is_empty() || sends, "B2: it is not read");
        let is_read = !sends && self.waits_for != ENDING;
        assert!(!self.waits() || !is_read, "B6: it is not read");
        assert!(self.session.is_some() || !self.wire.is_waiting(), "B4");
    }

    /// Whether its request waits for a lock or a value.
    pub(crate) fn waits(&self) -> bool {
        self.wire.is_waiting()
    }

    /// Whether it stands in the queue of clients in the middle of a long request.
    pub(crate) fn is_in_queue(&self) -> bool {
        self.is_in_queue
    }

    /// Whether it waits for its next turn.
    pub(crate) fn is_in_turn(&self) -> bool {
        self.waits_for == IN_TURN
    }
}
