//! `latchd cluster init` and `latchd cluster status`: the records of a cluster in etcd.
//!
//! Exit codes: those of all tasks (`exit.rs`). 1 is: the cluster exists already, or a partition has no primary.

mod hold;
mod init;
mod partition;
mod status;
mod view;

use std::process::ExitCode;

use latchd_cluster::election::{RecordError, RingRecord};
use latchd_cluster::{Etcd, InTurn, Unanswered};

use self::init::InitArgs;
use self::status::StatusArgs;

use crate::exit;
use crate::flags::AuthorityFlags;
use crate::output::{self, complain};

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
  69  etcd is not reachable, refuses the login, or has no usable record
  71  a file of the options cannot be read
  74  the output cannot be written";

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
    /// A file of the options is not usable.
    System(String),
    /// The output cannot be written, which is reported.
    Unwritten(u8),
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
        Err(Failure::No(why)) => (why, exit::NO),
        Err(Failure::Option(why)) => (why, exit::USAGE),
        Err(Failure::Unavailable(why)) => (why, exit::UNAVAILABLE),
        Err(Failure::System(why)) => (why, exit::OS_ERROR),
        Err(Failure::Unwritten(code)) => return ExitCode::from(code),
    };
    complain(&why);
    ExitCode::from(code)
}

/// Opens the authority; returns it and the name of the cluster.
fn open(flags: &AuthorityFlags) -> Result<(InTurn, String), Failure> {
    let missing = || "no etcd is named; add --authority URL and --cluster NAME".to_owned();
    let options = flags
        .options()
        .and_then(|options| options.ok_or_else(missing));
    let (options, cluster) = options.map_err(Failure::Option)?;
    let etcd = Etcd::new(&options).map_err(|error| Failure::System(error.to_string()))?;
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

/// Writes to standard output.
fn print(text: &str) -> Result<(), Failure> {
    output::print(text).map_err(Failure::Unwritten)
}
