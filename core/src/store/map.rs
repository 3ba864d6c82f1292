//! Where the server keeps its items: each in an allocation of its own, with a numbered slot to name
//! it, an ordered index to find it, and a queue to choose what to evict.
//!
//! Written to be easy to check, since the model and the property tests run on it, too. An item keeps
//! its slot for as long as it is there, whatever happens to its value.
//!
//! Eviction works as CLOCK does with a two-bit counter: the oldest item goes unless it was hit since
//! it last came by; a hit item moves behind the newest and loses one hit. Locked items stand in no
//! queue while they are locked, so no choice can fall on them (S1), and a choice ends after at most
//! four turns of the queue.
//!
//! - M1: the index names every occupied slot, and no other.
//! - M2: the queue holds every item that is not locked exactly once.
//! - M3: `bytes` and `locked_bytes` are the sums of what the items take.

mod entry;
#[cfg(feature = "verify")]
mod view;

use alloc::vec::Vec;

use self::entry::{Entry, cost};
#[cfg(feature = "verify")]
pub use self::view::{MapEntry, MapView};
use super::index::{HashSeed, Index, KeyHash};
use super::slot::MapSlot;
use super::{End, Full, Store, Usage};
use crate::command::ScanCursor;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::limits::Limits;
use crate::stats::Counters;
use crate::time::Tick;
use crate::value::Value;

/// The most hits that an item can have to its credit.
const HITS_MAX: u8 = 3;

/// Items in numbered slots, found by an ordered set of hashes.
#[derive(Clone, Debug)]
pub struct MapStore {
    bytes_max: usize,
    evict: bool,
    index: Index,
    slots: Vec<Option<Entry>>,
    free: Vec<MapSlot>,
    queue: Queue,
    bytes: usize,
    locked_bytes: usize,
    crawled: usize,
}

/// A list through the entries, from the one to be looked at next to the newest.
#[derive(Clone, Debug, Default)]
struct Queue {
    oldest: Option<MapSlot>,
    newest: Option<MapSlot>,
}

impl MapStore {
    /// An empty store within `limits`, with a seed that everybody knows: for tests and models.
    #[must_use]
    pub const fn new(limits: &Limits) -> Self {
        Self::with_seed(limits, [0, 0])
    }

    /// An empty store within `limits`.
    #[must_use]
    pub const fn with_seed(limits: &Limits, seed: HashSeed) -> Self {
        Self {
            bytes_max: limits.memory_bytes_max,
            evict: limits.evict,
            index: Index::new(seed),
            slots: Vec::new(),
            free: Vec::new(),
            queue: Queue {
                oldest: None,
                newest: None,
            },
            bytes: 0,
            locked_bytes: 0,
            crawled: 0,
        }
    }

    fn entry(&self, slot: MapSlot) -> &Entry {
        self.slots[slot.number()]
            .as_ref()
            .expect("a slot is good until the store changes")
    }

    fn entry_mut(&mut self, slot: MapSlot) -> &mut Entry {
        self.slots[slot.number()]
            .as_mut()
            .expect("a slot is good until the store changes")
    }

    /// Puts `slot` behind the newest.
    fn enqueue(&mut self, slot: MapSlot) {
        let newest = self.queue.newest.replace(slot);
        match newest {
            Some(newest) => self.entry_mut(newest).newer = Some(slot),
            None => self.queue.oldest = Some(slot),
        }
        let entry = self.entry_mut(slot);
        entry.older = newest;
        entry.newer = None;
    }

    fn dequeue(&mut self, slot: MapSlot) {
        let entry = self.entry_mut(slot);
        let (older, newer) = (entry.older.take(), entry.newer.take());
        match older {
            Some(older) => self.entry_mut(older).newer = newer,
            None => self.queue.oldest = newer,
        }
        match newer {
            Some(newer) => self.entry_mut(newer).older = older,
            None => self.queue.newest = older,
        }
    }

    /// Whether `need` bytes could be had in the place of `gone` ones (of which `gone_locked` are
    /// pinned) by evicting everything that may be.
    fn has_room(&self, need: usize, gone: usize, gone_locked: usize) -> bool {
        let kept = if self.evict {
            self.locked_bytes - gone_locked
        } else {
            self.bytes - gone
        };
        kept.saturating_add(need) <= self.bytes_max
    }

    /// Evicts items until `need` bytes are free. The caller has asked `has_room`.
    fn make_room(&mut self, now: Tick, need: usize, counters: &mut Counters) {
        while self.bytes + need > self.bytes_max {
            let slot = self
                .queue
                .oldest
                .expect("has_room: what is not locked is queued (M2)");
            let entry = self.entry_mut(slot);
            if entry.is_past(now) {
                counters.reclaimed += 1;
                counters.expired_unfetched += u64::from(!entry.header.fetched);
                self.remove(slot);
            } else if entry.hits > 0 {
                entry.hits -= 1;
                self.dequeue(slot);
                self.enqueue(slot);
            } else {
                counters.evictions += 1;
                counters.evicted_unfetched += u64::from(!entry.header.fetched);
                self.remove(slot);
            }
        }
    }

    /// Takes the entry out of `slot`, which stays under its name to be filled again.
    fn vacate(&mut self, slot: MapSlot) -> Entry {
        if !self.entry(slot).header.locked {
            self.dequeue(slot);
        }
        let entry = self.slots[slot.number()]
            .take()
            .expect("a slot is good until it is removed");
        self.bytes -= entry.cost();
        self.locked_bytes -= if entry.header.locked { entry.cost() } else { 0 };
        entry
    }

    fn fill(&mut self, slot: MapSlot, entry: Entry) {
        let (cost, locked) = (entry.cost(), entry.header.locked);
        self.slots[slot.number()] = Some(entry);
        self.bytes += cost;
        if locked {
            self.locked_bytes += cost;
        } else {
            self.enqueue(slot);
        }
    }

    /// Empties `slot`, which keeps its name, and makes room for an item of `need` bytes in it.
    fn make_way(
        &mut self,
        now: Tick,
        slot: MapSlot,
        need: usize,
        counters: &mut Counters,
    ) -> Result<Entry, Full> {
        let old = self.entry(slot);
        let gone = old.cost();
        let gone_locked = if old.header.locked { gone } else { 0 };
        if !self.has_room(need, gone, gone_locked) {
            return Err(Full);
        }
        let old = self.vacate(slot);
        self.make_room(now, need, counters);
        Ok(old)
    }

    /// A slot for an item that has none, under its name and still empty.
    fn name(&mut self, hash: KeyHash) -> MapSlot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            MapSlot::from_number(self.slots.len() - 1)
        });
        self.index.insert(hash, slot);
        slot
    }
}

impl Store for MapStore {
    type Slot = MapSlot;
    type Vacancy = KeyHash;

    fn find(&self, key: Key<'_>) -> Result<MapSlot, KeyHash> {
        let hash = self.index.hash(key);
        self.index
            .find(hash, |slot| self.entry(slot).key() == key)
            .ok_or(hash)
    }

    fn header(&self, slot: MapSlot) -> ItemHeader {
        self.entry(slot).header
    }

    fn set_header(&mut self, slot: MapSlot, header: ItemHeader) {
        let entry = self.entry_mut(slot);
        let was_locked = entry.header.locked;
        entry.header = header;
        let cost = entry.cost();
        match (was_locked, header.locked) {
            (false, true) => {
                self.dequeue(slot);
                self.locked_bytes += cost;
            }
            (true, false) => {
                self.enqueue(slot);
                self.locked_bytes -= cost;
            }
            (false, false) | (true, true) => {}
        }
    }

    fn key(&self, slot: MapSlot) -> Key<'_> {
        self.entry(slot).key()
    }

    fn value(&self, slot: MapSlot) -> &[u8] {
        self.entry(slot).value()
    }

    fn item_bytes(&self, slot: MapSlot) -> usize {
        self.entry(slot).cost()
    }

    fn record_hit(&mut self, slot: MapSlot) {
        let entry = self.entry_mut(slot);
        entry.hits = (entry.hits + 1).min(HITS_MAX);
    }

    fn insert(
        &mut self,
        now: Tick,
        vacancy: KeyHash,
        key: Key<'_>,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<MapSlot, Full> {
        let need = self.bytes_for(key.as_bytes().len(), value.len());
        if !self.has_room(need, 0, 0) {
            return Err(Full);
        }
        self.make_room(now, need, counters);
        let slot = self.name(vacancy);
        self.fill(slot, Entry::new(key, &value, header));
        counters.total_items += 1;
        Ok(slot)
    }

    fn replace(
        &mut self,
        now: Tick,
        slot: MapSlot,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<MapSlot, Full> {
        let entry = self.entry_mut(slot);
        if entry.value().len() == value.len() {
            entry.value_mut().copy_from_slice(&value);
            self.set_header(slot, header);
        } else {
            let need = cost(entry.key().as_bytes().len(), value.len());
            let old = self.make_way(now, slot, need, counters)?;
            self.fill(slot, Entry::new(old.key(), &value, header));
        }
        counters.total_items += 1;
        Ok(slot)
    }

    fn extend(
        &mut self,
        now: Tick,
        slot: MapSlot,
        header: ItemHeader,
        bytes: &[u8],
        end: End,
        counters: &mut Counters,
    ) -> Result<MapSlot, Full> {
        let need = self.entry(slot).cost() + bytes.len();
        let old = self.make_way(now, slot, need, counters)?;
        let value = match end {
            End::Back => [old.value(), bytes].concat(),
            End::Front => [bytes, old.value()].concat(),
        };
        self.fill(slot, Entry::new(old.key(), &value, header));
        counters.total_items += 1;
        Ok(slot)
    }

    fn remove(&mut self, slot: MapSlot) -> KeyHash {
        let entry = self.vacate(slot);
        let hash = self.index.hash(entry.key());
        self.index.remove(hash, slot);
        self.free.push(slot);
        hash
    }

    fn clear(&mut self) {
        while let Some(slot) = self.queue.oldest {
            self.remove(slot);
        }
    }

    fn crawl(&mut self, now: Tick, items_max: usize, counters: &mut Counters) {
        for _ in 0..items_max.min(self.slots.len()) {
            let number = self.crawled;
            self.crawled = (number + 1) % self.slots.len();
            let Some(Some(entry)) = self.slots.get(number) else {
                continue;
            };
            counters.crawler_items_checked += 1;
            if entry.is_past(now) && !entry.header.locked {
                counters.crawler_reclaimed += 1;
                counters.reclaimed += 1;
                counters.expired_unfetched += u64::from(!entry.header.fetched);
                self.remove(MapSlot::from_number(number));
            }
        }
    }

    fn scan<'a>(
        &'a self,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(Key<'a>, &ItemHeader),
    ) -> Option<ScanCursor> {
        // A cursor is a slot number: an item keeps its slot for as long as it is there.
        let start = usize::try_from(cursor.0)
            .unwrap_or(usize::MAX)
            .min(self.slots.len());
        let end = start.saturating_add(items_max).min(self.slots.len());
        for entry in self.slots[start..end].iter().flatten() {
            visit(entry.key(), &entry.header);
        }
        (end < self.slots.len()).then_some(ScanCursor(end as u64))
    }

    fn usage(&self) -> Usage {
        Usage {
            items: self.index.len(),
            bytes: self.bytes,
            locked_bytes: self.locked_bytes,
            // What an item takes besides key and value is part of what it is charged for.
            held_bytes: self.bytes,
        }
    }

    fn bytes_for(&self, key_bytes: usize, value_bytes: usize) -> usize {
        cost(key_bytes, value_bytes)
    }

    #[cfg(any(test, feature = "verify"))]
    fn check(&self) {
        let occupied = self.slots.iter().flatten().count();
        assert_eq!(
            self.index.len(),
            occupied,
            "M1: an item without a name, or a name without one"
        );
        assert_eq!(
            occupied + self.free.len(),
            self.slots.len(),
            "M1: a slot got lost"
        );
        for (slot, in_place) in self.index.iter(|slot| self.entry(slot).key()) {
            assert!(in_place, "I1: {slot:?} stands under another hash");
        }
        let mut queued = 0;
        let mut older = None;
        let mut next = self.queue.oldest;
        while let Some(slot) = next {
            let entry = self.entry(slot);
            assert!(!entry.header.locked, "M2: a locked item is queued");
            assert_eq!(entry.older, older, "M2: the queue differs by direction");
            queued += 1;
            assert!(queued <= occupied, "M2: the queue is a ring");
            (older, next) = (next, entry.newer);
        }
        assert_eq!(self.queue.newest, older, "M2: the newest is not the last");
        let locked = self
            .slots
            .iter()
            .flatten()
            .filter(|entry| entry.header.locked);
        assert_eq!(
            queued + locked.clone().count(),
            occupied,
            "M2: an item is not queued"
        );
        let sum: usize = self.slots.iter().flatten().map(Entry::cost).sum();
        assert_eq!(self.bytes, sum, "M3: bytes");
        assert_eq!(
            self.locked_bytes,
            locked.map(Entry::cost).sum::<usize>(),
            "M3: locked bytes"
        );
        assert!(self.bytes <= self.bytes_max, "S3: over the limit");
    }
}
