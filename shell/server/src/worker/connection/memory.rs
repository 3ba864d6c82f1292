//! The memory of a client, and its share of the budgets.

use std::iter;

use super::{Backend, ClientConn, Socket};
use crate::clients::budget::{Budget, Holder};

/// The memory kept for a client between two turns, for proofs.
#[cfg(feature = "verify")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Buffers {
    /// The unconsumed bytes of its input.
    pub input_bytes: usize,
    /// The capacity of their buffer, in bytes.
    pub input_capacity: usize,
    /// Its request is so long that it is collected in a buffer of its own.
    pub is_collecting: bool,
    /// The output that the socket has not taken, in bytes.
    pub pending_bytes: usize,
    /// The capacity of the copied part of it, in bytes.
    pub pending_capacity: usize,
    /// Its last request has been executed; only sending is left.
    pub has_left: bool,
}

impl<S: Socket, B: Backend> ClientConn<S, B> {
    /// Whether it takes no memory and the budgets count none for it, as nearly always: there is nothing to report.
    #[inline]
    pub(crate) fn takes_nothing(&self) -> bool {
        self.charged_input.is_nothing()
            && self.charged_output.is_nothing()
            && self.input.capacity() == 0
            && self.pending.takes_nothing()
            && self.transport.kept_bytes() == (0, 0)
    }

    /// Reports its memory to the budgets. Returns the clients to close: for requests, and for replies.
    #[inline]
    pub(crate) fn charge(
        &mut self,
        holder: Holder,
        unfinished: &Budget,
        unsent: &Budget,
    ) -> (Vec<Holder>, Vec<Holder>) {
        let (begun, unsent_records) = self.transport.kept_bytes();
        let input = self.input.capacity() + begun;
        let output = self.pending.copied_room() + unsent_records;
        let values = self.pending.shared_values();
        (
            unfinished.charge(holder, &mut self.charged_input, input, iter::empty()),
            unsent.charge(holder, &mut self.charged_output, output, values),
        )
    }

    /// Reports to the budgets that it takes no memory any more.
    pub(crate) fn discharge(&mut self, holder: Holder, unfinished: &Budget, unsent: &Budget) {
        for (budget, charged) in [
            (unfinished, &mut self.charged_input),
            (unsent, &mut self.charged_output),
        ] {
            // A decrease closes no client.
            let _ = budget.charge(holder, charged, 0, iter::empty());
        }
    }

    /// The memory that it takes, for a proof.
    #[cfg(feature = "verify")]
    pub(crate) fn buffers(&self) -> Buffers {
        Buffers {
            input_bytes: self.input.kept().len(),
            input_capacity: self.input.capacity(),
            is_collecting: self.input.is_collecting(),
            pending_bytes: self.pending.len(),
            pending_capacity: self.pending.copied_room(),
            has_left: self.session.is_none(),
        }
    }
}
