//! Keeps locks over a connection of its own: a machine of the core, its driver, and the calls of the holders.
//!
//! - K1: A keeper's task goes on until its last handle is dropped, and then until the server has nothing of it.
//! - K2: The calls of one lock are served one after the other. A release is served at once.
//! - K3: A lock is abandoned if its [`Part`] is dropped, whatever is under way (a dropped future leaves nothing behind).
//! - K4: While the machine knows a lock, its key stays claimed, so the machine is not asked for it again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_channel::{Receiver, Sender, bounded, unbounded};
use latchd_client_core::{
    Failure, LockId, LockMachine, LockNews, LockState, LockTerms, Loss, NotObtained, wire_key,
};
use latchd_protocol::Instant;
use latchd_protocol::fence::Fence;

use super::background;
use super::clock;
use super::driver::{Driver, Heard};
use super::error::{Error, ErrorKind};
use super::mutex::lock;
use super::pending_release::{self, Holder, PendingRelease};
use super::task::Task;

/// The channel for the reply to a call.
type Caller<T> = Sender<Result<T, Error>>;

/// A handle of a keeper. The last one ends it.
pub(super) struct Keeper {
    calls: Sender<Call>,
    task: Arc<Task>,
    common: Arc<Common>,
    claims: Claims,
    next: AtomicU64,
}

/// The keys that the machine keeps or asks for (K4).
type Claims = Arc<Mutex<BTreeSet<Box<[u8]>>>>;

/// The belief that all locks of a keeper share.
struct Common {
    /// In milliseconds of the client's clock; the highest number means for ever.
    until_ms: AtomicU64,
}

/// The state of a lock that its keeper shows to the holder.
pub(super) struct Watch {
    common: Arc<Common>,
    /// The end of the lock's own belief, as in [`Common`]; 0 if it is not held.
    until_ms: AtomicU64,
    is_certain: AtomicBool,
    /// The holder has begun to release it: it does not count as held any more, and its end is no loss.
    is_releasing: AtomicBool,
    loss: OnceLock<Loss>,
    /// Closed when the lock is lost or released.
    ended: Receiver<Infallible>,
}

/// Why a key is not locked.
pub(super) struct Refusal {
    pub(super) state: LockState,
    /// Another client holds it, or another task of this one, and a queue waits for it. Otherwise an item is in the way.
    pub(super) is_queued: bool,
}

/// The lock of one key. Dropping it releases the lock in the background.
pub(super) struct Part {
    keeper: Arc<Keeper>,
    pub(super) key: Box<[u8]>,
    serial: u64,
    pub(super) fence: Option<Fence>,
    pub(super) watch: Arc<Watch>,
    /// When it is dropped, the release is pending.
    _holder: Holder,
}

enum Call {
    /// The lock with this number of its part.
    Acquire(Box<Kept>, LockTerms, Option<Duration>),
    Serve(u64, LockCall),
    Release(u64, Caller<()>),
    Abandon(u64),
    Forget(u64, Caller<()>),
    Inheritable(Sender<io::Result<OwnedFd>>),
}

/// A call of a holder.
struct LockCall {
    /// A new time; otherwise a check.
    ttl: Option<Duration>,
    answer: Caller<Option<Duration>>,
}

impl Refusal {
    const fn held(state: LockState) -> Self {
        Self {
            state,
            is_queued: true,
        }
    }
}

impl Keeper {
    /// Starts to keep locks with this machine. `driver` is its connection.
    pub(super) fn start<M: LockMachine + Send + 'static>(
        server: Arc<str>,
        machine: M,
        driver: Driver,
    ) -> Arc<Self> {
        let (calls, heard) = unbounded();
        let common = Arc::new(Common {
            until_ms: AtomicU64::new(u64::MAX),
        });
        let claims = Claims::default();
        let work = KeeperTask {
            server,
            machine,
            driver,
            common: Arc::clone(&common),
            claims: Arc::clone(&claims),
            ids: BTreeMap::new(),
            locks: BTreeMap::new(),
            is_closed: false,
        };
        let task = Task::new(work.run(heard));
        // It goes on without a caller.
        background::queue(Arc::clone(&task));
        Arc::new(Self {
            calls,
            task,
            common,
            claims,
            next: AtomicU64::new(0),
        })
    }

    /// Asks for the lock of a key, with a wait in the server's queue of this length.
    ///
    /// # Errors
    /// The machine's failure.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        key: &[u8],
        terms: LockTerms,
        wait: Option<Duration>,
    ) -> Result<Result<Part, Refusal>, Error> {
        let is_new = lock(&self.claims).insert(key.into());
        if !is_new {
            return Ok(Err(Refusal::held(LockState::default())));
        }
        let (alive, ended) = bounded(1);
        let watch = Arc::new(Watch {
            common: Arc::clone(&self.common),
            until_ms: AtomicU64::new(0),
            is_certain: AtomicBool::new(true),
            is_releasing: AtomicBool::new(false),
            loss: OnceLock::new(),
            ended,
        });
        let (holder, pending) = pending_release::new();
        pending_release::flush_at_end();
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        let mut part = Part {
            keeper: Arc::clone(self),
            key: key.into(),
            serial,
            fence: None,
            watch: Arc::clone(&watch),
            _holder: holder,
        };
        let asked = self.call(|answer| {
            let kept = Kept {
                serial,
                key: key.into(),
                watch,
                alive: Some(alive),
                obtain: Some(answer),
                call: None,
                waiting: VecDeque::new(),
                releases: Vec::new(),
                _pending: pending,
            };
            Call::Acquire(Box::new(kept), terms, wait)
        });
        let obtained = asked.await?;
        Ok(obtained.map(|fence| {
            part.fence = fence;
            part
        }))
    }

    /// Copies the keeper's connection for programs to inherit.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::NotConnected`] if there is no connection.
    pub(super) async fn inheritable(&self) -> io::Result<OwnedFd> {
        let (answer, answered) = bounded(1);
        // Without a task there is no connection.
        let _ = self.calls.try_send(Call::Inheritable(answer));
        let copied = Arc::clone(&self.task).while_waiting(answered.recv()).await;
        copied.unwrap_or_else(|_| Err(io::ErrorKind::NotConnected.into()))
    }

    async fn call<T>(&self, call: impl FnOnce(Caller<T>) -> Call) -> Result<T, Error> {
        let (answer, answered) = bounded(1);
        let not_held = |_| ErrorKind::NotHeld(None).into();
        // The channel has no bound: each lock has at most a few calls.
        let _ = self.calls.try_send(call(answer));
        let answered = Arc::clone(&self.task).while_waiting(answered.recv()).await;
        answered.unwrap_or_else(|error| Err(not_held(error)))
    }
}

impl Part {
    /// Asks the server for the lock; with a new time, if there is one. Returns the time that is left there, if the
    /// server shows it.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`], or the machine's failure.
    pub(super) async fn confirm(&self, ttl: Option<Duration>) -> Result<Option<Duration>, Error> {
        let call = |answer| Call::Serve(self.serial, LockCall { ttl, answer });
        self.keeper.call(call).await
    }

    /// Releases it. From now on it does not count as held.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    pub(super) async fn release(&self) -> Result<(), Error> {
        self.watch.is_releasing.store(true, Ordering::SeqCst);
        let call = |answer| Call::Release(self.serial, answer);
        self.keeper.call(call).await
    }

    /// Leaves it to the client that shows its token, or to the server that has released it.
    pub(super) async fn forget(&self) {
        self.watch.is_releasing.store(true, Ordering::SeqCst);
        // Without an answer there is no keeper, and nothing to forget.
        let _ = self
            .keeper
            .call(|answer| Call::Forget(self.serial, answer))
            .await;
    }

    /// The keeper of its connection.
    pub(super) const fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.watch.is_releasing.store(true, Ordering::SeqCst);
        let _ = self.keeper.calls.try_send(Call::Abandon(self.serial));
    }
}

impl Watch {
    /// Whether it is held now, as far as the client can know without a request.
    pub(super) fn is_held(&self) -> bool {
        self.is_certain.load(Ordering::SeqCst)
            && self.remaining().is_none_or(|left| !left.is_zero())
    }

    /// The time until it is lost without a sign of life; 0 if it is not held, `None` if it has no end.
    pub(super) fn remaining(&self) -> Option<Duration> {
        if self.is_releasing.load(Ordering::SeqCst) || self.ended.is_closed() {
            return Some(Duration::ZERO);
        }
        let own = self.until_ms.load(Ordering::SeqCst);
        let until = own.min(self.common.until_ms.load(Ordering::SeqCst));
        (until < u64::MAX).then(|| clock::until(Instant::from_millis(until)))
    }

    /// The reason of the loss, if it is lost.
    pub(super) fn loss(&self) -> Option<Loss> {
        self.loss.get().copied()
    }

    /// Waits until it is lost or released; `None` if it is released.
    pub(super) async fn ended(&self) -> Option<Loss> {
        let closed = async {
            let _ = self.ended.recv().await;
            self.loss()
        };
        // The keeper updates the end, but it may be busy opening a connection.
        let expired = async {
            loop {
                let left = self.remaining();
                let is_releasing = self.is_releasing.load(Ordering::SeqCst);
                if left.is_some_and(|left| left.is_zero()) && !is_releasing {
                    // The keeper's reason is more exact, if it gives one.
                    async_io::Timer::after(Duration::from_millis(50)).await;
                    let is_releasing = self.is_releasing.load(Ordering::SeqCst);
                    if !is_releasing || self.loss().is_some() {
                        return Some(self.loss().unwrap_or(Loss::Expired));
                    }
                }
                let look = left.filter(|left| !left.is_zero()).unwrap_or(LOOK_AGAIN);
                async_io::Timer::after(look.min(LOOK_AGAIN)).await;
            }
        };
        futures_lite::future::or(closed, expired).await
    }
}

/// The longest sleep before the belief is looked at again: it may have been renewed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A lock that the machine knows.
struct Kept {
    serial: u64,
    key: Box<[u8]>,
    watch: Arc<Watch>,
    /// Dropped when the lock is lost or released.
    alive: Option<Sender<Infallible>>,
    obtain: Option<Caller<Result<Option<Fence>, Refusal>>>,
    /// The call that is under way.
    call: Option<Caller<Option<Duration>>>,
    waiting: VecDeque<LockCall>,
    releases: Vec<Caller<()>>,
    _pending: PendingRelease,
}

struct KeeperTask<M> {
    server: Arc<str>,
    machine: M,
    driver: Driver,
    common: Arc<Common>,
    claims: Claims,
    /// The locks by the numbers of their parts.
    ids: BTreeMap<u64, LockId>,
    locks: BTreeMap<LockId, Kept>,
    is_closed: bool,
}

impl<M: LockMachine> KeeperTask<M> {
    async fn run(mut self, calls: Receiver<Call>) {
        while !(self.is_closed && self.machine.is_over()) {
            let is_closed = self.is_closed;
            let call = async {
                if is_closed {
                    std::future::pending().await
                } else {
                    calls.recv().await
                }
            };
            let (common, locks) = (&self.common, &self.locks);
            let show = |machine: &mut M| show(machine, common, locks);
            match self.driver.drive(&mut self.machine, call, show).await {
                Heard::News((id, news)) => self.tell(id, news),
                Heard::Call(Ok(call)) => self.take(call),
                Heard::Call(Err(_)) => {
                    self.is_closed = true;
                    self.machine.close();
                }
            }
        }
    }

    fn take(&mut self, call: Call) {
        let now = clock::now();
        match call {
            Call::Acquire(kept, terms, wait) => self.acquire(*kept, terms, wait),
            Call::Serve(serial, call) => match self.lock_of(serial) {
                Some((_, kept)) => {
                    kept.waiting.push_back(call);
                    self.serve(serial);
                }
                None => reply(&call.answer, Err(ErrorKind::NotHeld(None).into())),
            },
            Call::Release(serial, answer) => match self.lock_of(serial) {
                Some((id, kept)) => {
                    kept.releases.push(answer);
                    self.machine.release(now, id);
                }
                None => reply(&answer, Err(ErrorKind::NotHeld(None).into())),
            },
            Call::Abandon(serial) => {
                if let Some((id, _)) = self.lock_of(serial) {
                    self.machine.abandon(now, id);
                }
            }
            Call::Forget(serial, answer) => {
                if let Some((id, _)) = self.lock_of(serial) {
                    self.machine.forget(id);
                    self.drop_lock(id);
                }
                reply(&answer, Ok(()));
            }
            // The caller may be gone.
            Call::Inheritable(answer) => drop(answer.try_send(self.driver.inheritable())),
        }
    }

    fn lock_of(&mut self, serial: u64) -> Option<(LockId, &mut Kept)> {
        let id = *self.ids.get(&serial)?;
        Some((id, self.locks.get_mut(&id)?))
    }

    fn acquire(&mut self, kept: Kept, terms: LockTerms, wait: Option<Duration>) {
        let Ok(key) = wire_key(&kept.key) else {
            unreachable!("the call has checked its key");
        };
        let id = self.machine.acquire(clock::now(), key, terms, wait);
        self.ids.insert(kept.serial, id);
        self.locks.insert(id, kept);
    }

    /// Begins the next call of a lock, if none is under way (K2).
    fn serve(&mut self, serial: u64) {
        let Some((id, kept)) = self.lock_of(serial) else {
            return;
        };
        if kept.call.is_some() {
            return;
        }
        let Some(next) = kept.waiting.pop_front() else {
            return;
        };
        kept.call = Some(next.answer);
        let now = clock::now();
        match next.ttl {
            Some(ttl) => self.machine.refresh(now, id, ttl),
            None => self.machine.check(now, id),
        }
    }

    fn tell(&mut self, id: LockId, news: LockNews) {
        let fence = self.machine.fence(id);
        let Some(kept) = self.locks.get_mut(&id) else {
            return;
        };
        let (driver, server) = (&mut self.driver, &self.server);
        let mut error = |failure: Failure| {
            let kind = ErrorKind::from_failure(failure, driver.take_cause());
            Error::at(Arc::clone(server), kind)
        };
        match news {
            LockNews::Obtained => answer(&mut kept.obtain, Ok(Ok(fence))),
            LockNews::Held(state) => answer(&mut kept.obtain, Ok(Err(Refusal::held(state)))),
            LockNews::Obstructed(state) => {
                let is_queued = false;
                answer(&mut kept.obtain, Ok(Err(Refusal { state, is_queued })));
            }
            LockNews::HasValue => {
                let kind = ErrorKind::NotObtained(NotObtained::HasValue);
                let error = Error::at(Arc::clone(server), kind);
                answer(&mut kept.obtain, Err(error));
            }
            LockNews::Confirmed(left) => answer(&mut kept.call, Ok(left)),
            LockNews::Undone(failure) => answer(&mut kept.call, Err(error(failure))),
            LockNews::Released => {
                kept.alive = None;
                for caller in kept.releases.drain(..) {
                    reply(&caller, Ok(()));
                }
            }
            LockNews::NotHeld => kept.not_held(&self.server),
            LockNews::Lost(loss) => {
                tracing::warn!(server = %self.server, key = %kept.key.escape_ascii(), %loss, "lock lost");
                // The first loss is the one reported.
                let _ = kept.watch.loss.set(loss);
                kept.not_held(&self.server);
            }
            LockNews::Failed(failure) => {
                let error = error(failure);
                if kept.obtain.is_some() {
                    answer(&mut kept.obtain, Err(error));
                } else if let Some(caller) = kept.releases.pop() {
                    reply(&caller, Err(error));
                }
            }
        }
        if self.machine.knows(id) {
            let serial = self.locks.get(&id).map(|kept| kept.serial);
            if let Some(serial) = serial {
                self.serve(serial);
            }
        } else {
            self.drop_lock(id);
        }
    }

    /// The machine does not know the lock any more (K4).
    fn drop_lock(&mut self, id: LockId) {
        if let Some(mut kept) = self.locks.remove(&id) {
            self.ids.remove(&kept.serial);
            lock(&self.claims).remove(&kept.key);
            kept.not_held(&self.server);
        }
    }
}

impl Kept {
    /// Answers all calls: it is not held.
    fn not_held(&mut self, server: &Arc<str>) {
        self.alive = None;
        self.watch.until_ms.store(0, Ordering::SeqCst);
        let loss = self.watch.loss();
        let error = Error::at(Arc::clone(server), ErrorKind::NotHeld(loss));
        answer(&mut self.obtain, Err(error.clone()));
        answer(&mut self.call, Err(error.clone()));
        for call in self.waiting.drain(..) {
            reply(&call.answer, Err(error.clone()));
        }
        for caller in self.releases.drain(..) {
            reply(&caller, Err(error.clone()));
        }
    }
}

/// Shows the holders the beliefs that have changed.
fn show<M: LockMachine>(machine: &mut M, common: &Common, locks: &BTreeMap<LockId, Kept>) {
    let until = machine.common_deadline();
    let until_ms = until.map_or(u64::MAX, Instant::as_millis);
    common.until_ms.store(until_ms, Ordering::SeqCst);
    while let Some(id) = machine.changed() {
        let Some(kept) = locks.get(&id) else { continue };
        let belief = machine.belief(id);
        let until = belief.map_or(Some(Instant::from_millis(0)), |belief| belief.until);
        let until_ms = until.map_or(u64::MAX, Instant::as_millis);
        let is_certain = belief.is_some_and(|belief| belief.is_certain);
        kept.watch.is_certain.store(is_certain, Ordering::SeqCst);
        kept.watch.until_ms.store(until_ms, Ordering::SeqCst);
    }
}

fn answer<T>(caller: &mut Option<Caller<T>>, answer: Result<T, Error>) {
    if let Some(caller) = caller.take() {
        reply(&caller, answer);
    }
}

fn reply<T>(caller: &Caller<T>, answer: Result<T, Error>) {
    // The caller may be gone.
    let _ = caller.try_send(answer);
}
