//! `latchd cluster init`: writes the ring of a new cluster.
//!
//! - I1: A ring is written once. If there is one already, nothing changes.

use std::fmt::Write as _;

use latchd_cluster::election::{
    Answer, Authority, HOLD_MS, PARTITIONS_MAX, Partition, RingRecord, Timing, WAIT_MS,
};
use latchd_cluster::{AuthorityError, Unanswered, random_id};

use super::{open, partition, ring, unanswered};
use crate::flags::AuthorityFlags;
use crate::output::{Failure, print};

/// Create a cluster with these partitions, once
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    #[command(flatten)]
    authority: AuthorityFlags,
    /// Let a primary serve for at most MS milliseconds after a heartbeat
    #[arg(long, value_name = "MS", default_value_t = HOLD_MS)]
    hold: u64,
    /// Let a standby claim a partition after MS milliseconds without a heartbeat
    #[arg(long, value_name = "MS", default_value_t = WAIT_MS)]
    wait: u64,
    /// Name the partitions as clients write them: HOST:PORT, or HOST:PORT=WEIGHT
    ///
    /// The names are those of the ring and never change. A weight is 1 to 65535 [default: 1].
    #[arg(value_name = "PARTITION", required = true, value_parser = partition::parse)]
    partitions: Vec<Partition>,
}

pub(super) fn run(args: &InitArgs) -> Result<(), Failure> {
    let wanted = wanted(args).map_err(Failure::usage)?;
    let (mut authority, cluster, key) = open(&args.authority)?;
    let value = wanted.to_json();
    let answer = authority.swap(&key, None, &value);
    let answer = answer.map_err(|error| {
        if may_be_written(&error) {
            let unknown = "the ring may have been written, see `latchd cluster status`";
            Failure::unavailable(format!("no answer from etcd: {error}; {unknown}"))
        } else {
            unanswered(&error)
        }
    })?;
    let found = match answer {
        Answer::Swapped { .. } => None,
        // Written by a request whose answer was lost.
        Answer::Found(Some(found)) if found.value == value => None,
        Answer::Found(found) => found,
    };
    let Some(found) = found else {
        return print(created(&cluster, &wanted));
    };
    let present = described(&ring(&cluster, &found.value)?);
    Err(Failure::no(format!(
        "cluster {cluster} exists already, unchanged: {present}"
    )))
}

/// Whether an endpoint may have executed the swap.
fn may_be_written(error: &Unanswered) -> bool {
    let is_open = |error: &AuthorityError| {
        matches!(
            error,
            AuthorityError::Late
                | AuthorityError::Malformed(_)
                | AuthorityError::TooLong(_)
                | AuthorityError::Refused { .. }
        )
    };
    error.errors().iter().any(|(_, error)| is_open(error))
}

/// The ring that the options describe, with a new id.
fn wanted(args: &InitArgs) -> Result<RingRecord, String> {
    let names = args.partitions.iter().map(|one| &one.name).enumerate();
    for (at, name) in names {
        let mut before = args.partitions.iter().take(at);
        // Host names are the same in upper and lower case.
        if before.any(|other| other.name.eq_ignore_ascii_case(name)) {
            return Err(format!("{name} is named twice"));
        }
    }
    let count = args.partitions.len();
    if count > PARTITIONS_MAX {
        return Err(format!("{count} partitions; name at most {PARTITIONS_MAX}"));
    }
    let timing =
        Timing::new(args.hold, args.wait).map_err(|error| error.named("--hold", "--wait"))?;
    let id = random_id().map_err(|error| format!("no random numbers: {error}"))?;
    RingRecord::new(id, args.partitions.clone(), timing).map_err(|error| error.to_string())
}

fn created(cluster: &str, ring: &RingRecord) -> String {
    let mut text = format!("created cluster {cluster}: {}\n", described(ring));
    for partition in ring.partitions() {
        let name = &partition.name;
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "serve {name} with --cluster {cluster} --partition {name}"
        );
    }
    text
}

/// The partitions and times in one line.
fn described(ring: &RingRecord) -> String {
    let text = |one: &Partition| match one.weight {
        1 => one.name.clone(),
        weight => format!("{}={weight}", one.name),
    };
    let names: Vec<_> = ring.partitions().iter().map(text).collect();
    let (hold, wait) = (ring.timing().hold_ms(), ring.timing().wait_ms());
    format!("{} (hold {hold} ms, wait {wait} ms)", names.join(", "))
}
