//! Many clients, a network that is not kind to them, and the real core, all from one seed.
//!
//! A run plays clients of the three protocols over simulated pipes against [`Connection::drive`]
//! and a [`Core`]: bytes are cut anywhere, delayed and lost with their connection; clients
//! pipeline, stop reading, reset, close half and come back; time jumps, and the core is told that
//! it went back; memory is short. An auditor is shown what the clients are answered, in the order
//! in which it was answered: it must agree with all that was answered before. Nothing but the seed
//! decides what happens, so a seed is a failing test that can be replayed.
//!
//! What happens to clients and server is drawn from the alphabet of all layers ([`Op`]), and a
//! request is said on its client's wire as that has words for it; what the network does is drawn
//! beside it, and so is the little that only a wire has.
//!
//! - N1: every request has one answer, in order, of a shape that its protocol has, or the silence
//!   that its protocol has for it.
//! - N2: what a connection keeps is bounded: input by one request and one delivery, output by its
//!   bound and one reply.
//! - N3: of what clients believe at the moment they read it, no two believe to hold the same key.
//! - N4: the core's own invariants hold, and its table of locks is what the answers have said.
//! - N5: what the core is asked is what the client said, whatever the bytes went through.
//! - B1 to B7: the auditor's.
//! - The oracle's word: the core answers as an oracle does that knows of no client; where memory is scarce, what it evicts is
//!   followed and when it has no room believed (`beside`).
//!
//! Every eighth seed is of another kind: there clients speak of locks of keys, and wait for them (`crowd`, C1 to C5). Every
//! eighth is of a third: there the connections are those of the server, with all their buffers (`edge`, E1 to E7).
//!
//! An event is one delivery of bytes, one command executed, one thing that happens to a connection,
//! or one that happens to the server: a tick, a look at the clock, an item of nobody.
//!
//! [`Op`]: latchd_harness::alphabet::Op
//! [`Connection::drive`]: latchd_core::connection::Connection::drive
//! [`Core`]: latchd_core::engine::Core

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "requests are told apart in groups, and what is in none has one answer: it is wrong"
)]
#![allow(
    clippy::verbose_bit_mask,
    reason = "a choice is cut out of random bits, and reads as that"
)]

mod ask;
mod auditor;
mod beside;
mod caller;
mod crowd;
mod edge;
mod encode;
mod follow;
mod match_replies;
mod names;
mod observed;
mod server;
mod setting;
mod tally;
mod trace;
mod workload;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

pub use server::Fault;
pub use tally::{Buffering, Tally};

use latchd_harness::alphabet::{Pairs, ReplyKind, RequestKind};
use latchd_harness::lockstep::panic_words;

use trace::Keeps;
use world::World;

/// What to play.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// After how many events to stop.
    pub events: u64,
    /// What to make wrong.
    pub fault: Option<Fault>,
    /// Print every event.
    pub aloud: bool,
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
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// How many events there were.
    pub events: u64,
    /// How many of them were commands.
    pub commands: u64,
    /// Stands for everything that happened and was answered.
    pub digest: u64,
    /// What happened, counted.
    pub tally: Tally,
    /// In which states the buffers of the server's own connections were.
    pub buffers: Buffering,
    /// Which kinds of command got which kinds of reply.
    pub pairs: Box<Pairs>,
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
            pairs,
        } = other;
        self.events += events;
        self.commands += commands;
        self.digest = self.digest.wrapping_add(*digest);
        self.tally.add(tally);
        self.buffers.add(buffers);
        self.pairs.add(pairs);
    }
}

/// Whether a pair that the property tests see is one that no client here can bring about: a guarded
/// replace is a guarded set on every wire, nothing that comes on a connection after its end is looked
/// at, and locks are spoken of in the old words. A guarded decrement without room is too rare to wait
/// for: it takes a locked number that a flush has come over, and its version, in a full store. The
/// corpus of the fuzzer has it.
#[must_use]
pub const fn is_left_out(request: RequestKind, reply: ReplyKind) -> bool {
    is_left_out_of_crowds(request, reply)
        || matches!(request, RequestKind::ReplaceCas)
        || matches!(reply, ReplyKind::RefusedConnectionClosed)
        || matches!(
            (request, reply),
            (RequestKind::DecrementCas, ReplyKind::RefusedOutOfMemory)
                // Where somebody holds a key that has no item.
                | (RequestKind::ReplaceAndUnlock, ReplyKind::NotStored)
                // Where somebody shares it.
                | (
                    RequestKind::ReplaceAndUnlock | RequestKind::ReplaceAndUnlockCas,
                    ReplyKind::RefusedLocked
                )
        )
}

/// What is asked for in crowds alone, and not in every way there is: wins that are bound, gets that wait, locks of keys. There
/// is room for everything there, and no request names a version or another mode than to set.
const fn is_left_out_of_crowds(request: RequestKind, reply: ReplyKind) -> bool {
    use ReplyKind as Got;
    use RequestKind as Asked;
    matches!(
        (request, reply),
        (
            Asked::GetBound | Asked::GetOrWait | Asked::GetWaited,
            Got::HitUnchanged | Got::RefusedTooManyLocks | Got::RefusedOutOfMemory
        ) | (Asked::Wait, Got::RefusedTooManyLocks)
            | (
                Asked::SetFenced | Asked::SetAndUnlock,
                Got::NotStored | Got::NotFound
            )
            | (
                Asked::SetAndUnlock | Asked::DeleteAndUnlock | Asked::CountAndUnlock,
                Got::Exists
            )
            | (
                Asked::SetFenced
                    | Asked::SetAndUnlock
                    | Asked::DeleteFenced
                    | Asked::DeleteAndUnlock
                    | Asked::CountFenced
                    | Asked::CountAndUnlock,
                Got::RefusedOutOfMemory
            )
    )
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was played.
    pub seed: u64,
    /// What was made wrong.
    pub fault: Option<Fault>,
    /// The event at which it showed.
    pub event: u64,
    /// Which promise.
    pub rule: &'static str,
    /// What happened.
    pub what: String,
    /// The last events.
    pub last: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            fault,
            event,
            rule,
            what,
            last,
        } = self;
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
             --seed {seed} --events {event}"
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
        // It fails again, and now it is wanted what came before.
        Err(failure) => Err(play(plan, Keeps::Last).err().unwrap_or(failure)),
    }
}

fn play_edge(plan: &Plan) -> Result<Report, Box<Failure>> {
    let mut world = edge::World::new(plan);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let event = world.events();
    unless_broken(plan, outcome, || (event, Vec::new()))
}

fn play_crowd(plan: &Plan) -> Result<Report, Box<Failure>> {
    let mut world = crowd::World::new(plan);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let event = world.events();
    unless_broken(plan, outcome, || (event, Vec::new()))
}

fn play(plan: &Plan, keeps: Keeps) -> Result<Report, Box<Failure>> {
    // Faults are planted before the other kind of core.
    if crowd::is_of_a_crowd(plan.seed) && plan.fault.is_none() {
        return play_crowd(plan);
    }
    if edge::is_at_the_edge(plan.seed) && plan.fault.is_none() {
        return play_edge(plan);
    }
    let mut world = World::new(plan, keeps);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    unless_broken(plan, outcome, || (world.events(), world.last()))
}

/// What was played, or what broke, and where: at which event, and which were the last.
fn unless_broken(
    plan: &Plan,
    outcome: thread::Result<Result<Report, auditor::Breach>>,
    at: impl FnOnce() -> (u64, Vec<String>),
) -> Result<Report, Box<Failure>> {
    let breach = match outcome {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(breach)) => breach,
        Err(panic) => auditor::Breach {
            rule: "an assertion",
            what: panic_words(&*panic),
        },
    };
    let (event, last) = at();
    Err(Box::new(Failure {
        seed: plan.seed,
        fault: plan.fault,
        event,
        rule: breach.rule,
        what: breach.what,
        last,
    }))
}
