//! Pending releases of a process that ends.
//!
//! The [background thread](super::background) releases a dropped lock. If the process ended right after the
//! drop, the release would be lost. So a thread that has used the client waits when it ends, for at most
//! [`FLUSH_MAX`], until no release is pending. Some C libraries run no destructors of the main thread's
//! locals at exit (glibc and macOS do). There the thread does not wait, and the server frees the lock after
//! its ttl.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::background;

/// The longest wait of an ending thread for pending releases.
const FLUSH_MAX: Duration = Duration::from_millis(250);

/// The number of tasks with something to release and without a holder.
static PENDING: Mutex<usize> = Mutex::new(0);
/// Signals the end of a pending release.
static RELEASED: Condvar = Condvar::new();

thread_local! {
    static FLUSH_AT_END: FlushAtEnd = const { FlushAtEnd };
}

struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        if background::is_forked() {
            return;
        }
        // The thread ends in any case.
        let _ = RELEASED.wait_timeout_while(pending(), FLUSH_MAX, |pending| *pending != 0);
    }
}

/// The number of pending releases.
pub(super) fn pending() -> MutexGuard<'static, usize> {
    // No panic can interrupt a change here.
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this thread wait for pending releases when it ends.
pub(super) fn flush_at_end() {
    // A thread that is destroying its locals cannot wait at its end.
    let _ = FLUSH_AT_END.try_with(|_| {});
}

/// The shared state of a task and its holder. The release is pending from the drop of the holder until the
/// task has ended.
pub(super) fn new() -> (Holder, PendingRelease) {
    let state = Arc::new(AtomicU8::new(HELD));
    (Holder(Arc::clone(&state)), PendingRelease(state))
}

/// The holder's part; its drop makes the release pending.
pub(super) struct Holder(Arc<AtomicU8>);

/// The task's part; its drop ends the pending release.
pub(super) struct PendingRelease(Arc<AtomicU8>);

const HELD: u8 = 0;
const RELEASING: u8 = 1;
const ENDED: u8 = 2;

impl Drop for Holder {
    fn drop(&mut self) {
        if background::is_forked() {
            return;
        }
        let mut pending = pending();
        if self.0.swap(RELEASING, Ordering::SeqCst) == HELD {
            *pending += 1;
        }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let mut pending = pending();
        if self.0.swap(ENDED, Ordering::SeqCst) == RELEASING {
            *pending -= 1;
            RELEASED.notify_all();
        }
    }
}
