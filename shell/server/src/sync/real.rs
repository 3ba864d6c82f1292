//! The synchronization of the released server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
pub(crate) use std::time::Instant;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) use async_io::Timer;
use rustix::event::{EventfdFlags, eventfd};
pub(crate) use smol::channel;

/// Wakes a thread that waits in its epoll.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    /// # Errors
    /// The kernel's, if there is no descriptor left.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map(Self)
    }

    /// Signals the epoll, until [`Self::clear`].
    pub(crate) fn wake(&self) {
        // It can fail only after 2^64 - 1 unread signals, and the thread wakes anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Clears the signal.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The wall clock. A time before 1970 counts as 1970.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
