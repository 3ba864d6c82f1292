//! The program as a process, which is killed with the value.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// An event that takes this long does not happen: a change of a role takes seconds, and the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with flags. Its input is empty, and its output is discarded.
pub(crate) fn latchd<S: AsRef<OsStr>>(flags: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
    command
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

pub(crate) fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// Waits for a condition.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server that listens, and its greeting.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) log: BufReader<ChildStderr>,
    pub(crate) greeting: String,
}

impl Running {
    pub(crate) fn start<S: AsRef<OsStr>>(flags: &[S]) -> Self {
        let mut child = latchd(flags).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut greeting = String::new();
        while !greeting.contains("listening on") {
            greeting.clear();
            assert_ne!(log.read_line(&mut greeting).unwrap(), 0, "it has ended");
        }
        Self {
            child,
            log,
            greeting,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        let (_, rest) = self.greeting.split_once("listening on ").unwrap();
        rest.split([',', ';']).next().unwrap().parse().unwrap()
    }

    /// Sends a signal and returns the exit code.
    pub(crate) fn end(self, signal: Signal) -> Option<i32> {
        self.end_with_log(signal).0
    }

    /// Sends a signal and returns the exit code and the log after the greeting.
    pub(crate) fn end_with_log(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(pid(self.child.id()), signal).unwrap();
        let code = self.child.wait().unwrap().code();
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        (code, log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
