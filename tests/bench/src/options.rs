//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::tasks::speed::Plan;

/// Measures latchd beside other servers: each is started on a port of its own, measured in turn with the
/// others, and stopped.
#[derive(Debug, Parser)]
#[command(name = "latchd-bench", version, max_term_width = 100)]
pub(crate) struct Options {
    /// The tasks to measure
    #[arg(value_enum, default_value = "speed")]
    pub(crate) tasks: Vec<Task>,
    /// The latchd to measure, built with `cargo build --release`
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/latchd")]
    pub(crate) latchd: PathBuf,
    /// A server beside it: memcached, yrmcds or another latchd, by path or by a name on PATH; as
    /// NAME=PROGRAM, tables call it NAME. May stand several times [default: memcached and yrmcds, with
    /// --gate none]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) peer: Vec<String>,
    /// Only these rows of speed, locks and hits; may stand several times
    #[arg(long, value_name = "NAME")]
    pub(crate) row: Vec<String>,
    /// How long each measurement of speed and locks takes [default: 2; quick: 0.15]
    #[arg(long, value_name = "NUMBER", value_parser = seconds)]
    seconds: Option<Duration>,
    /// How many times each is repeated [default: 7; quick: 3]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Items of memory and pauses [default: 1000000; quick: 30000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10_000..=50_000_000))]
    items: Option<u32>,
    /// Everything smaller and shorter: under a minute for each task, to see that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Writes all figures, each round's too, into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Writes plots into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Fails if latchd's instructions are not within 5 % of those in this JSON file, for instance
    /// {"b": 2000, "c100": 1300}
    #[arg(long, value_name = "FILE")]
    pub(crate) gate: Option<PathBuf>,
}

/// The tasks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Task {
    /// Operations a second, processor time and system calls an operation, latencies
    Speed,
    /// Locks beside gets
    Locks,
    /// Memory an item, after sizes changed, at rest, a connection
    Memory,
    /// How often a get hits at equal memory
    Hits,
    /// How long one client waits while others fill, evict, flush and expire
    Pauses,
    /// Instructions an operation, under valgrind
    Instructions,
}

impl Options {
    /// How long and how often speed is measured.
    pub(crate) fn plan(&self) -> Plan {
        let (millis, rounds) = if self.quick { (150, 3) } else { (2_000, 7) };
        Plan {
            span: self.seconds.unwrap_or(Duration::from_millis(millis)),
            rounds: usize::from(self.rounds.unwrap_or(rounds)),
        }
    }

    /// How many items memory and pauses are measured with.
    pub(crate) fn items(&self) -> u32 {
        self.items
            .unwrap_or(if self.quick { 30_000 } else { 1_000_000 })
    }

    /// The peers to look for.
    pub(crate) fn peers(&self) -> Vec<String> {
        // A gate is for latchd alone.
        if self.peer.is_empty() && self.gate.is_none() {
            return vec!["memcached".into(), "yrmcds".into()];
        }
        self.peer.clone()
    }
}

/// A span in seconds, up to an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.05..=3_600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a number of seconds from 0.05 to 3600".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["latchd-bench"], words].concat())
    }

    #[test]
    fn the_default_task_is_speed() {
        let options = parsed(&[]).expect("nothing is required");
        assert_eq!(options.tasks, [Task::Speed]);
        assert_eq!(options.peers(), ["memcached", "yrmcds"]);
        let plan = options.plan();
        assert_eq!((plan.span, plan.rounds), (Duration::from_secs(2), 7));
    }

    #[test]
    fn quick_is_shorter_unless_said_otherwise() {
        let options = parsed(&["--quick", "--seconds", "0.5", "memory", "hits"]).expect("fine");
        assert_eq!(options.tasks, [Task::Memory, Task::Hits]);
        let plan = options.plan();
        assert_eq!((plan.span, plan.rounds), (Duration::from_millis(500), 3));
        assert_eq!(options.items(), 30_000);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parsed(&["--seconds", "0"]).is_err());
        assert!(parsed(&["--seconds", "nan"]).is_err());
        assert!(parsed(&["--rounds", "0"]).is_err());
        assert!(parsed(&["sped"]).is_err());
    }
}
