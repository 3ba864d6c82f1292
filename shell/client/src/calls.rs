//! How the holder of a lock asks the task that keeps it, and is answered: one call of the lock at a time, in the
//! order in which they come.

use std::sync::OnceLock;

use async_channel::{Sender, bounded};
use latchd_core::client::Loss;

use super::error::{Error, ErrorKind};
use super::pool::Pool;

/// Calls of one lock that may wait for their answer at a time; further callers wait their turn.
pub(super) const CALLS_MAX: usize = 16;

/// Where the answer to a call goes.
pub(super) type Caller<T> = Sender<Result<T, Error>>;

/// Asks the task, and waits for its answer.
///
/// # Errors
/// What the task says; [`ErrorKind::NotHeld`] with what is known of the loss if it has gone.
pub(super) async fn ask<C, T>(
    pool: &Pool,
    calls: &Sender<C>,
    loss: &OnceLock<Loss>,
    call: impl FnOnce(Caller<T>) -> C,
) -> Result<T, Error> {
    let (answer, answered) = bounded(1);
    let not_held = || pool.error(ErrorKind::NotHeld(loss.get().copied()));
    calls.send(call(answer)).await.map_err(|_| not_held())?;
    answered.recv().await.map_err(|_| not_held())?
}

/// Answers a call, if it has not been; the caller may have gone.
pub(super) fn reply<T>(caller: &mut Option<Sender<T>>, answer: T) {
    if let Some(caller) = caller.take() {
        let _ = caller.try_send(answer);
    }
}
