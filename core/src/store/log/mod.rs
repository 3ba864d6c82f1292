//! The production store: a log of segments, an index, and queues that order eviction.
//!
//! Items are written one after the other into segments. To free memory, the store empties whole segments: it
//! moves the items worth keeping and drops the rest. So no item needs an allocation or list links of its own,
//! and a change of value sizes fragments nothing. Every store does a little of this work before memory is
//! needed, so that no single one does all of it.
//!
//! - L1: The index names exactly the live records. At most one live record of a key is present.
//! - L2: The tally is the sum over the present items.
//! - L3: The allocated bytes are at most the limit. They include segments, index, ghosts, huge values, the
//!   lists of these, and the reservation. After the limit was lowered, see [`limit`].
//! - L4: A call does a bounded amount of work, in proportion to the bytes it stores; a flush is O(1).
//!
//! An item is charged for its record without the client's flags, and for its huge value. It is not charged
//! for its share of the index, which L3 counts separately.

mod admission;
mod ahead;
mod block;
mod bucket;
mod buckets;
#[cfg(any(test, feature = "verify"))]
mod check;
mod chunks;
mod deadlines;
mod drain;
mod geometry;
mod ghost;
mod hash;
mod huge;
mod index;
mod limit;
mod list;
mod queue;
mod queues;
mod reclaim;
mod record;
mod scan;
mod segment;
mod segments;
mod sweep;
mod tally;
mod write;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::{fmt, mem};

use latchd_protocol::command::ScanCursor;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::MemoryRefused;
use latchd_protocol::stats::{Counters, Eviction};
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;
use latchd_protocol::watch::Evicted;

pub use self::block::Block;
use self::drain::Drain;
use self::geometry::{Address, Geometry};
use self::ghost::Ghost;
pub use self::hash::{HashSeed, KeyHasher, SipHash};
use self::huge::{HUGE_BYTES, Huge};
use self::index::Index;
use self::record::{Record, STUB_BYTES, deadline_count, record_bytes};
use self::segments::Log;
use self::sweep::Sweep;
use self::tally::Tally;
use self::write::Change;
use super::{End, Full, QueueState, Shown, Store, Usage, Visited};
use crate::limits::Limits;

/// A store on a log of segments. Its memory is allocated in blocks of type `B`.
pub struct LogStore<H = SipHash, B = Vec<u8>> {
    hasher: H,
    /// The bytes that may be allocated: the limit, or more while a lowered limit is being reached.
    bytes_max: usize,
    /// The configured limit, in bytes.
    bytes_wanted: usize,
    /// No more memory could be freed when the store last worked towards the limit.
    is_stuck: bool,
    evict: bool,
    /// The smallest reservation, in bytes.
    aside_bytes_min: usize,
    geometry: Geometry,
    log: Log<B>,
    index: Index<B>,
    ghost: Ghost<B>,
    huge: Huge<B>,
    tally: Tally,
    /// The segment that is being emptied.
    drain: Option<Drain>,
    /// The segment that is being swept for dead and expired items.
    sweep: Option<Sweep>,
    /// Whether a segment was swept since the last one was emptied, and little was freed.
    has_swept: bool,
    /// An item of the main queue needs more hits than this to pass through the queue once more.
    hits_needed: u8,
    /// How often an item in the log was stored again soon after its eviction. The number wraps.
    returns: u32,
    /// The item that is being replaced: it may be moved, but is not evicted.
    in_hand: Option<Address>,
    /// The reservation for memory outside the items, in bytes.
    aside_bytes: usize,
    last_eviction: Option<Eviction>,
    /// The items evicted since the last report; `None` if the record is off.
    evicted: Option<Vec<Evicted>>,
    /// The number of evicted items beyond those recorded.
    evicted_missed: u64,
}

/// Names an item of a [`LogStore`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogSlot {
    address: Address,
    hash: u64,
}

/// The result of a look-up in a [`LogStore`] without an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogVacancy {
    hash: u64,
}

impl LogStore {
    /// An empty store within `limits`. Allocates nothing yet.
    #[must_use]
    pub fn new(limits: &Limits, seed: HashSeed) -> Self {
        Self::with_hasher(limits, SipHash::new(seed))
    }
}

impl<H: KeyHasher> LogStore<H> {
    /// An empty store within `limits`, with the caller's hash.
    #[must_use]
    pub const fn with_hasher(limits: &Limits, hasher: H) -> Self {
        let geometry = Geometry::for_memory(limits.memory_bytes_max);
        Self::with_geometry(limits, hasher, geometry)
    }

    /// An empty store within `limits` in segments of `segment_bytes`, a power of two of at least 512. Tests
    /// use small segments to reach the boundaries between them.
    #[must_use]
    pub const fn with_segments(limits: &Limits, hasher: H, segment_bytes: usize) -> Self {
        let geometry = Geometry::with_segments(limits.memory_bytes_max, segment_bytes);
        Self::with_geometry(limits, hasher, geometry)
    }
}

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// An empty store within `limits`, with the caller's hash and blocks.
    #[must_use]
    pub const fn in_blocks(limits: &Limits, hasher: H) -> Self {
        let geometry = Geometry::for_memory(limits.memory_bytes_max);
        Self::with_geometry(limits, hasher, geometry)
    }

    const fn with_geometry(limits: &Limits, hasher: H, geometry: Geometry) -> Self {
        Self {
            hasher,
            bytes_max: limits.memory_bytes_max,
            bytes_wanted: limits.memory_bytes_max,
            is_stuck: false,
            evict: limits.evict,
            aside_bytes_min: reclaim::aside_bytes_min(limits),
            geometry,
            log: Log::new(geometry, limits.erase),
            index: Index::new(geometry),
            ghost: Ghost::new(geometry),
            huge: Huge::new(geometry, limits.erase),
            tally: Tally::NONE,
            drain: None,
            sweep: None,
            has_swept: false,
            hits_needed: 0,
            returns: 0,
            in_hand: None,
            aside_bytes: reclaim::aside_bytes_min(limits),
            last_eviction: None,
            evicted: None,
            evicted_missed: 0,
        }
    }

    /// The longest value that is kept in a segment, in bytes. The store keeps a longer one without copying it
    /// if it arrives [shared](latchd_protocol::value::Value::Shared), in memory from [`Block::share`].
    #[must_use]
    pub const fn value_bytes_in_log_max(&self) -> usize {
        self.geometry.value_bytes_max()
    }

    /// The bytes that the store has allocated, with the overhead of allocators and the reservation (L3).
    const fn held_bytes(&self) -> usize {
        self.aside_bytes
            + self.log.held_bytes()
            + self.index.held_bytes()
            + self.ghost.held_bytes()
            + self.huge.held_bytes()
    }

    #[inline]
    fn record(&self, address: Address) -> Record<'_> {
        self.log.record(address)
    }

    fn value_at(&self, address: Address) -> &[u8] {
        let record = self.record(address);
        match record.huge() {
            Some(number) => self.huge.value(number),
            None => record.value(),
        }
    }

    #[cfg(any(test, feature = "verify"))]
    fn hash_at(&self, address: Address) -> u64 {
        self.hasher.hash(self.record(address).key())
    }

    /// The length of a record's value, in bytes, wherever it is.
    fn value_bytes(&self, record: Record<'_>) -> usize {
        record.huge().map_or_else(
            || record.value_bytes(),
            |number| self.huge.value(number).len(),
        )
    }

    /// The bytes of a record's value outside of the log.
    fn huge_bytes(&self, record: Record<'_>) -> usize {
        let number = record.huge();
        number.map_or(0, |number| self.huge.value(number).len() + HUGE_BYTES)
    }

    /// The cost of a record's item, in bytes.
    fn cost(&self, record: Record<'_>) -> usize {
        self.cost_of(record.key_bytes(), self.value_bytes(record))
    }

    const fn cost_of(&self, key_bytes: usize, value_bytes: usize) -> usize {
        cost_of(&self.geometry, key_bytes, value_bytes)
    }

    /// Removes a record from the index and marks it as dead. Updates the tally if its item is present.
    fn bury(&mut self, address: Address, hash: u64) {
        let record = self.record(address);
        let number = record.huge();
        if self.log.is_there(address) {
            self.tally.leave(self.cost(record), record.is_locked());
        }
        self.index.remove(hash, address);
        self.log.kill(address);
        if let Some(number) = number {
            self.huge.remove(number);
        }
        if self.index.shrink() {
            self.ghost.shrink(self.index.buckets());
        }
    }

    /// Writes an item's header, and updates the tallies and deadlines that depend on it.
    fn write_header(&mut self, address: Address, header: &ItemHeader) {
        let mut record = self.log.record_mut(address);
        let before = record.as_ref();
        let (was_locked, old_deadline) = (before.is_locked(), before.deadline());
        if before.has_flags() {
            record.set_flags(header.client_flags);
        } else {
            assert_eq!(header.client_flags, 0, "R2: flags come with a value");
        }
        record.set_header(header);
        if was_locked != header.locked {
            self.lock_changed(address, header.locked);
        }
        let deadline = deadline_count(header);
        if !header.locked && (deadline < old_deadline || was_locked) {
            self.expect(address, deadline);
        }
    }

    /// Updates the sums after an item was locked or unlocked.
    fn lock_changed(&mut self, address: Address, is_locked: bool) {
        let record = self.record(address);
        let (cost, number) = (self.cost(record), record.huge());
        self.tally.leave(cost, !is_locked);
        match number {
            Some(number) => self.huge.set_locked(number, is_locked),
            None => self.log.set_locked(address, is_locked),
        }
        if self.log.is_there(address) {
            self.tally.enter(cost, is_locked);
        } else {
            self.revisit(address);
        }
    }
}

/// The cost of an item of these sizes, in bytes.
const fn cost_of(geometry: &Geometry, key_bytes: usize, value_bytes: usize) -> usize {
    if value_bytes > geometry.value_bytes_max() {
        let stub = record_bytes(false, key_bytes, STUB_BYTES);
        geometry.padded(stub) + value_bytes + HUGE_BYTES
    } else {
        geometry.padded(record_bytes(false, key_bytes, value_bytes))
    }
}

/// The item of a record as a reader sees it.
#[inline]
fn shown<'a>(geometry: &Geometry, record: Record<'a>, value: Value<'a>) -> Shown<'a> {
    Shown {
        key: record.key(),
        value,
        item_bytes: cost_of(geometry, record.key_bytes(), value.len()),
    }
}

impl<H: KeyHasher, B: Block> Store for LogStore<H, B> {
    const SHARES_VALUES: bool = true;

    type Slot = LogSlot;
    type Vacancy = LogVacancy;

    fn find(&self, key: Key<'_>) -> Result<LogSlot, LogVacancy> {
        self.find_item(key).map(|(slot, _)| slot)
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "each command calls it, and a call costs as much as it does"
    )]
    fn find_item(&self, key: Key<'_>) -> Result<(LogSlot, ItemHeader), LogVacancy> {
        let hash = self.hasher.hash(key);
        let found = self.index.find(hash, |address| self.log.item(address, key));
        match found {
            Some((address, record)) => Ok((LogSlot { address, hash }, record.header())),
            None => Err(LogVacancy { hash }),
        }
    }

    #[inline]
    fn header(&self, slot: LogSlot) -> ItemHeader {
        self.record(slot.address).header()
    }

    fn set_header(&mut self, slot: LogSlot, header: ItemHeader) {
        self.write_header(slot.address, &header);
    }

    fn key(&self, slot: LogSlot) -> Key<'_> {
        self.record(slot.address).key()
    }

    fn value(&self, slot: LogSlot) -> &[u8] {
        self.value_at(slot.address)
    }

    fn show(&self, slot: LogSlot) -> Shown<'_> {
        let record = self.record(slot.address);
        let value = match record.huge() {
            Some(number) => Value::Shared(self.huge.value(number)),
            None => Value::Borrowed(record.value()),
        };
        shown(&self.geometry, record, value)
    }

    #[inline]
    fn read(
        &mut self,
        slot: LogSlot,
        header: Option<ItemHeader>,
        used_at: Option<Tick>,
    ) -> Shown<'_> {
        if let Some(header) = header {
            self.write_header(slot.address, &header);
        }
        let mut record = self.log.record_mut(slot.address);
        if let Some(now) = used_at {
            record.note_use(now);
        }
        let record = record.into_record();
        let value = match record.huge() {
            Some(number) => Value::Shared(self.huge.read(number, used_at.is_some())),
            None => Value::Borrowed(record.value()),
        };
        shown(&self.geometry, record, value)
    }

    fn item_bytes(&self, slot: LogSlot) -> usize {
        self.cost(self.record(slot.address))
    }

    fn record_hit(&mut self, slot: LogSlot) {
        let mut record = self.log.record_mut(slot.address);
        record.count_hit();
        if let Some(number) = record.as_ref().huge() {
            self.huge.read(number, true);
        }
    }

    fn insert(
        &mut self,
        now: Tick,
        vacancy: LogVacancy,
        key: Key<'_>,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<LogSlot, Full> {
        let slot = self.write_new(now, vacancy.hash, key, &header, value, counters)?;
        counters.total_items += 1;
        Ok(slot)
    }

    fn replace(
        &mut self,
        now: Tick,
        slot: LogSlot,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<LogSlot, Full> {
        let change = Change::Whole(value);
        let slot = self.write_over(now, slot, &header, change, counters)?;
        counters.total_items += 1;
        Ok(slot)
    }

    fn extend(
        &mut self,
        now: Tick,
        slot: LogSlot,
        header: ItemHeader,
        bytes: &[u8],
        end: End,
        counters: &mut Counters,
    ) -> Result<LogSlot, Full> {
        let change = Change::More(bytes, end);
        let slot = self.write_over(now, slot, &header, change, counters)?;
        counters.total_items += 1;
        Ok(slot)
    }

    fn set_aside(
        &mut self,
        now: Tick,
        kept: Option<LogSlot>,
        bytes: usize,
        counters: &mut Counters,
    ) -> Result<Option<LogSlot>, Full> {
        self.in_hand = kept.map(|slot| slot.address);
        let done = self.put_aside(now, bytes, counters);
        let address = self.in_hand.take();
        done?;
        Ok(kept
            .zip(address)
            .map(|(slot, address)| LogSlot { address, ..slot }))
    }

    fn judge_memory(&self, memory_bytes_max: usize) -> Result<(), MemoryRefused> {
        self.judge_limit(memory_bytes_max)
    }

    fn set_memory(&mut self, _: Tick, limits: &Limits, _: &mut Counters) {
        self.set_limit(limits);
    }

    fn remove(&mut self, slot: LogSlot) -> LogVacancy {
        self.bury(slot.address, slot.hash);
        LogVacancy { hash: slot.hash }
    }

    fn clear(&mut self) {
        self.log.flush();
        self.tally = self.tally.locked_only();
    }

    fn crawl(&mut self, now: Tick, items_max: usize, counters: &mut Counters) {
        let left = self.sweep_some(now, items_max, counters);
        self.compact(now, left, counters);
        self.give_back(items_max);
        self.come_down(now, items_max, counters);
    }

    fn wants_crawl(&self, now: Tick) -> bool {
        self.sweep.is_some() || self.worth_sweeping(now).is_some() || self.comes_down()
    }

    fn scan<'a>(
        &'a self,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(Visited<'a>),
    ) -> Option<ScanCursor> {
        self.page(cursor, items_max, visit)
    }

    fn usage(&self) -> Usage {
        Usage {
            items: self.tally.items,
            bytes: self.tally.bytes,
            locked_bytes: self.tally.locked_bytes,
            held_bytes: self.held_bytes(),
        }
    }

    fn watch_evictions(&mut self, is_watched: bool) {
        match (is_watched, &self.evicted) {
            (true, None) => self.evicted = Some(Vec::new()),
            (true, Some(_)) => {}
            (false, _) => self.evicted = None,
        }
    }

    fn take_evicted(&mut self) -> (Vec<Evicted>, u64) {
        let evicted = self.evicted.as_mut().map(mem::take).unwrap_or_default();
        (evicted, mem::take(&mut self.evicted_missed))
    }

    #[inline]
    fn work(&self) -> u64 {
        self.huge.work()
    }

    fn queue(&self) -> QueueState {
        QueueState {
            oldest: self.oldest_access(),
            last_eviction: self.last_eviction,
            index_bytes: self.index.held_bytes(),
        }
    }

    fn was_flushed(&self, key: Key<'_>, vacancy: LogVacancy) -> bool {
        self.log.holds_flushed()
            && self
                .index
                .find(vacancy.hash, |address| {
                    self.record(address).has_key(key).then_some(())
                })
                .is_some()
    }

    fn bytes_for(&self, key_bytes: usize, value_bytes: usize) -> usize {
        self.cost_of(key_bytes, value_bytes)
    }

    #[cfg(any(test, feature = "verify"))]
    fn check(&self) {
        self.check_all();
    }
}

impl<H, B> fmt::Debug for LogStore<H, B> {
    /// Prints the sums; items are not printed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LogStore")
            .field("bytes_max", &self.bytes_max)
            .field("evict", &self.evict)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}
