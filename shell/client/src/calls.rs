//! Calls of a lock's holder to the task that keeps the lock. The task replies to one call of the lock at a
//! time, in order.

use std::sync::OnceLock;

use async_channel::{Sender, bounded};
use latchd_client_core::Loss;

use super::error::{Error, ErrorKind};
use super::pool::Pool;

/// Calls of one lock that may wait for their reply at a time; further callers wait for their turn.
pub(super) const CALLS_MAX: usize = 16;

/// The channel for the reply to a call.
pub(super) type Caller<T> = Sender<Result<T, Error>>;

/// Sends a call to the task, and waits for its reply.
///
/// # Errors
/// The task's error; [`ErrorKind::NotHeld`] with the known reason of the loss if the task has ended.
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

/// Replies to a call that has no reply yet. The caller may be gone.
pub(super) fn reply<T>(caller: &mut Option<Sender<T>>, answer: T) {
    if let Some(caller) = caller.take() {
        let _ = caller.try_send(answer);
    }
}
