//! Where items are kept: the trait, and its implementations.
//!
//! A store knows keys, values, sizes and room. It knows nothing of commands: what an expired, a
//! stale or a locked item means to a client is the engine's business. Two things it must know of
//! an item to choose what to evict: its deadline, and whether it is locked.
//!
//! - S1: a locked item is never evicted.
//! - S2: a store either stores the whole item or changes nothing but what it evicted for room.
//! - S3: [`Usage::bytes`] never exceeds [`memory_bytes_max`](crate::Limits::memory_bytes_max). After that was
//!   lowered, it never exceeds what was held then.

//! - S4: if [`Limits::erase`] asks for it, values are zeroed: of an item that is removed, replaced, evicted, extended
//!   or moved, at once; of one that has expired or was flushed, when the store comes to it; of a large one that is
//!   still being sent, when that is done. The [reference](MapStore) does not.

mod log;
mod map;

use alloc::vec::Vec;

pub use log::{Block, HashSeed, KeyHasher, LogSlot, LogStore, LogVacancy, SipHash};
#[cfg(feature = "verify")]
pub use map::{MapEntry, MapView};
pub use map::{MapSlot, MapStore, MapVacancy};

use crate::command::ScanCursor;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::limits::{Limits, MemoryRefused};
use crate::stats::{Counters, Eviction};
use crate::time::Tick;
use crate::value::Value;
use crate::watch::Evicted;

/// Keeps items within a limit of memory.
///
/// A key is looked up once a command: everything after [`find`](Store::find) goes by what it has
/// said, the [`Slot`](Store::Slot) of an item or the [`Vacancy`](Store::Vacancy) where there is
/// none. Both are good until the next call that takes `&mut self`, but for
/// [`set_header`](Store::set_header), [`record_hit`](Store::record_hit) and [`read`](Store::read), which
/// keep all of them good.
pub trait Store {
    /// Whether a large value that is [shared](Value::Shared) is kept as it is when it is stored. Then
    /// whoever stores it has it copied beforehand, while nobody waits for the store.
    const SHARES_VALUES: bool = false;

    /// Names an item that was found.
    type Slot: Copy;

    /// What a look-up that found nothing has learned, so that an insert need not learn it again:
    /// the hash of the key, say.
    type Vacancy: Copy;

    /// Finds the item of `key`, expired or not.
    ///
    /// # Errors
    /// If there is none: where [`insert`](Store::insert) can put one.
    fn find(&self, key: Key<'_>) -> Result<Self::Slot, Self::Vacancy>;

    /// The same with its header: what nearly every command goes on with.
    ///
    /// # Errors
    /// As [`find`](Store::find).
    #[inline]
    fn find_item(&self, key: Key<'_>) -> Result<(Self::Slot, ItemHeader), Self::Vacancy> {
        let slot = self.find(key)?;
        Ok((slot, self.header(slot)))
    }

    /// What the item is besides key and value.
    fn header(&self, slot: Self::Slot) -> ItemHeader;

    /// Changes what the item is besides key and value.
    fn set_header(&mut self, slot: Self::Slot, header: ItemHeader);

    /// The item's key.
    fn key(&self, slot: Self::Slot) -> Key<'_>;

    /// The item's value.
    fn value(&self, slot: Self::Slot) -> &[u8];

    /// What a reader is shown of the item, in one look.
    fn show(&self, slot: Self::Slot) -> Shown<'_>;

    /// Gives an item whose header is `before` the header `after`, notes that it was used if that `is_use`, and
    /// shows it: all that a get does, in one look.
    fn read(
        &mut self,
        slot: Self::Slot,
        before: &ItemHeader,
        after: &ItemHeader,
        is_use: bool,
    ) -> Shown<'_> {
        if after != before {
            self.set_header(slot, *after);
        }
        if is_use {
            self.record_hit(slot);
        }
        self.show(slot)
    }

    /// What the item takes of the limit, in bytes.
    fn item_bytes(&self, slot: Self::Slot) -> usize;

    /// Notes that the item was used, for the choice of what to evict.
    fn record_hit(&mut self, slot: Self::Slot);

    /// Stores an item where there was none: `vacancy` is what the look-up of `key` has said.
    /// Evicts others for room; never a locked one (S1).
    ///
    /// # Errors
    /// [`Full`] if there would be no room even without all that may be evicted. Nothing has
    /// changed then.
    fn insert(
        &mut self,
        now: Tick,
        vacancy: Self::Vacancy,
        key: Key<'_>,
        header: ItemHeader,
        value: Value<'_>,
        counters: &mut Counters,
    ) -> Result<Self::Slot, Full>;

    /// Gives an item that was found another value and header. Evicts others for room, as
    /// [`insert`](Store::insert) does, and counts on the room of the old value.
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

    /// Adds bytes to the value of an item that was found, at the end or the beginning, and gives
    /// it `header`.
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

    /// Sets `bytes` of the limit aside for what is kept beside the items: about as many as that from
    /// now on, whatever was set aside before. Evicts items for room; never a locked one (S1), and not
    /// `kept`, which may be in another slot then. A store that counts nothing but items has no use
    /// for it.
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

    /// Whether the limit of memory may be so many bytes from now on.
    ///
    /// # Errors
    /// Why not: [`MemoryRefused::TooSmall`] or [`MemoryRefused::TooLarge`].
    fn judge_memory(&self, memory_bytes_max: usize) -> Result<(), MemoryRefused>;

    /// The limit of memory is that of `limits` from now on; it was [judged](Store::judge_memory). A larger one holds
    /// at once. A smaller one is come to by and by, a bounded amount of work with each call that stores and with each
    /// [`crawl`](Store::crawl): items are evicted as they would be for room, never a locked one (S1).
    fn set_memory(&mut self, now: Tick, limits: &Limits, counters: &mut Counters);

    /// Takes an item out, locked or not. Its key has a vacancy now, the one returned.
    fn remove(&mut self, slot: Self::Slot) -> Self::Vacancy;

    /// Takes every item out that is not locked.
    fn clear(&mut self);

    /// Looks at up to `items_max` items, going on where the last call stopped, and takes out those
    /// that have expired and are not locked.
    fn crawl(&mut self, now: Tick, items_max: usize, counters: &mut Counters);

    /// Whether a [`crawl`](Store::crawl) at `now` would find something to take out, as far as that
    /// can be told without looking: then it is worth coming back soon.
    fn wants_crawl(&self, now: Tick) -> bool {
        let _ = now;
        false
    }

    /// Looks at up to `items_max` items from `cursor` on, and shows each to `visit`. Returns where
    /// to go on; `None` at the end. An item that is there from the first page to the last is shown;
    /// no more is promised.
    fn scan<'a>(
        &'a self,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(Visited<'a>),
    ) -> Option<ScanCursor>;

    /// What it holds.
    fn usage(&self) -> Usage;

    /// Whether what is evicted is remembered from now on, until it is [taken](Store::take_evicted): up to
    /// [`EVICTED_MAX`] items, the others are counted.
    fn watch_evictions(&mut self, is_watched: bool) {
        let _ = is_watched;
    }

    /// What was evicted since the last call, while that is watched, and how many more there were.
    fn take_evicted(&mut self) -> (Vec<Evicted>, u64) {
        (Vec::new(), 0)
    }

    /// The work that was done since the last call, as far as it can be more than a small command's ([`crate::work`]).
    fn take_work(&mut self) -> u32 {
        0
    }

    /// What is next to be evicted, and what was last. Takes longer than [`usage`](Store::usage), and is
    /// for whoever watches.
    fn queue(&self) -> QueueState;

    /// Whether the key that a look-up has just not found has an item from before the last
    /// [`clear`](Store::clear) that has not been taken out yet, as far as the store can tell.
    fn was_flushed(&self, key: Key<'_>, vacancy: Self::Vacancy) -> bool {
        let _ = (key, vacancy);
        false
    }

    /// What an item of these sizes would take of the limit, in bytes.
    fn bytes_for(&self, key_bytes: usize, value_bytes: usize) -> usize;

    /// Asserts that the store's parts agree. Looks at every item.
    #[cfg(any(test, feature = "verify"))]
    fn check(&self);
}

/// What a reader is shown of an item, besides its [`ItemHeader`].
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// As [`Store::key`].
    pub key: Key<'a>,
    /// As [`Store::value`]. If it is kept in such a way that it can be shared, it is: a reply that
    /// waits to be sent then holds no copy of it. Only large values are worth it
    /// ([`SHARED_VALUE_BYTES_MIN`](crate::value::SHARED_VALUE_BYTES_MIN)).
    pub value: Value<'a>,
    /// As [`Store::item_bytes`].
    pub item_bytes: usize,
}

/// An item that a [`scan`](Store::scan) has come to.
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

/// Which end of a value is added to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum End {
    /// Behind what is there (append).
    Back,
    /// Before what is there (prepend).
    Front,
}

/// What a store evicts, as whoever watches is told.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct QueueState {
    /// When the item was last asked for that is next to be evicted, or that has not been asked for for
    /// longest among those that are.
    pub oldest: Option<Tick>,
    /// The last item that was evicted.
    pub last_eviction: Option<Eviction>,
    /// What items are found with, in bytes.
    pub index_bytes: usize,
}

/// How many evicted items a store remembers for those who watch.
pub const EVICTED_MAX: usize = 1_024;

/// There is no room, and nothing that may be evicted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Full;

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Usage {
    /// Items, expired ones included.
    pub items: usize,
    /// What they take of the limit, in bytes.
    pub bytes: usize,
    /// What the locked ones among them take, in bytes.
    pub locked_bytes: usize,
    /// What the store has allocated, in bytes, as far as it knows: room that it keeps free, what it
    /// finds items with, and what is [set aside](Store::set_aside) included.
    pub held_bytes: usize,
}
