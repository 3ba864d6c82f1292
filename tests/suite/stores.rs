//! What every store must do, asked of each of them.
//!
//! `LATCHD_STORE_SEQUENCES` says how many sequences of calls each store hears (8 if it is not set),
//! and `LATCHD_SEED` where their random numbers start.

use arbitrary::Unstructured;
use latchd_core::Limits;
use latchd_core::store::{LogStore, MapStore, SipHash, Store};
use latchd_harness::stores::{Beside, ByLength, Call, Room, Same, Seen, Sizes};

use crate::number_from;

/// How many calls are in a sequence, about.
const CALLS: usize = 1_500;

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
fn play<S: Store>(limits: &Limits, room: Room, sizes: Sizes, new: impl Fn(&Limits) -> S) -> Seen {
    let sequences = number_from("LATCHD_STORE_SEQUENCES", 8);
    let seed = number_from("LATCHD_SEED", 1).wrapping_mul(1 << 32);
    let mut all = Seen::default();
    for sequence in 0..sequences {
        let mut beside = Beside::new(new(limits), room, limits);
        for call in calls(seed.wrapping_add(sequence), sizes) {
            beside.call(call);
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

fn in_all_rooms<S: Store>(scarce_bytes: usize, sizes: Sizes, new: impl Fn(&Limits) -> S) {
    for room in [Room::Ample, Room::Scarce, Room::ScarceAndKept] {
        let seen = play(&limits(room, scarce_bytes), room, sizes, &new);
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
    in_all_rooms(6_000, TINY, MapStore::new);
}

#[test]
fn a_log_of_tiny_segments_does_what_every_store_must() {
    in_all_rooms(12 << 10, TINY, |limits| {
        LogStore::with_segments(limits, SipHash::new([1, 2]), 512)
    });
}

#[test]
fn a_log_of_a_few_tiny_segments_does_what_every_store_must() {
    in_all_rooms(8 << 10, TINY, |limits| {
        LogStore::with_segments(limits, SipHash::new([1, 2]), 512)
    });
}

#[test]
fn a_log_of_large_segments_does_what_every_store_must() {
    in_all_rooms(2 << 20, LARGE, |limits| {
        LogStore::with_segments(limits, SipHash::new([1, 2]), 256 << 10)
    });
}

#[test]
fn a_log_does_not_mind_that_whole_hashes_collide() {
    in_all_rooms(12 << 10, TINY, |limits| {
        LogStore::with_segments(limits, Same, 512)
    });
    in_all_rooms(12 << 10, TINY, |limits| {
        LogStore::with_segments(limits, ByLength, 512)
    });
}
