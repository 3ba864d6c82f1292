//! Replacements for `real.rs` under a scheduler.
//!
//! One thread of the system runs all threads of a test. It switches between them only at an access to one of
//! these. The channels are smol's, so one access is one step.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Add;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{self, Context, Poll};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use shuttle::sync::Condvar;
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};

use self::atomic::{AtomicBool, Ordering};

/// Lets the scheduler switch to another thread.
fn anybody() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// A waker that a thread of a test can wait for.
#[derive(Debug)]
pub(crate) struct Waker {
    is_woken: Mutex<bool>,
    woken: Condvar,
    /// Code that needs the descriptor does not run in these tests.
    descriptor: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self {
            is_woken: Mutex::new(false),
            woken: Condvar::new(),
            descriptor: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    pub(crate) fn wake(&self) {
        *self.is_woken.lock().unwrap() = true;
        self.woken.notify_all();
    }

    pub(crate) fn clear(&self) {
        *self.is_woken.lock().unwrap() = false;
    }

    /// Waits until it is woken, as an epoll does.
    pub(crate) fn hear(&self) {
        let mut is_woken = self.is_woken.lock().unwrap();
        while !*is_woken {
            is_woken = self.woken.wait(is_woken).unwrap();
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// smol's channels; each access is a step.
pub(crate) mod channel {
    pub(crate) use smol::channel::{RecvError, SendError, TryRecvError, TrySendError};

    use super::anybody;

    #[derive(Debug)]
    pub(crate) struct Sender<T>(smol::channel::Sender<T>);

    #[derive(Debug)]
    pub(crate) struct Receiver<T>(smol::channel::Receiver<T>);

    pub(crate) fn bounded<T>(messages: usize) -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = smol::channel::bounded(messages);
        (Sender(sender), Receiver(receiver))
    }

    impl<T> Sender<T> {
        pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
            anybody();
            self.0.try_send(message)
        }

        pub(crate) async fn send(&self, message: T) -> Result<(), SendError<T>> {
            anybody();
            self.0.send(message).await
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
            anybody();
            self.0.try_recv()
        }

        pub(crate) async fn recv(&self) -> Result<T, RecvError> {
            anybody();
            self.0.recv().await
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            Self(self.0.clone())
        }
    }

    impl<T> Clone for Receiver<T> {
        fn clone(&self) -> Self {
            Self(self.0.clone())
        }
    }
}

thread_local! {
    /// The time passed in the test.
    static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    /// The sleeping tasks, and the times at which they wake.
    static SLEEPING: RefCell<Vec<(Duration, task::Waker)>> = const { RefCell::new(Vec::new()) };
}

/// Resets the time to 0; no task sleeps.
pub(crate) fn begin_time() {
    PASSED.set(Duration::ZERO);
    SLEEPING.take();
}

/// Advances the time to this long after the start, and wakes the tasks that are due.
pub(crate) fn let_time_pass(until: Duration) {
    anybody();
    PASSED.set(PASSED.get().max(until));
    let is_over = |(at, _): &mut (Duration, task::Waker)| *at <= until;
    let woken: Vec<_> = SLEEPING.with_borrow_mut(|all| all.extract_if(.., is_over).collect());
    for (_, waker) in woken {
        waker.wake();
    }
}

/// Whether a task sleeps.
pub(crate) fn is_anybody_asleep() -> bool {
    SLEEPING.with_borrow(|all| !all.is_empty())
}

/// A moment of the test's time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        anybody();
        Self(PASSED.get())
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0 + span)
    }
}

/// Sleeps until a moment.
#[derive(Debug)]
pub(crate) struct Timer(Duration);

impl Timer {
    pub(crate) fn at(moment: Instant) -> Self {
        Self(moment.0)
    }

    pub(crate) fn after(span: Duration) -> Self {
        Self(PASSED.get() + span)
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        anybody();
        if PASSED.get() >= self.0 {
            return Poll::Ready(());
        }
        SLEEPING.with_borrow_mut(|all| all.push((self.0, context.waker().clone())));
        Poll::Pending
    }
}

/// The same for each run of a test.
pub(crate) fn since_epoch() -> Duration {
    Duration::from_secs(1_700_000_000) + PASSED.get()
}
