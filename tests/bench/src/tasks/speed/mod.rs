//! Runs the rows of a speed table: all servers of a row at once, measured in turn, round after round.
//!
//! - In every round each server is measured, and each round begins with another one.
//! - A server that is not being measured has nothing to do.
//! - Counts that slow the server down (system calls) are taken apart from the timed rounds.

pub(crate) mod rows;
pub(crate) mod standing;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use latchd_load::filling::fill;
use latchd_load::wire::{Ask, Reply, Requests};
use latchd_load::workload::{GetsSets, Locks};
use latchd_load::{Load, Meter, Stop, Workload};
use serde::Serialize;

use crate::load::churn;
use crate::progress::Progress;
use crate::server::Server;
use crate::server::cores::Cores;
use crate::server::others;
use crate::server::peer::{Allowance, Peer};
use crate::server::perf::Count;
use crate::server::usage::{Usage, rss_bytes};
use crate::tasks::speed::rows::{CONNECTIONS, Mix, Row, Shape};
use crate::tasks::speed::standing::{Standing, Standings, Whose};

/// The random order of keys, the same for every server.
const SEED: u64 = 12;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Of one measurement.
    pub(crate) span: Duration,
    pub(crate) rounds: usize,
}

impl Plan {
    /// Before the first round, and for counts rather than times.
    fn short(&self) -> Duration {
        (self.span / 4).clamp(Duration::from_millis(100), Duration::from_secs(1))
    }
}

/// The figures of a server in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) operations_per_second: f64,
    /// Processor time of the server.
    pub(crate) cpu_us_per_operation: f64,
    /// Processor time of the load.
    pub(crate) load_cpu_us_per_operation: f64,
    /// Processors that the server kept busy.
    pub(crate) server_busy: f64,
    /// Processors that the load kept busy, at most 1.
    pub(crate) load_busy: f64,
    /// How much of the time a thread of the server was ready and had no processor.
    pub(crate) server_waited: f64,
    /// The same for the load.
    pub(crate) load_waited: f64,
    /// Processors that were kept busy by neither.
    pub(crate) others_busy: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p99_9_us: f64,
}

/// A server and its requests in one row.
struct Contestant {
    /// Which of the servers of the row.
    server: usize,
    whose: Whose,
    mix: Mix,
    asks: Asks,
    /// Open connections, if the row keeps them open.
    load: Option<Load>,
    /// Connections on which nothing is sent.
    _idle: Option<Load>,
    samples: Vec<Sample>,
    syscalls_per_operation: Option<f64>,
}

/// One of the workloads.
#[derive(Debug)]
enum Asks {
    GetsSets(GetsSets),
    Locks(Locks),
}

impl Workload for Asks {
    fn next(&mut self, connection: usize) -> Option<Ask> {
        match self {
            Self::GetsSets(asks) => asks.next(connection),
            Self::Locks(asks) => asks.next(connection),
        }
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        match self {
            Self::GetsSets(asks) => asks.judge(requests, ask, reply),
            Self::Locks(asks) => asks.judge(requests, ask, reply),
        }
    }
}

/// How many steps a run has.
pub(crate) fn steps(rows: &[Row], peers: &[Peer], plan: Plan) -> usize {
    let contestants = |row: &Row| {
        let servers = peers.iter().filter(|peer| row.admits(peer)).count();
        servers * row.mixes.len()
    };
    rows.iter().map(contestants).sum::<usize>() * (plan.rounds + 1)
}

/// Measures one row. `no_perf` is the reason why system calls cannot be counted, once there is one.
///
/// # Errors
/// A server does not start, or gives a wrong answer.
pub(crate) fn run(
    row: &Row,
    peers: &[Peer],
    cores: &Cores,
    plan: Plan,
    progress: &mut Progress,
    no_perf: &mut Option<String>,
) -> Result<Standings> {
    let requests = Requests::new(row.dialect, row.value_bytes, 0);
    let mut servers = Vec::new();
    let mut contestants = Vec::new();
    let admitted = peers
        .iter()
        .enumerate()
        .filter(|(_, peer)| row.admits(peer));
    for (place, peer) in admitted {
        let allowance = Allowance {
            threads: row.threads,
            connections: 4096,
            ..Allowance::default()
        };
        let server = Server::start(peer, allowance, cores)?;
        fill(server.address, &requests, row.keys)
            .with_context(|| format!("{}, filling", peer.label))?;
        for mix in row.mixes {
            let contestant =
                Contestant::new(row, *mix, servers.len(), Whose::new(place, peer), &server)?;
            contestants.push(contestant);
        }
        servers.push(server);
    }
    for round in 0..=plan.rounds {
        for turn in 0..contestants.len() {
            let place = (turn + round) % contestants.len();
            let contestant = &mut contestants[place];
            let server = &mut servers[contestant.server];
            let name = format!(
                "{}, {}, {}",
                row.name,
                server.peer.label,
                contestant.mix.name()
            );
            let step = if round == 0 {
                progress.step(&format!("{name}, warming up"));
                contestant.warm_up(row, server, &requests, plan, no_perf)
            } else {
                progress.step(&format!("{name}, round {round}"));
                let sample = contestant.measure(row, server, &requests, plan.span);
                sample.map(|sample| contestant.samples.push(sample))
            };
            // Why a server ended says more than that it hung up.
            step.map_err(|error| server.check().err().unwrap_or(error))
                .context(name)?;
        }
    }
    let mut standings = Vec::new();
    for contestant in contestants {
        let server = &servers[contestant.server];
        let mut label = server.peer.label.clone();
        if row.mixes.len() > 1 {
            label = format!("{label}, {}", contestant.mix.name());
        }
        standings.push(Standing::new(
            label,
            contestant.whose,
            contestant.mix,
            contestant.samples,
            contestant.syscalls_per_operation,
            rss_bytes(server.pid())?,
        ));
    }
    Ok(Standings::new(row, cores, standings))
}

impl Contestant {
    fn new(row: &Row, mix: Mix, server: usize, whose: Whose, runs: &Server) -> Result<Self> {
        let (load, idle) = match row.shape {
            Shape::Open {
                connections,
                depth,
                idle,
            } => (
                Some(Load::open(runs.address, connections, depth)?),
                Some(Load::open(runs.address, idle, 1)?),
            ),
            Shape::Churn { .. } => (None, None),
        };
        Ok(Self {
            server,
            whose,
            mix,
            asks: match mix {
                Mix::GetsSets => Asks::GetsSets(GetsSets::new(SEED, row.keys)),
                Mix::Gets => Asks::GetsSets(GetsSets::gets(SEED, row.keys)),
                Mix::Locks => Asks::Locks(Locks::new(SEED, 0..row.keys, CONNECTIONS)),
            },
            load,
            _idle: idle,
            samples: Vec::new(),
            syscalls_per_operation: None,
        })
    }

    /// Asks until `stop`.
    fn ask(
        &mut self,
        row: &Row,
        server: &Server,
        requests: &Requests,
        stop: Stop,
    ) -> Result<Meter> {
        let mut meter = Meter::new();
        match (&mut self.load, row.shape) {
            (Some(load), Shape::Open { .. }) => {
                load.run(requests, &mut self.asks, stop, &mut meter)?;
            }
            (None, Shape::Churn { at_once }) => {
                let asks = &mut self.asks;
                churn::run(server.address, at_once, requests, asks, stop, &mut meter)?;
            }
            (Some(_), Shape::Churn { .. }) | (None, Shape::Open { .. }) => {
                unreachable!("connections are kept open if and only if the row says so")
            }
        }
        Ok(meter)
    }

    /// Lets caches fill, then counts system calls.
    fn warm_up(
        &mut self,
        row: &Row,
        server: &Server,
        requests: &Requests,
        plan: Plan,
        no_perf: &mut Option<String>,
    ) -> Result<()> {
        self.ask(row, server, requests, Stop::After(plan.short()))?;
        if no_perf.is_some() {
            return Ok(());
        }
        let count = match Count::start(server.pid()) {
            Ok(count) => count,
            Err(error) => {
                *no_perf = Some(format!("{error:#}"));
                return Ok(());
            }
        };
        let meter = self.ask(row, server, requests, Stop::After(plan.short()))?;
        match count.stop() {
            Ok(calls) => {
                self.syscalls_per_operation = Some(calls as f64 / meter.operations as f64);
            }
            Err(error) => *no_perf = Some(format!("{error:#}")),
        }
        Ok(())
    }

    /// One round.
    fn measure(
        &mut self,
        row: &Row,
        server: &Server,
        requests: &Requests,
        span: Duration,
    ) -> Result<Sample> {
        let pid = server.pid();
        let others_before = others::cpu_ns()?;
        let (server_before, load_before) = (Usage::of_server(pid)?, Usage::of_this_thread()?);
        let started = Instant::now();
        let meter = self.ask(row, server, requests, Stop::After(span))?;
        let seconds = started.elapsed().as_secs_f64();
        let used = Usage::of_server(pid)? - server_before;
        let load_used = Usage::of_this_thread()? - load_before;
        let others_ns = others::cpu_ns()?.saturating_sub(others_before);
        let operations = meter.operations as f64;
        let percentiles = meter.latencies.percentiles();
        Ok(Sample {
            operations_per_second: operations / seconds,
            cpu_us_per_operation: used.cpu_ns as f64 / 1e3 / operations,
            load_cpu_us_per_operation: load_used.cpu_ns as f64 / 1e3 / operations,
            server_busy: used.cpu_ns as f64 / 1e9 / seconds,
            load_busy: load_used.cpu_ns as f64 / 1e9 / seconds,
            server_waited: used.waited_ns as f64 / 1e9 / seconds,
            load_waited: load_used.waited_ns as f64 / 1e9 / seconds,
            others_busy: others_ns as f64 / 1e9 / seconds,
            p50_us: percentiles.p50_us,
            p99_us: percentiles.p99_us,
            p99_9_us: percentiles.p99_9_us,
        })
    }
}
