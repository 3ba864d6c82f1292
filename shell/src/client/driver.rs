//! One connection, and the loop that drives a machine over it.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use latchd_core::Instant;
use latchd_core::client::{Action, Machine, Received, Session};
use smol::Timer;
use smol::future::{self, FutureExt};
use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use smol::net::TcpStream;
use smol::net::unix::UnixStream;

use super::clock;

/// How much is read at a time, in bytes.
const READ_BYTES: usize = 16 << 10;

/// The most that an unfinished answer may take, in bytes: the largest value a server can be
/// configured for, and its line.
const INPUT_BYTES_MAX: usize = (1 << 30) + READ_BYTES;

/// How long opening a connection, or getting rid of a request, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a server is.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    /// A host and port, as `HOST:PORT`.
    Tcp(Arc<str>),
    /// A Unix socket.
    Unix(Arc<PathBuf>),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open connection.
struct Open {
    stream: Pin<Box<dyn Stream>>,
    session: Session,
    /// Where bytes arrive.
    chunk: Box<[u8]>,
    /// What has arrived and is not consumed.
    input: Vec<u8>,
}

/// A connection that may be opened, closed and opened again.
pub(super) struct Driver {
    endpoint: Endpoint,
    open: Option<Open>,
    output: Vec<u8>,
    /// What the socket said last when it failed.
    cause: Option<io::Error>,
}

/// What woke the loop.
enum Woken<Call> {
    Read(io::Result<usize>),
    Time,
    Call(Call),
}

/// What ended a drive.
pub(super) enum Heard<News, Call> {
    /// The machine has something to tell.
    News(News),
    /// What the caller waited for beside it has come.
    Call(Call),
}

impl Driver {
    pub(super) const fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            open: None,
            output: Vec::new(),
            cause: None,
        }
    }

    /// Opens the connection, if it is not open.
    pub(super) async fn connect(&mut self) -> io::Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        let stream = within(CONNECT_TIMEOUT, open(&self.endpoint)).await?;
        self.open = Some(Open {
            stream,
            session: Session::new(),
            chunk: vec![0; READ_BYTES].into(),
            input: Vec::new(),
        });
        Ok(())
    }

    /// Whether it is open, everything on it is answered, and the server has not closed it.
    pub(super) async fn is_fit(&mut self) -> bool {
        self.is_quiet() && future::poll_once(self.read()).await.is_none()
    }

    /// Whether it is open, and everything on it is answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.session.pending() == 0 && open.input.is_empty())
    }

    /// What the socket said last, if it has failed since the last time this was asked.
    pub(super) fn take_cause(&mut self) -> Option<io::Error> {
        self.cause.take()
    }

    /// Lets `machine` know that there is a connection, if there is one.
    pub(super) fn lend(&self, machine: &mut impl Machine) {
        if self.open.is_some() {
            machine.connected(clock::now());
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
            let wait = match machine.poll(clock::now()) {
                Action::Tell(news) => {
                    show(machine);
                    return Heard::News(news);
                }
                Action::Connect => {
                    show(machine);
                    match self.connect().await {
                        Ok(()) => machine.connected(clock::now()),
                        Err(error) => self.fail(machine, error),
                    }
                    continue;
                }
                Action::Disconnect => {
                    self.fail(machine, io::ErrorKind::TimedOut.into());
                    continue;
                }
                Action::Send(request) => {
                    let sent = match &mut self.open {
                        Some(open) => open.session.send(&request, &mut self.output),
                        None => continue,
                    };
                    show(machine);
                    let written = match sent {
                        Ok(_) => self.flush().await,
                        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
                    };
                    if let Err(error) = written {
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
                let read = async { Woken::Read(self.read().await) };
                let time = async {
                    sleep_until(wait).await;
                    Woken::Time
                };
                let call = async { Woken::Call(call.as_mut().await) };
                read.or(call).or(time).await
            };
            match woken {
                Woken::Read(Ok(1..)) | Woken::Time => {}
                Woken::Read(Ok(0)) => {
                    self.fail(machine, io::ErrorKind::UnexpectedEof.into());
                }
                Woken::Read(Err(error)) => self.fail(machine, error),
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

    fn fail(&mut self, machine: &mut impl Machine, error: io::Error) {
        self.open = None;
        self.output.clear();
        self.cause = Some(error);
        machine.disconnected(clock::now());
    }

    /// Sends what is encoded.
    async fn flush(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let written = within(CONNECT_TIMEOUT, open.stream.write_all(&self.output)).await;
        self.output.clear();
        written
    }

    /// Reads what has arrived; never ends if there is no connection.
    async fn read(&mut self) -> io::Result<usize> {
        let Some(open) = &mut self.open else {
            return future::pending().await;
        };
        if open.input.len() > INPUT_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let length = open.stream.read(&mut open.chunk).await?;
        open.input
            .extend_from_slice(open.chunk.get(..length).unwrap_or_default());
        Ok(length)
    }

    /// Hands the machine the next answer that is there in full, if there is one.
    fn take_answer(&mut self, machine: &mut impl Machine) -> io::Result<bool> {
        let Some(open) = &mut self.open else {
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

async fn open(endpoint: &Endpoint) -> io::Result<Pin<Box<dyn Stream>>> {
    Ok(match endpoint {
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect(&**address).await?;
            stream.set_nodelay(true)?;
            Box::pin(stream)
        }
        Endpoint::Unix(path) => Box::pin(UnixStream::connect(path.as_path()).await?),
    })
}

/// Sleeps until a moment; for ever if there is none. It may wake early, and the caller looks at the
/// clock again: the timer's stands still while the machine sleeps and ours does not.
async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => drop(Timer::after(clock::until(moment).min(LOOK_AGAIN)).await),
        None => future::pending().await,
    }
}

/// How long a timer is trusted before the clock is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

async fn within<T>(span: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    work.or(async {
        Timer::after(span).await;
        Err(io::ErrorKind::TimedOut.into())
    })
    .await
}
