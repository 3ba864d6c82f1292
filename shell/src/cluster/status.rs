//! `latchd cluster status`: the primaries of a cluster.
//!
//! A record does not say when it was written. So the records are read again until each primary has sent a heartbeat,
//! for at most [`WATCH`].

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use latchd_cluster::InTurn;
use latchd_cluster::election::{Found, RingRecord, partition_key};

use super::view::{Row, State, json, table};
use super::{hold, open, ring, unanswered};
use crate::flags::AuthorityFlags;
use crate::output::{Failure, print};

/// The time without a heartbeat after which a partition counts as one without a primary. A primary sends one every
/// 400 ms and tries again as soon, so this is three lost ones.
const WATCH: Duration = Duration::from_millis(1600);

/// The time between two reads: the grain of an age.
const PAUSE: Duration = Duration::from_millis(100);

/// Show the primary of each partition; exit code 1 if one has none
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    authority: AuthorityFlags,
    /// Write one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let (mut authority, cluster, key) = open(&args.authority)?;
    let (ring, mut rows) = watch(&mut authority, &cluster, &key)?;
    let primaries: Vec<_> = rows.iter().map(Row::primary).collect();
    let holds = hold::ask(&primaries);
    for (row, hold_left_ms) in rows.iter_mut().zip(holds) {
        row.hold_left_ms = hold_left_ms;
    }
    let text = if args.json {
        json(&cluster, &ring, &rows)
    } else {
        table(&cluster, &rows)
    };
    print(&text)?;
    let lacking = rows.iter().filter(|row| !row.state.is_primary());
    let names: Vec<_> = lacking.map(|row| row.partition.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Failure::no(format!("no primary: {}", names.join(", "))))
}

/// A record, and the reads that saw it.
struct Seen {
    found: Found,
    /// The last read that saw an older one; `None` until it changes.
    after: Option<Instant>,
}

/// Reads the ring once, and the records of its partitions until each has changed.
fn watch(
    authority: &mut InTurn,
    cluster: &str,
    key: &str,
) -> Result<(RingRecord, Vec<Row>), Failure> {
    let prefix = key.strip_suffix("ring").unwrap_or(key);
    let mut read_at = Instant::now();
    let mut records = list(authority, prefix)?;
    let Some(found) = records.remove(key) else {
        let why = format!("there is no cluster {cluster}; run `latchd cluster init`");
        return Err(Failure::unavailable(why));
    };
    let ring = ring(cluster, &found.value)?;
    let begun = read_at;
    let fresh = |found| Seen { found, after: None };
    let mut seen: BTreeMap<_, _> = records
        .into_iter()
        .map(|(key, found)| (key, fresh(found)))
        .collect();
    loop {
        let rows = rows(cluster, &ring, &seen, begun);
        let is_watched = |row: &Row| row.state == State::Silent;
        if begun.elapsed() >= WATCH || !rows.iter().any(is_watched) {
            return Ok((ring, rows));
        }
        thread::sleep(PAUSE);
        let (before, now) = (read_at, Instant::now());
        read_at = now;
        let mut records = list(authority, prefix)?;
        seen.retain(|key, _| records.contains_key(key));
        for (key, seen) in &mut seen {
            if let Some(found) = records.remove(key).filter(|found| *found != seen.found) {
                *seen = Seen {
                    found,
                    after: Some(before),
                };
            }
        }
        let new = |found| Seen {
            found,
            after: Some(before),
        };
        seen.extend(records.into_iter().map(|(key, found)| (key, new(found))));
    }
}

/// The records below a key.
fn list(authority: &mut InTurn, prefix: &str) -> Result<BTreeMap<String, Found>, Failure> {
    let found = authority.list(prefix);
    Ok(found
        .map_err(|error| unanswered(&error))?
        .into_iter()
        .collect())
}

fn rows(
    cluster: &str,
    ring: &RingRecord,
    seen: &BTreeMap<String, Seen>,
    begun: Instant,
) -> Vec<Row> {
    let row = |partition: &_| Row::new(partition, None, None, begun.elapsed());
    let rows = ring.partitions().iter().map(|partition| {
        let key = partition_key(cluster, &partition.name).unwrap_or_default();
        match seen.get(&key) {
            None => row(partition),
            Some(seen) => {
                let age = seen.after.map(|after| after.elapsed());
                Row::new(partition, Some(&seen.found.value), age, begun.elapsed())
            }
        }
    });
    rows.collect()
}
