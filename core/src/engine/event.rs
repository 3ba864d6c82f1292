//! The events and the notifications of a core: everything besides commands and replies.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::key::Key;
use latchd_protocol::stats::Unstored;
use latchd_protocol::time::Instant;
use latchd_protocol::wait::Notice;
use latchd_protocol::watch::Evicted;

use super::{Held, LockEnd, Numbers};
use crate::limits::Limits;

/// An event besides a command. It has no reply.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event<'a> {
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
    /// As [`DueFew`](Self::DueFew), and all that is due for the lock of this key: for a transport that asks about it next
    /// ([`Core::would_contend`](super::Core::would_contend)).
    DueAt(Key<'a>),
    /// An owner that has as many wins as it may asks another core for one. Some of its wins here are updated, since their
    /// items may be gone: for a transport over several cores.
    WinElsewhere {
        /// The owner.
        owner: Owner,
        /// The key that it asks for. Its wins behind this one come first.
        key: Key<'a>,
        /// How many are updated at most.
        wins_max: usize,
    },
    /// The bytes that the tables of other cores take from now on, for a transport with a budget for all cores
    /// ([`Config::sharing_tables`](super::Config::sharing_tables)). No memory is freed for that yet.
    TablesElsewhere(usize),
    /// As [`TablesElsewhere`](Self::TablesElsewhere), and this core frees its part of the memory of all tables, if need be by
    /// evicting items. If it cannot, it [lacks room](super::Core::lacks_room_for_tables).
    TablesSpread(usize),
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
    /// The numbers of an earlier run: no CAS and no fence of it is given again. To come before the first command, with the same
    /// numbers for all cores that share them.
    Resumed(Numbers),
    /// No lock is granted until this moment, with `None` for as long as the core lives. A longer time that an earlier such event
    /// asked for stays in force. The waiters get the free locks then. A transport with several cores passes it to all of them.
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
