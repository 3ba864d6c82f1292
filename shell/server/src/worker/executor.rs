//! Executes one connection's requests on the server's items during one turn, and logs them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use latchd_core::sessions::Asker;
use latchd_core::{ConnId, Instant, Output};
use latchd_protocol::command::{Command, GlobalCommand};
use latchd_protocol::connection::{Connection, Progress};
use latchd_protocol::execute::Execute;
use latchd_protocol::reply::{MemoryRefused, Refusal, Reply};
use latchd_protocol::session::{
    Open, SessionAction, SessionRefusal, SessionReply, SessionRequest, Token,
};
use latchd_protocol::stats::Unstored;
use latchd_protocol::watch::{Asked, Topic, Topics, Watched, all_unlocked, each_line};
use latchd_protocol::wire::Claim;

use crate::clients::budget::Holder;
use crate::clients::lock_log;
use crate::clients::roster::Entry;
use crate::clients::watch::Watcher;
use crate::sessions::Membership;
use crate::shards::ShardSession;
use crate::shared::Shared;
use crate::sync::clock;
use crate::worker::backend::{Backend, Visit};
use crate::worker::request_log::{log_bytes, log_connect, loggable, tail};
use crate::worker::turn::{HEAVY, WHOLE_TURN, Work};

impl Backend for Shared {
    type Session = ClientSession;

    fn conn(session: &ClientSession) -> ConnId {
        session.own.conn()
    }

    // While a client of a session waits, only the end of its connection shows that it is dead.
    fn may_hold(session: &ClientSession) -> bool {
        session.own.may_hold() || session.part.membership.attached().is_some()
    }

    fn holds(&self, now: Instant, session: &ClientSession) -> bool {
        self.shards.holds(now, &session.own)
    }

    fn relies(&self, now: Instant, session: &ClientSession) -> bool {
        session.part.membership.attached().is_some() || self.shards.has_anything(now, &session.own)
    }

    #[inline]
    fn serves(&self) -> bool {
        Self::serves(self)
    }

    fn note_first_bytes(&self, conn: u64, entry: &Entry) {
        if self.is_verbose() && !self.logs_probes() {
            log_connect(conn, &entry.peer());
        }
    }

    #[inline]
    fn drive(
        &self,
        visit: Visit<'_, ClientSession>,
        wire: &mut Connection,
        input: &[u8],
        output: &mut Output,
        output_bytes_max: usize,
    ) -> (usize, Progress) {
        let Visit {
            now,
            session,
            request,
            work,
            watcher,
        } = visit;
        let ClientSession { own, part } = session;
        let visit = Visit {
            now,
            session: own,
            request,
            work,
            watcher,
        };
        if part.membership.attached().is_some() {
            return self.drive_in_session(visit, part, wire, input, output, output_bytes_max);
        }
        self.drive_as(visit, part, wire, input, output, output_bytes_max)
    }

    fn close(&self, now: Instant, session: ClientSession) {
        let ClientSession { own: session, part } = session;
        if let Some(place) = part.membership.attached() {
            self.tell_session("detach", place.owner(), Some(part.conn));
        }
        self.sessions.leave(now, session.conn(), &part.membership);
        let held = session.may_hold().then(|| session.conn());
        self.shards.close(now, session);
        if let Some(conn) = held
            && self.watch.wanted().contain(Topic::Locks)
        {
            self.tell(Topic::Locks, conn.number(), &all_unlocked("closed", conn));
        }
    }

    fn forget_watcher(&self, watcher: &Watcher) {
        self.watch.remove(watcher);
    }

    fn dead_peer(&self) -> Duration {
        self.config.dead_peer
    }
}

/// What the server knows of a connection.
#[derive(Debug)]
pub(crate) struct ClientSession {
    /// The connection as an owner of its own.
    own: ShardSession,
    part: Part,
}

/// A connection's part in sessions.
#[derive(Debug)]
struct Part {
    conn: ConnId,
    holder: Holder,
    membership: Membership,
    /// A number for its user, once it is authenticated.
    user: Option<u128>,
    /// A number for its host.
    host: u128,
}

impl Part {
    /// The connection, as sessions see it.
    fn asker(&self) -> Asker {
        Asker {
            conn: self.conn,
            user: self.user,
            address: self.host,
            attached: self.membership.attached().map(|place| place.owner()),
        }
    }
}

impl ClientSession {
    /// A connection without locks and without a session.
    pub(crate) fn new(conn: ConnId, holder: Holder, host: u128) -> Self {
        Self {
            own: ShardSession::new(conn, holder),
            part: Part {
                conn,
                holder,
                membership: Membership::No,
                user: None,
                host,
            },
        }
    }
}

impl Shared {
    /// Executes requests for the session of the connection.
    #[cold]
    #[inline(never)]
    fn drive_in_session(
        &self,
        visit: Visit<'_, ShardSession>,
        part: &mut Part,
        wire: &mut Connection,
        input: &[u8],
        output: &mut Output,
        output_bytes_max: usize,
    ) -> (usize, Progress) {
        let Some(place) = part.membership.attached().map(Arc::clone) else {
            return (0, Progress::Close);
        };
        let mut locks = place.lock();
        // N2
        let Some(session) = locks.as_mut() else {
            return (0, Progress::Close);
        };
        let now = visit.now;
        // The round may have begun before the client sent this, and the client counts from then (S4).
        place.note_turn(self.clock.now());
        let visit = Visit { session, ..visit };
        let driven = self.drive_as(visit, part, wire, input, output, output_bytes_max);
        if driven.1 == Progress::Waiting {
            place.note_waiting();
        }
        // The session was ended meanwhile, by its own connection.
        if part.membership.attached().is_none()
            && let Some(session) = locks.take()
        {
            self.shards.close(now, session);
        }
        driven
    }

    /// Executes requests for the owner that `visit` has: the connection, or its session.
    #[expect(
        clippy::inline_always,
        reason = "a call costs more than all else that it does"
    )]
    #[inline(always)]
    fn drive_as(
        &self,
        visit: Visit<'_, ShardSession>,
        part: &mut Part,
        wire: &mut Connection,
        input: &[u8],
        output: &mut Output,
        output_bytes_max: usize,
    ) -> (usize, Progress) {
        let Visit {
            now,
            session,
            request,
            work,
            watcher,
        } = visit;
        if let Some(request) = request {
            session.keep_in(Some(request.clone()));
        }
        let mut core = Executor {
            shared: self,
            now,
            session,
            part,
            work,
            watcher,
            is_meta: false,
        };
        let driven = if self.config.verbosity < 2 {
            wire.drive(input, &mut core, output, output_bytes_max)
        } else {
            drive_verbose(wire, input, &mut core, output, output_bytes_max)
        };
        if request.is_some() {
            core.session.keep_in(None);
        }
        driven
    }
}

/// The server's items as one connection sees them during one turn.
struct Executor<'a> {
    /// The server.
    shared: &'a Shared,
    /// The current time.
    now: Instant,
    /// The shards' state of the connection.
    session: &'a mut ShardSession,
    /// Its part in sessions.
    part: &'a mut Part,
    /// The work allowed in the rest of this turn.
    work: &'a mut Work,
    /// Its queue of log lines, if it watches.
    watcher: &'a mut Option<Arc<Watcher>>,
    /// The next command uses the meta protocol.
    is_meta: bool,
}

impl Execute for Executor<'_> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        let Self {
            shared,
            now,
            session,
            part: _,
            work,
            watcher: _,
            is_meta,
        } = self;
        let is_meta = std::mem::take(is_meta);
        work.note_executed();
        if let Some(member) = &shared.member
            && let Some(partition) = member.other_partition(command)
        {
            return answer(&Reply::KeyOf(partition));
        }
        if let (Some(beliefs), Command::Item(item)) = (&shared.beliefs, command)
            && beliefs.cover_lease(item).is_err()
        {
            return answer(&Reply::Refused(Refusal::Unrecorded));
        }
        if let Command::Global(global) = command {
            work.spend(HEAVY);
            if let GlobalCommand::StatsReset = global {
                shared.connection_stats.reset();
                shared.waiters.forget_times();
                shared.sessions.reset_counters();
                shared.watch.reset();
            }
        }
        let wanted = shared.watch.wanted();
        if shared.config.verbosity >= 3 || !wanted.is_none() {
            self.execute_aloud(wanted, is_meta, command, answer);
        } else {
            let lines = |topic| shared.stats_page(topic);
            shared
                .shards
                .execute(*now, session, command, &lines, answer);
        }
        if let units @ 1.. = self.session.take_work() {
            self.work.spend(units);
        }
    }

    fn hold_ms(&mut self) -> Option<u64> {
        let member = self.shared.member.as_ref()?;
        Some(member.promise_ms())
    }

    fn cluster(&mut self) -> Option<Arc<str>> {
        self.shared.member.as_ref()?.servers()
    }

    fn note_meta(&mut self) {
        self.is_meta = true;
        self.work.note_meta();
    }

    fn note_unstored(&mut self, why: Unstored) {
        self.shared.shards.note_unstored(self.now, why);
    }

    fn admits(&mut self, claim: Option<Claim<'_>>) -> bool {
        self.work.note_executed();
        let passwords = self.shared.passwords.as_ref();
        let is_valid = passwords
            .zip(claim)
            .is_some_and(|(passwords, claim)| passwords.admits(claim.name, claim.password));
        self.shared.connection_stats.count_authentication(is_valid);
        if let Some(claim) = claim.filter(|_| is_valid) {
            self.part.user = Some(self.shared.sessions.hash(claim.name));
        }
        if self.shared.is_verbose() {
            self.log_login(claim, is_valid);
        }
        is_valid
    }

    fn watch(&mut self, topics: Topics) -> Watched {
        self.work.note_executed();
        match self.shared.watch.add(self.part.conn.number(), topics) {
            Ok(watcher) => {
                *self.watcher = Some(watcher);
                // Evictions from now on are reported.
                self.shared.tell_evicted();
                Watched::Yes
            }
            Err(watched) => watched,
        }
    }

    #[cold]
    fn session(&mut self, request: SessionRequest<'_>) -> SessionReply {
        self.work.note_executed();
        // As above: not the time of the round.
        let (shared, now) = (self.shared, self.shared.clock.now());
        let part = &mut *self.part;
        let asker = part.asker();
        let attached = asker.attached;
        match request.action {
            SessionAction::Open {
                seconds,
                only_resumes,
            } => {
                if attached.is_none() && shared.shards.has_anything(now, self.session) {
                    return SessionReply::Refused(SessionRefusal::Holds);
                }
                if let Some(beliefs) = &shared.beliefs
                    && beliefs.cover(seconds).is_err()
                {
                    return SessionReply::Refused(SessionRefusal::Unrecorded);
                }
                let open = Open {
                    token: request.token,
                    // The clock shows whole milliseconds that have begun: a session must not end one too early.
                    ttl_ms: u64::from(seconds) * 1_000 + 1,
                    only_resumes,
                };
                let numbers = || shared.next_number();
                let (reply, membership) =
                    shared.sessions.open(now, asker, part.holder, open, numbers);
                if attached.is_none() {
                    if let Some(place) = membership.attached() {
                        // The next request has another owner.
                        self.work.spend(WHOLE_TURN);
                        if let Some(session) = place.lock().as_mut() {
                            session.move_to(part.conn, part.holder);
                        }
                    }
                    part.membership = membership;
                }
                match reply {
                    SessionReply::Opened(owner) => {
                        shared.tell_session("open", owner, Some(part.conn));
                    }
                    SessionReply::Resumed(owner) if attached.is_none() => {
                        shared.tell_session("resume", owner, Some(part.conn));
                    }
                    SessionReply::Resumed(_)
                    | SessionReply::Ended
                    | SessionReply::NotFound
                    | SessionReply::Waits
                    | SessionReply::Refused(_) => {}
                }
                reply
            }
            SessionAction::End => {
                let (shards, token) = (&shared.shards, request.token);
                let owner = match shared.sessions.end(now, shards, token, asker) {
                    Ok(owner) => owner,
                    Err(SessionRefusal::NoSession) => return SessionReply::NotFound,
                    Err(refusal) => return SessionReply::Refused(refusal),
                };
                shared.tell_session("end", owner, Some(part.conn));
                if attached == Some(owner) {
                    // The next request has another owner.
                    self.work.spend(WHOLE_TURN);
                    part.membership = Membership::No;
                }
                SessionReply::Ended
            }
        }
    }

    #[cold]
    fn execute_as(
        &mut self,
        token: Token<'_>,
        command: &Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) -> Result<(), SessionRefusal> {
        let place = self.shared.sessions.find(token, self.part.asker())?;
        if self.part.membership.attached().is_some() {
            self.execute(command, answer);
            return Ok(());
        }
        let mut locks = place.lock();
        let session = locks.as_mut().ok_or(SessionRefusal::NoSession)?;
        place.note_heard(self.shared.clock.now());
        let mut core = Executor {
            session,
            part: self.part,
            work: self.work,
            watcher: self.watcher,
            ..*self
        };
        core.execute(command, answer);
        Ok(())
    }

    fn read_certificates(&mut self) -> Result<(), String> {
        self.work.spend(HEAVY);
        let keys = self.shared.keys.as_ref();
        let keys = keys.ok_or("Error TLS not enabled")?;
        keys.reload().map_err(|error| format!("Error {error}"))
    }

    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        self.work.note_executed();
        self.work.spend(HEAVY);
        let done = self.shared.shards.limit_memory(self.now, bytes);
        if !self.shared.is_verbose() {
            return done;
        }
        let (conn, mib) = (self.part.conn, bytes >> 20);
        match done {
            Ok(()) => tracing::info!(
                event = "memory_limit",
                conn = conn.number(),
                "{conn} set the memory limit to {mib} MiB"
            ),
            Err(why) => {
                let why = match why {
                    MemoryRefused::Fixed => "the limit cannot change while the server runs",
                    MemoryRefused::TooSmall => "each shard needs room for two values of size -I",
                    MemoryRefused::TooLarge => "the limit exceeds the address space set by -m",
                    MemoryRefused::Locked => {
                        "held locks use more than their share of the new limit"
                    }
                };
                tracing::warn!(
                    event = "memory_limit_refused",
                    conn = conn.number(),
                    reason = why,
                    "refused cache_memlimit {mib} of {conn}"
                );
            }
        }
        done
    }

    fn shut_down(&mut self) {
        // One message is enough.
        let _ = self.shared.tell_shutdown.try_send(());
    }

    fn goes_on(&mut self) -> bool {
        self.work.spend(1);
        self.work.is_left()
    }
}

impl Executor<'_> {
    /// Logs a login. The name of a failed one may be a password, so it is not logged.
    fn log_login(&self, claim: Option<Claim<'_>>, is_admitted: bool) {
        let number = self.part.conn.number();
        let peer = self.shared.roster.find(number, self.now);
        let (peer, _) = peer.unwrap_or_default();
        if let Some(claim) = claim.filter(|_| is_admitted) {
            let user = lock_log::one_word(claim.name);
            tracing::info!(event = "login", conn = number, peer = %peer, user = %user, "logged in");
            return;
        }
        let reason = if claim.is_some() {
            "unknown name or wrong credentials"
        } else {
            "malformed credentials"
        };
        tracing::warn!(event = "login_failed", conn = number, peer = %peer, reason, "login failed");
    }

    /// Executes a command that is reported to watchers or logged. A function of its own, so the common case
    /// keeps nothing for it.
    #[cold]
    fn execute_aloud(
        &mut self,
        wanted: Topics,
        is_meta: bool,
        command: &Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let shared = self.shared;
        let (conn, owner) = (self.part.conn, self.session.owner());
        let unix_s = clock::unix_now().0;
        let found_bytes = Cell::new(None);
        // Reported after the shard is unlocked.
        let mut told = Vec::new();
        let mut answer = |reply: &Reply<'_>| {
            let asked = Asked {
                conn,
                session: owner.is_session().then(|| owner.number()),
                is_meta,
                unix_s,
                found_bytes: found_bytes.get(),
            };
            each_line(wanted, asked, command, reply, &mut |topic, line| {
                told.push((topic, line));
            });
            if shared.config.verbosity >= 3 {
                lock_log::answered(owner, command, reply);
            }
            answer(reply);
        };
        let (now, shards) = (self.now, &shared.shards);
        match command {
            Command::Item(item) => {
                let (session, found) = (&mut *self.session, &found_bytes);
                shards.execute_watched(now, session, item, found, &mut answer);
            }
            Command::Global(_) => {
                let lines = |topic| shared.stats_page(topic);
                shards.execute(now, self.session, command, &lines, &mut answer);
            }
        }
        for (topic, line) in told {
            shared.tell(topic, conn.number(), &line);
        }
    }
}

/// Executes one request at a time, and logs it and its reply in memcached's format.
fn drive_verbose(
    wire: &mut Connection,
    input: &[u8],
    core: &mut Executor<'_>,
    output: &mut Output,
    output_bytes_max: usize,
) -> (usize, Progress) {
    let number = core.part.conn;
    let mut done = 0;
    loop {
        let answered = output.len();
        let is_known = wire.is_admitted();
        let (consumed, progress) = wire.drive(&input[done..], core, output, answered + 1);
        let request = loggable(&input[done..done + consumed], is_known);
        log_bytes("request", '<', number.number(), request);
        log_bytes("answer", '>', number.number(), &tail(output, answered));
        done += consumed;
        if progress != Progress::OutputFull || output.len() >= output_bytes_max {
            return (done, progress);
        }
    }
}
