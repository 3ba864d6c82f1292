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
    /// That connection has lost it.
    is_moving: bool,
    /// The connection that waits for that one to close.
    taker: Option<ConnId>,
    /// A request of its connection waits.
    waits: bool,
}

impl Session {
    /// When it ends if its client is not heard.
    pub(super) const fn ends_ms(&self) -> u64 {
        self.heard_ms + self.ttl_ms
    }

    /// Whether a request of its connection waits.
    pub(super) const fn waits(&self) -> bool {
        self.waits
    }
}

/// A connection's part in sessions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    None,
    Attached(Owner),
    Waits(Owner),
}

/// A connection.
#[derive(Clone, Copy, Debug)]
struct Seat {
    host: u128,
    part: Part,
    /// Its request that waits.
    waiting: Option<Said>,
    /// It is to be closed.
    is_doomed: bool,
}

/// The expected state of a server.
#[derive(Debug)]
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

    /// Forgets notices: their effects are compared.
    pub(super) fn forget_notices(&mut self) {
        let _ = self.oracle.take_notices();
    }

    /// The connections that believe to be attached to a session, or to have been.
    pub(super) fn attached_to(&self, owner: Owner) -> impl Iterator<Item = ConnId> {
        let all = self.seats.iter();
        let all = all.filter(move |(_, seat)| seat.part == Part::Attached(owner));
        all.map(|(conn, _)| *conn)
    }

    /// The owner of what a connection acquires.
    pub(super) fn owner(&self, conn: ConnId) -> Owner {
        match self.seats[&conn].part {
            Part::Attached(owner) => owner,
            Part::None | Part::Waits(_) => conn.into(),
        }
    }

    fn attached(&self, conn: ConnId) -> Option<Owner> {
        match self.seats[&conn].part {
            Part::Attached(owner) => Some(owner),
            Part::None | Part::Waits(_) => None,
        }
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
            part: Part::None,
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
        {
            let is_late = !session.waits && session.ends_ms() <= now_ms;
            session.heard_ms = now_ms;
            session.waits = false;
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
        let has_lost = seat.is_doomed;
        self.tally.by_losers += u64::from(has_lost);
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
        let found = self.sessions.get(&token).copied();
        if attached.is_some() && attached != found.map(|session| session.owner) {
            self.tally.refused_attached += 1;
            return line("CLIENT_ERROR attached to another session");
        }
        // The clock shows whole milliseconds that have begun.
        let ttl_ms = u64::from(seconds) * 1_000 + 1;
        let Some(mut session) = found else {
            self.seat(conn).part = Part::None;
            if only_resumes {
                self.tally.missed += 1;
                return line("NF");
            }
            return self.open_new(now_ms, conn, token, ttl_ms);
        };
        if session.is_moving && session.conn == Some(conn) {
            if attached.is_none() {
                self.seat(conn).part = Part::Waits(session.owner);
            }
            self.tally.asked_in_vain += 1;
            return Expected::Waits;
        }
        self.tally.heard_late += u64::from(!session.waits && session.ends_ms() <= now_ms);
        session.heard_ms = session.heard_ms.max(now_ms);
        session.ttl_ms = ttl_ms;
        let is_own = session.conn.is_none() || session.conn == Some(conn);
        let loser = if session.is_moving {
            session.taker.filter(|taker| *taker != conn)
        } else {
            session.conn.filter(|_| !is_own)
        };
        if is_own {
            session.conn = Some(conn);
        } else {
            self.tally.passed_over += u64::from(session.is_moving && loser.is_some());
            (session.is_moving, session.taker) = (true, Some(conn));
        }
        self.sessions.insert(token, session);
        if let Some(loser) = loser {
            self.seat(loser).is_doomed = true;
        }
        if !is_own {
            self.seat(conn).part = Part::Waits(session.owner);
            self.tally.taken_over += 1;
            return Expected::Waits;
        }
        let counter = if attached.is_some() {
            &mut self.tally.renewed
        } else {
            &mut self.tally.resumed
        };
        *counter += 1;
        self.seat(conn).part = Part::Attached(session.owner);
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
            is_moving: false,
            taker: None,
            waits: false,
        };
        self.sessions.insert(token, session);
        self.event(now_ms, Event::Opened(owner));
        self.seat(conn).part = Part::Attached(owner);
        self.tally.opened += 1;
        Expected::Line(format!("HD n{owner} N"))
    }

    fn end(&mut self, now_ms: u64, conn: ConnId, token: usize) -> Expected {
        let attached = self.attached(conn);
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
            self.seat(conn).part = Part::None;
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
        self.tally.takers_left += u64::from(session.taker.is_some());
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

    /// The clock wakes: sessions end whose clients were not heard for their time.
    pub(super) fn pass(&mut self, now_ms: u64) {
        let due = |session: &Session| !session.waits && session.ends_ms() <= now_ms;
        let due: Vec<usize> = self
            .sessions()
            .filter(|(_, session)| due(session))
            .map(|(token, _)| token)
            .collect();
        self.event(now_ms, Event::Due);
        for token in due {
            let session = self.sessions[&token];
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
        let part = self.seats[&conn].part;
        let (owner, was_attached) = match part {
            Part::None => (None, false),
            Part::Attached(owner) => (Some(owner), true),
            Part::Waits(owner) => (Some(owner), false),
        };
        let mut left = 0;
        if let Some(session) = owner.and_then(|owner| self.session(owner)) {
            if was_attached && session.waits {
                (session.heard_ms, session.waits) = (now_ms, false);
                left = 1;
            }
            if !was_attached {
                session.heard_ms = session.heard_ms.max(now_ms);
            }
            if session.conn == Some(conn) {
                session.conn = session.taker.take();
                session.is_moving = false;
            } else if session.taker == Some(conn) {
                session.taker = None;
            }
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
