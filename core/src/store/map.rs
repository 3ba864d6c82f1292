//! The reference store, written to be easy to check, not to be fast.
//!
//! The model and the property tests run on it, and tests compare the log store with it. The server does not
//! use it. An item has a numbered place, and keeps it through every change of its value.
//!
//! Eviction works as CLOCK with a two-bit counter. The oldest item is evicted unless it was hit since its
//! last turn. An item with hits moves behind the newest and loses one hit. Locked items are in no queue, so
//! none can be chosen (S1), and a choice ends after at most four turns of the queue.
//!
//! - M1: The names are those of the occupied slots, one name for each slot.
//! - M2: The queue holds every unlocked item exactly once.
//! - M3: `bytes` and `locked_bytes` are the sums of the items' costs.
//! - M4: A look-up is valid until the next call that may move items. The store asserts it for each slot and vacancy that it
//!   gets, although its items keep their places: a stale slot names another item in a store that moves its items.

mod entry;
mod slot;
#[cfg(feature = "verify")]
mod view;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::entry::{Entry, cost};
use self::slot::Place;
pub use self::slot::{MapSlot, MapVacancy};
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
    names: BTreeMap<Arc<[u8]>, Place>,
    slots: Vec<Option<Entry>>,
    free: Vec<Place>,
    /// From the slot to be checked next to the newest.
    queue: VecDeque<Place>,
    bytes: usize,
    locked_bytes: usize,
    crawled: usize,
    last_eviction: Option<Eviction>,
    /// The number of calls that may have moved items.
    moves: u32,
}

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
            moves: 0,
        }
    }

    fn entry(&self, place: Place) -> &Entry {
        self.slots[place.number()]
            .as_ref()
            .expect("an occupied place")
    }

    fn entry_mut(&mut self, place: Place) -> &mut Entry {
        self.slots[place.number()]
            .as_mut()
            .expect("an occupied place")
    }

    fn dequeue(&mut self, place: Place) {
        self.queue.retain(|queued| *queued != place);
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
            let place = oldest.expect("has_room: unlocked items are queued (M2)");
            let entry = self.entry_mut(place);
            if entry.is_past(now) {
                counters.reclaimed += 1;
                counters.expired_unfetched += u64::from(!entry.header.fetched);
                self.take_out(place);
            } else if entry.hits > 0 {
                entry.hits -= 1;
                self.dequeue(place);
                self.queue.push_back(place);
            } else {
                counters.evictions += 1;
                counters.evicted_unfetched += u64::from(!entry.header.fetched);
                counters.evicted_nonzero += u64::from(entry.header.deadline.is_some());
                let idle_s = now.seconds_since(entry.header.last_access);
                self.last_eviction = Some(Eviction { at: now, idle_s });
                self.take_out(place);
            }
        }
    }

    /// Removes the entry from `place`, which keeps its name until it is filled again.
    fn vacate(&mut self, place: Place) -> Entry {
        if !self.entry(place).header.locked {
            self.dequeue(place);
        }
        let entry = self.slots[place.number()]
            .take()
            .expect("an occupied place");
        self.bytes -= entry.cost();
        self.locked_bytes -= if entry.header.locked { entry.cost() } else { 0 };
        entry
    }

    fn fill(&mut self, place: Place, entry: Entry) {
        let (cost, locked) = (entry.cost(), entry.header.locked);
        self.slots[place.number()] = Some(entry);
        self.bytes += cost;
        if locked {
            self.locked_bytes += cost;
        } else {
            self.queue.push_back(place);
        }
    }

    /// Replaces the value and header of the item in `place`, if there is enough memory.
    fn refill(
        &mut self,
        now: Tick,
        place: Place,
        header: ItemHeader,
        value: &[u8],
        counters: &mut Counters,
    ) -> Result<(), Full> {
        let old = self.entry(place);
        let need = cost(old.key().as_bytes().len(), value.len());
        let replaced = old.cost();
        let replaced_locked = if old.header.locked { replaced } else { 0 };
        if !self.has_room(need, replaced, replaced_locked) {
            return Err(Full);
        }
        let old = self.vacate(place);
        self.make_room(now, need, counters);
        self.fill(place, Entry::new(old.shared_key(), value, header));
        counters.total_items += 1;
        Ok(())
    }

    /// Removes the item in `place`.
    fn take_out(&mut self, place: Place) {
        let entry = self.vacate(place);
        self.names.remove(entry.key().as_bytes());
        self.free.push(place);
    }

    /// Names the item in `place`.
    const fn slot(&self, place: Place) -> MapSlot {
        let moves = self.moves;
        MapSlot { place, moves }
    }

    /// Asserts that nothing can have moved since a look-up.
    fn assert_valid(&self, moves: u32) {
        assert_eq!(
            moves, self.moves,
            "M4: calls since the look-up may have moved items"
        );
    }

    /// The place of a valid slot.
    fn place(&self, slot: MapSlot) -> Place {
        self.assert_valid(slot.moves);
        slot.place
    }

    /// The place of a valid slot, for a call that may move items.
    fn place_before_moves(&mut self, slot: MapSlot) -> Place {
        let place = self.place(slot);
        self.end_look_ups();
        place
    }

    const fn end_look_ups(&mut self) {
        self.moves = self.moves.wrapping_add(1);
    }
}

impl Store for MapStore {
    type Slot = MapSlot;
    type Vacancy = MapVacancy;

    fn find(&self, key: Key<'_>) -> Result<MapSlot, MapVacancy> {
        let moves = self.moves;
        let place = self.names.get(key.as_bytes());
        let place = place.ok_or(MapVacancy { moves })?;
        Ok(self.slot(*place))
    }

    fn header(&self, slot: MapSlot) -> ItemHeader {
        self.entry(self.place(slot)).header
    }

    fn set_header(&mut self, slot: MapSlot, header: ItemHeader) {
        let place = self.place(slot);
        let entry = self.entry_mut(place);
        let was_locked = entry.header.locked;
        entry.header = header;
        let cost = entry.cost();
        match (was_locked, header.locked) {
            (false, true) => {
                self.dequeue(place);
                self.locked_bytes += cost;
            }
            (true, false) => {
                self.queue.push_back(place);
                self.locked_bytes -= cost;
            }
            (false, false) | (true, true) => {}
        }
    }

    fn key(&self, slot: MapSlot) -> Key<'_> {
        self.entry(self.place(slot)).key()
    }

    fn value(&self, slot: MapSlot) -> &[u8] {
        self.entry(self.place(slot)).value()
    }

    fn show(&self, slot: MapSlot) -> Shown<'_> {
        Shown {
            key: self.key(slot),
            value: Value::Borrowed(self.value(slot)),
            item_bytes: self.item_bytes(slot),
        }
    }

    fn item_bytes(&self, slot: MapSlot) -> usize {
        self.entry(self.place(slot)).cost()
    }

    fn record_hit(&mut self, slot: MapSlot) {
        let place = self.place(slot);
        let entry = self.entry_mut(place);
        entry.hits = (entry.hits + 1).min(HITS_MAX);
    }

    fn insert(
        &mut self,
        now: Tick,
        vacancy: MapVacancy,
        key: Key<'_>,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<MapSlot, Full> {
        self.assert_valid(vacancy.moves);
        self.end_look_ups();
        let need = self.bytes_for(key.as_bytes().len(), value.len());
        if !self.has_room(need, 0, 0) {
            return Err(Full);
        }
        self.make_room(now, need, counters);
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Place::from_number(self.slots.len() - 1)
        });
        let key: Arc<[u8]> = key.as_bytes().into();
        self.names.insert(Arc::clone(&key), place);
        self.fill(place, Entry::new(key, &value, header));
        counters.total_items += 1;
        Ok(self.slot(place))
    }

    fn replace(
        &mut self,
        now: Tick,
        slot: MapSlot,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<MapSlot, Full> {
        let place = self.place_before_moves(slot);
        let entry = self.entry_mut(place);
        if entry.value().len() != value.len() {
            self.refill(now, place, header, &value, counters)?;
            return Ok(self.slot(place));
        }
        // It needs no more memory, and keeps its place in the queue.
        entry.set_value(&value);
        let slot = self.slot(place);
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
        let place = self.place_before_moves(slot);
        let old = self.entry(place).value();
        let value = match end {
            End::Back => [old, bytes].concat(),
            End::Front => [bytes, old].concat(),
        };
        self.refill(now, place, header, &value, counters)?;
        Ok(self.slot(place))
    }

    /// It counts only items, and moves none. A store whose tables share the limit may.
    fn set_aside(
        &mut self,
        _: Tick,
        kept: Option<MapSlot>,
        _: usize,
        _: &mut Counters,
    ) -> Result<Option<MapSlot>, Full> {
        let place = kept.map(|slot| self.place(slot));
        self.end_look_ups();
        Ok(place.map(|place| self.slot(place)))
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
        self.end_look_ups();
        self.bytes_max = limits.memory_bytes_max;
        self.make_room(now, 0, counters);
    }

    fn remove(&mut self, slot: MapSlot) -> MapVacancy {
        let place = self.place_before_moves(slot);
        self.take_out(place);
        let moves = self.moves;
        MapVacancy { moves }
    }

    fn clear(&mut self) {
        self.end_look_ups();
        while let Some(place) = self.queue.front() {
            self.take_out(*place);
        }
    }

    fn crawl(&mut self, now: Tick, items_max: usize, counters: &mut Counters) {
        self.end_look_ups();
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
                self.take_out(Place::from_number(number));
            }
        }
    }

    fn scan<'a>(
        &'a self,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(Visited<'a>),
    ) -> Option<ScanCursor> {
        // A cursor is the number of a place: an item keeps its place until it is removed.
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
        let next = self.queue.front().map(|place| self.entry(*place));
        QueueState {
            oldest: next.map(|entry| entry.header.last_access),
            last_eviction: self.last_eviction,
            // The overhead of an item is part of its cost.
            index_bytes: 0,
        }
    }

    fn was_flushed(&self, _: Key<'_>, vacancy: MapVacancy) -> bool {
        self.assert_valid(vacancy.moves);
        false
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
            "M1: a place got lost"
        );
        for (name, place) in &self.names {
            assert_eq!(&**name, self.entry(*place).key().as_bytes(), "M1");
        }
        let mut queued: Vec<_> = self.queue.iter().collect();
        queued.sort();
        queued.dedup();
        assert_eq!(queued.len(), self.queue.len(), "M2: queued twice");
        let is_locked = |place: &&Place| self.entry(**place).header.locked;
        assert!(
            !self.queue.iter().any(|place| is_locked(&place)),
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
        let locked_sum: usize = locked.map(|place| self.entry(*place).cost()).sum();
        assert_eq!(self.locked_bytes, locked_sum, "M3: locked bytes");
        assert!(self.bytes <= self.bytes_max, "S3: over the limit");
    }
}

#[cfg(test)]
mod tests {
    use latchd_protocol::item::Cas;

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
    /// A store with one item, and its look-up.
    fn store() -> (MapStore, MapSlot) {
        let mut store = MapStore::new(&Limits::new(1 << 20, 1 << 10));
        let key = Key::new(b"k").unwrap();
        let vacancy = store.find(key).unwrap_err();
        let header = ItemHeader::new(Cas::FIRST, Tick::from_count(0));
        let (value, mut counters) = (Value::default(), Counters::default());
        let now = Tick::from_count(0);
        let stored = store.insert(now, vacancy, key, header, value, &mut counters);
        assert!(stored.is_ok());
        let slot = store.find(key).unwrap();
        (store, slot)
    }

    #[test]
    fn look_ups_survive_calls_that_move_nothing() {
        let (mut store, slot) = store();
        let header = store.header(slot);
        store.set_header(slot, header);
        store.record_hit(slot);
        store.read(slot, None, Some(header.last_access));
        assert_eq!(store.key(slot).as_bytes(), b"k");
    }

    #[test]
    #[should_panic(expected = "M4")]
    fn look_ups_end_with_moving_calls() {
        let (mut store, slot) = store();
        store.crawl(Tick::from_count(0), 1, &mut Counters::default());
        store.header(slot);
    }
}
