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
use crate::wire::{Cursor, KeyBuffer, LocalResponse};

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
            let done = match step {
                Step::Incomplete { at_least } => break Progress::NeedsInput { at_least },
                Step::Close { response } => {
                    self.has_left = response.is_farewell();
                    response.encode(out);
                    break Progress::Close;
                }
                Step::Send {
                    consumed, response, ..
                } => {
                    response.encode(out);
                    consumed
                }
                Step::Skip { consumed }
                | Step::Execute { consumed, .. }
                | Step::ExecuteAs { consumed, .. }
                | Step::Session { consumed, .. }
                | Step::Hold { consumed }
                | Step::Cluster { consumed }
                | Step::Authenticate { consumed, .. }
                | Step::Watch { consumed, .. }
                | Step::ReadCertificates { consumed, .. }
                | Step::LimitMemory { consumed, .. } => consumed,
                Step::ShutDown => break Progress::Close,
            };
            rest = rest.get(done..).unwrap_or_default();
        };
        (input.len() - rest.len(), progress)
    }

    /// The step in place of `request`, which is at the front of `input`.
    fn refusal<'a>(&mut self, request: Step<'a>, input: &[u8]) -> Step<'a> {
        let (consumed, response) = match request {
            Step::Incomplete { .. } | Step::Skip { .. } | Step::Close { .. } => return request,
            Step::Execute {
                consumed, envelope, ..
            } => {
                // A request of several steps ends with the first that is refused.
                self.cursor = Cursor::Start;
                let consumed = match consumed {
                    0 => self.request_bytes(input),
                    consumed => consumed,
                };
                (consumed, envelope.error(NOT_PRIMARY, Status::NOT_PRIMARY))
            }
            Step::ExecuteAs {
                consumed, envelope, ..
            } => (consumed, envelope.error(NOT_PRIMARY, Status::NOT_PRIMARY)),
            Step::Send {
                consumed, response, ..
            } => (consumed, in_place_of(&response)),
            Step::Authenticate {
                consumed, refusal, ..
            } => (consumed, in_place_of(&refusal)),
            Step::Session { consumed, .. }
            | Step::Hold { consumed }
            | Step::Cluster { consumed }
            | Step::Watch { consumed, .. } => (consumed, LocalResponse::Line(NOT_PRIMARY)),
            Step::ReadCertificates { consumed, noreply }
            | Step::LimitMemory {
                consumed, noreply, ..
            } => (consumed, LocalResponse::line_unless(noreply, NOT_PRIMARY)),
            Step::ShutDown => (self.request_bytes(input), LocalResponse::Line(NOT_PRIMARY)),
        };
        Step::Send {
            consumed,
            response,
            unstored: None,
        }
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
