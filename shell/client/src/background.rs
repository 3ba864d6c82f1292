//! The thread on which held locks are kept, and when it is woken.
//!
//! There is one thread for the whole process, started by the first lock. A task of an executor the
//! caller chose would not do: it is just when the work under a lock is long, and blocks that executor,
//! that the lock must be renewed and its loss be noticed. While a caller waits he [runs](super::task) himself what
//! brings his answer, so that this thread sleeps, and looks only whether he does.
//!
//! - B1: an [`Alarm`] wakes the thread when it is time, and one that is set wakes it only if it is for sooner than the
//!   thread would look anyway.
//! - B2: a duty that panics ends neither the thread nor another duty.
//! - B3: A process that was forked from one whose thread had started has no such thread, and shares its sockets with
//!   its parent. There every call fails ([`is_forked`]), and nothing is run.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::debt;
use super::task::Task;

/// How often it is looked whether callers who were told of a task have come, while there are any.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Longer than anybody waits, and short enough to be added to the time.
const WAIT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

static STARTED: Once = Once::new();
/// The process that has the thread; 0 before it has started.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static DUTIES: Mutex<Duties> = Mutex::new(Duties {
    tasks: VecDeque::new(),
    alarms: BTreeMap::new(),
    alarms_set: 0,
    watched: Vec::new(),
    look_at: None,
    sleep: Sleep::Awake,
});
/// There is something to do for the thread.
static WOKEN: Condvar = Condvar::new();

/// What the thread has to do. Each task is here once, and each caller waits for one alarm at a time, so there is no more of
/// it than there are calls and locks.
struct Duties {
    /// To be run.
    tasks: VecDeque<Arc<Task>>,
    /// Who is to be woken when, and which of those who are at the same moment.
    alarms: BTreeMap<(Instant, u64), Waker>,
    alarms_set: u64,
    /// Whose caller was told that they are due.
    watched: Vec<Arc<Task>>,
    /// When it is to be looked after them.
    look_at: Option<Instant>,
    sleep: Sleep,
}

/// What the thread does.
enum Sleep {
    /// It looks at all its duties before it sleeps.
    Awake,
    /// It sleeps until this moment; for ever if there is none.
    Until(Option<Instant>),
}

/// What is to be done next.
enum Duty {
    Run(Arc<Task>),
    Wake(Waker),
    Look(Vec<Arc<Task>>),
}

/// Runs `task` to its end in the background. The thread that calls this waits at its end for what is
/// owed then.
pub(super) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Arc<Task> {
    debt::flush_at_end();
    let task = Task::new(work);
    queue(Arc::clone(&task));
    task
}

/// Has a task run, which is due.
pub(super) fn queue(task: Arc<Task>) {
    if is_forked() {
        return;
    }
    let mut duties = begin();
    duties.tasks.push_back(task);
    duties.wake(None);
}

/// Has it looked after whether the caller who was told comes.
pub(super) fn watch(task: Arc<Task>) {
    if is_forked() {
        return;
    }
    let mut duties = begin();
    duties.watched.push(task);
    if duties.look_at.is_none() {
        let at = Instant::now() + LOOK_EVERY;
        duties.look_at = Some(at);
        duties.wake(Some(at));
    }
}

/// Ends at a moment.
pub(super) struct Alarm {
    at: Instant,
    /// Which one it is, and who waits.
    set: Option<(u64, Waker)>,
}

impl Alarm {
    /// Ends so long from now.
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
        let mut duties = begin();
        duties.alarms_set += 1;
        let number = duties.alarms_set;
        duties.alarms.insert((self.at, number), waker.clone());
        duties.wake(Some(self.at));
        self.set = Some((number, waker.clone()));
    }

    fn unset(&mut self) {
        if let Some((number, _)) = self.set.take() {
            // It is dropped when the list is let go: what belongs to others may go with it.
            let _waker = duties().alarms.remove(&(self.at, number));
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.unset();
    }
}

/// Whether this process was forked from the one that has the thread (B3).
pub(super) fn is_forked() -> bool {
    let process = PROCESS.load(Ordering::Acquire);
    process != 0 && process != std::process::id()
}

fn duties() -> MutexGuard<'static, Duties> {
    // Lists are whole whoever panicked.
    DUTIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The duties of a thread that is there.
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

/// What the thread does, as long as the process lives.
fn keep() {
    loop {
        let duty = next();
        // It keeps the locks of all: what panics, as a waker of some executor may, concerns nobody else (B2).
        let _ = catch_unwind(AssertUnwindSafe(|| match duty {
            Duty::Run(task) => drop(task.run()),
            Duty::Wake(waker) => waker.wake(),
            Duty::Look(tasks) => tasks.iter().for_each(Task::look),
        }));
    }
}

/// What there is to be done, once there is something: what is for a moment comes before what has no time.
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
    /// There is something to be done at this moment, or now (B1).
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
        if self.look_at.is_some_and(|at| at <= now) {
            let watched = std::mem::take(&mut self.watched);
            self.look_at = (!watched.is_empty()).then(|| now + LOOK_EVERY);
            return Some(Duty::Look(watched));
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

    use super::*;
    use crate::{
        BoundOptions, Client, ClientOptions, ComputeError, ComputeOptions, Error, ErrorKind,
        LockOptions,
    };

    /// Set in a process of this test's own, which takes itself for a forked one (B3).
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
            };
            let options = ComputeOptions::new();
            let compute = async |_| Err::<Vec<u8>, Error>(ErrorKind::TimedOut.into());
            let computed = client.get_or_compute("k", second, second, &options, compute);
            [
                block_on(client.get("k")).unwrap_err(),
                block_on(client.lock("k", &BoundOptions::new())).unwrap_err(),
                block_on(client.obtain("k", second, &LockOptions::new())).unwrap_err(),
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
