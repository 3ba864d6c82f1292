//! Moves bytes between a client's socket and its connection: plain, or under TLS.
//!
//! The callers do not depend on the kind. A plain socket pays one comparison for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use latchd_protocol::output::Output;
use rustix::io::Errno;

use crate::config::tls_settings::ClientCertificate;
use crate::net::send::{self, Sent};
use crate::net::socket::Socket;
use crate::net::tls::{Failure, Keys, Records, TlsSocket};
use crate::stats::connection_stats::Traffic;

/// The transport security of the clients of one listener.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Security {
    /// Plain bytes.
    Plain,
    /// Under TLS.
    Tls(ClientCertificate),
}

/// A client's socket.
#[derive(Debug)]
pub(crate) enum Transport<S = OwnedFd> {
    Plain(S),
    Tls(Box<TlsSocket>),
}

impl Transport {
    /// A newly accepted socket; `None` if TLS is required but not available.
    pub(crate) fn new(socket: OwnedFd, security: Security, keys: Option<&Keys>) -> Option<Self> {
        match security {
            Security::Plain => Some(Self::Plain(socket)),
            Security::Tls(asked) => {
                let socket = TlsSocket::new(socket, keys?, asked)?;
                Some(Self::Tls(Box::new(socket)))
            }
        }
    }
}

impl<S: Socket> Transport<S> {
    /// Reads once, into the spare capacity of `buffer`. Returns how many bytes came; 0 is the end.
    ///
    /// # Errors
    /// The kernel's, and under TLS those of [`TlsSocket::read`].
    #[inline]
    pub(crate) fn read(
        &mut self,
        buffer: &mut Vec<u8>,
        records: &mut Records,
    ) -> rustix::io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.receive(buffer),
            Self::Tls(socket) => socket.read(buffer, records),
        }
    }

    /// As [`read`](Self::read), into `space`: at most `bytes_max`. Under TLS it reads into the empty `buffer`
    /// first, and returns at most as many bytes as fit there.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_into(
        &mut self,
        space: &mut [u8],
        bytes_max: usize,
        buffer: &mut Vec<u8>,
        records: &mut Records,
    ) -> rustix::io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.receive_into(&mut space[..bytes_max]),
            Self::Tls(socket) => {
                let read = socket.read(buffer, records);
                space[..buffer.len()].copy_from_slice(buffer);
                buffer.clear();
                read
            }
        }
    }

    /// Sends as many bytes as the socket takes, perhaps none, within the limit of one turn, and removes them
    /// from `output`. If the peer has closed, it returns an error and raises no signal.
    ///
    /// # Errors
    /// The kernel's, and under TLS those of [`TlsSocket::send`].
    #[inline]
    pub(crate) fn send(
        &mut self,
        output: &mut Output,
        traffic: &Traffic,
        records: &mut Records,
    ) -> rustix::io::Result<Sent> {
        match self {
            Self::Plain(socket) => send::send(socket, output, traffic),
            Self::Tls(socket) => socket.send(output, traffic, records),
        }
    }

    /// The socket, if bytes pass through it unchanged.
    pub(crate) fn plain(&self) -> Option<&S> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(_) => None,
        }
    }

    /// Whether the handshake is in progress, so no request is readable yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(socket) => socket.is_handshaking(),
        }
    }

    /// Whether bytes other than the connection's output wait until the socket takes them.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(socket) => socket.has_unsent(),
        }
    }

    /// Whether the peer has announced the end of its data, as TLS allows.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(socket) => socket.has_ended(),
        }
    }

    /// The capacity kept here in addition to the client's input and output, in bytes.
    pub(crate) fn kept_bytes(&self) -> (usize, usize) {
        match self {
            Self::Plain(_) => (0, 0),
            Self::Tls(socket) => socket.kept_bytes(),
        }
    }

    /// The error in the peer's bytes, if that ended the connection.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(socket) => socket.take_failure(),
        }
    }

    /// The pending error of its socket.
    pub(crate) fn failure(&self) -> Errno {
        match self {
            Self::Plain(socket) => socket.failure(),
            Self::Tls(socket) => socket.descriptor().failure(),
        }
    }

    /// As [`Socket::watch_peer`].
    pub(crate) fn watch_peer(&self, within: Duration) {
        match self {
            Self::Plain(socket) => socket.watch_peer(within),
            Self::Tls(socket) => socket.descriptor().watch_peer(within),
        }
    }

    /// As [`Socket::ask_peer`].
    pub(crate) fn ask_peer(&self, within: Duration) {
        match self {
            Self::Plain(socket) => socket.ask_peer(within),
            Self::Tls(socket) => socket.descriptor().ask_peer(within),
        }
    }

    /// Announces the end of the data to the peer. Call it before the transport is dropped.
    pub(crate) fn say_goodbye(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(socket) => socket.say_goodbye(),
        }
    }
}

impl AsFd for Transport<OwnedFd> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(socket) => socket.as_fd(),
        }
    }
}
