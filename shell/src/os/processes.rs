//! The number of processes and threads that this process may start.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;

/// The stack of a thread that only waits, in bytes.
const STACK_BYTES: usize = 64 << 10;

/// Checks that `count` more processes or threads can be started. Libraries panic if one of theirs cannot.
///
/// # Errors
/// A message for the user, if they cannot.
pub(crate) fn check(count: usize) -> Result<(), String> {
    let (probes, started) = probe(count);
    for probe in probes {
        // It cannot panic.
        let _ = probe.join();
    }
    started.map_err(|error| {
        let advice = if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) {
            "a process that has just left its PID namespace starts no threads: use `unshare --fork`"
        } else {
            "raise the limit of processes with `ulimit -u`, TasksMax= or pids.max"
        };
        format!("cannot start {count} processes and threads: {error}; {advice}")
    })
}

/// Threads that run at the same time; the error says why they are fewer than `count`.
fn probe(count: usize) -> (Vec<JoinHandle<()>>, io::Result<()>) {
    let gate = Arc::new(Mutex::new(()));
    let _closed = gate.lock();
    let mut probes = Vec::new();
    for _ in 0..count {
        let gate = Arc::clone(&gate);
        let wait = move || drop(gate.lock());
        match thread::Builder::new().stack_size(STACK_BYTES).spawn(wait) {
            Ok(probe) => probes.push(probe),
            Err(error) => return (probes, Err(error)),
        }
    }
    (probes, Ok(()))
}
