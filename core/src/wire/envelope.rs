//! What the wire needs of a request and the core does not.
//!
//! An [`Envelope`] travels beside a command and says how its reply is to be written. An [`Answer`]
//! is sent without asking the core. [`Decoded`] is what a decoder makes of a request line.

use alloc::vec::Vec;

use super::{binary, classic, meta};
use crate::command::Command;

/// What `version` shows: the memcached whose answers these are, then our own.
///
/// Clients go by the first number. libmemcached's conformance program, for one, takes a server below
/// 1.6 to refuse arguments of `version` and `quit`, which memcached has let through since.
pub const VERSION: &str = concat!("1.6.45-latchd-", env!("CARGO_PKG_VERSION"));

/// How a request wants to be answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Envelope<'a> {
    /// As the commands of the classic text protocol are.
    Classic(classic::Envelope),
    /// As a meta command is.
    Meta(meta::Envelope<'a>),
    /// As a binary packet is.
    Binary(binary::Envelope<'a>),
}

/// What is sent without asking the core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer<'a> {
    /// Nothing: the request was not to be answered (`noreply`), or it was the last (`quit`).
    Nothing,
    /// This line, without its line end.
    Line(&'a str),
    /// The server's version.
    Version,
    /// A packet of the binary protocol.
    Packet(binary::Answer),
}

impl Answer<'_> {
    /// Appends the answer's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nothing => return,
            Self::Packet(answer) => return answer.encode(out),
            Self::Line(line) => out.extend_from_slice(line.as_bytes()),
            Self::Version => {
                out.extend_from_slice(b"VERSION ");
                out.extend_from_slice(VERSION.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// What a request line turned out to be.
///
/// `body_bytes` counts what follows the line and belongs to it; it may not have arrived yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decoded<'a> {
    /// A request. Of its body, all that the core is to see has arrived.
    Request {
        /// What the client asks for.
        command: Command<'a>,
        /// How it wants to be answered.
        envelope: Envelope<'a>,
        /// Bytes behind the line that are done with.
        body_bytes: usize,
    },
    /// The first or next request of a line that has several.
    Several {
        /// What the client asks for.
        command: Command<'a>,
        /// How it wants to be answered.
        envelope: Envelope<'a>,
        /// Where in the line the next one begins.
        next: usize,
    },
    /// A listing of keys, which takes as many commands as it has pages.
    Listing {
        /// Only keys that begin with this.
        prefix: &'a [u8],
    },
    /// A request whose body has not arrived.
    NeedsBody {
        /// How long it is.
        body_bytes: usize,
    },
    /// Nothing the core need know of.
    Answer {
        /// What to send.
        answer: Answer<'a>,
        /// Bytes behind the line that are done with.
        body_bytes: usize,
    },
    /// The end of the connection.
    Close {
        /// What to send before.
        answer: Answer<'a>,
    },
}

impl Decoded<'_> {
    /// An answer to a request without a body.
    pub(crate) const fn line(line: &'static str) -> Self {
        Self::Answer {
            answer: Answer::Line(line),
            body_bytes: 0,
        }
    }

    /// An answer to a request without a body; nothing if it asked for none.
    pub(crate) const fn line_unless(noreply: bool, line: &'static str) -> Self {
        Self::Answer {
            answer: Answer::line_unless(noreply, line),
            body_bytes: 0,
        }
    }
}

impl<'a> Answer<'a> {
    /// A packet, or nothing where nothing is to be said.
    pub(crate) fn packet_or_nothing(answer: Option<binary::Answer>) -> Self {
        answer.map_or(Self::Nothing, Self::Packet)
    }

    /// A line, or nothing for a request that asked for no answer.
    pub(crate) const fn line_unless(noreply: bool, line: &'a str) -> Self {
        if noreply {
            Self::Nothing
        } else {
            Self::Line(line)
        }
    }
}
