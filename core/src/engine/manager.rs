//! The lock manager: everything that belongs to an owner. It knows no store.
//!
//! An owner has locks, shares, leases, places in queues, bound wins and notices, for keys of any shard of items. So there is
//! one manager for all shards: a bound, a budget and a search for a deadlock each read one structure.
//!
//! A change can end locks, waits and wins of keys in other shards. The manager then lists these keys as *due*, and the
//! caller updates them one after the other ([`run_due`](super::shards::run_due)).
//!
//! - N5: Each key that needs an update is due, or the time of its lease, its wait or its item is listed.

#[cfg(any(test, feature = "verify"))]
use alloc::collections::BTreeSet;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use latchd_protocol::command::Get;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::reply::Refusal;
use latchd_protocol::session::{Open, SessionRefusal, SessionReply, Token};
use latchd_protocol::stats::{Counters, Gauges, Stats};
use latchd_protocol::time::Instant;
use latchd_protocol::wait::{Notice, Outcome};
use latchd_protocol::{ConnId, Owner};

use super::config::Config;
use super::context::Context;
use super::event::Notification;
use super::locks::Locks;
use super::locks::queue::WaitTable;
use super::locks::table::{EndCause, LockTable, OwnerUsage};
use super::notices::{Due, Notices};
use super::owned_key::{OwnedKey, as_key};
use super::queues::STALE_MAX;
use super::wins::Wins;
use crate::limits::Limits;
use crate::sessions::{Asker, EndedSession, Session, SessionDone, Sessions};
use crate::work::Meter;

/// A step that updates many keys leaves the rest to the next one when it has granted as many locks. So it grants at most
/// this many, and those that the last of these keys has waiters for.
const GRANTS_A_STEP: u64 = 256;

/// The growth of the tables after which the items of all shards leave memory free for it, in bytes.
const SPREAD_BYTES: usize = 256 << 10;

/// The reason for which a key is due. A step updates some of each, in this order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// The winner has ended, or a tick checks the win.
    Won,
    /// A waiter has left, or a lease has expired.
    Left,
    /// Its owner has ended, or has released all of its locks.
    Ended,
    /// Grants were withheld until now.
    Withheld,
    /// The item that gets wait for may have ended.
    Watched,
}

impl Cause {
    pub(super) const ALL: [Self; 5] = [
        Self::Won,
        Self::Left,
        Self::Ended,
        Self::Withheld,
        Self::Watched,
    ];
}

/// A key that is to be updated.
#[derive(Clone, Debug)]
pub struct DueKey {
    pub(super) key: OwnedKey,
    pub(super) part: Part,
}

/// The part of a key that is to be updated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// Its lock, or the share with this fence, may be over, or its waiters may have it.
    Lock(Option<Fence>),
    /// Its item may be missing, or its winner has ended.
    Win,
}

impl DueKey {
    pub(super) const fn lock(key: OwnedKey, share: Option<Fence>) -> Self {
        let part = Part::Lock(share);
        Self { key, part }
    }

    const fn win(key: OwnedKey) -> Self {
        let part = Part::Win;
        Self { key, part }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> Key<'_> {
        as_key(&self.key)
    }
}

/// The locks, waits and wins of all owners.
#[derive(Clone, Debug)]
pub struct LockManager {
    pub(super) locks: Locks,
    pub(super) wins: Wins,
    pub(super) sessions: Sessions,
    /// The sessions that have expired, and of which the transport has not taken the notification.
    pub(super) expired: VecDeque<EndedSession>,
    /// The notices of waits that are over.
    pub(super) notices: Notices,
    /// The time as the last step left it.
    pub(super) now: Instant,
    /// The bounds; those of memory are the share of each shard.
    pub(super) limits: Limits,
    pub(super) counters: Counters,
    pub(super) work: Meter,
    /// Keys whose waiters may have the lock now, and keys that nothing concerns any more ([`Cause::Left`]).
    pub(super) left: VecDeque<OwnedKey>,
    /// The number of shards.
    pub(super) shards: usize,
    /// The bytes of the tables when all shards last left memory free for them.
    pub(super) spread_bytes: usize,
    /// A shard could not leave its part of the memory free then, so no table grows.
    pub(super) is_full: bool,
}

impl LockManager {
    /// A manager without owners, for so many shards.
    #[must_use]
    pub fn new(config: &Config, shards: usize) -> Self {
        Self {
            locks: Locks::new(config.fence_first),
            wins: Wins::default(),
            sessions: Sessions::new(config.sessions, config.hash_seed),
            expired: VecDeque::new(),
            notices: Notices::default(),
            now: Instant::default(),
            limits: Self::bounds(&config.limits, shards),
            counters: Counters::default(),
            work: Meter::default(),
            left: VecDeque::new(),
            shards,
            spread_bytes: 0,
            is_full: false,
        }
    }

    /// The bounds of a manager for so many shards. Each shard brings its waits.
    fn bounds(limits: &Limits, shards: usize) -> Limits {
        Limits {
            waits_max: limits.waits_max.saturating_mul(shards),
            ..limits.share(shards)
        }
    }

    pub(super) fn set_limits(&mut self, limits: &Limits) {
        self.limits = Self::bounds(limits, self.shards);
    }

    /// It is `now`: leases that have passed have ended their locks (L9), and grants may be withheld no longer.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.locks.table.pass_leases(self.now);
        if self.locks.queue.next().is_some_and(|at| at <= self.now) {
            self.locks.queue.pass_withheld(self.now);
        }
    }

    /// The machine of locks, and the surroundings of a step of it.
    pub(super) fn locks_in_context(&mut self) -> (&mut Locks, Context<'_>) {
        let context = Context {
            now: self.now,
            limits: &self.limits,
            counters: &mut self.counters,
            notices: &mut self.notices,
        };
        (&mut self.locks, context)
    }

    /// The machine of wins, and the surroundings of a step of it.
    pub(super) fn wins_in_context(&mut self) -> (&mut Wins, Context<'_>) {
        let context = Context {
            now: self.now,
            limits: &self.limits,
            counters: &mut self.counters,
            notices: &mut self.notices,
        };
        (&mut self.wins, context)
    }

    /// The work of its steps so far.
    #[inline]
    #[must_use]
    pub const fn work(&self) -> u64 {
        self.work.units()
    }

    /// Returns the units of work since the last call.
    pub fn take_work(&mut self) -> u64 {
        self.work.take().into()
    }

    /// The table of locks.
    #[must_use]
    pub const fn locks(&self) -> &LockTable {
        &self.locks.table
    }

    /// The queues of the waiters for locks.
    #[must_use]
    pub const fn waits(&self) -> &WaitTable {
        &self.locks.queue
    }

    /// An owner is open: from now on it can acquire locks.
    pub fn open(&mut self, owner: Owner) {
        self.locks.table.open(owner);
    }

    /// Ends all locks, waits and wins of `owner` in one step. It can acquire nothing from now on (L4).
    pub fn close(&mut self, owner: Owner) {
        self.leave(owner);
        self.counters.lock_died += self.locks.table.close(owner) as u64;
        self.wins.bound.end(owner);
        self.note_many_ended();
    }

    /// `owner` releases all of its locks in one step. If clients wait for some of them, returns the number of keys to update now
    /// for each cause.
    pub(super) fn unlock_all(&mut self, owner: Owner) -> Option<usize> {
        self.counters.lock_released += self.locks.table.end_all(owner, EndCause::Released) as u64;
        self.note_many_ended();
        self.due_after_end()
    }

    /// The sessions.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Opens a session for a connection, resumes it, or takes it over. A connection that holds something of its own is refused.
    pub(super) fn open_session(
        &mut self,
        asker: Asker,
        open: Open<'_>,
        number: impl FnOnce() -> u64,
    ) -> SessionDone {
        if asker.attached.is_none() && self.held(asker.conn.into()) != OwnerUsage::default() {
            return SessionReply::Refused(SessionRefusal::Holds).into();
        }
        self.end_over(open.token);
        let opening = self.sessions.open(self.now, asker, open, number);
        if let SessionReply::Opened(owner) = opening.reply {
            self.open(owner);
        }
        opening
    }

    /// The session with this token, for a request in it, which is heard.
    ///
    /// # Errors
    /// As [`Sessions::find`].
    pub fn find_session(
        &mut self,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<&Session, SessionRefusal> {
        self.end_over(token);
        let session = self.sessions.find(token, asker)?;
        session.attachment().note_heard(self.now);
        Ok(session)
    }

    /// A client ends the session with this token, and everything that it has, in one step.
    ///
    /// # Errors
    /// As [`Sessions::end`].
    pub(super) fn end_session(
        &mut self,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<EndedSession, SessionRefusal> {
        self.end_over(token);
        let ended = self.sessions.end(token, asker)?;
        self.close(ended.owner);
        Ok(ended)
    }

    /// A connection has closed that was attached to a session.
    pub fn leave_session(&mut self, owner: Owner, conn: ConnId) {
        self.sessions.detach(self.now, owner, conn);
    }

    /// Whether this connection is attached to this session. Then its client is heard.
    pub fn hear(&mut self, owner: Owner, conn: ConnId) -> bool {
        let session = self.sessions.get(owner);
        let session = session.filter(|session| session.attachment().has(conn));
        let is_over = |session: &Session| !session.waits && session.ends_at() <= self.now;
        match session {
            Some(session) if !is_over(session) => {
                session.attachment().note_heard(self.now);
                true
            }
            Some(_) | None => false,
        }
    }

    /// The session with this token ends first if its time is over.
    fn end_over(&mut self, token: Token<'_>) {
        let over = self.sessions.end_over(self.now, token);
        self.note_expired_session(over);
    }

    /// Ends a session whose client was not heard for its time; `false` if there is none.
    pub(super) fn end_due_session(&mut self) -> bool {
        let over = self.sessions.end_due(self.now);
        self.note_expired_session(over);
        over.is_some()
    }

    fn note_expired_session(&mut self, over: Option<EndedSession>) {
        if let Some(over) = over {
            self.close(over.owner);
            self.expired.push_back(over);
        }
    }

    /// The request of `owner` waits from now on.
    pub(super) fn begin_wait(&mut self, owner: Owner) {
        if owner.is_session() {
            self.sessions.begin_wait(owner);
        }
    }

    /// Everything was flushed: the items of held locks go when these end.
    pub(super) fn flush(&mut self) {
        self.locks.table.postpone_flush();
        self.wins.queue.begin_round();
    }

    /// Many locks or wins have ended at once. A get may wait for the item of any of them, so all gets that wait are checked.
    fn note_many_ended(&mut self) {
        if self.locks.table.has_ended() || self.wins.bound.has_line() {
            self.wins.queue.begin_round();
        }
    }

    /// A tick begins a round over all gets that wait, and lists some of the bound wins as due: an item can vanish unseen.
    pub(super) fn tick(&mut self) {
        self.wins.queue.go_on_round();
        let keys_max = self.limits.crawl_items_max;
        let keys = self
            .wins
            .bound
            .after(self.wins.checked.as_deref(), keys_max);
        self.wins.checked = keys.last().cloned();
        self.wins.to_check = keys.into();
    }

    /// `owner` waits for nothing any more, if it did.
    fn leave(&mut self, owner: Owner) {
        let of_lock = self.locks.leave(owner, &self.limits);
        let of_value = self.wins.leave(owner);
        for key in of_lock.into_iter().chain(of_value) {
            // A win needs the note as well.
            let is_noted = self.wins.has(as_key(&key));
            if self.locks.queue.waiting(as_key(&key)) > 0 || !is_noted {
                self.left.push_back(key);
            }
        }
    }

    /// A session leaves the places in queues that its last connection has left to it, and gets no notice of them: it would
    /// be taken for the end of a later wait.
    pub(super) fn leave_all(&mut self, owner: Owner) {
        self.leave(owner);
        let read = self.notices.forget(owner);
        self.work.charge(read);
    }

    /// Whether there may be a key that is due, or a wait that is over.
    #[inline]
    #[must_use]
    pub fn has_due(&self) -> bool {
        !self.left.is_empty()
            || self.locks.table.has_over()
            || self.locks.queue.next().is_some_and(|at| at <= self.now)
            || self.wins.bound.has_line()
            || !self.wins.to_check.is_empty()
            || self.wins.queue.is_due(self.now)
            || self.has_due_session()
    }

    fn has_due_session(&self) -> bool {
        let next = self.sessions.next_deadline();
        next.is_some_and(|at| at <= self.now)
    }

    /// After the end of many locks: the number of keys to update now for each cause, if clients wait for some. The rest follows
    /// soon.
    pub(super) fn due_after_end(&self) -> Option<usize> {
        let is_waited = !self.left.is_empty()
            || self.locks.table.has_handovers()
            || !self.wins.queue.is_empty();
        is_waited.then_some(self.limits.locks_settled_max)
    }

    /// Ends a wait for a lock at its deadline; `false` if there is none. Its key may be due then ([`Cause::Left`]). Drops at most
    /// `stale_max` deadlines of woken owners.
    pub(super) fn end_lock_wait(&mut self, stale_max: &mut usize) -> bool {
        let Some(owner) = self.locks.queue.overdue(self.now, stale_max) else {
            return false;
        };
        self.leave(owner);
        self.notices.push(owner, Outcome::TimedOut);
        self.counters.lock_wait_timeouts += 1;
        true
    }

    /// Ends up to `each_max` waits for values at their deadlines.
    pub(super) fn end_get_waits(&mut self, each_max: usize) {
        let mut stale_max = STALE_MAX;
        for _ in 0..each_max {
            let Some(owner) = self.wins.queue.overdue(self.now, &mut stale_max) else {
                break;
            };
            self.leave(owner);
            self.notices.push(owner, Outcome::TimedOut);
            self.counters.get_wait_timeouts += 1;
        }
        self.work.charge(STALE_MAX - stale_max);
    }

    /// A key with an expired lease. It is to be ended, and comes as [`Cause::Left`] afterwards.
    pub(super) fn next_expired(&mut self) -> Option<DueKey> {
        let (key, share) = self.locks.table.next_expired()?;
        self.work.charge(1);
        if self.left.back() != Some(&key) {
            self.left.push_back(Arc::clone(&key));
        }
        Some(DueKey::lock(key, share))
    }

    /// The next key that is due for this reason, unless more than `grants_max` locks have been granted. It is to be updated.
    pub(super) fn next_key(&mut self, cause: Cause, grants_max: u64) -> Option<DueKey> {
        if self.counters.lock_granted >= grants_max {
            return None;
        }
        self.work.charge(1);
        match cause {
            Cause::Left => {
                let key = self.left.pop_front();
                if self.left.is_empty() {
                    // It may have held thousands of keys: their memory is returned.
                    self.left = VecDeque::new();
                }
                key.map(|key| DueKey::lock(key, None))
            }
            Cause::Ended => self.locks.next_ended(),
            Cause::Withheld => {
                let key = self.locks.queue.next_unserved();
                key.map(|key| DueKey::lock(key, None))
            }
            Cause::Won => {
                let key = self.wins.bound.next_ended();
                let key = key.or_else(|| self.wins.to_check.pop_front());
                key.map(DueKey::win)
            }
            Cause::Watched => {
                let key = self.wins.queue.next_end(self.now);
                let key = key.or_else(|| self.wins.queue.next_of_round());
                key.map(DueKey::win)
            }
        }
    }

    /// The number of grants so far at which a step that hands over many locks leaves the rest to the next one.
    pub(super) const fn grants_max(&self) -> u64 {
        self.counters.lock_granted + GRANTS_A_STEP
    }

    /// The key, if there is more about it than the mark of its item shows: a lock without an item, waiters of a free lock,
    /// a bound win, or a get that waits.
    pub(super) fn note_of(&self, key: Key<'_>) -> Option<OwnedKey> {
        let of_wins = || self.wins.noted(key);
        if !self.locks.table.has_lock_without_item() && !self.locks.queue.has_queues() {
            return of_wins();
        }
        let lock = self.locks.table.without_item(key);
        let is_marked = || self.locks.table.has_item(key);
        lock.or_else(|| self.locks.queue.owned(key).filter(|_| !is_marked()))
            .or_else(of_wins)
    }

    /// Whether `owner` waits for a lock or a value.
    #[must_use]
    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.locks.queue.waits_for(owner).is_some() || self.wins.queue.is_waiting(owner)
    }

    /// The owners that wait, or have a notice that no transport has taken.
    pub(super) fn waiting_in_all(&self) -> usize {
        self.locks.queue.places() + self.notices.singles() + self.wins.queue.places()
    }

    /// Whether `owner` may have one more bound win.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`]; [`Refusal::ConnectionClosed`].
    pub(super) fn may_win(&self, owner: Owner) -> Result<(), Refusal> {
        if self.locks.table.held_by(owner).is_none() {
            return Err(Refusal::ConnectionClosed);
        }
        self.wins.may_win(owner, &self.limits)
    }

    /// Whether the session `owner` may have a place in a queue, or a notice of its end, that its last connection has left to
    /// it ([`Rules::leave_place`](super::Rules::leave_place)).
    #[must_use]
    pub fn may_leave_place(&self, owner: Owner) -> bool {
        owner.is_session() && (self.is_waiting(owner) || self.has_notices())
    }

    /// Before a get that may bind a win or wait for one: if its owner has as many wins as it may, a few of them, since their
    /// items may be missing. These keys are to be updated before the get.
    pub fn wins_to_check(&self, owner: Owner, get: &Get<'_>) -> Vec<DueKey> {
        let bound_to_owner = get.recaches && (get.bound_to_owner || get.wait_ms > 0);
        if bound_to_owner && self.may_win(owner) == Err(Refusal::TooManyLocks) {
            let keys_max = self.limits.locks_settled_max;
            let keys = self.wins.bound.some_of(owner, get.key, keys_max);
            let others = keys.into_iter().map(DueKey::win);
            return others.filter(|due| due.key() != get.key).collect();
        }
        Vec::new()
    }

    /// The locks and the bound wins of `owner`.
    #[must_use]
    pub fn held(&self, owner: Owner) -> OwnerUsage {
        OwnerUsage {
            wins: self.wins.bound.won_by(owner),
            ..self.locks.table.held_by(owner).unwrap_or_default()
        }
    }

    /// The next result besides replies.
    pub fn poll(&mut self) -> Option<Notification> {
        if self.locks.table.has_ends() {
            let (ends, missed) = self.locks.table.take_ends();
            return Some(Notification::LocksEnded { ends, missed });
        }
        if let Some(over) = self.expired.pop_front() {
            return Some(Notification::SessionExpired(over));
        }
        let notice = self.next_notice()?;
        if notice.owner.is_session() {
            self.sessions.end_wait(self.now, notice.owner);
        }
        Some(Notification::WaitOver(notice))
    }

    /// Whether there may be a [notification](Self::poll) or a [deadline](Self::next_deadline).
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.has_waits()
            || self.locks.table.has_ends()
            || !self.left.is_empty()
            || !self.expired.is_empty()
            || !self.sessions.is_empty()
    }

    /// The next notice of a wait that is over, for a lock or a value. One call may end thousands of waits; a transport with
    /// other clients may take some of the notices now and the rest a little later.
    fn next_notice(&mut self) -> Option<Notice> {
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
    #[must_use]
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Whether any client waits, or has a notice that no transport has taken.
    #[inline]
    #[must_use]
    pub fn has_waits(&self) -> bool {
        !self.locks.queue.is_empty() || self.has_notices() || !self.wins.queue.is_empty()
    }

    /// The next moment at which a wait ends by itself, or the lease of a lock with waiters expires; now if keys with waiters
    /// are due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.left.is_empty()
            || self.locks.table.has_handovers()
            || self.wins.queue.is_on_round()
        {
            return Some(self.now);
        }
        let deadlines = [
            self.locks.queue.next(),
            self.locks.table.next_waited_lease(),
            self.wins.queue.next(),
            self.sessions.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The next moment at which a key is due: now if one is. To be asked for before an owner's bounds are judged.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        if self.has_due() {
            return Some(self.now);
        }
        let moments = [
            self.locks.queue.next(),
            self.locks.table.next_lease(),
            self.wins.queue.next(),
            self.sessions.next_deadline(),
        ];
        moments.into_iter().flatten().min()
    }

    /// Whether there is more to do than one tick does: then the next may come soon.
    #[must_use]
    pub fn wants_tick(&self) -> bool {
        let is_crowded = !self.has_room_in_tables(self.limits.lock_table_bytes_max / 2);
        self.locks.table.has_handovers()
            || !self.left.is_empty()
            || self.locks.table.has_over() && is_crowded
            || self.wins.bound.has_line()
    }

    /// The bytes that the tables take of the memory limit.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.locks.table.table_bytes()
            + self.locks.queue.table_bytes()
            + self.wins.bound.table_bytes()
            + self.wins.queue.table_bytes()
    }

    /// Whether the tables may take so many bytes more.
    pub(super) const fn has_room_in_tables(&self, bytes: usize) -> bool {
        self.table_bytes() + bytes <= self.limits.lock_table_bytes_max
    }

    /// Whether no table may grow.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// The part of the tables' memory that each shard leaves free, if they take `more` bytes more.
    pub(super) const fn part_of_tables(&self, more: usize) -> usize {
        (self.table_bytes() + more).div_ceil(self.shards)
    }

    /// Whether the tables have grown so much that all shards are to leave memory free for them.
    #[inline]
    #[must_use]
    pub const fn wants_spread(&self) -> bool {
        self.shards > 1 && self.table_bytes() >= self.spread_bytes + SPREAD_BYTES
    }

    /// All shards are to leave this part of the tables' memory free.
    pub(super) const fn begin_spread(&mut self) -> usize {
        self.spread_bytes = self.table_bytes();
        self.part_of_tables(0)
    }

    /// All shards leave their part free, or one of them cannot.
    pub(super) const fn end_spread(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// From now on the end of each lock is handed out by [`Self::poll`], or not.
    pub fn report_ends(&mut self, is_on: bool) {
        self.locks.table.keep_ends(is_on);
    }

    /// No lock is granted until this moment, with `None` for ever. A longer time that an earlier call asked for stays in force.
    pub fn withhold_grants(&mut self, until: Option<Instant>) {
        self.locks.queue.withhold(until);
    }

    /// Its counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            counters: self.counters,
            gauges: Gauges {
                locks_held: self.locks.table.len() as u64,
                lock_holders: self.locks.table.holders() as u64,
                lock_waiting: self.locks.queue.len() as u64,
                wins_bound: self.wins.bound.len() as u64,
                get_waiting: self.wins.queue.len() as u64,
                ..Gauges::default()
            },
        }
    }

    /// The keys that are due because a waiter has left or a lease has expired.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn left(&self) -> BTreeSet<Key<'_>> {
        self.left.iter().map(|key| as_key(key)).collect()
    }
}
