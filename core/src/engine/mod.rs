//! The rules: what every command does to items, locks and wins, and what it answers.
//!
//! One door in ([`Core::handle`]): an event and the moment it happens. No clock, socket, thread,
//! randomness or log reaches an answer, so the same events always give the same replies.

mod arithmetic;
mod locks;
mod read;
mod recache;
mod remove;
mod write;

use core::fmt;

use crate::command::Command;

/// Names a connection. Never reused while the process lives, unlike a file descriptor: a late
/// release by a dead client can then never name a live one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnId(u64);

impl ConnId {
    /// The connection with this number.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number, for logs and `me`.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// What can happen to a core.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event<'a> {
    /// A connection is there; from now on it may take locks.
    Opened(ConnId),
    /// A connection asks for something. The one event that has a reply.
    Received(ConnId, Command<'a>),
    /// A connection has ended, however it did. Its locks go, and its id is dead from now on.
    Closed(ConnId),
    /// Time has passed: look for expired items, a bounded number a tick.
    Tick,
    /// The wall clock was looked at: Unix seconds at [`Instant`](crate::Instant) 0.
    WallClock {
        /// Where the wall clock stands against the monotonic one.
        unix_s_at_start: u64,
    },
}
