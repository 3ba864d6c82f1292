//! The rules of waiting: who stands in line for a lock, and what becomes of it.
//!
//! - Q6: never is a lock free, nor has it room for one more sharer, while the first who waits could have it: whatever ends
//!   it, he is given it in the same step, and so are those behind him who can share it with him; or, where very
//!   many end at once, before anybody else sees the key.
//! - Q7: nobody is given a lock before those who waited for it.
//! - Q8: a lock is never given to one whose time is over, nor to one who has gone.
//! - Q9: no connections wait for each other in a circle.
//! - Q10: every wait ends with one notice: granted, refused, or too late.
//!
//! When many locks end in one step, those that somebody waits for are handed over first, a few with every
//! command and more with every tick; one that a command is about, before it.

use crate::command::{Acquire, Lease, Wait};
use crate::engine::Core;
use crate::engine::locks::queue::{Due, WaitTable, Waiter};
use crate::engine::locks::table::Taken;
use crate::engine::queues::Waits;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::owner::Owner;
use crate::reply::{LockSeen, Refusal, Reply};
use crate::store::{Full, Store};
use crate::time::Instant;
use crate::wait::{Chain, Notice, Outcome, Sought, would_deadlock};

impl<S: Store> Core<S> {
    /// The next wait that has ended, of those that were not told yet. To be asked, until there is none, after every call that can
    /// change something. One call may end thousands of waits; a transport that serves others meanwhile may take some notices
    /// now and the rest a little later.
    pub(in crate::engine) fn next_notice(&mut self) -> Option<Notice> {
        loop {
            let notice = match self.waits.next_due()? {
                Due::One(notice) => {
                    self.waits.leave_due();
                    return Some(notice);
                }
                Due::LetGoByLocks => self.waits.tell_next(),
                Due::LetGoByGets => self.win_waits.tell_next(),
            };
            if notice.is_some() {
                return notice;
            }
            self.waits.leave_due();
        }
    }

    /// Whether there may be a notice that was not told yet.
    #[inline]
    #[must_use]
    pub fn has_notices(&self) -> bool {
        self.waits.has_due()
    }

    /// Whether anybody waits, or is to be told of a wait: if not, there is no notice and no deadline.
    #[inline]
    #[must_use]
    pub fn has_waits(&self) -> bool {
        !self.waits.is_empty() || self.waits.has_due() || !self.win_waits.is_empty()
    }

    /// When something is to happen of which somebody is to be told: a wait ends by itself, or the lease of a
    /// lock that is waited for. In the past if there is more of it than one call does. To be on time, a
    /// transport hands over [`Event::Due`](crate::engine::Event::Due) then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.locks.has_handovers() || self.win_waits.is_on_round() {
            return Some(self.clock.now);
        }
        let deadlines = [
            self.waits.next(),
            self.locks.next_waited_lease(),
            self.win_waits.next(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Who waits for what.
    #[must_use]
    pub const fn waits(&self) -> &WaitTable {
        &self.waits
    }

    /// What becomes of a request for a lock that somebody holds.
    pub(in crate::engine) fn contended(
        &mut self,
        conn: Owner,
        acquire: &Acquire<'_>,
        slot: Option<S::Slot>,
    ) -> Reply<'static> {
        let key = acquire.key;
        let seen = self.lock_seen(key).expect("it is held");
        let wait = match acquire.wait {
            Wait::UpTo { ms: 1.. } => {
                let (chain, looks) = self.chain(conn, acquire);
                self.work.charge(looks);
                chain.judge(acquire.wait)
            }
            other @ (Wait::No | Wait::UpTo { ms: 0 } | Wait::WouldDeadlock | Wait::TooLong) => {
                other
            }
        };
        let ms = match wait {
            Wait::No | Wait::UpTo { ms: 0 } => {
                self.count_refused();
                return Reply::Contended(seen);
            }
            Wait::WouldDeadlock => return self.refuse_deadlock(seen),
            Wait::TooLong => return self.refuse_wait(Refusal::TooManyLocks),
            Wait::UpTo { ms } => ms.min(self.limits.wait_ms_max),
        };
        if let Err(refusal) = self.may_wait(conn, key, slot) {
            return self.refuse_wait(refusal);
        }
        self.stats.counters.lock_waits += 1;
        let now_ms = self.clock.now.as_millis();
        let waiter = Waiter {
            until: Instant::from_millis(now_ms.saturating_add(ms)),
            mode: acquire.mode,
            among: self.among(acquire.mode),
            lease: acquire.lease,
            needs_item: acquire.needs_item,
        };
        self.waits.join(key, conn, waiter);
        self.locks.set_waited(key, true);
        Reply::Waits
    }

    /// Whether it would wait for itself, as far as this core knows; and how many grants it looked at.
    fn chain(&self, conn: Owner, acquire: &Acquire<'_>) -> (Chain, usize) {
        would_deadlock(
            conn,
            self.sought(acquire),
            self.limits.wait_chain_max,
            |key| self.locks.grants_of(key),
            |conn| self.sought_by(conn),
        )
    }

    /// What `conn` waits for, unless its time is over.
    #[must_use]
    pub fn sought_by(&self, conn: Owner) -> Option<Sought<'_>> {
        self.waits.sought_by(conn, self.clock.now)
    }

    fn count_refused(&mut self) {
        self.stats.counters.cmd_lock += 1;
        self.stats.counters.lock_contended += 1;
    }

    fn refuse_deadlock(&mut self, seen: LockSeen) -> Reply<'static> {
        self.count_refused();
        self.stats.counters.lock_deadlocks += 1;
        Reply::WouldDeadlock(seen)
    }

    fn refuse_wait(&mut self, refusal: Refusal) -> Reply<'static> {
        self.stats.counters.cmd_lock += 1;
        Reply::Refused(refusal)
    }

    /// Whether `conn` may wait for a lock that another holds, and sees to it that there is room for it.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`] as they say.
    fn may_wait(
        &mut self,
        conn: Owner,
        key: Key<'_>,
        slot: Option<S::Slot>,
    ) -> Result<(), Refusal> {
        let held = self.locks.held_by(conn).ok_or(Refusal::ConnectionClosed)?;
        let of_tables = WaitTable::bytes_for(key) + self.locks.bytes_for_waited(key);
        if self.is_waiting(conn)
            || held.locks >= self.limits.locks_per_connection_max
            || self.waits.waiting(key) >= self.limits.waits_per_key_max
            || self.waiting_in_all() >= self.limits.waits_max
            || !self.has_room_in_table(of_tables)
        {
            return Err(Refusal::TooManyLocks);
        }
        self.set_tables_aside(of_tables, slot)
            .map(|_| ())
            .map_err(|Full| Refusal::TooManyLocks)
    }

    /// The lock of `key` has ended, and is out of the table; its item, if there is one, is in `slot`. Who waits for
    /// it is given it (Q6).
    #[inline]
    pub(in crate::engine) fn hand_over(&mut self, key: Key<'_>, slot: Option<S::Slot>) {
        if !self.waits.is_empty() {
            self.hand_to_first(key, slot);
        }
    }

    fn hand_to_first(&mut self, key: Key<'_>, slot: Option<S::Slot>) {
        while let Some((conn, waiter)) = self.let_go_of_first(key, slot) {
            self.waits.leave(conn);
            self.grant_to_waiter(conn, &waiter, key, slot);
            self.waits.notify(conn, Outcome::Granted);
        }
        self.locks.set_waited(key, self.waits.waiting(key) > 0);
    }

    /// Those who wait for `key` and cannot have it, though there is room for them, wait no more: up to the first who can,
    /// who is returned, or for whom there is no room.
    fn let_go_of_first(&mut self, key: Key<'_>, slot: Option<S::Slot>) -> Option<(Owner, Waiter)> {
        let mut ended = [0; 3];
        let mut given = None;
        for (_, conn, waiter) in self.waits.in_turn(key) {
            if !self.has_room(key, waiter.mode) {
                break;
            }
            if self.may_have(conn, &waiter, key, slot) {
                given = Some((conn, waiter));
                break;
            }
            match waiter.outcome(self.clock.now, slot.is_some()) {
                Outcome::TimedOut => ended[0] += 1,
                Outcome::NotFound => ended[1] += 1,
                Outcome::TooManyLocks | Outcome::Granted => ended[2] += 1,
            }
        }
        let [too_late, not_found, too_many] = ended;
        // What asks again is counted when it does.
        self.stats.counters.lock_wait_timeouts += too_late;
        self.stats.counters.cmd_lock += not_found + too_many;
        self.stats.counters.lock_misses += not_found;
        let count = too_late + not_found + too_many;
        if count > 0 {
            let count = usize::try_from(count).expect("as many as wait");
            let now = self.clock.now;
            self.waits.leave_together(key, count, now, slot.is_some());
        }
        given
    }

    /// Whether one who waits for a lock that is free, or has room for it, can have it.
    fn may_have(&self, conn: Owner, waiter: &Waiter, key: Key<'_>, slot: Option<S::Slot>) -> bool {
        if waiter.until <= self.clock.now || waiter.needs_item && slot.is_none() {
            return false;
        }
        let held = self.locks.held_by(conn);
        let held = held.expect("Q8: who has gone does not wait");
        self.is_within_bounds(held, key, waiter.mode, slot)
    }

    /// There is room in the table: what the wait has taken ([`WaitTable::bytes_for`]).
    fn grant_to_waiter(
        &mut self,
        conn: Owner,
        waiter: &Waiter,
        key: Key<'_>,
        slot: Option<S::Slot>,
    ) {
        self.grant(conn, key, slot, Taken::ForKey, waiter.mode);
        self.locks.set_untold(key, conn, true);
        if let Some(lease) = waiter.lease {
            self.locks.set_lease(key, conn, self.end_of(lease));
        }
        if let Some(slot) = slot {
            let header = ItemHeader {
                locked: true,
                ..self.store.header(slot)
            };
            self.store.set_header(slot, header);
        }
    }

    /// Ends up to `waits_max` of the waits whose time is over.
    pub(in crate::engine) fn settle_waits(&mut self, waits_max: usize) {
        for _ in 0..waits_max {
            let Some(conn) = self.waits.overdue(self.clock.now) else {
                return;
            };
            self.leave(conn);
            self.waits.notify(conn, Outcome::TimedOut);
            self.stats.counters.lock_wait_timeouts += 1;
        }
    }

    /// `conn` waits no more, if it did.
    pub(in crate::engine) fn leave(&mut self, conn: Owner) {
        let Some((key, _)) = self.waits.leave(conn) else {
            return;
        };
        let key = crate::engine::locks::table::as_key(&key);
        if self.waits.waiting(key) == 0 {
            self.locks.set_waited(key, false);
        } else {
            self.hand_over_behind(key);
        }
    }

    /// Something has ended by time, or many locks have ended at once: does some of what there is to do, and all that
    /// concerns `key`, which somebody is about to look at.
    #[cold]
    pub(in crate::engine) fn catch_up(&mut self, key: Option<Key<'_>>) {
        self.settle_all(self.limits.locks_settled_max);
        if let Some(key) = key
            && let Some(holding) = self.locks.get(key)
            && (holding.is_over && holding.is_waited || holding.mode.is_shared())
        {
            self.let_go(key, holding);
        }
    }

    /// Does up to `each_max` of each kind of what is left to be done.
    pub(in crate::engine) fn settle_all(&mut self, each_max: usize) {
        self.settle_waits(each_max);
        self.settle_leases(each_max);
        self.settle(each_max);
        self.reopen_wins(each_max);
        if !self.win_waits.is_empty() {
            self.settle_wins(each_max);
        }
    }

    /// When a lock that is to last from now on ends.
    pub(in crate::engine) fn end_of(&self, lease: Lease) -> Option<Instant> {
        match lease {
            Lease::For { ms } => {
                let now_ms = self.clock.now.as_millis();
                Some(Instant::from_millis(now_ms.saturating_add(ms)))
            }
            Lease::Off => None,
        }
    }

    /// Q6, Q8 and Q9, and that both tables say the same.
    #[cfg(any(test, feature = "verify"))]
    pub(in crate::engine) fn check_waits(&self) {
        self.waits.check();
        assert!(
            self.waits.untold() <= self.limits.waits_max,
            "Q10: too many notices"
        );
        for (key, holding) in self.locks.iter() {
            let waiting = self.waits.waiting(key);
            assert_eq!(holding.is_waited, waiting > 0, "Q6: who waits for {key:?}");
            assert!(
                waiting <= self.limits.waits_per_key_max,
                "Q6: too many wait for {key:?}"
            );
        }
        for key in self.waits.keys() {
            // The table of locks sees to it that what is over comes next (L14).
            assert!(self.locks.get(key).is_some(), "Q6: {key:?} is free");
            let (_, first) = self.waits.first(key).expect("Q1: a queue of nobody");
            assert!(
                !self.has_room(key, first.mode),
                "Q6: there is room for the first who waits for {key:?}"
            );
            for (conn, _) in self.waits.queue(key) {
                assert!(self.locks.held_by(conn).is_some(), "Q8: {conn} has gone");
                let Some(sought) = self.sought_by(conn) else {
                    continue;
                };
                let (chain, _) = would_deadlock(
                    conn,
                    sought,
                    usize::MAX,
                    |key| self.locks.grants_of(key),
                    |conn| self.sought_by(conn),
                );
                assert_eq!(chain, Chain::Ends, "Q9: {conn} waits for itself");
            }
        }
    }
}
