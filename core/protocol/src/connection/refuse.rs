//! A connection that stays open without service: every request gets one error, and none is executed.
//!
//! A transport calls [`refuse`](Connection::refuse) in place of [`drive`](Connection::drive). So a connection has no
//! state for it, and requests that are served pay nothing.
//!
//! - W7: A refused request gets the error instead of its whole reply, in its turn and after its body (W6).
//!   `noreply` hides the error. A request that closes the connection still does.

use super::{Connection, Parked, Progress, Protocol, Step};
use crate::output::Output;
use crate::wire::binary::{self, Status, StatusPacket};
use crate::wire::status_line::NOT_PRIMARY;
use crate::wire::{Cursor, KeyBuffer, LocalResponse, Operation};

impl Connection {
    /// As [`drive`](Self::drive), but refuses all requests: `SERVER_ERROR not primary`, in binary 0x0086.
    ///
    /// `drive` may be called again later. While a request waits, nothing happens, as in `drive`. After its wait it is
    /// refused as well; if the core has granted it a lock, the transport must release it.
    #[cold]
    pub fn refuse(
        &mut self,
        input: &[u8],
        out: &mut Output,
        out_bytes_max: usize,
    ) -> (usize, Progress) {
        match self.parked {
            Parked::Waiting => return (0, Progress::Waiting),
            Parked::No | Parked::Over(_) => self.parked = Parked::No,
        }
        let mut key_buffer = KeyBuffer::new();
        let mut rest = input;
        let progress = loop {
            if out.len() >= out_bytes_max {
                break Progress::OutputFull;
            }
            let request = self.look(rest, &mut key_buffer);
            let mut step = self.refusal(request, rest);
            self.remember(&mut step, rest.len());
            match step.operation {
                Operation::Incomplete { at_least } => break Progress::NeedsInput { at_least },
                Operation::Close { response } => {
                    self.has_left = response.is_farewell();
                    response.encode(out);
                    break Progress::Close;
                }
                Operation::Send { response, .. } => response.encode(out),
                // `refusal` leaves no other.
                Operation::Skip
                | Operation::Execute { .. }
                | Operation::ExecuteAs { .. }
                | Operation::Session { .. }
                | Operation::Hold
                | Operation::Cluster
                | Operation::Authenticate { .. }
                | Operation::Watch { .. }
                | Operation::ReadCertificates { .. }
                | Operation::LimitMemory { .. }
                | Operation::ShutDown => {}
            }
            rest = rest.get(step.consumed..).unwrap_or_default();
        };
        (input.len() - rest.len(), progress)
    }

    /// The step in place of `request`, which is at the front of `input`.
    fn refusal<'a>(&mut self, request: Step<'a>, input: &[u8]) -> Step<'a> {
        let mut consumed = request.consumed;
        let response = match request.operation {
            Operation::Incomplete { .. } | Operation::Skip | Operation::Close { .. } => {
                return request;
            }
            Operation::Execute { envelope, .. } => {
                // A request of several steps ends with the first that is refused.
                self.cursor = Cursor::Start;
                if consumed == 0 {
                    consumed = self.request_bytes(input);
                }
                envelope.error(NOT_PRIMARY, Status::NOT_PRIMARY)
            }
            Operation::ExecuteAs { envelope, .. } => {
                envelope.error(NOT_PRIMARY, Status::NOT_PRIMARY)
            }
            Operation::Send { response, .. } => in_place_of(&response),
            Operation::Authenticate { refusal, .. } => in_place_of(&refusal),
            Operation::Session { .. }
            | Operation::Hold
            | Operation::Cluster
            | Operation::Watch { .. } => LocalResponse::Line(NOT_PRIMARY),
            Operation::ReadCertificates { noreply } | Operation::LimitMemory { noreply, .. } => {
                LocalResponse::line_unless(noreply, NOT_PRIMARY)
            }
            Operation::ShutDown => {
                consumed = self.request_bytes(input);
                LocalResponse::Line(NOT_PRIMARY)
            }
        };
        let unstored = None;
        Operation::Send { response, unstored }.consuming(consumed)
    }

    /// The length of the request at the front of `input`, which has arrived and has no body behind its line.
    fn request_bytes(&self, input: &[u8]) -> usize {
        match self.protocol {
            Protocol::Binary => binary::request::packet_bytes(input),
            Protocol::Unknown | Protocol::Text | Protocol::Watching => self.line_bytes as usize,
        }
    }
}

/// The error, in the form of the response `own`.
fn in_place_of(own: &LocalResponse<'_>) -> LocalResponse<'static> {
    match own {
        LocalResponse::Nothing | LocalResponse::Farewell => LocalResponse::Nothing,
        LocalResponse::Line(_) | LocalResponse::Version => LocalResponse::Line(NOT_PRIMARY),
        LocalResponse::Packet(packet) => LocalResponse::Packet(StatusPacket::error(
            packet.opcode,
            packet.opaque,
            Status::NOT_PRIMARY,
        )),
    }
}
