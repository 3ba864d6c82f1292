//! The socket operations that a client's connection needs.
//!
//! The server uses descriptors of the system. Proofs use two queues of bytes (`simulated.rs`), so they
//! control arrival, free space, and the end of the peer.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::net::dead_peer;

/// The most bytes read at a time, and the capacity of a worker's buffer.
pub(crate) const INPUT_BYTES: usize = 64 << 10;

/// A client's socket, which never blocks.
pub(crate) trait Socket: fmt::Debug {
    /// Reads once, into the spare capacity of `buffer`. Returns how many bytes came; 0 is the end.
    ///
    /// # Errors
    /// The kernel's; [`Errno::AGAIN`] if nothing has arrived.
    fn receive(&self, buffer: &mut Vec<u8>) -> rustix::io::Result<usize>;

    /// As [`receive`](Self::receive), into `space`.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    fn receive_into(&self, space: &mut [u8]) -> rustix::io::Result<usize>;

    /// Sends as many bytes from the front as fit, and returns how many. If the peer has closed, it returns an
    /// error and raises no signal.
    ///
    /// # Errors
    /// The kernel's; [`Errno::AGAIN`] if none fit.
    fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize>;

    /// As [`send`](Self::send), of bytes in several pieces.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn send_chunks(&self, chunks: &[IoSlice<'_>]) -> rustix::io::Result<usize>;

    /// The pending error of the socket.
    fn failure(&self) -> Errno;

    /// Sets the time within which an unreachable peer is detected, if the socket has a link.
    fn watch_peer(&self, within: Duration);

    /// Probes the peer now if it has been silent for too long; the peer has `within` to reply.
    fn ask_peer(&self, within: Duration);
}

impl Socket for OwnedFd {
    #[inline]
    fn receive(&self, buffer: &mut Vec<u8>) -> rustix::io::Result<usize> {
        // Not `read`: `recv` takes a shorter way in the kernel.
        let none = RecvFlags::empty();
        retry_on_intr(|| net::recv(self, spare_capacity(buffer), none)).map(|(read, _)| read)
    }

    fn receive_into(&self, space: &mut [u8]) -> rustix::io::Result<usize> {
        retry_on_intr(|| net::recv(self, &mut *space, RecvFlags::empty())).map(|(read, _)| read)
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        retry_on_intr(|| net::send(self, bytes, SendFlags::NOSIGNAL))
    }

    fn send_chunks(&self, chunks: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        let mut no_control = SendAncillaryBuffer::default();
        retry_on_intr(|| net::sendmsg(self, chunks, &mut no_control, SendFlags::NOSIGNAL))
    }

    fn failure(&self) -> Errno {
        match net::sockopt::socket_error(self) {
            Ok(Err(errno)) | Err(errno) => errno,
            Ok(Ok(())) => Errno::CONNRESET,
        }
    }

    fn watch_peer(&self, within: Duration) {
        // A Unix socket has no link.
        let _ = dead_peer::close(self, within);
    }

    fn ask_peer(&self, within: Duration) {
        // epoll reports a failed socket, and a Unix socket is not probed.
        let _ = dead_peer::ask(self, within);
    }
}
