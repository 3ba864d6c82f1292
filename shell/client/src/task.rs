//! A task of ours, which is run by the thread in the [background], or by whoever waits for what it does.
//!
//! An answer that a caller waits for is brought by tasks: that which keeps his lock, and that which has the
//! connection. While he waits he runs them himself, so that nothing of it goes from thread to thread and
//! back. What he does not do is done by the thread in the background, which is there whatever the caller's
//! executor does.
//!
//! - T1: one thread at a time runs a task, and runs it again after each wake-up.
//! - T2: a task that is woken is the concern of somebody who comes: of the caller who has it in hand, or,
//!   from when he has left, or has not come for two looks of the background, of the background.
//! - T3: one caller at a time has a task in hand. Whoever else waits for what it does is told by it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::background;

/// How often a caller runs each of his tasks before it is his executor's turn again.
const ROUNDS_MAX: usize = 32;

/// How many tasks a caller runs at most: that of his lock and that of its connection.
const CREW_MAX: usize = 2;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task.
pub(super) struct Task {
    turn: Mutex<Turn>,
    /// `None` while it runs, and from when it has ended.
    work: Mutex<Option<Work>>,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each may be so or not whatever the others are"
)]
struct Turn {
    /// Woken, and not run since.
    is_due: bool,
    /// Whoever runs it looks again whether it is due.
    is_running: bool,
    /// The background has looked at it once since it was due.
    is_late: bool,
    /// The background is to look at it.
    is_watched: bool,
    caller: Option<Hand>,
    /// How many callers have had it in hand.
    callers: u64,
}

/// A caller who has a task in hand.
struct Hand {
    number: u64,
    waker: Waker,
    /// He is running his tasks, and looks at all of them again before he waits.
    is_here: bool,
}

/// Who is to be told that a task is due.
enum Told {
    Nobody,
    Caller { waker: Waker, is_news: bool },
    Background,
}

impl Task {
    /// A task that has to be begun: by a caller who takes it in hand, or by
    /// [the background](background::spawn).
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

    /// Runs it once if it is due and nobody else does, and tells whose turn it is if it is due again (T1); whether it has.
    pub(super) fn run(self: &Arc<Self>) -> bool {
        {
            let mut turn = lock(&self.turn);
            if turn.is_running || !turn.is_due {
                return false;
            }
            (turn.is_due, turn.is_late, turn.is_running) = (false, false, true);
        }
        // What panics is dropped here, and the task has ended for good.
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

    /// Looks whether a caller who was told of it has come, and takes it out of his hand if it is for the second
    /// time that he has not (T2).
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

    /// A caller is here, and takes it in hand unless another has it; whether he has it. `number` is that by
    /// which he has it.
    fn take_in_hand(&self, number: &mut Option<u64>, waker: &Waker) -> bool {
        // What it was woken by goes when the turn is let go: what belongs to others may go with it.
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

    /// The caller waits for his executor's next turn, and has it in hand still.
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

    /// The caller is going to wait. Whether he may: it is not due, or somebody else's concern.
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

    /// The caller has gone, who may have had it in hand (T2).
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
    /// Whose turn it is if it is due.
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
                // Whose turn it is knows.
                return;
            }
            turn.is_due = true;
            turn.whose()
        };
        self.tell(told);
    }
}

/// The tasks that bring what a caller waits for. A copy has the same ones.
#[derive(Clone, Default)]
pub(super) struct Crew([Option<Arc<Task>>; CREW_MAX]);

impl Crew {
    /// One task.
    pub(super) fn of(task: Arc<Task>) -> Self {
        Self([Some(task), None])
    }

    /// This task, and that of a connection.
    pub(super) fn with(task: Arc<Task>, connection: Arc<Task>) -> Self {
        Self([Some(task), Some(connection)])
    }

    /// Waits for `answer`, and runs the tasks meanwhile.
    pub(super) fn while_waiting<T>(
        self,
        answer: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        // From here on the tasks are somebody's concern, also if nobody waits.
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

/// What a caller has in hand.
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

    /// Runs each of them once, whose turn it is; whether there was any.
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
    // Nothing here panics half way.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
