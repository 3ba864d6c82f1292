//! The reference store, written to be easy to check, not to be fast.
//!
//! The model and the property tests run on it, and tests compare the log store with it. The server does not
//! use it. An item has a numbered slot, and keeps it through every change of its value.
//!
//! Eviction works as CLOCK with a two-bit counter. The oldest item is evicted unless it was hit since its
//! last turn. An item with hits moves behind the newest and loses one hit. Locked items are in no queue, so
//! none can be chosen (S1), and a choice ends after at most four turns of the queue.
//!
//! - M1: The names are those of the occupied slots, one name for each slot.
//! - M2: The queue holds every unlocked item exactly once.
//! - M3: `bytes` and `locked_bytes` are the sums of the items' costs.

mod entry;
mod slot;
#[cfg(feature = "verify")]
mod view;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::entry::{Entry, cost};
pub use self::slot::MapSlot;
#[cfg(feature = "verify")]
pub use self::view::{MapEntry, MapView};

use super::{End, Full, QueueState, Shown, Store, Usage, Visited};
use crate::limits::Limits;
use latchd_protocol::command::ScanCursor;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::MemoryRefused;
use latchd_protocol::stats::{Counters, Eviction};
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;

/// The most hits that an item can collect.
const HITS_MAX: u8 = 3;

/// Items in numbered slots, found by key.
#[derive(Clone, Debug)]
pub struct MapStore {
    bytes_max: usize,
    evict: bool,
    names: BTreeMap<Arc<[u8]>, MapSlot>,
    slots: Vec<Option<Entry>>,
    free: Vec<MapSlot>,
    /// From the slot to be checked next to the newest.
    queue: VecDeque<MapSlot>,
    bytes: usize,
    locked_bytes: usize,
    crawled: usize,
    last_eviction: Option<Eviction>,
}

/// The result of a look-up in a [`MapStore`] without an item: it carries nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MapVacancy;

impl MapStore {
    /// An empty store within `limits`.
    #[must_use]
    pub const fn new(limits: &Limits) -> Self {
        Self {
            bytes_max: limits.memory_bytes_max,
            evict: limits.evict,
            names: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            bytes: 0,
            locked_bytes: 0,
            crawled: 0,
            last_eviction: None,
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

    fn dequeue(&mut self, slot: MapSlot) {
        self.queue.retain(|queued| *queued != slot);
    }

    /// Whether evicting every unlocked item would free `need` bytes. The change frees `replaced`
    /// bytes; `replaced_locked` of them are locked.
    fn has_room(&self, need: usize, replaced: usize, replaced_locked: usize) -> bool {
        let kept = if self.evict {
            self.locked_bytes - replaced_locked
        } else {
            self.bytes - replaced
        };
        kept.saturating_add(need) <= self.bytes_max
    }

    /// Evicts items until `need` bytes are free. The caller has checked `has_room`.
    fn make_room(&mut self, now: Tick, need: usize, counters: &mut Counters) {
        while self.bytes + need > self.bytes_max {
            let oldest = self.queue.front().copied();
            let slot = oldest.expect("has_room: unlocked items are queued (M2)");
            let entry = self.entry_mut(slot);
            if entry.is_past(now) {
                counters.reclaimed += 1;
                counters.expired_unfetched += u64::from(!entry.header.fetched);
                self.remove(slot);
            } else if entry.hits > 0 {
                entry.hits -= 1;
                self.dequeue(slot);
                self.queue.push_back(slot);
            } else {
                counters.evictions += 1;
                counters.evicted_unfetched += u64::from(!entry.header.fetched);
                counters.evicted_nonzero += u64::from(entry.header.deadline.is_some());
                let idle_s = now.seconds_since(entry.header.last_access);
                self.last_eviction = Some(Eviction { at: now, idle_s });
                self.remove(slot);
            }
        }
    }

    /// Removes the entry from `slot`, which keeps its name until it is filled again.
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
            self.queue.push_back(slot);
        }
    }

    /// Replaces the value and header of the item in `slot`, if there is enough memory.
    fn refill(
        &mut self,
        now: Tick,
        slot: MapSlot,
        header: ItemHeader,
        value: &[u8],
        counters: &mut Counters,
    ) -> Result<MapSlot, Full> {
        let old = self.entry(slot);
        let need = cost(old.key().as_bytes().len(), value.len());
        let replaced = old.cost();
        let replaced_locked = if old.header.locked { replaced } else { 0 };
        if !self.has_room(need, replaced, replaced_locked) {
            return Err(Full);
        }
        let old = self.vacate(slot);
        self.make_room(now, need, counters);
        self.fill(slot, Entry::new(old.shared_key(), value, header));
        counters.total_items += 1;
        Ok(slot)
    }
}

impl Store for MapStore {
    type Slot = MapSlot;
    type Vacancy = MapVacancy;

    fn find(&self, key: Key<'_>) -> Result<MapSlot, MapVacancy> {
        self.names.get(key.as_bytes()).copied().ok_or(MapVacancy)
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
                self.queue.push_back(slot);
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

    fn show(&self, slot: MapSlot) -> Shown<'_> {
        Shown {
            key: self.key(slot),
            value: Value::Borrowed(self.value(slot)),
            item_bytes: self.item_bytes(slot),
        }
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
        _: MapVacancy,
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
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            MapSlot::from_number(self.slots.len() - 1)
        });
        let key: Arc<[u8]> = key.as_bytes().into();
        self.names.insert(Arc::clone(&key), slot);
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
        if entry.value().len() != value.len() {
            return self.refill(now, slot, header, &value, counters);
        }
        // It needs no more memory, and keeps its place in the queue.
        entry.set_value(&value);
        self.set_header(slot, header);
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
        let old = self.entry(slot).value();
        let value = match end {
            End::Back => [old, bytes].concat(),
            End::Front => [bytes, old].concat(),
        };
        self.refill(now, slot, header, &value, counters)
    }

    /// Items that must not be evicted must fit: this store reaches a smaller limit at once.
    fn judge_memory(&self, memory_bytes_max: usize) -> Result<(), MemoryRefused> {
        let kept = if self.evict {
            self.locked_bytes
        } else {
            self.bytes
        };
        if kept <= memory_bytes_max {
            Ok(())
        } else {
            Err(MemoryRefused::TooSmall)
        }
    }

    fn set_memory(&mut self, now: Tick, limits: &Limits, counters: &mut Counters) {
        self.bytes_max = limits.memory_bytes_max;
        self.make_room(now, 0, counters);
    }

    fn remove(&mut self, slot: MapSlot) -> MapVacancy {
        let entry = self.vacate(slot);
        self.names.remove(entry.key().as_bytes());
        self.free.push(slot);
        MapVacancy
    }

    fn clear(&mut self) {
        while let Some(slot) = self.queue.front() {
            self.remove(*slot);
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
        visit: &mut dyn FnMut(Visited<'a>),
    ) -> Option<ScanCursor> {
        // A cursor is a slot number: an item keeps its slot until it is removed.
        let start = usize::try_from(cursor.0)
            .unwrap_or(usize::MAX)
            .min(self.slots.len());
        let end = start.saturating_add(items_max).min(self.slots.len());
        for entry in self.slots[start..end].iter().flatten() {
            visit(Visited {
                key: entry.key(),
                header: entry.header,
                value: entry.value(),
                item_bytes: entry.cost(),
            });
        }
        (end < self.slots.len()).then_some(ScanCursor(end as u64))
    }

    fn usage(&self) -> Usage {
        Usage {
            items: self.names.len(),
            bytes: self.bytes,
            locked_bytes: self.locked_bytes,
            // The overhead of an item is part of its cost.
            held_bytes: self.bytes,
        }
    }

    fn queue(&self) -> QueueState {
        let next = self.queue.front().map(|slot| self.entry(*slot));
        QueueState {
            oldest: next.map(|entry| entry.header.last_access),
            last_eviction: self.last_eviction,
            // The overhead of an item is part of its cost.
            index_bytes: 0,
        }
    }

    fn bytes_for(&self, key_bytes: usize, value_bytes: usize) -> usize {
        cost(key_bytes, value_bytes)
    }

    #[cfg(any(test, feature = "verify"))]
    fn check(&self) {
        let occupied = self.slots.iter().flatten().count();
        assert_eq!(self.names.len(), occupied, "M1: a name or an item too many");
        assert_eq!(
            occupied + self.free.len(),
            self.slots.len(),
            "M1: a slot got lost"
        );
        for (name, slot) in &self.names {
            assert_eq!(&**name, self.entry(*slot).key().as_bytes(), "M1");
        }
        let mut queued: Vec<_> = self.queue.iter().collect();
        queued.sort();
        queued.dedup();
        assert_eq!(queued.len(), self.queue.len(), "M2: queued twice");
        let is_locked = |slot: &&MapSlot| self.entry(**slot).header.locked;
        assert!(
            !self.queue.iter().any(|slot| is_locked(&slot)),
            "M2: a locked item is queued"
        );
        let locked = self.names.values().filter(is_locked);
        assert_eq!(
            queued.len() + locked.clone().count(),
            occupied,
            "M2: an item is not queued"
        );
        let sum: usize = self.slots.iter().flatten().map(Entry::cost).sum();
        assert_eq!(self.bytes, sum, "M3: bytes");
        let locked_sum: usize = locked.map(|slot| self.entry(*slot).cost()).sum();
        assert_eq!(self.locked_bytes, locked_sum, "M3: locked bytes");
        assert!(self.bytes <= self.bytes_max, "S3: over the limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cleared item is removed at once, so the store cannot report that it was flushed.
    #[test]
    fn flushed_keys_are_not_reported() {
        let mut store = MapStore::new(&Limits::new(1 << 20, 1 << 10));
        store.clear();
        let key = Key::new(b"k").unwrap();
        let Err(vacancy) = store.find(key) else {
            panic!("nothing is there");
        };
        assert!(!store.was_flushed(key, vacancy));
    }
}
