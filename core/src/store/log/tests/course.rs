//! The course of the store: long runs. Their results, call by call, must equal those in `course.txt`.
//!
//! The order of eviction, the times when memory is returned, and the memory kept free are choices. Rules
//! cover some of them (`tests/harness/tests/oracles/stores.rs`). A change of the others makes the store
//! slower or wasteful, and only this test notices. To change one on purpose, see the difference here, and
//! write the new figures with `LATCHD_COURSE=write`.

extern crate std;

use super::*;

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

/// The number of lines of a run.
const LINES: usize = 4;

/// A run in progress.
struct Played<'a> {
    run: &'a Run,
    bench: Bench,
    drawn: u64,
    digest: u64,
    locked: Vec<usize>,
    cursor: ScanCursor,
    refused: usize,
    calls: usize,
}

impl<'a> Played<'a> {
    fn new(run: &'a Run) -> Self {
        let mut limits = limits(run.memory_bytes);
        limits.evict = run.evict;
        let hasher = SipHash::new([5, 6]);
        let mut bench = Bench::of(if run.segment_bytes == 0 {
            LogStore::with_hasher(&limits, hasher)
        } else {
            LogStore::with_segments(&limits, hasher, run.segment_bytes)
        });
        bench.store.watch_evictions(true);
        Self {
            run,
            bench,
            drawn: 0x9E37_79B9_7F4A_7C15,
            digest: 0xCBF2_9CE4_8422_2325,
            locked: Vec::new(),
            cursor: ScanCursor::default(),
            refused: 0,
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

    /// Adds an observation to the hash: FNV-1a, by whole numbers.
    fn see(&mut self, seen: usize) {
        self.digest = (self.digest ^ seen as u64).wrapping_mul(0x0100_0000_01B3);
    }

    fn see_bytes(&mut self, seen: &[u8]) {
        for byte in seen {
            self.see(usize::from(*byte));
        }
    }

    fn see_tick(&mut self, tick: Option<Tick>) {
        self.see(tick.map_or(0, |tick| 1 + tick.count() as usize));
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
        self.look();
    }

    /// Observes the store after each call.
    fn look(&mut self) {
        let store = &self.bench.store;
        let reclaimed = usize::try_from(self.bench.counters.reclaimed).unwrap();
        let (usage, queue) = (store.usage(), store.queue());
        for seen in [
            usage.items,
            usage.bytes,
            usage.locked_bytes,
            usage.held_bytes,
            queue.index_bytes,
            store.log.spare(),
            store.log.with_memory(),
            store.free_segments(),
            usize::from(store.wants_crawl(self.bench.now)),
            reclaimed,
        ] {
            self.see(seen);
        }
        self.see_tick(queue.oldest);
        let (evicted, missed) = self.bench.store.take_evicted();
        assert_eq!(missed, 0, "each call is looked at");
        for evicted in evicted {
            self.see_bytes(&evicted.key);
            self.see(evicted.idle_s as usize);
            self.see(evicted.value_bytes);
        }
    }

    fn line(&self) -> String {
        self.bench.store.check();
        let (usage, counters) = (self.bench.store.usage(), &self.bench.counters);
        let mut line = format!(
            "{} {}: {} items, {} bytes, {} locked, {} held, {} segments, {} refused",
            self.run.name,
            self.calls,
            usage.items,
            usage.bytes,
            usage.locked_bytes,
            usage.held_bytes,
            self.bench.store.log.with_memory(),
            self.refused,
        );
        counters.each(|name, _, count| {
            if count > 0 {
                line.extend([", ", name, " ", &format!("{count}")]);
            }
        });
        line + &format!("; {:016x}", self.digest)
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

    fn note(&mut self, is_done: bool) {
        self.refused += usize::from(!is_done);
        self.see(usize::from(is_done));
    }

    fn put(&mut self, number: usize) {
        let (name, value) = (name(number), self.draw_value());
        let header = self.draw_header(&name);
        if let Err(vacancy) = self.bench.store.find(named(&name)) {
            let was_flushed = self.bench.store.was_flushed(named(&name), vacancy);
            self.see(usize::from(was_flushed));
        }
        let done = self.bench.put(&name, header, &value);
        self.note(done.is_ok());
    }

    /// A value so large that nearly all items must be evicted.
    fn take_the_whole(&mut self) {
        let most = self.run.memory_bytes;
        let value = vec![b'w'; most / 2 + self.draw(most / 2)];
        let done = self.bench.put("whole", header(), &value);
        self.note(done.is_ok());
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
        let seen = shown.value.len() + shown.item_bytes;
        self.see(seen);
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
        let done = self
            .bench
            .store
            .extend(now, slot, header, &more, end, counters);
        self.note(done.is_ok());
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
        let done = self.bench.store.set_aside(now, None, bytes, counters);
        self.note(done.is_ok());
        self.see(self.bench.store.aside_bytes);
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
        self.see(least);
        self.see(most);
        let is_taken = wanted >= least;
        self.note(is_taken);
        if is_taken {
            let limits = limits(self.run.memory_bytes).with_memory(wanted);
            let (now, counters) = (self.bench.now, &mut self.bench.counters);
            self.bench.store.set_memory(now, &limits, counters);
        }
    }

    fn page(&mut self) {
        let items_max = 1 + self.draw(40);
        let mut seen = Vec::new();
        let next = self
            .bench
            .store
            .scan(self.cursor, items_max, &mut |visited| {
                seen.extend_from_slice(visited.key.as_bytes());
            });
        self.see_bytes(&seen);
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

/// Plays all runs; returns their observations, line by line.
fn course() -> String {
    let mut lines = String::new();
    for run in &RUNS {
        let mut played = Played::new(run);
        for call in 1..=run.calls {
            played.play();
            if call.is_multiple_of(run.calls / LINES) {
                lines += &played.line();
                lines.push('\n');
            }
        }
    }
    lines
}

#[test]
fn the_store_goes_the_way_it_went() {
    let course = course();
    if std::env::var_os("LATCHD_COURSE").is_some_and(|word| word == "write") {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/src/store/log/tests/course.txt"
        );
        std::fs::write(path, &course).unwrap();
        return;
    }
    let written: Vec<_> = include_str!("course.txt").lines().collect();
    assert_eq!(written.len(), RUNS.len() * LINES, "every run is there");
    assert_eq!(course.lines().count(), written.len());
    for (due, got) in written.into_iter().zip(course.lines()) {
        assert_eq!(got, due, "the course has changed: on purpose?");
    }
}
