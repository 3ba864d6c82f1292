//! The executor of one connection of a [`Server`](super::Server), with its session.

use alloc::vec::Vec;

use super::StateMachine;
use crate::command::Command;
use crate::conn_id::ConnId;
use crate::engine::{Event, Held};
use crate::execute::Execute;
use crate::limits::MemoryRefused;
use crate::owner::Owner;
use crate::reply::Reply;
use crate::sessions::{
    Asker, EndedSession, Open, SessionAction, SessionRefusal, SessionReply, SessionRequest,
    Sessions, Token,
};
use crate::stats::Unstored;
use crate::time::Instant;

/// A machine and the sessions before it, as one connection sees them at one moment.
#[derive(Debug)]
pub(super) struct Visit<'a, M> {
    pub(super) machine: &'a mut M,
    pub(super) sessions: &'a mut Sessions,
    /// The last number that was given to a connection or a session.
    pub(super) numbers: &'a mut u64,
    pub(super) now: Instant,
    pub(super) conn: ConnId,
    /// The session of the connection.
    pub(super) session: Membership,
    /// The connections that others have lost to it.
    pub(super) closes: Vec<ConnId>,
    /// The connections that wait for a session no longer.
    pub(super) told: Vec<ConnId>,
}

/// A connection's part in a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Membership {
    /// None.
    #[default]
    No,
    /// It is attached.
    Attached(Owner),
    /// It waits for the end of another connection.
    Waits(Owner),
}

impl Membership {
    pub(super) const fn attached(self) -> Option<Owner> {
        match self {
            Self::Attached(owner) => Some(owner),
            Self::No | Self::Waits(_) => None,
        }
    }

    pub(super) const fn owner(self) -> Option<Owner> {
        match self {
            Self::Attached(owner) | Self::Waits(owner) => Some(owner),
            Self::No => None,
        }
    }
}

impl<M: StateMachine> Visit<'_, M> {
    fn asker(&self) -> Asker {
        Asker {
            conn: self.conn,
            user: None,
            address: 0,
        }
    }

    fn open(&mut self, token: Token<'_>, seconds: u32, only_resumes: bool) -> SessionReply {
        let known = self.sessions.find(token, None).map(|session| session.owner);
        match self.session.attached() {
            Some(own) if known != Ok(own) => {
                return SessionReply::Refused(SessionRefusal::Attached);
            }
            None if self.machine.held(self.conn.into()) != Held::default() => {
                return SessionReply::Refused(SessionRefusal::Holds);
            }
            Some(_) | None => {}
        }
        let fresh = Owner::of_session(*self.numbers + 1);
        let ttl_ms = u64::from(seconds) * 1_000;
        let asker = self.asker();
        let open = Open {
            token,
            ttl_ms,
            only_resumes,
        };
        let opening = self.sessions.open(self.now, asker, open, fresh, || ());
        self.closes.extend(opening.closes);
        self.session = match opening.reply {
            SessionReply::Opened(owner) => {
                *self.numbers += 1;
                self.machine.handle(self.now, Event::Opened(owner));
                Membership::Attached(owner)
            }
            SessionReply::Resumed(owner) => Membership::Attached(owner),
            SessionReply::Waits => known.map_or(Membership::No, Membership::Waits),
            SessionReply::Ended | SessionReply::NotFound | SessionReply::Refused(_) => self.session,
        };
        opening.reply
    }

    fn end(&mut self, token: Token<'_>) -> SessionReply {
        let own = self.session.attached();
        if let (Some(own), Ok(session)) = (own, self.sessions.find(token, None))
            && session.owner != own
        {
            return SessionReply::Refused(SessionRefusal::Attached);
        }
        let EndedSession {
            owner,
            attached,
            taker,
            state: (),
        } = match self.sessions.end(token, None) {
            Ok(ended) => ended,
            Err(SessionRefusal::NoSession) => return SessionReply::NotFound,
            Err(refusal) => return SessionReply::Refused(refusal),
        };
        self.machine.handle(self.now, Event::Closed(owner));
        if own == Some(owner) {
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
        let owner = self.sessions.find(token, None)?.owner;
        if self.session.attached().is_some_and(|own| own != owner) {
            return Err(SessionRefusal::Attached);
        }
        self.sessions.heard(owner, self.now);
        self.machine.execute(self.now, owner, command, answer);
        Ok(())
    }

    fn note_unstored(&mut self, why: Unstored) {
        self.machine.handle(self.now, Event::Unstored(why));
    }

    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        self.machine.limit_memory(self.now, bytes)
    }
}
