//! `latchd check [FLAGS]`: what a server with these flags needs of the system, before it is started.
//!
//! Nothing is changed but that an address is listened on for a moment. Everything is looked at, also
//! after a failure. Exit codes: 0 if a server would start, with or without warnings; 71 if not.

mod limits;
mod places;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use latchd_server::Config;

pub(crate) use self::limits::memory_needed;

use crate::flags::Process;

/// What stands under the options.
pub(crate) const HELP: &str = "\
The flags are the server's, from the command line, the environment and the file, as when it starts:
  latchd check --config /etc/latchd.conf
  latchd check -m 4096 -c 20000 -u nobody

Each line is `ok`, `warning` or `failure`. Exit codes: 0 if a server would start; 2 if a flag is wrong; 71 if
the system does not let it start.";

/// See what a server needs of the system: limits, memory, addresses, files
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The server's flags
    #[arg(
        value_name = "FLAGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) flags: Vec<OsString>,
}

/// What came of looking at one thing.
#[derive(Debug)]
pub(crate) struct Finding {
    verdict: Verdict,
    what: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    /// As it should be.
    Good,
    /// A server starts, and does less than it is told to.
    Warning,
    /// A server does not start.
    Failure,
}

impl Finding {
    fn good(what: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Good,
            what: what.into(),
        }
    }

    fn warning(what: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warning,
            what: what.into(),
        }
    }

    fn failure(what: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Failure,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "failure",
        };
        write!(formatter, "{verdict:<8} {}", self.what)
    }
}

/// Looks at everything and says what it found.
pub(crate) fn run(config: &Config, ignored: &[String], process: &Process) -> ExitCode {
    let mut findings = Vec::new();
    if !ignored.is_empty() {
        let ignored = ignored.join(", ");
        findings.push(Finding::warning(format!(
            "these mean nothing to latchd: {ignored}"
        )));
    }
    findings.extend(limits::look(config, process));
    findings.extend(places::look(config, process));
    let mut out = io::stdout().lock();
    for finding in &findings {
        // Nobody has to read it: the exit code says it as well.
        let _ = writeln!(out, "{finding}");
    }
    let fails = findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Failure);
    if fails {
        ExitCode::from(crate::EXIT_OS_ERROR)
    } else {
        ExitCode::SUCCESS
    }
}
