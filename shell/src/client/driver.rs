//! One connection, and the loop that drives a machine over it.
//!
//! - V1: nothing here is waited for alone. Opening a connection, sending and receiving go on side by
//!   side, and the machine is asked again whenever it wants to be: so its deadlines hold whatever the
//!   server and the network do.
//! - V2: a server is silent only if nothing of it is there to be read.
//! - V3: a server that may be silent, as while it lets us wait for a lock, is asked by the system whether
//!   it is there.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

use latchd_core::client::{Action, LockWords, Machine, Received, Session, WinWords};
use smol::future::{self, FutureExt};

use super::clock::{self, sleep_until};
use super::door::Door;
use super::options::ClientOptions;
use super::socket::{INPUT_BYTES_MAX, Moved, Opening, Socket};

/// How long a server may be gone without a word before the connection counts as broken, if its answers may
/// not take longer: what a heartbeat and an answer that does not come take by default (V3).
const GONE: Duration = Duration::from_secs(10);

/// An open connection.
struct Open {
    socket: Socket,
    session: Session,
    /// In which words the server takes locks.
    lock_words: LockWords,
    /// What it understands of wins.
    win_words: WinWords,
    /// What has arrived and is not consumed.
    input: Vec<u8>,
    /// What is encoded and not sent.
    output: Vec<u8>,
}

enum State {
    Closed,
    Opening(Opening),
    Open(Open),
}

/// A connection that may be opened, closed and opened again.
pub(super) struct Driver {
    door: Door,
    gone: Duration,
    state: State,
    /// What the socket said last when it failed.
    cause: Option<io::Error>,
}

/// What woke the loop.
enum Woken<Call> {
    Network(io::Result<Progress>),
    Time,
    Call(Call),
}

/// What the network has done.
enum Progress {
    Opened(Socket),
    Moved(Moved),
}

/// What ended a drive.
pub(super) enum Heard<News, Call> {
    /// The machine has something to tell.
    News(News),
    /// What the caller waited for beside it has come.
    Call(Call),
}

impl Driver {
    pub(super) fn new(door: Door, options: &ClientOptions) -> Self {
        Self {
            door,
            gone: options.reply_timeout.max(GONE),
            state: State::Closed,
            cause: None,
        }
    }

    /// Whether it is open, everything on it is answered, and the server has not closed it.
    pub(super) async fn is_fit(&mut self) -> bool {
        self.is_quiet() && future::poll_once(self.progress()).await.is_none()
    }

    /// Whether it is open, and everything on it is answered.
    pub(super) fn is_quiet(&self) -> bool {
        match &self.state {
            State::Open(open) => open.session.pending() == 0 && open.input.is_empty(),
            State::Closed | State::Opening(_) => false,
        }
    }

    /// A copy of the connection that programs inherit.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::NotConnected`] if there is no connection.
    pub(super) fn inheritable(&self) -> io::Result<OwnedFd> {
        match &self.state {
            State::Open(open) => open.socket.inheritable(),
            State::Closed | State::Opening(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// What the socket said last, if it has failed since the last time this was asked.
    pub(super) fn take_cause(&mut self) -> Option<io::Error> {
        self.cause.take()
    }

    /// Lets `machine` know that there is a connection, if there is one.
    pub(super) fn lend(&self, machine: &mut impl Machine) {
        if let State::Open(_) = self.state {
            machine.connected(clock::now());
        }
    }

    /// In which words the server at the other end takes locks.
    pub(super) const fn lock_words(&self) -> LockWords {
        match &self.state {
            State::Open(open) => open.lock_words,
            State::Closed | State::Opening(_) => LockWords::Unknown,
        }
    }

    /// Keeps, for whoever has this connection next, in which words the server takes locks.
    pub(super) const fn keep_lock_words(&mut self, words: LockWords) {
        if let State::Open(open) = &mut self.state {
            open.lock_words = words;
        }
    }

    /// What the server at the other end understands of wins.
    pub(super) const fn win_words(&self) -> WinWords {
        match &self.state {
            State::Open(open) => open.win_words,
            State::Closed | State::Opening(_) => WinWords::Unknown,
        }
    }

    /// Keeps, for whoever has this connection next, what the server understands of wins.
    pub(super) const fn keep_win_words(&mut self, words: WinWords) {
        if let State::Open(open) = &mut self.state {
            open.win_words = words;
        }
    }

    /// Does what `machine` says until it has something to tell, or until `call` is there. Whenever
    /// what it believes may have changed, and before anything is waited for, `show` is told.
    pub(super) async fn drive<M: Machine, Call>(
        &mut self,
        machine: &mut M,
        call: impl Future<Output = Call>,
        mut show: impl FnMut(&M),
    ) -> Heard<M::News, Call> {
        let mut call = std::pin::pin!(call);
        loop {
            let until = match machine.poll(clock::now()) {
                Action::Tell(news) => {
                    show(machine);
                    return Heard::News(news);
                }
                Action::Connect { until } => {
                    if let State::Closed = self.state {
                        self.begin_opening();
                    }
                    until
                }
                Action::Disconnect => {
                    if let Err(error) = self.catch_up(machine).await {
                        self.fail(machine, error);
                    }
                    continue;
                }
                Action::Send(request) => {
                    let sent = match &mut self.state {
                        State::Open(open) => open
                            .session
                            .send(&request, &mut open.output)
                            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error)),
                        State::Closed | State::Opening(_) => {
                            Err(io::ErrorKind::NotConnected.into())
                        }
                    };
                    if let Err(error) = sent {
                        self.fail(machine, error);
                    }
                    continue;
                }
                Action::Wait { until } => until,
            };
            match self.take_answer(machine) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.fail(machine, error);
                    continue;
                }
            }
            show(machine);
            let woken = {
                let network = async { Woken::Network(self.progress().await) };
                let time = async {
                    sleep_until(until).await;
                    Woken::Time
                };
                let call = async { Woken::Call(call.as_mut().await) };
                network.or(call).or(time).await
            };
            match woken {
                Woken::Network(Ok(progress)) => {
                    let is_new = matches!(progress, Progress::Opened(_));
                    self.advance(progress);
                    if is_new {
                        machine.connected(clock::now());
                    }
                }
                Woken::Network(Err(error)) => self.fail(machine, error),
                Woken::Time => {}
                Woken::Call(call) => return Heard::Call(call),
            }
        }
    }

    /// Drives `machine` until it has something to tell.
    pub(super) async fn news<M: Machine>(&mut self, machine: &mut M) -> M::News {
        match self.drive(machine, future::pending::<()>(), |_| {}).await {
            Heard::News(news) => news,
            Heard::Call(()) => unreachable!("a pending future never ends"),
        }
    }

    fn begin_opening(&mut self) {
        self.state = State::Opening(Box::pin(self.door.clone().open()));
    }

    fn fail(&mut self, machine: &mut impl Machine, error: io::Error) {
        self.state = State::Closed;
        self.cause = Some(error);
        machine.disconnected(clock::now());
    }

    /// Hands the machine an answer that has come in time and was not looked at: a process that was
    /// stopped takes its own standing still for the server's silence otherwise (V2).
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if there is none; the network's.
    async fn catch_up(&mut self, machine: &mut impl Machine) -> io::Result<()> {
        loop {
            if self.take_answer(machine)? {
                return Ok(());
            }
            match future::poll_once(self.progress()).await {
                Some(Ok(Progress::Opened(_))) | None => return Err(io::ErrorKind::TimedOut.into()),
                Some(progress) => self.advance(progress?),
            }
        }
    }

    /// Waits until the network has done something; for ever if there is no connection.
    async fn progress(&mut self) -> io::Result<Progress> {
        match &mut self.state {
            State::Closed => future::pending().await,
            State::Opening(opening) => Ok(Progress::Opened(opening.await?)),
            State::Open(open) => future::poll_fn(|context| open.poll_progress(context)).await,
        }
    }

    /// Takes note of what the network has done.
    fn advance(&mut self, progress: Progress) {
        match (progress, &mut self.state) {
            (Progress::Opened(socket), state) => {
                // A Unix socket needs it not, and a system that refuses has said enough.
                let _ = socket.probe(self.gone);
                *state = State::Open(Open {
                    socket,
                    session: Session::new(),
                    lock_words: LockWords::Unknown,
                    win_words: WinWords::Unknown,
                    input: Vec::new(),
                    output: Vec::new(),
                });
            }
            (Progress::Moved(Moved::Sent(bytes)), State::Open(open)) => {
                open.output.drain(..bytes);
            }
            (Progress::Moved(Moved::Received(bytes)), State::Open(open)) => {
                open.input.extend_from_slice(open.socket.arrived(bytes));
            }
            (Progress::Moved(_), State::Closed | State::Opening(_)) => {}
        }
    }

    /// Hands the machine the next answer that is there in full, if there is one.
    fn take_answer(&mut self, machine: &mut impl Machine) -> io::Result<bool> {
        let State::Open(open) = &mut self.state else {
            return Ok(false);
        };
        let received = open
            .session
            .receive(&open.input)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "these bytes are no answer"))?;
        let Some(Received {
            answer, consumed, ..
        }) = received
        else {
            return Ok(false);
        };
        machine.reply(clock::now(), &answer);
        open.input.drain(..consumed);
        Ok(true)
    }
}

impl Open {
    /// Sends or receives something, whichever is possible first.
    fn poll_progress(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Progress>> {
        if self.input.len() > INPUT_BYTES_MAX {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let moved = self.socket.poll_move(context, &self.output);
        moved.map(|moved| Ok(Progress::Moved(moved?)))
    }
}
