//! The interface between a machine of the client and its driver.
//!
//! The driver asks for the next [`Action`], does it, and reports the result. A machine never waits and never
//! fails by itself. Every event of the network reaches it as [`connected`](Machine::connected),
//! [`reply`](Machine::reply), [`disconnected`](Machine::disconnected) or the passing of time in
//! [`poll`](Machine::poll).
//!
//! - D1: A request counts as sent at the moment of the `poll` that handed it out, so before its first byte
//!   left. So a machine's belief about time errs only on the safe side.
//! - D2: Replies are reported in the order of the requests, and each once.

use alloc::boxed::Box;
use core::fmt;

use latchd_protocol::time::Instant;

use super::session::{AnyRequest, AnyResponse, Received};

/// A state machine of the client.
pub trait Machine {
    /// Its news for the caller.
    type News;

    /// Returns the next action. `now` never goes back.
    fn poll(&mut self, now: Instant) -> Action<'_, Self::News>;

    /// A connection is open, and nothing has been sent on it.
    fn connected(&mut self, now: Instant);

    /// The connection is gone, or could not be opened. Requests without an answer will get none.
    fn disconnected(&mut self, now: Instant);

    /// The oldest unanswered request was answered.
    fn reply(&mut self, now: Instant, answer: &AnyResponse<'_>);

    /// As [`reply`](Self::reply), for a machine that passes the answer's own bytes on.
    fn received(&mut self, now: Instant, received: &Received<'_>, _bytes: &[u8]) {
        self.reply(now, &received.answer);
    }
}

/// An action for the driver.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action<'a, News> {
    /// Open a connection, unless one is being opened. Then call [`connected`](Machine::connected), or
    /// [`disconnected`](Machine::disconnected) if that failed. Meanwhile, poll again as with
    /// [`Wait`](Self::Wait).
    Connect {
        /// `None` means never.
        until: Option<Instant>,
    },
    /// Close the connection: it has not answered for too long. Then call
    /// [`disconnected`](Machine::disconnected).
    Disconnect,
    /// Send this, and poll again.
    Send(AnyRequest<'a>),
    /// Hand this to the caller, and poll again.
    Tell(News),
    /// Wait for a reply, a disconnect or the caller, and poll again at this moment at the latest.
    Wait {
        /// `None` means never.
        until: Option<Instant>,
    },
}

/// Why an operation failed for another reason than another client's lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Failure {
    /// The connection could not be opened, or it broke.
    Disconnected,
    /// The server did not answer in time.
    NoAnswer,
    /// The server refused, with this message.
    Refused(Box<str>),
    /// The server's answer does not fit the request.
    Unexpected,
    /// The server lacks this feature.
    Unsupported(Feature),
}

/// A feature of latchd that other servers may lack.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Feature {
    /// Locks that end with their connection, or are counted in milliseconds.
    ShortLocks,
    /// Locks with several holders at a time.
    SharedLocks,
    /// Changes that are made only while a grant is in force.
    Fences,
    /// Locks of any kind that this client knows.
    Locks,
    /// Reads and writes under a lock on the item of its key.
    ItemsUnderLocks,
    /// Sessions, which outlive a connection.
    Sessions,
}

impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ShortLocks => "locks that survive less than a second",
            Self::SharedLocks => "shared locks",
            Self::Fences => "changes that end with a lock",
            Self::Locks => "locks of this client",
            Self::ItemsUnderLocks => "items of a locked key",
            Self::Sessions => "sessions",
        })
    }
}

impl Failure {
    /// The failure that an unexpected answer stands for.
    pub(super) fn from_answer(answer: &AnyResponse<'_>) -> Self {
        match answer.refusal() {
            Some(words) => Self::Refused(words),
            None => Self::Unexpected,
        }
    }
}

/// Why a lock was not obtained.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum NotObtained {
    /// Another client holds it, and the retry strategy has no more tries, or no more time for them.
    Held,
    /// By the server's answers, another client held it until the deadline.
    Deadline,
    /// The key has an item that is no lock: it has no time, and not the client flags of one.
    HasValue,
}

impl fmt::Display for NotObtained {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Held => "another client holds the lock",
            Self::Deadline => "the lock was not free before the deadline",
            Self::HasValue => "the key has an item that is no lock",
        })
    }
}

/// Why a lock is lost, or may be lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// The connection broke.
    Disconnected,
    /// The server says that it is no longer ours.
    Taken,
    /// The ttl has run out by the local clock, and no renewal was confirmed in time.
    Expired,
    /// It was held as long as its [`hold_max`](super::LeaseTerms::hold_max) allows.
    HeldTooLong,
    /// Its server did not confirm in time that it still is primary, so another server may grant the lock.
    Unconfirmed,
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Disconnected => "the connection broke",
            Self::Taken => "the server says that it is not ours any more",
            Self::Expired => "its ttl ran out",
            Self::HeldTooLong => "it was held as long as was allowed",
            Self::Unconfirmed => "its server did not confirm in time that it is still primary",
        })
    }
}
