//! The events and the notifications of a core: everything besides commands and replies.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use latchd_protocol::stats::Unstored;
use latchd_protocol::time::Instant;
use latchd_protocol::wait::Notice;
use latchd_protocol::watch::Evicted;
use latchd_protocol::{ConnId, Owner};

use super::{LockEnd, Numbers};
use crate::limits::Limits;
use crate::sessions::EndedSession;

/// An event besides a command. It has no reply.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// An owner is open: from now on it can acquire locks. An owner that acquires none need not be announced.
    Opened(Owner),
    /// An owner has ended, for any reason. Its locks end, and its number is not used again.
    Closed(Owner),
    /// A connection has closed that was attached to this session.
    Detached(Owner, ConnId),
    /// Time has passed: look for expired items, a bounded number a tick.
    Tick,
    /// A moment has come ([`Core::next_deadline`](super::Core::next_deadline)): waits, leases and a `flush_all` that it ends are over. A bounded
    /// number is seen to at once ([`crawl_items_max`](Limits::crawl_items_max) of each kind).
    Due,
    /// The bounds are these from now on. Refused bounds ([`Core::judge_limits`](super::Core::judge_limits)) change nothing.
    Limits(Limits),
    /// A set was refused before there was a command.
    Unstored(Unstored),
    /// [`Core::poll`](super::Core::poll) is to hand out the evictions since the last such event. From now on they are remembered if
    /// `is_watched`.
    ReadEvictions {
        /// Whether there is a client that watches them.
        is_watched: bool,
    },
    /// The numbers of an earlier run: no CAS and no fence of it is given again. To come before the first command.
    Resumed(Numbers),
    /// No lock is granted until this moment, with `None` for as long as the core lives. A longer time that an earlier such event
    /// asked for stays in force. The waiters get the free locks then.
    WithholdGrants(Option<Instant>),
    /// From now on the end of each lock is handed out by [`Core::poll`](super::Core::poll), or not.
    ReportLockEnds(bool),
    /// The wall clock was looked at.
    WallClock {
        /// Unix seconds at [`Instant`](latchd_protocol::time::Instant) 0.
        unix_s_at_start: u64,
    },
}

/// A result besides replies ([`Core::poll`](super::Core::poll)).
#[derive(Clone, Debug)]
pub enum Notification {
    /// Evictions, for [`Event::ReadEvictions`].
    Evicted {
        /// In their order.
        items: Vec<Evicted>,
        /// How many more there were.
        missed: u64,
    },
    /// Locks that have ended, if [`Event::ReportLockEnds`] asks for them. A lock that has ended with many others is
    /// reported when its item is released.
    LocksEnded {
        /// At most [`LOCK_ENDS_MAX`](super::LOCK_ENDS_MAX), in their order.
        ends: VecDeque<LockEnd>,
        /// How many more there were.
        missed: u64,
    },
    /// A wait is over.
    WaitOver(Notice),
    /// A session has ended because its client was not heard. Its connection is to be closed.
    SessionExpired(EndedSession),
}

impl Notification {
    /// The notice of a wait that is over, if it is one.
    #[must_use]
    pub fn wait_over(self) -> Option<Notice> {
        match self {
            Self::WaitOver(notice) => Some(notice),
            Self::Evicted { .. } | Self::LocksEnded { .. } | Self::SessionExpired(_) => None,
        }
    }
}
