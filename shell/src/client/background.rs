//! The thread on which held locks are kept, and what a process that ends still owes.
//!
//! There is one thread for the whole process, started by the first lock. A task of an executor the
//! caller chose would not do: it is just when the work under a lock is long, and blocks that executor,
//! that the lock must be renewed and its loss be noticed.
//!
//! What is dropped is given back by that thread. A process that ends right after a drop would not let
//! it: so a thread that has used the client waits at its end, for [`FLUSH_MAX`] at most, until nothing
//! is owed any more. Where the C library runs no destructors of the main thread's locals at exit (glibc
//! and macOS do), nobody waits, and the server frees what was held after its ttl.

use std::future::Future;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use smol::Executor;

/// How long a thread that ends waits for what is owed.
const FLUSH_MAX: Duration = Duration::from_millis(250);

static EXECUTOR: OnceLock<&'static Executor<'static>> = OnceLock::new();

/// How many tasks are to give something back whose holder is gone.
static OWED: Mutex<usize> = Mutex::new(0);
/// One of them has.
static SETTLED: Condvar = Condvar::new();

thread_local! {
    static FLUSH_AT_END: FlushAtEnd = const { FlushAtEnd };
}

struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        let owed = OWED.lock().unwrap_or_else(PoisonError::into_inner);
        // Whether all came in time is of no use to know any more.
        let _ = SETTLED.wait_timeout_while(owed, FLUSH_MAX, |owed| *owed > 0);
    }
}

/// Runs `task` to its end in the background. The thread that calls this waits at its end for what is
/// owed then.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    // A thread whose locals are being destroyed has no end to wait at.
    let _ = FLUSH_AT_END.try_with(|_| {});
    executor().spawn(task).detach();
}

fn executor() -> &'static Executor<'static> {
    EXECUTOR.get_or_init(|| {
        // It lives as long as the process, so nothing is lost by never giving it back.
        let executor: &'static Executor<'static> = Box::leak(Box::new(Executor::new()));
        std::thread::Builder::new()
            .name("latchd-locks".into())
            .spawn(|| smol::block_on(executor.run(std::future::pending::<()>())))
            .expect("a process that may not start a thread cannot keep a lock");
        executor
    })
}

/// What a task and its holder have in common: the task owes something from when the holder is gone
/// until it has ended.
pub(super) fn debt() -> (Holder, Debtor) {
    let state = Arc::new(AtomicU8::new(HELD));
    (Holder(Arc::clone(&state)), Debtor(state))
}

/// Of the holder; its end begins the debt.
pub(super) struct Holder(Arc<AtomicU8>);

/// Of the task; its end settles the debt.
pub(super) struct Debtor(Arc<AtomicU8>);

const HELD: u8 = 0;
const OWES: u8 = 1;
const ENDED: u8 = 2;

impl Drop for Holder {
    fn drop(&mut self) {
        let mut owed = OWED.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.swap(OWES, Ordering::SeqCst) == HELD {
            *owed += 1;
        }
    }
}

impl Drop for Debtor {
    fn drop(&mut self) {
        let mut owed = OWED.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.swap(ENDED, Ordering::SeqCst) == OWES {
            *owed -= 1;
            SETTLED.notify_all();
        }
    }
}
