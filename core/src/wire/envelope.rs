//! What the wire needs of a request and the core does not: an [`Envelope`] travels beside a command
//! and says how its reply is to be written.

use super::local::LocalResponse;
use super::status_line::{self, MISMATCH};
use super::{binary, classic, meta};
use crate::reply::Reply;

/// How a request wants to be answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Envelope<'a> {
    /// In the words of the classic text protocol.
    Classic(classic::ClassicEnvelope),
    /// By a code of two letters and the flags that were asked for.
    Meta(meta::MetaEnvelope<'a>),
    /// By packets, or not at all where it is quiet.
    Binary(binary::BinaryEnvelope<'a>),
}

impl Envelope<'_> {
    /// The response for a `reply` that refuses a request, without anything of the request in it: it is sent when the
    /// request itself is gone from the input.
    #[cold]
    pub(crate) fn refusal(&self, reply: &Reply<'_>) -> LocalResponse<'static> {
        // Any other reply does not fit a request whose body is skipped.
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
