//! The delays of an innocent client while others fill the store, make it evict, or empty it, or
//! while all items expire.
//!
//! One thread each for the server and the load, so that nothing can be hidden on another processor.

pub(crate) mod report;

use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use latchd_load::filling::{fill, look};
use latchd_load::wire::{Ask, Dialect, Reply, Requests};
use latchd_load::workload::Fill;
use latchd_load::{Load, Meter, Stop, Workload};

use self::report::{Pauses, PausesReport, Phase};
use crate::load::innocent::{Beside, Innocent, VALUE_BYTES};
use crate::progress::Progress;
use crate::server::Server;
use crate::server::control::{Answer, Control, Question, stat};
use crate::server::cores::Cores;
use crate::server::peer::{Allowance, Peer};
use crate::server::usage::Usage;

/// Requests that the others have under way: few, since to queue behind them is no pause.
const DEPTH: usize = 16;
/// The least and the most bytes of an item in any server, to choose limits by.
const ITEM_BYTES: Range<u64> = 160..400;

/// The phases, in this order.
const PHASES: [&str; 6] = ["alone", "fill", "flush_all", "expiry", "evict", "evict hot"];

/// The run does not wait for a server that stores fewer items a second beside the innocent client.
const SETS_A_SECOND_MIN: u32 = 20_000;
/// But every server is waited for so long.
const FILLING_MIN: Duration = Duration::from_secs(10);
/// If another client gets no answer for this long beside the innocent client, it goes on without
/// it: there are servers that answer one connection as long as that asks (yrmcds with one worker).
const STARVED_AFTER: Duration = Duration::from_secs(2);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// In each phase.
    pub(crate) items: u32,
    /// How long the client is watched by default.
    pub(crate) span: Duration,
    /// How long expired items may stay before we look no longer.
    pub(crate) patience: Duration,
}

/// How many steps a run has.
pub(crate) fn steps(peers: &[Peer]) -> usize {
    peers.len() * PHASES.len()
}

/// Measures all servers, one after the other.
///
/// # Errors
/// A server does not start, or gives a wrong answer.
pub(crate) fn run(
    peers: &[Peer],
    size: Size,
    cores: &Cores,
    progress: &mut Progress,
) -> Result<PausesReport> {
    let mut servers = Vec::new();
    for peer in peers {
        let label = peer.label.clone();
        let mut step = |name: &str| progress.step(&format!("pauses, {name}, {label}"));
        let phases = measure(peer, size, cores, &mut step);
        servers.push(Pauses {
            phases: phases.with_context(|| label.clone())?,
            label,
        });
    }
    Ok(PausesReport {
        items: size.items,
        servers,
    })
}

fn measure(
    peer: &Peer,
    size: Size,
    cores: &Cores,
    step: &mut impl FnMut(&str),
) -> Result<Vec<Phase>> {
    let Size { items, span, .. } = size;
    let [alone, filling, flush, expiry, evict, evict_hot] = PHASES;
    let mut phases = Vec::new();

    let roomy = mebibytes(items, ITEM_BYTES.end);
    let mut stage = Stage::start(peer, roomy, cores)?;
    step(alone);
    phases.push(stage.phase(alone, |stage| {
        stage.idle_until(Instant::now() + span)?;
        Ok(String::new())
    })?);
    step(filling);
    phases.push(stage.phase(filling, |stage| stage.store(Fill::new(0..items)))?);
    ensure!(stage.misses == 0, "an item is gone without any reason");
    let filled_in = phases.last().map_or(0.0, |phase| phase.seconds);
    step(flush);
    phases.push(stage.phase(flush, |stage| stage.flush(span))?);
    step(expiry);
    phases.push(stage.expire(expiry, size, filled_in)?);
    drop(stage);

    // At most half of the stored values fit, so from the second half on every set evicts.
    let tight = mebibytes(items / 2, ITEM_BYTES.start).max(16);
    let mut stage = Stage::start(peer, tight, cores)?;
    step(evict);
    let rounds = |round: u32| Fill::past_the_limit(round * items..(round + 1) * items);
    stage.load.run(
        &requests(0),
        &mut rounds(0),
        Stop::AtTheEnd,
        &mut Meter::new(),
    )?;
    phases.push(stage.phase(evict, |stage| stage.store(rounds(1)))?);
    step(evict_hot);
    // Twice, since some stores take note of the second time only.
    for _ in 0..2 {
        let mut walk = Walk(items..2 * items);
        stage
            .load
            .run(&requests(0), &mut walk, Stop::AtTheEnd, &mut Meter::new())?;
    }
    phases.push(stage.phase(evict_hot, |stage| stage.store(rounds(2)))?);
    Ok(phases)
}

/// A server, its innocent client, and a connection of the others.
struct Stage {
    server: Server,
    innocent: Innocent,
    load: Load,
    /// Of the innocent client, in the phase that was measured last.
    misses: u64,
}

impl Stage {
    fn start(peer: &Peer, memory_mib: u64, cores: &Cores) -> Result<Self> {
        let allowance = Allowance {
            memory_mib,
            ..Allowance::default()
        };
        let server = Server::start(peer, allowance, cores)?;
        Ok(Self {
            innocent: Innocent::new(server.address)?,
            load: Load::open(server.address, 1, DEPTH)?.acknowledging_at_once(),
            server,
            misses: 0,
        })
    }

    /// Measures the delays of the innocent client during `what`, which returns the note for the
    /// report.
    fn phase(
        &mut self,
        name: &'static str,
        what: impl FnOnce(&mut Self) -> Result<String>,
    ) -> Result<Phase> {
        let pid = self.server.pid();
        self.innocent.settle()?;
        self.innocent.forget();
        let before = (Usage::of_server(pid)?, Usage::of_this_thread()?);
        let started = Instant::now();
        let note = what(self).with_context(|| name.to_owned())?;
        self.innocent.settle()?;
        let seconds = started.elapsed().as_secs_f64();
        let server = Usage::of_server(pid)? - before.0;
        let load = Usage::of_this_thread()? - before.1;
        self.misses = self.innocent.misses;
        Ok(Phase {
            name,
            seconds,
            gets: self.innocent.gets.percentiles(),
            sets: self.innocent.sets.percentiles(),
            stood_us: self.innocent.stood().as_secs_f64() * 1e6,
            waited: server.waited_ns.max(load.waited_ns) as f64 / 1e9 / seconds,
            note,
        })
    }

    /// Serves the innocent client only.
    fn idle_until(&mut self, end: Instant) -> Result<()> {
        while Instant::now() < end {
            self.innocent.turn()?;
        }
        Ok(())
    }

    /// The others store items: all of them, unless that takes too long.
    fn store(&mut self, fill: Fill) -> Result<String> {
        let started = Instant::now();
        let mut meter = Meter::new();
        let items = fill.left();
        let patience = filling_patience(items);
        let mut beside = Beside {
            innocent: &mut self.innocent,
            load: fill,
            until: started + patience,
        };
        let stop = Stop::After(patience);
        self.load.run(&requests(0), &mut beside, stop, &mut meter)?;
        let stored = meter.operations;
        if beside.load.left() > 0 {
            return Ok(format!("{stored} of {items} sets after {patience:?}"));
        }
        let rate = stored as f64 / started.elapsed().as_secs_f64();
        let refused = match beside.load.refused {
            0 => String::new(),
            refused => format!(", {refused} refused"),
        };
        Ok(format!(
            "{} sets/s{refused}",
            latchd_load::table::grouped(rate)
        ))
    }

    /// A client empties the store; and a while after.
    fn flush(&mut self, span: Duration) -> Result<String> {
        let mut control = Control::open(self.server.address)?;
        let end = Instant::now() + span;
        let took = self.ask(&mut control, Question::FlushAll)?.took;
        self.idle_until(end)?;
        Ok(format!("answered in {:.0} µs", took.as_secs_f64() * 1e6))
    }

    /// Another client asks, while the innocent client is served.
    fn ask(&mut self, control: &mut Control, question: Question) -> Result<Answer> {
        control.ask(question)?;
        let starved_at = Instant::now() + STARVED_AFTER;
        loop {
            self.innocent.turn_until(starved_at)?;
            if let Some(answer) = control.turn()? {
                return Ok(answer);
            }
        }
    }

    /// How many items the server says that it has.
    fn items(&mut self, control: &mut Control) -> Result<u64> {
        let answer = self.ask(control, Question::Stats)?;
        stat(&answer.text, "curr_items").context("stats without curr_items")
    }

    /// All items expire at the same second.
    fn expire(&mut self, name: &'static str, size: Size, filled_in: f64) -> Result<Phase> {
        let Size {
            items, patience, ..
        } = size;
        // A flush may reach to the end of its second (yrmcds).
        std::thread::sleep(Duration::from_millis(1_100));
        let margin = Duration::from_secs(3) + Duration::from_secs_f64(filled_in).mul_f64(2.0);
        let unix_now = || SystemTime::now().duration_since(UNIX_EPOCH);
        // A whole second, as exptime is one.
        let at = Duration::from_secs((unix_now()? + margin).as_secs());
        let requests = requests(u32::try_from(at.as_secs())?);
        fill(self.server.address, &requests, items)?;
        look(self.server.address, &requests, items)?;
        let mut control = Control::open(self.server.address)?;
        let held = self.items(&mut control)?;
        let left = at.saturating_sub(unix_now()?);
        ensure!(!left.is_zero(), "they have expired before all were stored");
        std::thread::sleep(left.saturating_sub(Duration::from_millis(200)));
        self.phase(name, |stage| {
            // Servers may be late by their own clock's tick; that they are never early is for others
            // to test.
            let expired_at = Instant::now() + at.saturating_sub(unix_now()?);
            let mut gone = None;
            let mut left = held;
            while gone.is_none() && expired_at.elapsed() < patience {
                stage.idle_until(Instant::now() + Duration::from_millis(100))?;
                left = stage.items(&mut control)?;
                let few = u64::from(items / 100);
                gone = (left <= few).then(|| expired_at.elapsed());
            }
            Ok(match gone {
                _ if held < u64::from(items) => "does not count its items in time".to_owned(),
                Some(gone) => format!("99 % gone after {:.1} s", gone.as_secs_f64()),
                None => format!("{left} still there after {patience:?}"),
            })
        })
    }
}

/// How long a server may take to store `items` items.
fn filling_patience(items: usize) -> Duration {
    let seconds = items as f64 / f64::from(SETS_A_SECOND_MIN);
    FILLING_MIN.max(Duration::from_secs_f64(seconds))
}

/// Gets a range of keys, which may or may not be there.
#[derive(Debug)]
struct Walk(Range<u32>);

impl Workload for Walk {
    fn next(&mut self, _connection: usize) -> Option<Ask> {
        self.0.next().map(Ask::Get)
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        *reply == Reply::Miss || requests.is_answered(ask, reply)
    }
}

fn requests(exptime: u32) -> Requests {
    Requests::new(Dialect::Classic, VALUE_BYTES, exptime)
}

/// Memory that fits `items` items of `item_bytes` bytes.
fn mebibytes(items: u32, item_bytes: u64) -> u64 {
    (u64::from(items) * item_bytes) >> 20
}
