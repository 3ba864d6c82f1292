//! Says on stderr which step is being measured: one line that is written anew on a terminal, else a
//! line a step.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How far a run is.
#[derive(Debug)]
pub(crate) struct Progress {
    is_terminal: bool,
    started: Instant,
    steps: usize,
    done: usize,
}

impl Progress {
    /// For a run of `steps` steps, which take about the same time each.
    pub(crate) fn new(steps: usize) -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            steps,
            done: 0,
        }
    }

    /// A step begins.
    pub(crate) fn step(&mut self, what: &str) {
        let left = remaining(self.started.elapsed(), self.done, self.steps);
        let left = left.map_or(String::new(), |left| format!(", {} s left", left.as_secs()));
        self.done += 1;
        let line = format!("[{}/{}{left}] {what}", self.done, self.steps);
        if self.is_terminal {
            eprint!("\r\x1b[2K{line}");
            // Failing to show progress is no reason to stop measuring.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    /// Makes room for a table.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// How long the steps that are left may take, from those that are done.
fn remaining(elapsed: Duration, done: usize, steps: usize) -> Option<Duration> {
    let left = steps.checked_sub(done)?;
    let each = elapsed.checked_div(u32::try_from(done).ok()?)?;
    each.checked_mul(u32::try_from(left).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_the_start() {
        let minute = Duration::from_secs(60);
        assert_eq!(remaining(minute, 3, 9), Some(2 * minute));
        assert_eq!(remaining(minute, 0, 9), None, "nothing is known yet");
        assert_eq!(remaining(minute, 10, 9), None, "more than was said");
    }
}
