//! A store beside a list of its expected items.

mod make;

use latchd_core::Limits;
use latchd_core::store::Store;
use latchd_protocol::command::ScanCursor;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;

use make::named;

use super::arithmetic::{Charge, Demand, Outcome, refused_by_log};
use super::call::Call;
use super::keys::{ByKey, KEYS, KeySet, key};

/// More crawls than a store of a few items needs to pass everything, dead and flushed records
/// included.
const CRAWLS_MAX: usize = 10_000;

/// Whether there is room for every item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// There is: the store has no excuse.
    Ample,
    /// There is not, and items are evicted for it.
    Scarce,
    /// There is not, and nothing is evicted.
    ScarceAndKept,
}

/// A store, and a list that gets the same calls.
#[derive(Debug)]
pub struct Beside<S> {
    store: S,
    room: Room,
    /// Its first limits.
    limits: Limits,
    /// The limit, in bytes.
    limit_bytes: usize,
    /// The bytes that it may hold: the limit, or, after that was lowered, the bytes held then.
    bytes_max: usize,
    now: Tick,
    items: ByKey<Item>,
    counters: Counters,
    /// The expected counters of removed items.
    due: Due,
    /// How the store takes room, if known.
    charge: Option<Charge>,
    /// The bytes that are set aside.
    aside_bytes: usize,
    /// The bytes of the largest item that the present call removed from the list, since it was
    /// gone.
    gone_bytes_max: usize,
    /// All is looked at after each call, so the reason for each missing item is known.
    is_watched: bool,
    /// How many items were removed from the list because they had expired or were evicted (N5).
    gone: u64,
    /// The next page, and the items that must have been shown at the end.
    scan: Option<Scan>,
    next_cas: u64,
    next_byte: u8,
    seen: Seen,
}

/// Cases that were met at least once: a run without them shows nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// Items that were evicted.
    pub evictions: u64,
    /// Items that had expired.
    pub expiries: u64,
    /// Calls that were refused.
    pub refusals: u64,
    /// Locked items that a flush has spared.
    pub spared: u64,
    /// Scans that were completed.
    pub scans: u64,
    /// Times that the limit became less than the held bytes.
    pub lowered: u64,
}

impl Seen {
    /// Adds the cases of another run.
    pub fn add(&mut self, other: Self) {
        self.evictions += other.evictions;
        self.expiries += other.expiries;
        self.refusals += other.refusals;
        self.spared += other.spared;
        self.scans += other.scans;
        self.lowered += other.lowered;
    }
}

/// The fates of removed items, counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Due {
    evictions: u64,
    evicted_unfetched: u64,
    evicted_nonzero: u64,
    reclaimed: u64,
    expired_unfetched: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Item {
    header: ItemHeader,
    value: Vec<u8>,
    /// The bytes of the limit that it takes, as the store says.
    bytes: usize,
    /// A flush found it locked: the unlock takes it out, unless it was stored anew.
    is_doomed: bool,
}

#[derive(Debug)]
struct Scan {
    cursor: ScanCursor,
    /// The keys that were present at the beginning of a scan and still are.
    wanted: KeySet,
    shown: KeySet,
}

impl<S: Store> Beside<S> {
    /// `store`, which is empty and keeps to `limits`, beside an empty list.
    #[must_use]
    pub fn new(store: S, room: Room, limits: &Limits) -> Self {
        Self {
            store,
            room,
            limits: *limits,
            limit_bytes: limits.memory_bytes_max,
            bytes_max: limits.memory_bytes_max,
            now: Tick::from_count(1_000),
            items: ByKey::new(),
            counters: Counters::default(),
            due: Due::default(),
            charge: None,
            aside_bytes: 0,
            gone_bytes_max: 0,
            is_watched: true,
            gone: 0,
            scan: None,
            next_cas: 1,
            next_byte: 0,
            seen: Seen::default(),
        }
    }

    /// The same with a known charge: then its evictions and refusals are judged (N7, N8).
    #[must_use]
    pub fn charging(self, charge: Charge) -> Self {
        Self {
            charge: Some(charge),
            ..self
        }
    }

    /// The cases that were met.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen {
            evictions: self.counters.evictions,
            expiries: self.counters.reclaimed,
            ..self.seen
        }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Makes a call of the store, and judges its effect on every item.
    ///
    /// # Panics
    /// If one of the rules does not hold.
    pub fn call(&mut self, call: Call) {
        let (before, refusals) = (self.counters, self.seen.refusals);
        let demand = self.demand(call);
        let comes_down = self.bytes_max > self.limit_bytes;
        self.gone_bytes_max = 0;
        self.make(call);
        self.look();
        let counters = self.counters;
        let outcome = Outcome {
            is_refused: self.seen.refusals > refusals,
            evicted: counters.evictions - before.evictions,
            gone: counters.evictions + counters.reclaimed - before.evictions - before.reclaimed,
            gone_bytes_max: self.gone_bytes_max,
            all: self.store.usage().bytes,
        };
        if let (Some(charge), Some(demand), false) = (self.charge, demand, comes_down) {
            charge.judge(&demand, &outcome, self.limit_bytes, self.limits.evict);
        } else if !comes_down && !matches!(call, Call::Limit { .. }) {
            assert_eq!(outcome.evicted, 0, "N7: {call:?} needs no room");
        }
    }

    /// Crawls until all was passed, and judges the remaining items: none has expired unless it is
    /// locked (N9).
    ///
    /// # Panics
    /// If there is.
    pub fn crawl_all(&mut self) {
        for _ in 0..CRAWLS_MAX {
            self.call(Call::Crawl {
                items_max: usize::from(KEYS),
            });
            if !self.store.wants_crawl(self.now) {
                break;
            }
        }
        for (key, item) in self.items.iter() {
            let deadline = item.header.deadline;
            let is_past = deadline.is_some_and(|deadline| deadline.has_passed(self.now));
            assert!(!is_past || item.header.locked, "N9: {key:?} has expired");
        }
    }

    /// The demand of a call; `None` if it needs no room.
    fn demand(&self, call: Call) -> Option<Demand> {
        let charge = self.charge?;
        let mut demand = Demand {
            held: self.store.usage().held_bytes,
            ..Demand::default()
        };
        let own = call.key().and_then(|number| self.items.get(number));
        let (key_bytes, value_bytes) = match call {
            Call::Put {
                key: number, bytes, ..
            } => (key(number).len(), bytes),
            Call::Extend {
                key: number, bytes, ..
            } => (key(number).len(), own?.value.len() + bytes),
            // The reference sets nothing aside.
            Call::SetAside { bytes, .. } => match charge {
                Charge::ByItem { .. } => return None,
                Charge::BySegment { .. } => (0, bytes),
            },
            Call::Remove { .. }
            | Call::Touch { .. }
            | Call::Lock { .. }
            | Call::Hit { .. }
            | Call::Clear
            | Call::Crawl { .. }
            | Call::Scan { .. }
            | Call::Limit { .. }
            | Call::Pass { .. } => return None,
        };
        demand.need = match charge {
            Charge::ByItem { overhead_bytes } => overhead_bytes + key_bytes + value_bytes,
            Charge::BySegment { .. } => self.store.bytes_for(key_bytes, value_bytes),
        };
        demand.own = own.map_or(0, |item| item.bytes);
        demand.own_is_kept = own.is_some_and(|item| item.header.locked || !self.limits.evict);
        for (_, item) in self.items.iter() {
            demand.all += item.bytes;
            if item.header.locked || !self.limits.evict {
                demand.kept += item.bytes;
            }
        }
        Some(demand)
    }

    /// Judges a refusal of `need` bytes, in which the item `own` may not be evicted either.
    fn judge_refusal(&self, need: usize, own: u8) {
        assert_ne!(self.room, Room::Ample, "N3: refused, with room for all");
        if let (Some(Charge::BySegment { segment_bytes }), true) = (self.charge, self.limits.evict)
        {
            let all = self.items.iter();
            let kept: Vec<usize> = all
                .filter(|(key, item)| item.header.locked || *key == own)
                .map(|(_, item)| item.bytes)
                .collect();
            let need = need + self.aside_bytes;
            refused_by_log(
                need,
                &kept,
                usize::from(KEYS),
                self.limit_bytes,
                segment_bytes,
            );
        }
    }

    /// Makes a call of the store, and judges its effect on the item that it is about. The next
    /// [`look`](Self::look) judges its effect on the others.
    ///
    /// # Panics
    /// If one of the rules does not hold.
    pub fn ask(&mut self, call: Call) {
        self.is_watched = false;
        self.make(call);
    }

    fn make(&mut self, call: Call) {
        let before = self.counters;
        let key = call.key();
        // A missing item is removed from the list before another one gets its key.
        if let Some(key) = key {
            self.compare(key);
        }
        let stored = self.enact(call);
        let expected = before.total_items + u64::from(stored);
        assert_eq!(self.counters.total_items, expected, "N5: {call:?}");
        if let Some(key) = key {
            self.compare(key);
        }
        let held_bytes = self.store.usage().held_bytes;
        assert!(held_bytes <= self.bytes_max, "N4: over the limit");
    }

    /// Judges the whole content of the store, and the store's parts by its own rules.
    ///
    /// # Panics
    /// If one of the rules does not hold.
    pub fn look(&mut self) {
        self.reconcile();
        self.store.check();
    }

    /// Compares every item, and the bytes of all.
    fn reconcile(&mut self) {
        let (mut bytes, mut locked_bytes) = (0, 0);
        for number in 0..KEYS {
            let Some(slot) = self.compare(number) else {
                continue;
            };
            bytes += self.store.item_bytes(slot);
            if self.store.header(slot).locked {
                locked_bytes += self.store.item_bytes(slot);
            }
        }
        let told = self.counters.evictions + self.counters.reclaimed;
        assert_eq!(told, self.gone, "N5: gone");
        if self.is_watched {
            let counters = &self.counters;
            let told = Due {
                evictions: counters.evictions,
                evicted_unfetched: counters.evicted_unfetched,
                evicted_nonzero: counters.evicted_nonzero,
                reclaimed: counters.reclaimed,
                expired_unfetched: counters.expired_unfetched,
            };
            assert_eq!(told, self.due, "N5: why");
        }
        let usage = self.store.usage();
        assert_eq!(usage.items, self.items.len(), "N4: items");
        assert_eq!(usage.bytes, bytes, "N4: bytes");
        assert_eq!(usage.locked_bytes, locked_bytes, "N4: locked bytes");
        assert!(usage.bytes <= usage.held_bytes, "N4: bytes");
        assert!(usage.held_bytes <= self.bytes_max, "N4: over the limit");
    }

    fn compare_all(&mut self) {
        for number in 0..KEYS {
            self.compare(number);
        }
    }

    /// Compares the item of a key, and removes it from the list if it is gone with good reason.
    /// Returns its place.
    fn compare(&mut self, key: u8) -> Option<S::Slot> {
        let found = self.store.find(named(key)).ok();
        match (found, self.items.get(key)) {
            (None, None) => {}
            (Some(slot), Some(item)) => {
                assert_eq!(self.store.key(slot), named(key), "N1");
                assert_eq!(self.store.header(slot), item.header, "N1: {key:?}");
                assert_eq!(self.store.value(slot), item.value, "N1: {key:?}");
                let shown = self.store.show(slot);
                assert_eq!(shown.key, named(key), "N1");
                assert_eq!(&*shown.value, item.value, "N1");
                assert_eq!(shown.item_bytes, self.store.item_bytes(slot), "N1");
            }
            (Some(_), None) => panic!("N1: {key:?} is there, and should not be"),
            (None, Some(item)) => {
                assert!(!item.header.locked, "N2: {key:?} was locked");
                let deadline = item.header.deadline;
                let is_past = deadline.is_some_and(|deadline| deadline.has_passed(self.now));
                assert!(
                    is_past || self.room == Room::Scarce,
                    "N2: {key:?} was evicted"
                );
                self.gone += 1;
                self.gone_bytes_max = self.gone_bytes_max.max(item.bytes);
                let unfetched = u64::from(!item.header.fetched);
                if is_past {
                    self.due.reclaimed += 1;
                    self.due.expired_unfetched += unfetched;
                } else {
                    self.due.evictions += 1;
                    self.due.evicted_unfetched += unfetched;
                    self.due.evicted_nonzero += u64::from(deadline.is_some());
                }
                self.strike(key);
            }
        }
        found
    }

    /// Removes an item from the list; a scan need not show it any more.
    fn strike(&mut self, key: u8) {
        self.items.remove(key);
        if let Some(scan) = &mut self.scan {
            scan.wanted.remove(key);
        }
    }
}
