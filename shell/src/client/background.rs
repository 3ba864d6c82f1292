//! The thread on which held locks are kept.
//!
//! There is one for the whole process, started by the first lock. A task of an executor the caller
//! chose would not do: it is just when the work under a lock is long, and blocks that executor, that
//! the lock must be renewed and its loss be noticed.

use std::future::Future;
use std::sync::OnceLock;

use smol::Executor;

static EXECUTOR: OnceLock<&'static Executor<'static>> = OnceLock::new();

/// Runs `task` to its end in the background.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
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
