//! The [`Envelope`] of a request: it goes along with a command and determines the form of its reply.

use super::local::LocalResponse;
use super::status_line::{self, MISMATCH};
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
    /// The response for a `reply` that refuses a request. It borrows nothing of the request, which is gone from
    /// the input when the response is sent.
    #[cold]
    pub(crate) fn refusal(&self, reply: &Reply<'_>) -> LocalResponse<'static> {
        // No other reply fits a request whose body is skipped.
        let refusal = if let Reply::Refused(refusal) = reply {
            Some(*refusal)
        } else {
            None
        };
        let is_silent = match self {
            Self::Classic(envelope) => envelope.is_silent(),
            Self::Meta(_) => false,
            Self::Binary(envelope) => {
                return LocalResponse::Packet(binary::reply::refusal(envelope, refusal));
            }
        };
        LocalResponse::line_unless(is_silent, refusal.map_or(MISMATCH, status_line::refusal))
    }
}
