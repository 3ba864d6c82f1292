//! One connection that many share: requests of all go out as they come, and each answer to whoever
//! asked.
//!
//! A [task](super::task) owns the socket, and is run by a user who waits for an answer, or in the background. Whoever has
//! something to ask puts it, encoded, behind what others have asked, so that what comes together goes in
//! one write; the task cuts what arrives into answers and hands them on. A [`Link`](super::link::Link) is
//! one user's side of it.
//!
//! - H1: answers are handed on in the order of the requests, each once, to whoever asked.
//! - H2: a connection is an attempt with a number. Who has been told its number is told of its end,
//!   and of nothing of it afterwards.
//! - H3: what one user finds wrong with a connection ends it for all: nobody knows any more which answer
//!   belongs to what.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use async_io::Timer;
use futures_lite::future::FutureExt;
use latchd_core::client::{AnyRequest, Received, Session};
use slab::Slab;

use super::background::{self, Alarm};
use super::door::Door;
use super::socket::{INPUT_BYTES_MAX, Moved, Socket, is_tls_alert, no_answer};
use super::task::Task;

/// What a server may say unasked, in bytes.
const UNASKED_BYTES_MAX: usize = 4 << 10;

/// How long after a connection over which nothing has arrived the next one is opened at the earliest: a
/// server, or what stands before it, that accepts and closes is not to be kept busy.
const PAUSE: Duration = Duration::from_millis(100);

/// How long those who wait for a connection may take to ask something over it, before it is read.
const FIRST_REQUEST: Duration = Duration::from_millis(20);

/// A shared connection, which may be opened, broken off and opened again. A copy is the same one; with
/// the last copy it is closed.
#[derive(Clone)]
pub(super) struct Hub {
    state: Arc<Mutex<HubState>>,
    /// Wakes the task.
    bell: Sender<()>,
    task: Arc<Task>,
}

/// What the users of a hub are told.
pub(super) enum HubNews {
    /// This attempt has succeeded.
    Opened(u64),
    /// This attempt has failed, or its connection is gone.
    Gone(u64, Arc<io::Error>),
    /// The next answer over this connection, in full.
    Answer(u64, Box<[u8]>),
}

/// A seat among the users of a hub.
pub(super) struct Seat {
    /// Which one.
    slot: usize,
    /// How much it counts.
    load: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Closed,
    Opening,
    Open,
}

struct HubState {
    phase: Phase,
    /// The number of the latest attempt.
    attempt: u64,
    session: Session,
    /// What is encoded and not taken by the task.
    output: Vec<u8>,
    /// Whose requests are unanswered, the oldest first.
    askers: VecDeque<Sender<HubNews>>,
    users: Slab<Sender<HubNews>>,
    /// The sum of what the users count.
    load: usize,
}

impl Hub {
    /// A connection that is opened when somebody wants it.
    pub(super) fn new(door: Door) -> Self {
        let (bell, rung) = bounded(1);
        let state = Arc::new(Mutex::new(HubState {
            phase: Phase::Closed,
            attempt: 0,
            session: Session::new(),
            output: Vec::new(),
            askers: VecDeque::new(),
            users: Slab::new(),
            load: 0,
        }));
        let task = HubTask {
            door,
            state: Arc::clone(&state),
            rung,
        };
        let task = background::spawn(task.run());
        Self { state, bell, task }
    }

    /// The task that has the socket.
    pub(super) const fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// How much its users count together.
    pub(super) fn load(&self) -> usize {
        lock(&self.state).load
    }

    /// Adds a user that counts `load`.
    pub(super) fn join(&self, user: Sender<HubNews>, load: usize) -> Seat {
        let mut state = lock(&self.state);
        state.load += load;
        let slot = state.users.insert(user);
        Seat { slot, load }
    }

    /// Takes a user out. Answers to what it has asked are thrown away.
    pub(super) fn leave(&self, seat: &Seat) {
        let mut state = lock(&self.state);
        state.load -= seat.load;
        state.users.remove(seat.slot);
    }

    /// Wants a connection: the number of the attempt, and whether it is open already.
    pub(super) fn want(&self) -> (u64, bool) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Closed {
            state.phase = Phase::Opening;
            state.attempt += 1;
            self.ring();
        }
        (state.attempt, state.phase == Phase::Open)
    }

    /// Sends a request, whose answer `asker` is told.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotConnected`] if the connection of this attempt is gone;
    /// [`io::ErrorKind::InvalidInput`] if this is no request.
    pub(super) fn send(
        &self,
        attempt: u64,
        request: &AnyRequest<'_>,
        asker: &Sender<HubNews>,
    ) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.phase != Phase::Open || state.attempt != attempt {
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

    /// Ends the connection of this attempt (H3), if it is there still.
    pub(super) fn break_off(&self, attempt: u64) {
        lock(&self.state).end(attempt, io::ErrorKind::TimedOut.into());
        self.ring();
    }

    fn ring(&self) {
        // It has been rung, and not been heard yet: once is enough.
        let _ = self.bell.try_send(());
    }
}

impl HubState {
    /// The attempt with this number is over, if it was not.
    fn end(&mut self, attempt: u64, cause: io::Error) {
        if self.phase == Phase::Closed || self.attempt != attempt {
            return;
        }
        self.phase = Phase::Closed;
        self.session = Session::new();
        self.output.clear();
        self.askers.clear();
        let cause = Arc::new(cause);
        self.tell(|| HubNews::Gone(attempt, Arc::clone(&cause)));
    }

    fn tell(&self, news: impl Fn() -> HubNews) {
        for (_, user) in &self.users {
            // Who has gone takes itself out.
            let _ = user.try_send(news());
        }
    }
}

fn lock(state: &Mutex<HubState>) -> MutexGuard<'_, HubState> {
    // Nothing here panics half way.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Owns the socket.
struct HubTask {
    door: Door,
    state: Arc<Mutex<HubState>>,
    /// Ends when the last user has gone.
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
            match self.door.clone().open().await {
                Ok(socket) => {
                    let error = self.serve(attempt, socket, &mut is_of_use).await;
                    lock(&self.state).end(attempt, error);
                    if !is_of_use {
                        Timer::after(PAUSE).await;
                    }
                }
                Err(error) => lock(&self.state).end(attempt, error),
            }
        }
    }

    /// The attempt that is to be made.
    fn wanted(&self) -> Option<u64> {
        let state = lock(&self.state);
        (state.phase == Phase::Opening).then_some(state.attempt)
    }

    /// Waits a moment until something is asked: what the server says unasked, as that it is full, is the answer to that.
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

    /// Moves bytes until the connection is over, and says why; and whether anything has arrived over it.
    async fn serve(&self, attempt: u64, mut socket: Socket, is_of_use: &mut bool) -> io::Error {
        {
            let mut state = lock(&self.state);
            if state.attempt != attempt || state.phase != Phase::Opening {
                return io::ErrorKind::NotConnected.into();
            }
            state.phase = Phase::Open;
            state.tell(|| HubNews::Opened(attempt));
        }
        self.first_request().await;
        let (mut input, mut output, mut sent) = (Vec::new(), Vec::new(), 0);
        loop {
            if sent == output.len() {
                output.clear();
                sent = 0;
                let mut state = lock(&self.state);
                if state.attempt != attempt || state.phase != Phase::Open {
                    return io::ErrorKind::NotConnected.into();
                }
                std::mem::swap(&mut output, &mut state.output);
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
                Ok(Moved::Sent(bytes)) => {
                    sent += bytes;
                    if !input.is_empty()
                        && let Err(error) = self.hand_on(attempt, &mut input)
                    {
                        return error;
                    }
                }
                Ok(Moved::Received(bytes)) => {
                    *is_of_use = true;
                    input.extend_from_slice(socket.arrived(bytes));
                    if let Err(error) = self.hand_on(attempt, &mut input) {
                        return error;
                    }
                }
                Err(_) if is_tls_alert(&input) => return no_answer(&input),
                Err(error) => return last_words(&input).unwrap_or(error),
            }
        }
    }

    /// Cuts what has arrived into answers (H1).
    fn hand_on(&self, attempt: u64, input: &mut Vec<u8>) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.attempt != attempt || state.phase != Phase::Open {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut used = 0;
        // What nobody has asked for waits for the first request.
        while state.session.pending() > 0 {
            let rest = input.get(used..).unwrap_or_default();
            let received = state.session.receive(rest).map_err(|_| no_answer(rest))?;
            let Some(Received { last, consumed, .. }) = received else {
                break;
            };
            let answer = rest.get(..consumed).unwrap_or_default().into();
            let asker = if last {
                state.askers.pop_front()
            } else {
                state.askers.front().cloned()
            };
            if let Some(asker) = asker {
                // Who has gone wants no answer.
                let _ = asker.try_send(HubNews::Answer(attempt, answer));
            }
            used += consumed;
        }
        input.drain(..used);
        if input.len() > UNASKED_BYTES_MAX && state.session.pending() == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if input.len() > INPUT_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(())
    }
}

/// Why a server has closed a connection, in its own words, if it has said so to nobody in particular.
fn last_words(input: &[u8]) -> Option<io::Error> {
    let line = input.split(|byte| *byte == b'\r').next()?;
    let is_error = line.starts_with(b"ERROR ") || line.starts_with(b"SERVER_ERROR ");
    let words = String::from_utf8_lossy(line).into_owned();
    is_error.then(|| io::Error::new(io::ErrorKind::ConnectionRefused, words))
}
