//! A leased lock in a program's hands.

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded};
use async_io::Timer;
use futures_lite::future::FutureExt;
use latchd_core::Instant;
use latchd_core::client::{Bound, Failure, LeaseNews, Leases, Loss, Token, TokenValue};
use latchd_core::fence::Fence;

use super::background;
use super::calls::{self, CALLS_MAX, Caller, reply};
use super::clock;
use super::debt::{self, Debtor, Holder};
use super::drive::{Heard, drive};
use super::driver::Driver;
use super::error::{Error, ErrorKind};
use super::link::Link;
use super::pool::{Claim, Pool};
use super::short;
use super::task::{Crew, Task};

/// A leased lock that is held.
///
/// It ends with [`release`](Self::release), whose answer says whether it was ours to the end. When
/// it is dropped instead, it is released in the background, which a process that ends at once may
/// not live to see; the server frees it after its ttl then.
///
/// # In the background
///
/// A thread of the process, shared by all its locks, keeps the connections, each of which many leases share
/// ([`ClientOptions::connections`](super::ClientOptions::connections)): it renews at a third of
/// the ttl, asks over a new connection when one breaks, and notices a failed renewal and the end of the
/// ttl, whatever the caller's executor is doing. Whoever waits for an answer sends and reads himself
/// meanwhile; if his executor does not let him, that thread does so, 20 ms later. So a caller that hangs
/// holds its lock for ever; where that can be, set
/// [`hold_max`](super::LockOptions::hold_max).
///
/// # What it promises
///
/// That nobody else holds it while [`is_held`](Self::is_held) is true, as long as the server neither
/// evicts the item nor forgets it by a restart, and clocks drift less than one percent. Whoever
/// asks and then acts may be late all the same: hand [`number`](Self::number) to what is
/// protected, and let it refuse a lower one than it has seen.
///
/// # Less than a second
///
/// A lock that was obtained for less is that of a connection of its own, on a latchd. It is lost when that breaks, it
/// cannot be [left behind](Self::detach), and [`server_ttl`](Self::server_ttl) is what is left by our own clock once the server has
/// given a sign of life. Its number is the [`fence`](Lock::fence) of the grant, which is no version: do not compare it with
/// those of locks that were obtained for longer.
#[must_use = "a lock that is not kept is released at once"]
pub struct Lock {
    keys: Vec<Box<[u8]>>,
    value: TokenValue,
    numbers: Vec<u64>,
    fence: Option<Fence>,
    calls: Sender<LockCall>,
    watch: Arc<LockWatch>,
    pool: Pool,
    /// Those who bring the answers to our calls.
    crew: Crew,
    /// From when this is dropped on, the task is to give the lock back.
    _holder: Holder,
}

/// What the task in the background lets the holder see.
pub(super) struct LockWatch {
    /// When the belief in the lock ends, in milliseconds of our clock; 0 when it has.
    deadline_ms: AtomicU64,
    /// The server has not been heard since a connection broke.
    is_in_doubt: AtomicBool,
    /// Why it is lost; set before `lost` is closed.
    loss: OnceLock<Loss>,
    /// Closed when the lock is not held any more.
    lost: Receiver<Infallible>,
}

pub(super) enum LockCall {
    Refresh(Duration, Caller<()>),
    Measure(Caller<Duration>),
    Release(Caller<()>),
    Detach(Caller<()>),
}

/// What a task is given that keeps a lock.
pub(super) struct TaskEnd {
    /// What the holder asks; closed when it is gone.
    pub(super) calls: Receiver<LockCall>,
    pub(super) watch: Arc<LockWatch>,
    /// To be dropped when the lock is not held any more.
    pub(super) alive: Sender<Infallible>,
    /// Who waits for the lock: to be told the numbers of its grants.
    pub(super) obtain: Caller<Vec<u64>>,
    /// To be dropped when nothing is left to be given back.
    pub(super) debtor: Debtor,
}

impl Lock {
    pub(super) async fn obtain(
        pool: &Pool,
        leases: Leases,
        value: TokenValue,
    ) -> Result<Self, Error> {
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
                _debtor: end.debtor,
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
            // It may have to be renewed sooner than it is noticed that its caller does not come.
            Crew::default()
        })
        .await?;
        lock.fence = Fence::new(lock.number());
        Ok(lock)
    }

    /// Has a task keep a lock, and waits until it has it.
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
        let (holder, debtor) = debt::new();
        debt::flush_at_end();
        let crew = begin(TaskEnd {
            calls: heard,
            watch: Arc::clone(&watch),
            alive,
            obtain: answer,
            debtor,
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

    /// The key; the first in order if there are several.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.keys.first().map(|key| &**key).unwrap_or_default()
    }

    /// All keys, in the order of their bytes.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(|key| &**key)
    }

    /// What tells this holder from every other.
    #[must_use]
    pub const fn token(&self) -> &Token {
        self.value.token()
    }

    /// The note that was stored beside the token.
    #[must_use]
    pub const fn metadata(&self) -> &[u8] {
        self.value.metadata()
    }

    /// The number of the grant: on one run of a server, a later holder of this key has a higher one.
    /// Of several keys, the first's.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.numbers.first().copied().unwrap_or_default()
    }

    /// The fence of the grant, for [`Client::in_grant`](super::Client::in_grant), if the lock is one of less than a
    /// second. A longer lease has none: its number is the version of an item.
    #[must_use]
    pub const fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// The numbers of the grants of all keys, in their order.
    #[must_use]
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Whether it is ours at this moment, as far as we can know without asking. From when a
    /// connection broke until the server has been heard over a new one it is in doubt, and not held,
    /// although it is not lost as long as there is time [`remaining`](Self::remaining).
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero() && !self.watch.is_in_doubt.load(Ordering::Acquire)
    }

    /// How long it is until it is lost without a renewal, by our own clock; 0 if it is not ours.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.watch.remaining()
    }

    /// How long the server keeps it, by its own word: up to two seconds and one percent longer than
    /// [`remaining`](Self::remaining), which is how long the holder may believe in it. Of several keys, the least.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it is not ours any more, as the recipes' TTL of 0; any other if that is
    /// not known.
    pub async fn server_ttl(&self) -> Result<Duration, Error> {
        self.call(LockCall::Measure).await
    }

    /// Asks for `ttl` from now on, and from then on with every renewal.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it is not ours any more; any other if it could not be done, and is ours
    /// for [`remaining`](Self::remaining) still.
    pub async fn refresh(&self, ttl: Duration) -> Result<(), Error> {
        self.call(|answer| LockCall::Refresh(ttl, answer)).await
    }

    /// Gives it back.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it was not ours any more: what it protected may have been done by
    /// another as well. Any other if the server does not say; it frees it after its ttl then.
    pub async fn release(self) -> Result<(), Error> {
        self.pool.check_process()?;
        let crew = self.crew.clone();
        // Its end is the crew's concern as well.
        let released = async move {
            let released = self.ask(LockCall::Release).await;
            drop(self);
            released
        };
        crew.while_waiting(released).await
    }

    /// As [`release`](Self::release), and can be tried again if it fails: what the server was asked and
    /// has not answered is asked after then.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub async fn try_release(&self) -> Result<(), Error> {
        self.call(LockCall::Release).await
    }

    /// As [`refresh`](Self::refresh), and tried again after each of `waits` while it could not be done
    /// and there is time.
    ///
    /// # Errors
    /// As [`refresh`](Self::refresh), of the last try.
    pub async fn refresh_with(
        &self,
        ttl: Duration,
        waits: impl IntoIterator<Item = Duration>,
    ) -> Result<(), Error> {
        let mut waits = waits.into_iter();
        loop {
            let error = match self.refresh(ttl).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let may_yet = !error.is_not_held() && !self.remaining().is_zero();
            match waits.next() {
                Some(wait) if may_yet => Timer::after(wait.min(self.remaining())).await,
                Some(_) | None => return Err(error),
            };
        }
    }

    /// Leaves the lock to whoever shows its token: it is neither renewed nor released any more, and lasts
    /// for [`server_ttl`](Self::server_ttl). An obtain with the [token](super::LockOptions::token) and without a wait takes
    /// it over, in this process or another.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it was not ours any more.
    pub async fn detach(self) -> Result<Token, Error> {
        self.call(LockCall::Detach).await?;
        Ok(self.value.token().clone())
    }

    /// Waits until it is lost, and says why: the server said so, or the ttl ran out by our own clock,
    /// or the connection broke and [that is a loss](super::OnDisconnect::Lost), whichever is first.
    pub async fn lost(&self) -> Loss {
        self.watch.ended().await.unwrap_or(Loss::Expired)
    }

    /// As [`lost`](Self::lost), in a future that borrows nothing; `None` if it is released.
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
    /// Lets the holder see until when it may believe.
    pub(super) fn show(&self, deadline: Option<Instant>, is_in_doubt: bool) {
        let deadline_ms = deadline.map_or(0, Instant::as_millis);
        self.is_in_doubt.store(is_in_doubt, Ordering::Release);
        self.deadline_ms.store(deadline_ms, Ordering::Release);
    }

    /// Why it is lost, if it is.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.loss.get().copied()
    }

    /// It is not held any more, for this reason unless it is known already, or was given back.
    pub(super) fn let_go(&self, loss: Option<Loss>) {
        self.deadline_ms.store(0, Ordering::Release);
        if let Some(loss) = loss {
            // The first loss is the one that counts.
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
            self.loss.get().copied()
        };
        // The task tells the deadline, but it may be opening a connection just then.
        let expired = async {
            loop {
                let left = self.remaining();
                if left.is_zero() {
                    // What the task has to say is more exact, if it says it at all.
                    Timer::after(Duration::from_millis(50)).await;
                    return Some(self.loss.get().copied().unwrap_or(Loss::Expired));
                }
                Timer::after(left.min(Duration::from_secs(1))).await;
            }
        };
        closed.or(expired).await
    }
}

/// The connection over which a lock is kept.
pub(super) enum KeptOver {
    /// One that many share; and the key is ours among them, if we ask for its lock.
    Shared(Link, Option<Claim>),
    /// The one on which the key's lock was waited for.
    Own(Driver),
}

/// Keeps one lock, in the background.
pub(super) struct LockTask {
    pub(super) pool: Pool,
    pub(super) line: KeptOver,
    pub(super) leases: Leases,
    watch: Arc<LockWatch>,
    /// Dropped when the lock is not held any more.
    alive: Option<Sender<Infallible>>,
    /// The server holds nothing of ours on the connection.
    pub(super) is_free: bool,
    obtain: Option<Caller<Vec<u64>>>,
    refresh: Option<Caller<()>>,
    measure: Option<Caller<Duration>>,
    release: Option<Caller<()>>,
    detach: Option<Caller<()>>,
    _debtor: Debtor,
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
            // One call at a time: the next one is heard when this one is answered.
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
                // The holder has dropped its lock, or broken off its obtain.
                Heard::Call(Err(_)) => {
                    holder_is_gone = true;
                    self.leases.release(clock::now());
                }
            }
        }
    }

    /// Where no queue decides whose turn it is, a client that has just had a contended lock lets others try first.
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
                if self.leases.heard_held() && !self.pool.may_queue() {
                    self.leases.keys().for_each(|key| self.pool.was_held(key));
                }
                let numbers = (0..)
                    .map_while(|place| self.leases.number(place))
                    .map(latchd_core::item::Cas::number)
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
                let loss = self.watch.loss.get().copied();
                let error = self.pool.error(ErrorKind::NotHeld(loss));
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

    /// Answers a refresh, a measurement or a detachment, if one is asked for: it is not held.
    fn deny(&mut self) {
        let (pool, loss) = (&self.pool, self.watch.loss.get().copied());
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

    /// It is not held any more.
    fn let_go(&mut self, loss: Option<Loss>) {
        self.watch.let_go(loss);
        self.alive = None;
    }
}
