//! The whole store, by examples. `tests/harness/tests/oracles/stores.rs` tests the rules of all stores on
//! this one, too.

mod admission;
mod erase;
mod refusing;
mod runs;

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use bytes::Bytes;
use latchd_protocol::item::Cas;
use latchd_protocol::time::Deadline;

use super::reclaim::Haste;
use super::*;

/// A store, a clock set by hand, and its counters.
struct Bench<H = SipHash, B = Vec<u8>> {
    store: LogStore<H, B>,
    now: Tick,
    counters: Counters,
}

fn limits(memory_bytes: usize) -> Limits {
    Limits::new(memory_bytes, 1 << 20)
}

fn header() -> ItemHeader {
    ItemHeader::new(Cas::FIRST, Tick::from_count(0))
}

fn locked() -> ItemHeader {
    ItemHeader {
        locked: true,
        ..header()
    }
}

fn expiring(count: u32) -> ItemHeader {
    ItemHeader {
        deadline: Some(Deadline::at(Tick::from_count(count))),
        ..header()
    }
}

fn named(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).unwrap()
}

fn name(number: usize) -> String {
    format!("key-{number:08}")
}

impl Bench {
    fn new(memory_bytes: usize) -> Self {
        Self::of(LogStore::new(&limits(memory_bytes), [3, 4]))
    }

    fn keeping(memory_bytes: usize) -> Self {
        let mut limits = limits(memory_bytes);
        limits.evict = false;
        Self::of(LogStore::new(&limits, [3, 4]))
    }
}

impl<H: KeyHasher, B: Block> Bench<H, B> {
    fn of(store: LogStore<H, B>) -> Self {
        Self {
            store,
            now: Tick::from_count(10),
            counters: Counters::default(),
        }
    }

    fn put(&mut self, name: &str, header: ItemHeader, value: &[u8]) -> Result<(), Full> {
        let (now, counters, value) = (self.now, &mut self.counters, Value::Borrowed(value));
        match self.store.find(named(name)) {
            Ok(slot) => self.store.replace(now, slot, header, value, counters),
            Err(vacancy) => self
                .store
                .insert(now, vacancy, named(name), header, value, counters),
        }
        .map(|_| ())
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        let slot = self.store.find(named(name)).ok()?;
        Some(self.store.value(slot))
    }

    fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    fn hit(&mut self, name: &str) -> bool {
        let Ok(slot) = self.store.find(named(name)) else {
            return false;
        };
        self.store.record_hit(slot);
        true
    }

    fn unlock(&mut self, name: &str) {
        let slot = self.store.find(named(name)).unwrap();
        let header = self.store.header(slot);
        self.store.set_header(
            slot,
            ItemHeader {
                locked: false,
                ..header
            },
        );
    }

    fn remove(&mut self, name: &str) {
        let slot = self.store.find(named(name)).unwrap();
        self.store.remove(slot);
    }

    fn crawl(&mut self) {
        self.store.crawl(self.now, 1_000, &mut self.counters);
    }

    fn pass_until(&mut self, count: u32) {
        self.now = Tick::from_count(count);
    }

    /// Stores items of this value size until one is evicted or refused; returns how many are stored.
    fn fill(&mut self, value_bytes: usize) -> usize {
        let value = vec![7; value_bytes];
        let mut number = 0;
        while self.counters.evictions == 0 {
            if self.put(&name(number), header(), &value).is_err() {
                break;
            }
            number += 1;
        }
        number
    }
}

#[test]
fn an_empty_store_has_allocated_nothing() {
    let bench = Bench::new(64 << 20);
    assert_eq!(bench.store.usage(), Usage::default());
    bench.store.check();
}

#[test]
fn many_items_with_long_keys_are_distinct() {
    let mut bench = Bench::new(64 << 20);
    let long = |number: usize| format!("{number:0250}");
    for number in 0..80_000_usize {
        let value = number.to_le_bytes();
        bench.put(&long(number), header(), &value).unwrap();
    }
    bench.store.check();
    assert_eq!(bench.store.usage().items, 80_000);
    for number in 0..80_000_usize {
        let value = number.to_le_bytes();
        assert_eq!(bench.value(&long(number)), Some(value.as_slice()));
    }
    assert!(!bench.has(&long(80_000)));
}

#[test]
fn a_store_full_of_locked_items_refuses() {
    let mut bench = Bench::new(64 << 10);
    let mut count = 0;
    while bench.put(&name(count), locked(), &[7; 100]).is_ok() {
        count += 1;
    }
    bench.store.check();
    // An item takes 136 bytes. The remaining memory is kept free, or belongs to the index.
    assert!(count > (64 << 10) / 136 / 2, "{count}");
    // Another key may still fit, if its bucket of the index has a free entry.
    let fits = |number: &usize| {
        let key = format!("other-{number}");
        bench.put(&key, locked(), &[7; 100]).is_ok()
    };
    let others = (0..100).filter(fits).count();
    assert!(others < 10, "{others}");
    assert_eq!(bench.put("another", header(), &[7; 100]), Err(Full));
    assert_eq!(bench.store.usage().items, count + others);
    for number in 0..count {
        assert!(bench.has(&name(number)), "S1: {number}");
    }
    bench.put(&name(0), locked(), &[8; 100]).unwrap();
    assert_eq!(bench.value(&name(0)), Some([8; 100].as_slice()));
    for number in 0..count / 2 {
        bench.unlock(&name(number));
    }
    bench.put("another", header(), &[7; 100]).unwrap();
    assert!(bench.counters.evictions > 0);
    for number in count / 2..count {
        assert!(bench.has(&name(number)), "S1: {number}");
    }
    bench.store.check();
}

/// A value that does not fit beside the locked items is refused before others are evicted for it (S5).
#[test]
fn a_value_that_cannot_fit_evicts_nothing() {
    let mut bench = Bench::new(1 << 20);
    for number in 0..6 {
        bench
            .put(&name(number), locked(), &vec![7; 100_000])
            .unwrap();
    }
    for number in 6..1_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    let put = |bench: &mut Bench<_>, bytes| bench.put("large", header(), &vec![7; bytes]);
    assert_eq!(put(&mut bench, 500_000), Err(Full));
    assert_eq!(bench.counters.evictions, 0);
    assert_eq!(put(&mut bench, 300_000), Ok(()));
    assert!(bench.counters.evictions > 0);
    bench.store.check();
}

#[test]
fn without_eviction_a_full_store_refuses() {
    let mut bench = Bench::keeping(64 << 10);
    let count = bench.fill(100);
    assert_eq!(bench.put("another", header(), &[7; 100]), Err(Full));
    assert!((0..count).all(|number| bench.has(&name(number))));
    for number in (0..count).step_by(3) {
        bench.remove(&name(number));
    }
    let mut stored = 0;
    while bench
        .put(&name(count + stored), header(), &[7; 100])
        .is_ok()
    {
        stored += 1;
    }
    bench.store.check();
    assert!(stored > count / 4, "{stored} of {count} thirds");
    assert_eq!(bench.counters.evictions, 0);
}

#[test]
fn expired_items_are_removed_before_eviction() {
    let mut bench = Bench::new(256 << 10);
    let count = 1_000;
    for number in 0..count {
        let header = if number % 4 == 0 {
            header()
        } else {
            expiring(20)
        };
        bench.put(&name(number), header, &[7; 100]).unwrap();
    }
    assert_eq!(bench.counters.evictions, 0);
    bench.pass_until(20);
    // 750 have expired. 500 more fit without evicting a present one.
    for number in count..count + 500 + 500 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    assert_eq!(bench.counters.evictions, 0);
    assert!(bench.counters.reclaimed > 0);
    assert!((0..count).step_by(4).all(|number| bench.has(&name(number))));
    bench.store.check();
}

#[test]
fn crawl_removes_expired_items_and_frees_memory() {
    let mut bench = Bench::new(16 << 20);
    for number in 0..20_000 {
        let header = expiring(20 + u32::from(number >= 10_000));
        bench.put(&name(number), header, &[7; 100]).unwrap();
    }
    bench.crawl();
    assert_eq!(bench.counters.crawler_items_checked, 0, "nothing is due");
    bench.pass_until(20);
    for _ in 0..12 {
        bench.crawl();
    }
    assert_eq!(bench.counters.crawler_reclaimed, 10_000);
    assert_eq!(bench.store.usage().items, 10_000);
    bench.store.check();
    bench.pass_until(21);
    for _ in 0..40 {
        bench.crawl();
    }
    assert_eq!(bench.store.usage().items, 0);
    assert!(
        bench.store.usage().held_bytes < 1 << 20,
        "{} bytes",
        bench.store.usage().held_bytes
    );
    bench.store.check();
}

#[test]
fn a_locked_item_expires_when_it_is_unlocked() {
    let mut bench = Bench::new(1 << 20);
    let header = ItemHeader {
        locked: true,
        ..expiring(20)
    };
    bench.put("k", header, b"v").unwrap();
    bench.pass_until(30);
    bench.crawl();
    assert!(bench.has("k"));
    bench.unlock("k");
    bench.store.check();
    bench.crawl();
    assert!(!bench.has("k"));
}

#[test]
fn flush_is_immediate_and_spares_locked_items() {
    let mut bench = Bench::new(16 << 20);
    for number in 0..20_000 {
        let header = if number % 100 == 0 {
            locked()
        } else {
            header()
        };
        bench.put(&name(number), header, &[7; 100]).unwrap();
    }
    bench.store.clear();
    let usage = bench.store.usage();
    assert_eq!(usage.items, 200);
    assert_eq!(usage.bytes, usage.locked_bytes);
    assert!((0..20_000).all(|number| bench.has(&name(number)) == (number % 100 == 0)));
    bench.store.check();
    // A store after the flush makes a new item, whether the old one is still locked or not.
    bench.put(&name(0), locked(), &[8; 100]).unwrap();
    bench.unlock(&name(0));
    bench.put(&name(1), header(), &[8; 100]).unwrap();
    for _ in 0..60 {
        bench.crawl();
        bench.store.check();
    }
    assert_eq!(bench.value(&name(0)), Some([8; 100].as_slice()));
    assert_eq!(bench.value(&name(1)), Some([8; 100].as_slice()));
    assert!(bench.has(&name(100)) && !bench.has(&name(101)));
    assert!(bench.store.usage().held_bytes < 2 << 20);
}

#[test]
fn items_read_once_evict_no_hot_items() {
    let mut bench = Bench::new(1 << 20);
    for number in 0..2_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
        bench.hit(&name(number));
    }
    for number in 2_000..50_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
        if number % 8 == 0 {
            bench.hit(&name(number % 2_000));
        }
    }
    let kept = (0..2_000)
        .step_by(8)
        .filter(|number| bench.has(&name(*number)));
    assert!(kept.count() > 240);
    bench.store.check();
}

#[test]
fn an_item_stored_again_is_evicted_later() {
    let mut bench = Bench::new(1 << 20);
    bench.put("k", header(), &[7; 100]).unwrap();
    let mut number = 0;
    while bench.has("k") {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
        number += 1;
    }
    bench.put("k", header(), &[7; 100]).unwrap();
    for _ in 0..number * 2 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
        number += 1;
    }
    assert!(bench.has("k"));
}

#[test]
fn sizes_that_shift_leave_nothing_behind() {
    let mut bench = Bench::new(4 << 20);
    for value_bytes in [50, 500, 5_000, 100, 20_000, 60_000, 10, 250_000, 30] {
        let value = vec![7; value_bytes];
        // Twice the capacity.
        for number in 0..(8 << 20) / (value_bytes + 60) {
            bench.put(&name(number), header(), &value).unwrap();
        }
        bench.store.check();
        let usage = bench.store.usage();
        assert!(usage.held_bytes <= 4 << 20, "L3");
        // At least half of it, even where few fit.
        assert!(usage.bytes > 2 << 20, "{value_bytes}: {usage:?}");
    }
}

/// Hits let items pass through their queue, but not so often that a value that fits is refused (E2).
#[test]
fn hot_items_refuse_no_value_that_fits() {
    for value_bytes in [100, 3 << 10, 100 << 10] {
        let mut bench = Bench::new(4 << 20);
        let count = bench.fill(value_bytes);
        for number in 0..count {
            for _ in 0..record::HITS_MAX {
                bench.hit(&name(number));
            }
        }
        let value = vec![7; 3_700_000];
        bench.put("large", header(), &value).unwrap();
        assert_eq!(bench.value("large").unwrap(), value);
        bench.store.check();
    }
}

/// While no segment is free, no record is written before the segment that is being emptied is free (F1).
#[test]
fn new_records_leave_moved_items_a_place() {
    let limits = limits(4 << 20);
    let hasher = SipHash::new([3, 4]);
    let mut bench = Bench::of(LogStore::with_segments(&limits, hasher, 64 << 10));
    let count = bench.fill(100);
    for number in 0..count {
        bench.hit(&name(number));
    }
    let (now, counters) = (bench.now, &mut bench.counters);
    while bench.store.drain.is_some() {
        bench.store.drain_record(now, counters).unwrap();
    }
    while bench.store.log.spare() > 1 {
        bench.store.log.give_back();
    }
    bench.store.bytes_wanted = bench.store.held_bytes();
    bench.store.bytes_max = bench.store.bytes_wanted;
    while bench.store.free_segments() > 0 {
        bench.store.win_back(now, Haste::Now, counters).unwrap();
    }
    assert!(bench.store.drain.is_some(), "the last one is being filled");
    bench.put("new", header(), &[7; 100]).unwrap();
    assert!(bench.store.free_segments() > 0, "F1");
    bench.store.check();
}

#[test]
fn a_large_value_is_shared_and_not_copied() {
    let mut bench = Bench::new(16 << 20);
    let value = Bytes::from(vec![7; 100_000]);
    let (now, shared) = (bench.now, Value::Shared(&value));
    let Err(vacancy) = bench.store.find(named("k")) else {
        panic!("nothing is there yet")
    };
    let counters = &mut bench.counters;
    let slot = bench
        .store
        .insert(now, vacancy, named("k"), header(), shared, counters)
        .unwrap();
    let Value::Shared(kept) = bench.store.show(slot).value else {
        panic!("it was not kept as it came");
    };
    assert_eq!(kept.as_ptr(), value.as_ptr());
    let charged = bench.store.usage();
    assert!(charged.bytes > 100_000 && charged.held_bytes > charged.bytes);
    assert_eq!(bench.store.item_bytes(slot), charged.bytes);
    assert_eq!(bench.store.bytes_for(1, 100_000), charged.bytes);
    bench.remove("k");
    assert!(bench.store.usage().held_bytes < charged.held_bytes - 100_000);
    bench.store.check();
}

#[test]
fn a_value_grows_into_a_large_one_and_back() {
    let mut bench = Bench::new(4 << 20);
    bench.put("k", header(), b"begin").unwrap();
    let mut expected = b"begin".to_vec();
    for round in 0..40_usize {
        let slot = bench.store.find(named("k")).unwrap();
        let more = vec![u8::try_from(round).unwrap(); 900];
        let end = if round % 2 == 0 {
            expected.extend_from_slice(&more);
            End::Back
        } else {
            expected.splice(0..0, more.iter().copied());
            End::Front
        };
        let (now, counters) = (bench.now, &mut bench.counters);
        bench
            .store
            .extend(now, slot, header(), &more, end, counters)
            .unwrap();
        assert_eq!(bench.value("k"), Some(expected.as_slice()));
        bench.store.check();
    }
    bench.put("k", header(), b"end").unwrap();
    assert_eq!(bench.value("k"), Some(b"end".as_slice()));
    bench.store.check();
}

#[test]
fn a_value_of_equal_size_is_overwritten() {
    let mut bench = Bench::new(1 << 20);
    for number in 0..100 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    let before = bench.store.usage();
    for round in 0..10_000_usize {
        let value = vec![8; 99 + round % 4];
        bench.put(&name(round % 100), header(), &value).unwrap();
    }
    assert_eq!(bench.store.usage(), before);
    assert_eq!(bench.counters.total_items, 10_100);
    bench.store.check();
}

#[test]
fn flags_are_replaced_with_the_value() {
    let mut bench = Bench::new(1 << 20);
    for client_flags in [0, 7, 9, 0, u32::MAX] {
        let header = ItemHeader {
            client_flags,
            ..header()
        };
        bench.put("k", header, b"v").unwrap();
        let slot = bench.store.find(named("k")).unwrap();
        assert_eq!(bench.store.header(slot), header);
        bench.store.check();
    }
}

/// Counts how often a key is hashed, which every read of an item does.
struct Counting<'a>(&'a Cell<usize>, SipHash);

impl KeyHasher for Counting<'_> {
    fn hash(&self, key: Key<'_>) -> u64 {
        self.0.set(self.0.get() + 1);
        self.1.hash(key)
    }
}

#[test]
fn a_hot_queue_does_not_delay_a_store() {
    let looked_at = Cell::new(0);
    let hasher = Counting(&looked_at, SipHash::new([1, 2]));
    let limits = limits(4 << 20);
    let mut bench = Bench::of(LogStore::with_segments(&limits, hasher, 16 << 10));
    let mut most = 0;
    for number in 0..100_000 {
        looked_at.set(0);
        bench.put(&name(number), header(), &[7; 100]).unwrap();
        most = most.max(looked_at.get());
        for _ in 0..3 {
            bench.hit(&name(number));
        }
    }
    assert!(bench.counters.evictions > 50_000);
    // A segment holds 120 of them, the store 30,000.
    assert!(most < 300, "{most}");
}

/// New items move through the small queue to its end, all of them if none was hit. If all are hit only then,
/// each belongs in the main queue, and no single store may wait until all are moved there.
#[test]
fn late_hits_do_not_delay_a_store() {
    let looked_at = Cell::new(0);
    let hasher = Counting(&looked_at, SipHash::new([1, 2]));
    let limits = limits(16 << 20);
    let mut bench = Bench::of(LogStore::with_segments(&limits, hasher, 8 << 10));
    for number in 0..200_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    for number in 0..200_000 {
        bench.hit(&name(number));
    }
    let mut most = 0;
    for number in 200_000..400_000 {
        looked_at.set(0);
        bench.put(&name(number), header(), &[7; 100]).unwrap();
        most = most.max(looked_at.get());
    }
    // A segment holds 60 of them, the store 120,000.
    assert!(most < 100, "{most}");
}

/// A flush costs nothing at once, and later a bounded part with each tick.
#[test]
fn flush_reads_nothing_and_a_tick_is_bounded() {
    let looked_at = Cell::new(0);
    let hasher = Counting(&looked_at, SipHash::new([1, 2]));
    let mut bench = Bench::of(LogStore::with_hasher(&limits(16 << 20), hasher));
    for number in 0..20_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    looked_at.set(0);
    bench.store.clear();
    assert_eq!(looked_at.get(), 0);
    assert_eq!(bench.store.usage().items, 0);
    let mut ticks = 0;
    while bench.store.wants_crawl(bench.now) {
        looked_at.set(0);
        bench.store.crawl(bench.now, 100, &mut bench.counters);
        // Some are read ahead, and some of them a second time.
        assert!(looked_at.get() <= 250, "{}", looked_at.get());
        ticks += 1;
    }
    assert!(ticks >= 200, "{ticks} ticks of 100 of 20,000");
}

/// Returning large values takes the system long, so a tick counts each as many items (L4).
#[test]
fn a_tick_frees_bounded_bytes() {
    const TICK_BYTES: usize = 1_000 * (2 << 10);
    let value_bytes = 600_000;
    for is_flushed in [false, true] {
        let mut bench = Bench::new(64 << 20);
        for number in 0..50 {
            let value = vec![7; value_bytes];
            bench.put(&name(number), expiring(20), &value).unwrap();
        }
        bench.pass_until(30);
        if is_flushed {
            bench.store.clear();
        }
        let mut ticks = 0;
        while bench.store.wants_crawl(bench.now) {
            let before = bench.store.huge.held_bytes();
            bench.crawl();
            let won = before - bench.store.huge.held_bytes();
            assert!(won <= TICK_BYTES + 2 * value_bytes, "{won} bytes in a tick");
            ticks += 1;
        }
        assert_eq!(bench.store.huge.used(), 0);
        assert!(ticks >= 10, "{ticks} ticks for 30 MB");
    }
}

/// The bytes that a tick moves together, so that segments can be freed, are bounded, too (L4).
#[test]
fn a_tick_moves_bounded_bytes() {
    const TICK_BYTES: usize = 1_000 * (2 << 10);
    let value = vec![7; 20_000];
    let mut bench = Bench::new(64 << 20);
    for number in 0..1_500 {
        let header = if number % 4 == 0 {
            header()
        } else {
            expiring(20)
        };
        bench.put(&name(number), header, &value).unwrap();
    }
    bench.pass_until(30);
    while bench.store.wants_crawl(bench.now) {
        bench
            .store
            .sweep_some(bench.now, 1_000, &mut bench.counters);
    }
    let before = bench.store.log.with_memory();
    let mut ticks = 0;
    loop {
        let place = |number| bench.store.find(named(&name(number))).unwrap().address;
        let places: Vec<_> = (0..1_500).step_by(4).map(place).collect();
        bench.crawl();
        let place = |number| bench.store.find(named(&name(number))).unwrap().address;
        let moved = (0..1_500).step_by(4).zip(places);
        let moved = moved.filter(|(number, old)| place(*number) != *old).count();
        assert!(moved * value.len() <= TICK_BYTES + value.len(), "{moved}");
        if moved == 0 {
            break;
        }
        ticks += 1;
    }
    assert!(ticks >= 3, "{ticks} ticks for 7 MB");
    assert!(bench.store.log.with_memory() < before / 2);
    bench.store.check();
}

#[test]
fn a_command_hashes_its_key_once() {
    let looked_at = Cell::new(0);
    let hasher = Counting(&looked_at, SipHash::new([1, 2]));
    let mut bench = Bench::of(LogStore::with_hasher(&limits(1 << 20), hasher));
    bench.put("k", header(), b"v").unwrap();
    bench.put("k", header(), b"another value").unwrap();
    bench.hit("k");
    bench.remove("k");
    assert_eq!(looked_at.get(), 4);
}

#[test]
fn the_same_calls_give_the_same_answers() {
    let run = || {
        let mut bench = Bench::new(256 << 10);
        let mut answers = Vec::new();
        for number in 0..20_000_usize {
            let number = number * number % 4_999;
            answers.push(bench.hit(&name(number)));
            let value = vec![7; number % 700];
            let _ = bench.put(&name(number), header(), &value);
        }
        (answers, bench.counters, bench.store.usage())
    };
    assert_eq!(run(), run());
}

#[test]
fn every_item_is_listed_while_the_index_resizes() {
    let mut bench = Bench::new(16 << 20);
    for number in 0..500 {
        bench.put(&name(number), header(), b"v").unwrap();
    }
    let mut seen = Vec::new();
    let mut cursor = Some(ScanCursor::default());
    let mut pages = 0_usize;
    while let Some(from) = cursor {
        cursor = bench.store.scan(from, 10, &mut |item| {
            seen.push(String::from_utf8(item.key.as_bytes().to_vec()).unwrap());
        });
        pages += 1;
        for number in 0..200 {
            let number = 1_000 + (pages % 20) * 200 + number;
            if (pages / 20).is_multiple_of(2) {
                bench.put(&name(number), header(), b"v").unwrap();
            } else if bench.has(&name(number)) {
                bench.remove(&name(number));
            }
        }
    }
    assert!(pages > 50, "{pages} pages");
    seen.sort();
    seen.dedup();
    for number in 0..500 {
        assert!(seen.binary_search(&name(number)).is_ok(), "{number}");
    }
}

#[test]
fn the_reservation_counts_against_the_limit() {
    let mut bench = Bench::new(1 << 20);
    for number in 0..20_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    let kept = bench.store.find(named(&name(19_000))).unwrap();
    let (now, counters) = (bench.now, &mut bench.counters);
    let evicted = counters.evictions;
    let kept = bench.store.set_aside(now, Some(kept), 300_000, counters);
    assert_eq!(
        bench.store.key(kept.unwrap().unwrap()),
        named(&name(19_000))
    );
    assert!(bench.counters.evictions > evicted + 1_000);
    bench.store.check();
    let without = bench.store.usage().bytes;
    assert!(without < (1 << 20) - 300_000, "{without}");
    // More than the limit, even without all items: nothing is reserved then.
    let (now, counters) = (bench.now, &mut bench.counters);
    let refused = bench.store.set_aside(now, None, 2 << 20, counters);
    assert_eq!(refused, Err(Full));
    bench.store.check();
    let (now, counters) = (bench.now, &mut bench.counters);
    bench.store.set_aside(now, None, 0, counters).unwrap();
    for number in 0..20_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    assert!(bench.store.usage().bytes > without + 200_000);
    bench.store.check();
}

#[test]
fn a_store_without_eviction_has_a_reservation() {
    let mut bench = Bench::keeping(1 << 20);
    let stored = (0..).take_while(|number| bench.put(&name(*number), header(), b"v").is_ok());
    assert!(stored.count() > 10_000);
    let (now, counters) = (bench.now, &mut bench.counters);
    let kept = bench.store.find(named(&name(0))).ok();
    assert_eq!(bench.store.set_aside(now, kept, 30_000, counters), Ok(kept));
    let refused = bench.store.set_aside(now, kept, 60_000, counters);
    assert_eq!(refused, Err(Full));
    assert_eq!(bench.counters.evictions, 0);
    bench.store.check();
}

/// Four records fill a segment. If three are locked, the fourth is the part of a segment that may be evicted.
/// It is evicted in its turn, and remembered.
#[test]
fn a_quarter_that_is_not_locked_goes_in_its_turn() {
    let limits = limits(64 << 10);
    let hasher = SipHash::new([3, 4]);
    let mut bench = Bench::of(LogStore::with_segments(&limits, hasher, 512));
    // A record takes 128 bytes.
    let value = [7; 92];
    for number in 0..64 {
        let header = if number % 4 == 3 { header() } else { locked() };
        bench.put(&name(number), header, &value).unwrap();
    }
    assert_eq!(bench.store.log.with_memory(), 16);
    let mut number = 64;
    while (0..64).any(|number| number % 4 == 3 && bench.has(&name(number))) {
        bench.put(&name(number), header(), &value).unwrap();
        number += 1;
        assert!(number < 1_000, "they go");
    }
    let mut back = 0;
    for number in (3..64).step_by(4) {
        bench.put(&name(number), header(), &value).unwrap();
        let slot = bench.store.find(named(&name(number))).unwrap();
        let (segment, _) = bench.store.geometry.place(slot.address);
        back += usize::from(bench.store.log.queue(segment) == queue::Queue::Main);
    }
    // Another one may have overwritten its mark.
    assert!(back > 8, "{back} of 16 are known again");
    bench.store.check();
}

/// A repeated reservation of the same size needs no memory, although the store is above a lowered limit.
#[test]
fn a_repeated_reservation_needs_no_memory() {
    let mut bench = Bench::new(1 << 20);
    for number in 0..4_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    assert_eq!(bench.store.log.spare(), 0);
    let lower = limits(1 << 20).with_memory(256 << 10);
    let (now, counters) = (bench.now, &mut bench.counters);
    bench.store.set_memory(now, &lower, counters);
    assert_eq!(bench.store.set_aside(now, None, 0, counters), Ok(None));
    assert_eq!(counters.evictions, 0);
}

/// Just below a limit at which one more segment fits, no work is left: it can still be allocated when it is
/// needed.
#[test]
fn only_a_limit_below_the_next_segment_allocates_it() {
    let stored = || {
        let mut bench = Bench::new(1 << 20);
        for number in 0..2_000 {
            bench.put(&name(number), header(), &[7; 100]).unwrap();
        }
        assert_eq!(bench.store.log.spare(), 0);
        bench.store
    };
    let (mut fits, mut lacks_a_byte) = (stored(), stored());
    let held = fits.held_bytes();
    let with_another = held + fits.log.allocate_bytes().unwrap();
    fits.set_limit(&limits(1 << 20).with_memory(with_another));
    assert_eq!((fits.log.spare(), fits.held_bytes()), (0, held));
    lacks_a_byte.set_limit(&limits(1 << 20).with_memory(with_another - 1));
    let after = (lacks_a_byte.log.spare(), lacks_a_byte.held_bytes());
    assert_eq!(after, (1, with_another));
}

/// A store that is not full has no segment to move items to, and after a lowered limit could not allocate
/// one. If the open segment was full, too, no item next to a locked one could be evicted.
#[test]
fn a_lower_limit_leaves_a_segment_to_carry_to() {
    for items in 3_900..4_000 {
        let mut bench = Bench::new(1 << 20);
        let of_four = |number| {
            if number % 4 == 0 { locked() } else { header() }
        };
        for number in 0..items {
            bench
                .put(&name(number), of_four(number), &[7; 100])
                .unwrap();
        }
        assert_eq!(bench.store.log.spare(), 0);
        let lower = limits(1 << 20).with_memory(256 << 10);
        let (now, counters) = (bench.now, &mut bench.counters);
        bench.store.set_memory(now, &lower, counters);
        for number in items..items + 100 {
            assert_eq!(
                bench.put(&name(number), header(), &[7; 100]),
                Ok(()),
                "{number}, {items} before"
            );
        }
        bench.store.check();
    }
}

#[test]
fn an_empty_store_has_no_marks() {
    let mut bench = Bench::new(256 << 10);
    for number in 0..5_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    assert!(bench.store.ghost.held_bytes() > 0, "some were evicted");
    for number in 0..5_000 {
        if bench.has(&name(number)) {
            bench.remove(&name(number));
        }
    }
    bench.crawl();
    assert_eq!(bench.store.ghost.held_bytes(), 0);
}

/// All memory of a full store is in segments. Evicted items still leave their marks: after every item was
/// replaced a few times, the table has all of its parts.
#[test]
fn a_full_store_has_room_for_all_marks() {
    for memory_bytes in [1 << 20, 4 << 20] {
        let hasher = SipHash::new([3, 4]);
        let limits = limits(memory_bytes);
        let mut bench = Bench::of(LogStore::with_segments(&limits, hasher, 4 << 10));
        let items = 3 * memory_bytes / 128;
        for number in 0..items {
            bench.put(&name(number), header(), &[7; 100]).unwrap();
        }
        let store = &bench.store;
        // Eight marks of two bytes for each bucket.
        let least_bytes = store.index.buckets() * 8 * 2;
        let held_bytes = store.ghost.held_bytes();
        assert!(held_bytes >= least_bytes, "{held_bytes} of {least_bytes}");
        store.check();
    }
}

/// A mark in an allocated part of the table needs no memory, so it is written in a full store, too.
#[test]
fn a_full_store_writes_marks_in_allocated_parts() {
    let mut bench = Bench::new(1 << 20);
    for number in 0..20_000 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
    }
    bench.store.bytes_max = bench.store.held_bytes() - 1;
    assert!(!bench.store.fits(0));
    for number in 1..1_000_u64 {
        let hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bucket = bench.store.index.bucket(hash);
        assert_eq!(bench.store.ghost.note_bytes(hash, bucket), 0);
        bench.store.remember(hash);
        assert!(bench.store.ghost.remembers(hash, bucket));
    }
}

/// An item that is always present is listed once, even if the index shrinks between two pages and the next
/// page begins in the middle of a bucket.
#[test]
fn no_item_is_listed_twice_after_shrinking() {
    let is_kept = |number: usize| number.is_multiple_of(20);
    for pages in 1..40 {
        let mut bench = Bench::new(16 << 20);
        for number in 0..4_000 {
            bench.put(&name(number), header(), b"v").unwrap();
        }
        let mut seen = Vec::new();
        let mut cursor = Some(ScanCursor::default());
        let mut page = 0;
        while let Some(from) = cursor {
            cursor = bench.store.scan(from, 30, &mut |item| {
                seen.push(item.key.as_bytes().to_vec());
            });
            page += 1;
            if page == pages {
                for number in (0..4_000).filter(|number| !is_kept(*number)) {
                    bench.remove(&name(number));
                }
            }
        }
        for number in (0..4_000).filter(|number| is_kept(*number)) {
            let name = name(number);
            let times = seen.iter().filter(|key| *key == name.as_bytes()).count();
            assert_eq!(times, 1, "{name}, after {pages} pages");
        }
    }
}

/// The unused end of a segment that was sealed short can be freed. Otherwise, with one locked item in each
/// segment, nothing could be stored, even after all were unlocked.
#[test]
fn segments_of_one_locked_item_are_reused() {
    let mut limits = limits(128 << 10);
    limits.value_bytes_max = 1 << 10;
    let mut bench = Bench::of(LogStore::with_segments(
        &limits,
        SipHash::new([3, 4]),
        4 << 10,
    ));
    let mut number = 0;
    for round in 0..20 {
        let first = number;
        while bench.put(&name(number), locked(), &[0; 700]).is_ok() {
            number += 1;
        }
        // Five of them fill a segment, and some of the 32 segments are always free.
        assert!(
            number - first > 5 * 16,
            "{} in round {round}",
            number - first
        );
        for locked in first..number {
            bench.unlock(&name(locked));
        }
        bench.store.check();
    }
}

/// While segments have flushed items, none that was stored since is evicted, also not in advance. Each of these segments has so
/// many locked items that its sweep frees little.
#[test]
fn flushed_items_leave_before_present_ones() {
    let limits = limits(1 << 20);
    let hasher = SipHash::new([3, 4]);
    let mut bench = Bench::of(LogStore::with_segments(&limits, hasher, 4 << 10));
    for number in 0..3_800 {
        let header = if number % 29 == 0 { header() } else { locked() };
        bench.put(&name(number), header, &[7; 100]).unwrap();
    }
    bench.store.clear();
    assert!(bench.store.log.holds_flushed());
    let mut number = 10_000;
    while bench.counters.evictions == 0 {
        bench.put(&name(number), header(), &[7; 100]).unwrap();
        number += 1;
    }
    assert!(!bench.store.log.holds_flushed());
    bench.store.check();
}
