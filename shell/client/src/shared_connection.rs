//! One connection that many callers share: a machine for the [driver](super::driver), whose task a waiting caller runs.
//!
//! A call is some requests, encoded by their caller. The task sends all that it finds in one write, and passes each reply
//! on to its caller.
//!
//! - H1: Replies are passed on in the order of the requests, each once, to its caller.
//! - H2: The end of a connection is the end of all calls on it. A call that was not sent waits for the next connection.
//! - H3: A reply that takes too long ends the connection for all: replies could no longer be matched to requests.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender, unbounded};
use latchd_client_core::{
    Action, AnyRequest, AnyResponse, Encoded, Machine, PENDING_MAX, Received, Session,
};
use latchd_protocol::Instant;
use latchd_protocol::time::saturating_millis;

use super::background::{self, is_forked};
use super::connector::Connector;
use super::driver::{Driver, Heard};
use super::error::{Error, ErrorKind};
use super::options::ClientOptions;
use super::task::Task;

/// The shortest time between a connection without any reply and the next one. A server or proxy that accepts and closes
/// at once must not be kept busy.
const PAUSE: Duration = Duration::from_millis(100);

/// A shared connection, which is opened when a call needs it. Clones are the same connection; dropping the last one
/// closes it.
#[derive(Clone)]
pub(super) struct SharedConnection {
    server: Arc<str>,
    calls: Sender<Call>,
    task: Arc<Task>,
    /// The number of requests of all [shares](Share).
    load: Arc<AtomicUsize>,
}

/// A caller's share of a connection's load.
pub(super) struct Share {
    connection: SharedConnection,
    load: usize,
}

/// Some requests, and the channel for their replies. Without requests, it waits for a connection.
struct Call {
    requests: Encoded,
    /// The number of unanswered requests.
    pending: usize,
    replies: Sender<Result<Box<[u8]>, Error>>,
}

impl SharedConnection {
    pub(super) fn new(connector: Connector, options: &ClientOptions) -> Self {
        let (calls, asked) = unbounded();
        let server = Arc::clone(connector.endpoint().name());
        let driver = Driver::new(connector, options);
        let machine = Calls::new(options.reply_timeout);
        let task = background::spawn(run(Arc::clone(&server), driver, machine, asked));
        Self {
            server,
            calls,
            task,
            load: Arc::default(),
        }
    }

    fn error(&self, error: io::Error) -> Error {
        Error::at(Arc::clone(&self.server), ErrorKind::of_socket(error))
    }

    /// The number of requests of its callers.
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// A share with this number of requests.
    pub(super) fn share(&self, load: usize) -> Share {
        self.load.fetch_add(load, Ordering::Relaxed);
        Share {
            connection: self.clone(),
            load,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.connection.load.fetch_sub(self.load, Ordering::Relaxed);
    }
}

impl Share {
    /// Sends requests, all at once, and passes each of the replies to `each` with the index of its request, several for
    /// one request one by one. Without requests, it waits for a connection.
    ///
    /// # Errors
    /// The socket's; [`io::ErrorKind::TimedOut`] if the server does not reply. The server may have executed any of the
    /// requests then.
    pub(super) async fn ask(
        &self,
        requests: &[AnyRequest<'_>],
        mut each: impl FnMut(usize, &AnyResponse<'_>),
    ) -> Result<(), Error> {
        let error = |error| self.connection.error(error);
        if is_forked() {
            return Err(error(io::ErrorKind::NotConnected.into()));
        }
        let invalid = |why| error(io::Error::new(io::ErrorKind::InvalidInput, why));
        let mut session = Session::new();
        let encoded = session.encode(requests).map_err(invalid)?;
        let (replies, inbox) = unbounded();
        let call = Call {
            requests: encoded,
            pending: requests.len(),
            replies,
        };
        let calls = &self.connection.calls;
        let answered = async {
            // The task has a receiver as long as it runs.
            let _ = calls.try_send(call);
            let mut place = 0;
            loop {
                let gone = |_| Err(error(io::ErrorKind::NotConnected.into()));
                let bytes = inbox.recv().await.unwrap_or_else(gone)?;
                if place < requests.len() {
                    let Ok(Some(received)) = session.receive(&bytes) else {
                        return Err(error(io::ErrorKind::InvalidData.into()));
                    };
                    each(place, &received.answer);
                    place += usize::from(received.last);
                }
                if place == requests.len() {
                    return Ok(());
                }
            }
        };
        let task = Arc::clone(&self.connection.task);
        task.while_waiting(answered).await
    }
}

/// The task of a connection, which ends with its last handle.
async fn run(server: Arc<str>, mut driver: Driver, mut machine: Calls, asked: Receiver<Call>) {
    loop {
        match driver.drive(&mut machine, asked.recv(), |_| {}).await {
            Heard::Call(Ok(call)) => {
                machine.add(call);
                while let Ok(call) = asked.try_recv() {
                    machine.add(call);
                }
            }
            Heard::Call(Err(_)) => return,
            Heard::News(failed) => {
                let cause = driver.take_cause();
                let cause = cause.unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into());
                let error = Error::at(Arc::clone(&server), ErrorKind::of_socket(cause));
                for call in failed {
                    call.reply(Err(error.clone()));
                }
            }
        }
    }
}

/// Calls that are sent once each.
struct Calls {
    reply_timeout: Duration,
    link: Link,
    waiting: VecDeque<Call>,
    /// At this number of waiting calls, those that nobody wants any more are removed.
    waiting_max: usize,
    /// The calls with unanswered requests, the oldest first, and when they were sent.
    sent: VecDeque<(Call, Instant)>,
    /// The number of unanswered requests.
    pending: usize,
    /// The calls that have ended with their connection.
    failed: Vec<Call>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Link {
    Down {
        retry_at: Instant,
    },
    /// `is_proven`: a reply has come.
    Up {
        is_proven: bool,
    },
    /// The server serves nothing: the next connection may lead to the primary.
    Unwanted,
}

impl Call {
    fn reply(&self, reply: Result<Box<[u8]>, Error>) {
        // A caller that is gone needs no reply.
        let _ = self.replies.try_send(reply);
    }
}

impl Calls {
    const fn new(reply_timeout: Duration) -> Self {
        Self {
            reply_timeout,
            link: Link::Down {
                retry_at: Instant::from_millis(0),
            },
            waiting: VecDeque::new(),
            waiting_max: PENDING_MAX,
            sent: VecDeque::new(),
            pending: 0,
            failed: Vec::new(),
        }
    }

    /// Adds a call. While the server is silent or away, callers may give up and ask again without end: of their calls, at
    /// most [`PENDING_MAX`] stay here.
    fn add(&mut self, call: Call) {
        self.waiting.push_back(call);
        if self.waiting.len() > self.waiting_max {
            self.waiting.retain(|call| !call.replies.is_closed());
            self.waiting_max = self.waiting.len() + PENDING_MAX;
        }
    }

    /// Answers the calls that wait only for a connection.
    fn answer_waits(&mut self) {
        self.waiting.retain(|call| {
            if call.pending == 0 {
                call.reply(Ok(Box::default()));
            }
            call.pending > 0
        });
    }

    /// When the oldest call has been unanswered for too long (H3).
    fn silence_end(&self) -> Option<Instant> {
        let (_, sent) = self.sent.front()?;
        Some(later(*sent, self.reply_timeout))
    }
}

fn later(moment: Instant, span: Duration) -> Instant {
    let ms = moment.as_millis().saturating_add(saturating_millis(span));
    Instant::from_millis(ms)
}

impl Machine for Calls {
    /// Calls that have failed.
    type News = Vec<Call>;

    fn poll(&mut self, now: Instant) -> Action<'_, Vec<Call>> {
        if !self.failed.is_empty() {
            return Action::Tell(std::mem::take(&mut self.failed));
        }
        let until = self.silence_end();
        if self.link == Link::Unwanted || until.is_some_and(|end| now >= end) {
            return Action::Disconnect;
        }
        match self.link {
            Link::Down { retry_at } if !self.waiting.is_empty() => {
                if now >= retry_at {
                    return Action::Connect { until: None };
                }
                return Action::Wait {
                    until: Some(retry_at),
                };
            }
            Link::Up { .. } => {
                self.answer_waits();
                let next = self.waiting.front().map_or(0, |call| call.pending);
                if next > 0 && self.pending + next <= PENDING_MAX {
                    self.pending += next;
                    let call = self.waiting.pop_front();
                    self.sent.extend(call.map(|call| (call, now)));
                    if let Some((call, _)) = self.sent.back() {
                        return Action::Send(AnyRequest::Encoded(&call.requests));
                    }
                }
            }
            Link::Down { .. } | Link::Unwanted => {}
        }
        Action::Wait { until }
    }

    fn connected(&mut self, _: Instant) {
        self.link = Link::Up { is_proven: false };
    }

    fn disconnected(&mut self, now: Instant) {
        let retry_at = match self.link {
            Link::Down { .. } => {
                self.failed.extend(self.waiting.drain(..));
                now
            }
            Link::Up { is_proven: false } => later(now, PAUSE),
            Link::Up { is_proven: true } | Link::Unwanted => now,
        };
        self.link = Link::Down { retry_at };
        self.failed
            .extend(self.sent.drain(..).map(|(call, _)| call));
        self.pending = 0;
    }

    fn reply(&mut self, _: Instant, answer: &AnyResponse<'_>) {
        if answer.is_not_primary() {
            self.link = Link::Unwanted;
        } else if let Link::Up { is_proven } = &mut self.link {
            *is_proven = true;
        }
    }

    fn received(&mut self, now: Instant, received: &Received<'_>, bytes: &[u8]) {
        self.reply(now, &received.answer);
        let Some((call, _)) = self.sent.front_mut() else {
            return;
        };
        call.reply(Ok(bytes.into()));
        if received.last {
            self.pending -= 1;
            call.pending -= 1;
            if call.pending == 0 {
                self.sent.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests;
