//! Long runs of one store, in which all invariants are checked again and again.
//!
//! `tests/harness/tests/oracles/stores.rs` compares the items of shorter runs with a list. These runs have more memory,
//! more items and more segments. Each run favours other calls.

use super::*;

/// How often the invariants of a run are checked.
const CHECKS: usize = 20;

/// A call in a run.
#[derive(Clone, Copy, Debug)]
enum Call {
    Put,
    Read,
    Extend,
    Remove,
    Lock,
    LockRow,
    Unlock,
    Touch,
    Crawl,
    Pass,
    Flush,
    Aside,
    Memory,
    Page,
    Whole,
}

/// A long run.
struct Run {
    name: &'static str,
    memory_bytes: usize,
    /// The size of a segment; 0 for that of [`Geometry::for_memory`].
    segment_bytes: usize,
    evict: bool,
    calls: usize,
    /// Alternates between storing and removing items after so many calls; never if 0.
    wave: usize,
    /// The number of keys; small numbers are used more often.
    keys: usize,
    /// The longest lengths of values, in bytes.
    value_bytes: [usize; 4],
    /// The frequency of each call, in thousandths. [`Call::Put`] and [`Call::Read`] share the rest equally.
    often: &'static [(Call, usize)],
}

const RUNS: [Run; 11] = [
    Run {
        name: "mixed",
        memory_bytes: 1 << 20,
        segment_bytes: 0,
        evict: true,
        calls: 60_000,
        wave: 0,
        keys: 12_000,
        value_bytes: [20, 100, 600, 3_000],
        often: &[
            (Call::Remove, 20),
            (Call::Extend, 30),
            (Call::Lock, 50),
            (Call::Unlock, 8),
            (Call::Touch, 30),
            (Call::Crawl, 4),
            (Call::Pass, 5),
        ],
    },
    Run {
        name: "hot",
        memory_bytes: 128 << 10,
        segment_bytes: 4 << 10,
        evict: true,
        calls: 60_000,
        wave: 0,
        keys: 4_000,
        value_bytes: [100, 100, 100, 100],
        often: &[(Call::Crawl, 2), (Call::Read, 600)],
    },
    Run {
        name: "keeping",
        memory_bytes: 256 << 10,
        segment_bytes: 0,
        evict: false,
        calls: 40_000,
        wave: 0,
        keys: 3_000,
        value_bytes: [10, 60, 300, 900],
        often: &[
            (Call::Remove, 200),
            (Call::Extend, 50),
            (Call::Aside, 20),
            (Call::Lock, 20),
            (Call::Unlock, 5),
            (Call::Crawl, 10),
            (Call::Touch, 10),
            (Call::Pass, 2),
        ],
    },
    Run {
        name: "tiny",
        memory_bytes: 64 << 10,
        segment_bytes: 512,
        evict: true,
        calls: 40_000,
        wave: 0,
        keys: 2_000,
        value_bytes: [10, 60, 120, 700],
        often: &[
            (Call::Remove, 50),
            (Call::Lock, 40),
            (Call::Unlock, 10),
            (Call::Crawl, 3),
            (Call::Pass, 5),
            (Call::Extend, 20),
        ],
    },
    Run {
        name: "limits",
        memory_bytes: 1 << 20,
        segment_bytes: 8 << 10,
        evict: true,
        calls: 40_000,
        wave: 0,
        keys: 8_000,
        value_bytes: [20, 100, 900, 4_000],
        often: &[
            (Call::Memory, 2),
            (Call::Aside, 5),
            (Call::Remove, 50),
            (Call::Crawl, 20),
            (Call::Lock, 20),
            (Call::Unlock, 5),
        ],
    },
    Run {
        name: "flushes",
        memory_bytes: 256 << 10,
        segment_bytes: 0,
        evict: true,
        calls: 40_000,
        wave: 0,
        keys: 3_000,
        value_bytes: [20, 100, 300, 3_000],
        often: &[
            (Call::Flush, 1),
            (Call::Lock, 60),
            (Call::Unlock, 10),
            (Call::Crawl, 10),
            (Call::Touch, 20),
            (Call::Pass, 5),
        ],
    },
    Run {
        name: "large",
        memory_bytes: 4 << 20,
        segment_bytes: 0,
        evict: true,
        calls: 10_000,
        wave: 0,
        keys: 1_500,
        value_bytes: [30, 9_000, 60_000, 200_000],
        often: &[
            (Call::Remove, 50),
            (Call::Extend, 30),
            (Call::Lock, 20),
            (Call::Unlock, 5),
            (Call::Touch, 20),
            (Call::Crawl, 20),
            (Call::Pass, 5),
        ],
    },
    Run {
        name: "many",
        memory_bytes: 4 << 20,
        segment_bytes: 0,
        evict: true,
        calls: 160_000,
        wave: 40_000,
        keys: 20_000,
        value_bytes: [0, 3, 8, 20],
        often: &[(Call::Page, 20), (Call::Crawl, 20)],
    },
    Run {
        name: "crowded",
        memory_bytes: 512 << 10,
        segment_bytes: 0,
        evict: true,
        calls: 160_000,
        wave: 30_000,
        keys: 40_000,
        value_bytes: [0, 3, 8, 20],
        often: &[(Call::Page, 5), (Call::Crawl, 5), (Call::Read, 200)],
    },
    Run {
        name: "whole",
        memory_bytes: 256 << 10,
        segment_bytes: 2 << 10,
        evict: true,
        calls: 60_000,
        wave: 0,
        keys: 2_500,
        value_bytes: [100, 100, 100, 100],
        often: &[(Call::Whole, 1), (Call::Read, 800)],
    },
    Run {
        name: "rows",
        memory_bytes: 128 << 10,
        segment_bytes: 512,
        evict: true,
        calls: 40_000,
        wave: 0,
        keys: 4_000,
        value_bytes: [20, 20, 20, 20],
        often: &[(Call::LockRow, 10), (Call::Unlock, 100), (Call::Read, 200)],
    },
];

/// The number of items locked in a row: more than the smallest segment holds.
const ROW: usize = 12;

/// A run in progress.
struct Played<'a> {
    run: &'a Run,
    bench: Bench,
    drawn: u64,
    locked: Vec<usize>,
    cursor: ScanCursor,
    calls: usize,
}

impl<'a> Played<'a> {
    fn new(run: &'a Run) -> Self {
        let mut limits = limits(run.memory_bytes);
        limits.evict = run.evict;
        let hasher = SipHash::new([5, 6]);
        let bench = Bench::of(if run.segment_bytes == 0 {
            LogStore::with_hasher(&limits, hasher)
        } else {
            LogStore::with_segments(&limits, hasher, run.segment_bytes)
        });
        Self {
            run,
            bench,
            drawn: 0x9E37_79B9_7F4A_7C15,
            locked: Vec::new(),
            cursor: ScanCursor::default(),
            calls: 0,
        }
    }

    /// The next number below `below`: xorshift, after Marsaglia.
    fn draw(&mut self, below: usize) -> usize {
        self.drawn ^= self.drawn << 13;
        self.drawn ^= self.drawn >> 7;
        self.drawn ^= self.drawn << 17;
        usize::try_from(self.drawn >> 11).unwrap() % below
    }

    fn draw_key(&mut self) -> usize {
        let keys = self.run.keys;
        self.draw(keys) * self.draw(keys) / keys
    }

    fn draw_value(&mut self) -> Vec<u8> {
        let most = self.run.value_bytes[self.draw(4)];
        let len = self.draw(most + 1);
        vec![b'v'; len]
    }

    fn play(&mut self) {
        self.calls += 1;
        let is_ebb = (self.calls.checked_div(self.run.wave)).is_some_and(|wave| wave % 2 == 1);
        let mut drawn = self.draw(1_000);
        let mut call = match (drawn % 2, is_ebb) {
            (0, false) => Call::Put,
            (0, true) => Call::Remove,
            _ => Call::Read,
        };
        for (other, often) in self.run.often {
            if drawn < *often {
                call = *other;
                break;
            }
            drawn -= often;
        }
        self.enter(call);
    }

    fn enter(&mut self, call: Call) {
        match call {
            Call::Put => {
                let number = self.draw_key();
                self.put(number);
            }
            Call::Read => self.read(),
            Call::Extend => self.extend(),
            Call::Remove => {
                let name = name(self.draw_key());
                if self.bench.has(&name) && !self.is_locked(&name) {
                    self.bench.remove(&name);
                }
            }
            Call::Lock => {
                let number = self.draw_key();
                self.lock(number);
            }
            Call::LockRow => {
                // Stored one after the other, they are in one segment, or two.
                let first = self.draw_key();
                for number in first..first + ROW {
                    self.put(number);
                    self.lock(number);
                }
            }
            Call::Unlock => {
                if !self.locked.is_empty() {
                    let at = self.draw(self.locked.len());
                    let number = self.locked.swap_remove(at);
                    self.bench.unlock(&name(number));
                }
            }
            Call::Touch => self.touch(),
            Call::Crawl => {
                let items_max = self.draw(200);
                let (now, counters) = (self.bench.now, &mut self.bench.counters);
                self.bench.store.crawl(now, items_max, counters);
            }
            Call::Pass => {
                let ticks = self.draw(4);
                let now = self.bench.now.count() + u32::try_from(ticks).unwrap();
                self.bench.pass_until(now);
            }
            Call::Flush => self.bench.store.clear(),
            Call::Aside => self.aside(),
            Call::Memory => self.change_memory(),
            Call::Page => self.page(),
            Call::Whole => self.take_the_whole(),
        }
    }

    fn is_locked(&self, name: &str) -> bool {
        let slot = self.bench.store.find(named(name));
        slot.is_ok_and(|slot| self.bench.store.header(slot).locked)
    }

    fn draw_header(&mut self, name: &str) -> ItemHeader {
        let deadline = (self.draw(3) == 0).then(|| {
            let ticks = u32::try_from(self.draw(60)).unwrap();
            Deadline::at(Tick::from_count(self.bench.now.count() + 1 + ticks))
        });
        let client_flags = u32::from(self.draw(8) == 0);
        ItemHeader {
            deadline,
            client_flags,
            last_access: self.bench.now,
            locked: self.is_locked(name),
            ..header()
        }
    }

    fn put(&mut self, number: usize) {
        let (name, value) = (name(number), self.draw_value());
        let header = self.draw_header(&name);
        let done = self.bench.put(&name, header, &value);
        if done.is_ok() {
            assert_eq!(self.bench.value(&name), Some(value.as_slice()), "{name}");
        }
    }

    /// A value so large that nearly all items must be evicted.
    fn take_the_whole(&mut self) {
        let most = self.run.memory_bytes;
        let value = vec![b'w'; most / 2 + self.draw(most / 2)];
        let _ = self.bench.put("whole", header(), &value);
        if self.bench.has("whole") {
            self.bench.remove("whole");
        }
    }

    fn read(&mut self) {
        let name = name(self.draw_key());
        let Ok((slot, before)) = self.bench.store.find_item(named(&name)) else {
            return;
        };
        let after = ItemHeader {
            last_access: self.bench.now,
            fetched: true,
            ..before
        };
        let shown = self.bench.store.read(slot, None, Some(self.bench.now));
        assert!(shown.item_bytes > shown.value.len());
        assert_eq!(self.bench.store.header(slot), after);
    }

    fn extend(&mut self) {
        let (name, more) = (name(self.draw_key()), self.draw_value());
        let Ok((slot, header)) = self.bench.store.find_item(named(&name)) else {
            return;
        };
        let end = if self.draw(2) == 0 {
            End::Front
        } else {
            End::Back
        };
        let (now, counters) = (self.bench.now, &mut self.bench.counters);
        let store = &mut self.bench.store;
        let _ = store.extend(now, slot, header, &more, end, counters);
    }

    /// Up to a quarter of the memory.
    fn lock(&mut self, number: usize) {
        let name = name(number);
        let Ok((slot, header)) = self.bench.store.find_item(named(&name)) else {
            return;
        };
        let usage = self.bench.store.usage();
        if header.locked || usage.locked_bytes > self.run.memory_bytes / 4 {
            return;
        }
        let locked = ItemHeader {
            locked: true,
            ..header
        };
        self.bench.store.set_header(slot, locked);
        self.locked.push(number);
    }

    fn touch(&mut self) {
        let name = name(self.draw_key());
        let Ok((slot, before)) = self.bench.store.find_item(named(&name)) else {
            return;
        };
        let ItemHeader { deadline, .. } = self.draw_header(&name);
        let after = ItemHeader { deadline, ..before };
        self.bench.store.set_header(slot, after);
    }

    fn aside(&mut self) {
        let bytes = self.draw(self.run.memory_bytes / 8);
        let (now, counters) = (self.bench.now, &mut self.bench.counters);
        let _ = self.bench.store.set_aside(now, None, bytes, counters);
    }

    /// Changes the limit, and finds the limits that are accepted.
    fn change_memory(&mut self) {
        let wanted = self.run.memory_bytes / 8 + self.draw(2 * self.run.memory_bytes);
        let judge = |bytes| self.bench.store.judge_memory(bytes);
        // Too small below, accepted here, too large above.
        let good = 64 << 20;
        let least = first(0, good, |bytes| judge(bytes).is_ok());
        let most = first(good, 1 << 50, |bytes| judge(bytes).is_err());
        assert_eq!(judge(least - 1), Err(MemoryRefused::TooSmall));
        assert_eq!(judge(most), Err(MemoryRefused::TooLarge));
        if wanted >= least {
            let limits = limits(self.run.memory_bytes).with_memory(wanted);
            let (now, counters) = (self.bench.now, &mut self.bench.counters);
            self.bench.store.set_memory(now, &limits, counters);
        }
    }

    fn page(&mut self) {
        let items_max = 1 + self.draw(40);
        let store = &self.bench.store;
        let next = store.scan(self.cursor, items_max, &mut |visited| {
            assert!(store.find(visited.key).is_ok(), "{:?}", visited.key);
        });
        self.cursor = next.unwrap_or_default();
    }
}

/// The first number for which it is true; between the two, it becomes true once.
fn first(mut is_not: usize, mut is: usize, is_true: impl Fn(usize) -> bool) -> usize {
    while is - is_not > 1 {
        let middle = is_not.midpoint(is);
        if is_true(middle) {
            is = middle;
        } else {
            is_not = middle;
        }
    }
    is
}

#[test]
fn long_runs_keep_all_invariants() {
    for run in &RUNS {
        let mut played = Played::new(run);
        for call in 1..=run.calls {
            played.play();
            if call.is_multiple_of(run.calls / CHECKS) {
                played.bench.store.check();
            }
        }
        assert!(played.bench.store.usage().items > 0, "{}", run.name);
        let evictions = played.bench.counters.evictions;
        assert!(run.evict || evictions == 0, "{}", run.name);
    }
}
