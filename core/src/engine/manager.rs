//! The lock manager: everything that belongs to an owner. It knows no store.
//!
//! An owner has locks, shares, leases, places in queues, bound wins and notices, for keys of any shard of items. So there is
//! one manager for all shards: a bound, a budget and a search for a deadlock each read one structure.

use latchd_protocol::Owner;
use latchd_protocol::reply::Refusal;
use latchd_protocol::time::Instant;
use latchd_protocol::wait::Notice;

use super::config::Config;
use super::locks::Locks;
use super::locks::table::Held;
use super::notices::{Due, Notices};
use super::wins::Wins;
use crate::limits::Limits;

/// The locks, waits and wins of all owners.
#[derive(Clone, Debug)]
pub struct LockManager {
    pub(super) locks: Locks,
    pub(super) wins: Wins,
    /// The notices of waits that are over.
    pub(super) notices: Notices,
    /// The number of cores with one budget for their tables.
    pub(super) table_cores: usize,
    /// The bytes that the tables of the other cores take.
    pub(super) tables_elsewhere: usize,
    /// The store could not free its part of the memory of all tables when it was last asked to.
    pub(super) lacks_room_for_tables: bool,
}

impl LockManager {
    /// A manager without owners.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            locks: Locks::new(config.fence_first, config.cas_stride),
            wins: Wins::default(),
            notices: Notices::default(),
            table_cores: config.table_cores.max(1) as usize,
            tables_elsewhere: 0,
            lacks_room_for_tables: false,
        }
    }

    /// Whether `owner` waits for a lock or a value.
    pub(super) fn is_waiting(&self, owner: Owner) -> bool {
        self.locks.queue.waits_for(owner).is_some() || self.wins.queue.is_waiting(owner)
    }

    /// The owners that wait, or have a notice that no transport has taken.
    pub(super) fn waiting_in_all(&self) -> usize {
        self.locks.queue.places() + self.notices.singles() + self.wins.queue.places()
    }

    /// Whether `owner` may have one more bound win, over all cores.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`], as they say.
    pub(super) fn may_win(&self, owner: Owner, limits: &Limits) -> Result<(), Refusal> {
        let held = self.locks.table.held_by(owner);
        let elsewhere = held.ok_or(Refusal::ConnectionClosed)?.wins;
        self.wins.may_win(owner, elsewhere, limits)
    }

    /// The locks and the bound wins that `owner` has here.
    pub(super) fn held_here(&self, owner: Owner) -> Held {
        Held {
            wins: self.wins.bound.won_by(owner),
            ..self.locks.table.held_here(owner)
        }
    }

    /// The next notice of a wait that is over, for a lock or a value. One call may end thousands of waits; a transport with
    /// other clients may take some of the notices now and the rest a little later.
    pub(super) fn next_notice(&mut self) -> Option<Notice> {
        loop {
            let notice = match self.notices.first()? {
                Due::One(notice) => {
                    self.notices.pop();
                    return Some(notice);
                }
                Due::OfLocks => self.locks.queue.next_woken(),
                Due::OfGets => self.wins.queue.next_woken(),
            };
            if notice.is_some() {
                return notice;
            }
            self.notices.pop();
        }
    }

    /// Whether there may be a notice that no transport has taken.
    #[inline]
    pub(super) fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Whether any client waits, or has a notice that no transport has taken. If not, there is no deadline either.
    #[inline]
    pub(super) fn has_waits(&self) -> bool {
        !self.locks.queue.is_empty() || self.has_notices() || !self.wins.queue.is_empty()
    }

    /// The next moment at which a wait ends by itself, or the lease of a lock with waiters expires; `now` if there is more to
    /// do than one call does.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if self.locks.table.has_handovers() || self.wins.queue.is_on_round() {
            return Some(now);
        }
        let deadlines = [
            self.locks.queue.next(),
            self.locks.table.next_waited_lease(),
            self.wins.queue.next(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The bytes that the tables take of the memory limit.
    pub(super) const fn table_bytes(&self) -> usize {
        self.locks.table.table_bytes()
            + self.locks.queue.table_bytes()
            + self.wins.bound.table_bytes()
            + self.wins.queue.table_bytes()
    }

    /// The same with the tables of the other cores.
    pub(super) const fn all_table_bytes(&self) -> usize {
        self.table_bytes() + self.tables_elsewhere
    }

    /// Whether the tables may take so many bytes more.
    pub(super) const fn has_room_in_table(&self, bytes: usize, limits: &Limits) -> bool {
        self.all_table_bytes() + bytes <= limits.lock_table_bytes_max
    }

    /// Whether ended locks are still in the table, and the tables take more than half of their budget. Then locks may
    /// be refused in any core until these are removed.
    pub(super) fn wants_memory(&self, limits: &Limits) -> bool {
        self.locks.table.has_over()
            && !self.has_room_in_table(limits.lock_table_bytes_max / 2, limits)
    }
}
