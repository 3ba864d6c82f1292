use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender, bounded, unbounded};
use async_io::block_on;
use futures_lite::future::{self, FutureExt};

use super::super::background::{self, Alarm};
use super::*;

/// Longer than the background takes, even on a busy machine.
const DUE: Duration = Duration::from_secs(20);

/// Replies to each question with the id of the thread that ran the task.
fn echo() -> (Arc<Task>, Sender<Sender<ThreadId>>) {
    let (ask, asked) = unbounded::<Sender<ThreadId>>();
    let work = async move {
        while let Ok(answer) = asked.recv().await {
            // The caller may be gone.
            let _ = answer.try_send(thread::current().id());
        }
    };
    (Task::new(work), ask)
}

fn question(ask: &Sender<Sender<ThreadId>>) -> Receiver<ThreadId> {
    let (answer, answered) = bounded(1);
    ask.try_send(answer).unwrap();
    answered
}

/// The thread that ran it; a lost question fails the test after a limit.
fn heard_by(answer: &Receiver<ThreadId>) -> ThreadId {
    block_on(async { answer.recv().await.ok() }.or(async {
        async_io::Timer::after(DUE).await;
        None
    }))
    .expect("the question is lost")
}

fn wait_for(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DUE, "it is overdue");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Polls once, as an executor that never polls again.
fn poll_once<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A waker that is no other.
fn new_waker() -> Waker {
    Task::new(future::pending()).into()
}

fn is_for(told: &Told, caller: &Waker) -> bool {
    matches!(told, Told::Caller { waker, .. } if waker.will_wake(caller))
}

#[test]
fn each_wake_up_leads_to_one_run() {
    let mut turn = Turn::new();
    assert!(turn.begin(), "a new task is due");
    assert!(matches!(turn.wake(), Told::Nobody));
    assert!(!turn.begin(), "another thread is running it");
    assert!(matches!(turn.end(), Told::Background));
    assert!(turn.begin(), "it was woken meanwhile");
    assert!(matches!(turn.end(), Told::Nobody));
    assert!(!turn.begin(), "it is not due");
}

/// T2, T3.
#[test]
fn an_absent_caller_loses_its_claim_at_the_second_check() {
    let (first, moved, second) = (new_waker(), new_waker(), new_waker());
    let (mut of_first, mut of_second) = (None, None);
    let mut turn = Turn::new();
    turn.claim(&mut of_first, &first);
    turn.claim(&mut of_second, &second);
    assert!(of_first.is_some() && of_second.is_none());
    let checks_change_nothing = |turn: &mut Turn| {
        for _ in 0..3 {
            assert!(matches!(turn.look(), (Told::Nobody, None)));
        }
    };
    turn.step_back(of_second);
    checks_change_nothing(&mut turn);
    assert!(is_for(&turn.step_back(of_first), &first), "it is due");
    turn.claim(&mut of_first, &moved);
    assert!(turn.begin());
    turn.wake();
    assert!(matches!(turn.end(), Told::Nobody), "its caller is here");
    assert!(turn.begin());
    turn.end();
    turn.step_back(of_first);
    checks_change_nothing(&mut turn);
    assert!(is_for(&turn.wake(), &moved));
    assert!(matches!(
        turn.look(),
        (Told::Caller { is_news: true, .. }, None)
    ));
    assert!(matches!(turn.look(), (Told::Background, Some(_))));
    turn.claim(&mut of_second, &second);
    turn.claim(&mut of_first, &first);
    assert!(of_first.is_none() && of_second.is_some());
}

#[test]
fn a_waiting_caller_runs_the_task() {
    let (task, ask) = echo();
    let here = thread::current().id();
    for _ in 0..100 {
        let runner = Arc::clone(&task);
        let call = async { question(&ask).recv().await.unwrap() };
        // It has the reply without being woken.
        let call = pin!(runner.while_waiting(call));
        assert_eq!(poll_once(call), Poll::Ready(here));
    }
}

#[test]
fn the_background_runs_tasks_of_dropped_callers() {
    let (task, ask) = echo();
    let mut waits = Box::pin(Arc::clone(&task).while_waiting(future::pending::<()>()));
    assert!(poll_once(waits.as_mut()).is_pending());
    drop(waits);
    let answer = question(&ask);
    assert_ne!(heard_by(&answer), thread::current().id());
}

#[test]
fn the_background_starts_unclaimed_tasks() {
    let (task, ask) = echo();
    let answer = question(&ask);
    drop(task.while_waiting(future::pending::<()>()));
    assert_ne!(heard_by(&answer), thread::current().id());
}

#[test]
fn an_absent_caller_delays_no_other() {
    let (task, ask) = echo();
    let mut waits = Box::pin(Arc::clone(&task).while_waiting(future::pending::<()>()));
    assert!(poll_once(waits.as_mut()).is_pending());
    // The caller still has the claim, and is woken in vain.
    let answer = question(&ask);
    assert_ne!(heard_by(&answer), thread::current().id());
    // From then on the background has it, until another caller claims it.
    let answer = question(&ask);
    assert_ne!(heard_by(&answer), thread::current().id());
    // The background may still be running it for a moment.
    wait_for(|| {
        let call = async { question(&ask).recv().await.unwrap() };
        block_on(Arc::clone(&task).while_waiting(call)) == thread::current().id()
    });
    drop(waits);
}

#[test]
fn a_caller_without_claim_is_woken() {
    let (task, ask) = echo();
    let mut first = Box::pin(Arc::clone(&task).while_waiting(future::pending::<()>()));
    assert!(poll_once(first.as_mut()).is_pending());
    let second = thread::spawn(move || {
        let call = async { question(&ask).recv().await.unwrap() };
        block_on(task.while_waiting(call))
    });
    let heard_by = second.join().unwrap();
    assert_ne!(heard_by, thread::current().id(), "we do not come");
}

/// Every wake-up is followed by a run, for any mix of callers.
#[test]
fn no_question_is_lost_between_callers() {
    const CALLERS: usize = 4;
    const QUESTIONS: usize = 2_000;
    let (task, ask) = echo();
    let answered = Arc::new(AtomicUsize::new(0));
    let (done, ended) = mpsc::channel();
    for caller in 0..CALLERS {
        let (task, ask, done) = (Arc::clone(&task), ask.clone(), done.clone());
        let answered = Arc::clone(&answered);
        thread::spawn(move || {
            for number in 0..QUESTIONS {
                let runner = Arc::clone(&task);
                let call = async { question(&ask).recv().await.is_ok() };
                if (number + caller) % 3 == 0 {
                    // One polls once and leaves, and waits without the task.
                    let answer = question(&ask);
                    let mut leaves = Box::pin(runner.while_waiting(future::pending::<()>()));
                    assert!(poll_once(leaves.as_mut()).is_pending());
                    drop(leaves);
                    let _ = heard_by(&answer);
                } else {
                    assert!(block_on(runner.while_waiting(call)));
                }
                answered.fetch_add(1, Ordering::Relaxed);
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..CALLERS {
        assert!(ended.recv_timeout(DUE).is_ok(), "a question is lost");
    }
    assert_eq!(answered.load(Ordering::Relaxed), CALLERS * QUESTIONS);
}

#[test]
fn a_task_that_panics_has_ended() {
    let (ask, asked) = bounded::<()>(1);
    let task = Task::new(async move {
        asked.recv().await.unwrap();
        panic!("as it should");
    });
    let caller = thread::spawn({
        let task = Arc::clone(&task);
        move || {
            ask.try_send(()).unwrap();
            block_on(task.while_waiting(future::pending::<()>()));
        }
    });
    assert!(caller.join().is_err());
    assert!(lock(&task.work).is_none());
}

#[test]
fn a_background_panic_ends_no_other_task() {
    background::spawn(async { panic!("as it should") });
    let (task, ask) = echo();
    let answer = question(&ask);
    background::queue(task);
    assert_ne!(heard_by(&answer), thread::current().id());
}

#[test]
fn an_endless_task_yields_to_others() {
    let task = Task::new(async {
        loop {
            future::yield_now().await;
        }
    });
    let other = async {
        for _ in 0..10 {
            future::yield_now().await;
        }
    };
    let busy = task.while_waiting(future::pending::<()>());
    block_on(busy.or(other));
}

#[test]
fn alarms_ring_in_their_order_and_not_before() {
    let rung = Arc::new(Mutex::new(Vec::new()));
    let begun = Instant::now();
    for ms in [60, 20, 40] {
        let rung = Arc::clone(&rung);
        background::spawn(async move {
            Alarm::after(Duration::from_millis(ms)).await;
            lock(&rung).push((ms, begun.elapsed() >= Duration::from_millis(ms)));
        });
    }
    wait_for(|| lock(&rung).len() == 3);
    assert_eq!(*lock(&rung), [(20, true), (40, true), (60, true)]);
}
