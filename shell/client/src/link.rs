//! One user of a shared connection: a machine to be [driven](super::drive), or calls of one request each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender, unbounded};
use async_io::Timer;
use futures_lite::future::{self, FutureExt};
use latchd_client_core::{AnyRequest, AnyResponse, HoldSupport, Machine, Session};

use super::background::{Alarm, is_forked};
use super::clock;
use super::connector::Unauthenticated;
use super::drive::Line;
use super::hub::{Hub, HubEvent, HubNews, Registration};
use super::task::{Crew, Task};

/// The longest time to read bytes that arrived while the process was stopped (V2 of [`drive`](super::drive)).
const CATCH_UP: Duration = Duration::from_millis(20);

/// One user's side of a shared connection.
pub(super) struct Link {
    hub: Hub,
    registration: Registration,
    asker: Sender<HubNews>,
    news: Receiver<HubNews>,
    /// Reads the replies to this user's requests.
    session: Session,
    /// The current attempt, which may be open.
    attempt: Option<u64>,
    is_up: bool,
    /// The socket's last error.
    cause: Option<Arc<io::Error>>,
}

impl Link {
    /// Joins the users of a connection, with this share of its load.
    pub(super) fn new(hub: Hub, load: usize) -> Self {
        let (asker, news) = unbounded();
        Self {
            registration: hub.join(asker.clone(), load),
            hub,
            asker,
            news,
            session: Session::new(),
            attempt: None,
            is_up: false,
            cause: None,
        }
    }

    /// The task that owns the socket.
    pub(super) const fn task(&self) -> &Arc<Task> {
        self.hub.task()
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) async fn connect(&mut self) -> io::Result<()> {
        if is_forked() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let (attempt, mut is_open) = self.hub.want();
        self.attempt = Some(attempt);
        while !is_open {
            match self.current().await {
                HubEvent::Opened => is_open = true,
                HubEvent::Gone(cause) => return Err(copy_of(&cause)),
                HubEvent::Answer(_) => {}
            }
        }
        self.begin();
        Ok(())
    }

    /// Sends requests, all at once. Passes each of the replies to `each` with the index of its request,
    /// several for one request one by one. The replies may take `within` after the connection is open.
    ///
    /// # Errors
    /// The socket's; [`io::ErrorKind::TimedOut`] if the server does not reply. The server may have executed
    /// any of the requests then.
    pub(super) async fn ask(
        &mut self,
        requests: &[AnyRequest<'_>],
        within: Duration,
        each: impl FnMut(usize, &AnyResponse<'_>),
    ) -> io::Result<()> {
        if is_forked() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let crew = Crew::of(Arc::clone(self.hub.task()));
        crew.while_waiting(self.ask_and_wait(requests, within, each))
            .await
    }

    async fn ask_and_wait(
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
            Alarm::after(within).await;
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
            match self.current().await {
                HubEvent::Answer(bytes) => {
                    let received = self.session.receive(&bytes);
                    let Ok(Some(received)) = received else {
                        return Err(io::ErrorKind::InvalidData.into());
                    };
                    each(place, &received.answer);
                    place += usize::from(received.last);
                }
                HubEvent::Gone(cause) => return Err(copy_of(&cause)),
                HubEvent::Opened => {}
            }
        }
        Ok(())
    }

    /// Waits for the next event of the current attempt.
    async fn current(&mut self) -> HubEvent {
        loop {
            let news = self.event().await;
            if self.attempt == Some(news.attempt) {
                return news.event;
            }
        }
    }

    /// The socket's error since the last call, if there was one.
    pub(super) fn take_cause(&mut self) -> Option<io::Error> {
        self.cause.take().map(|cause| copy_of(&cause))
    }
}

impl Line for Link {
    type Event = HubNews;

    fn open(&mut self) -> bool {
        if self.attempt.is_some() {
            return false;
        }
        let (attempt, is_open) = self.hub.want();
        self.attempt = Some(attempt);
        if is_open {
            self.begin();
        }
        is_open
    }

    fn hold_support(&self) -> HoldSupport {
        let known = |attempt| self.hub.hold_support(attempt);
        self.attempt.map(known).unwrap_or_default()
    }

    fn send(&mut self, request: &AnyRequest<'_>) -> io::Result<()> {
        let attempt = self.attempt.filter(|_| self.is_up);
        let attempt = attempt.ok_or(io::ErrorKind::NotConnected)?;
        match self.hub.send(attempt, request, &self.asker) {
            // The news of its end has come already (H2), with the reason.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(()),
            sent => sent?,
        }
        // The hub sends the bytes; the session here expects the reply.
        self.session
            .expect(request)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(())
    }

    async fn event(&mut self) -> HubNews {
        match self.news.recv().await {
            Ok(news) => news,
            // This user holds a sender itself, so the channel stays open.
            Err(_) => future::pending().await,
        }
    }

    fn take(&mut self, news: HubNews, machine: &mut impl Machine) {
        let HubNews { attempt, event } = news;
        if self.attempt != Some(attempt) {
            // This user has left that connection.
            return;
        }
        match event {
            // This user found it open.
            HubEvent::Opened if self.is_up => {}
            HubEvent::Opened => {
                self.begin();
                machine.connected(clock::now());
                machine.hold_support(self.hold_support());
            }
            HubEvent::Gone(cause) => self.end(machine, cause),
            HubEvent::Answer(bytes) => {
                machine.hold_support(self.hold_support());
                if let Ok(Some(received)) = self.session.receive(&bytes) {
                    machine.reply(clock::now(), &received.answer);
                } else {
                    self.hub.break_off(attempt);
                    self.fail(machine, io::ErrorKind::InvalidData.into());
                }
            }
        }
    }

    fn take_ready(&mut self, _: &mut impl Machine) -> bool {
        // All its news are events.
        false
    }

    async fn give_up(&mut self, machine: &mut impl Machine) {
        let late = async {
            Timer::after(CATCH_UP).await;
            None
        };
        let news = async { Some(self.event().await) }.or(late).await;
        if let Some(news) = news {
            self.take(news, machine);
        } else if let Some(attempt) = self.attempt {
            self.hub.break_off(attempt);
            self.fail(machine, io::ErrorKind::TimedOut.into());
        } else {
            machine.disconnected(clock::now());
        }
    }

    fn fail(&mut self, machine: &mut impl Machine, cause: io::Error) {
        self.end(machine, Arc::new(cause));
    }
}

impl Link {
    /// Starts on a connection without any request of this user.
    fn begin(&mut self) {
        self.is_up = true;
        self.session = Session::new();
    }

    /// Ends the connection for this user.
    fn end(&mut self, machine: &mut impl Machine, cause: Arc<io::Error>) {
        self.attempt = None;
        self.is_up = false;
        self.cause = Some(cause);
        machine.disconnected(clock::now());
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.hub.leave(&self.registration);
    }
}

/// A copy of an error.
fn copy_of(error: &io::Error) -> io::Error {
    if let Some(refused) = Unauthenticated::of(error) {
        return refused.clone().into();
    }
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
