//! The state that tasks and threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A panic elsewhere leaves nothing half done: every change under it is complete before one is possible.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
