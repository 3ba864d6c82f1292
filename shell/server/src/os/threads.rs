//! Starting threads. The system may refuse one, at the start or later: an error names the thread and the limit.
//!
//! A process with few allowed processes must say so and end, so no thread is started by a call that panics.

use std::io;
use std::panic::catch_unwind;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use smol::Timer;
use smol::future::{block_on, poll_once};

/// Starts a thread with a name.
///
/// # Errors
/// The system's, with the thread's name, and with advice if a limit is reached.
pub fn spawn_thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = Builder::new().name(name.to_owned());
    let started = thread.spawn(body);
    started.map_err(|error| cannot_start(&format!("the thread {name}"), &error))
}

/// Waits until a thread has ended, and logs its panic.
pub(crate) fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    if thread.join().is_err() {
        tracing::error!("thread {name} panicked");
    }
}

/// The error that a thread or a process cannot be started, with advice if a limit is reached.
#[must_use]
pub fn cannot_start(what: &str, error: &io::Error) -> io::Error {
    let advice = if error.kind() == io::ErrorKind::WouldBlock {
        "; raise the limit of processes: TasksMax= or LimitNPROC= of the unit, pids.max, `ulimit -u`"
    } else {
        ""
    };
    let why = format!("cannot start {what}: {error}{advice}");
    io::Error::new(error.kind(), why)
}

/// Starts the thread that async-io shares in a process. The library itself panics if the system refuses it, at its first
/// use. A program that sets a panic hook calls this before.
///
/// # Errors
/// As [`spawn_thread`], or that async-io gets no descriptor.
pub fn start_reactor() -> io::Result<()> {
    // Its own `block_on` would panic again while it unwinds, which aborts. A registered timer starts the thread.
    let never = || block_on(poll_once(Timer::after(Duration::from_secs(3600))));
    let Err(panic) = catch_unwind(never) else {
        return Ok(());
    };
    // The panic has no error of the system; the same attempt has one.
    spawn_thread("async-io", || ())?;
    let why = panic.downcast_ref::<String>().map_or("", String::as_str);
    Err(io::Error::other(format!("cannot start async-io: {why}")))
}
