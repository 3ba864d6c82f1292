//! Reads a value that one client at a time computes.

use async_channel::{Receiver, Sender, bounded};
use futures_lite::future::FutureExt;
use latchd_client_core::{Failure, Recompute, RecomputeNews, RecomputeTerms};
use latchd_protocol::key::Key;

use super::background::{self, Alarm};
use super::clock;
use super::driver::{Driver, Heard};
use super::error::{ComputeError, Error, ErrorKind};
use super::pending_release::{self, Holder};
use super::pool::Pool;
use super::shared_values::{Joined, Leader};

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

/// A read that gives back its win if it fails, even when its future is dropped.
struct Reading {
    pool: Pool,
    /// `None` once it is finished.
    work: Option<(Driver, Recompute)>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Reading {
    async fn news(&mut self) -> RecomputeNews {
        let (driver, machine) = self.work.as_mut().expect("it is not finished");
        let news = driver.news(machine).await;
        driver.keep_win_support(machine.words());
        news
    }

    /// Returns the connection to the pool once no request is unanswered on it. An unused win is given back
    /// first, also one that the reply has yet to bring.
    fn finish(&mut self) {
        let Some((driver, mut machine)) = self.work.take() else {
            return;
        };
        machine.abandon(clock::now());
        if machine.is_idle() {
            return give_back(&self.pool, driver, &machine);
        }
        let pool = self.pool.clone();
        // There was no holder from the start.
        let (_, pending) = pending_release::new();
        background::spawn(async move {
            finish(&pool, driver, machine).await;
            drop(pending);
        });
    }

    fn error(&mut self, failure: Failure) -> Error {
        let cause = self
            .work
            .as_mut()
            .and_then(|(driver, _)| driver.take_cause());
        self.pool.error(ErrorKind::from_failure(failure, cause))
    }
}

/// Does what is left to do, and returns the connection.
async fn finish(pool: &Pool, mut driver: Driver, mut machine: Recompute) {
    while !machine.is_idle() {
        // The result does not matter: a win also ends by time.
        let _ = driver.news(&mut machine).await;
    }
    give_back(pool, driver, &machine);
}

/// Returns the connection to the pool, attached or not.
fn give_back(pool: &Pool, mut driver: Driver, machine: &Recompute) {
    driver.keep_session(machine.session());
    pool.give_back(driver);
}

/// A win in a session, which the background keeps while the caller computes.
struct Kept {
    /// The value, or nothing if the win is to be given back.
    computed: Sender<Option<Vec<u8>>>,
    /// The value again, and whether it is stored.
    stored: Receiver<(Option<Vec<u8>>, RecomputeNews)>,
    _holder: Holder,
}

impl Kept {
    fn begin(pool: Pool, mut driver: Driver, mut machine: Recompute) -> Self {
        let (computed, made) = bounded::<Option<Vec<u8>>>(1);
        let (tell, stored) = bounded::<(Option<Vec<u8>>, RecomputeNews)>(1);
        let (holder, pending) = pending_release::new();
        pending_release::flush_at_end();
        background::spawn(async move {
            let made = loop {
                match driver.drive(&mut machine, made.recv(), |_| {}).await {
                    // The caller computes: there is no news for it.
                    Heard::News(_) => {}
                    Heard::Call(made) => break made.unwrap_or_default(),
                }
            };
            let now = clock::now();
            match &made {
                Some(bytes) => machine.computed(now, bytes),
                None => machine.give_back(now),
            }
            let news = driver.news(&mut machine).await;
            // The caller may be gone.
            let _ = tell.try_send((made, news));
            finish(&pool, driver, machine).await;
            drop(pending);
        });
        Self {
            computed,
            stored,
            _holder: holder,
        }
    }

    /// Stores the value. Returns it, and the result.
    async fn store(self, bytes: Vec<u8>) -> (Vec<u8>, RecomputeNews) {
        // The background takes one value, and answers once.
        let _ = self.computed.try_send(Some(bytes));
        match self.stored.recv().await {
            Ok((bytes, news)) => (bytes.unwrap_or_default(), news),
            Err(_) => unreachable!("the background has answered"),
        }
    }
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
        let late = async {
            Alarm::after(left).await;
            Err(pool.error(ErrorKind::TimedOut))
        };
        let joined = async { Ok(pool.computes().join(key.as_bytes()).await) };
        match joined.or(late).await? {
            Joined::Leader(leader) => {
                let Some(make) = make.take() else {
                    unreachable!("a leader returns");
                };
                return lead(pool, key, terms, make, leader).await;
            }
            Joined::Value(value) => return Ok(value),
            Joined::Failed => return Err(ComputeError::Elsewhere),
            Joined::Error(error) => return Err(error.into()),
            Joined::Again => {}
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
    let permit = pool.computes().permit().await;
    let in_session = terms.session.is_some();
    let driver = if in_session {
        pool.attached_driver().await
    } else {
        pool.driver().await
    };
    let mut machine = Recompute::new(key, terms);
    driver.lend(&mut machine);
    machine.knows(driver.win_support());
    if let Some(session) = driver.kept_session() {
        machine.resume(session.clone());
    }
    machine.read(clock::now());
    let mut reading = Reading {
        pool: pool.clone(),
        work: Some((driver, machine)),
    };
    let old = match reading.news().await {
        RecomputeNews::Found { value, stale } => {
            let value = Value::found(value.into_vec(), stale);
            leader.share(&value);
            return Ok(value);
        }
        RecomputeNews::TimedOut => {
            let error = pool.error(ErrorKind::TimedOut);
            leader.share_error(&error);
            return Err(error.into());
        }
        RecomputeNews::Failed(failure) => {
            let error = reading.error(failure);
            leader.share_error(&error);
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
        leader.let_go();
    }
    let value = made(&mut reading, in_session, make(old)).await;
    match &value {
        Ok(value) => leader.share(value),
        Err(_) => leader.fail(),
    }
    value.map_err(ComputeError::Compute)
}

/// Computes the value, and stores it.
async fn made<E>(
    reading: &mut Reading,
    in_session: bool,
    make: impl Future<Output = Result<Vec<u8>, E>>,
) -> Result<Value, E> {
    if in_session && let Some((driver, machine)) = reading.work.take() {
        let kept = Kept::begin(reading.pool.clone(), driver, machine);
        let (bytes, news) = kept.store(make.await?).await;
        return Ok(Value::computed(bytes, news));
    }
    let computed = make.await;
    let (_, machine) = reading.work.as_mut().expect("it is not finished");
    let now = clock::now();
    match &computed {
        Ok(bytes) => machine.computed(now, bytes),
        Err(_) => machine.give_back(now),
    }
    let news = reading.news().await;
    Ok(Value::computed(computed?, news))
}
