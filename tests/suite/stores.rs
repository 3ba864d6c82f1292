//! What every store must do, asked of each of them.
//!
//! `LATCHD_STORE_SEQUENCES` says how many sequences of calls each store hears (8 if it is not set),
//! and `LATCHD_SEED` where their random numbers start.

mod refusals;

use arbitrary::Unstructured;
use latchd_core::Limits;
use latchd_core::item::{Cas, ItemHeader};
use latchd_core::key::Key;
use latchd_core::stats::Counters;
use latchd_core::store::{KeyHasher, LogStore, MapStore, SipHash, Store};
use latchd_core::time::Tick;
use latchd_core::value::Value;
use latchd_harness::stores::{
    Beside, ByLength, Call, Charge, Choices, Numbered, Policy, Room, Same, Seen, Sizes,
};

use latchd_tests::generate::Random;

use crate::number_from;

/// When what is not about time happens.
const NOW: Tick = Tick::from_count(1_000);

/// How many calls are in a sequence, about.
const CALLS: usize = 1_500;

/// After so many calls all that has expired is crawled for.
const CALLS_A_CRAWL: usize = 50;

/// The reference charges an item so much beside key and value.
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

/// Plays sequences on a new store each; returns what has come about in all of them.
fn play<S: Store>(
    limits: &Limits,
    room: Room,
    charge: Charge,
    sizes: Sizes,
    new: impl Fn(&Limits) -> S,
) -> Seen {
    let sequences = number_from("LATCHD_STORE_SEQUENCES", 8);
    let seed = number_from("LATCHD_SEED", 1).wrapping_mul(1 << 32);
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

/// Limits under which a store is in want of room, or not.
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
};

const LARGE: Sizes = Sizes {
    small_bytes_max: 20_000,
    large_bytes_max: 200_000,
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
fn the_reference_store_does_what_every_store_must() {
    in_all_rooms(6_000, BY_ITEM, TINY, MapStore::new);
}

#[test]
fn a_log_of_tiny_segments_does_what_every_store_must() {
    in_all_rooms(12 << 10, BY_TINY, TINY, |limits| {
        LogStore::with_segments(limits, SipHash::new([1, 2]), 512)
    });
}

#[test]
fn a_log_of_a_few_tiny_segments_does_what_every_store_must() {
    in_all_rooms(8 << 10, BY_TINY, TINY, |limits| {
        LogStore::with_segments(limits, SipHash::new([1, 2]), 512)
    });
}

#[test]
fn a_log_of_large_segments_does_what_every_store_must() {
    in_all_rooms(2 << 20, BY_LARGE, LARGE, |limits| {
        LogStore::with_segments(limits, SipHash::new([1, 2]), 256 << 10)
    });
}

#[test]
fn a_log_does_not_mind_that_whole_hashes_collide() {
    in_all_rooms(12 << 10, BY_TINY, TINY, |limits| {
        LogStore::with_segments(limits, Same, 512)
    });
    in_all_rooms(12 << 10, BY_TINY, TINY, |limits| {
        LogStore::with_segments(limits, ByLength, 512)
    });
}

/// How many items are stored, one after the other, to see which go.
const ITEMS_A_RUN: usize = 20_000;

/// How many items of 64 bytes are in a tiny segment.
const IN_HAND: u64 = 8;

/// A key of eight bytes.
fn short_key(number: usize) -> [u8; 8] {
    *format!("{number:08}")
        .as_bytes()
        .first_chunk()
        .expect("eight digits")
}

/// Puts an item of 64 bytes, of which eight fill a tiny segment; whether there was room.
fn put<H: KeyHasher>(store: &mut LogStore<H>, number: usize, counters: &mut Counters) -> bool {
    let name = short_key(number);
    let key = Key::new(&name).expect("a legal key");
    let header = ItemHeader::new(Cas::FIRST, NOW);
    let vacancy = store.find(key).expect_err("each is put once");
    let value = Value::Borrowed(&[0; 34]);
    let stored = store.insert(NOW, vacancy, key, header, value, counters);
    stored.is_ok()
}

/// Fills a store, takes every other item out, and puts others in the place of `again` parts of a hundred of what
/// there was: they fit, so nothing is refused, and nothing evicted but what is left of a segment that was being emptied
/// when there was no room yet.
fn refills_what_was_freed(evict: bool, again: usize) {
    let mut limits = Limits::new(64 << 10, 1 << 10);
    limits.evict = evict;
    let mut store = LogStore::with_segments(&limits, SipHash::new([1, 2]), 512);
    let mut counters = Counters::default();
    let mut items = 0;
    while put(&mut store, items, &mut counters) && counters.evictions == 0 {
        items += 1;
    }
    // Each takes 64 bytes. Lists of segments so small, and what finds items, take much of the rest.
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
fn what_is_dead_makes_room_before_anything_is_evicted() {
    refills_what_was_freed(true, 25);
}

#[test]
fn what_is_dead_makes_room_before_anything_is_refused() {
    refills_what_was_freed(false, 45);
}

/// How many items are locked in a run of which some are: a sixth of what a log holds.
const LOCKED_MAX: u64 = 100;

/// Stores one new item after the other in a small log, and asks for some of those that are there in between, and locks
/// some; what goes is what the policy says.
fn what_the_policy_chooses(
    seed: u64,
    asked_of_100: u64,
    locked_of_1000: u64,
    again_of_100: u64,
) -> Choices {
    // What goes is remembered where that takes no memory from anything else: a few segments of the larger size are enough.
    let (memory_bytes, segment_bytes, segment_items) = if again_of_100 > 0 {
        (256 << 10, 4 << 10, 63)
    } else {
        (64 << 10, 512, 8)
    };
    let limits = Limits::new(memory_bytes, 1 << 10);
    let mut store = LogStore::with_segments(&limits, Numbered, segment_bytes);
    store.watch_evictions(true);
    let mut policy = Policy::new(segment_items);
    let mut counters = Counters::default();
    let mut random = Random::new(seed);
    let mut locked = 0;
    let mut number = 0;
    while number < ITEMS_A_RUN {
        let back = policy
            .given_up()
            .filter(|_| random.below(100) < again_of_100);
        let stored = back.unwrap_or(number);
        number += usize::from(back.is_none());
        assert!(put(&mut store, stored, &mut counters), "N8");
        let (evicted, missed) = store.take_evicted();
        assert_eq!(missed, 0, "all are told");
        for evicted in evicted {
            let name = str::from_utf8(&evicted.key).expect("digits");
            policy.evict(name.parse().expect("a number"));
        }
        policy.store(stored, back.is_some());
        if random.below(100) < asked_of_100 {
            let asked = number
                - usize::try_from(random.below(500))
                    .expect("small")
                    .min(number);
            // Those that were asked for before are asked for more often.
            let asked = if random.below(2) == 0 {
                asked / 20 * 20
            } else {
                asked
            };
            let name = short_key(asked);
            if policy.may_be_changed(asked)
                && let Ok(slot) = store.find(Key::new(&name).expect("a legal key"))
            {
                store.record_hit(slot);
                policy.hit(asked);
            }
        }
        if locked < LOCKED_MAX && random.below(1_000) < locked_of_1000 {
            let chosen = number
                - usize::try_from(random.below(500))
                    .expect("small")
                    .min(number);
            if policy.may_be_changed(chosen)
                && let Ok(slot) = store.find(Key::new(&short_key(chosen)).expect("a legal key"))
            {
                let header = store.header(slot);
                locked += u64::from(!header.locked);
                store.set_header(
                    slot,
                    ItemHeader {
                        locked: true,
                        ..header
                    },
                );
                policy.lock(chosen);
            }
        }
    }
    assert_eq!(counters.evicted_active, policy.evicted_active(), "N10");
    let there = |number: &usize| {
        store
            .find(Key::new(&short_key(*number)).expect("a legal key"))
            .is_ok()
    };
    let all: Vec<usize> = (0..ITEMS_A_RUN).filter(there).collect();
    assert_eq!(all, policy.items(), "N10");
    policy.seen()
}

#[test]
fn a_log_evicts_what_the_policy_says() {
    let seed = number_from("LATCHD_SEED", 1);
    for asked_of_100 in [0, 5, 20, 50, 100] {
        // With locks only where fewer are asked for: else no segment is free once in a while when a locked item is come
        // across, and it goes into the main queue instead, where it is come across again.
        for locked_of_1000 in if asked_of_100 < 20 {
            &[0, 10][..]
        } else {
            &[0]
        } {
            let locked_of_1000 = *locked_of_1000;
            let choices = what_the_policy_chooses(seed, asked_of_100, locked_of_1000, 0);
            println!(
                "{asked_of_100} of 100 are asked for, {locked_of_1000} of 1000 locked: {choices:?}"
            );
            assert!(choices.unasked > 1_000, "{choices:?}");
            assert!(
                asked_of_100 == 0 || choices.promoted > 0 && choices.from_main > 0,
                "{choices:?}"
            );
            assert!(asked_of_100 < 50 || choices.again > 0, "{choices:?}");
            let is_passed = choices.passed * 2 > LOCKED_MAX;
            assert_eq!(is_passed, locked_of_1000 > 0, "{choices:?}");
        }
    }
}

#[test]
fn a_log_knows_what_it_has_just_given_up() {
    let seed = number_from("LATCHD_SEED", 1);
    for asked_of_100 in [0, 5, 20] {
        for again_of_100 in [1, 5] {
            let choices = what_the_policy_chooses(seed, asked_of_100, 0, again_of_100);
            println!(
                "{asked_of_100} of 100 are asked for, {again_of_100} of 100 come again: {choices:?}"
            );
            assert!(choices.known > 100 && choices.from_main > 0, "{choices:?}");
        }
    }
}
