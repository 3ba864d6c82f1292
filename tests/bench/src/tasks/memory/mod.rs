//! The memory of a server: for an item, after sizes changed, at rest, for a connection.
//!
//! Every figure is physical memory as the kernel counts it, since an operator pays for that; a
//! server's own figures are not used. It is read when it has stopped changing, because servers tidy
//! up behind their clients.

mod locked_fill;
pub(crate) mod report;

use std::time::Duration;

use anyhow::{Context, Result};
use latchd_load::filling::{fill, look};
use latchd_load::wire::item::KEY_BYTES;
use latchd_load::wire::{Dialect, Requests};
use latchd_load::workload::{Fill, GetsSets};
use latchd_load::{Load, Meter, Stop};
use rustix::process::{Resource, getrlimit};

use self::locked_fill::LockedFill;
use self::report::{Churn, Idle, Memory, MemoryReport, PerConnection, PerItem};
use crate::progress::Progress;
use crate::server::Server;
use crate::server::cores::Cores;
use crate::server::peer::{Allowance, Kind, Peer};
use crate::server::usage::{rss_bytes, rss_bytes_peak};

/// Values of the measurement of an item.
const VALUE_BYTES: [usize; 3] = [10, 100, 1_000];
/// Values of the churn of sizes, one after the other.
const CHURN_BYTES: [usize; 6] = [50, 500, 5_000, 100, 20_000, 10];
/// The same with a third of the items locked: also values with memory of their own.
const LOCKED_CHURN_BYTES: [usize; 7] = [50, 500, 5_000, 100, 20_000, 300_000, 10];
/// Connections in the churn of sizes, and unanswered requests on each.
const CHURN_CONNECTIONS: usize = 16;
const CHURN_DEPTH: usize = 16;
/// Threads of a server in the churn of sizes and at rest.
const THREADS: [usize; 2] = [1, 4];
/// How many times the limit is written in each size, counting something for the overhead of an item
/// besides its key and value.
const CHURN_TIMES: u64 = 2;
const CHURN_OVERHEAD_BYTES: u64 = 48;
/// Silent connections, if the descriptor limit allows them.
const CONNECTIONS: u64 = 10_000;
/// Values that each connection asks for before it is silent again, 16 at a time.
const USED_VALUE_BYTES: usize = 4_096;
const USED_KEYS: u32 = 100;
const USED_DEPTH: usize = 16;
/// Requests of each connection.
const USED_TIMES: u64 = 32;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) items: u32,
    /// The limit of the churn of sizes.
    pub(crate) churn_mib: u64,
    /// How long memory must not change before it is read.
    pub(crate) still: Duration,
}

/// How many steps a run has.
pub(crate) fn steps(peers: &[Peer]) -> usize {
    let locking = peers
        .iter()
        .filter(|peer| peer.kind == Kind::Latchd)
        .count();
    peers.len() * (VALUE_BYTES.len() + THREADS.len() * 2 + 1) + locking * THREADS.len()
}

/// Measures all servers, one after the other: memory does not depend on the moment.
///
/// # Errors
/// A server does not start, or gives a wrong answer.
pub(crate) fn run(
    peers: &[Peer],
    size: Size,
    cores: &Cores,
    progress: &mut Progress,
) -> Result<MemoryReport> {
    let mut servers = Vec::new();
    for peer in peers {
        let label = peer.label.clone();
        let mut step = |what: String| progress.step(&format!("memory, {label}, {what}"));
        let mut per_item = Vec::new();
        for value_bytes in VALUE_BYTES {
            step(format!("{} items of {value_bytes} B", size.items));
            per_item.push(measure_items(peer, size, value_bytes, cores)?);
        }
        let (mut churn, mut locked_churn, mut idle) = (Vec::new(), Vec::new(), Vec::new());
        for threads in THREADS {
            step(format!("churn of sizes, {threads} threads"));
            churn.push(measure_churn(peer, threads, size, false, cores)?);
            if peer.kind == Kind::Latchd {
                step(format!("churn, a third locked, {threads} threads"));
                locked_churn.push(measure_churn(peer, threads, size, true, cores)?);
            }
            step(format!("at rest, {threads} threads"));
            idle.push(measure_idle(peer, threads, size, cores)?);
        }
        step("connections".to_owned());
        servers.push(Memory {
            per_item,
            churn,
            locked_churn,
            idle,
            connection: measure_connections(peer, size, cores)?,
            label,
        });
    }
    Ok(MemoryReport {
        items: size.items,
        servers,
    })
}

fn measure_items(peer: &Peer, size: Size, value_bytes: usize, cores: &Cores) -> Result<PerItem> {
    let items = size.items;
    let server = Server::start(peer, Allowance::default(), cores)?;
    let before = size.settled(server.pid())?;
    let requests = Requests::new(Dialect::Classic, value_bytes, 0);
    fill(server.address, &requests, items)?;
    let after = size.settled(server.pid())?;
    look(server.address, &requests, items)?;
    let payload_bytes = (KEY_BYTES + value_bytes) as f64;
    Ok(PerItem {
        value_bytes,
        overhead_bytes: (after as f64 - before as f64) / f64::from(items) - payload_bytes,
    })
}

fn measure_churn(
    peer: &Peer,
    threads: usize,
    size: Size,
    is_locked: bool,
    cores: &Cores,
) -> Result<Churn> {
    let limit_mib = size.churn_mib;
    let allowance = Allowance {
        threads,
        memory_mib: limit_mib,
        ..Allowance::default()
    };
    let server = Server::start(peer, allowance, cores)?;
    let idle_bytes = size.settled(server.pid())?;
    let mut load =
        Load::open(server.address, CHURN_CONNECTIONS, CHURN_DEPTH)?.acknowledging_at_once();
    let (mut sets, mut refused) = (0, 0);
    let sizes: &[usize] = if is_locked {
        &LOCKED_CHURN_BYTES
    } else {
        &CHURN_BYTES
    };
    let mut locked_fill = LockedFill::new(CHURN_CONNECTIONS);
    for &value_bytes in sizes {
        let item_bytes = u64::try_from(KEY_BYTES + value_bytes)? + CHURN_OVERHEAD_BYTES;
        let count = CHURN_TIMES * (limit_mib << 20) / item_bytes;
        let first = u32::try_from(sets)?;
        sets += count;
        let keys = first..u32::try_from(sets)?;
        let requests = Requests::new(Dialect::Classic, value_bytes, 0);
        let mut meter = Meter::new();
        let mut fill = Fill::past_the_limit(keys.clone());
        let done = if is_locked {
            // A third of the memory, over all connections.
            let count = (limit_mib << 20) / 3 / item_bytes;
            locked_fill.go_on(keys, usize::try_from(count)?);
            load.run(&requests, &mut locked_fill, Stop::AtTheEnd, &mut meter)
        } else {
            load.run(&requests, &mut fill, Stop::AtTheEnd, &mut meter)
        };
        done.with_context(|| format!("{}, values of {value_bytes} B", peer.label))?;
        refused += fill.refused;
    }
    refused += locked_fill.refused;
    if !is_locked {
        drop(load);
    }
    let end_bytes = size.settled(server.pid())?;
    Ok(Churn {
        threads,
        limit_mib,
        idle_bytes,
        end_bytes,
        peak_bytes: rss_bytes_peak(server.pid())?,
        ratio: end_bytes as f64 / ((limit_mib << 20) + idle_bytes) as f64,
        sets,
        refused,
    })
}

fn measure_idle(peer: &Peer, threads: usize, size: Size, cores: &Cores) -> Result<Idle> {
    let allowance = Allowance {
        threads,
        memory_mib: 64,
        ..Allowance::default()
    };
    let server = Server::start(peer, allowance, cores)?;
    Ok(Idle {
        threads,
        rss_bytes: size.settled(server.pid())?,
    })
}

fn measure_connections(peer: &Peer, size: Size, cores: &Cores) -> Result<PerConnection> {
    // A few descriptors are for the program itself and for the server's own.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = CONNECTIONS.min(descriptors.saturating_sub(200));
    let connections = usize::try_from(count)?;
    let allowance = Allowance {
        connections: connections + 100,
        ..Allowance::default()
    };
    let server = Server::start(peer, allowance, cores)?;
    let pid = server.pid();
    let requests = Requests::new(Dialect::Classic, USED_VALUE_BYTES, 0);
    fill(server.address, &requests, USED_KEYS)?;
    let use_them = |load: &mut Load, connections: u64| {
        let mut gets = GetsSets::gets(1, USED_KEYS);
        let stop = Stop::Requests(connections * USED_TIMES);
        load.run(&requests, &mut gets, stop, &mut Meter::new())
    };
    // Memory that a server has once, and not for each connection, is there before the first look.
    use_them(&mut Load::open(server.address, 50, USED_DEPTH)?, 50)?;
    let without = size.settled(pid)?;
    let mut load = Load::open(server.address, connections, USED_DEPTH)?;
    let before = size.settled(pid)?;
    use_them(&mut load, count)?;
    let after = size.settled(pid)?;
    let each = |bytes: u64| (bytes as f64 - without as f64) / count as f64;
    Ok(PerConnection {
        connections: count,
        before_use_bytes: each(before),
        after_use_bytes: each(after),
    })
}

impl Size {
    /// The memory of a process, when it is still; or after a hundred looks.
    fn settled(self, pid: u32) -> Result<u64> {
        /// Less than this is noise.
        const STEP_BYTES: u64 = 64 << 10;
        const LOOKS: u32 = 10;

        let mut since = rss_bytes(pid)?;
        let mut looks = 0;
        for _ in 0..100 {
            std::thread::sleep(self.still / LOOKS);
            let now = rss_bytes(pid)?;
            if now.abs_diff(since) < STEP_BYTES {
                looks += 1;
            } else {
                (since, looks) = (now, 0);
            }
            if looks == LOOKS {
                return Ok(now);
            }
        }
        Ok(since)
    }
}
