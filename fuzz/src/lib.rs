//! The rules for any bytes at all, one function a fuzz target.
//!
//! Each takes any bytes of the fuzzer and panics if the property does not hold. The tests call them
//! with the corpus (`fuzz/corpus/`), so a finding stays found.

mod client;
mod file;
pub mod tally;

pub use client::client;

use std::iter;

use arbitrary::Unstructured;
use latchd_core::engine::{Core, Notification};
use latchd_core::store::{KeyHasher, LogStore, MapStore, SipHash, Store};
use latchd_core::{Config, Instant, Limits, Server};
use latchd_harness::alphabet::{
    Environment, Op, Pairs, ReplyKind, RequestKind, UNIX_S_AT_START, VALUE_BYTES_MAX, WaitingOp,
    limits, needs_log,
};
use latchd_harness::lockstep::{Lockstep, Room};
use latchd_harness::memory::exchange;
use latchd_harness::stores;
use latchd_protocol::connection::Progress;
use latchd_protocol::wire::WireLimits;

/// Panics if it does not hold for an input.
pub type Property = fn(&[u8]);

/// Every property by the name of its target.
pub const PROPERTIES: &[(&str, Property)] = &[
    ("classic", classic),
    ("meta", meta),
    ("binary", binary),
    ("cuts", cuts),
    ("events", events),
    ("store", store),
    ("saved", saved),
    ("client", client),
];

/// Room for a few dozen items, in as few segments as the store can do with, so that eviction takes
/// part.
const MEMORY_BYTES_MAX: usize = 4_000;

/// A connection sends its output before it answers more: the bound that the shell sets, made small.
const OUT_BYTES_MAX: usize = 256;

/// No bytes break a connection that speaks classic text, or the core behind it.
pub fn classic(input: &[u8]) {
    if input.first() != Some(&BINARY_MAGIC) {
        converse(input, |rest| rest.len());
    }
}

/// No lines break a connection that speaks meta text, or the core behind it: every line of the
/// input is made to begin as a meta command does.
pub fn meta(input: &[u8]) {
    let mut lines = Vec::new();
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        lines.push(b'm');
        lines.extend_from_slice(line);
    }
    converse(&lines, |rest| rest.len());
}

/// No packets break a connection that speaks binary, or the core behind it: the input is made to
/// begin as a packet does.
pub fn binary(input: &[u8]) {
    let mut packets = vec![BINARY_MAGIC];
    packets.extend_from_slice(input);
    converse(&packets, |rest| rest.len());
}

/// The answers do not depend on how the network cuts the bytes. The first byte chooses the length
/// of the pieces.
pub fn cuts(input: &[u8]) {
    let Some((&seed, bytes)) = input.split_first() else {
        return;
    };
    let whole = converse(bytes, |rest| rest.len());
    let mut state = u32::from(seed);
    let cut = converse(bytes, |rest| {
        // Any sequence with short and long pieces will do.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (1 + (state >> 24) as usize % (1 + usize::from(seed))).min(rest.len())
    });
    assert_eq!(whole, cut, "the answers depend on how the bytes are cut");
}

/// No sequence of operations breaks an invariant of the core or gets a reply it cannot get.
pub fn events(input: &[u8]) {
    play(input, &mut Pairs::default());
}

/// The same, and notes which request got which reply. The first byte chooses the memory limit: if
/// there is room for everything, the oracle judges each reply.
///
/// # Panics
/// If the property does not hold.
pub fn play(input: &[u8], pairs: &mut Pairs) {
    let mut unstructured = Unstructured::new(input);
    let config = |limits| Config::new(limits, UNIX_S_AT_START);
    let pinned = unstructured.arbitrary::<u8>().unwrap_or_default() % 3;
    let rest = unstructured.take_rest();
    if pinned == 0 {
        let mut limits = limits::ample();
        // All due work is done in one call: the oracle knows no bound.
        limits.crawl_items_max = 16;
        play_beside(Core::reference(config(limits)), rest, pairs);
        return play_beside(Core::new(config(limits)), rest, pairs);
    }
    let of_reference = limits::scarce(pinned.into());
    let of_log = limits::scarce_for_log(usize::from(pinned) - 1);
    let reference = Core::reference(config(of_reference));
    enter_all(reference, rest, pairs, |pair| !needs_log(pair.0, pair.1));
    enter_all(Core::new(config(of_log)), rest, pairs, |_| true);
}

/// Plays an input beside the oracle.
fn play_beside<S: Store>(core: Core<S>, input: &[u8], pairs: &mut Pairs) {
    let mut lockstep = Lockstep::new(core, Room::Ample);
    let mut seen = Pairs::default();
    for op in ops(input) {
        if let Err(difference) = lockstep.step(&op, &mut seen) {
            panic!("{op:?}: {difference}");
        }
    }
    let impossible: Vec<_> = seen.impossible().collect();
    assert!(impossible.is_empty(), "{impossible:?} cannot be");
    pairs.add(&seen);
}

/// The ops that an input stands for.
fn ops(input: &[u8]) -> impl Iterator<Item = Op> {
    let mut unstructured = Unstructured::new(input);
    let mut is_over = false;
    iter::from_fn(move || {
        if is_over {
            return None;
        }
        let WaitingOp(op) = unstructured.arbitrary().ok()?;
        is_over = unstructured.is_empty();
        Some(op)
    })
}

fn enter_all<S: Store>(
    mut core: Core<S>,
    input: &[u8],
    pairs: &mut Pairs,
    can_be: impl Fn((RequestKind, ReplyKind)) -> bool,
) {
    let memory_bytes = core.limits().memory_bytes_max;
    let mut environment = Environment::new().within(memory_bytes);
    for op in ops(input) {
        let asked = environment.asked(&op);
        if let Some(input) = environment.enact(&op) {
            let reply = input.enter(&mut core, environment.clock().now);
            if let (Some(asked), Some(reply)) = (&asked, &reply) {
                let pair = (RequestKind::of_asked(asked), ReplyKind::of(reply));
                let is_possible = pair.0.can_get(pair.1);
                assert!(is_possible && can_be(pair), "{pair:?} cannot be");
                pairs.note(asked, reply);
                environment.learn(asked, reply);
            }
            while let Some(notice) = core.poll().and_then(Notification::wait_over) {
                let reply = ReplyKind::of_outcome(notice.outcome);
                let is_reachable = RequestKind::Wait.reachable().contains(&reply);
                assert!(is_reachable, "a wait cannot end as {reply:?}");
                pairs.note_outcome(notice.outcome);
                environment.settle(notice);
            }
        }
        core.check();
    }
}

/// No sequence of calls makes the log or the reference break a rule of stores, with any hashes of
/// its keys. The first byte says how much memory there is, which hash is used, and how many values
/// are large.
pub fn store(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let (room, memory_bytes) = match first % 3 {
        0 => (stores::Room::Ample, 1 << 20),
        1 => (stores::Room::Scarce, 8 << 10),
        _ => (stores::Room::ScarceAndKept, 10 << 10),
    };
    let mut limits = Limits::new(memory_bytes, 1 << 20);
    limits.evict = room != stores::Room::ScarceAndKept;
    let sizes = stores::Sizes {
        small_bytes_max: 60,
        large_bytes_max: 2_000,
        large_of_12: 1 + first / 9 % 11,
    };
    let map = MapStore::new(&limits);
    call_all(stores::Beside::new(map, room, &limits), sizes, rest);
    match first / 3 % 3 {
        0 => call_log(SipHash::new([1, 2]), room, &limits, sizes, rest),
        1 => call_log(stores::Same, room, &limits, sizes, rest),
        _ => call_log(stores::ByLength, room, &limits, sizes, rest),
    }
}

fn call_log<H: KeyHasher>(
    hasher: H,
    room: stores::Room,
    limits: &Limits,
    sizes: stores::Sizes,
    input: &[u8],
) {
    let segment_bytes = 512;
    let log = LogStore::with_segments(limits, hasher, segment_bytes);
    let beside = stores::Beside::new(log, room, limits);
    call_all(
        beside.charging(stores::Charge::BySegment { segment_bytes }),
        sizes,
        input,
    );
}

fn call_all<S: Store>(mut beside: stores::Beside<S>, sizes: stores::Sizes, input: &[u8]) {
    let mut source = Unstructured::new(input);
    let mut calls = 0_u32;
    while !source.is_empty() {
        let call = stores::Call::draw(&mut source, sizes).expect("drawing does not fail");
        beside.ask(call);
        calls += 1;
        if calls % CALLS_A_LOOK == 0 {
            beside.look();
        }
    }
    beside.look();
}

/// After this many calls, and at the end, everything in a store is looked at; after each call the
/// item that it was about. Damage stays until then, and the tests of all stores look after every
/// call.
const CALLS_A_LOOK: u32 = 64;

/// Any bytes taken for a file of items are refused whole or read as they were written, in bounded
/// memory.
pub fn saved(input: &[u8]) {
    file::any(input);
}

const BINARY_MAGIC: u8 = 0x80;

/// Delivers `bytes` to a new connection in pieces of the length that `piece` chooses, and returns
/// everything it answers.
fn converse(bytes: &[u8], mut piece: impl FnMut(&[u8]) -> usize) -> Vec<u8> {
    let limits = Limits::new(MEMORY_BYTES_MAX, VALUE_BYTES_MAX);
    let core = Core::new(Config::new(limits, UNIX_S_AT_START));
    let server = Server::with_machine(core, WireLimits::from(&limits));
    let mut server = server.with_unsent_bytes_max(OUT_BYTES_MAX);
    let now = Instant::from_millis(0);
    let conn = server.open(now);
    let (mut answers, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (arrived, later) = rest.split_at(piece(rest));
        rest = later;
        let progress = exchange(&mut server, now, conn, arrived, &mut answers, Core::check);
        if progress == Progress::Close {
            break;
        }
    }
    server.close(now, conn);
    server.machine().check();
    answers
}
