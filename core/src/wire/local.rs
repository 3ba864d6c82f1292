//! Responses in which the core has no part: errors, versions, greetings.

use super::binary;
use crate::output::Output;

/// The reply to `version`: the memcached whose replies these are, and nothing else.
///
/// Clients choose features by it, and read anything behind the number in ways of their own: node's memcached takes the
/// last number of the line, Ruby and PHP take a suffix for a release before 1.6.45, and Python's `packaging` rejects
/// it. latchd's own version is `latchd_version` in `stats`.
pub const VERSION: &str = "1.6.45";

/// What is sent without asking the core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LocalResponse<'a> {
    /// Nothing: the request was not to be answered (`noreply`), or is none.
    Nothing,
    /// Nothing: the client has said that it was the last request (`quit`).
    Farewell,
    /// This line, without its line end.
    Line(&'a str),
    /// The line for [`VERSION`].
    Version,
    /// A packet of the binary protocol.
    Packet(binary::StatusPacket),
}

impl<'a> LocalResponse<'a> {
    /// A line, or nothing for a request that asked for none.
    pub(crate) const fn line_unless(noreply: bool, line: &'a str) -> Self {
        if noreply {
            Self::Nothing
        } else {
            Self::Line(line)
        }
    }

    /// Whether a connection that ends with it has ended as its client wished.
    pub(crate) const fn is_farewell(&self) -> bool {
        match self {
            Self::Farewell => true,
            Self::Packet(packet) => matches!(packet.status, binary::Status::SUCCESS),
            Self::Nothing | Self::Line(_) | Self::Version => false,
        }
    }

    /// Appends the response's bytes to `out`.
    pub fn encode(&self, out: &mut Output) {
        let out = out.copied();
        match self {
            Self::Nothing | Self::Farewell => return,
            Self::Packet(packet) => return packet.encode(out),
            Self::Line(line) => out.extend_from_slice(line.as_bytes()),
            Self::Version => {
                out.extend_from_slice(b"VERSION ");
                out.extend_from_slice(VERSION.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}
