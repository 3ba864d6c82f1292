//! The executor of one connection, with its session: for a [`Server`](super::Server), and for another transport that
//! closes its connections itself.

use alloc::vec::Vec;

use latchd_protocol::command::Command;
use latchd_protocol::execute::Execute;
use latchd_protocol::reply::{MemoryRefused, Refusal, Reply};
use latchd_protocol::session::{SessionRefusal, SessionReply, SessionRequest, Token};
use latchd_protocol::stats::Unstored;
use latchd_protocol::time::{Instant, promise_ms};
use latchd_protocol::{ConnId, Owner};

use super::StateMachine;
use crate::engine::Event;
use crate::sessions::{Asker, Lost};

/// A machine, as one connection sees it at one moment.
#[derive(Debug)]
pub struct ConnExecutor<'a, M> {
    machine: &'a mut M,
    numbers: &'a mut u64,
    now: Instant,
    conn: ConnId,
    user: Option<u128>,
    /// Until then no other server can serve the items; `None` makes no such statement.
    pub hold_until: Option<Instant>,
    /// The session that the connection is attached to, as far as it knows.
    pub session: Option<Owner>,
    /// The connections from which it has taken sessions over, or whose sessions it has ended. They are to be closed.
    pub lost: Vec<Lost>,
}

impl<'a, M: StateMachine> ConnExecutor<'a, M> {
    /// The machine, as `conn` of `user` sees it. `numbers` is the last number that was given to a connection or a session.
    /// `session` is what an earlier executor has left.
    pub const fn new(
        machine: &'a mut M,
        numbers: &'a mut u64,
        now: Instant,
        (conn, user): (ConnId, Option<u128>),
        session: Option<Owner>,
    ) -> Self {
        Self {
            machine,
            numbers,
            now,
            conn,
            user,
            hold_until: None,
            session,
            lost: Vec::new(),
        }
    }

    const fn asker(&self) -> Asker {
        Asker {
            conn: self.conn,
            route: [0; 2],
            user: self.user,
            address: 0,
            attached: self.session,
        }
    }
}

impl<M: StateMachine> Execute for ConnExecutor<'_, M> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>)) {
        let owner = match self.session {
            Some(owner) if self.machine.hear(self.now, owner, self.conn) => owner,
            // S5
            Some(_) => return answer(&Reply::Refused(Refusal::ConnectionClosed)),
            None => self.conn.into(),
        };
        self.machine.execute(self.now, owner, command, answer);
    }

    fn session(&mut self, request: SessionRequest<'_>) -> SessionReply {
        let (asker, numbers) = (self.asker(), &mut *self.numbers);
        let mut number = || {
            *numbers += 1;
            *numbers
        };
        let done = self.machine.session(self.now, asker, request, &mut number);
        match done.reply {
            SessionReply::Opened(owner) | SessionReply::Resumed(owner) => {
                self.session = Some(owner);
            }
            SessionReply::Ended(_) => self.session = None,
            SessionReply::NotFound | SessionReply::Refused(_) => {}
        }
        self.lost.extend(done.lost);
        done.reply
    }

    fn execute_as(
        &mut self,
        token: Token<'_>,
        command: &Command<'_>,
        answer: &mut impl FnMut(&Reply<'_>),
    ) -> Result<(), SessionRefusal> {
        let owner = self.machine.find_session(self.now, token, self.asker())?;
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
