//! How often a get hits, when every server has the same memory: read through, as a cache is used.
//!
//! A client gets keys, and sets the missing ones. One connection sends all requests, so every
//! server gets the same ones in the same order, except for the sets that its own misses cause. Hits
//! are counted in the second half, when the store is full. Beside each stands the memory of the
//! process, since a limit that is not kept is an advantage.

mod trace;

use std::collections::VecDeque;
use std::fmt;

use anyhow::{Context, Result};
use latchd_load::table::{Table, mib};
use latchd_load::wire::{Ask, Dialect, Reply, Requests};
use latchd_load::workload::is_out_of_memory;
use latchd_load::{Load, Meter, Stop, Workload};
use serde::Serialize;

use crate::figures::plot::{Bar, Chart, Group};
use crate::figures::statistics::share;
use crate::progress::Progress;
use crate::server::Server;
use crate::server::cores::Cores;
use crate::server::peer::{Allowance, Peer};
use crate::server::usage::rss_bytes_peak;
use crate::tasks::hits::trace::Trace;

/// The limit of every server.
const MEMORY_MIB: u64 = 64;
/// The size of values, where it does not change.
const VALUE_BYTES: usize = 200;
/// The sizes where it does.
const SHIFT_BYTES: [usize; 4] = [100, 1_500, 300, 6_000];
const SEED: u64 = 10;
const DEPTH: usize = 64;

/// Sequences of one size of value.
const TRACES: [(&str, Trace); 6] = [
    ("zipf 0.8", Trace::Zipf(0.8)),
    ("zipf 1.0", Trace::Zipf(1.0)),
    ("zipf 1.2", Trace::Zipf(1.2)),
    ("one-hit wonders", Trace::OneHitWonders),
    ("scan", Trace::Scan),
    ("loop", Trace::Loop),
];

/// Of all servers.
#[derive(Debug, Serialize)]
pub(crate) struct HitsReport {
    memory_mib: u64,
    requests: u32,
    servers: Vec<String>,
    rows: Vec<Hits>,
}

/// Of one sequence.
#[derive(Debug, Serialize)]
struct Hits {
    trace: String,
    value_bytes: usize,
    /// One a server.
    outcomes: Vec<Outcome>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Outcome {
    /// Of the gets of the second half.
    hit_ratio: f64,
    /// Sets that were refused, in both halves.
    refused: u64,
    /// The most that the process ever took.
    peak_bytes: u64,
}

/// Gets keys in turn, and sets those that are missing.
struct ReadThrough {
    keys: Box<dyn Iterator<Item = u32>>,
    /// Keys that were missing and are to be set.
    missing: VecDeque<u32>,
    /// Gets until they count.
    uncounted: u64,
    gets: u64,
    hits: u64,
    refused: u64,
}

impl ReadThrough {
    fn new(trace: Trace, requests: u32) -> Self {
        Self {
            keys: trace.keys(requests, SEED),
            missing: VecDeque::new(),
            uncounted: u64::from(requests / 2),
            gets: 0,
            hits: 0,
            refused: 0,
        }
    }
}

impl Workload for ReadThrough {
    fn next(&mut self, _connection: usize) -> Option<Ask> {
        match self.missing.pop_front() {
            Some(key) => Some(Ask::Set(key)),
            None => self.keys.next().map(Ask::Get),
        }
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        match ask {
            Ask::Get(key) => {
                let is_hit = requests.is_answered(ask, reply);
                if self.uncounted > 0 {
                    self.uncounted -= 1;
                } else {
                    self.gets += 1;
                    self.hits += u64::from(is_hit);
                }
                if *reply == Reply::Miss && !self.missing.contains(&key) {
                    self.missing.push_back(key);
                }
                is_hit || *reply == Reply::Miss
            }
            Ask::Set(_) => {
                let is_refused = is_out_of_memory(reply);
                self.refused += u64::from(is_refused);
                is_refused || requests.is_answered(ask, reply)
            }
            Ask::Lock(_) | Ask::Unlock(_) => unreachable!("no locks are asked for"),
        }
    }
}

/// How many steps a run has.
pub(crate) fn steps(peers: &[Peer]) -> usize {
    peers.len() * (TRACES.len() + SHIFT_BYTES.len())
}

/// Plays every sequence of `requests` gets on every server.
///
/// # Errors
/// A server does not start, or gives a wrong answer.
pub(crate) fn run(
    peers: &[Peer],
    requests: u32,
    cores: &Cores,
    progress: &mut Progress,
) -> Result<HitsReport> {
    let allowance = Allowance {
        memory_mib: MEMORY_MIB,
        ..Allowance::default()
    };
    let mut rows = Vec::new();
    for (name, trace) in TRACES {
        let mut row = Hits {
            trace: name.to_owned(),
            value_bytes: VALUE_BYTES,
            outcomes: Vec::new(),
        };
        for peer in peers {
            progress.step(&format!("hits, {name}, {}", peer.label));
            let server = Server::start(peer, allowance, cores)?;
            row.outcomes
                .push(play(&server, trace, VALUE_BYTES, requests)?);
        }
        rows.push(row);
    }
    // The phases of the shift follow each other on one server: the rest of the phase before is the
    // point.
    let mut phases: Vec<_> = (1_u32..)
        .zip(SHIFT_BYTES)
        .map(|(number, value_bytes)| Hits {
            trace: format!("shift {number}: {value_bytes} B"),
            value_bytes,
            outcomes: Vec::new(),
        })
        .collect();
    for peer in peers {
        let server = Server::start(peer, allowance, cores)?;
        for (phase, row) in (0..).zip(&mut phases) {
            progress.step(&format!("hits, {}, {}", row.trace, peer.label));
            let trace = Trace::Shift { phase };
            row.outcomes
                .push(play(&server, trace, row.value_bytes, requests)?);
        }
    }
    rows.extend(phases);
    Ok(HitsReport {
        memory_mib: MEMORY_MIB,
        requests,
        servers: peers.iter().map(|peer| peer.label.clone()).collect(),
        rows,
    })
}

fn play(server: &Server, trace: Trace, value_bytes: usize, requests: u32) -> Result<Outcome> {
    let mut cache = ReadThrough::new(trace, requests);
    Load::open(server.address, 1, DEPTH)?
        .acknowledging_at_once()
        .run(
            &Requests::new(Dialect::Classic, value_bytes, 0),
            &mut cache,
            Stop::AtTheEnd,
            &mut Meter::new(),
        )
        .with_context(|| format!("{}, {trace:?}", server.peer.label))?;
    Ok(Outcome {
        hit_ratio: share(cache.hits, cache.gets),
        refused: cache.refused,
        peak_bytes: rss_bytes_peak(server.pid())?,
    })
}

impl HitsReport {
    pub(crate) fn charts(&self) -> Vec<Chart> {
        let group = |row: &Hits| Group {
            label: row.trace.clone(),
            bars: (row.outcomes.iter())
                .map(|outcome| Some(Bar::exactly(outcome.hit_ratio * 100.0)))
                .collect(),
        };
        vec![Chart {
            title: format!(
                "Hits: % of gets with {} MiB (more is better)",
                self.memory_mib
            ),
            series: self.servers.clone(),
            groups: self.rows.iter().map(group).collect(),
            ..Chart::default()
        }]
    }
}

impl fmt::Display for HitsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "hits: % of gets, each server with -m {}, {} requests each; behind it the most that the \
             process took (MiB)",
            self.memory_mib, self.requests
        )?;
        let mut heading = vec![""];
        for server in &self.servers {
            heading.extend([server.as_str(), "took"]);
        }
        let mut table = Table::new(heading);
        for row in &self.rows {
            let mut cells = vec![row.trace.clone()];
            for outcome in &row.outcomes {
                let refused = match outcome.refused {
                    0 => String::new(),
                    refused => format!(" ({refused} sets refused)"),
                };
                cells.push(format!("{:.1}{refused}", outcome.hit_ratio * 100.0));
                cells.push(mib(outcome.peak_bytes));
            }
            table.row(cells);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_count_in_the_second_half() {
        let requests = Requests::new(Dialect::Classic, VALUE_BYTES, 0);
        let mut cache = ReadThrough {
            keys: Box::new([1, 1, 2, 1].into_iter()),
            uncounted: 2,
            ..ReadThrough::new(Trace::Loop, 0)
        };
        let mut value = b"00000001".to_vec();
        value.extend(latchd_load::wire::item::Values::new(VALUE_BYTES).rest());
        for _ in 0..2 {
            assert_eq!(cache.next(0), Some(Ask::Get(1)));
        }
        for _ in 0..2 {
            assert!(cache.judge(&requests, Ask::Get(1), &Reply::Miss));
        }
        assert_eq!(cache.next(0), Some(Ask::Set(1)));
        assert_eq!(
            cache.next(0),
            Some(Ask::Get(2)),
            "the second miss is the same"
        );
        assert!(cache.judge(&requests, Ask::Set(1), &Reply::Stored));
        assert!(cache.judge(&requests, Ask::Get(2), &Reply::Miss));
        assert_eq!(cache.next(0), Some(Ask::Set(2)));
        assert_eq!(cache.next(0), Some(Ask::Get(1)));
        assert!(cache.judge(&requests, Ask::Get(1), &Reply::Hit(&value)));
        assert!(
            !cache.judge(&requests, Ask::Get(2), &Reply::Hit(&value)),
            "a wrong value"
        );
        assert_eq!((cache.gets, cache.hits), (3, 1));
    }
}
