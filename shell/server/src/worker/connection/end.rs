//! The reasons for a connection's end.

use std::fmt;

use rustix::io::Errno;

use super::ClientConn;
use crate::net::socket::Socket;
use crate::net::tls::Failure;
use crate::stats::connection_stats::BufferKind;
use crate::worker::backend::Backend;

/// The reason for a connection's end.
#[derive(Debug)]
pub(crate) enum End {
    /// The protocol: `quit`, or an error after which the next request cannot be found.
    Protocol,
    /// The peer has closed its side.
    PeerClosed,
    /// A network error, usually a reset.
    Failed(Errno),
    /// Invalid TLS. In a box, since each turn returns a [`Next`].
    Misunderstood(Box<Failure>),
    /// It was idle for too long.
    Idle,
    /// Its TLS handshake took too long.
    NoHandshake,
    /// The memory for its input or output exceeded the budget.
    OutOfMemory(BufferKind),
    /// Its session has ended, or another connection has taken it over.
    LostSession,
    /// The server is no primary at this moment: a reply cannot be sent, or the client relies on the server.
    NotPrimary,
    /// The server's shutdown.
    Shutdown,
}

impl From<Errno> for End {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOMEM => Self::OutOfMemory(BufferKind::Input),
            errno => Self::Failed(errno),
        }
    }
}

impl End {
    /// Whether TLS failed. Then the log has the connection, though no request has come.
    pub(crate) fn is_of_tls(&self) -> bool {
        matches!(self, Self::Misunderstood(_) | Self::NoHandshake)
    }

    /// Whether the client may still be sending, and was sent the reason for its end.
    pub(crate) fn may_be_unread(&self) -> bool {
        match self {
            Self::Protocol | Self::OutOfMemory(BufferKind::Input) => true,
            Self::PeerClosed
            | Self::Failed(_)
            | Self::Misunderstood(_)
            | Self::Idle
            | Self::NoHandshake
            | Self::OutOfMemory(BufferKind::Output)
            | Self::LostSession
            | Self::NotPrimary
            | Self::Shutdown => false,
        }
    }
}

impl<S: Socket, B: Backend> ClientConn<S, B> {
    /// Its address, and the reason for its end, for the log.
    pub(crate) fn farewell(&self, end: &End) -> String {
        let reason = match end {
            End::Protocol if self.wire.has_left() => "normal",
            End::Protocol
            | End::Failed(_)
            | End::Misunderstood(_)
            | End::NoHandshake
            | End::OutOfMemory(_) => "error",
            End::PeerClosed => "normal",
            End::Idle => "idle_timeout",
            End::LostSession => "lost_session",
            End::NotPrimary => "not_primary",
            End::Shutdown => "shutdown",
        };
        let endpoint = self.entry.endpoint();
        format!(
            "type=conn_close {endpoint} reason={reason} cfd={}",
            self.number
        )
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol => formatter.write_str("closed by the protocol"),
            Self::PeerClosed => formatter.write_str("closed by the peer"),
            Self::Failed(errno) => errno.fmt(formatter),
            Self::Misunderstood(failure) => failure.fmt(formatter),
            Self::Idle => formatter.write_str("idle for too long"),
            Self::NoHandshake => formatter.write_str("no TLS handshake in time"),
            Self::OutOfMemory(BufferKind::Input) => {
                formatter.write_str("no memory for its incomplete request")
            }
            Self::OutOfMemory(BufferKind::Output) => {
                formatter.write_str("no memory for its unread replies")
            }
            Self::LostSession => formatter.write_str("lost its session"),
            Self::NotPrimary => formatter.write_str("the server is not primary"),
            Self::Shutdown => formatter.write_str("the server stops"),
        }
    }
}
