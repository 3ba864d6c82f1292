//! The rules of sessions, written a second time: plainly, one event after the other, with an oracle for the locks.
//!
//! Source: docs/PROTOCOL.md, "Sessions".

use std::collections::BTreeMap;

use latchd_core::engine::Event;
use latchd_core::sessions::SessionLimits;
use latchd_core::{ConnId, Limits, Owner};
use latchd_harness::alphabet::{Input, UNIX_S_AT_START};
use latchd_harness::oracle::{Oracle, OwnedReply, SeenLock};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Refusal;

use super::said::{Said, Verb};
use crate::simulation::tally::Sessions;

/// The expected answer to a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Expected {
    /// This line.
    Line(String),
    /// It waits.
    Waits,
}

/// A session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) owner: Owner,
    ttl_ms: u64,
    heard_ms: u64,
    host: u128,
    /// The connection that executes its requests.
    pub(super) conn: Option<ConnId>,
    /// A request of its connection waits.
    waits: bool,
    /// Its client was heard until a wait was over, and not since: any thread may have ended the wait a little earlier.
    has_waited: bool,
}

impl Session {
    /// When it ends if its client is not heard. The clock shows whole milliseconds that have begun.
    pub(super) const fn ends_ms(&self) -> u64 {
        self.heard_ms + self.ttl_ms + 1
    }

    /// Whether its time is over.
    pub(super) const fn is_over(&self, now_ms: u64) -> bool {
        !self.waits && self.ends_ms() <= now_ms
    }

    /// Whether a request of its connection waits.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }
}

/// A connection.
#[derive(Clone, Copy, Debug)]
struct Seat {
    host: u128,
    /// The session that it believes to be attached to.
    session: Option<Owner>,
    /// Its request that waits.
    waiting: Option<Said>,
    /// It is to be closed.
    is_doomed: bool,
}

/// The expected state of a server.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    oracle: Oracle,
    keys: Vec<String>,
    limits: SessionLimits,
    sessions: BTreeMap<usize, Session>,
    seats: BTreeMap<ConnId, Seat>,
    /// The last number that a connection or a session got.
    last_number: u64,
    pub(super) tally: Sessions,
}

fn line(text: &str) -> Expected {
    Expected::Line(text.to_owned())
}

impl Judge {
    pub(super) fn new(keys: Vec<String>, limits: SessionLimits) -> Self {
        Self {
            oracle: Oracle::new(Limits::new(1 << 20, 64 << 10), UNIX_S_AT_START),
            keys,
            limits,
            sessions: BTreeMap::new(),
            seats: BTreeMap::new(),
            last_number: 0,
            tally: Sessions::default(),
        }
    }

    /// The sessions, with the numbers of their tokens.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (usize, &Session)> {
        self.sessions.iter().map(|(token, it)| (*token, it))
    }

    /// The request of a connection that waits.
    pub(super) fn waiting(&self, conn: ConnId) -> Option<Said> {
        self.seats.get(&conn)?.waiting
    }

    /// Whether a connection is to be closed.
    pub(super) fn is_doomed(&self, conn: ConnId) -> bool {
        self.seats.get(&conn).is_some_and(|seat| seat.is_doomed)
    }

    /// Whether the wait of a connection goes on.
    pub(super) fn still_waits(&self, conn: ConnId) -> bool {
        let owner = self.owner(conn);
        match self.waiting(conn) {
            Some(Said::Ask { key, .. }) => {
                let mut queue = self.oracle.queue(self.keys[key].as_bytes());
                queue.any(|waiting| waiting.conn == owner)
            }
            Some(Said::Open { .. } | Said::End { .. } | Said::Quit) | None => false,
        }
    }

    /// When the next wait ends by itself.
    pub(super) fn next_wait_ms(&self) -> Option<u64> {
        self.oracle.next_deadline_ms()
    }

    /// Takes the notices: their effects are compared. A client was heard until its wait was over.
    pub(super) fn take_notices(&mut self, now_ms: u64) {
        for notice in self.oracle.take_notices() {
            if let Some(session) = self.session(notice.owner)
                && session.waits
            {
                (session.heard_ms, session.waits) = (now_ms, false);
                session.has_waited = true;
            }
        }
    }

    /// The server knows how long a session lasts, up to `late_ms` less than expected after a wait.
    pub(super) fn adopt(&mut self, now_ms: u64, token: usize, left_ms: u64, late_ms: u64) {
        if let Some(session) = self.sessions.get_mut(&token)
            && session.has_waited
        {
            let heard_ms = (now_ms + left_ms).saturating_sub(session.ttl_ms + 1);
            if (session.heard_ms.saturating_sub(late_ms)..session.heard_ms).contains(&heard_ms) {
                session.heard_ms = heard_ms;
            }
        }
    }

    /// The owner of what a connection acquires.
    pub(super) fn owner(&self, conn: ConnId) -> Owner {
        self.attached(conn).unwrap_or_else(|| conn.into())
    }

    fn attached(&self, conn: ConnId) -> Option<Owner> {
        self.seats[&conn].session
    }

    fn seat(&mut self, conn: ConnId) -> &mut Seat {
        self.seats.get_mut(&conn).expect("it is connected")
    }

    fn session(&mut self, owner: Owner) -> Option<&mut Session> {
        let mut all = self.sessions.values_mut();
        all.find(|session| session.owner == owner)
    }

    fn event(&mut self, now_ms: u64, event: Event) {
        let _ = self.oracle.enter(now_ms, &Input::Event(event));
    }

    /// A connection is there.
    pub(super) fn connect(&mut self, now_ms: u64, conn: ConnId, host: u128) {
        self.last_number = conn.number();
        let seat = Seat {
            host,
            session: None,
            waiting: None,
            is_doomed: false,
        };
        self.seats.insert(conn, seat);
        self.event(now_ms, Event::Opened(conn.into()));
    }

    /// A connection has a turn: the client of its session is heard.
    pub(super) fn hear(&mut self, now_ms: u64, conn: ConnId) {
        if let Some(owner) = self.attached(conn)
            && let Some(session) = self.session(owner)
            && session.conn == Some(conn)
        {
            let is_late = session.is_over(now_ms);
            session.heard_ms = now_ms;
            (session.waits, session.has_waited) = (false, false);
            self.tally.heard_late += u64::from(is_late);
        }
    }

    /// A request of a connection is executed. `again`: it has waited.
    pub(super) fn execute(
        &mut self,
        now_ms: u64,
        conn: ConnId,
        said: Said,
        again: bool,
    ) -> Expected {
        let seat = self.seat(conn);
        seat.waiting = None;
        if seat.is_doomed {
            // S5: nothing is executed. Here it is even closed before it asks again.
            return line("SERVER_ERROR connection is closed");
        }
        let expected = match said {
            Said::Open {
                token,
                seconds,
                only_resumes,
            } => self.open(now_ms, conn, token, (seconds, only_resumes)),
            Said::End { token } => self.end(now_ms, conn, token),
            Said::Ask { verb, key, within } => self.ask(now_ms, conn, (verb, key, within), again),
            Said::Quit => line(""),
        };
        if expected == Expected::Waits {
            self.seat(conn).waiting = Some(said);
            if let Some(owner) = self.attached(conn)
                && let Some(session) = self.session(owner)
            {
                session.waits = true;
                self.tally.waits += 1;
            }
        }
        expected
    }

    fn open(
        &mut self,
        now_ms: u64,
        conn: ConnId,
        token: usize,
        (seconds, only_resumes): (u32, bool),
    ) -> Expected {
        let attached = self.attached(conn);
        let own = Some(Owner::from(conn));
        let mut keys = self.keys.iter();
        if attached.is_none() && keys.any(|key| self.oracle.holder(key.as_bytes()) == own) {
            self.tally.refused_holds += 1;
            return line("CLIENT_ERROR connection holds locks of its own");
        }
        self.end_if_over(now_ms, token);
        let found = self.sessions.get(&token).copied();
        if attached.is_some() && attached != found.map(|session| session.owner) {
            self.tally.refused_attached += 1;
            return line("CLIENT_ERROR attached to another session");
        }
        let ttl_ms = u64::from(seconds) * 1_000;
        let Some(mut session) = found else {
            if only_resumes {
                self.tally.missed += 1;
                return line("NF");
            }
            return self.open_new(now_ms, conn, token, ttl_ms);
        };
        session.heard_ms = session.heard_ms.max(now_ms);
        session.ttl_ms = ttl_ms;
        let loser = session.conn.replace(conn).filter(|loser| *loser != conn);
        session.waits &= loser.is_none();
        self.sessions.insert(token, session);
        if let Some(loser) = loser {
            self.seat(loser).is_doomed = true;
            self.tally.taken_over += 1;
        }
        let counter = if attached.is_some() {
            &mut self.tally.renewed
        } else {
            &mut self.tally.resumed
        };
        *counter += 1;
        self.seat(conn).session = Some(session.owner);
        Expected::Line(format!("HD n{} R", session.owner))
    }

    fn open_new(&mut self, now_ms: u64, conn: ConnId, token: usize, ttl_ms: u64) -> Expected {
        let host = self.seat(conn).host;
        let of_host = self.sessions.values().filter(|it| it.host == host).count();
        if self.sessions.len() >= self.limits.sessions_max || of_host >= self.limits.per_address_max
        {
            self.tally.refused_full += 1;
            return line("SERVER_ERROR too many sessions");
        }
        self.last_number += 1;
        let owner = Owner::of_session(self.last_number);
        let session = Session {
            owner,
            ttl_ms,
            heard_ms: now_ms,
            host,
            conn: Some(conn),
            waits: false,
            has_waited: false,
        };
        self.sessions.insert(token, session);
        self.event(now_ms, Event::Opened(owner));
        self.seat(conn).session = Some(owner);
        self.tally.opened += 1;
        Expected::Line(format!("HD n{owner} N"))
    }

    fn end(&mut self, now_ms: u64, conn: ConnId, token: usize) -> Expected {
        let attached = self.attached(conn);
        // What is due is done before a session is ended.
        self.pass(now_ms);
        let Some(session) = self.sessions.get(&token).copied() else {
            self.tally.missed += 1;
            return line("NF");
        };
        if attached.is_some_and(|own| own != session.owner) {
            self.tally.refused_attached += 1;
            return line("CLIENT_ERROR attached to another session");
        }
        let is_own = attached == Some(session.owner);
        self.remove(now_ms, token, is_own);
        if is_own {
            self.seat(conn).session = None;
            self.tally.ended += 1;
        } else {
            self.tally.ended_by_others += 1;
        }
        line("HD")
    }

    /// A session ends, and with it what it has. Its connection is to be closed, unless it has ended the session.
    fn remove(&mut self, now_ms: u64, token: usize, is_own: bool) {
        let session = self.sessions.remove(&token).expect("it was found");
        self.event(now_ms, Event::Closed(session.owner));
        if let Some(conn) = session.conn.filter(|_| !is_own) {
            self.seat(conn).is_doomed = true;
        }
    }

    fn ask(
        &mut self,
        now_ms: u64,
        conn: ConnId,
        (verb, key, within): (Verb, usize, Option<usize>),
        again: bool,
    ) -> Expected {
        let mut owner = self.owner(conn);
        if let Some(token) = within {
            if matches!(verb, Verb::Acquire { wait_ms: 1.. }) {
                self.tally.refused_within += 1;
                return line("CLIENT_ERROR w is not allowed with j");
            }
            self.end_if_over(now_ms, token);
            let Some(session) = self.sessions.get_mut(&token) else {
                self.tally.refused_within += 1;
                return line("CLIENT_ERROR no such session");
            };
            let named = session.owner;
            if owner.is_session() && owner != named {
                self.tally.refused_attached += 1;
                return line("CLIENT_ERROR attached to another session");
            }
            session.heard_ms = now_ms;
            self.tally.within += 1;
            owner = named;
        }
        if let Verb::Acquire { .. } = verb {
            // What is due is done before a request that may acquire something.
            self.pass(now_ms);
        }
        let name = self.keys[key].clone();
        let command = verb.command(Key::new(name.as_bytes()).expect("a key"));
        let command = if again {
            command.without_wait()
        } else {
            command
        };
        let had_it = self.oracle.holder(name.as_bytes()) == Some(owner);
        let reply = self.oracle.enter(now_ms, &Input::Command(owner, command));
        let reply = reply.expect("a command has a reply");
        if let OwnedReply::Granted { .. } = reply
            && owner.is_session()
        {
            let counter = if had_it {
                &mut self.tally.found
            } else {
                &mut self.tally.granted
            };
            *counter += 1;
        }
        spoken(&reply)
    }

    /// All that is due is done: sessions end whose clients were not heard for their time.
    pub(super) fn pass(&mut self, now_ms: u64) {
        self.event(now_ms, Event::Due);
        self.take_notices(now_ms);
        for token in self.over(now_ms) {
            self.end_if_over(now_ms, token);
        }
    }

    /// The sessions whose time is over.
    pub(super) fn over(&self, now_ms: u64) -> Vec<usize> {
        let over = self.sessions().filter(|(_, it)| it.is_over(now_ms));
        over.map(|(token, _)| token).collect()
    }

    /// A session ends if its time is over.
    pub(super) fn end_if_over(&mut self, now_ms: u64, token: usize) {
        let Some(session) = self.sessions.get(&token).copied() else {
            return;
        };
        if session.is_over(now_ms) {
            let mut keys = self.keys.iter();
            let holds = keys.any(|key| self.oracle.holder(key.as_bytes()) == Some(session.owner));
            self.tally.expired += 1;
            self.tally.expired_attached += u64::from(session.conn.is_some());
            self.tally.expired_holding += u64::from(holds);
            self.remove(now_ms, token, false);
        }
    }

    /// A connection has closed.
    pub(super) fn close(&mut self, now_ms: u64, conn: ConnId) {
        let mut left = 0;
        if let Some(owner) = self.attached(conn)
            && let Some(session) = self.session(owner)
            && session.conn == Some(conn)
        {
            if session.waits {
                (session.heard_ms, session.waits) = (now_ms, false);
                left = 1;
            }
            session.conn = None;
        }
        self.tally.places_left += left;
        self.seats.remove(&conn);
        self.event(now_ms, Event::Closed(conn.into()));
    }
}

/// The line of a reply.
fn spoken(reply: &OwnedReply) -> Expected {
    let seen = |SeenLock { lock: seen, .. }: &SeenLock, end: &str| {
        let (holder, held_s, waiting) = (seen.holder, seen.held_s, seen.waiting);
        Expected::Line(format!("LK h{holder} a{held_s} n{waiting}{end}"))
    };
    match reply {
        OwnedReply::Waits => Expected::Waits,
        OwnedReply::Contended(lock) => seen(lock, ""),
        OwnedReply::WouldDeadlock(lock) => seen(lock, " d"),
        OwnedReply::Withheld { waiting } => Expected::Line(format!("LK h0 a0 n{waiting}")),
        OwnedReply::Refused(Refusal::Locked) => line("LK"),
        OwnedReply::Granted { .. }
        | OwnedReply::Stored { .. }
        | OwnedReply::Deleted
        | OwnedReply::Unlocked => line("HD"),
        OwnedReply::NotFound => line("NF"),
        other => panic!("no request here has such a reply: {other:?}"),
    }
}
