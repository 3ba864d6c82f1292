//! A task of the client, run by the [background] thread or by a caller that waits for its result.
//!
//! Tasks bring the reply that a caller waits for: the task of its lock, and the task of the connection. The
//! waiting caller runs them itself, so that no work moves between threads. If the caller does not run a task,
//! the background thread does, independent of the caller's executor.
//!
//! - T1: One thread at a time runs a task, and runs it again after each wake-up.
//! - T2: A woken task is always assigned. It is assigned to the caller that has claimed it. If that caller
//!   has left, or did not run it within two checks of the background, it is assigned to the background.
//! - T3: One caller at a time has claimed a task. Other callers that wait for its result are woken by the
//!   task.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::background;
use super::mutex::lock;

/// The most times that a caller runs its task before it yields to its executor.
const ROUNDS_MAX: usize = 32;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task.
pub(super) struct Task {
    turn: Mutex<Turn>,
    /// `None` while it runs, and after it has ended.
    work: Mutex<Option<Work>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Idle,
    /// Woken, and not run since.
    Due,
    Running,
    /// Woken while it is running. The thread that runs it sees that afterwards.
    RunningAndDue,
}

struct Turn {
    stage: Stage,
    /// The background has found its caller absent once since it was due.
    is_late: bool,
    /// The background is to check it.
    is_watched: bool,
    caller: Option<Hand>,
    /// The number of claims so far.
    callers: u64,
}

/// A caller that has claimed a task.
struct Hand {
    number: u64,
    waker: Waker,
    /// The caller is running its tasks, and checks all of them again before it waits.
    is_here: bool,
}

/// The receiver of the news that a task is due.
enum Told {
    Nobody,
    Caller { waker: Waker, is_news: bool },
    Background,
}

impl Task {
    /// A task that has to be started, by a caller that claims it or by [the background](background::spawn).
    pub(super) fn new(work: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        Arc::new(Self {
            turn: Mutex::new(Turn::new()),
            work: Mutex::new(Some(Box::pin(work))),
        })
    }

    /// Runs it once if it is due and not running, and tells the next thread if it is due again (T1). Returns
    /// whether it ran.
    pub(super) fn run(self: &Arc<Self>) -> bool {
        if !lock(&self.turn).begin() {
            return false;
        }
        // A panic drops the work, and the task has ended.
        let work = lock(&self.work).take();
        if let Some(mut work) = work {
            let waker = Waker::from(Arc::clone(self));
            let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_pending() {
                *lock(&self.work) = Some(work);
            }
        }
        let told = lock(&self.turn).end();
        self.tell(told);
        true
    }

    /// A check of the background (T2).
    pub(super) fn look(self: &Arc<Self>) {
        let (told, _ended) = lock(&self.turn).look();
        self.tell(told);
    }

    fn tell(self: &Arc<Self>, told: Told) {
        match told {
            Told::Nobody => {}
            Told::Caller { waker, is_news } => {
                if is_news {
                    background::watch(Arc::clone(self));
                }
                waker.wake();
            }
            Told::Background => background::queue(Arc::clone(self)),
        }
    }

    /// The caller yields to its executor, and keeps its claim.
    fn step_back(self: &Arc<Self>, number: Option<u64>) {
        let told = lock(&self.turn).step_back(number);
        self.tell(told);
    }

    /// The caller leaves; it may have a claim (T2).
    fn leave(self: &Arc<Self>, number: Option<u64>) {
        let (told, _ended) = lock(&self.turn).leave(number);
        self.tell(told);
    }
}

/// A function that ends a claim returns it. Its caller drops it after the lock is released, since dropping a
/// waker may run foreign code.
impl Turn {
    /// The turn of a task that is due.
    const fn new() -> Self {
        Self {
            stage: Stage::Due,
            is_late: false,
            is_watched: false,
            caller: None,
            callers: 0,
        }
    }

    /// Starts a run, if the task is due and not running.
    fn begin(&mut self) -> bool {
        if self.stage != Stage::Due {
            return false;
        }
        (self.stage, self.is_late) = (Stage::Running, false);
        true
    }

    /// Ends a run.
    fn end(&mut self) -> Told {
        self.stage = match self.stage {
            Stage::RunningAndDue => Stage::Due,
            Stage::Idle | Stage::Due | Stage::Running => Stage::Idle,
        };
        self.whose()
    }

    fn wake(&mut self) -> Told {
        self.stage = match self.stage {
            Stage::Idle => Stage::Due,
            Stage::Running => Stage::RunningAndDue,
            // The receiver of the earlier wake-up runs it.
            Stage::Due | Stage::RunningAndDue => return Told::Nobody,
        };
        self.whose()
    }

    /// Checks whether the caller has come for the due task. If not, wakes it again, and at the second check
    /// ends its claim.
    fn look(&mut self) -> (Told, Option<Hand>) {
        self.is_watched = false;
        let is_awaited = self.caller.as_ref().is_some_and(|hand| !hand.is_here);
        if self.stage != Stage::Due || !is_awaited {
            return (Told::Nobody, None);
        }
        let ended = self.caller.take_if(|_| self.is_late);
        self.is_late = ended.is_none();
        (self.whose(), ended)
    }

    /// Claims the task for a caller, unless another has claimed it. `number` is the number of its claim.
    fn claim(&mut self, number: &mut Option<u64>, waker: &Waker) -> Option<Hand> {
        let another = self.caller.as_ref();
        if another.is_some_and(|hand| Some(hand.number) != *number) {
            *number = None;
            return None;
        }
        let number = *number.get_or_insert_with(|| {
            self.callers += 1;
            self.callers
        });
        self.caller.replace(Hand {
            number,
            waker: waker.clone(),
            is_here: true,
        })
    }

    /// The caller is not here any more.
    fn step_back(&mut self, number: Option<u64>) -> Told {
        match &mut self.caller {
            Some(hand) if Some(hand.number) == number => hand.is_here = false,
            Some(_) | None => return Told::Nobody,
        }
        self.whose()
    }

    /// Ends the claim of the caller, if it has one.
    fn leave(&mut self, number: Option<u64>) -> (Told, Option<Hand>) {
        let hand = self.caller.take_if(|hand| Some(hand.number) == number);
        (self.whose(), hand)
    }

    /// The receiver of the news, if the task is due.
    fn whose(&mut self) -> Told {
        if self.stage != Stage::Due {
            return Told::Nobody;
        }
        match &self.caller {
            None => Told::Background,
            Some(hand) if hand.is_here => Told::Nobody,
            Some(hand) => Told::Caller {
                waker: hand.waker.clone(),
                is_news: !std::mem::replace(&mut self.is_watched, true),
            },
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let told = lock(&self.turn).wake();
        self.tell(told);
    }
}

impl Task {
    /// Waits for `answer`, and runs the task meanwhile.
    pub(super) fn while_waiting<T>(
        self: Arc<Self>,
        answer: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        // From here on the task is assigned, even if no caller waits.
        let mut claim = Claim {
            task: self,
            number: None,
        };
        async move {
            let mut answer = pin!(answer);
            std::future::poll_fn(|context| claim.poll(context, answer.as_mut())).await
        }
    }
}

/// The claim of a caller.
struct Claim {
    task: Arc<Task>,
    number: Option<u64>,
}

impl Claim {
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut answer: Pin<&mut impl Future<Output = T>>,
    ) -> Poll<T> {
        let _before = lock(&self.task.turn).claim(&mut self.number, context.waker());
        let mut answered = answer.as_mut().poll(context);
        for _ in 0..ROUNDS_MAX {
            if self.number.is_none() || !self.task.run() {
                break;
            }
            if answered.is_pending() {
                answered = answer.as_mut().poll(context);
            }
        }
        if answered.is_pending() {
            self.task.step_back(self.number);
        }
        answered
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.task.leave(self.number);
    }
}

#[cfg(test)]
mod tests;
