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
    SessionAction, SessionRefusal, SessionReply, SessionRequest, Token,
};
use latchd_protocol::stats::Unstored;
use latchd_protocol::watch::{Asked, Topic, Topics, Watched, all_unlocked, each_line};
use latchd_protocol::wire::Claim;

use crate::clients::budget::Holder;
use crate::clients::connection_table::Entry;
use crate::clients::lock_log;
use crate::clients::watch::Watcher;
use crate::server_state::ServerState;
use crate::shards::ShardSession;
use crate::sync::clock;
use crate::worker::backend::{Backend, ConnTurn};
use crate::worker::request_log::{log_bytes, log_connect, loggable, tail};
use crate::worker::turn::{HEAVY, Work};

impl Backend for ServerState {
    type Session = ClientSession;

    fn conn(session: &ClientSession) -> ConnId {
        session.own.conn()
    }

    // While a client of a session waits, only the end of its connection shows that it is dead.
    fn may_hold(session: &ClientSession) -> bool {
        session.own.may_hold()
    }

    fn holds(&self, now: Instant, session: &ClientSession) -> bool {
        self.shards.holds(now, &session.own)
    }

    fn relies(&self, now: Instant, session: &ClientSession) -> bool {
        session.own.attachment().is_some() || self.shards.has_anything(now, &session.own)
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
        part: ConnTurn<'_, ClientSession>,
        wire: &mut Connection,
        input: &[u8],
        output: &mut Output,
        output_bytes_max: usize,
    ) -> (usize, Progress) {
        let ConnTurn {
            now,
            session: client,
            request,
            work,
            watcher,
        } = part;
        if let Some(attachment) = client.own.attachment() {
            if client.own.has_lost() {
                return (0, Progress::Close);
            }
            // The round may have begun before the client sent this, and the client counts from then (S4).
            attachment.note_heard(self.clock.now());
        }
        if let Some(request) = request {
            client.own.keep_in(Some(request.clone()));
        }
        let mut core = Executor {
            shared: self,
            now,
            client,
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
            core.client.own.keep_in(None);
        }
        driven
    }

    fn close(&self, now: Instant, session: ClientSession) {
        let own = session.own;
        if let Some(attachment) = own.attachment()
            && !own.has_lost()
        {
            self.tell_session("detach", attachment.owner(), Some(own.conn()));
        }
        let held = own.may_hold().then(|| own.conn());
        self.shards.close(now, own);
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
    /// The connection as an owner, or its session.
    own: ShardSession,
    /// A number for its user, once it is authenticated.
    user: Option<u128>,
    /// A number for its host.
    host: u128,
}

impl ClientSession {
    /// A connection without locks and without a session.
    pub(crate) fn new(conn: ConnId, holder: Holder, host: u128) -> Self {
        Self {
            own: ShardSession::new(conn, holder),
            user: None,
            host,
        }
    }

    /// The connection, as sessions see it.
    fn asker(&self) -> Asker {
        let attached = self.own.attachment();
        Asker {
            conn: self.own.conn(),
            route: self.own.address().route(),
            user: self.user,
            address: self.host,
            attached: attached.map(|attachment| attachment.owner()),
        }
    }
}

/// The server's items as one connection sees them during one turn.
struct Executor<'a> {
    /// The server.
    shared: &'a ServerState,
    /// The current time.
    now: Instant,
    /// The connection.
    client: &'a mut ClientSession,
    /// The work allowed in the rest of this turn.
    work: &'a mut Work,
    /// Its queue of log lines, if it watches.
    watcher: &'a mut Option<Arc<Watcher>>,
    /// The next command uses the meta protocol.
    is_meta: bool,
}

impl Execute for Executor<'_> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>)) {
        let Self {
            shared,
            now,
            client,
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
                .execute(*now, &mut client.own, command, &lines, answer);
        }
        if let units @ 1.. = self.client.own.take_work() {
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
            self.client.user = Some(self.shared.shards.hash_name(self.now, claim.name));
        }
        if self.shared.is_verbose() {
            self.log_login(claim, is_valid);
        }
        is_valid
    }

    fn watch(&mut self, topics: Topics) -> Watched {
        self.work.note_executed();
        match self.shared.watch.add(self.conn().number(), topics) {
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
        let asker = self.client.asker();
        if let SessionAction::Open { seconds, .. } = request.action
            && let Some(beliefs) = &shared.beliefs
            && beliefs.cover(seconds).is_err()
        {
            return SessionReply::Refused(SessionRefusal::Unrecorded);
        }
        let (own, number) = (&mut self.client.own, || shared.next_number());
        let reply = shared.shards.session(now, own, asker, request, number);
        let tell = |event, owner| shared.tell_session(event, owner, Some(asker.conn));
        match reply {
            SessionReply::Opened(owner) => tell("open", owner),
            SessionReply::Resumed(owner) if asker.attached.is_none() => tell("resume", owner),
            SessionReply::Ended(owner) => tell("end", owner),
            SessionReply::Resumed(_) | SessionReply::NotFound | SessionReply::Refused(_) => {}
        }
        reply
    }

    #[cold]
    fn execute_as(
        &mut self,
        token: Token<'_>,
        command: &Command<'_>,
        answer: &mut impl FnMut(&Reply<'_>),
    ) -> Result<(), SessionRefusal> {
        let (shards, now) = (&self.shared.shards, self.shared.clock.now());
        let owner = shards.find_session(now, token, self.client.asker())?;
        let own = self.client.own.act_as(owner);
        self.execute(command, answer);
        self.client.own.act_again_as(own);
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
        let (conn, mib) = (self.conn(), bytes >> 20);
        match done {
            Ok(()) => tracing::info!(
                event = "memory_limit",
                conn = conn.number(),
                "{conn} set the memory limit to {mib} MiB"
            ),
            Err(why) => {
                let why = match why {
                    MemoryRefused::Fixed => "the limit cannot change while the server runs",
                    MemoryRefused::TooSmall => "each shard needs memory for two values of size -I",
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
    fn conn(&self) -> ConnId {
        self.client.own.conn()
    }

    /// Logs a login. The name of a failed one may be a password, so it is not logged.
    fn log_login(&self, claim: Option<Claim<'_>>, is_admitted: bool) {
        let number = self.conn().number();
        let peer = self.shared.connection_table.find(number, self.now);
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
        answer: &mut impl FnMut(&Reply<'_>),
    ) {
        let shared = self.shared;
        let (conn, owner) = (self.conn(), self.client.own.owner());
        let unix_s = clock::unix_now().0;
        let found_bytes = Cell::new(None);
        // Reported after the shard is unlocked.
        let mut reports = Vec::new();
        let mut answer = |reply: &Reply<'_>| {
            let asked = Asked {
                conn,
                session: owner.is_session().then(|| owner.number()),
                is_meta,
                unix_s,
                found_bytes: found_bytes.get(),
            };
            each_line(wanted, asked, command, reply, &mut |topic, line| {
                reports.push((topic, line));
            });
            if shared.config.verbosity >= 3 {
                lock_log::answered(owner, command, reply);
            }
            answer(reply);
        };
        let (now, shards) = (self.now, &shared.shards);
        match command {
            Command::Item(item) => {
                let (session, found) = (&mut self.client.own, &found_bytes);
                shards.execute_watched(now, session, item, found, &mut answer);
            }
            Command::Global(_) => {
                let lines = |topic| shared.stats_page(topic);
                shards.execute(now, &mut self.client.own, command, &lines, &mut answer);
            }
        }
        for (topic, line) in reports {
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
    let number = core.conn();
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
