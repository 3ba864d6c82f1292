//! A leased lock.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use async_io::Timer;
use futures_lite::future::FutureExt;
use latchd_client_core::{Bound, Failure, LeaseNews, Leases, Loss, Token, TokenValue};
use latchd_protocol::Instant;
use latchd_protocol::fence::Fence;

use super::background;
use super::calls::{self, CALLS_MAX, Caller, reply};
use super::clock;
use super::drive::{Heard, drive};
use super::driver::Driver;
use super::error::{Error, ErrorKind};
use super::link::Link;
use super::pending_release::{self, Holder, PendingRelease};
use super::pool::{Claim, Pool};
use super::short;
use super::task::{Crew, Task};

/// A leased lock that is held.
///
/// [`release`](Self::release) releases it, and reports whether it was held until then. Dropping it releases
/// it in the background. If the process ends before that is done, the server frees the lock after its ttl.
///
/// # In the background
///
/// One thread of the process keeps all its locks. Many leases share a connection
/// ([`ClientOptions::connections`](super::ClientOptions::connections)). The thread renews a lock at a third
/// of its ttl, and opens a new connection when one breaks. It notices a failed renewal and the end of the
/// ttl, even while the caller's executor is busy. A caller that waits for a reply sends and reads itself. If
/// its executor does not run it, the thread takes over after 20 ms. So a caller that hangs holds its lock for
/// ever, unless [`hold_max`](super::LockOptions::hold_max) is set.
///
/// # Guarantees
///
/// While [`is_held`](Self::is_held) is true, no other client holds the lock. This assumes that the server
/// neither evicts the item nor loses it in a restart, and that clocks drift by less than one percent. In a
/// cluster, a lock is lost before another primary can grant it. A check can still be out of date when the
/// caller acts. So pass [`number`](Self::number) to the protected resource, and let it refuse a number lower
/// than one it has seen.
///
/// # Less than a second
///
/// A lock with a ttl of less than a second needs latchd, and is bound to a connection of its own. It is lost
/// when that connection breaks, and cannot be [left behind](Self::detach). [`server_ttl`](Self::server_ttl)
/// returns the remaining time by the client's clock after a sign of life from the server. Its number is the
/// [`fence`](Lock::fence) of the grant, not a version: do not compare it with the numbers of longer leases.
#[must_use = "a lock that is not kept is released at once"]
pub struct Lock {
    keys: Vec<Box<[u8]>>,
    value: TokenValue,
    numbers: Vec<u64>,
    fence: Option<Fence>,
    calls: Sender<LockCall>,
    watch: Arc<LockWatch>,
    pool: Pool,
    /// The tasks that bring the replies to calls.
    crew: Crew,
    /// When it is dropped, the task releases the lock.
    _holder: Holder,
}

/// The state that the background task shows to the holder.
pub(super) struct LockWatch {
    /// The end of the belief in the lock, in milliseconds of the client's clock; 0 if it has ended.
    deadline_ms: AtomicU64,
    /// A connection broke, and the server has not replied since.
    is_in_doubt: AtomicBool,
    /// The reason for the loss; set before `lost` is closed.
    loss: OnceLock<Loss>,
    /// Closed when the lock is lost or released.
    lost: Receiver<Infallible>,
}

pub(super) enum LockCall {
    Refresh(Duration, Caller<()>),
    Measure(Caller<Duration>),
    Release(Caller<()>),
    Detach(Caller<()>),
}

/// The task's side of a lock.
pub(super) struct TaskEnd {
    /// The holder's calls; closed when the holder is gone.
    pub(super) calls: Receiver<LockCall>,
    pub(super) watch: Arc<LockWatch>,
    /// To be dropped when the lock is lost or released.
    pub(super) alive: Sender<Infallible>,
    /// The caller that waits for the lock, and for the numbers of its grants.
    pub(super) obtain: Caller<Vec<u64>>,
    /// To be dropped when no release is pending any more.
    pub(super) pending: PendingRelease,
}

impl Lock {
    pub(super) async fn obtain(
        pool: &Pool,
        mut leases: Leases,
        value: TokenValue,
    ) -> Result<Self, Error> {
        leases.confirm();
        let keys: Vec<Box<[u8]>> = leases.keys().map(Box::from).collect();
        let link = pool.link(keys.len());
        let claim = match &*keys {
            [key] if leases.queues() => pool.claim(key),
            _ => None,
        };
        let connection = Arc::clone(link.task());
        Self::keep(pool, keys, value, |end| {
            let task = LockTask {
                line: KeptOver::Shared(link, claim),
                pool: pool.clone(),
                leases,
                watch: end.watch,
                alive: Some(end.alive),
                is_free: false,
                obtain: Some(end.obtain),
                refresh: None,
                measure: None,
                release: None,
                detach: None,
                _pending: end.pending,
            };
            Crew::with(Task::new(task.run(end.calls)), connection)
        })
        .await
    }

    /// A lock of less than a second.
    pub(super) async fn obtain_short(
        pool: &Pool,
        bound: Bound,
        value: TokenValue,
    ) -> Result<Self, Error> {
        let driver = pool.driver().await;
        let keys = vec![bound.key().into()];
        let mut lock = Self::keep(pool, keys, value, |end| {
            background::spawn(short::keep(pool.clone(), driver, bound, end));
            // The renewal may be due before the background notices that the caller does not run the task.
            Crew::default()
        })
        .await?;
        lock.fence = Fence::new(lock.number());
        Ok(lock)
    }

    /// Starts a task that keeps a lock, and waits until the lock is held.
    async fn keep(
        pool: &Pool,
        keys: Vec<Box<[u8]>>,
        value: TokenValue,
        begin: impl FnOnce(TaskEnd) -> Crew,
    ) -> Result<Self, Error> {
        pool.check_process()?;
        let (calls, heard) = bounded(CALLS_MAX);
        let (alive, lost) = bounded(1);
        let watch = Arc::new(LockWatch {
            deadline_ms: AtomicU64::new(0),
            is_in_doubt: AtomicBool::new(false),
            loss: OnceLock::new(),
            lost,
        });
        let (answer, obtained) = bounded(1);
        let (holder, pending) = pending_release::new();
        pending_release::flush_at_end();
        let crew = begin(TaskEnd {
            calls: heard,
            watch: Arc::clone(&watch),
            alive,
            obtain: answer,
            pending,
        });
        let numbers = crew
            .clone()
            .while_waiting(obtained.recv())
            .await
            .map_err(|_| pool.error(ErrorKind::NotHeld(None)))??;
        Ok(Self {
            keys,
            value,
            numbers,
            fence: None,
            calls,
            watch,
            pool: pool.clone(),
            crew,
            _holder: holder,
        })
    }

    /// The key; of several keys, the first in order.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.keys.first().map(|key| &**key).unwrap_or_default()
    }

    /// All keys, in the order of their bytes.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &**key)
    }

    /// The token, which tells this holder from all others.
    #[must_use]
    pub const fn token(&self) -> &Token {
        self.value.token()
    }

    /// The metadata that was stored with the token.
    #[must_use]
    pub const fn metadata(&self) -> &[u8] {
        self.value.metadata()
    }

    /// The number of the grant. Until the server restarts, a later holder of this key has a higher one. With
    /// several keys, that of the first.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.numbers.first().copied().unwrap_or_default()
    }

    /// The fence of the grant, for [`Client::in_grant`](super::Client::in_grant), of a lock of less than a
    /// second. A longer lease has none: its number is the version of an item.
    #[must_use]
    pub const fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// The numbers of the grants of all keys, in the order of the keys.
    #[must_use]
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Whether this client holds the lock now, as far as it can know without a request. After a connection
    /// broke, the lock is in doubt until the server replies over a new one. It then counts as not held, but
    /// is not lost while time is [`remaining`](Self::remaining).
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero() && !self.watch.is_in_doubt.load(Ordering::Acquire)
    }

    /// The time until it is lost without a renewal, by the client's clock; 0 if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.watch.remaining()
    }

    /// The remaining time by the server's clock; of several keys, the least. It exceeds
    /// [`remaining`](Self::remaining), which bounds the holder's belief, by up to two seconds and one
    /// percent.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock is lost, like a TTL of 0 in the recipes; another kind if the time
    /// is unknown.
    pub async fn server_ttl(&self) -> Result<Duration, Error> {
        self.call(LockCall::Measure).await
    }

    /// Requests `ttl` from now on, also with every later renewal.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock is lost. Another kind if the request failed: the lock is still held
    /// for [`remaining`](Self::remaining).
    pub async fn refresh(&self, ttl: Duration) -> Result<(), Error> {
        self.call(|answer| LockCall::Refresh(ttl, answer)).await
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it was lost before: another client may have done the protected work as well.
    /// Another kind if the server does not reply; it frees the lock after its ttl then.
    pub async fn release(self) -> Result<(), Error> {
        self.pool.check_process()?;
        let crew = self.crew.clone();
        // The caller runs the tasks to their end.
        let released = async move {
            let released = self.ask(LockCall::Release).await;
            drop(self);
            released
        };
        crew.while_waiting(released).await
    }

    /// As [`release`](Self::release), but can be tried again if it fails. It then continues with the requests
    /// that the server has not answered.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub async fn try_release(&self) -> Result<(), Error> {
        self.call(LockCall::Release).await
    }

    /// As [`refresh`](Self::refresh). If the server does not reply or refuses, tries again after each of `waits`.
    ///
    /// # Errors
    /// As [`refresh`](Self::refresh), of the last try.
    pub async fn refresh_with(
        &self,
        ttl: Duration,
        waits: impl IntoIterator<Item = Duration>,
    ) -> Result<(), Error> {
        for wait in waits {
            match self.refresh(ttl).await {
                Err(error) if error.may_pass() => {
                    // A lock that is lost by then is not held at the next try.
                    Timer::after(wait.min(self.remaining())).await;
                }
                refreshed => return refreshed,
            }
        }
        self.refresh(ttl).await
    }

    /// Leaves the lock behind. It is neither renewed nor released any more, and lasts for
    /// [`server_ttl`](Self::server_ttl). An obtain with the same [token](super::LockOptions::token) and
    /// without a wait takes it over, in any process.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it was lost before.
    pub async fn detach(self) -> Result<Token, Error> {
        self.call(LockCall::Detach).await?;
        Ok(self.value.token().clone())
    }

    /// Waits until the lock is lost, and returns the reason. It is the first of three: the server said so,
    /// the ttl ran out by the client's clock, or the connection broke and [that is a
    /// loss](super::OnDisconnect::Lost).
    pub async fn lost(&self) -> Loss {
        self.watch.ended().await.unwrap_or(Loss::Expired)
    }

    /// As [`lost`](Self::lost), in a future that borrows nothing; `None` if the lock is released.
    pub fn watch(&self) -> impl Future<Output = Option<Loss>> + Send + 'static {
        let watch = Arc::clone(&self.watch);
        async move { watch.ended().await }
    }

    async fn call<T>(&self, call: impl FnOnce(Caller<T>) -> LockCall) -> Result<T, Error> {
        self.pool.check_process()?;
        self.crew.clone().while_waiting(self.ask(call)).await
    }

    async fn ask<T>(&self, call: impl FnOnce(Caller<T>) -> LockCall) -> Result<T, Error> {
        calls::ask(&self.pool, &self.calls, &self.watch.loss, call).await
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys().map(String::from_utf8_lossy).collect();
        formatter
            .debug_struct("Lock")
            .field("keys", &keys)
            .field("numbers", &self.numbers)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl LockWatch {
    /// Shows the holder the end of its belief.
    pub(super) fn show(&self, deadline: Option<Instant>, is_in_doubt: bool) {
        let deadline_ms = deadline.map_or(0, Instant::as_millis);
        self.is_in_doubt.store(is_in_doubt, Ordering::Release);
        self.deadline_ms.store(deadline_ms, Ordering::Release);
    }

    /// The reason of the loss, if it is lost.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.loss.get().copied()
    }

    /// Marks the lock as not held, for this reason unless it was lost for another or released.
    pub(super) fn let_go(&self, loss: Option<Loss>) {
        self.deadline_ms.store(0, Ordering::Release);
        if let Some(loss) = loss {
            // The first loss is the one reported.
            let _ = self.loss.set(loss);
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        let deadline = Instant::from_millis(self.deadline_ms.load(Ordering::Acquire));
        clock::until(deadline)
    }

    async fn ended(&self) -> Option<Loss> {
        let closed = async {
            let _ = self.lost.recv().await;
            self.loss()
        };
        // The task updates the deadline, but it may be busy opening a connection.
        let expired = async {
            loop {
                let left = self.remaining();
                if left.is_zero() {
                    // The task's reason is more exact, if it gives one.
                    Timer::after(Duration::from_millis(50)).await;
                    return Some(self.loss().unwrap_or(Loss::Expired));
                }
                Timer::after(left.min(Duration::from_secs(1))).await;
            }
        };
        closed.or(expired).await
    }
}

/// The connection over which a lock is kept.
pub(super) enum KeptOver {
    /// A shared one, with a claim on the key if this lock is obtained there.
    Shared(Link, Option<Claim>),
    /// The one on which this client waited for the key's lock.
    Own(Driver),
}

/// Keeps one lock, in the background.
pub(super) struct LockTask {
    pub(super) pool: Pool,
    pub(super) line: KeptOver,
    pub(super) leases: Leases,
    watch: Arc<LockWatch>,
    /// Dropped when the lock is lost or released.
    alive: Option<Sender<Infallible>>,
    /// Whether the server holds nothing of this lock on the connection.
    pub(super) is_free: bool,
    obtain: Option<Caller<Vec<u64>>>,
    refresh: Option<Caller<()>>,
    measure: Option<Caller<Duration>>,
    release: Option<Caller<()>>,
    detach: Option<Caller<()>>,
    _pending: PendingRelease,
}

impl LockTask {
    async fn run(mut self, calls: Receiver<LockCall>) {
        match self.line {
            KeptOver::Shared(_, None) if self.leases.queues() => self.leases.queue(clock::now()),
            KeptOver::Shared(..) | KeptOver::Own(_) if self.lets_others_first() => {
                self.leases.obtain_late(clock::now());
            }
            KeptOver::Shared(..) | KeptOver::Own(_) => self.leases.obtain(clock::now()),
        }
        let mut holder_is_gone = false;
        loop {
            if self.leases.lacks_queue() {
                self.pool.lacks_queue();
            }
            if self.leases.is_idle() && holder_is_gone {
                return self.give_back();
            }
            // One call at a time: the next is taken after the reply.
            let busy = self.refresh.is_some()
                || self.measure.is_some()
                || self.release.is_some()
                || self.detach.is_some();
            let call = async {
                if holder_is_gone || busy {
                    std::future::pending().await
                } else {
                    calls.recv().await
                }
            };
            let watch = Arc::clone(&self.watch);
            let show = |leases: &Leases| watch.show(leases.deadline(), leases.is_in_doubt());
            let heard = match &mut self.line {
                KeptOver::Shared(link, _) => drive(link, &mut self.leases, call, show).await,
                KeptOver::Own(driver) => drive(driver, &mut self.leases, call, show).await,
            };
            match heard {
                Heard::News(LeaseNews::Queues) => {
                    if self.wait_in_queue(&calls).await.is_err() {
                        holder_is_gone = true;
                        self.leases.release(clock::now());
                    }
                }
                Heard::News(LeaseNews::Detached) => {
                    return reply(&mut self.detach, Ok(()));
                }
                Heard::News(news) => self.tell(news),
                Heard::Call(Ok(call)) => self.take(call),
                // The holder has dropped its lock, or aborted its obtain.
                Heard::Call(Err(_)) => {
                    holder_is_gone = true;
                    self.leases.release(clock::now());
                }
            }
        }
    }

    /// Where no queue orders the clients, a client that just had a contended lock lets others try first.
    fn lets_others_first(&self) -> bool {
        let mut keys = self.leases.keys();
        match (keys.next(), keys.next()) {
            (Some(key), None) => !self.pool.may_queue() && self.pool.is_polite(key),
            _ => false,
        }
    }

    fn take(&mut self, call: LockCall) {
        let now = clock::now();
        match call {
            LockCall::Refresh(ttl, answer) => match self.leases.refresh(now, ttl) {
                Ok(()) => self.refresh = Some(answer),
                Err(error) => reply(&mut Some(answer), Err(error.into())),
            },
            LockCall::Measure(answer) => {
                self.measure = Some(answer);
                self.leases.measure(now);
            }
            LockCall::Release(answer) => {
                self.release = Some(answer);
                self.leases.release(now);
            }
            LockCall::Detach(answer) => {
                self.detach = Some(answer);
                if self.watch.remaining().is_zero() {
                    self.deny();
                } else {
                    self.leases.detach();
                }
            }
        }
    }

    fn tell(&mut self, news: LeaseNews) {
        match news {
            LeaseNews::Obtained => {
                if self.leases.heard_held() {
                    self.leases.keys().for_each(|key| self.pool.was_held(key));
                }
                let numbers = (0..)
                    .map_while(|place| self.leases.number(place))
                    .map(latchd_protocol::item::Cas::number)
                    .collect();
                reply(&mut self.obtain, Ok(numbers));
            }
            LeaseNews::NotObtained(why) => {
                let error = self.pool.error(ErrorKind::NotObtained(why));
                reply(&mut self.obtain, Err(error));
            }
            LeaseNews::Queues | LeaseNews::Detached => unreachable!("the loop has them"),
            LeaseNews::Refreshed => reply(&mut self.refresh, Ok(())),
            LeaseNews::Lasts(ttl) => reply(&mut self.measure, Ok(ttl)),
            LeaseNews::Undone(failure) => {
                let error = self.error(failure);
                if self.refresh.is_some() {
                    reply(&mut self.refresh, Err(error));
                } else {
                    reply(&mut self.measure, Err(error));
                }
            }
            LeaseNews::Released => {
                self.let_go(None);
                self.is_free = true;
                reply(&mut self.release, Ok(()));
            }
            LeaseNews::NotHeld => {
                self.deny();
                let error = self.pool.error(ErrorKind::NotHeld(self.watch.loss()));
                reply(&mut self.release, Err(error));
            }
            LeaseNews::Lost(loss) => {
                self.let_go(Some(loss));
                self.deny();
            }
            LeaseNews::Failed(failure) => {
                let error = self.error(failure);
                if self.obtain.is_some() {
                    reply(&mut self.obtain, Err(error));
                } else {
                    reply(&mut self.release, Err(error));
                }
            }
        }
    }

    /// Replies to a pending refresh, measurement or detachment: the lock is not held.
    fn deny(&mut self) {
        let (pool, loss) = (&self.pool, self.watch.loss());
        reply(&mut self.refresh, Err(pool.error(ErrorKind::NotHeld(loss))));
        reply(&mut self.measure, Err(pool.error(ErrorKind::NotHeld(loss))));
        reply(&mut self.detach, Err(pool.error(ErrorKind::NotHeld(loss))));
    }

    fn error(&mut self, failure: Failure) -> Error {
        let cause = match &mut self.line {
            KeptOver::Shared(link, _) => link.take_cause(),
            KeptOver::Own(driver) => driver.take_cause(),
        };
        self.pool.error(ErrorKind::from_failure(failure, cause))
    }

    /// Marks the lock as not held.
    fn let_go(&mut self, loss: Option<Loss>) {
        self.watch.let_go(loss);
        self.alive = None;
    }
}
