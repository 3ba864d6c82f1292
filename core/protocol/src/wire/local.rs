//! Responses that need no core: errors, versions, greetings.

use super::binary;
use crate::output::Output;

/// The reply to `version`: only the number of the memcached with these replies.
///
/// Clients choose features by it, and parse any text behind the number differently. node's memcached takes the
/// last number of the line, Ruby and PHP take a suffix for a release before 1.6.45, and Python's `packaging`
/// rejects it. latchd's own version is `latchd_version` in `stats`.
pub const VERSION: &str = "1.6.45";

/// A response that needs no core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LocalResponse<'a> {
    /// Nothing: the request asked for no reply (`noreply`), or it is not a request.
    Nothing,
    /// Nothing: this was the client's last request (`quit`).
    Farewell,
    /// This line, without its line end.
    Line(&'a str),
    /// The line for [`VERSION`].
    Version,
    /// A packet of the binary protocol.
    Packet(binary::StatusPacket),
}

impl<'a> LocalResponse<'a> {
    /// A line, or nothing with `noreply`.
    pub(crate) const fn line_unless(noreply: bool, line: &'a str) -> Self {
        if noreply {
            Self::Nothing
        } else {
            Self::Line(line)
        }
    }

    /// Whether the client asked for the end of the connection.
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
