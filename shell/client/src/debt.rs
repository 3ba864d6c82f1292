//! What a process that ends still owes.
//!
//! What is dropped is given back by the thread in the [background](super::background). A process that ends right after a
//! drop would not let it: so a thread that has used the client waits at its end, for [`FLUSH_MAX`] at most, until nothing
//! is owed any more. Where the C library runs no destructors of the main thread's locals at exit (glibc
//! and macOS do), nobody waits, and the server frees what was held after its ttl.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::background;

/// How long a thread that ends waits for what is owed.
const FLUSH_MAX: Duration = Duration::from_millis(250);

static OWED: Mutex<Owed> = Mutex::new(Owed {
    tasks: 0,
    waiting: 0,
});
/// One of them has.
static SETTLED: Condvar = Condvar::new();

thread_local! {
    static FLUSH_AT_END: FlushAtEnd = const { FlushAtEnd };
}

/// What is owed, and who waits for it.
struct Owed {
    /// How many tasks are to give something back whose holder is gone.
    tasks: usize,
    /// How many threads wait at their end. While there are none, nobody is woken.
    waiting: usize,
}

struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        if background::is_forked() {
            return;
        }
        let mut owed = OWED.lock().unwrap_or_else(PoisonError::into_inner);
        owed.waiting += 1;
        // Whether all came in time is of no use to know any more.
        let waited = SETTLED.wait_timeout_while(owed, FLUSH_MAX, |owed| owed.tasks > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
    }
}

/// Has this thread wait at its end for what is owed then.
pub(super) fn flush_at_end() {
    // A thread whose locals are being destroyed has no end to wait at.
    let _ = FLUSH_AT_END.try_with(|_| {});
}

/// What a task and its holder have in common: the task owes something from when the holder is gone
/// until it has ended.
pub(super) fn new() -> (Holder, Debtor) {
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
        if background::is_forked() {
            return;
        }
        let mut owed = OWED.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.swap(OWES, Ordering::SeqCst) == HELD {
            owed.tasks += 1;
        }
    }
}

impl Drop for Debtor {
    fn drop(&mut self) {
        let mut owed = OWED.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.swap(ENDED, Ordering::SeqCst) == OWES {
            owed.tasks -= 1;
            if owed.waiting > 0 {
                SETTLED.notify_all();
            }
        }
    }
}
