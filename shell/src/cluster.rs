//! `latchd cluster init` and `latchd cluster status`: the records of a cluster in etcd.
//!
//! Exit codes: 0 success; 1 the cluster exists already, or a partition has no primary; 2 an option is wrong; 71
//! (`EX_OSERR`) etcd is not reachable, refuses the login, or has no usable record.

mod hold;
mod init;
mod partition;
mod status;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;

use latchd_core::election::{RecordError, RingRecord};
use latchd_server::{Etcd, InTurn, Unanswered};

use self::init::InitArgs;
use self::status::StatusArgs;

use crate::flags::AuthorityFlags;

/// The text under the options.
pub(crate) const HELP: &str = "\
Examples:
  latchd cluster init --authority http://10.0.0.1:2379 --cluster shop cache-a:11211 cache-b:11211
  latchd cluster status --authority http://10.0.0.1:2379 --cluster shop
Options of etcd are also read from the environment, such as LATCHD_AUTHORITY and LATCHD_CLUSTER.

Exit codes:
   0  success
   1  init: the cluster exists already; status: a partition has no primary
   2  an option is wrong
  71  etcd is not reachable, refuses the login, or has no usable record";

/// Create a cluster in etcd, or show its primaries
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    task: ClusterTask,
}

#[derive(Debug, clap::Subcommand)]
enum ClusterTask {
    #[command(after_help = HELP)]
    Init(InitArgs),
    #[command(after_help = HELP)]
    Status(StatusArgs),
}

/// Why there is no success; the text is for the user.
#[derive(Debug, Eq, PartialEq)]
enum Failure {
    /// The answer is no.
    No(String),
    /// An option is wrong.
    Option(String),
    /// etcd does not answer, or its records are not usable.
    Unavailable(String),
}

impl From<Unanswered> for Failure {
    fn from(error: Unanswered) -> Self {
        Self::Unavailable(format!("no answer from etcd: {error}"))
    }
}

/// Runs the program. Returns the exit code.
pub(crate) fn run(args: &ClusterArgs) -> ExitCode {
    let done = match &args.task {
        ClusterTask::Init(args) => init::run(args),
        ClusterTask::Status(args) => status::run(args),
    };
    let (why, code) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::No(why)) => (why, 1),
        Err(Failure::Option(why)) => (why, 2),
        Err(Failure::Unavailable(why)) => (why, crate::EXIT_OS_ERROR),
    };
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "latchd: {why}");
    ExitCode::from(code)
}

/// Opens the authority; returns it and the name of the cluster.
fn open(flags: &AuthorityFlags) -> Result<(InTurn, String), Failure> {
    let missing = || "no etcd is named; add --authority URL and --cluster NAME".to_owned();
    let options = flags
        .options()
        .and_then(|options| options.ok_or_else(missing));
    let (options, cluster) = options.map_err(Failure::Option)?;
    let etcd = Etcd::new(&options).map_err(|error| Failure::Unavailable(error.to_string()))?;
    Ok((etcd.in_turn(), cluster))
}

/// Reads the ring of a cluster.
fn ring(cluster: &str, value: &str) -> Result<RingRecord, Failure> {
    let unusable = |error: RecordError| {
        Failure::Unavailable(format!(
            "the ring of cluster {cluster} is not usable: {error}"
        ))
    };
    RingRecord::parse(value).map_err(unusable)
}

/// Writes to standard output in one piece. A reader that stops early is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Unavailable(
            format!("cannot write the output: {error}"),
        )),
        Ok(()) | Err(_) => Ok(()),
    }
}
