//! The rules of every store, checked for each of them.
//!
//! `TEST_STORE_SEQUENCES` is the number of sequences of calls for each store (default: 8), and
//! `TEST_SEED` the start of their random numbers.

mod refusals;

use arbitrary::Unstructured;
use latchd_core::Limits;
use latchd_core::store::{KeyHasher, LogStore, MapStore, SipHash, Store};
use latchd_harness::stores::{Beside, ByLength, Call, Charge, Room, Same, Seen, Sizes};
use latchd_protocol::item::{Cas, ItemHeader};
use latchd_protocol::key::Key;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;

use crate::number_from;

/// The time of calls that do not depend on time.
const NOW: Tick = Tick::from_count(1_000);

/// How many calls are in a sequence, about.
const CALLS: usize = 1_500;

/// After so many calls the store is crawled for all expired items.
const CALLS_A_CRAWL: usize = 50;

/// The bytes that the reference charges for an item besides key and value.
const BY_ITEM: Charge = Charge::ByItem {
    overhead_bytes: 144,
};

const BY_TINY: Charge = Charge::BySegment { segment_bytes: 512 };

const BY_LARGE: Charge = Charge::BySegment {
    segment_bytes: 256 << 10,
};

/// The calls that a seed makes.
fn calls(seed: u64, sizes: Sizes) -> Vec<Call> {
    let mut state = seed;
    let mut bytes = Vec::new();
    // The generator of Steele, Lea and Flood (SplitMix64).
    while bytes.len() < CALLS * 8 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend((mixed ^ (mixed >> 31)).to_le_bytes());
    }
    let mut source = Unstructured::new(&bytes);
    let mut calls = Vec::new();
    while !source.is_empty() {
        calls.push(Call::draw(&mut source, sizes).expect("drawing does not fail"));
    }
    calls
}

/// Plays sequences on a new store each; returns the cases met in all of them.
fn play<S: Store>(
    limits: &Limits,
    room: Room,
    charge: Charge,
    sizes: Sizes,
    new: impl Fn(&Limits) -> S,
) -> Seen {
    let sequences = number_from("TEST_STORE_SEQUENCES", 8);
    let seed = number_from("TEST_SEED", 1).wrapping_mul(1 << 32);
    let mut all = Seen::default();
    for sequence in 0..sequences {
        let mut beside = Beside::new(new(limits), room, limits).charging(charge);
        for (number, call) in calls(seed.wrapping_add(sequence), sizes)
            .into_iter()
            .enumerate()
        {
            beside.call(call);
            if number % CALLS_A_CRAWL == 0 {
                beside.crawl_all();
            }
        }
        all.add(beside.seen());
    }
    all
}

/// Limits under which a store has too little room, or enough.
fn limits(room: Room, scarce_bytes: usize) -> Limits {
    let mut limits = Limits::new(scarce_bytes, 1 << 20);
    match room {
        Room::Ample => limits.memory_bytes_max = 256 << 20,
        Room::Scarce => {}
        Room::ScarceAndKept => limits.evict = false,
    }
    limits
}

const TINY: Sizes = Sizes {
    small_bytes_max: 60,
    large_bytes_max: 2_000,
    large_of_12: 1,
};

/// Most values have an allocation of their own.
const MOSTLY_LARGE: Sizes = Sizes {
    large_of_12: 10,
    ..TINY
};

const LARGE: Sizes = Sizes {
    small_bytes_max: 20_000,
    large_bytes_max: 200_000,
    large_of_12: 1,
};

fn in_all_rooms<S: Store>(
    scarce_bytes: usize,
    charge: Charge,
    sizes: Sizes,
    new: impl Fn(&Limits) -> S,
) {
    for room in [Room::Ample, Room::Scarce, Room::ScarceAndKept] {
        let seen = play(&limits(room, scarce_bytes), room, charge, sizes, &new);
        assert!(
            seen.expiries > 0 && seen.spared > 0 && seen.scans > 0,
            "{seen:?}"
        );
        match room {
            Room::Ample => assert_eq!((seen.evictions, seen.refusals), (0, 0)),
            Room::Scarce => assert!(seen.evictions > 0 && seen.lowered > 0, "{seen:?}"),
            Room::ScarceAndKept => {
                assert!(seen.refusals > 0, "{seen:?}");
                assert_eq!(seen.evictions, 0);
            }
        }
    }
}

#[test]
fn the_reference_store_keeps_the_rules() {
    in_all_rooms(6_000, BY_ITEM, TINY, MapStore::new);
}

#[test]
fn a_log_of_tiny_segments_keeps_the_rules() {
    for sizes in [TINY, MOSTLY_LARGE] {
        in_all_rooms(12 << 10, BY_TINY, sizes, |limits| {
            LogStore::with_segments(limits, SipHash::new([1, 2]), 512)
        });
    }
}

#[test]
fn a_log_of_few_segments_keeps_the_rules() {
    in_all_rooms(8 << 10, BY_TINY, TINY, |limits| {
        LogStore::with_segments(limits, SipHash::new([1, 2]), 512)
    });
}

#[test]
fn a_log_of_large_segments_keeps_the_rules() {
    in_all_rooms(2 << 20, BY_LARGE, LARGE, |limits| {
        LogStore::with_segments(limits, SipHash::new([1, 2]), 256 << 10)
    });
}

#[test]
fn a_log_survives_colliding_hashes() {
    in_all_rooms(12 << 10, BY_TINY, TINY, |limits| {
        LogStore::with_segments(limits, Same, 512)
    });
    in_all_rooms(12 << 10, BY_TINY, TINY, |limits| {
        LogStore::with_segments(limits, ByLength, 512)
    });
}

/// How many items of 64 bytes are in a tiny segment.
const IN_HAND: u64 = 8;

/// A key of eight bytes.
fn short_key(number: usize) -> [u8; 8] {
    *format!("{number:08}")
        .as_bytes()
        .first_chunk()
        .expect("eight digits")
}

/// Stores an item of 64 bytes, of which eight fill a tiny segment; returns whether there was room.
fn put<H: KeyHasher>(store: &mut LogStore<H>, number: usize, counters: &mut Counters) -> bool {
    let name = short_key(number);
    let key = Key::new(&name).expect("a legal key");
    let header = ItemHeader::new(Cas::FIRST, NOW);
    let vacancy = store.find(key).expect_err("each is put once");
    let value = Value::Borrowed(&[0; 34]);
    let stored = store.insert(NOW, vacancy, key, header, value, counters);
    stored.is_ok()
}

/// Fills a store, takes every other item out, and stores others in `again` percent of the freed
/// room. They fit, so nothing is refused. Nothing is evicted except the rest of a segment that was
/// being emptied when there was no room yet.
fn refills_what_was_freed(evict: bool, again: usize) {
    let mut limits = Limits::new(64 << 10, 1 << 10);
    limits.evict = evict;
    let mut store = LogStore::with_segments(&limits, SipHash::new([1, 2]), 512);
    let mut counters = Counters::default();
    let mut items = 0;
    while put(&mut store, items, &mut counters) && counters.evictions == 0 {
        items += 1;
    }
    // Each takes 64 bytes. The lists of such small segments, and the index, take much of the rest.
    assert!(items * 64 > limits.memory_bytes_max / 2, "{items} items");
    let full = counters.evictions;
    for number in (0..items).step_by(2) {
        if let Ok(slot) = store.find(Key::new(&short_key(number)).expect("a legal key")) {
            store.remove(slot);
        }
    }
    for number in 1..=items * again / 100 {
        let is_stored = put(&mut store, items + number, &mut counters);
        assert!(is_stored, "N8: the {number}th of {items}");
        let evicted = counters.evictions - full;
        assert!(
            evicted <= IN_HAND,
            "N7: {evicted}, the {number}th of {items}"
        );
    }
    store.check();
}

#[test]
fn dead_items_go_before_any_eviction() {
    refills_what_was_freed(true, 25);
}

#[test]
fn dead_items_go_before_any_refusal() {
    refills_what_was_freed(false, 45);
}
