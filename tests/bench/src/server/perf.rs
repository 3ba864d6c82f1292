//! System calls of a server, counted by `perf`.
//!
//! A tracepoint in the kernel counts them all; strace slows the server down so much that it batches
//! differently, and then counts too few.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use crate::server::signal;
use crate::server::usage::threads;

const EVENT: &str = "raw_syscalls:sys_enter";
/// How long perf may take to attach itself, and to print its counts.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between opening its counters and switching them on perf does little.
const SWITCH: Duration = Duration::from_millis(50);

/// A count that runs.
#[derive(Debug)]
pub(crate) struct Count {
    perf: Child,
}

impl Count {
    /// Starts to count the system calls of all threads of a process.
    ///
    /// # Errors
    /// There is no perf, or it may not count here; the message is perf's own.
    pub(crate) fn start(pid: u32) -> Result<Self> {
        let perf = Command::new("perf")
            .args(["stat", "-x", ",", "-e", EVENT, "-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("perf cannot be started")?;
        let mut count = Self { perf };
        let counters = threads(pid)?;
        let deadline = Instant::now() + PATIENCE;
        while count.counters() < counters {
            if count.perf.try_wait()?.is_some() {
                bail!("perf: {}", count.words()?);
            }
            ensure!(Instant::now() < deadline, "perf does not attach itself");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(SWITCH);
        Ok(count)
    }

    /// Ends the count.
    ///
    /// # Errors
    /// perf does not end, or has not counted.
    pub(crate) fn stop(mut self) -> Result<u64> {
        signal(self.perf.id(), Signal::INT);
        let deadline = Instant::now() + PATIENCE;
        while self.perf.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "perf does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let words = self.words()?;
        parse_count(&words).with_context(|| format!("perf has not counted: {}", words.trim()))
    }

    /// How many counters perf has opened.
    fn counters(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.perf.id());
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .filter(|target| target.to_string_lossy().contains("[perf_event]"))
            .count()
    }

    /// The output of perf until it ended.
    fn words(&mut self) -> Result<String> {
        let mut words = String::new();
        if let Some(stderr) = &mut self.perf.stderr {
            stderr.read_to_string(&mut words)?;
        }
        Ok(words)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// Finds `<count>,<unit>,<event>,…`.
fn parse_count(words: &str) -> Option<u64> {
    let line = words.lines().find(|line| line.contains(EVENT))?;
    line.split(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_first_field() {
        let line = "109,,raw_syscalls:sys_enter,643127,100.00,,\n";
        assert_eq!(parse_count(line), Some(109));
    }

    #[test]
    fn a_missing_count_is_not_zero() {
        for words in [
            "<not counted>,,raw_syscalls:sys_enter,0,100.00,,",
            "<not supported>,,raw_syscalls:sys_enter,0,100.00,,",
            "event syntax error: 'raw_syscalls:sys_enter'",
            "",
        ] {
            assert_eq!(parse_count(words), None, "{words}");
        }
    }
}
