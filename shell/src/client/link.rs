//! One user of a shared connection, and the loop that drives a machine over it.
//!
//! - V1: nothing here is waited for alone: the machine is asked again whenever it wants to be, so its
//!   deadlines hold whatever the server and the network do.
//! - V2: a server is silent only if nothing of it is there to be read: a process that was stopped takes
//!   its own standing still for the server's silence otherwise.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use latchd_core::client::{Action, AnyRequest, AnyResponse, Machine, Session};
use smol::Timer;
use smol::channel::{Receiver, Sender, unbounded};
use smol::future::{self, FutureExt};

use super::clock::{self, sleep_until};
use super::door::NotLetIn;
use super::driver::Heard;
use super::hub::{Hub, HubNews, Seat};

/// How long what has come while the process was stopped may take to be read (V2).
const CATCH_UP: Duration = Duration::from_millis(20);

/// One user's side of a shared connection.
pub(super) struct Link {
    hub: Hub,
    seat: Seat,
    asker: Sender<HubNews>,
    news: Receiver<HubNews>,
    /// Reads the answers to what this user has asked.
    session: Session,
    /// The attempt that we wait for, or have a connection of.
    attempt: Option<u64>,
    is_up: bool,
    /// What the socket said last when it failed.
    cause: Option<Arc<io::Error>>,
}

/// What woke the loop.
enum Woken<Call> {
    News(HubNews),
    Time,
    Call(Call),
}

impl Link {
    /// Joins the users of a connection. It counts as `load` of them.
    pub(super) fn new(hub: Hub, load: usize) -> Self {
        let (asker, news) = unbounded();
        Self {
            seat: hub.join(asker.clone(), load),
            hub,
            asker,
            news,
            session: Session::new(),
            attempt: None,
            is_up: false,
            cause: None,
        }
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn connect(&mut self) -> io::Result<()> {
        let (attempt, mut is_open) = self.hub.want();
        self.attempt = Some(attempt);
        while !is_open {
            match self.news.recv().await {
                Ok(HubNews::Opened(of)) => is_open = of == attempt,
                Ok(HubNews::Gone(of, cause)) if of == attempt => return Err(copy_of(&cause)),
                Ok(HubNews::Gone(..) | HubNews::Answer(..)) => {}
                Err(_) => return Err(io::ErrorKind::NotConnected.into()),
            }
        }
        self.is_up = true;
        self.session = Session::new();
        Ok(())
    }

    /// Sends requests, all at once, and hands `each` of the answers on with the place of its request,
    /// several of one request one by one. The answers may take `within` from when there is a connection.
    ///
    /// # Errors
    /// The socket's; [`io::ErrorKind::TimedOut`] if the server does not answer. Nobody knows what it has
    /// executed then.
    pub(super) async fn ask(
        &mut self,
        requests: &[AnyRequest<'_>],
        within: Duration,
        each: impl FnMut(usize, &AnyResponse<'_>),
    ) -> io::Result<()> {
        self.connect().await?;
        for request in requests {
            self.send(request)?;
        }
        let answers = self.answers(requests.len(), each);
        let late = async {
            Timer::after(within).await;
            Err(io::ErrorKind::TimedOut.into())
        };
        let answered = answers.or(late).await;
        if let (Err(_), Some(attempt)) = (&answered, self.attempt) {
            self.hub.break_off(attempt);
        }
        answered
    }

    async fn answers(
        &mut self,
        count: usize,
        mut each: impl FnMut(usize, &AnyResponse<'_>),
    ) -> io::Result<()> {
        let mut place = 0;
        while place < count {
            match self.news.recv().await {
                Ok(HubNews::Answer(attempt, bytes)) if self.attempt == Some(attempt) => {
                    let received = self.session.receive(&bytes);
                    let Ok(Some(received)) = received else {
                        return Err(io::ErrorKind::InvalidData.into());
                    };
                    each(place, &received.answer);
                    place += usize::from(received.last);
                }
                Ok(HubNews::Gone(attempt, cause)) if self.attempt == Some(attempt) => {
                    return Err(copy_of(&cause));
                }
                Ok(HubNews::Opened(_) | HubNews::Answer(..) | HubNews::Gone(..)) => {}
                Err(_) => return Err(io::ErrorKind::NotConnected.into()),
            }
        }
        Ok(())
    }

    /// What the socket said last, if it has failed since the last time this was asked.
    pub(super) fn take_cause(&mut self) -> Option<io::Error> {
        self.cause.take().map(|cause| copy_of(&cause))
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
        let mut has_caught_up = false;
        loop {
            let until = match machine.poll(clock::now()) {
                Action::Tell(news) => {
                    show(machine);
                    return Heard::News(news);
                }
                Action::Connect { until } => {
                    if self.attempt.is_none() {
                        let (attempt, is_open) = self.hub.want();
                        self.attempt = Some(attempt);
                        if is_open {
                            self.connected(machine);
                            continue;
                        }
                    }
                    until
                }
                Action::Disconnect => {
                    if !has_caught_up {
                        has_caught_up = true;
                        let news = async { self.news.recv().await.ok() };
                        let late = async {
                            Timer::after(CATCH_UP).await;
                            None
                        };
                        if let Some(news) = news.or(late).await {
                            self.hear(machine, news);
                        }
                    } else if let Some(attempt) = self.attempt {
                        self.hub.break_off(attempt);
                        self.gone(machine, Arc::new(io::ErrorKind::TimedOut.into()));
                    } else {
                        machine.disconnected(clock::now());
                    }
                    continue;
                }
                Action::Send(request) => {
                    if let Err(error) = self.send(&request) {
                        self.gone(machine, Arc::new(error));
                    }
                    continue;
                }
                Action::Wait { until } => until,
            };
            has_caught_up = false;
            if let Ok(news) = self.news.try_recv() {
                self.hear(machine, news);
                continue;
            }
            show(machine);
            let woken = {
                let news = async {
                    match self.news.recv().await {
                        Ok(news) => Woken::News(news),
                        // We have a sender of our own.
                        Err(_) => future::pending().await,
                    }
                };
                let time = async {
                    sleep_until(until).await;
                    Woken::Time
                };
                let call = async { Woken::Call(call.as_mut().await) };
                news.or(call).or(time).await
            };
            match woken {
                Woken::News(news) => self.hear(machine, news),
                Woken::Time => {}
                Woken::Call(call) => return Heard::Call(call),
            }
        }
    }

    /// Sends a request over the connection there is.
    fn send(&mut self, request: &AnyRequest<'_>) -> io::Result<()> {
        let attempt = self.attempt.filter(|_| self.is_up);
        let attempt = attempt.ok_or(io::ErrorKind::NotConnected)?;
        self.hub.send(attempt, request, &self.asker)?;
        // The bytes are the hub's; here it is noted what the answer looks like.
        self.session
            .expect(request)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(())
    }

    fn hear(&mut self, machine: &mut impl Machine, news: HubNews) {
        match news {
            HubNews::Opened(attempt) if self.attempt == Some(attempt) && !self.is_up => {
                self.connected(machine);
            }
            HubNews::Gone(attempt, cause) if self.attempt == Some(attempt) => {
                self.gone(machine, cause);
            }
            HubNews::Answer(attempt, bytes) if self.attempt == Some(attempt) && self.is_up => {
                if let Ok(Some(received)) = self.session.receive(&bytes) {
                    machine.reply(clock::now(), &received.answer);
                } else {
                    self.hub.break_off(attempt);
                    self.gone(machine, Arc::new(io::ErrorKind::InvalidData.into()));
                }
            }
            // Of a connection that is over for us.
            HubNews::Opened(_) | HubNews::Gone(..) | HubNews::Answer(..) => {}
        }
    }

    fn connected(&mut self, machine: &mut impl Machine) {
        self.is_up = true;
        self.session = Session::new();
        machine.connected(clock::now());
    }

    fn gone(&mut self, machine: &mut impl Machine, cause: Arc<io::Error>) {
        self.attempt = None;
        self.is_up = false;
        self.cause = Some(cause);
        machine.disconnected(clock::now());
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.hub.leave(&self.seat);
    }
}

/// An error that says the same.
fn copy_of(error: &io::Error) -> io::Error {
    if let Some(refused) = NotLetIn::of(error) {
        return refused.clone().into();
    }
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
