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
use latchd_load::wire::item::Mixture;
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
/// The sizes of the row in which it does, phase by phase.
const SHIFT_BYTES: [usize; 4] = [100, 1_500, 300, 6_000];
/// The name of that row.
const SHIFT: &str = "shift";
const SEED: u64 = 10;
const DEPTH: usize = 64;

/// The rows with a server of their own.
const ROWS: [(&str, Trace, Sizes); 17] = [
    ("zipf 0.8", Trace::Zipf(0.8), Sizes::Equal),
    ("zipf 1.0", Trace::Zipf(1.0), Sizes::Equal),
    ("zipf 1.2", Trace::Zipf(1.2), Sizes::Equal),
    ("one-hit wonders", Trace::OneHitWonders, Sizes::Equal),
    ("scan", Trace::Scan, Sizes::Equal),
    ("loop", Trace::Loop, Sizes::Equal),
    ("mixed 0 %", Trace::Mixed, Sizes::mixed(0)),
    ("mixed 0.1 %", Trace::Mixed, Sizes::mixed(10)),
    ("mixed 0.1 %, small", Trace::Mixed, Sizes::small(10)),
    ("mixed 1 %", Trace::Mixed, Sizes::mixed(100)),
    ("mixed 1 %, small", Trace::Mixed, Sizes::small(100)),
    ("mixed 2 %", Trace::Mixed, Sizes::mixed(200)),
    ("mixed 2 %, small", Trace::Mixed, Sizes::small(200)),
    ("mixed 5 %", Trace::Mixed, Sizes::mixed(500)),
    ("mixed 5 %, small", Trace::Mixed, Sizes::small(500)),
    ("mixed 10 %", Trace::Mixed, Sizes::mixed(1_000)),
    ("mixed 10 %, small", Trace::Mixed, Sizes::small(1_000)),
];

/// The sizes of the values of a row.
#[derive(Clone, Copy, Debug)]
enum Sizes {
    /// [`VALUE_BYTES`].
    Equal,
    /// Of a phase of the shift, in bytes.
    OfPhase(usize),
    Mixed {
        mixture: Mixture,
        /// Without the large values a client has the hits that no choice of large ones lowers.
        stores_large: bool,
    },
}

impl Sizes {
    const fn mixed(large_of_10000: u32) -> Self {
        Self::Mixed {
            mixture: Mixture { large_of_10000 },
            stores_large: true,
        }
    }

    /// The same keys and sizes, but the client sets only the small ones.
    const fn small(large_of_10000: u32) -> Self {
        Self::Mixed {
            mixture: Mixture { large_of_10000 },
            stores_large: false,
        }
    }

    fn requests(self) -> Requests {
        match self {
            Self::Equal => Requests::new(Dialect::Classic, VALUE_BYTES, 0),
            Self::OfPhase(bytes) => Requests::new(Dialect::Classic, bytes, 0),
            Self::Mixed { mixture, .. } => Requests::mixed(mixture),
        }
    }

    /// Whether the client sets this key after a miss.
    fn stores(self, key: u32) -> bool {
        match self {
            Self::Equal | Self::OfPhase(_) => true,
            Self::Mixed {
                mixture,
                stores_large,
            } => stores_large || !mixture.is_large(key),
        }
    }

    /// The size in bytes, if all have the same.
    fn value_bytes(self) -> Option<usize> {
        match self {
            Self::Equal => Some(VALUE_BYTES),
            Self::OfPhase(bytes) => Some(bytes),
            Self::Mixed { .. } => None,
        }
    }
}

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
    /// `None` if the sizes differ.
    value_bytes: Option<usize>,
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
    sizes: Sizes,
    /// Keys that were missing and are to be set.
    missing: VecDeque<u32>,
    /// Gets until they count.
    uncounted: u64,
    gets: u64,
    hits: u64,
    refused: u64,
}

impl ReadThrough {
    fn new(trace: Trace, sizes: Sizes, requests: u32) -> Self {
        let requests = trace.length(requests);
        Self {
            keys: trace.keys(requests, SEED),
            sizes,
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
                let is_wanted = *reply == Reply::Miss && self.sizes.stores(key);
                if is_wanted && !self.missing.contains(&key) {
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

/// The names of all rows. The phases of the shift are one.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(name, ..)| *name).chain([SHIFT])
}

/// How many steps a run of these rows has.
pub(crate) fn steps(peers: &[Peer], is_wanted: &dyn Fn(&str) -> bool) -> usize {
    let steps_of = |name| match name {
        SHIFT => SHIFT_BYTES.len(),
        _ => 1,
    };
    let wanted = names().filter(|name| is_wanted(name));
    peers.len() * wanted.map(steps_of).sum::<usize>()
}

/// Plays the wanted sequences of `requests` gets on every server.
///
/// # Errors
/// A server does not start, or gives a wrong answer.
pub(crate) fn run(
    peers: &[Peer],
    requests: u32,
    is_wanted: &dyn Fn(&str) -> bool,
    cores: &Cores,
    progress: &mut Progress,
) -> Result<HitsReport> {
    let allowance = Allowance {
        memory_mib: MEMORY_MIB,
        ..Allowance::default()
    };
    let mut rows = Vec::new();
    for (name, trace, sizes) in ROWS.into_iter().filter(|(name, ..)| is_wanted(name)) {
        let mut row = Hits {
            trace: name.to_owned(),
            value_bytes: sizes.value_bytes(),
            outcomes: Vec::new(),
        };
        for peer in peers {
            progress.step(&format!("hits, {name}, {}", peer.label));
            let server = Server::start(peer, allowance, cores)?;
            row.outcomes.push(play(&server, trace, sizes, requests)?);
        }
        rows.push(row);
    }
    if is_wanted(SHIFT) {
        rows.extend(shift(peers, requests, allowance, cores, progress)?);
    }
    Ok(HitsReport {
        memory_mib: MEMORY_MIB,
        requests,
        servers: peers.iter().map(|peer| peer.label.clone()).collect(),
        rows,
    })
}

/// Plays the phases of the shift.
fn shift(
    peers: &[Peer],
    requests: u32,
    allowance: Allowance,
    cores: &Cores,
    progress: &mut Progress,
) -> Result<Vec<Hits>> {
    // The phases of the shift follow each other on one server: the rest of the phase before is the
    // point.
    let mut phases: Vec<_> = (1_u32..)
        .zip(SHIFT_BYTES)
        .map(|(number, value_bytes)| Hits {
            trace: format!("shift {number}: {value_bytes} B"),
            value_bytes: Some(value_bytes),
            outcomes: Vec::new(),
        })
        .collect();
    for peer in peers {
        let server = Server::start(peer, allowance, cores)?;
        for ((phase, bytes), row) in (0..).zip(SHIFT_BYTES).zip(&mut phases) {
            progress.step(&format!("hits, {}, {}", row.trace, peer.label));
            let trace = Trace::Shift { phase };
            row.outcomes
                .push(play(&server, trace, Sizes::OfPhase(bytes), requests)?);
        }
    }
    Ok(phases)
}

fn play(server: &Server, trace: Trace, sizes: Sizes, requests: u32) -> Result<Outcome> {
    let mut cache = ReadThrough::new(trace, sizes, requests);
    Load::open(server.address, 1, DEPTH)?
        .acknowledging_at_once()
        .run(
            &sizes.requests(),
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
            "hits: % of gets, each server with -m {}, {} requests each, a fifth of them for mixed sizes; \
             behind it the most that the process took (MiB)",
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
    fn large_values_are_set_where_they_are_stored() {
        for (sizes, is_set) in [(Sizes::mixed(10_000), true), (Sizes::small(10_000), false)] {
            let requests = sizes.requests();
            let mut cache = ReadThrough::new(Trace::Mixed, sizes, 10);
            assert!(cache.judge(&requests, Ask::Get(1), &Reply::Miss));
            assert_eq!(cache.next(0) == Some(Ask::Set(1)), is_set);
        }
    }

    #[test]
    fn hits_count_in_the_second_half() {
        let requests = Requests::new(Dialect::Classic, VALUE_BYTES, 0);
        let mut cache = ReadThrough {
            keys: Box::new([1, 1, 2, 1].into_iter()),
            uncounted: 2,
            ..ReadThrough::new(Trace::Loop, Sizes::Equal, 0)
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
