//! A connection-bound lock, or one in a session.

use std::convert::Infallible;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use latchd_client_core::{Bound, BoundNews, Failure, Item, Loss, TermsError};
use latchd_protocol::Instant;
use latchd_protocol::fence::Fence;
use latchd_protocol::time::Exptime;

use super::calls::{self, CALLS_MAX, Caller, reply};
use super::clock;
use super::drive::{Heard, drive};
use super::driver::Driver;
use super::error::{Error, ErrorKind};
use super::pending_release::{self, Holder, PendingRelease};
use super::pool::Pool;
use super::task::{Crew, Task};

/// A connection-bound lock that is held.
///
/// [`release`](Self::release) and [`replace_and_unlock`](Self::replace_and_unlock) release it. Dropping it
/// closes its connection, and the server frees the lock at once. The server also frees it when the process
/// dies.
///
/// A thread of the process (see [`Lock`](super::Lock), "In the background") keeps the connection, and checks
/// it while it is silent. A server that became unreachable may grant the lock to another client before this
/// one notices, within at most the heartbeat plus the reply timeout. If that matters, pass the
/// [number](Self::number) to the protected resource.
///
/// # In a session
///
/// A lock in a [session](super::BoundOptions::session) outlives its connection. While the connection is broken,
/// [`is_held`](Self::is_held) stays true and calls wait, until the session has its next connection or its time is over by
/// the holder's clock. Dropping it ends the session in the background. If the process dies, the server frees the lock after
/// the session's time. [`set`](Self::set) may be executed twice if its reply is lost.
#[must_use = "a lock that is not kept is released at once"]
pub struct BoundLock {
    key: Box<[u8]>,
    number: Option<u64>,
    fence: Option<Fence>,
    calls: Sender<BoundCall>,
    watch: Arc<BoundWatch>,
    pool: Pool,
    /// The tasks that bring the replies to calls.
    crew: Crew,
    /// Of a lock in a session.
    _holder: Option<Holder>,
}

struct BoundWatch {
    /// When it is lost without a sign of life, in milliseconds.
    deadline_ms: AtomicU64,
    loss: OnceLock<Loss>,
    /// Closed when the lock is lost or released.
    lost: Receiver<Infallible>,
}

enum BoundCall {
    Check(Caller<()>),
    Inheritable(Caller<OwnedFd>),
    Read(Caller<Item>),
    Write {
        value: Vec<u8>,
        exptime: Exptime,
        unlock: bool,
        answer: Caller<()>,
    },
    Release(Caller<()>),
}

impl BoundLock {
    pub(super) async fn obtain(pool: &Pool, bound: Bound) -> Result<Self, Error> {
        pool.check_process()?;
        let (calls, heard) = bounded(CALLS_MAX);
        let (alive, lost) = bounded(1);
        let watch = Arc::new(BoundWatch {
            deadline_ms: AtomicU64::new(u64::MAX),
            loss: OnceLock::new(),
            lost,
        });
        let key = bound.key().into();
        let (answer, obtained) = bounded(1);
        let (holder, pending) = bound.is_in_session().then(pending_release::new).unzip();
        let work = BoundTask {
            driver: pool.driver().await,
            pool: pool.clone(),
            bound,
            watch: Arc::clone(&watch),
            alive: Some(alive),
            free: false,
            obtain: Some(answer),
            read: None,
            write: None,
            _pending: pending,
        };
        pending_release::flush_at_end();
        let crew = Crew::of(Task::new(work.run(heard)));
        let (number, fence) = crew
            .clone()
            .while_waiting(obtained.recv())
            .await
            .map_err(|_| pool.error(ErrorKind::NotHeld(None)))??;
        Ok(Self {
            key,
            number,
            fence,
            calls,
            watch,
            pool: pool.clone(),
            crew,
            _holder: holder,
        })
    }

    /// The item's key.
    #[must_use]
    pub const fn key(&self) -> &[u8] {
        &self.key
    }

    /// The number of the grant: a later holder has a higher one. latchd numbers every grant, and the numbers
    /// rise across its restarts. On other servers, a grant has a number only with a [`Mark`](super::Mark),
    /// and numbers rise until the server restarts.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// The fence of the grant, for [`Client::in_grant`](super::Client::in_grant); `None` on a server that does
    /// not number grants.
    #[must_use]
    pub const fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// Whether this client holds it, as far as the client knows.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.watch.lost.is_closed() && self.watch.has_time(clock::now())
    }

    /// The time until it is lost without a sign of life from the server, by the client's clock; 0 if it is not held.
    /// `None` if only the end of its connection ends it.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        if self.watch.lost.is_closed() {
            return Some(Duration::ZERO);
        }
        self.watch.deadline().map(clock::until)
    }

    /// Waits until the lock is lost, and returns the reason.
    pub async fn lost(&self) -> Loss {
        self.watch.ended().await.unwrap_or(Loss::Disconnected)
    }

    /// As [`lost`](Self::lost), in a future that borrows nothing; `None` if the lock is released.
    pub fn watch(&self) -> impl Future<Output = Option<Loss>> + Send + 'static {
        let watch = Arc::clone(&self.watch);
        async move { watch.ended().await }
    }

    /// Checks the connection now, without waiting for the next heartbeat.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock is lost.
    pub async fn check(&self) -> Result<(), Error> {
        self.call(BoundCall::Check).await
    }

    /// Copies the lock's connection, so that programs started from now on inherit it. The lock lasts until it
    /// is released, or until every copy is closed, for example by the death of the last process that has one.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock is lost; [`ErrorKind::Unreachable`] if no file descriptor is left;
    /// [`ErrorKind::Terms`] for a lock in a session, which no connection keeps.
    pub async fn inheritable(&self) -> Result<OwnedFd, Error> {
        self.call(BoundCall::Inheritable).await
    }

    /// Reads the item.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock is lost; another kind if the server refused.
    pub async fn get(&self) -> Result<Vec<u8>, Error> {
        let item = self.call(BoundCall::Read).await?;
        Ok(item.value.into_vec())
    }

    /// Stores a value, and keeps the lock.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn set(&self, value: impl Into<Vec<u8>>, exptime: Exptime) -> Result<(), Error> {
        self.write(value.into(), exptime, false).await
    }

    /// Stores a value, and releases the lock.
    ///
    /// # Errors
    /// As [`get`](Self::get); the lock is released in every case.
    pub async fn replace_and_unlock(
        self,
        value: impl Into<Vec<u8>>,
        exptime: Exptime,
    ) -> Result<(), Error> {
        self.write(value.into(), exptime, true).await
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it was lost before.
    pub async fn release(self) -> Result<(), Error> {
        self.pool.check_process()?;
        let crew = self.crew.clone();
        // The caller runs the tasks to their end: then the next call can use the connection.
        let released = async move {
            let released = self.ask(BoundCall::Release).await;
            drop(self);
            released
        };
        crew.while_waiting(released).await
    }

    async fn write(&self, value: Vec<u8>, exptime: Exptime, unlock: bool) -> Result<(), Error> {
        self.call(|answer| BoundCall::Write {
            value,
            exptime,
            unlock,
            answer,
        })
        .await
    }

    async fn call<T>(&self, call: impl FnOnce(Caller<T>) -> BoundCall) -> Result<T, Error> {
        self.pool.check_process()?;
        self.crew.clone().while_waiting(self.ask(call)).await
    }

    async fn ask<T>(&self, call: impl FnOnce(Caller<T>) -> BoundCall) -> Result<T, Error> {
        calls::ask(&self.pool, &self.calls, &self.watch.loss, call).await
    }
}

impl fmt::Debug for BoundLock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BoundLock")
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("number", &self.number)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl BoundWatch {
    /// Notes until when it is held; without a deadline, the last one stays.
    fn show(&self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.deadline_ms
                .store(deadline.as_millis(), Ordering::SeqCst);
        }
    }

    fn has_time(&self, now: Instant) -> bool {
        self.deadline().is_none_or(|deadline| now < deadline)
    }

    fn deadline(&self) -> Option<Instant> {
        let ms = self.deadline_ms.load(Ordering::SeqCst);
        (ms < u64::MAX).then(|| Instant::from_millis(ms))
    }

    async fn ended(&self) -> Option<Loss> {
        let _ = self.lost.recv().await;
        self.loss.get().copied()
    }
}

/// Keeps one lock, in the background.
struct BoundTask {
    pool: Pool,
    driver: Driver,
    bound: Bound,
    watch: Arc<BoundWatch>,
    /// Dropped when the lock is lost or released.
    alive: Option<Sender<Infallible>>,
    /// Whether the server, too, holds no lock of this client on the connection.
    free: bool,
    /// The caller that waits for the number and the fence of the grant.
    obtain: Option<Caller<(Option<u64>, Option<Fence>)>>,
    read: Option<Caller<Item>>,
    /// The caller of a check, a write or a release.
    write: Option<Caller<()>>,
    /// Of a lock in a session.
    _pending: Option<PendingRelease>,
}

impl BoundTask {
    async fn run(mut self, calls: Receiver<BoundCall>) {
        self.driver.lend(&mut self.bound);
        self.bound.knows(self.driver.lock_support());
        self.bound.obtain(clock::now());
        loop {
            let busy = self.read.is_some() || self.write.is_some();
            let call = async {
                if busy {
                    std::future::pending().await
                } else {
                    calls.recv().await
                }
            };
            let watch = Arc::clone(&self.watch);
            let show = |bound: &Bound| watch.show(bound.deadline());
            match drive(&mut self.driver, &mut self.bound, call, show).await {
                Heard::News(news) => self.tell(news),
                Heard::Call(Ok(call)) => self.take(call),
                Heard::Call(Err(_)) => break,
            }
        }
        // The holder was dropped: the connection is closed with this task, and that releases the lock. A session goes
        // on until it is ended.
        if self.bound.is_in_session() {
            self.bound.abandon();
            while !self.bound.is_idle() {
                let news = self.driver.news(&mut self.bound).await;
                self.tell(news);
            }
        }
        if self.free {
            self.driver.keep_lock_support(self.bound.words());
            self.pool.give_back(self.driver);
        }
    }

    fn take(&mut self, call: BoundCall) {
        match call {
            BoundCall::Check(answer) => {
                self.write = Some(answer);
                self.bound.check();
            }
            BoundCall::Inheritable(answer) if self.bound.is_in_session() => {
                reply(&mut Some(answer), Err(TermsError::Inherited.into()));
            }
            BoundCall::Inheritable(answer) => {
                let copy = self.driver.inheritable();
                let copy = copy.map_err(|error| self.pool.error(ErrorKind::Unreachable(error)));
                reply(&mut Some(answer), copy);
            }
            BoundCall::Read(answer) => {
                self.read = Some(answer);
                self.bound.read();
            }
            BoundCall::Write {
                value,
                exptime,
                unlock,
                answer,
            } => {
                self.write = Some(answer);
                if unlock {
                    self.bound.replace_and_unlock(&value, 0, exptime);
                } else {
                    self.bound.write(&value, 0, exptime);
                }
            }
            BoundCall::Release(answer) => {
                self.write = Some(answer);
                self.bound.release();
            }
        }
    }

    fn tell(&mut self, news: BoundNews) {
        match news {
            BoundNews::Obtained => {
                let grant = (self.bound.number(), self.bound.fence());
                reply(&mut self.obtain, Ok(grant));
            }
            BoundNews::NotObtained(why) => {
                self.free = !self.bound.is_in_session();
                reply(
                    &mut self.obtain,
                    Err(self.pool.error(ErrorKind::NotObtained(why))),
                );
            }
            BoundNews::Read(item) => reply(&mut self.read, Ok(item)),
            BoundNews::Checked | BoundNews::Refreshed | BoundNews::Written => {
                reply(&mut self.write, Ok(()));
            }
            BoundNews::Undone(failure) => {
                let error = self.error(failure);
                self.fail(error);
            }
            BoundNews::Released => {
                self.free = !self.bound.is_in_session();
                self.alive = None;
                reply(&mut self.write, Ok(()));
            }
            BoundNews::NotHeld => {
                self.alive = None;
                let loss = self.watch.loss.get().copied();
                self.fail(self.pool.error(ErrorKind::NotHeld(loss)));
            }
            BoundNews::Lost(loss) => {
                // The first loss is the one reported.
                let _ = self.watch.loss.set(loss);
                self.alive = None;
                self.fail(self.pool.error(ErrorKind::NotHeld(Some(loss))));
            }
            BoundNews::Failed(failure) => {
                let error = self.error(failure);
                reply(&mut self.obtain, Err(error));
            }
            BoundNews::SessionEnded => self.free = true,
        }
    }

    fn error(&mut self, failure: Failure) -> Error {
        let cause = self.driver.take_cause();
        self.pool.error(ErrorKind::from_failure(failure, cause))
    }

    /// Replies to the pending call, if there is one.
    fn fail(&mut self, error: Error) {
        if self.read.is_some() {
            reply(&mut self.read, Err(error));
        } else {
            reply(&mut self.write, Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belief_ends_at_the_deadline_shown() {
        let at = Instant::from_millis;
        let watch = BoundWatch {
            deadline_ms: AtomicU64::new(u64::MAX),
            loss: OnceLock::new(),
            lost: bounded(1).1,
        };
        assert!(watch.has_time(at(1_000_000)), "it never expires");
        for deadline in [Some(at(70)), None] {
            watch.show(deadline);
            assert!(watch.has_time(at(69)) && !watch.has_time(at(70)));
        }
    }
}
