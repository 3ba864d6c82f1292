//! Keeps a lock of less than a second: one that is bound to a connection, and also ends by time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Sender;
use latchd_client_core::{Bound, BoundNews, Failure, TermsError};

use super::calls::{Caller, reply};
use super::clock;
use super::drive::{Heard, drive};
use super::driver::Driver;
use super::error::{Error, ErrorKind};
use super::lock::{LockCall, LockWatch, TaskEnd};
use super::pending_release::PendingRelease;
use super::pool::Pool;

/// A lock, and its pending calls.
struct Short {
    pool: Pool,
    driver: Driver,
    bound: Bound,
    watch: Arc<LockWatch>,
    /// Dropped when the lock is lost or released.
    alive: Option<Sender<Infallible>>,
    /// Whether the server, too, holds no lock of this client on the connection.
    free: bool,
    obtain: Option<Caller<Vec<u64>>>,
    /// The caller of a refresh or a release.
    change: Option<Caller<()>>,
    measure: Option<Caller<Duration>>,
    _pending: PendingRelease,
}

/// Obtains and keeps it until the holder is gone. The connection is closed then, unless the server confirmed
/// the release.
pub(super) async fn keep(pool: Pool, driver: Driver, bound: Bound, end: TaskEnd) {
    let mut short = Short {
        pool,
        driver,
        bound,
        watch: end.watch,
        alive: Some(end.alive),
        free: false,
        obtain: Some(end.obtain),
        change: None,
        measure: None,
        _pending: end.pending,
    };
    short.driver.lend(&mut short.bound);
    short.bound.knows(short.driver.lock_support());
    short.bound.obtain(clock::now());
    loop {
        let busy = short.change.is_some() || short.measure.is_some();
        let call = async {
            if busy {
                std::future::pending().await
            } else {
                end.calls.recv().await
            }
        };
        let watch = Arc::clone(&short.watch);
        let show = |bound: &Bound| watch.show(bound.deadline(), false);
        match drive(&mut short.driver, &mut short.bound, call, show).await {
            Heard::News(news) => short.tell(news),
            Heard::Call(Ok(call)) => short.take(call),
            Heard::Call(Err(_)) => break,
        }
    }
    if short.free {
        short.driver.keep_lock_support(short.bound.words());
        short.pool.give_back(short.driver);
    }
}

impl Short {
    fn take(&mut self, call: LockCall) {
        match call {
            LockCall::Refresh(ttl, answer) if ttl < latchd_client_core::SHORT_TTL_MIN => {
                reply(&mut Some(answer), Err(TermsError::TtlTooShort.into()));
            }
            LockCall::Refresh(ttl, answer) => {
                self.change = Some(answer);
                self.bound.refresh(ttl);
            }
            LockCall::Measure(answer) => {
                self.measure = Some(answer);
                self.bound.check();
            }
            LockCall::Release(answer) => {
                self.change = Some(answer);
                self.bound.release();
            }
            LockCall::Detach(answer) => reply(&mut Some(answer), Err(TermsError::Short.into())),
        }
    }

    fn tell(&mut self, news: BoundNews) {
        match news {
            BoundNews::Obtained => {
                let numbers = self.bound.number().into_iter().collect();
                reply(&mut self.obtain, Ok(numbers));
            }
            BoundNews::NotObtained(why) => {
                self.free = true;
                let error = self.pool.error(ErrorKind::NotObtained(why));
                reply(&mut self.obtain, Err(error));
            }
            BoundNews::Refreshed => reply(&mut self.change, Ok(())),
            BoundNews::Checked => {
                let left = self.watch.remaining();
                reply(&mut self.measure, Ok(left));
            }
            BoundNews::Released => {
                self.free = true;
                self.let_go(None);
                reply(&mut self.change, Ok(()));
            }
            BoundNews::Undone(failure) => {
                let error = self.error(failure);
                self.fail(error);
            }
            BoundNews::NotHeld => {
                self.let_go(None);
                let loss = self.watch.loss();
                self.fail(self.pool.error(ErrorKind::NotHeld(loss)));
            }
            BoundNews::Lost(loss) => {
                self.let_go(Some(loss));
                self.fail(self.pool.error(ErrorKind::NotHeld(Some(loss))));
            }
            BoundNews::Failed(failure) => {
                let error = self.error(failure);
                reply(&mut self.obtain, Err(error));
            }
            BoundNews::Read(_) | BoundNews::Written | BoundNews::SessionEnded => {
                unreachable!("it was not requested")
            }
        }
    }

    fn error(&mut self, failure: Failure) -> Error {
        let cause = self.driver.take_cause();
        self.pool.error(ErrorKind::from_failure(failure, cause))
    }

    /// Replies to the pending call, if there is one.
    fn fail(&mut self, error: Error) {
        if self.measure.is_some() {
            reply(&mut self.measure, Err(error));
        } else {
            reply(&mut self.change, Err(error));
        }
    }

    /// Marks the lock as not held.
    fn let_go(&mut self, loss: Option<latchd_client_core::Loss>) {
        self.watch.let_go(loss);
        self.alive = None;
    }
}
