//! A connection of a server: its input, its output, and its place in the queues.

use bytes::{Buf, BytesMut};
use latchd_protocol::connection::{Connection, Progress};
use latchd_protocol::execute::Execute;
use latchd_protocol::output::Output;
use latchd_protocol::{ConnId, Owner};

use super::{Action, KEPT_BYTES_MAX};

/// A connection that is open, or of which an action is still to be handed out.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) wire: Connection,
    pub(super) session: Option<Owner>,
    /// The input that is not done with (V3).
    pub(super) input: BytesMut,
    /// The output that is not handed out.
    pub(super) output: Output,
    /// How many bytes are handed out and unsent.
    pub(super) sending: usize,
    pub(super) unsent_bytes_max: usize,
    /// Why it stopped. After [`Progress::Close`] the connection is closed, but for its last actions.
    pub(super) progress: Progress,
    /// It stands in the queue of those that can go on.
    pub(super) is_ready: bool,
    /// It stands in the queue of those with an action.
    pub(super) is_due: bool,
    /// The transport was notified, or can see, that it wants no input.
    pub(super) is_held: bool,
}

impl Open {
    /// The next action of this connection; `None` takes it off the queue.
    pub(super) fn next_action(&mut self, conn: ConnId) -> Option<Action> {
        if !self.output.is_empty() {
            return Some(Action::Send(conn, core::mem::take(&mut self.output)));
        }
        if self.progress == Progress::Close {
            return Some(Action::Close(conn));
        }
        self.is_due = false;
        let reads_on = self.is_held && self.wants_input();
        self.is_held &= !reads_on;
        reads_on.then_some(Action::Read(conn))
    }

    pub(super) fn wants_input(&self) -> bool {
        match self.progress {
            Progress::NeedsInput { .. } => true,
            Progress::Waiting => self.input.len() < KEPT_BYTES_MAX,
            Progress::OutputFull | Progress::Yielded | Progress::Close => false,
        }
    }

    /// Whether anything more may be executed (V2). One reply always may, or nothing would ever be sent.
    pub(super) fn has_room(&self) -> bool {
        self.unsent_bytes() < self.unsent_bytes_max.max(1)
    }

    /// Whether it has something to do that does not wait for the transport.
    pub(super) fn may_go_on(&self) -> bool {
        self.progress != Progress::OutputFull || self.has_room()
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.sending + self.output.len()
    }

    /// Takes every step that is to be taken now that `bytes` have arrived.
    pub(super) fn advance(&mut self, bytes: &[u8], machine: &mut impl Execute) -> Progress {
        // The bound of the output that is not handed out yet.
        let output_max = self.unsent_bytes_max.max(1).saturating_sub(self.sending);
        let (wire, input, out) = (&mut self.wire, &mut self.input, &mut self.output);
        // Most input is whole requests, which need not be copied.
        if input.is_empty() {
            let (consumed, progress) = wire.drive(bytes, machine, out, output_max);
            let rest = bytes.get(consumed..).unwrap_or_default();
            input.extend_from_slice(rest);
            return progress;
        }
        input.extend_from_slice(bytes);
        let (consumed, progress) = wire.drive(input, machine, out, output_max);
        input.advance(consumed);
        if input.is_empty() {
            // Many connections are idle; none of them keeps the memory of its last request.
            *input = BytesMut::new();
        }
        progress
    }
}
