//! A connection of one machine at a time, and the loop that drives the machine over it.
//!
//! - V1: The loop never waits for one event alone. Opening, sending and receiving proceed side by side, and
//!   the machine is polled whenever it asks for it. So its deadlines hold for any server and network.
//! - V2: A server counts as silent only if no received bytes are unread. Otherwise a process that was stopped
//!   would mistake its own pause for the server's silence.
//! - V3: While a server may rightly be silent, for example while this client waits for a lock, the operating
//!   system checks that the server is reachable.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::future::{self, FutureExt};
use latchd_client_core::{Action, AnyRequest, Machine, Session};

use super::clock::{self, sleep_until};
use super::connector::Connector;
use super::options::ClientOptions;
use super::socket::{Opening, Socket, check_input, is_tls_alert, no_answer};

/// The longest unnoticed absence of a server before the connection counts as broken, if its replies may not
/// take longer: the default heartbeat plus the default reply timeout (V3).
const GONE: Duration = Duration::from_secs(10);

/// An open connection.
struct Open {
    socket: Socket,
    session: Session,
    /// The server was not primary, so the connection is of no use for the next call.
    is_refused: bool,
    /// Bytes that have arrived and are not consumed.
    input: Vec<u8>,
    /// Bytes that are encoded and not sent.
    output: Vec<u8>,
}

enum State {
    Closed,
    Opening(Opening),
    Open(Box<Open>),
}

/// A connection that may be opened, closed and opened again.
pub(super) struct Driver {
    connector: Connector,
    gone: Duration,
    state: State,
    /// The socket's last error.
    cause: Option<io::Error>,
}

/// The reason why the loop ended.
pub(super) enum Heard<News, Call> {
    /// The machine has news.
    News(News),
    /// The caller's own future has ended.
    Call(Call),
}

/// The reason why the loop woke.
enum Woken<Call> {
    Event(io::Result<Progress>),
    Time,
    Call(Call),
}

/// An event on the network.
enum Progress {
    Opened(Socket),
    /// Bytes were sent or received.
    Moved,
}

impl Driver {
    pub(super) fn new(connector: Connector, options: &ClientOptions) -> Self {
        Self {
            connector,
            gone: options.reply_timeout.max(GONE),
            state: State::Closed,
            cause: None,
        }
    }

    /// Whether it is open, all requests have replies, and the server has not closed it.
    pub(super) async fn is_fit(&mut self) -> bool {
        self.is_quiet() && future::poll_once(self.progress()).await.is_none()
    }

    /// Whether it is open, and all requests have replies.
    pub(super) fn is_quiet(&self) -> bool {
        self.open().is_some_and(|open| {
            open.session.pending() == 0 && open.input.is_empty() && !open.is_refused
        })
    }

    const fn open(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Closed | State::Opening(_) => None,
        }
    }

    /// Copies the connection for programs to inherit.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::NotConnected`] if there is no connection.
    pub(super) fn inheritable(&self) -> io::Result<OwnedFd> {
        let open = self.open().ok_or(io::ErrorKind::NotConnected)?;
        open.socket.inheritable()
    }

    /// The socket's error since the last call, if there was one.
    pub(super) fn take_cause(&mut self) -> Option<io::Error> {
        self.cause.take()
    }

    /// Drives `machine` until it has news.
    pub(super) async fn news<M: Machine>(&mut self, machine: &mut M) -> M::News {
        match self.drive(machine, future::pending::<()>(), |_| {}).await {
            Heard::News(news) => news,
            Heard::Call(()) => unreachable!("a pending future never ends"),
        }
    }

    /// Follows the machine's actions until it has news or `call` ends. Calls `show` whenever the machine's belief may
    /// have changed, and before each wait.
    pub(super) async fn drive<M: Machine, Call>(
        &mut self,
        machine: &mut M,
        call: impl Future<Output = Call>,
        mut show: impl FnMut(&mut M),
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
                        let opening = self.connector.clone().open();
                        self.state = State::Opening(Box::pin(opening));
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
                    if let Err(error) = self.send(&request) {
                        self.fail(machine, error);
                    }
                    continue;
                }
                Action::Wait { until } => until,
            };
            match self.take_answer(machine) {
                Ok(false) => {}
                Ok(true) => continue,
                Err(error) => {
                    self.fail(machine, error);
                    continue;
                }
            }
            show(machine);
            let woken = {
                let event = async { Woken::Event(self.progress().await) };
                let time = async {
                    sleep_until(until).await;
                    Woken::Time
                };
                let call = async { Woken::Call(call.as_mut().await) };
                event.or(call).or(time).await
            };
            match woken {
                Woken::Event(event) => self.take(event, machine),
                Woken::Time => {}
                Woken::Call(call) => return Heard::Call(call),
            }
        }
    }

    /// Passes a reply that arrived in time and was not read to the machine (V2).
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
                Some(moved) => drop(moved?),
            }
        }
    }

    /// Waits for the network's next event; for ever if there is no connection.
    async fn progress(&mut self) -> io::Result<Progress> {
        match &mut self.state {
            State::Closed => future::pending().await,
            State::Opening(opening) => Ok(Progress::Opened(opening.await?)),
            State::Open(open) => future::poll_fn(|context| open.poll_progress(context)).await,
        }
    }

    /// Passes the next complete reply to the machine, if there is one.
    fn take_answer(&mut self, machine: &mut impl Machine) -> io::Result<bool> {
        let State::Open(open) = &mut self.state else {
            return Ok(false);
        };
        let received = open
            .session
            .receive(&open.input)
            .map_err(|_| no_answer(&open.input))?;
        let Some(received) = received else {
            return Ok(false);
        };
        let (consumed, is_refused) = (received.consumed, received.answer.is_not_primary());
        let bytes = open.input.get(..consumed).unwrap_or_default();
        machine.received(clock::now(), &received, bytes);
        if is_refused {
            open.is_refused = true;
            self.connector.has_failed();
        }
        open.input.drain(..consumed);
        Ok(true)
    }

    fn send(&mut self, request: &AnyRequest<'_>) -> io::Result<()> {
        let State::Open(open) = &mut self.state else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        open.session
            .send(request, &mut open.output)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(())
    }

    fn take(&mut self, event: io::Result<Progress>, machine: &mut impl Machine) {
        match event {
            Ok(Progress::Moved) => {}
            Ok(Progress::Opened(socket)) => {
                // A Unix socket does not need it, and the socket reports if the system refuses.
                let _ = socket.probe(self.gone);
                self.state = State::Open(Box::new(Open {
                    socket,
                    session: Session::new(),
                    is_refused: false,
                    input: Vec::new(),
                    output: Vec::new(),
                }));
                tracing::debug!(server = %self.connector.endpoint(), "connected");
                machine.connected(clock::now());
            }
            Err(error) => {
                let error = match &self.state {
                    State::Open(open) if is_tls_alert(&open.input) => no_answer(&open.input),
                    State::Open(_) | State::Closed | State::Opening(_) => error,
                };
                self.fail(machine, error);
            }
        }
    }

    /// Ends the connection.
    fn fail(&mut self, machine: &mut impl Machine, cause: io::Error) {
        tracing::info!(server = %self.connector.endpoint(), error = %cause, "connection lost");
        self.state = State::Closed;
        self.connector.has_failed();
        self.cause = Some(cause);
        machine.disconnected(clock::now());
    }
}

impl Open {
    /// Sends or receives, whichever is possible first.
    fn poll_progress(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Progress>> {
        check_input(self.input.len())?;
        let moved = self
            .socket
            .poll_move(context, &self.output, &mut self.input);
        moved.map_ok(|sent| {
            self.output.drain(..sent);
            Progress::Moved
        })
    }
}
