//! The state machine behind a server, and one owner's view of it.

use latchd_protocol::command::Command;
use latchd_protocol::execute::Execute;
use latchd_protocol::reply::{MemoryRefused, Reply};
use latchd_protocol::session::{SessionRefusal, SessionReply, SessionRequest, Token};
use latchd_protocol::stats::Unstored;
use latchd_protocol::time::Instant;
use latchd_protocol::{ConnId, Owner};

use crate::engine::{Core, Event, Notification};
use crate::sessions::{Asker, SessionDone};
use crate::store::Store;

/// The machine behind the connections of a [`Server`](super::Server): a [`Core`], or a front of several.
pub trait StateMachine {
    /// Takes an event, at `now`.
    fn handle(&mut self, now: Instant, event: Event);

    /// Executes a command of `owner`, at `now`, and hands its reply to `answer`, exactly once.
    fn execute(
        &mut self,
        now: Instant,
        owner: Owner,
        command: &Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    );

    /// Opens, resumes or ends a session for a connection, or takes it over ([`Core::session`]). By default there are no sessions.
    fn session(
        &mut self,
        now: Instant,
        asker: Asker,
        request: SessionRequest<'_>,
        number: &mut dyn FnMut() -> u64,
    ) -> SessionDone {
        let _ = (now, asker, request, number);
        SessionReply::Refused(SessionRefusal::Off).into()
    }

    /// The session with this token, for a request in it, which is heard. By default there are no sessions.
    ///
    /// # Errors
    /// As [`Sessions::find`](crate::sessions::Sessions::find).
    fn find_session(
        &mut self,
        now: Instant,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<Owner, SessionRefusal> {
        let _ = (now, token, asker);
        Err(SessionRefusal::Off)
    }

    /// Whether this connection is attached to this session. Then its client is heard. By default it is not.
    fn hear(&mut self, now: Instant, owner: Owner, conn: ConnId) -> bool {
        let _ = (now, owner, conn);
        false
    }

    /// The connection that is attached to a session. By default none is.
    fn attached(&self, owner: Owner) -> Option<ConnId> {
        let _ = owner;
        None
    }

    /// What all items together may take is so many bytes from now on. By default that does
    /// not change.
    ///
    /// # Errors
    /// Why not. Everything is as it was then.
    fn limit_memory(&mut self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        let _ = (now, bytes);
        Err(MemoryRefused::Fixed)
    }

    /// Whether the next tick may come soon ([`Core::wants_tick`]). By default one is enough.
    fn wants_tick(&self) -> bool {
        false
    }

    /// The work that was done so far ([`Core::work`]). By default a command is one unit, and nothing more.
    fn work(&self) -> u64 {
        0
    }

    /// The next notification ([`Core::poll`]). By default nothing waits.
    fn poll(&mut self) -> Option<Notification> {
        None
    }

    /// When [`Event::Due`] is to be handed over ([`Core::next_deadline`]). By default never.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

impl<S: Store> StateMachine for Core<S> {
    fn handle(&mut self, now: Instant, event: Event) {
        Self::handle(self, now, event);
    }

    fn execute(
        &mut self,
        now: Instant,
        owner: Owner,
        command: &Command<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        Self::answer(self, now, owner, command, answer);
    }

    fn session(
        &mut self,
        now: Instant,
        asker: Asker,
        request: SessionRequest<'_>,
        number: &mut dyn FnMut() -> u64,
    ) -> SessionDone {
        Self::session(self, now, asker, request, number)
    }

    fn find_session(
        &mut self,
        now: Instant,
        token: Token<'_>,
        asker: Asker,
    ) -> Result<Owner, SessionRefusal> {
        Self::find_session(self, now, token, asker)
    }

    fn hear(&mut self, now: Instant, owner: Owner, conn: ConnId) -> bool {
        Self::hear(self, now, owner, conn)
    }

    fn attached(&self, owner: Owner) -> Option<ConnId> {
        self.manager().sessions().get(owner)?.attachment().conn()
    }

    fn limit_memory(&mut self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        Self::limit_memory(self, now, bytes)
    }

    fn wants_tick(&self) -> bool {
        Self::wants_tick(self)
    }

    fn work(&self) -> u64 {
        Self::work(self)
    }

    fn poll(&mut self) -> Option<Notification> {
        Self::poll(self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        Self::next_deadline(self)
    }
}

/// A [`StateMachine`] as one owner sees it at one moment: the executor of a
/// [`Connection`](latchd_protocol::connection::Connection).
#[derive(Debug)]
pub struct At<'a, M> {
    machine: &'a mut M,
    now: Instant,
    owner: Owner,
}

impl<'a, M> At<'a, M> {
    /// The machine as `owner` sees it at `now`.
    pub const fn new(machine: &'a mut M, now: Instant, owner: Owner) -> Self {
        Self {
            machine,
            now,
            owner,
        }
    }
}

impl<M: StateMachine> Execute for At<'_, M> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut impl FnMut(&Reply<'_>)) {
        self.machine.execute(self.now, self.owner, command, answer);
    }

    fn note_unstored(&mut self, why: Unstored) {
        self.machine.handle(self.now, Event::Unstored(why));
    }

    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        self.machine.limit_memory(self.now, bytes)
    }
}
