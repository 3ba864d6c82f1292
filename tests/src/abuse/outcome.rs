//! The outcome of an attack, and whether it is within the limits.
//!
//! A limit is the figure that docs/OPERATIONS.md promises on a quiet machine plus a multiple of the
//! delays that the machine shows without an attack. So a busy machine alone does not exceed it.

use std::fmt::Write as _;
use std::time::Duration;

use super::watch::Seen;

/// The longest that an innocent client may wait.
pub const STALL_MAX: Duration = Duration::from_millis(50);
/// The longest that a new client may wait.
pub const FRESH_MAX: Duration = Duration::from_millis(100);
/// The longest that the locks of a dead client may be held, if its end can be seen.
pub const FREE_MAX: Duration = Duration::from_millis(50);
/// How many times the quiet machine's worst delay is added to each limit.
const QUIET_TIMES: u32 = 5;
/// The least that counts as the worst delay of a quiet machine.
const QUIET_MIN: Duration = Duration::from_millis(5);

/// The outcome of an attack.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The delays of the innocent clients, if there were any.
    pub seen: Option<Seen>,
    /// How long a new client may wait, if not [`FRESH_MAX`].
    pub fresh_max: Option<Duration>,
    /// The peak memory of the server, and its limit, in MiB.
    pub memory: Option<Memory>,
    /// The time of a step that has a limit of its own.
    pub spans: Vec<Span>,
    /// Violated expectations.
    pub wrongs: Vec<String>,
    /// Further remarks for the report.
    pub notes: Vec<String>,
}

/// A server's memory, in MiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The peak.
    pub peak_mib: u64,
    /// The limit; `None` if the attack is not about memory.
    pub max_mib: Option<u64>,
}

/// A span with a limit.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The name of the timed step.
    pub name: &'static str,
    /// Its length.
    pub took: Duration,
    /// Its limit.
    pub max: Duration,
}

/// The delays of the machine without an attack.
#[derive(Clone, Copy, Debug)]
pub struct Quiet {
    /// The longest that an innocent client waited.
    pub worst: Duration,
    /// The longest that a new client waited.
    pub fresh_worst: Duration,
    /// The factor of each time limit: more than one on a machine that other programs use as well.
    pub slack: u32,
}

impl Default for Quiet {
    fn default() -> Self {
        Self {
            worst: Duration::ZERO,
            fresh_worst: Duration::ZERO,
            slack: 1,
        }
    }
}

impl Outcome {
    /// Adds the delays of the innocent clients.
    #[must_use]
    pub fn seen(seen: Seen) -> Self {
        Self {
            seen: Some(seen),
            ..Self::default()
        }
    }

    /// Notes a span and its limit.
    pub fn span(&mut self, name: &'static str, took: Duration, max: Duration) {
        self.spans.push(Span { name, took, max });
    }

    /// Notes `otherwise` as a violation unless `is_so`.
    pub fn must(&mut self, is_so: bool, otherwise: impl Into<String>) {
        if !is_so {
            self.wrongs.push(otherwise.into());
        }
    }

    /// Everything that is past its limit, in words; empty if the server kept all limits.
    #[must_use]
    pub fn faults(&self, quiet: &Quiet) -> Vec<String> {
        let mut faults = self.wrongs.clone();
        let stall_more = QUIET_TIMES * quiet.worst.max(QUIET_MIN);
        let fresh_more = QUIET_TIMES * quiet.fresh_worst.max(QUIET_MIN);
        if let Some(seen) = &self.seen {
            faults.extend(seen.wrongs.iter().take(3).cloned());
            for (name, took, max) in [
                ("stall", seen.worst, STALL_MAX + stall_more),
                (
                    "fresh",
                    seen.fresh_worst,
                    self.fresh_max.unwrap_or(FRESH_MAX) + fresh_more,
                ),
            ] {
                let max = max * quiet.slack;
                if took > max {
                    faults.push(format!("{name} {} > {}", ms(took), ms(max)));
                }
            }
        }
        if let Some(Memory {
            peak_mib,
            max_mib: Some(max_mib),
        }) = self.memory
            && peak_mib > max_mib
        {
            faults.push(format!("{peak_mib} MiB > {max_mib} MiB"));
        }
        for Span { name, took, max } in &self.spans {
            let max = (*max + stall_more) * quiet.slack;
            if *took > max {
                faults.push(format!("{name} {} > {}", ms(*took), ms(max)));
            }
        }
        faults
    }

    /// The row of the table, without its name.
    #[must_use]
    pub fn row(&self) -> String {
        let mut row = String::new();
        let seen = self.seen.as_ref();
        for span in [
            seen.map(|seen| seen.worst),
            seen.map(|seen| seen.p99),
            seen.map(|seen| seen.fresh_worst),
            seen.map(|seen| seen.idle_worst),
        ] {
            let _ = write!(row, " {:>10}", span.map_or("-".into(), ms));
        }
        let memory = self.memory.map(|memory| memory.peak_mib);
        let _ = write!(row, " {:>6}", memory.map_or("-".into(), |m| m.to_string()));
        let mut words: Vec<_> = self
            .spans
            .iter()
            .map(|span| format!("{} {}", span.name, ms(span.took)))
            .collect();
        words.extend(self.notes.iter().cloned());
        let _ = write!(row, "  {}", words.join(", "));
        row
    }
}

/// A span as the table shows it: milliseconds.
#[must_use]
pub fn ms(span: Duration) -> String {
    let us = span.as_micros();
    format!("{}.{:02} ms", us / 1000, us % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalled(worst_ms: u64) -> Outcome {
        Outcome::seen(Seen {
            worst: Duration::from_millis(worst_ms),
            ..Seen::default()
        })
    }

    #[test]
    fn a_stall_is_measured_against_the_quiet_machine() {
        let quiet = Quiet::default();
        assert_eq!(stalled(75).faults(&quiet), [""; 0]);
        assert_eq!(stalled(76).faults(&quiet), ["stall 76.00 ms > 75.00 ms"]);
        let noisy = Quiet {
            worst: Duration::from_millis(20),
            ..quiet
        };
        assert_eq!(stalled(150).faults(&noisy), [""; 0]);
        let shared = Quiet { slack: 2, ..quiet };
        assert_eq!(stalled(150).faults(&shared), [""; 0]);
        assert_eq!(
            stalled(151).faults(&shared),
            ["stall 151.00 ms > 150.00 ms"]
        );
    }

    #[test]
    fn memory_has_a_limit_only_where_it_is_attacked() {
        let mut outcome = stalled(1);
        outcome.memory = Some(Memory {
            peak_mib: 900,
            max_mib: None,
        });
        assert_eq!(outcome.faults(&Quiet::default()), [""; 0]);
        outcome.memory = Some(Memory {
            peak_mib: 900,
            max_mib: Some(160),
        });
        assert_eq!(outcome.faults(&Quiet::default()), ["900 MiB > 160 MiB"]);
    }

    #[test]
    fn a_violation_is_a_fault() {
        let mut outcome = Outcome::default();
        outcome.must(true, "this is so");
        outcome.must(false, "the server has ended");
        assert_eq!(outcome.faults(&Quiet::default()), ["the server has ended"]);
    }
}
