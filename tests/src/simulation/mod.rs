//! Many clients, a hostile network, and the real core, all from one seed.
//!
//! A run plays clients of the three protocols over simulated pipes against [`Connection::drive`]
//! and a [`Core`]: bytes are cut anywhere, delayed and lost with their connection; clients
//! pipeline, stop reading, reset, close half and come back; time jumps, and the core sees the clock
//! go back; memory is short. An oracle stands beside the core and predicts each of its replies.
//! Everything depends on the seed alone, so a seed is a failing test that can be replayed.
//!
//! Events of clients and server are drawn from the alphabet of all layers ([`Op`]). A request is
//! put into the words of its client's wire. Events of the network are drawn beside it, and so are
//! the few requests that only a wire has.
//!
//! - N1: a client gets the replies of the core to its requests, in order and byte for byte as its
//!   protocol has them. If its protocol has silence for a reply, the client gets nothing. No
//!   request is left without its answer.
//! - N2: the buffers of a connection are bounded: input by one request and one delivery, output by
//!   its bound and one reply.
//! - N4: the core's own invariants hold; when all have gone, there are no holders or waiters.
//! - N5: the core gets the request that the client sent, however the bytes were cut. A request that
//!   has waited comes again without its wait.
//! - The oracle's word: the core answers, ends waits and names its next deadline as an oracle does
//!   that knows of no client. If memory is scarce, evictions are followed, and refusals for want of
//!   room are accepted (`beside`).
//!
//! Every eighth seed is a *crowd*: most requests there are about locks of keys, bound wins, and
//! waits for both. Every 64th is a *great* one: keys of up to 250 bytes that differ at their ends,
//! more than 70,000 items, thousands of locks a connection, and whole hashes that collide.
//! Connections are numbered past 2^32, and the time is near a wrap of a 32-bit counter. Every
//! eighth is of a third kind: there the connections are those of the server, with all their buffers
//! (`edge`, E1 to E7). Every eighth is of a fourth kind: sessions over the workers and shards of the server
//! (`sessions`, S1 to S8).
//!
//! An event is one delivery of bytes, one executed command, one event of a connection, or one of
//! the server: a tick, a reading of the clock, an item stored by the server itself.
//!
//! [`Op`]: latchd_harness::alphabet::Op
//! [`Connection::drive`]: latchd_protocol::connection::Connection::drive
//! [`Core`]: latchd_core::engine::Core

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "requests are told apart in groups, and what is in none has one answer: it is wrong"
)]
#![allow(
    clippy::verbose_bit_mask,
    reason = "a choice is cut out of random bits, and reads as that"
)]

mod answer;
mod ask;
mod beside;
mod caller;
mod cluster;
mod edge;
mod encode;
mod follow;
mod names;
mod server;
mod sessions;
mod setting;
mod tally;
mod trace;
mod workload;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

pub use server::Fault;
pub use tally::{Buffering, Cluster, Sessions, Tally};

use latchd_harness::alphabet::{Pairs, ReplyKind, RequestKind};
use latchd_harness::lockstep::panic_words;

use setting::Kind;
use trace::Keeps;
use world::World;

/// The settings of a play.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The number of events to stop after.
    pub events: u64,
    /// The fault to plant.
    pub fault: Option<Fault>,
    /// Print every event.
    pub aloud: bool,
    /// The parts of it.
    pub scene: Scene,
}

/// The parts of a play.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scene {
    /// A server and its clients.
    #[default]
    Server,
    /// The processes of a cluster, etcd, and clients.
    Cluster,
}

impl Plan {
    /// A run without faults.
    #[must_use]
    pub const fn new(seed: u64, events: u64) -> Self {
        Self {
            seed,
            events,
            fault: None,
            aloud: false,
            scene: Scene::Server,
        }
    }

    /// A run of a cluster.
    #[must_use]
    pub const fn of_cluster(seed: u64, events: u64) -> Self {
        Self {
            scene: Scene::Cluster,
            ..Self::new(seed, events)
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// How many events there were.
    pub events: u64,
    /// How many of them were commands.
    pub commands: u64,
    /// A digest of all events and answers.
    pub digest: u64,
    /// The counts of events.
    pub tally: Tally,
    /// The states that the buffers of the server's own connections have met.
    pub buffers: Buffering,
    /// The counts of events of sessions.
    pub sessions: Sessions,
    /// The pairs of commands and replies that were seen.
    pub pairs: Box<Pairs>,
    /// The counts of a cluster.
    pub cluster: Cluster,
}

impl Report {
    /// Adds another run, in a way that does not depend on the order.
    pub fn add(&mut self, other: &Self) {
        let Self {
            events,
            commands,
            digest,
            tally,
            buffers,
            sessions,
            pairs,
            cluster,
        } = other;
        self.events += events;
        self.commands += commands;
        self.digest = self.digest.wrapping_add(*digest);
        self.tally.add(tally);
        self.buffers.add(buffers);
        self.sessions.add(sessions);
        self.pairs.add(pairs);
        self.cluster.add(cluster);
    }
}

/// Whether no client here can cause a pair that the property tests see, or it is too rare to wait
/// for.
///
/// - A guarded replace is a guarded set on every wire, and bytes on a connection after its end are
///   ignored.
/// - Only packets replace and unlock; only text locks a key without an item, or shares one.
/// - If requests wait, there is room for everything.
/// - A guarded decrement without room takes a locked number that a flush has come over, and its version, in a full store. The
///   corpus of the fuzzer has it.
#[must_use]
pub const fn is_left_out(request: RequestKind, reply: ReplyKind) -> bool {
    use ReplyKind as Got;
    use RequestKind as Asked;
    matches!(request, Asked::ReplaceCas)
        || matches!(reply, Got::RefusedConnectionClosed)
        || matches!(
            (request, reply),
            (
                Asked::DecrementCas | Asked::GetBound | Asked::GetOrWait | Asked::GetWaited,
                Got::RefusedOutOfMemory
            ) | (Asked::Wait | Asked::GetWaited, Got::RefusedTooManyLocks)
                | (Asked::ReplaceAndUnlock, Got::NotStored)
                | (
                    Asked::ReplaceAndUnlock | Asked::ReplaceAndUnlockCas,
                    Got::RefusedLocked
                )
        )
}

/// A broken promise, in words.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Breach {
    /// Which promise.
    rule: &'static str,
    /// The breach.
    what: String,
}

impl Breach {
    const fn new(rule: &'static str, what: String) -> Self {
        Self { rule, what }
    }

    /// A breach, unless the rule is kept.
    fn unless(
        is_kept: bool,
        rule: &'static str,
        what: impl FnOnce() -> String,
    ) -> Result<(), Self> {
        if is_kept {
            Ok(())
        } else {
            Err(Self::new(rule, what()))
        }
    }
}

/// A broken promise, and its place.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The planted fault.
    pub fault: Option<Fault>,
    /// The parts of the run.
    pub scene: Scene,
    /// The event at which it showed.
    pub event: u64,
    /// Which promise.
    pub rule: &'static str,
    /// The breach.
    pub what: String,
    /// The last events.
    pub last: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            fault,
            scene,
            event,
            rule,
            what,
            last,
        } = self;
        let scene = match scene {
            Scene::Server => "",
            Scene::Cluster => "cluster ",
        };
        writeln!(
            formatter,
            "seed {seed}, event {event}: {rule} is broken: {what}"
        )?;
        writeln!(formatter, "the last events:")?;
        for line in last {
            writeln!(formatter, "{line}")?;
        }
        write!(
            formatter,
            "to replay: cargo run --release -p latchd-tests --bin simulate -- \
             {scene}--seed {seed} --events {event}"
        )?;
        if let Some(fault) = fault {
            write!(formatter, " --fault {fault:?}")?;
        }
        write!(formatter, " -v")
    }
}

/// Plays a seed.
///
/// # Errors
/// The first promise that is broken; a panic of the core is one.
pub fn run(plan: &Plan) -> Result<Report, Box<Failure>> {
    if plan.aloud {
        return play(plan, Keeps::LastAloud);
    }
    match play(plan, Keeps::Nothing) {
        Ok(report) => Ok(report),
        // The run fails again; now the events before the failure are recorded.
        Err(failure) => Err(play(plan, Keeps::Last).err().unwrap_or(failure)),
    }
}

fn play(plan: &Plan, keeps: Keeps) -> Result<Report, Box<Failure>> {
    if plan.scene == Scene::Cluster {
        let mut world = cluster::World::new(plan, keeps);
        let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
        return unless_broken(plan, outcome, || (world.events(), world.last()));
    }
    if Kind::of(plan) == Kind::Edge {
        let mut world = edge::World::new(plan);
        let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
        return unless_broken(plan, outcome, || (world.events(), Vec::new()));
    }
    if sessions::plays(plan) {
        let mut world = sessions::World::new(plan, keeps);
        let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
        return unless_broken(plan, outcome, || (world.events(), world.last()));
    }
    let mut world = World::new(plan, keeps);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    unless_broken(plan, outcome, || (world.events(), world.last()))
}

/// The result of the run, or the breach and its place:
fn unless_broken(
    plan: &Plan,
    outcome: thread::Result<Result<Report, Breach>>,
    at: impl FnOnce() -> (u64, Vec<String>),
) -> Result<Report, Box<Failure>> {
    let breach = match outcome {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(breach)) => breach,
        Err(panic) => Breach {
            rule: "an assertion",
            what: panic_words(&*panic),
        },
    };
    let (event, last) = at();
    Err(Box::new(Failure {
        seed: plan.seed,
        fault: plan.fault,
        scene: plan.scene,
        event,
        rule: breach.rule,
        what: breach.what,
        last,
    }))
}
