//! `latchd cluster init` and `latchd cluster status`: the records of a cluster in etcd.
//!
//! Exit codes: those of all tasks (`exit.rs`). 1 is: the cluster exists already, or a partition has no primary.

mod hold;
mod init;
mod partition;
mod status;
mod view;

use std::process::ExitCode;

use latchd_cluster::election::{RecordError, RingRecord, ring_key};
use latchd_cluster::{Etcd, InTurn, Unanswered};

use self::init::InitArgs;
use self::status::StatusArgs;

use crate::flags::AuthorityFlags;
use crate::output::{Failure, concluded};

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

/// Runs the program. Returns the exit code.
pub(crate) fn run(args: &ClusterArgs) -> ExitCode {
    let done = match &args.task {
        ClusterTask::Init(args) => init::run(args),
        ClusterTask::Status(args) => status::run(args),
    };
    concluded(done).into()
}

/// Opens the authority; returns it, the name of the cluster and the key of its ring.
fn open(flags: &AuthorityFlags) -> Result<(InTurn, String, String), Failure> {
    let missing = || "no etcd is named; add --authority URL and --cluster NAME".to_owned();
    let options = flags
        .options()
        .and_then(|options| options.ok_or_else(missing));
    let (options, cluster) = options.map_err(Failure::usage)?;
    let etcd = Etcd::new(&options).map_err(|error| Failure::system(error.to_string()))?;
    let key = ring_key(&cluster).ok_or_else(|| Failure::usage("--cluster: no name"))?;
    Ok((etcd.in_turn(), cluster, key))
}

/// Reads the ring of a cluster.
fn ring(cluster: &str, value: &str) -> Result<RingRecord, Failure> {
    let unusable = |error: RecordError| {
        Failure::unavailable(format!(
            "the ring of cluster {cluster} is not usable: {error}"
        ))
    };
    RingRecord::parse(value).map_err(unusable)
}

/// The failure of a request to all endpoints.
fn unanswered(error: &Unanswered) -> Failure {
    Failure::unavailable(format!("no answer from etcd: {error}"))
}
