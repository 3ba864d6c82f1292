//! When a log that is nearly full refuses (N8, E2): only if the kept items take so much, packed as
//! loosely as segments may be, that the new item has no place beside them. An item that is no
//! longer locked is not in the way, wherever it stands; nor is one that was replaced, taken out,
//! flushed, or has expired. Lengths on both sides of the largest value in a segment, locks and
//! changes are drawn together.

use std::collections::BTreeMap;

use latchd_core::Limits;
use latchd_core::store::{End, LogStore, SipHash, Store};
use latchd_harness::random::Random;
use latchd_harness::stores::SEGMENTS_IDLE_MAX;
use latchd_protocol::item::{Cas, ItemHeader};
use latchd_protocol::key::Key;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::{Deadline, Tick};
use latchd_protocol::value::Value;

use super::{NOW, number_from, short_key};

const SEGMENT_BYTES: usize = 4 << 10;

const MEMORY_BYTES: usize = 128 * SEGMENT_BYTES;

/// The most that is set aside, in bytes.
const ASIDE_BYTES_MAX: usize = MEMORY_BYTES / 8;

/// How many items are stored, one after the other.
const ITEMS: usize = 40_000;

/// Calls about an existing item choose one of so many of the last.
const LAST: u64 = 1_000;

/// The longest value that stands in a segment here, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 10;

/// The longest of all, in bytes: it has an allocation of its own.
const LARGE_BYTES_MAX: usize = 3 * SEGMENT_BYTES;

/// What a segment holds of an item whose value has an allocation of its own, besides head and key, in bytes.
const STUB_BYTES: usize = 4;

/// The longest that an item lives that expires, in ticks.
const TTL_MAX: u64 = 400;

/// The bytes by which an item is found and remembered: 64 bytes for ten items in the index, which
/// has room to grow, and a mark of two bytes.
const FOUND_BYTES: usize = 10;

/// The bytes by which a large value is listed. That memory is never freed.
const LARGE_LISTED_BYTES: usize = 80;

/// The actions of a run.
#[derive(Clone, Copy, Debug)]
struct Course {
    evict: bool,
    /// The longest of most values, in bytes.
    value_bytes_max: u64,
    flushes_of_10_000: u64,
    /// How many hits an existing item gets after each step. Without hits the main queue stays empty.
    hits: u64,
    /// The percentage of steps that change an existing item: another value, more of it, another
    /// lock, none.
    changes_of_100: u64,
    /// The percentage of items with a ttl; then time passes.
    expire_of_100: u64,
    /// How many of a thousand values are large.
    large_of_1000: u64,
    /// After which part of a thousand items the longest length of the following ones changes.
    shifts_of_1000: u64,
    /// The percentage of new items that are locked.
    locked_of_100: u64,
    /// The most items that are locked at once.
    locked_max: usize,
    /// After which part of two thousand steps another part of the memory is set aside.
    asides_of_2000: u64,
    /// After which part of two thousand steps the limit changes.
    limits_of_2000: u64,
}

/// Items are stored, locked and unlocked, and nothing else.
const PLAIN: Course = Course {
    evict: true,
    value_bytes_max: 200,
    flushes_of_10_000: 0,
    hits: 0,
    changes_of_100: 0,
    expire_of_100: 0,
    large_of_1000: 0,
    shifts_of_1000: 0,
    locked_of_100: 30,
    locked_max: usize::MAX,
    asides_of_2000: 0,
    limits_of_2000: 0,
};

/// The cases that a run has met.
#[derive(Debug, Default)]
struct Seen {
    refused: usize,
    /// The least percentage of the memory that was kept when a call was refused.
    kept_of_100_min: usize,
    evicted: u64,
    flushes: usize,
    changed: usize,
    large: usize,
    reclaimed: u64,
    /// How often another part was set aside, or could not be, for want of room.
    asides: usize,
    asides_refused: usize,
    /// How often the limit became less than the held bytes.
    lowered: usize,
}

/// An item that may not be evicted.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Its bytes in a segment.
    record_bytes: usize,
    /// Those of a value outside of it.
    outside_bytes: usize,
    is_locked: bool,
    /// It was stored before the last flush: it may go when it is unlocked.
    is_flushed: bool,
    deadline: Option<Deadline>,
}

/// A nearly full log, and the items that it may not evict.
struct Bench {
    store: LogStore,
    course: Course,
    limits: Limits,
    random: Random,
    counters: Counters,
    now: Tick,
    kept: BTreeMap<usize, Kept>,
    aside_bytes: usize,
    /// The longest of most values, in bytes.
    value_bytes_max: u64,
    record_bytes_max: usize,
    /// The most items that there were.
    items_max: usize,
    seen: Seen,
}

impl Bench {
    fn new(seed: u64, course: Course) -> Self {
        let mut limits = Limits::new(MEMORY_BYTES, LARGE_BYTES_MAX);
        limits.evict = course.evict;
        Self {
            store: LogStore::with_segments(&limits, SipHash::new([seed, 2]), SEGMENT_BYTES),
            course,
            limits,
            random: Random::new(seed),
            counters: Counters::default(),
            now: NOW,
            kept: BTreeMap::new(),
            aside_bytes: 0,
            value_bytes_max: course.value_bytes_max,
            record_bytes_max: 0,
            items_max: 0,
            seen: Seen::default(),
        }
    }

    fn chance(&mut self, of_100: u64) -> bool {
        self.random.chance(of_100, 100)
    }

    /// How long a value is, in bytes.
    fn draw_bytes(&mut self) -> usize {
        if self.random.chance(self.course.shifts_of_1000, 1_000) {
            self.value_bytes_max = 1 + self.random.below(LARGE_BYTES_MAX as u64);
        }
        let is_large = self.random.chance(self.course.large_of_1000, 1_000);
        let bytes_max = if is_large {
            LARGE_BYTES_MAX as u64
        } else {
            self.value_bytes_max
        };
        let bytes = usize::try_from(self.random.below(bytes_max + 1)).expect("short");
        self.seen.large += usize::from(bytes > VALUE_BYTES_MAX);
        bytes
    }

    fn draw_deadline(&mut self) -> Option<Deadline> {
        let ticks = u32::try_from(1 + self.random.below(TTL_MAX)).expect("few");
        let expires = self.chance(self.course.expire_of_100);
        expires.then(|| Deadline::at(Tick::from_count(self.now.count() + ticks)))
    }

    /// One of the last items, if it is there: its number, and its slot.
    fn draw_there(&mut self, number: usize) -> Option<(usize, <LogStore as Store>::Slot)> {
        let back = usize::try_from(self.random.below(LAST)).expect("small");
        let number = number.saturating_sub(back);
        let found = self.store.find(Key::new(&short_key(number))?).ok()?;
        Some((number, found))
    }

    /// The most bytes that an item takes in a segment.
    fn note_record(&mut self, number: usize, value_bytes: usize) {
        let in_segment = value_bytes.min(VALUE_BYTES_MAX);
        let bytes = self.store.bytes_for(short_key(number).len(), in_segment);
        self.record_bytes_max = self.record_bytes_max.max(bytes);
    }

    /// The header of an item has changed.
    fn keep_on(&mut self, number: usize, slot: <LogStore as Store>::Slot, header: ItemHeader) {
        self.store.set_header(slot, header);
        let is_flushed = self.kept.get(&number).is_some_and(|kept| kept.is_flushed);
        if is_flushed && !header.locked {
            self.kept.remove(&number);
        } else {
            self.keep(number, slot, is_flushed);
        }
    }

    /// An item is there.
    fn keep(&mut self, number: usize, slot: <LogStore as Store>::Slot, is_flushed: bool) {
        let header = self.store.header(slot);
        self.items_max = self.items_max.max(self.store.usage().items);
        if header.locked || !self.course.evict {
            let bytes = self.store.item_bytes(slot);
            let key_bytes = short_key(number).len();
            let record_bytes = if self.store.value(slot).len() > VALUE_BYTES_MAX {
                self.store.bytes_for(key_bytes, STUB_BYTES)
            } else {
                bytes
            };
            let kept = Kept {
                record_bytes,
                outside_bytes: bytes - record_bytes,
                is_locked: header.locked,
                is_flushed,
                deadline: header.deadline,
            };
            self.kept.insert(number, kept);
        } else {
            self.kept.remove(&number);
        }
    }

    /// Whether there was room for a new item.
    fn put(&mut self, number: usize) -> Result<(), usize> {
        let name = short_key(number);
        let key = Key::new(&name).expect("a legal key");
        let header = ItemHeader {
            locked: self.chance(self.course.locked_of_100)
                && self.kept.len() < self.course.locked_max,
            deadline: self.draw_deadline(),
            ..ItemHeader::new(Cas::FIRST, self.now)
        };
        let bytes = self.draw_bytes();
        self.note_record(number, bytes);
        let value = vec![0; bytes];
        let vacancy = self.store.find(key).expect_err("each is put once");
        let value = Value::Borrowed(&value);
        let (now, counters) = (self.now, &mut self.counters);
        let slot = self
            .store
            .insert(now, vacancy, key, header, value, counters)
            .map_err(|_| self.store.bytes_for(name.len(), bytes))?;
        self.keep(number, slot, false);
        Ok(())
    }

    /// Changes one of the last items, if there is room; otherwise returns the bytes of the demand.
    fn change(&mut self, number: usize) -> Result<(), usize> {
        let Some((number, slot)) = self.draw_there(number) else {
            return Ok(());
        };
        self.seen.changed += 1;
        let mut header = self.store.header(slot);
        let bytes = self.draw_bytes();
        let (now, name) = (self.now, short_key(number));
        // Until there is room for the new value, the old one stays.
        let old_bytes = self.store.item_bytes(slot);
        let what = self.random.below(10);
        let slot = match what {
            0 => {
                self.store.remove(slot);
                self.kept.remove(&number);
                return Ok(());
            }
            1..=3 => {
                header.locked = !header.locked && self.kept.len() < self.course.locked_max;
                self.keep_on(number, slot, header);
                return Ok(());
            }
            4 => {
                header.deadline = self.draw_deadline();
                self.keep_on(number, slot, header);
                return Ok(());
            }
            5 if self.store.value(slot).len() + bytes <= LARGE_BYTES_MAX => {
                let all = self.store.value(slot).len() + bytes;
                let end = if bytes.is_multiple_of(2) {
                    End::Back
                } else {
                    End::Front
                };
                self.note_record(number, all);
                let counters = &mut self.counters;
                self.store
                    .extend(now, slot, header, &vec![0; bytes], end, counters)
                    .map_err(|_| old_bytes + self.store.bytes_for(name.len(), all))?
            }
            _ => {
                self.note_record(number, bytes);
                let value = vec![0; bytes];
                let (value, counters) = (Value::Borrowed(&value), &mut self.counters);
                self.store
                    .replace(now, slot, header, value, counters)
                    .map_err(|_| old_bytes + self.store.bytes_for(name.len(), bytes))?
            }
        };
        self.keep(number, slot, false);
        Ok(())
    }

    /// Whether there was room to set something else aside; or else how much more than before it was, in bytes.
    fn set_aside(&mut self) -> Result<(), usize> {
        let bytes = self.random.below(ASIDE_BYTES_MAX as u64);
        let bytes = usize::try_from(bytes).expect("it is in memory");
        self.seen.asides += 1;
        let (now, counters) = (self.now, &mut self.counters);
        if self.store.set_aside(now, None, bytes, counters).is_err() {
            self.seen.asides_refused += 1;
            return Err(bytes.saturating_sub(self.aside_bytes));
        }
        self.aside_bytes = bytes;
        Ok(())
    }

    /// Changes the limit, to at least half of the first one.
    fn change_limit(&mut self) {
        let bytes = MEMORY_BYTES / 2;
        let more = usize::try_from(self.random.below(bytes as u64 + 1)).expect("it is in memory");
        self.limits.memory_bytes_max = bytes + more;
        self.store
            .judge_memory(bytes + more)
            .expect("it is enough for the fewest segments");
        self.seen.lowered += usize::from(self.store.usage().held_bytes > bytes + more);
        self.store
            .set_memory(self.now, &self.limits, &mut self.counters);
    }

    /// Does the events of a step that store nothing.
    fn go_on(&mut self, number: usize) {
        for _ in 0..self.course.hits {
            if let Some((_, slot)) = self.draw_there(number) {
                self.store.record_hit(slot);
            }
        }
        // A locked item outlives a flush, and its segment with it.
        if self.random.chance(self.course.flushes_of_10_000, 10_000) {
            self.store.clear();
            self.kept.retain(|_, kept| kept.is_locked);
            let all = self.kept.values_mut();
            all.for_each(|kept| kept.is_flushed = true);
            self.seen.flushes += 1;
        }
        if self.random.chance(self.course.limits_of_2000, 2_000) {
            self.change_limit();
        }
        if self.course.expire_of_100 > 0 && self.chance(10) {
            self.now = Tick::from_count(self.now.count() + 1);
            // Otherwise only a request for room takes out expired items.
            if self.course.large_of_1000 > 0 && self.chance(20) {
                self.store.crawl(self.now, 100, &mut self.counters);
            }
        }
    }

    /// Releases `of_100` percent of the kept items: takes items out, or unlocks them.
    fn let_go(&mut self, of_100: u64) {
        let all: Vec<usize> = self.kept.keys().copied().collect();
        for number in all {
            if !self.chance(of_100) {
                continue;
            }
            self.kept.remove(&number);
            let name = short_key(number);
            let slot = self.store.find(Key::new(&name).expect("a legal key"));
            let slot = slot.expect("N2: it may not go");
            if self.course.evict && self.chance(80) {
                let mut header = self.store.header(slot);
                header.locked = false;
                self.store.set_header(slot, header);
            } else {
                self.store.remove(slot);
            }
        }
    }

    /// Forgets the kept items that have expired.
    fn expire(&mut self) {
        let now = self.now;
        let has_passed = |deadline: Deadline| deadline.has_passed(now);
        self.kept
            .retain(|_, kept| kept.is_locked || !kept.deadline.is_some_and(has_passed));
    }

    /// The bytes of the kept items in segments, and outside of them.
    fn kept_bytes(&self) -> (usize, usize) {
        let all = self.kept.values();
        all.fold((0, 0), |(records, outside), kept| {
            (records + kept.record_bytes, outside + kept.outside_bytes)
        })
    }

    /// The most bytes that the store may need for the kept items, for a new item, and for
    /// everything that is not an item.
    fn needed(&self, asked_bytes: usize) -> usize {
        let (kept_bytes, outside_bytes) = self.kept_bytes();
        // A segment is full when a record does not fit into it, and is emptied at last because of a
        // sixteenth of slack. The allocator takes 64 of a segment.
        let least_full = SEGMENT_BYTES - 64 - self.record_bytes_max - SEGMENT_BYTES / 16;
        let segments = kept_bytes.div_ceil(least_full) + SEGMENTS_IDLE_MAX;
        // Large items are asked for besides.
        let large = asked_bytes.saturating_sub(self.record_bytes_max);
        // One that evicts nothing sets a part aside for locks.
        let aside_min = if self.course.evict {
            0
        } else {
            self.limits.memory_bytes_max / 32
        };
        let aside = aside_min.max(self.aside_bytes.next_multiple_of(SEGMENT_BYTES));
        let large_max = self.items_max.min(MEMORY_BYTES / VALUE_BYTES_MAX);
        let items = self.items_max * FOUND_BYTES + large_max * LARGE_LISTED_BYTES;
        segments * SEGMENT_BYTES + outside_bytes + items + aside + large
    }
}

fn run(seed: u64, course: Course) -> Seen {
    let mut bench = Bench::new(seed, course);
    let mut kept_bytes_min = usize::MAX;
    for number in 0..ITEMS {
        let outcome = if bench.random.chance(course.asides_of_2000, 2_000) {
            bench.set_aside()
        } else if bench.chance(course.changes_of_100) {
            bench.change(number)
        } else {
            bench.put(number)
        };
        let Err(asked) = outcome else {
            bench.go_on(number);
            continue;
        };
        bench.seen.refused += 1;
        bench.expire();
        let (records, outside) = bench.kept_bytes();
        let kept = records + outside;
        kept_bytes_min = kept_bytes_min.min(kept);
        let (needed, limit) = (bench.needed(asked), bench.limits.memory_bytes_max);
        assert!(
            needed > limit,
            "N8: {asked} bytes refused, and {kept} may not go, which needs {needed} of {limit} at most: {course:?}"
        );
        bench.store.check();
        let of_100 = if bench.chance(50) { 10 } else { 100 };
        let of_100 = 1 + bench.random.below(of_100);
        bench.let_go(of_100);
    }
    bench.seen.kept_of_100_min = kept_bytes_min / (MEMORY_BYTES / 100);
    bench.seen.evicted = bench.counters.evictions;
    bench.seen.reclaimed = bench.counters.reclaimed;
    bench.seen
}

/// Plays a run with short values and with longer ones.
fn check(course: Course) {
    let seed = number_from("TEST_SEED", 1);
    for value_bytes_max in [64, 200, 1000] {
        let course = Course {
            value_bytes_max,
            ..course
        };
        let outcome = run(seed, course);
        println!("{course:?}: {outcome:?}");
        let has_large = course.large_of_1000 + course.shifts_of_1000 > 0;
        if course.locked_max == usize::MAX {
            // Large values have no unused ends.
            let full = if has_large { 95 } else { 90 };
            assert!(
                outcome.refused > 0 && outcome.kept_of_100_min < full,
                "{outcome:?}"
            );
        } else {
            assert_eq!(outcome.refused, 0, "{outcome:?}");
        }
        assert_eq!(outcome.evicted > 100, course.evict, "{outcome:?}");
        assert_eq!(
            outcome.flushes > 0,
            course.flushes_of_10_000 > 0,
            "{outcome:?}"
        );
        assert_eq!(
            outcome.changed > 100,
            course.changes_of_100 > 0,
            "{outcome:?}"
        );
        assert_eq!(outcome.large > 10, has_large, "{outcome:?}");
        assert_eq!(
            outcome.reclaimed > 100,
            course.expire_of_100 > 0,
            "{outcome:?}"
        );
        assert_eq!(
            outcome.asides > 10,
            course.asides_of_2000 > 0,
            "{outcome:?}"
        );
        assert_eq!(
            outcome.lowered > 2,
            course.limits_of_2000 > 0,
            "{outcome:?}"
        );
    }
}

#[test]
fn a_log_refuses_only_without_room() {
    for flushes_of_10_000 in [0, 5, 200] {
        check(Course {
            flushes_of_10_000,
            hits: flushes_of_10_000.min(1),
            ..PLAIN
        });
    }
    check(Course {
        evict: false,
        ..PLAIN
    });
}

/// The same while items change: an item that was replaced, taken out or has expired is not in the
/// way.
#[test]
fn a_changing_log_refuses_only_without_room() {
    for evict in [true, false] {
        let changes = Course {
            evict,
            changes_of_100: 50,
            ..PLAIN
        };
        check(changes);
        // If nothing changes there is no slack, and no segment is emptied only because its items
        // have expired.
        for changes_of_100 in [0, 50] {
            check(Course {
                changes_of_100,
                expire_of_100: 60,
                ..changes
            });
        }
        check(Course {
            large_of_1000: 10,
            ..changes
        });
        check(Course {
            asides_of_2000: 100,
            ..changes
        });
        check(Course {
            limits_of_2000: 10,
            ..changes
        });
        check(Course {
            flushes_of_10_000: 2,
            hits: 1,
            expire_of_100: 10,
            large_of_1000: 5,
            asides_of_2000: 10,
            limits_of_2000: 2,
            ..changes
        });
    }
}

/// A few locked items obstruct no other item of any length: no call is refused.
#[test]
fn a_few_locked_items_refuse_nothing() {
    for locked_max in [1, 20] {
        for (large_of_1000, shifts_of_1000) in [(0, 0), (30, 5), (500, 0), (1_000, 0)] {
            for (hits, changes_of_100) in [(0, 0), (0, 50), (3, 50)] {
                check(Course {
                    hits,
                    changes_of_100,
                    large_of_1000,
                    shifts_of_1000,
                    locked_max,
                    ..PLAIN
                });
            }
        }
    }
}

/// The same with any number of locked items, and everything else: refused only without room.
#[test]
fn lengths_locks_and_changes_refuse_only_without_room() {
    for locked_of_100 in [1, 30] {
        for (large_of_1000, shifts_of_1000) in [(0, 5), (500, 0), (1_000, 0)] {
            for (hits, flushes_of_10_000, limits_of_2000) in
                [(0, 0, 0), (3, 0, 0), (10, 5, 0), (1, 2, 5)]
            {
                check(Course {
                    flushes_of_10_000,
                    hits,
                    changes_of_100: 30,
                    large_of_1000,
                    shifts_of_1000,
                    locked_of_100,
                    limits_of_2000,
                    ..PLAIN
                });
            }
        }
    }
}
