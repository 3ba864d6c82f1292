//! The executor of one connection, with its session: for a [`Server`](super::Server), and for another transport that
//! closes its connections itself.
//!
//! A transport keeps a [`Membership`] of each connection and executes its requests by a [`Visit`]. It closes the
//! connections that a visit names, in any order, and calls [`leave`] for each that has closed.

use alloc::vec::Vec;

use latchd_protocol::command::Command;
use latchd_protocol::execute::Execute;
use latchd_protocol::reply::{MemoryRefused, Reply};
use latchd_protocol::session::{
    Open, SessionAction, SessionRefusal, SessionReply, SessionRequest, Token,
};
use latchd_protocol::stats::Unstored;
use latchd_protocol::time::{Instant, promise_ms};
use latchd_protocol::{ConnId, Owner};

use super::StateMachine;
use crate::engine::{Event, Held};
use crate::sessions::{Asker, EndedSession, Sessions};

/// A machine and the sessions before it, as one connection sees them at one moment.
#[derive(Debug)]
pub struct Visit<'a, M> {
    machine: &'a mut M,
    sessions: &'a mut Sessions,
    numbers: &'a mut u64,
    now: Instant,
    conn: ConnId,
    user: Option<u128>,
    /// Until then no other server can serve the items; `None` makes no such statement.
    pub hold_until: Option<Instant>,
    /// The session of the connection.
    pub session: Membership,
    /// The connections that are to be closed: they have lost their sessions.
    pub closes: Vec<ConnId>,
    /// The connections that wait for a session no longer: they ask again.
    pub told: Vec<ConnId>,
}

/// A connection's part in a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Membership {
    /// None.
    #[default]
    No,
    /// It is attached.
    Attached(Owner),
    /// It waits for the end of another connection.
    Waits(Owner),
}

impl Membership {
    /// The session that the connection is attached to.
    #[must_use]
    pub const fn attached(self) -> Option<Owner> {
        match self {
            Self::Attached(owner) => Some(owner),
            Self::No | Self::Waits(_) => None,
        }
    }

    /// The session that it is attached to or waits for.
    #[must_use]
    pub const fn owner(self) -> Option<Owner> {
        match self {
            Self::Attached(owner) | Self::Waits(owner) => Some(owner),
            Self::No => None,
        }
    }
}

/// A connection has closed. `waits`: its request has waited until now, so its client was heard until now. Returns
/// the connection that asks again.
pub fn leave(
    machine: &mut impl StateMachine,
    sessions: &mut Sessions,
    now: Instant,
    conn: ConnId,
    session: Membership,
    waits: bool,
) -> Option<ConnId> {
    machine.handle(now, Event::Closed(conn.into()));
    let owner = session.owner()?;
    if waits {
        sessions.heard(owner, now);
    }
    sessions.detach(owner, conn)
}

/// Ends the next session whose client was not heard for its time. A client whose connection waits is heard. Returns the
/// connection that is to be closed, and the one that asks again.
pub fn end_due(
    machine: &mut impl StateMachine,
    sessions: &mut Sessions,
    now: Instant,
    waits: impl Fn(ConnId) -> bool,
) -> Option<(Option<ConnId>, Option<ConnId>)> {
    let EndedSession {
        owner,
        attached,
        taker,
        state: (),
    } = sessions.end_due(now, |session| {
        let conn = session.attached.conn();
        conn.filter(|conn| waits(*conn)).map(|_| now)
    })?;
    machine.handle(now, Event::Closed(owner));
    Some((attached, taker))
}

/// The connection that is told that an owner waits no longer; `None` for a session without a connection.
#[must_use]
pub fn told(sessions: &Sessions, owner: Owner) -> Option<ConnId> {
    if owner.is_session() {
        sessions.get(owner)?.attached.conn()
    } else {
        Some(ConnId::from_number(owner.number()))
    }
}

impl<'a, M: StateMachine> Visit<'a, M> {
    /// The machine and the sessions, as `conn` of `user` sees them. `numbers` is the last number that was given to a connection
    /// or a session. The client of the connection's session is heard.
    pub fn new(
        machine: &'a mut M,
        sessions: &'a mut Sessions,
        numbers: &'a mut u64,
        now: Instant,
        (conn, user): (ConnId, Option<u128>),
        session: Membership,
    ) -> Self {
        if let Some(owner) = session.attached() {
            sessions.heard(owner, now);
        }
        Self {
            machine,
            sessions,
            numbers,
            now,
            conn,
            user,
            hold_until: None,
            session,
            closes: Vec::new(),
            told: Vec::new(),
        }
    }

    fn asker(&self) -> Asker {
        Asker {
            conn: self.conn,
            user: self.user,
            address: 0,
            attached: self.session.attached(),
        }
    }

    fn open(&mut self, token: Token<'_>, seconds: u32, only_resumes: bool) -> SessionReply {
        let asker = self.asker();
        if asker.attached.is_none() && self.machine.held(self.conn.into()) != Held::default() {
            return SessionReply::Refused(SessionRefusal::Holds);
        }
        let ttl_ms = u64::from(seconds) * 1_000;
        let open = Open {
            token,
            ttl_ms,
            only_resumes,
        };
        let numbers = &mut *self.numbers;
        let make = || {
            *numbers += 1;
            (Owner::of_session(*numbers), ())
        };
        let opening = self.sessions.open(self.now, asker, open, make);
        if let SessionReply::Opened(owner) = opening.reply {
            self.machine.handle(self.now, Event::Opened(owner));
        }
        self.closes.extend(opening.closes);
        if let Some(owner) = opening.owner {
            self.session = if opening.reply == SessionReply::Waits {
                Membership::Waits(owner)
            } else {
                Membership::Attached(owner)
            };
        } else if let Membership::Waits(_) = self.session {
            self.session = Membership::No;
        }
        opening.reply
    }

    fn end(&mut self, token: Token<'_>) -> SessionReply {
        let asker = self.asker();
        let EndedSession {
            owner,
            attached,
            taker,
            state: (),
        } = match self.sessions.end(token, asker) {
            Ok(ended) => ended,
            Err(SessionRefusal::NoSession) => return SessionReply::NotFound,
            Err(refusal) => return SessionReply::Refused(refusal),
        };
        self.machine.handle(self.now, Event::Closed(owner));
        if asker.attached == Some(owner) {
            self.session = Membership::No;
        } else {
            self.closes.extend(attached);
        }
        self.told.extend(taker);
        SessionReply::Ended
    }
}

impl<M: StateMachine> Execute for Visit<'_, M> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        let own = self.conn.into();
        let owner = self.session.attached().unwrap_or(own);
        self.machine.execute(self.now, owner, command, answer);
    }

    fn session(&mut self, request: SessionRequest<'_>) -> SessionReply {
        match request.action {
            SessionAction::Open {
                seconds,
                only_resumes,
            } => self.open(request.token, seconds, only_resumes),
            SessionAction::End => self.end(request.token),
        }
    }

    fn execute_as(
        &mut self,
        token: Token<'_>,
        command: &Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) -> Result<(), SessionRefusal> {
        let owner = self.sessions.find(token, self.asker())?.owner;
        self.sessions.heard(owner, self.now);
        self.machine.execute(self.now, owner, command, answer);
        Ok(())
    }

    fn hold_ms(&mut self) -> Option<u64> {
        let until = self.hold_until?;
        let left = until.as_millis().saturating_sub(self.now.as_millis());
        Some(promise_ms(left))
    }

    fn note_unstored(&mut self, why: Unstored) {
        self.machine.handle(self.now, Event::Unstored(why));
    }

    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        self.machine.limit_memory(self.now, bytes)
    }
}
