//! One user of a shared connection: calls of a few requests each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender, unbounded};
use futures_lite::future::{self, FutureExt};
use latchd_client_core::{AnyRequest, AnyResponse, Session};

use super::background::{Alarm, is_forked};
use super::connector::Unauthenticated;
use super::hub::{Hub, HubEvent, HubNews, Registration};
use super::task::Crew;

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
        }
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
        self.session = Session::new();
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

    fn send(&mut self, request: &AnyRequest<'_>) -> io::Result<()> {
        let attempt = self.attempt.ok_or(io::ErrorKind::NotConnected)?;
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

    pub(super) async fn event(&self) -> HubNews {
        match self.news.recv().await {
            Ok(news) => news,
            // This user holds a sender itself, so the channel stays open.
            Err(_) => future::pending().await,
        }
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
