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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::background;

/// The most times that a caller runs each of its tasks before it yields to its executor.
const ROUNDS_MAX: usize = 32;

/// The most tasks that a caller runs: that of its lock, and that of its connection.
const CREW_MAX: usize = 2;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task.
pub(super) struct Task {
    turn: Mutex<Turn>,
    /// `None` while it runs, and after it has ended.
    work: Mutex<Option<Work>>,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each may be so or not whatever the others are"
)]
struct Turn {
    /// Woken, and not run since.
    is_due: bool,
    /// The thread that runs it checks afterwards whether it is due again.
    is_running: bool,
    /// The background has checked it once since it was due.
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
            turn: Mutex::new(Turn {
                is_due: true,
                is_running: false,
                is_late: false,
                is_watched: false,
                caller: None,
                callers: 0,
            }),
            work: Mutex::new(Some(Box::pin(work))),
        })
    }

    /// Runs it once if it is due and not running, and tells the next thread if it is due again (T1). Returns
    /// whether it ran.
    pub(super) fn run(self: &Arc<Self>) -> bool {
        {
            let mut turn = lock(&self.turn);
            if turn.is_running || !turn.is_due {
                return false;
            }
            (turn.is_due, turn.is_late, turn.is_running) = (false, false, true);
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
        let told = {
            let mut turn = lock(&self.turn);
            turn.is_running = false;
            turn.whose()
        };
        self.tell(told);
        true
    }

    /// Checks whether the caller has run the due task. At the second check without that, ends the caller's
    /// claim (T2).
    pub(super) fn look(self: &Arc<Self>) {
        let is_taken = {
            let mut turn = lock(&self.turn);
            turn.is_watched = false;
            let is_awaited = turn.caller.as_ref().is_some_and(|hand| !hand.is_here);
            if !turn.is_due || turn.is_running || !is_awaited {
                return;
            }
            if turn.is_late {
                turn.is_late = false;
                turn.caller.take()
            } else {
                (turn.is_late, turn.is_watched) = (true, true);
                None
            }
        };
        match is_taken {
            Some(_) => background::queue(Arc::clone(self)),
            None => background::watch(Arc::clone(self)),
        }
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

    /// Claims the task for a caller unless another has claimed it; returns whether the caller has the claim.
    /// `number` is the number of its claim.
    fn take_in_hand(&self, number: &mut Option<u64>, waker: &Waker) -> bool {
        // It is dropped after the lock is released, since dropping a waker may run foreign code.
        let mut _before = None;
        let mut turn = lock(&self.turn);
        if turn.caller.is_none() {
            turn.callers += 1;
            *number = Some(turn.callers);
            turn.caller = Some(Hand {
                number: turn.callers,
                waker: waker.clone(),
                is_here: true,
            });
            return true;
        }
        match &mut turn.caller {
            Some(hand) if Some(hand.number) == *number => {
                hand.is_here = true;
                if !hand.waker.will_wake(waker) {
                    _before = Some(std::mem::replace(&mut hand.waker, waker.clone()));
                }
                true
            }
            Some(_) | None => {
                *number = None;
                false
            }
        }
    }

    /// The caller yields to its executor, and keeps its claim.
    fn step_back(self: &Arc<Self>, number: Option<u64>) {
        let told = {
            let mut turn = lock(&self.turn);
            match &mut turn.caller {
                Some(hand) if Some(hand.number) == number => hand.is_here = false,
                Some(_) | None => return,
            }
            turn.whose()
        };
        self.tell(told);
    }

    /// The caller is about to wait. Returns whether it may: the task is not due, or is assigned elsewhere.
    fn put_down(&self, number: Option<u64>) -> bool {
        let mut turn = lock(&self.turn);
        let is_due = turn.is_due && !turn.is_running;
        match &mut turn.caller {
            Some(hand) if Some(hand.number) == number => {
                hand.is_here = is_due;
                !is_due
            }
            Some(_) | None => true,
        }
    }

    /// The caller leaves; it may have a claim (T2).
    fn leave(self: &Arc<Self>, number: Option<u64>) {
        let (told, _hand) = {
            let mut turn = lock(&self.turn);
            let hand = turn.caller.take_if(|hand| Some(hand.number) == number);
            (turn.whose(), hand)
        };
        self.tell(told);
    }
}

impl Turn {
    /// The receiver of the news, if the task is due.
    fn whose(&mut self) -> Told {
        if !self.is_due || self.is_running {
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
        let told = {
            let mut turn = lock(&self.turn);
            if turn.is_due {
                // The receiver of the earlier wake-up runs it.
                return;
            }
            turn.is_due = true;
            turn.whose()
        };
        self.tell(told);
    }
}

/// The tasks that bring a caller's reply. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Crew([Option<Arc<Task>>; CREW_MAX]);

impl Crew {
    /// One task.
    pub(super) fn of(task: Arc<Task>) -> Self {
        Self([Some(task), None])
    }

    /// This task, and the task of a connection.
    pub(super) fn with(task: Arc<Task>, connection: Arc<Task>) -> Self {
        Self([Some(task), Some(connection)])
    }

    /// Waits for `answer`, and runs the tasks meanwhile.
    pub(super) fn while_waiting<T>(
        self,
        answer: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        // From here on the tasks are assigned, even if no caller waits.
        let mut hands = Hands {
            crew: self,
            numbers: [None; CREW_MAX],
        };
        async move {
            let mut answer = pin!(answer);
            std::future::poll_fn(|context| hands.poll(context, answer.as_mut())).await
        }
    }
}

/// The claims of a caller.
struct Hands {
    crew: Crew,
    numbers: [Option<u64>; CREW_MAX],
}

impl Hands {
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut answer: Pin<&mut impl Future<Output = T>>,
    ) -> Poll<T> {
        for (task, number) in self.places() {
            task.take_in_hand(number, context.waker());
        }
        let mut answered = answer.as_mut().poll(context);
        for _ in 0..ROUNDS_MAX {
            if self.run() {
                if answered.is_pending() {
                    answered = answer.as_mut().poll(context);
                }
            } else if answered.is_ready() || self.put_down() {
                return answered;
            }
        }
        if answered.is_pending() {
            for (task, number) in self.places() {
                task.step_back(*number);
            }
        }
        answered
    }

    fn places(&mut self) -> impl Iterator<Item = (&Arc<Task>, &mut Option<u64>)> {
        let tasks = self.crew.0.iter().zip(&mut self.numbers);
        tasks.filter_map(|(task, number)| Some((task.as_ref()?, number)))
    }

    /// Runs each claimed task once if it is due; returns whether there was any.
    fn run(&mut self) -> bool {
        let mut was_any = false;
        for (task, number) in self.places() {
            was_any |= number.is_some() && task.run();
        }
        was_any
    }

    /// Whether the caller may wait.
    fn put_down(&mut self) -> bool {
        self.places()
            .fold(true, |may, (task, number)| task.put_down(*number) && may)
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        for (task, number) in self.crew.0.iter().zip(self.numbers) {
            if let Some(task) = task {
                task.leave(number);
            }
        }
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic can interrupt a change here.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
