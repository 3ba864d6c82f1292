//! What moves bytes between a client's socket and its connection: as they are, or under TLS.
//!
//! Whoever drives a client knows neither. A plain socket pays one comparison for the other kind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use latchd_core::output::Output;
use rustix::io::Errno;

use crate::config::tls_settings::ClientCertificate;
use crate::net::send::{self, Sent};
use crate::net::socket::Socket;
use crate::net::tls::{Failure, Keys, Records, TlsSocket};
use crate::stats::connection_stats::Traffic;

/// How the clients of one listener speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Security {
    /// As they are.
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
    /// A socket that has just been accepted; `None` if TLS is wanted that cannot be had.
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

    /// As [`read`](Self::read), into `space`: at most `bytes_max`. Under TLS it reads into `buffer` first, which is empty, and
    /// brings as much as has room there.
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

    /// Sends what the socket takes, perhaps nothing, but no more than one turn may, and takes it out of
    /// `output`. A peer that is gone is an error and no signal.
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

    /// The socket, if what is sent is what goes through it.
    pub(crate) fn plain(&self) -> Option<&S> {
        match self {
            Self::Plain(socket) => Some(socket),
            Self::Tls(_) => None,
        }
    }

    /// Whether nothing of what the client asks for can be known yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(socket) => socket.is_handshaking(),
        }
    }

    /// Whether something that is no output of the connection waits for room in the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(socket) => socket.has_unsent(),
        }
    }

    /// Whether the peer has said that it sends nothing more, where that can be said in words.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(socket) => socket.has_ended(),
        }
    }

    /// What is kept here besides the client's input, as room, and its output, in bytes.
    pub(crate) fn kept_bytes(&self) -> (usize, usize) {
        match self {
            Self::Plain(_) => (0, 0),
            Self::Tls(socket) => socket.kept_bytes(),
        }
    }

    /// What is wrong with what the peer has sent, if that is why it ends.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(socket) => socket.take_failure(),
        }
    }

    /// What its socket has failed with.
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

    /// Tells the peer that nothing more comes. To be called before it is dropped.
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
