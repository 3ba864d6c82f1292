//! The background thread, which keeps held locks, and its wake-ups.
//!
//! The process has one such thread, started by the first lock. A task of the caller's executor would not do:
//! long work under a lock blocks that executor, just when the lock must be renewed and its loss be noticed. A
//! waiting caller [runs](super::task) the tasks that bring its reply. Meanwhile this thread sleeps, and
//! checks only that the caller does so.
//!
//! - B1: An [`Alarm`] wakes the thread at its time. Setting one wakes the thread only if the alarm is due
//!   before the thread would wake anyway.
//! - B2: A panic in a duty ends neither the thread nor another duty.
//! - B3: A process that was forked after the thread started has no such thread, and shares its sockets with
//!   its parent. In it every call fails ([`is_forked`]), and no task runs.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_lite::future::FutureExt;

use super::pending_release;
use super::task::Task;

/// The time between checks of callers that were told to run a task, while there are any.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Longer than any wait, and short enough to be added to a moment without overflow.
const WAIT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

static STARTED: Once = Once::new();
/// The process that has the thread; 0 before it has started.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static DUTIES: Mutex<Duties> = Mutex::new(Duties::new());
/// Signals a new duty to the thread.
static WOKEN: Condvar = Condvar::new();

/// The duties of the thread. Each task is here once, and each caller waits for one alarm at a time. So there
/// are at most as many duties as calls and locks.
struct Duties {
    /// Tasks to be run.
    tasks: VecDeque<Arc<Task>>,
    /// The wakers by their moment, and by number among those of the same moment.
    alarms: BTreeMap<(Instant, u64), Waker>,
    alarms_set: u64,
    /// Tasks that are due, and whose caller was told so.
    watched: Vec<Arc<Task>>,
    /// The moment of the next check of watched tasks.
    look_at: Option<Instant>,
    sleep: Sleep,
}

/// The state of the thread.
enum Sleep {
    /// It looks at all its duties before it sleeps.
    Awake,
    /// It sleeps until this moment; without one, until it is woken.
    Until(Option<Instant>),
}

/// The next duty.
enum Duty {
    Run(Arc<Task>),
    Wake(Waker),
    Look(Vec<Arc<Task>>),
}

/// Runs `task` to its end in the background. The calling thread, when it ends, waits for pending releases.
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Arc<Task> {
    pending_release::flush_at_end();
    let task = Task::new(work);
    queue(Arc::clone(&task));
    task
}

/// Queues a task that is due.
pub(super) fn queue(task: Arc<Task>) {
    if is_forked() {
        return;
    }
    let mut duties = begin();
    duties.tasks.push_back(task);
    duties.wake(None);
}

/// Has the background check that the caller that was told runs the task.
pub(super) fn watch(task: Arc<Task>) {
    if is_forked() {
        return;
    }
    begin().watch(Instant::now(), task);
}

/// A future that ends at a moment.
pub(super) struct Alarm {
    at: Instant,
    /// The alarm's number, and the waker of the waiting task.
    set: Option<(u64, Waker)>,
}

impl Alarm {
    /// Ends after this time.
    pub(super) fn after(wait: Duration) -> Self {
        Self {
            at: Instant::now() + wait.min(WAIT_MAX),
            set: None,
        }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let alarm = &mut *self;
        match &alarm.set {
            Some((_, waker)) if waker.will_wake(context.waker()) => {}
            Some(_) | None => {
                alarm.unset();
                alarm.set(context.waker());
            }
        }
        if Instant::now() < alarm.at {
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl Alarm {
    fn set(&mut self, waker: &Waker) {
        let number = begin().set_alarm(self.at, waker.clone());
        self.set = Some((number, waker.clone()));
    }

    fn unset(&mut self) {
        if let Some((number, _)) = self.set.take() {
            // It is dropped after the lock on the list is released, since the drop may run foreign code.
            let _waker = duties().alarms.remove(&(self.at, number));
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.unset();
    }
}

/// The result of `work`, if it ends within this time.
pub(super) async fn within<T>(span: Duration, work: impl Future<Output = T>) -> Option<T> {
    let work = async { Some(work.await) };
    let late = async {
        Alarm::after(span).await;
        None
    };
    work.or(late).await
}

/// Whether this process was forked from the one that has the thread (B3).
pub(super) fn is_forked() -> bool {
    let process = PROCESS.load(Ordering::Acquire);
    process != 0 && process != std::process::id()
}

fn duties() -> MutexGuard<'static, Duties> {
    // Every change of the lists is complete before a panic is possible.
    DUTIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The duties, after starting the thread if necessary.
fn begin() -> MutexGuard<'static, Duties> {
    STARTED.call_once(|| {
        std::thread::Builder::new()
            .name("latchd-locks".into())
            .spawn(keep)
            .expect("a process that may not start a thread cannot keep a lock");
        PROCESS.store(std::process::id(), Ordering::Release);
    });
    duties()
}

/// The loop of the thread, which ends with the process.
fn keep() {
    loop {
        let duty = next();
        // The thread keeps all locks. A panic, for example in an executor's waker, must not end it (B2).
        let _ = catch_unwind(AssertUnwindSafe(|| match duty {
            Duty::Run(task) => drop(task.run()),
            Duty::Wake(waker) => waker.wake(),
            Duty::Look(tasks) => tasks.iter().for_each(Task::look),
        }));
    }
}

/// Waits for the next duty. An alarm comes before a check, and a check before a task.
fn next() -> Duty {
    let mut duties = duties();
    loop {
        duties.sleep = Sleep::Awake;
        let now = Instant::now();
        if let Some(duty) = duties.take(now) {
            return duty;
        }
        let until = duties.next_moment();
        duties.sleep = Sleep::Until(until);
        let wait = until.map(|until| until.saturating_duration_since(now));
        duties = match wait {
            Some(wait) => {
                let woken = WOKEN.wait_timeout(duties, wait);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => WOKEN.wait(duties).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

impl Duties {
    const fn new() -> Self {
        Self {
            tasks: VecDeque::new(),
            alarms: BTreeMap::new(),
            alarms_set: 0,
            watched: Vec::new(),
            look_at: None,
            sleep: Sleep::Awake,
        }
    }

    fn watch(&mut self, now: Instant, task: Arc<Task>) {
        self.watched.push(task);
        if self.look_at.is_none() {
            let at = now + LOOK_EVERY;
            self.look_at = Some(at);
            self.wake(Some(at));
        }
    }

    /// Returns the number of the alarm.
    fn set_alarm(&mut self, at: Instant, waker: Waker) -> u64 {
        self.alarms_set += 1;
        self.alarms.insert((at, self.alarms_set), waker);
        self.wake(Some(at));
        self.alarms_set
    }

    /// Wakes the thread for a duty at this moment, or now (B1).
    fn wake(&mut self, at: Option<Instant>) {
        let Sleep::Until(until) = self.sleep else {
            return;
        };
        let is_in_time = match (at, until) {
            (Some(at), Some(until)) => until <= at,
            (Some(_) | None, _) => false,
        };
        if !is_in_time {
            self.sleep = Sleep::Awake;
            WOKEN.notify_one();
        }
    }

    fn take(&mut self, now: Instant) -> Option<Duty> {
        if let Some(alarm) = self.alarms.first_entry()
            && alarm.key().0 <= now
        {
            return Some(Duty::Wake(alarm.remove()));
        }
        if self.look_at.take_if(|at| *at <= now).is_some() {
            return Some(Duty::Look(std::mem::take(&mut self.watched)));
        }
        self.tasks.pop_front().map(Duty::Run)
    }

    fn next_moment(&self) -> Option<Instant> {
        let alarm = self.alarms.first_key_value().map(|((at, _), _)| *at);
        let moments = [alarm, self.look_at];
        moments.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use async_io::block_on;
    use futures_lite::future;

    use super::*;
    use crate::{
        Client, ClientOptions, ComputeError, ComputeOptions, Error, ErrorKind, LockOptions,
    };

    /// B1, and the order of duties.
    #[test]
    fn duties_come_at_their_time() {
        let waker = Waker::from(Task::new(future::pending()));
        let now = Instant::now();
        let (early, then) = (now + LOOK_EVERY / 2, now + LOOK_EVERY);
        let mut duties = Duties::new();
        duties.sleep = Sleep::Until(None);
        duties.watch(now, Task::new(future::pending()));
        assert!(matches!(duties.sleep, Sleep::Awake));
        assert_eq!(duties.next_moment(), Some(then));
        duties.sleep = Sleep::Until(Some(then));
        for _ in 0..2 {
            duties.set_alarm(then, waker.clone());
        }
        assert!(matches!(duties.sleep, Sleep::Until(_)), "it wakes in time");
        duties.set_alarm(early, waker.clone());
        assert!(matches!(duties.sleep, Sleep::Awake));
        assert!(duties.take(now).is_none());
        assert!(matches!(duties.take(early), Some(Duty::Wake(_))));
        assert!(duties.take(early).is_none());
        for _ in 0..2 {
            assert!(matches!(duties.take(then), Some(Duty::Wake(_))));
        }
        assert!(matches!(duties.take(then), Some(Duty::Look(tasks)) if tasks.len() == 1));
        assert!(duties.take(then).is_none() && duties.next_moment().is_none());
    }

    #[test]
    fn an_alarm_wakes_its_last_caller_and_leaves_with_it() {
        let wakers = [(); 2].map(|()| Waker::from(Task::new(future::pending())));
        let mut alarm = Box::pin(Alarm::after(WAIT_MAX));
        let at = alarm.at;
        let set = || {
            let duties = duties();
            let set = duties.alarms.range((at, 0)..=(at, u64::MAX));
            set.map(|(_, waker)| waker.clone()).collect::<Vec<_>>()
        };
        for waker in &wakers {
            let context = &mut Context::from_waker(waker);
            assert!(alarm.as_mut().poll(context).is_pending());
            assert!(matches!(&*set(), [only] if only.will_wake(waker)));
        }
        drop(alarm);
        assert!(set().is_empty());
    }

    /// Set in a process that this test starts, which takes itself for a forked one (B3).
    const FORKED: &str = "LATCHD_TEST_FORKED";

    #[test]
    fn every_call_of_a_forked_process_fails() {
        if env::var_os(FORKED).is_none() {
            let this = concat!(module_path!(), "::every_call_of_a_forked_process_fails");
            let (_crate, this) = this.split_once("::").unwrap();
            let mut child = Command::new(env::current_exe().unwrap());
            let child = child.args(["--exact", this]).env(FORKED, "").output();
            let child = child.unwrap();
            assert!(child.status.success(), "{child:?}");
            let told = String::from_utf8_lossy(&child.stdout);
            assert!(told.contains("1 passed"), "it has not run: {told}");
            return;
        }
        let client = Client::new("127.0.0.1:1", ClientOptions::new()).unwrap();
        let second = Duration::from_secs(1);
        let errors = || {
            let unwrap = |error| match error {
                ComputeError::Client(error) | ComputeError::Compute(error) => error,
                ComputeError::Elsewhere => unreachable!("no other task computes"),
            };
            let options = ComputeOptions::new(second);
            let compute = async |_| Err::<Vec<u8>, Error>(ErrorKind::TimedOut.into());
            let computed = client.compute("k", &options, compute);
            [
                block_on(client.get("k")).unwrap_err(),
                block_on(client.lock("k", &LockOptions::new())).unwrap_err(),
                block_on(client.try_lock("k", &LockOptions::new())).unwrap_err(),
                unwrap(block_on(computed).unwrap_err()),
            ]
        };
        for error in errors() {
            assert!(error.is_unreachable(), "{error}");
        }
        PROCESS.store(u32::MAX, Ordering::Release);
        for error in errors() {
            assert!(matches!(error.kind(), ErrorKind::Forked), "{error}");
        }
    }
}
