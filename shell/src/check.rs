//! `latchd check [FLAGS]`: checks the system before a server with these flags starts.
//!
//! It changes nothing, except that it listens on each address for a moment. All checks run, also after a failure.
//! Exit codes: those of all tasks (`exit.rs`). 0 with or without warnings; 71 if no server would start.

mod cluster;
mod limits;
mod places;

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use latchd_server::Config;

pub(crate) use self::limits::memory_needed;

use crate::exit;
use crate::flags::Process;
use crate::output::{concluded, print};

/// The text under the options.
pub(crate) const HELP: &str = "\
Examples:
  latchd check --config /etc/latchd.conf
  latchd check -m 4096 -c 20000 -u nobody
The environment and the file of --config are read as when a server starts.

Each line of the output begins with `ok`, `warning` or `failure`.

Exit codes:
   0  a server would start
   2  an option is wrong
  71  the system does not let a server start
  74  the output cannot be written";

/// Check limits, memory, addresses and files before starting a server
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Check for a server with these options
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) flags: Vec<OsString>,
}

/// The result of one check.
#[derive(Debug)]
pub(crate) struct Finding(Verdict, String);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    /// The check passed.
    Good,
    /// A server starts, but does less than its flags say.
    Warning,
    /// A server does not start.
    Failure,
}

impl Finding {
    fn good(text: impl Into<String>) -> Self {
        Self(Verdict::Good, text.into())
    }

    fn warning(text: impl Into<String>) -> Self {
        Self(Verdict::Warning, text.into())
    }

    fn failure(text: impl Into<String>) -> Self {
        Self(Verdict::Failure, text.into())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(verdict, text) = self;
        let verdict = match verdict {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "failure",
        };
        write!(formatter, "{verdict:<8} {text}")
    }
}

/// Runs all checks and prints their results.
pub(crate) fn run(config: &Config, ignored: &[String], process: &Process) -> ExitCode {
    let mut findings: Vec<_> = ignored.iter().map(Finding::warning).collect();
    findings.extend(limits::look(config, process));
    findings.extend(places::look(config, process));
    findings.extend(config.cluster.iter().flat_map(cluster::look));
    findings.extend(config.state.as_deref().map(cluster::state));
    let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
    let printed = concluded(print(lines.join("\n") + "\n"));
    let fails = findings
        .iter()
        .any(|Finding(verdict, _)| *verdict == Verdict::Failure);
    if fails {
        ExitCode::from(exit::OS_ERROR)
    } else {
        printed.into()
    }
}
