//! Where items are kept: the trait, and its implementations.
//!
//! A store knows keys, values, sizes and memory, but no commands. The engine decides how an expired, a stale
//! or a locked item looks to a client. To choose an item to evict, the store knows its deadline and whether
//! it is locked.
//!
//! - S1: A locked item is never evicted.
//! - S2: A store stores the whole item, or changes nothing except that it evicts other items.
//! - S3: [`Usage::bytes`] never exceeds [`memory_bytes_max`](crate::Limits::memory_bytes_max). After the
//!   limit was lowered, it never exceeds the bytes held at that moment.
//! - S4: If [`Limits::erase`] is set, the store zeroes values. It zeroes the value of a removed, replaced,
//!   evicted, extended or moved item at once. It zeroes an expired or flushed value when it finds the item,
//!   and a large value that is still being sent after the send. The [reference](MapStore) zeroes nothing.
//! - S5: A store that may evict refuses a value of n bytes only if n, the locked items, and the reservation do not
//!   fit into the limit together, packed as densely as the store packs.
//!
//! Models: they run on the reference; `locks-4x2-room-1` and `locks-2x2-room-2` for S1, those with `room` for S2. Both stores are
//! compared with a list in `tests/harness/src/stores/`.

mod log;
mod map;

use alloc::vec::Vec;

pub use log::{Block, HashSeed, KeyHasher, LogSlot, LogStore, LogVacancy, SipHash};
#[cfg(feature = "verify")]
pub use map::{MapEntry, MapView};
pub use map::{MapSlot, MapStore, MapVacancy};

use crate::limits::Limits;
use latchd_protocol::command::ScanCursor;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::MemoryRefused;
use latchd_protocol::stats::{Counters, Eviction};
use latchd_protocol::time::Tick;
use latchd_protocol::value::Value;
use latchd_protocol::watch::Evicted;

/// Keeps items within a memory limit.
///
/// A command looks up its key once. All calls after [`find`](Store::find) use its result: the
/// [`Slot`](Store::Slot) of the item, or the [`Vacancy`](Store::Vacancy) of a missing one. Both are valid
/// until the next call that takes `&mut self`. [`set_header`](Store::set_header),
/// [`record_hit`](Store::record_hit) and [`read`](Store::read) are exceptions: they keep all of them valid.
pub trait Store {
    /// Whether the store keeps a large [shared](Value::Shared) value without copying it. If so, the caller
    /// copies the value into shared memory beforehand, outside any lock on the store.
    const SHARES_VALUES: bool = false;

    /// Names an item found by a look-up.
    type Slot: Copy;

    /// The result of a look-up without an item, such as the hash of the key: an insert need not compute it
    /// again.
    type Vacancy: Copy;

    /// Finds the item of `key`, expired or not.
    ///
    /// # Errors
    /// If there is no item: the place where [`insert`](Store::insert) can put one.
    fn find(&self, key: Key<'_>) -> Result<Self::Slot, Self::Vacancy>;

    /// Finds the item of `key` and its header, which nearly every command needs.
    ///
    /// # Errors
    /// As [`find`](Store::find).
    #[inline]
    fn find_item(&self, key: Key<'_>) -> Result<(Self::Slot, ItemHeader), Self::Vacancy> {
        let slot = self.find(key)?;
        Ok((slot, self.header(slot)))
    }

    /// The item's header: all its fields except key and value.
    fn header(&self, slot: Self::Slot) -> ItemHeader;

    /// Changes the item's header.
    fn set_header(&mut self, slot: Self::Slot, header: ItemHeader);

    /// The item's key.
    fn key(&self, slot: Self::Slot) -> Key<'_>;

    /// The item's value.
    fn value(&self, slot: Self::Slot) -> &[u8];

    /// The item as a reader sees it, in one memory access.
    fn show(&self, slot: Self::Slot) -> Shown<'_>;

    /// Changes the item's header, if there is a new one, and shows the item. With a time, it is used then: that is its last
    /// access, it was fetched, and a hit is recorded. This is all the work of a get, in one memory access.
    fn read(
        &mut self,
        slot: Self::Slot,
        header: Option<ItemHeader>,
        used_at: Option<Tick>,
    ) -> Shown<'_> {
        if let Some(header) = header {
            self.set_header(slot, header);
        }
        if let Some(last_access) = used_at {
            let used = ItemHeader {
                last_access,
                fetched: true,
                ..self.header(slot)
            };
            self.set_header(slot, used);
            self.record_hit(slot);
        }
        self.show(slot)
    }

    /// The bytes that the item counts against the limit.
    fn item_bytes(&self, slot: Self::Slot) -> usize;

    /// Records a hit, which the choice of items to evict considers.
    fn record_hit(&mut self, slot: Self::Slot);

    /// Stores a new item. `vacancy` is the result of the look-up of `key`. Evicts other items if memory is
    /// needed, but never a locked one (S1).
    ///
    /// # Errors
    /// [`Full`] if evicting every item that may be evicted would not free enough memory. Nothing has changed
    /// then.
    fn insert(
        &mut self,
        now: Tick,
        vacancy: Self::Vacancy,
        key: Key<'_>,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<Self::Slot, Full>;

    /// Replaces an item's value and header. Evicts other items if memory is needed, as
    /// [`insert`](Store::insert) does, and counts the memory of the old value as free.
    ///
    /// # Errors
    /// As [`insert`](Store::insert).
    fn replace(
        &mut self,
        now: Tick,
        slot: Self::Slot,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<Self::Slot, Full>;

    /// Adds bytes at the end or the beginning of an item's value, and changes its header to `header`.
    ///
    /// # Errors
    /// As [`insert`](Store::insert).
    fn extend(
        &mut self,
        now: Tick,
        slot: Self::Slot,
        header: ItemHeader,
        bytes: &[u8],
        end: End,
        counters: &mut Counters,
    ) -> Result<Self::Slot, Full>;

    /// Reserves about `bytes` of the limit for memory outside the items; this replaces the earlier
    /// reservation. Evicts items if memory is needed, but never a locked one (S1) and never `kept`, whose
    /// slot may change. A store that counts only items ignores this.
    ///
    /// # Errors
    /// As [`insert`](Store::insert).
    fn set_aside(
        &mut self,
        now: Tick,
        kept: Option<Self::Slot>,
        bytes: usize,
        counters: &mut Counters,
    ) -> Result<Option<Self::Slot>, Full> {
        let _ = (now, bytes, counters);
        Ok(kept)
    }

    /// Checks whether `memory_bytes_max` can become the limit.
    ///
    /// # Errors
    /// [`MemoryRefused::TooSmall`] or [`MemoryRefused::TooLarge`].
    fn judge_memory(&self, memory_bytes_max: usize) -> Result<(), MemoryRefused>;

    /// Sets the memory limit to that of `limits`, which was [judged](Store::judge_memory) before. A larger
    /// limit holds at once. A smaller one is reached gradually: each call that stores, and each
    /// [`crawl`](Store::crawl), does a bounded amount of work. Items are evicted as usual, never a locked one
    /// (S1).
    fn set_memory(&mut self, now: Tick, limits: &Limits, counters: &mut Counters);

    /// Removes an item, locked or not. Returns the vacancy of its key.
    fn remove(&mut self, slot: Self::Slot) -> Self::Vacancy;

    /// Removes all items that are not locked.
    fn clear(&mut self);

    /// Checks up to `items_max` items, continuing after the last call, and removes expired ones that are not
    /// locked.
    fn crawl(&mut self, now: Tick, items_max: usize, counters: &mut Counters);

    /// Whether a [`crawl`](Store::crawl) at `now` would remove something, as far as the store can tell
    /// without reading items. If so, the caller should crawl again soon.
    fn wants_crawl(&self, now: Tick) -> bool {
        let _ = now;
        false
    }

    /// Shows up to `items_max` items from `cursor` on to `visit`. Returns the next cursor, or `None` at the
    /// end. An item that exists from the first page to the last is shown; nothing else is promised.
    fn scan<'a>(
        &'a self,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(Visited<'a>),
    ) -> Option<ScanCursor>;

    /// The sums over the stored items.
    fn usage(&self) -> Usage;

    /// Turns on or off the record of evicted items, which [`take_evicted`](Store::take_evicted) empties. It
    /// holds up to [`EVICTED_MAX`] items and counts the others.
    fn watch_evictions(&mut self, is_watched: bool) {
        let _ = is_watched;
    }

    /// Returns the items evicted since the last call, and the number of further ones, if the record is on.
    fn take_evicted(&mut self) -> (Vec<Evicted>, u64) {
        (Vec::new(), 0)
    }

    /// The work so far that exceeds the work of small commands ([`crate::work`]).
    fn work(&self) -> u64 {
        0
    }

    /// The next item to be evicted and the last eviction. Slower than [`usage`](Store::usage); meant for
    /// monitoring.
    fn queue(&self) -> QueueState;

    /// Whether `key`, which a look-up has not found, has an item from before the last [`clear`](Store::clear)
    /// that still occupies memory, as far as the store can tell.
    fn was_flushed(&self, key: Key<'_>, vacancy: Self::Vacancy) -> bool {
        let _ = (key, vacancy);
        false
    }

    /// The bytes that an item of these sizes would count against the limit.
    fn bytes_for(&self, key_bytes: usize, value_bytes: usize) -> usize;

    /// Asserts that the store's parts agree. Reads every item.
    #[cfg(any(test, feature = "verify"))]
    fn check(&self);
}

/// An item as a reader sees it, besides its [`ItemHeader`].
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// As [`Store::key`].
    pub key: Key<'a>,
    /// As [`Store::value`]; shared if the store can share it. A reply waiting to be sent then holds no copy
    /// of the value. Only large values are shared
    /// ([`SHARED_VALUE_BYTES_MIN`](latchd_protocol::value::SHARED_VALUE_BYTES_MIN)).
    pub value: Value<'a>,
    /// As [`Store::item_bytes`].
    pub item_bytes: usize,
}

/// An item visited by a [`scan`](Store::scan).
#[derive(Clone, Copy, Debug)]
pub struct Visited<'a> {
    /// As [`Store::key`].
    pub key: Key<'a>,
    /// As [`Store::header`].
    pub header: ItemHeader,
    /// As [`Store::value`].
    pub value: &'a [u8],
    /// As [`Store::item_bytes`].
    pub item_bytes: usize,
}

/// The end of a value to which bytes are added.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum End {
    /// After the value (append).
    Back,
    /// Before the value (prepend).
    Front,
}

/// The state of eviction, for monitoring.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct QueueState {
    /// The last access of the item to be evicted next. If several items could be next, the oldest of their
    /// accesses.
    pub oldest: Option<Tick>,
    /// The last eviction.
    pub last_eviction: Option<Eviction>,
    /// The size of the index, in bytes.
    pub index_bytes: usize,
}

/// The most evicted items that a store records between two calls of [`take_evicted`](Store::take_evicted).
pub const EVICTED_MAX: usize = 1_024;

/// The memory is full, and no item may be evicted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Full;

/// The sums over the stored items.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Usage {
    /// The number of items, expired ones included.
    pub items: usize,
    /// Their bytes that count against the limit.
    pub bytes: usize,
    /// The bytes of the locked ones among them.
    pub locked_bytes: usize,
    /// The bytes that the store has allocated, as far as it knows. They include free memory, the index and
    /// the [reservation](Store::set_aside).
    pub held_bytes: usize,
}
