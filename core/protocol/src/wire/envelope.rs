//! The [`Envelope`] of a request: it goes along with a command and determines the form of its reply.

use super::binary::{Status, StatusPacket};
use super::local::LocalResponse;
use super::status_line::{self, KEY_OF_ANOTHER, MISMATCH};
use super::{binary, classic, meta};
use crate::reply::Reply;

/// The form of a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Envelope<'a> {
    /// A line of the classic text protocol.
    Classic(classic::ClassicEnvelope),
    /// A code of two letters and the requested flags.
    Meta(meta::MetaEnvelope<'a>),
    /// Packets, or nothing for a quiet request.
    Binary(binary::BinaryEnvelope<'a>),
}

impl Envelope<'_> {
    /// The response for a `reply` that refuses a request. It borrows nothing of the request, which has left
    /// the input when the response is sent.
    #[cold]
    pub(crate) fn refusal(&self, reply: &Reply<'_>) -> LocalResponse<'static> {
        if let Reply::KeyOf(_) = reply {
            return self.error(KEY_OF_ANOTHER, Status::KEY_OF_ANOTHER);
        }
        // No other reply fits a request whose body is skipped.
        let refusal = if let Reply::Refused(refusal) = reply {
            Some(*refusal)
        } else {
            None
        };
        if let Self::Binary(envelope) = self {
            return LocalResponse::Packet(binary::reply::refusal(envelope, refusal));
        }
        let line = refusal.map_or(MISMATCH, status_line::refusal);
        LocalResponse::line_unless(self.is_silent(), line)
    }

    /// The response of an error that does not depend on the command: this line, or the text of this status.
    #[cold]
    pub(crate) fn error(&self, line: &'static str, status: Status) -> LocalResponse<'static> {
        if let Self::Binary(envelope) = self {
            let opcode = envelope.opcode.byte();
            return LocalResponse::Packet(StatusPacket::error(opcode, envelope.opaque, status));
        }
        LocalResponse::line_unless(self.is_silent(), line)
    }

    /// Whether nothing is sent, not even an error.
    const fn is_silent(&self) -> bool {
        match self {
            Self::Classic(envelope) => envelope.is_silent(),
            Self::Meta(_) | Self::Binary(_) => false,
        }
    }
}
