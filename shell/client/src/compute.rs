//! Reads a value that one client at a time computes.

use latchd_core::client::{Failure, Recompute, RecomputeNews, RecomputeTerms};
use latchd_core::key::Key;

use super::driver::Driver;
use super::error::{ComputeError, Error, ErrorKind};
use super::pool::Pool;
use super::{background, clock, pending_release};

/// A value, and how it was obtained.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Value {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether this call computed it.
    pub computed: bool,
    /// Whether the server stored it. It did not if another client changed the item meanwhile, or if the
    /// server became unreachable.
    pub stored: bool,
    /// Whether it is marked stale while another client computes a new one.
    pub stale: bool,
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
        let Some((mut driver, mut machine)) = self.work.take() else {
            return;
        };
        machine.abandon(clock::now());
        if machine.is_idle() {
            return self.pool.give_back(driver);
        }
        let pool = self.pool.clone();
        // There was no holder from the start.
        let (_, pending) = pending_release::new();
        background::spawn(async move {
            while !machine.is_idle() {
                // The result does not matter: a win also ends by time.
                let _ = driver.news(&mut machine).await;
            }
            pool.give_back(driver);
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

pub(super) async fn get_or_compute<E>(
    pool: &Pool,
    key: Key<'_>,
    terms: RecomputeTerms,
    compute: impl AsyncFnOnce(Option<Vec<u8>>) -> Result<Vec<u8>, E>,
) -> Result<Value, ComputeError<E>> {
    pool.check_process()?;
    let driver = pool.driver().await;
    let mut machine = Recompute::new(key, terms);
    driver.lend(&mut machine);
    machine.knows(driver.win_support());
    machine.read(clock::now());
    let mut reading = Reading {
        pool: pool.clone(),
        work: Some((driver, machine)),
    };
    let old = match reading.news().await {
        RecomputeNews::Found { value, stale } => {
            return Ok(Value {
                bytes: value.into_vec(),
                computed: false,
                stored: true,
                stale,
            });
        }
        RecomputeNews::TimedOut => {
            return Err(pool.error(ErrorKind::TimedOut).into());
        }
        RecomputeNews::Failed(failure) => {
            return Err(reading.error(failure).into());
        }
        RecomputeNews::Compute { old } => old,
        RecomputeNews::Stored | RecomputeNews::Superseded | RecomputeNews::GaveBack => {
            unreachable!("nothing was stored or given back")
        }
    };
    let computed = compute(old.map(<[u8]>::into_vec)).await;
    let (_, machine) = reading.work.as_mut().expect("it is not finished");
    let now = clock::now();
    match &computed {
        Ok(bytes) => machine.computed(now, bytes),
        Err(_) => machine.give_back(now),
    }
    let news = reading.news().await;
    let bytes = computed.map_err(ComputeError::Compute)?;
    Ok(Value {
        bytes,
        computed: true,
        stored: news == RecomputeNews::Stored,
        stale: false,
    })
}
