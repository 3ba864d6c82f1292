//! Sockets of clients that were sent an error and closed while they were still sending.
//!
//! Closing a socket with unread input resets the connection. The reset may discard the error that the client
//! has not read yet. So the server shuts down its sending side and discards the bytes that still arrive,
//! until the client closes as well.
//!
//! - R1: A worker keeps at most [`SOCKETS_MAX`] of these sockets; one more ends the oldest.
//! - R2: Each is kept for at most [`SPAN`], and for at most [`BYTES_MAX`].
//! - R3: Each still counts as a connection.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use latchd_core::Instant;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, Shutdown};
use slab::Slab;

use crate::net::transport::Transport;

/// The most sockets of one worker.
const SOCKETS_MAX: usize = 256;

/// The time for which a client may go on sending.
const SPAN: Duration = Duration::from_secs(5);

/// The most bytes of one client that are discarded: more than the largest value in common use.
const BYTES_MAX: usize = 64 << 20;

/// The sockets of one worker.
#[derive(Debug, Default)]
pub(crate) struct Lingering {
    sockets: Slab<Socket>,
    /// Their slots, the oldest first; some may have ended.
    order: VecDeque<(Instant, usize)>,
}

#[derive(Debug)]
struct Socket {
    transport: Transport,
    since: Instant,
    bytes: usize,
}

impl Lingering {
    /// The slot of the next socket.
    pub(crate) fn next_place(&self) -> usize {
        self.sockets.vacant_key()
    }

    /// Keeps a socket after its sending side is shut down. Returns how many older sockets ended for it (R1).
    ///
    /// # Errors
    /// The kernel's: the client has closed its socket.
    pub(crate) fn keep(&mut self, transport: Transport, now: Instant) -> rustix::io::Result<usize> {
        net::shutdown(&transport, Shutdown::Write)?;
        let socket = Socket {
            transport,
            since: now,
            bytes: 0,
        };
        self.order.push_back((now, self.sockets.insert(socket)));
        let mut ended = 0;
        while self.sockets.len() > SOCKETS_MAX {
            ended += self.end_oldest();
        }
        Ok(ended)
    }

    /// The socket at a slot, to register it with epoll.
    pub(crate) fn socket(&self, place: usize) -> Option<BorrowedFd<'_>> {
        self.sockets
            .get(place)
            .map(|socket| socket.transport.as_fd())
    }

    /// Discards the bytes that have arrived, by way of `buffer`. Returns whether the socket has ended.
    pub(crate) fn drain(&mut self, place: usize, buffer: &mut Vec<u8>) -> bool {
        let Some(socket) = self.sockets.get_mut(place) else {
            return false;
        };
        buffer.clear();
        let none = RecvFlags::empty();
        let read = net::recv(&socket.transport, spare_capacity(buffer), none).map(|(read, _)| read);
        buffer.clear();
        let is_over = match read {
            Ok(0) => true,
            Ok(bytes) => {
                socket.bytes += bytes;
                socket.bytes > BYTES_MAX
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        };
        if is_over {
            self.forget(place);
        }
        is_over
    }

    /// Ends the sockets that have reached their time limit (R2). Returns how many.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        let span_ms = u64::try_from(SPAN.as_millis()).unwrap_or(u64::MAX);
        let mut ended = 0;
        while let Some((since, _)) = self.order.front()
            && since.as_millis() + span_ms <= now.as_millis()
        {
            ended += self.end_oldest();
        }
        ended
    }

    /// Ends all of them. Returns how many there were.
    pub(crate) fn end_all(&mut self) -> usize {
        let ended = self.sockets.len();
        *self = Self::default();
        ended
    }

    /// Ends the socket at a slot.
    pub(crate) fn forget(&mut self, place: usize) {
        self.sockets.try_remove(place);
        if self.sockets.is_empty() {
            self.order.clear();
        }
    }

    fn end_oldest(&mut self) -> usize {
        let Some((since, place)) = self.order.pop_front() else {
            return 0;
        };
        // Another socket may be at the slot by now.
        let is_it = |socket: &Socket| socket.since == since;
        if self.sockets.get(place).is_some_and(is_it) {
            self.sockets.remove(place);
            return 1;
        }
        0
    }
}
