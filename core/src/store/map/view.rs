//! All fields of a [`MapStore`], so that the model can compare states.
//!
//! Every field of the store is named here, without `..`. A field that a view omits is named with the reason
//! (V1).

use alloc::vec::Vec;

use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;

use super::MapStore;

/// All fields of a [`MapStore`].
#[derive(Clone, Debug)]
pub struct MapView<'a> {
    /// The unlocked items in the order of eviction, then the locked ones by key.
    pub entries: Vec<MapEntry<'a>>,
    /// The memory limit, in bytes.
    pub bytes_max: usize,
    /// Whether items are evicted.
    pub evict: bool,
    /// The number of places for items, empty ones included.
    pub slots: usize,
    /// The place at which the next crawl begins.
    pub crawled: usize,
}

/// One item of a [`MapView`].
#[derive(Clone, Copy, Debug)]
pub struct MapEntry<'a> {
    /// The key, which is unique among the entries.
    pub key: Key<'a>,
    /// The whole value.
    pub value: &'a [u8],
    /// The item's header.
    pub header: &'a ItemHeader,
    /// The hits that it has collected.
    pub hits: u8,
}

impl MapStore {
    /// Shows every field that decides how the store behaves.
    #[must_use]
    pub fn view(&self) -> MapView<'_> {
        let Self {
            bytes_max,
            evict,
            names,
            slots,
            // The place of the next new item, and with it the order of `keys` and of a crawl.
            free: _,
            queue,
            // The sums of the items' costs (M3).
            bytes: _,
            locked_bytes: _,
            crawled,
            // Shown to monitoring, and read by no rule.
            last_eviction: _,
            // Ends look-ups, and none is open between two calls of a core.
            moves: _,
        } = self;
        let locked = names
            .values()
            .filter(|place| self.entry(**place).header.locked);
        let entries = queue.iter().chain(locked);
        let entries = entries.map(|place| self.entry(*place).view());
        MapView {
            entries: entries.collect(),
            bytes_max: *bytes_max,
            evict: *evict,
            slots: slots.len(),
            crawled: *crawled,
        }
    }
}
