//! The events and the notifications of a core: everything besides commands and replies.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Held, LockEnd};
use crate::limits::Limits;
use crate::owner::Owner;
use crate::stats::Unstored;
use crate::wait::Notice;
use crate::watch::Evicted;

/// An event besides a command. It has no reply.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// An owner is open: from now on it can acquire locks. An owner that acquires none need not be announced.
    Opened(Owner),
    /// The locks and wins of an open owner in other cores, for a transport that spreads items over several: the owner's
    /// share is counted over all of them.
    HoldsElsewhere(Owner, Held),
    /// An owner has ended, for any reason. Its locks end, and its number is not used again.
    Closed(Owner),
    /// An owner waits no more, if it did: for a session that waits in another core from now on.
    WaitsElsewhere(Owner),
    /// Time has passed: look for expired items, a bounded number a tick.
    Tick,
    /// A moment has come ([`Core::next_deadline`](super::Core::next_deadline)): waits, leases and a `flush_all` that it ends are over. A bounded
    /// number is seen to at once ([`crawl_items_max`](Limits::crawl_items_max) of each kind).
    Due,
    /// As [`Due`](Self::Due), and no more is seen to at once than a command sees to: for a transport that looks at
    /// several cores at once.
    DueFew,
    /// The bytes that the tables of other cores take from now on, for a transport with a budget for all cores
    /// ([`Config::sharing_tables`](super::Config::sharing_tables)). No memory is freed for that yet ([`Core::make_room_for_tables`](super::Core::make_room_for_tables)).
    TablesElsewhere(usize),
    /// A `flush_all` takes effect in another core. If it is still to take effect in this one, it does so now: for a
    /// transport that spreads items over several cores, so that no client sees a part of it.
    FlushedElsewhere,
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
    /// From now on the end of each lock is handed out by [`Core::poll`](super::Core::poll), or not.
    ReportLockEnds(bool),
    /// The wall clock was looked at.
    WallClock {
        /// Unix seconds at [`Instant`](crate::time::Instant) 0.
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
}

impl Notification {
    /// The notice of a wait that is over, if it is one.
    #[must_use]
    pub fn wait_over(self) -> Option<Notice> {
        match self {
            Self::WaitOver(notice) => Some(notice),
            Self::Evicted { .. } | Self::LocksEnded { .. } => None,
        }
    }
}
