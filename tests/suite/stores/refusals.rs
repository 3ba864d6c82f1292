//! When a log that is nearly full refuses (N8): only if what may not go takes so much, packed as loosely as segments may be, that
//! what is asked for has no place beside it. What was locked and is not any more is not in the way, wherever it stands.

use latchd_core::Limits;
use latchd_core::item::{Cas, ItemHeader};
use latchd_core::key::Key;
use latchd_core::stats::Counters;
use latchd_core::store::{LogStore, SipHash, Store};
use latchd_core::value::Value;
use latchd_harness::stores::SEGMENTS_IDLE_MAX;
use latchd_tests::generate::Random;

use super::{NOW, number_from, short_key};

const SEGMENT_BYTES: usize = 4 << 10;

const MEMORY_BYTES: usize = 128 * SEGMENT_BYTES;

/// How many items are stored, one after the other.
const ITEMS: usize = 40_000;

/// The longest value, in bytes: it stands in a segment.
const VALUE_BYTES_MAX: usize = 1 << 10;

/// What an item is found with and remembered by, in bytes: 64 bytes for ten items in the index, which has room to grow, and a mark
/// of two bytes.
const FOUND_BYTES: usize = 10;

/// What has come about in a run.
#[derive(Debug)]
struct Seen {
    refused: usize,
    /// The fewest parts of a hundred of the memory that could not go when something was refused.
    kept_of_100_min: usize,
    evicted: u64,
    flushes: usize,
}

/// Items that may not go: what they are called, and what they take, in bytes.
#[derive(Debug, Default)]
struct Kept {
    items: Vec<(usize, usize)>,
    bytes: usize,
}

/// A nearly full log, and what it may not give up.
struct Bench {
    store: LogStore,
    limits: Limits,
    random: Random,
    counters: Counters,
    kept: Kept,
    record_bytes_max: usize,
    /// The most items that there were.
    items_max: usize,
}

impl Bench {
    fn new(seed: u64, evict: bool) -> Self {
        let mut limits = Limits::new(MEMORY_BYTES, VALUE_BYTES_MAX);
        limits.evict = evict;
        Self {
            store: LogStore::with_segments(&limits, SipHash::new([seed, 2]), SEGMENT_BYTES),
            limits,
            random: Random::new(seed),
            counters: Counters::default(),
            kept: Kept::default(),
            record_bytes_max: 0,
            items_max: 0,
        }
    }

    fn chance(&mut self, of_100: u64) -> bool {
        self.random.below(100) < of_100
    }

    /// Whether there was room for an item, locked or not; if it may not go, it is kept.
    fn put(&mut self, number: usize, is_locked: bool, value: &[u8]) -> bool {
        let name = short_key(number);
        let key = Key::new(&name).expect("a legal key");
        let header = ItemHeader {
            locked: is_locked,
            ..ItemHeader::new(Cas::FIRST, NOW)
        };
        self.record_bytes_max = self
            .record_bytes_max
            .max(self.store.bytes_for(name.len(), value.len()));
        let vacancy = self.store.find(key).expect_err("each is put once");
        let value = Value::Borrowed(value);
        let counters = &mut self.counters;
        let Ok(slot) = self
            .store
            .insert(NOW, vacancy, key, header, value, counters)
        else {
            return false;
        };
        self.items_max = self.items_max.max(self.store.usage().items);
        if is_locked || !self.limits.evict {
            let bytes = self.store.item_bytes(slot);
            self.kept.bytes += bytes;
            self.kept.items.push((number, bytes));
        }
        true
    }

    /// Asks for one of the last thousand items, if it is there.
    fn hit_one_before(&mut self, number: usize) {
        let back = usize::try_from(self.random.below(1_000)).expect("small");
        let name = short_key(number.saturating_sub(back));
        if let Ok(slot) = self.store.find(Key::new(&name).expect("a legal key")) {
            self.store.record_hit(slot);
        }
    }

    /// Lets go of so many parts of a hundred of what is kept: takes items out, or unlocks them.
    fn let_go(&mut self, of_100: u64) {
        for (number, bytes) in std::mem::take(&mut self.kept.items) {
            if !self.chance(of_100) {
                self.kept.items.push((number, bytes));
                continue;
            }
            self.kept.bytes -= bytes;
            let name = short_key(number);
            let slot = self.store.find(Key::new(&name).expect("a legal key"));
            let slot = slot.expect("N2: it may not go");
            if self.limits.evict && self.chance(80) {
                let header = self.store.header(slot);
                self.store.set_header(
                    slot,
                    ItemHeader {
                        locked: false,
                        ..header
                    },
                );
            } else {
                self.store.remove(slot);
            }
        }
    }

    /// The most that the store may need for what may not go, for an item that comes, and for everything that is not an item, in
    /// bytes.
    fn needed(&self) -> usize {
        // A segment is full when a record does not fit into it, and is emptied for what is slack in it: from a quarter on if the
        // rest may be given up instead, and from a sixteenth on if nothing may.
        let slack = SEGMENT_BYTES / if self.limits.evict { 4 } else { 16 };
        // The allocator takes 64 of a segment.
        let least_full = SEGMENT_BYTES - 64 - self.record_bytes_max - slack;
        let segments = self.kept.bytes.div_ceil(least_full) + SEGMENTS_IDLE_MAX;
        // One that evicts nothing sets a part aside for locks.
        let aside = if self.limits.evict {
            0
        } else {
            MEMORY_BYTES / 32
        };
        segments * SEGMENT_BYTES + self.items_max * FOUND_BYTES + aside
    }
}

fn run(seed: u64, evict: bool, flushes_of_2000: u64, value_bytes_max: u64) -> Seen {
    let mut bench = Bench::new(seed, evict);
    let value = [0; VALUE_BYTES_MAX];
    let (mut refused, mut kept_bytes_min, mut flushes) = (0, usize::MAX, 0);
    for number in 0..ITEMS {
        let is_locked = bench.chance(30) && evict;
        let value_bytes = bench.random.below(value_bytes_max + 1);
        let value_bytes = usize::try_from(value_bytes).expect("short");
        if bench.put(number, is_locked, &value[..value_bytes]) {
            // Without it nothing is in the main queue.
            if flushes_of_2000 > 0 {
                bench.hit_one_before(number);
            }
            // What is locked outlives a flush, and its segment with it.
            if bench.random.below(2_000) < flushes_of_2000 {
                bench.store.clear();
                flushes += 1;
            }
            continue;
        }
        refused += 1;
        kept_bytes_min = kept_bytes_min.min(bench.kept.bytes);
        let (needed, kept) = (bench.needed(), bench.kept.bytes);
        assert!(
            needed > MEMORY_BYTES,
            "N8: refused, and {kept} bytes may not go, which needs {needed} of {MEMORY_BYTES} at most"
        );
        bench.store.check();
        let of_100 = 10 + bench.random.below(90);
        bench.let_go(of_100);
    }
    Seen {
        refused,
        kept_of_100_min: kept_bytes_min * 100 / MEMORY_BYTES,
        evicted: bench.counters.evictions,
        flushes,
    }
}

#[test]
fn a_log_refuses_only_what_has_no_room() {
    let seed = number_from("LATCHD_SEED", 1);
    for (evict, flushes_of_2000) in [(true, 0), (true, 1), (true, 40), (false, 0)] {
        for value_bytes_max in [64, 200, 1000] {
            let outcome = run(seed, evict, flushes_of_2000, value_bytes_max);
            println!("evicts: {evict}, values of up to {value_bytes_max}: {outcome:?}");
            assert!(
                outcome.refused > 0 && outcome.kept_of_100_min < 90,
                "{outcome:?}"
            );
            assert_eq!(outcome.evicted > 100, evict, "{outcome:?}");
            assert_eq!(outcome.flushes > 2, flushes_of_2000 > 0, "{outcome:?}");
        }
    }
}
