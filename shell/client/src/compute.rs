//! Reads a value that one client at a time computes.

use std::io;
use std::sync::Arc;

use async_channel::{Receiver, Sender, bounded};
use latchd_client_core::{Failure, Recompute, RecomputeNews, RecomputeTerms};
use latchd_protocol::key::Key;

use super::background::within;
use super::clock;
use super::driver::{Driver, Heard};
use super::error::{ComputeError, ErrorKind};
use super::pending_release::{self, Holder};
use super::pool::Pool;
use super::shared_values::{Answer, Joined, Leader};
use super::task::Task;

/// A value, and how it was obtained.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Value {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether this call computed it.
    pub computed: bool,
    /// Whether the server stored it. It did not if another client changed the item or locked the key meanwhile, if the
    /// server became unreachable, or if it has refused.
    pub stored: bool,
    /// Whether it is marked stale while another client computes a new one.
    pub stale: bool,
    /// The server's refusal to store it, as of a value that is too large.
    pub refusal: Option<Box<str>>,
}

impl Value {
    /// A value of the cache.
    pub(super) const fn found(bytes: Vec<u8>, stale: bool) -> Self {
        Self {
            bytes,
            computed: false,
            stored: true,
            stale,
            refusal: None,
        }
    }

    /// A value that this call has computed; `news` is the result of the store.
    fn computed(bytes: Vec<u8>, news: RecomputeNews) -> Self {
        Self {
            bytes,
            computed: true,
            stored: news == RecomputeNews::Stored,
            stale: false,
            refusal: if let RecomputeNews::Failed(Failure::Refused(words)) = news {
                Some(words)
            } else {
                None
            },
        }
    }
}

/// A read under way, with a task of its own. If it is dropped, the task gives back a win, also one that the reply has yet
/// to bring.
struct Reading {
    task: Arc<Task>,
    /// The value, or nothing if it could not be computed.
    computed: Sender<Option<Vec<u8>>>,
    news: Receiver<News>,
    _holder: Holder,
}

/// The news of a read: also the computed value, and the socket's last error.
struct News {
    what: RecomputeNews,
    computed: Option<Vec<u8>>,
    cause: Option<io::Error>,
}

impl Reading {
    fn begin(pool: &Pool, driver: Driver, machine: Recompute) -> Self {
        let (computed, made) = bounded(1);
        let (tell, news) = bounded(2);
        let (holder, pending) = pending_release::new();
        pending_release::flush_at_end();
        let pool = pool.clone();
        let task = Task::new(async move {
            serve(&pool, driver, machine, &made, &tell).await;
            drop(pending);
        });
        Self {
            task,
            computed,
            news,
            _holder: holder,
        }
    }

    /// Waits for the next news; after [`Compute`](RecomputeNews::Compute) one more comes.
    async fn news(&self) -> News {
        let news = Arc::clone(&self.task).while_waiting(self.news.recv());
        news.await.expect("the task tells before it ends")
    }
}

/// Drives the read until it has no win, and returns its connection to the pool, attached or not.
async fn serve(
    pool: &Pool,
    mut driver: Driver,
    mut machine: Recompute,
    made: &Receiver<Option<Vec<u8>>>,
    tell: &Sender<News>,
) {
    let (mut computed, mut is_awaited, mut last) = (None, true, None);
    loop {
        match driver.drive(&mut machine, made.recv(), |_| {}).await {
            Heard::News(what) => {
                let news = News {
                    what,
                    computed: computed.take(),
                    cause: driver.take_cause(),
                };
                // While the caller computes there is no news for it.
                last = std::mem::take(&mut is_awaited).then_some(news);
                if machine.is_idle() {
                    break;
                }
                // The caller may be gone.
                let _ = last.take().map(|news| tell.try_send(news));
            }
            Heard::Call(Ok(value)) => {
                match &value {
                    Some(bytes) => machine.computed(clock::now(), bytes),
                    None => machine.give_back(clock::now()),
                }
                (computed, is_awaited) = (value, true);
            }
            // The caller has left.
            Heard::Call(Err(_)) => break,
        }
    }
    machine.abandon(clock::now());
    while !machine.is_idle() {
        // The result does not matter: a win also ends by time.
        let _ = driver.news(&mut machine).await;
    }
    pool.give_back(driver, machine.kept());
    // The next call finds the connection in the pool.
    let _ = last.map(|news| tell.try_send(news));
}

/// Reads a value that one client at a time computes. Tasks of this process ask once, and share the answer.
pub(super) async fn compute<E>(
    pool: &Pool,
    key: Key<'_>,
    terms: RecomputeTerms,
    make: impl AsyncFnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
) -> Result<Value, ComputeError<E>> {
    pool.check_process()?;
    let begun = clock::now();
    let patience = terms.deadline.unwrap_or(terms.claim);
    let mut make = Some(make);
    loop {
        let left = patience.saturating_sub(clock::since(begun));
        let joined = within(left, pool.computes.join(key.as_bytes())).await;
        match joined.ok_or_else(|| pool.error(ErrorKind::TimedOut))? {
            Joined::Leader(leader) => {
                let Some(make) = make.take() else {
                    unreachable!("a leader returns");
                };
                return lead(pool, key, terms, make, leader).await;
            }
            Joined::Answer(Answer::Value(value)) => {
                let computed = false;
                return Ok(Value { computed, ..value });
            }
            Joined::Answer(Answer::Failed) => return Err(ComputeError::Elsewhere),
            Joined::Answer(Answer::Error(error)) => return Err(error.into()),
            Joined::Answer(Answer::None) => {}
        }
    }
}

/// Reads the value for all tasks of this process, or computes it.
async fn lead<E>(
    pool: &Pool,
    key: Key<'_>,
    terms: RecomputeTerms,
    make: impl AsyncFnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
    mut leader: Leader,
) -> Result<Value, ComputeError<E>> {
    let permit = pool.computes.permit().await;
    let (driver, kept) = pool.driver(terms.session.is_some()).await;
    let mut machine = Recompute::new(key, terms);
    if let Some(kept) = kept {
        machine.resume(clock::now(), kept);
    }
    machine.read(clock::now());
    let reading = Reading::begin(pool, driver, machine);
    let News { what, cause, .. } = reading.news().await;
    let old = match what {
        RecomputeNews::Found { value, stale } => {
            let value = Value::found(value.into_vec(), stale);
            leader.end(Answer::Value(value.clone()));
            return Ok(value);
        }
        RecomputeNews::TimedOut => {
            let error = pool.error(ErrorKind::TimedOut);
            leader.end(Answer::Error(error.clone()));
            return Err(error.into());
        }
        RecomputeNews::Failed(failure) => {
            let error = pool.error(ErrorKind::from_failure(failure, cause));
            leader.end(Answer::Error(error.clone()));
            return Err(error.into());
        }
        RecomputeNews::Compute { old } => old,
        RecomputeNews::Stored | RecomputeNews::Superseded | RecomputeNews::GaveBack => {
            unreachable!("nothing was stored or given back")
        }
    };
    drop(permit);
    let old = old.map(<[u8]>::into_vec);
    if old.is_some() {
        // The others read the old value meanwhile.
        leader.end(Answer::None);
    }
    let (value, failure) = match make(old).await {
        Ok(bytes) => (Some(bytes), None),
        Err(error) => (None, Some(error)),
    };
    // The task takes one value, and tells of it once.
    let _ = reading.computed.try_send(value);
    let News { what, computed, .. } = reading.news().await;
    if let Some(error) = failure {
        leader.end(Answer::Failed);
        return Err(ComputeError::Compute(error));
    }
    let value = Value::computed(computed.unwrap_or_default(), what);
    leader.end(Answer::Value(value.clone()));
    Ok(value)
}
