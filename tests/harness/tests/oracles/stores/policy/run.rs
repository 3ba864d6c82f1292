//! A log beside what the policy says: items are stored, one new one after the other, and asked for, locked, replaced, taken
//! out, left to expire and brought again in between.
//!
//! Every record is a multiple of 32 bytes long, so that quarters and eighths of what is in a segment are whole. No two items
//! expire in one tick, and none with a deadline is locked: which of two segments that are due in one tick is swept first is
//! nobody's rule.

use std::collections::BTreeSet;
use std::ops::Range;

use latchd_core::Limits;
use latchd_core::item::{Cas, ItemHeader};
use latchd_core::key::Key;
use latchd_core::stats::Counters;
use latchd_core::store::{End, KeyHasher, LogSlot, LogStore, Store};
use latchd_core::time::{Deadline, Tick};
use latchd_core::value::Value;
use latchd_harness::random::Random;
use latchd_harness::stores::{New, Policy, SEGMENTS_IDLE_MAX, Sight, Told};

use super::habits::{Habits, Often, Outcome};

/// How many numbers back an item is that something is done to, at most.
const REACH: usize = 500;

/// Nothing comes again before so many have gone: a part of the table of marks may have found no memory until then.
const GONE_FIRST: usize = 1_000;

/// So many are as good as gone.
const AT_THE_END: usize = 8;

/// More than there are at a time.
const ALL: usize = 1_000_000;

/// The shortest value: with it a record is 64 bytes long.
const VALUE_BYTES: usize = 4;

/// Records, and large values, are longer by so many bytes or a few times as many.
const STEP_BYTES: usize = 32;

struct Run<H> {
    habits: Habits,
    random: Random,
    store: LogStore<H>,
    policy: Policy,
    counters: Counters,
    now: u32,
    /// What was evicted or taken out.
    gone: Vec<usize>,
    locked: Vec<usize>,
    /// All deadlines that there were.
    deadlines: BTreeSet<u32>,
    /// Where each item was found when it was last known to be carried.
    slots: Vec<Option<LogSlot>>,
    /// What each was when it was last written.
    written: Vec<Option<New>>,
    back: u64,
}

/// Plays a run.
pub(super) fn play<H: KeyHasher>(seed: u64, habits: &Habits, hasher: H) -> Outcome {
    let mut run = Run::new(seed, habits, hasher);
    let mut number = 0;
    while number < habits.items {
        let back = run.that_went();
        run.put(back.unwrap_or(number));
        run.pass();
        match back {
            Some(back) => run.take_back(back),
            None => number += 1,
        }
        // As long as there is room, it is of no account where the log has come to.
        if run.counters.evictions > 0 {
            run.ask(number);
            run.lock(number);
            run.unlock();
            run.delete(number);
            run.replace(number);
            run.retime(number);
            run.crawl();
            run.flush();
        }
    }
    run.end()
}

/// A key of 38 bytes.
fn spell(number: usize) -> [u8; 38] {
    let mut key = [b'k'; 38];
    key[..8].copy_from_slice(format!("{number:08}").as_bytes());
    key
}

fn find<H: KeyHasher>(store: &LogStore<H>, number: usize) -> Option<LogSlot> {
    let name = spell(number);
    store.find(Key::new(&name).expect("a legal key")).ok()
}

impl<H: KeyHasher> Run<H> {
    fn new(seed: u64, habits: &Habits, hasher: H) -> Self {
        let limits = Limits::new(habits.memory_bytes, 1 << 10);
        let mut store = LogStore::with_segments(&limits, hasher, habits.setting.segment_bytes);
        store.watch_evictions(true);
        Self {
            habits: *habits,
            random: Random::new(seed),
            store,
            policy: Policy::new(habits.setting),
            counters: Counters::default(),
            now: 1_000,
            gone: Vec::new(),
            locked: Vec::new(),
            deadlines: BTreeSet::new(),
            slots: vec![None; habits.items],
            written: vec![None; habits.items],
            back: 0,
        }
    }

    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).expect("it is less than a usize")
    }

    /// One of the numbers before `number`.
    fn near(&mut self, number: usize) -> usize {
        number - self.below(REACH).min(number)
    }

    /// Those that something is done to which happens so often: none, or neighbours of one of the numbers before `number`.
    fn neighbours(&mut self, often: Often, number: usize) -> Range<usize> {
        if !self.random.chance(often.of_1000, 1_000) {
            return 0..0;
        }
        let first = self.near(number);
        first..first + often.at_once
    }

    /// An item that went and is to come again.
    fn that_went(&mut self) -> Option<usize> {
        let among = self.gone.len().min(self.habits.back_among);
        let is_early = self.gone.len() < GONE_FIRST;
        if among == 0 || is_early || !self.random.chance(self.habits.back_of_100, 100) {
            return None;
        }
        let at = self.gone.len() - 1 - self.below(among);
        let chosen = self.gone[at];
        let is_gone = find(&self.store, chosen).is_none();
        self.back += u64::from(is_gone);
        is_gone.then_some(chosen)
    }

    /// An item has come again, and perhaps goes once more.
    fn take_back(&mut self, number: usize) {
        if self.random.chance(self.habits.back_and_gone_of_100, 100) {
            self.remove(number);
        }
    }

    fn put(&mut self, number: usize) {
        let value_bytes = self.value_bytes();
        let deadline = self.deadline();
        let name = spell(number);
        let key = Key::new(&name).expect("a legal key");
        let now = Tick::from_count(self.now);
        let header = ItemHeader {
            deadline,
            ..ItemHeader::new(Cas::FIRST, now)
        };
        let is_idle = self.is_idle(value_bytes);
        let vacancy = self.store.find(key).expect_err("it is not there");
        let bytes = vec![0; value_bytes];
        let value = Value::Borrowed(&bytes);
        let counters = &mut self.counters;
        let stored = self
            .store
            .insert(now, vacancy, key, header, value, counters);
        let slot = stored.expect("N8");
        let new = self.new_at(number, slot);
        self.look(new, slot, is_idle, Policy::store);
    }

    /// Whether a store of such a value finds so much room that it does not look for any.
    fn is_idle(&self, value_bytes: usize) -> bool {
        let idle_bytes = SEGMENTS_IDLE_MAX * self.habits.setting.segment_bytes + 2 * value_bytes;
        self.store.usage().held_bytes + idle_bytes < self.habits.memory_bytes
    }

    /// What has been written there.
    fn new_at(&self, number: usize, slot: LogSlot) -> New {
        let weight = self.store.item_bytes(slot);
        // What stands in the place of a large value is as long as the shortest.
        let is_large = self.store.value(slot).len() > self.habits.setting.segment_bytes / 4;
        let bytes = if is_large {
            self.store.bytes_for(spell(number).len(), VALUE_BYTES)
        } else {
            weight
        };
        let deadline = self.store.header(slot).deadline;
        New {
            number,
            bytes,
            weight,
            deadline: deadline.map(|deadline| deadline.tick().count()),
        }
    }

    /// Compares what has gone and moved for what was written.
    fn look(
        &mut self,
        new: New,
        slot: LogSlot,
        is_idle: bool,
        written: impl Fn(&mut Policy, New, &Sight<'_>) -> Vec<usize>,
    ) {
        let evicted = self.evicted();
        let told = self.told(&evicted, is_idle);
        let (store, slots) = (&self.store, &self.slots);
        let sight = Sight {
            told: &told,
            has_moved: &|number| find(store, number) != slots[number],
        };
        for carried in written(&mut self.policy, new, &sight) {
            self.slots[carried] = find(&self.store, carried);
        }
        self.slots[new.number] = Some(slot);
        self.written[new.number] = Some(new);
        self.gone.extend(evicted);
    }

    const fn told<'a>(&self, evicted: &'a [usize], is_idle: bool) -> Told<'a> {
        Told {
            evicted,
            evicted_active: self.counters.evicted_active,
            reclaimed: self.counters.reclaimed,
            is_idle,
        }
    }

    /// What was evicted since this was last asked, in order.
    fn evicted(&mut self) -> Vec<usize> {
        let (evicted, missed) = self.store.take_evicted();
        assert_eq!(missed, 0, "all are told");
        let numbers = evicted.iter().map(|evicted| {
            let digits = str::from_utf8(&evicted.key[..8]).expect("digits");
            digits.parse().expect("a number")
        });
        numbers.collect()
    }

    fn value_bytes(&mut self) -> usize {
        let large_from = self.habits.setting.segment_bytes / 4;
        if self.random.chance(self.habits.large_of_1000, 1_000) {
            large_from + STEP_BYTES * (1 + self.below(40))
        } else if self.random.chance(self.habits.longer_of_100, 100) {
            VALUE_BYTES + STEP_BYTES * (1 + self.below(2))
        } else {
            VALUE_BYTES
        }
    }

    fn deadline(&mut self) -> Option<Deadline> {
        if !self.random.chance(self.habits.expiring_of_100, 100) {
            return None;
        }
        let ticks = self.random.below(self.habits.ticks_max);
        let first = self.now + 1 + u32::try_from(ticks).expect("not so late");
        let taken = u32::try_from(self.deadlines.len()).expect("not so many");
        let deadline = (first..=first + taken).find(|tick| !self.deadlines.contains(tick));
        self.deadlines.extend(deadline);
        deadline.map(|tick| Deadline::at(Tick::from_count(tick)))
    }

    /// Time passes, if that makes a difference.
    fn pass(&mut self) {
        if self.habits.expiring_of_100 > 0 {
            self.now += 1;
            self.policy.set_now(self.now);
        }
    }

    fn ask(&mut self, number: usize) {
        let often = self.habits.asked_of_100;
        let last = u64::from(self.random.chance(often % 100, 100));
        for _ in 0..often / 100 + last {
            self.ask_once(number);
        }
    }

    fn ask_once(&mut self, number: usize) {
        let asked = self.near(number);
        // Those that were asked for before are asked for more often.
        let is_old = self.random.chance(1, 2);
        let asked = if is_old { asked / 20 * 20 } else { asked };
        if let Some(slot) = find(&self.store, asked) {
            self.store.record_hit(slot);
            self.policy.hit(asked);
        }
    }

    fn lock(&mut self, number: usize) {
        for chosen in self.neighbours(self.habits.locked, number) {
            if let Some(slot) = find(&self.store, chosen)
                && self.locked.len() < self.habits.locked_max
                && self.store.header(slot).deadline.is_none()
                && !self.store.header(slot).locked
            {
                self.set_locked(chosen, slot, true);
                self.locked.push(chosen);
            }
        }
    }

    fn unlock(&mut self) {
        if self.locked.is_empty() || !self.random.chance(self.habits.unlocked_of_1000, 1_000) {
            return;
        }
        let at = self.below(self.locked.len());
        let chosen = self.locked.swap_remove(at);
        let slot = find(&self.store, chosen).expect("it is locked");
        self.set_locked(chosen, slot, false);
    }

    fn set_locked(&mut self, number: usize, slot: LogSlot, locked: bool) {
        let header = self.store.header(slot);
        self.store.set_header(slot, ItemHeader { locked, ..header });
        self.policy.set_locked(number, locked);
    }

    fn delete(&mut self, number: usize) {
        for chosen in self.neighbours(self.habits.deleted, number) {
            self.remove(chosen);
        }
    }

    /// Takes an item out, if it is there and not locked.
    fn remove(&mut self, number: usize) {
        if let Some(slot) = find(&self.store, number)
            && !self.store.header(slot).locked
        {
            self.store.remove(slot);
            self.policy.delete(number);
            self.gone.push(number);
        }
    }

    fn replace(&mut self, number: usize) {
        let Often { of_1000, at_once } = self.habits.replaced;
        if !self.random.chance(of_1000, 1_000) {
            return;
        }
        // Those behind what has gone last are the next to go.
        let first = match self.gone.last().copied() {
            Some(gone) if self.random.chance(1, 4) => gone + self.below(AT_THE_END),
            Some(_) | None => self.near(number),
        };
        for chosen in first..first + at_once {
            if let Some((slot, header)) = self.living(chosen) {
                self.write_over(chosen, slot, header);
            }
        }
    }

    /// Where an item is that is there and has not expired.
    fn living(&self, number: usize) -> Option<(LogSlot, ItemHeader)> {
        let slot = find(&self.store, number)?;
        let header = self.store.header(slot);
        let now = Tick::from_count(self.now);
        let is_past = header
            .deadline
            .is_some_and(|deadline| deadline.has_passed(now));
        (!is_past).then_some((slot, header))
    }

    /// Gives an item another value, or more of the one that it has.
    fn write_over(&mut self, number: usize, old: LogSlot, header: ItemHeader) {
        let now = Tick::from_count(self.now);
        let more_bytes = STEP_BYTES * (1 + self.below(2));
        let longer_bytes = self.store.value(old).len() + more_bytes;
        let may_be_large = self.habits.large_of_1000 > 0;
        let is_short = longer_bytes <= self.habits.setting.segment_bytes / 4;
        let is_more = (is_short || may_be_large) && self.random.chance(1, 4);
        let value_bytes = if is_more {
            more_bytes
        } else {
            self.value_bytes()
        };
        let deadline = if header.locked { None } else { self.deadline() };
        let header = ItemHeader { deadline, ..header };
        let before = self.written[number].expect("it was written once");
        let is_idle = self.is_idle(before.weight + value_bytes);
        let bytes = vec![0; value_bytes];
        let (store, counters) = (&mut self.store, &mut self.counters);
        let stored = if is_more {
            store.extend(now, old, header, &bytes, End::Back, counters)
        } else {
            let value = Value::Borrowed(&bytes);
            store.replace(now, old, header, value, counters)
        };
        let slot = stored.expect("N8");
        let new = self.new_at(number, slot);
        if !is_more && new.fits_in_place_of(&before) {
            assert_eq!(slot, old, "N10: {number} was to be replaced in its place");
            assert_eq!(self.evicted(), [], "N10: nothing goes for that");
            self.policy.retime(number, new.deadline);
            self.written[number] = Some(new);
        } else {
            self.look(new, slot, is_idle, Policy::replace);
        }
    }

    fn retime(&mut self, number: usize) {
        for chosen in self.neighbours(self.habits.retimed, number) {
            if let Some((slot, header)) = self.living(chosen)
                && !header.locked
            {
                let deadline = self.deadline();
                self.store
                    .set_header(slot, ItemHeader { deadline, ..header });
                let deadline = deadline.map(|deadline| deadline.tick().count());
                self.policy.retime(chosen, deadline);
            }
        }
    }

    /// A crawl comes by that has time for all that it may do.
    fn crawl(&mut self) {
        if !self.random.chance(self.habits.crawled_of_1000, 1_000) {
            return;
        }
        let now = Tick::from_count(self.now);
        self.store.crawl(now, ALL, &mut self.counters);
        assert_eq!(self.evicted(), [], "N10: a crawl gives nothing up");
        let told = self.told(&[], false);
        let (store, slots) = (&self.store, &self.slots);
        let sight = Sight {
            told: &told,
            has_moved: &|number| find(store, number) != slots[number],
        };
        for carried in self.policy.crawl(&sight) {
            self.slots[carried] = find(&self.store, carried);
        }
    }

    fn flush(&mut self) {
        let of_1000 = self.habits.flushed_of_1000;
        if of_1000 > 0 && self.random.chance(of_1000, 1_000) {
            self.store.clear();
            self.policy.flush();
        }
    }

    fn end(mut self) -> Outcome {
        let numbers: Vec<usize> = (0..self.habits.items)
            .filter(|number| find(&self.store, *number).is_some())
            .collect();
        self.policy.end(&numbers);
        for number in numbers {
            let slot = find(&self.store, number);
            assert_eq!(
                slot, self.slots[number],
                "N10: {number} was not to be carried"
            );
        }
        self.store.check();
        Outcome {
            choices: self.policy.seen(),
            hypotheses_most: self.policy.hypotheses_most(),
            back: self.back,
        }
    }
}
