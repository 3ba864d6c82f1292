//! What a client's connection asks of its socket.
//!
//! What ships has one kind, a descriptor of the system. The other one is made of two queues of bytes
//! (`simulated.rs`), so that a proof decides what has arrived, what is taken, and when the peer is gone.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::net::dead_peer;

/// What is read at a time at most, and what a worker's buffer holds, in bytes.
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

    /// Takes as many bytes from the front as there is room for, and returns how many. A peer that is gone is an
    /// error and no signal.
    ///
    /// # Errors
    /// The kernel's; [`Errno::AGAIN`] if there is no room.
    fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize>;

    /// As [`send`](Self::send), of bytes in several pieces.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn send_chunks(&self, chunks: &[IoSlice<'_>]) -> rustix::io::Result<usize>;

    /// What it has failed with.
    fn failure(&self) -> Errno;

    /// The peer's death is found out within so long from now on, if there is a link that could go down.
    fn watch_peer(&self, within: Duration);

    /// Asks now whether the peer is there, which has `within`, if it has not been heard of when it should have been.
    fn ask_peer(&self, within: Duration);
}

impl Socket for OwnedFd {
    #[inline]
    fn receive(&self, buffer: &mut Vec<u8>) -> rustix::io::Result<usize> {
        // Not `read`: the kernel comes to a socket sooner this way.
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
        // A Unix socket has no link that could go down.
        let _ = dead_peer::close(self, within);
    }

    fn ask_peer(&self, within: Duration) {
        // Of one that has failed epoll tells, and a Unix socket has nothing to ask.
        let _ = dead_peer::ask(self, within);
    }
}
