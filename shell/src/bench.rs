//! `latchd bench`: puts load on a server, and reports rates and latencies.
//!
//! - A figure never comes from a wrong reply: each reply is read whole and checked, and a wrong one ends the
//!   program without figures.
//! - No lock stays held: each connection releases its lock before the load ends.
//!
//! Exit codes: those of all tasks (`exit.rs`). 0 also after SIGINT.

// Figures of measurements: none of them has more digits than a float keeps.
#![allow(clippy::cast_precision_loss)]

mod attend;
mod load;
mod report;
mod stream;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use latchd_load::wire::Dialect;
use latchd_load::wire::item::VALUE_BYTES_MIN;

use crate::exit;
use crate::flags::{NETWORK, ServerArgs, seconds};
use crate::output::{Failure, concluded, print};

/// The exit code after SIGINT, as shells report it.
const EXIT_INTERRUPTED: u8 = exit::SIGNALLED + 2;

/// The text under the options.
pub(crate) const HELP: &str = "\
Examples:
  latchd bench -s cache:11211 -c 100 -P 16 -d 30
  latchd bench handover -c 200
Each reply is checked. The keys begin with `latchd:bench:`.

Exit codes:
    0  measured, also if interrupted by Ctrl-C
    1  another client holds a lock of the load
    2  an option is wrong, or the server refused the load
   69  the server is unreachable, broke a connection, replied wrongly or not within 10 s
   71  the system refuses descriptors or threads
   74  the figures cannot be written
  130  interrupted before anything was measured";

/// The heading of the options about the load.
const LOAD: &str = "Load";

/// The heading of the options about output.
const OUTPUT: &str = "Output";

/// The keys, unless the options say how many. Handovers have one.
const KEYS: u32 = 50_000;

/// The time of a measurement, unless the options limit it.
const DURATION: Duration = Duration::from_secs(10);

/// The most keys of handovers and of `--distribution zipf`, which need 8 bytes for each.
const LISTED_KEYS_MAX: u32 = 10_000_000;

/// The most bytes of values that may be under way on all connections.
const UNDER_WAY_BYTES_MAX: u64 = 1 << 30;

/// Measure a server: rates and latencies of gets, sets and locks
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct BenchArgs {
    /// Send these requests
    #[arg(value_enum, default_value_t = Kind::Cache)]
    workload: Kind,
    #[command(flatten)]
    server: ServerArgs,
    /// Fail if connecting takes longer than SECS
    #[arg(long, value_name = "SECS", value_parser = seconds, default_value = "5", help_heading = NETWORK)]
    timeout: Duration,
    /// Speak this protocol; text is the classic one
    #[arg(short = 'B', long, value_name = "NAME", value_enum, default_value_t = Protocol::Meta,
        help_heading = NETWORK)]
    protocol: Protocol,
    /// Open this many connections
    #[arg(short, long, value_name = "NUMBER", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = LOAD)]
    clients: u32,
    /// Send from this many threads
    #[arg(short, long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64), help_heading = LOAD)]
    threads: u32,
    /// Send this many requests at a time on each connection
    #[arg(short = 'P', long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1_000), help_heading = LOAD)]
    pipeline: u32,
    /// Stop after SECS [default: 10, without -n]
    #[arg(short, long, value_name = "SECS", value_parser = seconds, help_heading = LOAD)]
    duration: Option<Duration>,
    /// Stop after this many gets and sets, or locks
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..),
        help_heading = LOAD)]
    requests: Option<u64>,
    /// Send this many gets in 100 requests; the others are sets
    #[arg(long, value_name = "PERCENT", default_value_t = 90,
        value_parser = clap::value_parser!(u8).range(..=100), help_heading = LOAD)]
    gets: u8,
    /// Use this many keys [default: 50000; handover: 1]
    #[arg(short, long, value_name = "NUMBER",
        value_parser = clap::value_parser!(u32).range(1..=100_000_000), help_heading = LOAD)]
    keys: Option<u32>,
    /// Draw keys evenly, or some more often than others
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Distribution::Uniform,
        help_heading = LOAD)]
    distribution: Distribution,
    /// Store values of this many bytes, at least 8
    #[arg(long, value_name = "BYTES", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(VALUE_BYTES_MIN as i64..=64 << 20),
        help_heading = LOAD)]
    value_size: u32,
    /// Do not store all keys before the measurement
    #[arg(long, help_heading = LOAD)]
    no_fill: bool,
    /// Print the figures as one JSON object
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

/// The workloads.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Kind {
    /// Get and set items
    Cache,
    /// Lock and unlock keys that no other connection uses
    Lock,
    /// Wait for locks that all connections want, and release them at once; needs latchd
    Handover,
}

/// The protocols.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Protocol {
    Meta,
    Text,
    Binary,
}

/// How often which keys are drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Distribution {
    /// Each key equally often
    Uniform,
    /// The key of rank r in proportion to 1/r
    Zipf,
}

/// Runs the program. Returns the exit code.
pub(crate) fn run(args: &BenchArgs) -> ExitCode {
    let measured = args.check().and_then(|()| load::measure(args));
    let printed = measured.and_then(|report| {
        print(if args.json {
            report.json()
        } else {
            report.to_string()
        })
    });
    concluded(printed).into()
}

impl BenchArgs {
    /// Checks what one option cannot know of the others.
    fn check(&self) -> Result<(), Failure> {
        let is_listed = self.distribution == Distribution::Zipf || self.workload == Kind::Handover;
        let problem = if self.workload == Kind::Handover && self.protocol != Protocol::Meta {
            "handover: only meta commands wait for a lock; use -B meta"
        } else if self.workload == Kind::Handover && self.pipeline > 1 {
            "handover: a connection that waits sends nothing else; remove -P"
        } else if self.workload == Kind::Lock && self.keys() < self.clients {
            "lock: each connection needs a key of its own; raise --keys to --clients"
        } else if self.distribution == Distribution::Zipf && self.workload != Kind::Cache {
            "--distribution is about gets and sets; remove it"
        } else if is_listed && self.keys() > LISTED_KEYS_MAX {
            "at most 10000000 keys for handover and --distribution zipf; lower --keys"
        } else if self.under_way(self.pipeline) > UNDER_WAY_BYTES_MAX {
            "more than 1 GiB of values at a time; lower --clients, --pipeline or --value-size"
        } else {
            return Ok(());
        };
        Err(Failure::usage(problem))
    }

    /// The most bytes of values that are under way with so many requests at a time.
    fn under_way(&self, depth: u32) -> u64 {
        u64::from(self.clients) * u64::from(depth) * u64::from(self.value_size)
    }

    fn keys(&self) -> u32 {
        self.keys.unwrap_or(match self.workload {
            Kind::Cache | Kind::Lock => KEYS,
            Kind::Handover => 1,
        })
    }

    /// The time limit; `None` if only the requests are limited.
    fn time(&self) -> Option<Duration> {
        let usual = self.requests.is_none().then_some(DURATION);
        self.duration.or(usual)
    }
}

impl Protocol {
    const fn dialect(self) -> Dialect {
        match self {
            Self::Meta => Dialect::Meta,
            Self::Text => Dialect::Classic,
            Self::Binary => Dialect::Binary,
        }
    }
}

/// The name of a value of an option, as the user types it.
fn name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is skipped");
    value.get_name().to_owned()
}
