//! One connection that many users share. It sends all requests in order, and passes each reply to its
//! requester.
//!
//! A [task](super::task) owns the socket. It is run by a user that waits for a reply, or in the background. A
//! user appends its encoded request to those of others, so that concurrent requests are sent in one write.
//! The task splits the received bytes into replies and passes them on. A [`Link`](super::link::Link) is one
//! user's side.
//!
//! - H1: Replies are passed on in the order of the requests, each once, to its requester.
//! - H2: A connection is an attempt with a number. Every user that was told the number is told when it ends,
//!   and gets nothing from it afterwards.
//! - H3: If one user finds a fault in a connection, it ends for all: replies could no longer be matched to
//!   requests.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use async_io::Timer;
use futures_lite::future::FutureExt;
use latchd_client_core::{AnyRequest, AnyResponse, Received, Session};
use latchd_protocol::wire::classic::reply::ClassicResponse;
use slab::Slab;

use super::background::{self, Alarm};
use super::connector::Connector;
use super::mutex::lock;
use super::socket::{Moved, Socket, check_input, is_tls_alert, no_answer};
use super::task::Task;

/// The longest unrequested message from a server, in bytes.
const UNASKED_BYTES_MAX: usize = 4 << 10;

/// The shortest time between a connection without any received bytes and the next one. A server or proxy that
/// accepts and closes at once must not be kept busy.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest wait for a first request on a new connection before it is read.
const FIRST_REQUEST: Duration = Duration::from_millis(20);

/// A shared connection, which may be opened, aborted and opened again. Clones are the same connection;
/// dropping the last one closes it.
#[derive(Clone)]
pub(super) struct Hub {
    state: Arc<Mutex<HubState>>,
    /// Wakes the task.
    bell: Sender<()>,
    task: Arc<Task>,
}

/// The news of an attempt, for a user of a hub.
pub(super) struct HubNews {
    /// The number of the attempt.
    pub(super) attempt: u64,
    pub(super) event: HubEvent,
}

/// An event of an attempt.
pub(super) enum HubEvent {
    /// It has succeeded.
    Opened,
    /// It has failed, or its connection has ended.
    Gone(Arc<io::Error>),
    /// The next complete reply on its connection.
    Answer(Box<[u8]>),
}

/// A user's registration with a hub.
pub(super) struct Registration {
    /// The user's number.
    slot: usize,
    /// The user's share of the load.
    load: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Closed,
    /// The attempt with this number.
    Opening(u64),
    /// The connection of this attempt.
    Open(u64),
}

struct HubState {
    phase: Phase,
    /// The number of attempts so far.
    attempts: u64,
    session: Session,
    /// Encoded bytes that the task has not taken.
    output: Vec<u8>,
    /// The requesters of unanswered requests, the oldest first.
    askers: VecDeque<Sender<HubNews>>,
    users: Slab<Sender<HubNews>>,
    /// The sum of the users' loads.
    load: usize,
}

impl Hub {
    /// A connection that is opened when a user needs it.
    pub(super) fn new(connector: Connector) -> Self {
        let (bell, rung) = bounded(1);
        let state = Arc::new(Mutex::new(HubState::new()));
        let task = HubTask {
            connector,
            state: Arc::clone(&state),
            rung,
        };
        let task = background::spawn(task.run());
        Self { state, bell, task }
    }

    /// The task that owns the socket.
    pub(super) const fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// The sum of its users' loads.
    pub(super) fn load(&self) -> usize {
        lock(&self.state).load
    }

    /// Adds a user with this `load`.
    pub(super) fn join(&self, user: Sender<HubNews>, load: usize) -> Registration {
        let mut state = lock(&self.state);
        state.load += load;
        let slot = state.users.insert(user);
        Registration { slot, load }
    }

    /// Removes a user. Replies to its requests are dropped.
    pub(super) fn leave(&self, registration: &Registration) {
        let mut state = lock(&self.state);
        state.load -= registration.load;
        state.users.remove(registration.slot);
    }

    /// Asks for a connection: returns the number of the attempt, and whether it is open already.
    pub(super) fn want(&self) -> (u64, bool) {
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Closed => {
                state.attempts += 1;
                state.phase = Phase::Opening(state.attempts);
                self.ring();
                (state.attempts, false)
            }
            Phase::Opening(attempt) => (attempt, false),
            Phase::Open(attempt) => (attempt, true),
        }
    }

    /// Sends a request, with `asker` as the receiver of the reply.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] if the connection of this attempt has ended;
    /// [`io::ErrorKind::InvalidInput`] if the request is invalid.
    pub(super) fn send(
        &self,
        attempt: u64,
        request: &AnyRequest<'_>,
        asker: &Sender<HubNews>,
    ) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.phase != Phase::Open(attempt) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let state = &mut *state;
        state
            .session
            .send(request, &mut state.output)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        state.askers.push_back(asker.clone());
        self.ring();
        Ok(())
    }

    /// Ends the connection of this attempt (H3), if it is still there.
    pub(super) fn break_off(&self, attempt: u64) {
        lock(&self.state).end(attempt, io::ErrorKind::TimedOut.into());
        self.ring();
    }

    fn ring(&self) {
        // If it is full, a signal is pending, and one is enough.
        let _ = self.bell.try_send(());
    }
}

impl HubState {
    const fn new() -> Self {
        Self {
            phase: Phase::Closed,
            attempts: 0,
            session: Session::new(),
            output: Vec::new(),
            askers: VecDeque::new(),
            users: Slab::new(),
            load: 0,
        }
    }

    /// Ends the attempt with this number, unless it has ended.
    fn end(&mut self, attempt: u64, cause: io::Error) {
        if ![Phase::Opening(attempt), Phase::Open(attempt)].contains(&self.phase) {
            return;
        }
        self.phase = Phase::Closed;
        self.session = Session::new();
        self.output.clear();
        self.askers.clear();
        let cause = Arc::new(cause);
        self.tell(attempt, || HubEvent::Gone(Arc::clone(&cause)));
    }

    fn tell(&self, attempt: u64, event: impl Fn() -> HubEvent) {
        for (_, user) in &self.users {
            let event = event();
            // A user that is gone removes itself.
            let _ = user.try_send(HubNews { attempt, event });
        }
    }

    /// Passes on the received replies. Gives the next requests to be sent, if `output` is empty.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] if the attempt has ended, even while its server accepts nothing; those
    /// of [`hand_on`](Self::hand_on).
    fn exchange(
        &mut self,
        attempt: u64,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> io::Result<()> {
        if self.phase != Phase::Open(attempt) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.hand_on(attempt, input)?;
        if output.is_empty() {
            std::mem::swap(output, &mut self.output);
        }
        Ok(())
    }

    /// Splits the received bytes into replies, and passes them on (H1).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the bytes are no replies, or too many;
    /// [`io::ErrorKind::ConnectionAborted`] if the server is not primary.
    fn hand_on(&mut self, attempt: u64, input: &mut Vec<u8>) -> io::Result<()> {
        let (mut used, mut is_refused) = (0, false);
        // Unrequested bytes wait for the first request.
        while self.session.pending() > 0 {
            let rest = input.get(used..).unwrap_or_default();
            let received = self.session.receive(rest).map_err(|_| no_answer(rest))?;
            let Some(Received {
                answer,
                last,
                consumed,
                ..
            }) = received
            else {
                break;
            };
            is_refused |= answer.is_not_primary();
            let event = HubEvent::Answer(rest.get(..consumed).unwrap_or_default().into());
            let asker = if last {
                self.askers.pop_front()
            } else {
                self.askers.front().cloned()
            };
            if let Some(asker) = asker {
                // A requester that is gone needs no reply.
                let _ = asker.try_send(HubNews { attempt, event });
            }
            used += consumed;
        }
        input.drain(..used);
        if is_refused {
            // The next connection may lead to the primary.
            let why = "the server is not primary any more";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        }
        if self.session.pending() == 0 && input.len() > UNASKED_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        check_input(input.len())
    }
}

/// Owns the socket.
struct HubTask {
    connector: Connector,
    state: Arc<Mutex<HubState>>,
    /// Closed when the last user is gone.
    rung: Receiver<()>,
}

impl HubTask {
    async fn run(self) {
        loop {
            let Some(attempt) = self.wanted() else {
                if self.rung.recv().await.is_err() {
                    return;
                }
                continue;
            };
            let mut is_of_use = false;
            match self.connector.clone().open().await {
                Ok(socket) => {
                    let error = self.serve(attempt, socket, &mut is_of_use).await;
                    self.connector.has_failed();
                    lock(&self.state).end(attempt, error);
                    if !is_of_use {
                        Timer::after(PAUSE).await;
                    }
                }
                Err(error) => lock(&self.state).end(attempt, error),
            }
        }
    }

    /// The attempt that the task must make.
    fn wanted(&self) -> Option<u64> {
        match lock(&self.state).phase {
            Phase::Opening(attempt) => Some(attempt),
            Phase::Closed | Phase::Open(_) => None,
        }
    }

    /// Waits briefly for a first request. An unrequested message, such as a refusal by a full server, is the
    /// reply to it.
    async fn first_request(&self) {
        let asked = async {
            while lock(&self.state).session.pending() == 0 {
                if self.rung.recv().await.is_err() {
                    return;
                }
            }
        };
        asked.or(Alarm::after(FIRST_REQUEST)).await;
    }

    /// Moves bytes until the connection ends. Returns the reason, and whether any bytes have arrived.
    async fn serve(&self, attempt: u64, mut socket: Socket, is_of_use: &mut bool) -> io::Error {
        {
            let mut state = lock(&self.state);
            if state.phase != Phase::Opening(attempt) {
                return io::ErrorKind::NotConnected.into();
            }
            state.phase = Phase::Open(attempt);
            state.tell(attempt, || HubEvent::Opened);
        }
        self.first_request().await;
        let (mut input, mut output, mut sent) = (Vec::new(), Vec::new(), 0);
        loop {
            if sent == output.len() {
                output.clear();
                sent = 0;
            }
            let exchanged = lock(&self.state).exchange(attempt, &mut input, &mut output);
            if let Err(error) = exchanged {
                return error;
            }
            let moves = poll_fn(|context| {
                let rest = output.get(sent..).unwrap_or_default();
                socket.poll_move(context, rest)
            });
            let rung = async {
                match self.rung.recv().await {
                    Ok(()) => Ok(Moved::Sent(0)),
                    Err(_) => Err(io::ErrorKind::NotConnected.into()),
                }
            };
            match moves.or(rung).await {
                Ok(Moved::Sent(bytes)) => sent += bytes,
                Ok(Moved::Received(bytes)) => {
                    *is_of_use = true;
                    input.extend_from_slice(socket.arrived(bytes));
                }
                Err(error) => return last_words(&input).unwrap_or(error),
            }
        }
    }
}

/// The reason that a server gave in an unrequested message before it closed the connection, if any.
fn last_words(input: &[u8]) -> Option<io::Error> {
    if is_tls_alert(input) {
        return Some(no_answer(input));
    }
    let (said, _) = ClassicResponse::decode(input).ok()??;
    let words = String::from(AnyResponse::Classic(said).refusal()?);
    Some(io::Error::new(io::ErrorKind::ConnectionRefused, words))
}

#[cfg(test)]
mod tests;
