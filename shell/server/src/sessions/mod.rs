//! Sessions over all workers: the table, the state of each session, and the connections attached to it.
//!
//! The folder holds these. It uses `shards`, `clients`, `stats` and `sync`. The rules are the core's
//! ([`latchd_core::sessions`]).
//!
//! - N1: A session's locks are used under its [`Place`]'s mutex: by the attached connection for a turn, by a request
//!   in the session (`j`) for one command. A thread that has one such mutex waits for no other, and not while it has
//!   the table.
//! - N2: A session ends once. Whoever takes its [`ShardSession`] out of the place releases its locks; a connection that
//!   finds the place empty is closed, and executes nothing.
//! - N3: Requests renew a session without the table: they note the time in the place. The clock reads it when the
//!   session is due.
//! - N4: A session ends at its time, not a tick later: the clock is told of its deadline.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use latchd_core::sessions::{Asker, EndedSession, SessionCounters, SessionLimits, Sessions};
use latchd_core::{ConnId, Instant, Owner};
use latchd_protocol::session::{Open, SessionRefusal, SessionReply, Token};
use latchd_protocol::stats::StatsLine;
use latchd_protocol::wait::Outcome;

use crate::clients::budget::Holder;
use crate::clients::mailbox::{Mailbox, Message};
use crate::clients::waiters::Waiters;
use crate::shards::{ShardSession, Shards};
use crate::stats::connection_stats::line;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// A session whose client waits is heard until its connection closes.
const WAITING: u64 = u64::MAX;

/// The number of sessions on one page of `stats sessions`.
const SESSIONS_PER_PAGE: usize = 64;

/// The sessions of a server.
pub(crate) struct Registry {
    table: Mutex<Table>,
    waiters: Arc<Waiters>,
    mailboxes: Arc<[Mailbox]>,
}

struct Table {
    sessions: Sessions<Arc<Place>>,
    /// The attached connections and those that wait for a session: how their workers reach them.
    holders: BTreeMap<ConnId, Holder>,
}

/// The state of one session.
#[derive(Debug)]
pub(crate) struct Place {
    owner: Owner,
    /// Its locks; `None` once it has ended (N2).
    shard: Mutex<Option<ShardSession>>,
    /// When its client was last heard, in milliseconds; or [`WAITING`].
    heard_ms: AtomicU64,
}

/// A connection's part in a session.
#[derive(Debug, Default)]
pub(crate) enum Membership {
    /// None.
    #[default]
    No,
    /// It is attached.
    Attached(Arc<Place>),
    /// It waits for the end of another connection.
    Waits(Owner),
}

impl Membership {
    /// The state of its session.
    #[inline]
    pub(crate) const fn attached(&self) -> Option<&Arc<Place>> {
        match self {
            Self::Attached(place) => Some(place),
            Self::No | Self::Waits(_) => None,
        }
    }
}

/// A session, as `stats sessions` and the status port show it.
#[derive(Clone, Debug)]
pub(crate) struct SessionShown {
    pub(crate) owner: Owner,
    /// The attached connection.
    pub(crate) conn: Option<ConnId>,
    pub(crate) ttl_ms: u64,
    /// How long it lasts if its client is not heard.
    pub(crate) left_ms: u64,
    pub(crate) age_ms: u64,
}

impl Place {
    /// Its owner.
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    /// Its locks, for one turn of the attached connection or one command (N1).
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<ShardSession>> {
        self.shard
            .lock()
            .expect("a session that failed an assertion is not used again")
    }

    /// The attached connection has a turn: its client waits no longer. To be called with its locks (N1), so that it does
    /// not end meanwhile.
    pub(crate) fn note_turn(&self, now: Instant) {
        self.end_waiting(now);
        self.note_heard(now);
    }

    /// Its client was heard on any connection; one that waits goes on waiting. To be called with its locks (N1).
    pub(crate) fn note_heard(&self, now: Instant) {
        self.heard_ms.fetch_max(now.as_millis(), Ordering::SeqCst);
    }

    /// A client that has waited was heard until now. The time of one that did not wait stays, also if another thread notes
    /// it just now.
    fn end_waiting(&self, now: Instant) {
        let (waiting, now_ms) = (WAITING, now.as_millis());
        let order = Ordering::SeqCst;
        // A failure means that it did not wait.
        let _ = self
            .heard_ms
            .compare_exchange(waiting, now_ms, order, order);
    }

    /// Its client waits, until it is heard again or its connection closes.
    pub(crate) fn note_waiting(&self) {
        self.heard_ms.store(WAITING, Ordering::SeqCst);
    }

    /// When its client was last heard, by `now`.
    fn heard_at(&self, now: Instant) -> Instant {
        match self.heard_ms.load(Ordering::SeqCst) {
            WAITING => now,
            ms => Instant::from_millis(ms),
        }
    }

    /// Takes its locks if its client was not heard since `known` and its time has passed. Returns when it was heard
    /// otherwise.
    fn end_if_silent(
        &self,
        now: Instant,
        known: Instant,
        ttl_ms: u64,
        locks: &mut Option<ShardSession>,
    ) -> Option<Instant> {
        // A thread that has it hears its client just now.
        let Ok(mut shard) = self.shard.try_lock() else {
            return Some(now);
        };
        let heard = self.heard_at(now).max(known);
        if heard.as_millis().saturating_add(ttl_ms) > now.as_millis() {
            return Some(heard);
        }
        *locks = shard.take();
        None
    }
}

impl Registry {
    /// No sessions, and at most as many as `limits` say.
    pub(crate) fn new(
        limits: SessionLimits,
        waiters: Arc<Waiters>,
        mailboxes: Arc<[Mailbox]>,
    ) -> Self {
        // Two numbers that no client can guess, from the system's randomness.
        let random = RandomState::new();
        let seed = [random.hash_one(0), random.hash_one(1)];
        Self {
            table: Mutex::new(Table {
                sessions: Sessions::new(limits, seed),
                holders: BTreeMap::new(),
            }),
            waiters,
            mailboxes,
        }
    }

    /// A name as the sessions compare it.
    pub(crate) fn hash(&self, name: &[u8]) -> u128 {
        self.table().sessions.hash(name)
    }

    /// Opens or resumes a session for a connection; `numbers` gives an unused number.
    pub(crate) fn open(
        &self,
        now: Instant,
        asker: Asker,
        holder: Holder,
        open: Open<'_>,
        numbers: impl FnOnce() -> u64,
    ) -> (SessionReply, Membership) {
        let mut table = self.table();
        let make = || {
            let owner = Owner::of_session(numbers());
            let shard = ShardSession::of_session(owner, asker.conn, holder);
            let place = Place {
                owner,
                shard: Mutex::new(Some(shard)),
                heard_ms: AtomicU64::new(now.as_millis()),
            };
            (owner, Arc::new(place))
        };
        let opening = table.sessions.open(now, asker, open, make);
        let session = opening.owner.and_then(|owner| table.sessions.get(owner));
        let membership = match session {
            None => Membership::No,
            Some(session) if opening.reply == SessionReply::Waits => {
                Membership::Waits(session.owner)
            }
            Some(session) => Membership::Attached(Arc::clone(&session.state)),
        };
        match membership {
            Membership::Attached(_) | Membership::Waits(_) => {
                table.holders.insert(asker.conn, holder);
            }
            // A refusal changes nothing: it is attached, and another connection may take over from it.
            Membership::No if asker.attached.is_some() => {}
            // It has waited for a session that has ended, and nobody reaches it any more.
            Membership::No => {
                table.holders.remove(&asker.conn);
            }
        }
        let closes = opening
            .closes
            .and_then(|conn| table.holders.get(&conn).copied());
        let due = table.sessions.next_deadline();
        drop(table);
        self.close(closes);
        if let Some(at) = due {
            self.waiters.note_deadline(at);
        }
        (opening.reply, membership)
    }

    /// The state of the session with this token, for a request in it (`j`).
    ///
    /// # Errors
    /// As [`Sessions::find`].
    pub(crate) fn find(
        &self,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<Arc<Place>, SessionRefusal> {
        let table = self.table();
        let session = table.sessions.find(token, asker)?;
        Ok(Arc::clone(&session.state))
    }

    /// Ends the session with this token. Returns the owner that it was. If the connection is attached to it, its locks are left
    /// to the caller, who has them (N1).
    ///
    /// # Errors
    /// As [`Sessions::end`].
    pub(crate) fn end(
        &self,
        now: Instant,
        shards: &Shards,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<Owner, SessionRefusal> {
        let mut table = self.table();
        let ended = table.sessions.end(token, asker)?;
        let is_own = asker.attached == Some(ended.owner);
        let (conn, taker) = Self::forget(&mut table, &ended, is_own);
        drop(table);
        if !is_own {
            let locks = ended.state.lock().take();
            if let Some(locks) = locks {
                shards.close(now, locks);
            }
        }
        self.close(conn);
        self.wake(taker);
        Ok(ended.owner)
    }

    /// A connection has closed that was attached to a session, or has waited for it.
    pub(crate) fn leave(&self, now: Instant, conn: ConnId, membership: &Membership) {
        let (owner, heard) = match membership {
            Membership::No => return,
            Membership::Attached(place) => {
                // Its last wait ends with it.
                place.end_waiting(now);
                (place.owner, place.heard_at(now))
            }
            Membership::Waits(owner) => (*owner, now),
        };
        let mut table = self.table();
        table.holders.remove(&conn);
        table.sessions.heard(owner, heard);
        let told = table.sessions.detach(owner, conn);
        let told = told.and_then(|conn| table.holders.get(&conn).copied());
        drop(table);
        self.wake(told);
    }

    /// Ends the sessions whose clients were not heard for their time, says so to `tell`, and tells the clock when the next
    /// is due (N4).
    pub(crate) fn end_due(&self, now: Instant, shards: &Shards, tell: impl Fn(Owner)) {
        loop {
            let mut table = self.table();
            let mut locks = None;
            let ended = table.sessions.end_due(now, |session| {
                let state = &session.state;
                state.end_if_silent(now, session.heard_at, session.ttl_ms, &mut locks)
            });
            let Some(ended) = ended else {
                if let Some(at) = table.sessions.next_deadline() {
                    self.waiters.note_deadline(at);
                }
                return;
            };
            let (conn, taker) = Self::forget(&mut table, &ended, false);
            drop(table);
            if let Some(locks) = locks {
                shards.close(now, locks);
            }
            self.close(conn);
            self.wake(taker);
            tell(ended.owner);
        }
    }

    /// How to reach the attached connection of a session that has ended, which is to be closed unless it is the one that
    /// asks, and the one that waits for the session.
    fn forget(
        table: &mut Table,
        ended: &EndedSession<Arc<Place>>,
        is_own: bool,
    ) -> (Option<Holder>, Option<Holder>) {
        let conn = ended.attached.and_then(|conn| table.holders.remove(&conn));
        let taker = ended
            .taker
            .and_then(|conn| table.holders.get(&conn).copied());
        (conn.filter(|_| !is_own), taker)
    }

    /// Has a connection closed that has lost its session.
    fn close(&self, holder: Option<Holder>) {
        if let Some(Holder { worker, name }) = holder {
            self.mailboxes[worker].post(Message::LostSession(name));
        }
    }

    /// Has a connection ask again that waits for a session.
    fn wake(&self, holder: Option<Holder>) {
        if let Some(Holder { worker, name }) = holder {
            self.mailboxes[worker].post(Message::WaitEnded(name, Outcome::Granted));
        }
    }

    /// The lines of `stats` about sessions.
    pub(crate) fn general_lines(&self) -> [StatsLine; 8] {
        let table = self.table();
        let SessionCounters {
            opened,
            resumed,
            expired,
            ended,
            missed,
            refused,
        } = table.sessions.counters();
        [
            line("sessions", table.sessions.len()),
            line("sessions_attached", table.holders.len()),
            line("sessions_opened", opened),
            line("sessions_resumed", resumed),
            line("sessions_expired", expired),
            line("sessions_ended", ended),
            line("session_misses", missed),
            line("session_refusals", refused),
        ]
    }

    /// The number of sessions, for the scenarios of threads.
    #[cfg(all(test, feature = "scheduled"))]
    pub(crate) fn count(&self) -> usize {
        self.table().sessions.len()
    }

    /// Asserts S1 and S6, for proofs. Returns the number of sessions, and of connections that have or want one.
    #[cfg(feature = "verify")]
    pub(crate) fn check(&self) -> (usize, usize) {
        let table = self.table();
        table.sessions.check();
        (table.sessions.len(), table.holders.len())
    }

    /// Sets the counters to 0.
    pub(crate) fn reset_counters(&self) {
        self.table().sessions.reset_counters();
    }

    /// The session that this owner is; `None` if it has ended.
    pub(crate) fn shown(&self, owner: Owner, now: Instant) -> Option<SessionShown> {
        self.table().shown(owner, now)
    }

    /// A page of `stats sessions`: the sessions behind the one with this number. Also returns the number behind which the
    /// next page begins.
    pub(crate) fn lines(&self, now: Instant, behind: u64) -> (Vec<StatsLine>, Option<u64>) {
        let table = self.table();
        let owners: Vec<_> = table
            .sessions
            .behind(Owner::of_session(behind))
            .take(SESSIONS_PER_PAGE)
            .map(|session| session.owner)
            .collect();
        let next = owners.last().filter(|_| owners.len() == SESSIONS_PER_PAGE);
        let next = next.map(|owner| owner.number());
        let shown = owners
            .into_iter()
            .filter_map(|owner| table.shown(owner, now));
        let mut lines = Vec::with_capacity(4 * SESSIONS_PER_PAGE);
        for session in shown {
            let mut show = |name, value: u64| {
                lines.push(StatsLine {
                    name: format!("{}:{name}", session.owner).into(),
                    value: value.to_string(),
                });
            };
            show("conn", session.conn.map_or(0, ConnId::number));
            show("secs", session.ttl_ms / 1_000);
            show("secs_left", session.left_ms.div_ceil(1_000));
            show("age", session.age_ms / 1_000);
        }
        (lines, next)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table
            .lock()
            .expect("a table that failed an assertion is not used again")
    }
}

impl Table {
    fn shown(&self, owner: Owner, now: Instant) -> Option<SessionShown> {
        let session = self.sessions.get(owner)?;
        let heard = session.state.heard_at(now).max(session.heard_at);
        let now_ms = now.as_millis();
        let ends_ms = heard.as_millis().saturating_add(session.ttl_ms);
        Some(SessionShown {
            owner,
            conn: session.attached.conn(),
            ttl_ms: session.ttl_ms,
            left_ms: ends_ms.saturating_sub(now_ms),
            age_ms: now_ms.saturating_sub(session.opened_at.as_millis()),
        })
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Registry").finish_non_exhaustive()
    }
}
