//! A [`MapStore`] laid open, for those who compare states: the model.
//!
//! Every field of the store is named here, without `..`: what a view leaves out, it leaves out by
//! name, with the reason beside it (V1).

use alloc::vec::Vec;

use super::MapStore;
use crate::item::ItemHeader;
use crate::key::Key;

/// A [`MapStore`], laid open.
#[derive(Clone, Debug)]
pub struct MapView<'a> {
    /// The items in the order in which their turn to be evicted comes, then the locked ones by key.
    pub entries: Vec<MapEntry<'a>>,
    /// The limit.
    pub bytes_max: usize,
    /// Whether items are evicted for room.
    pub evict: bool,
    /// How many places for items there are, empty ones included.
    pub slots: usize,
    /// The place at which the next crawl begins.
    pub crawled: usize,
}

/// One item of a [`MapView`].
#[derive(Clone, Copy, Debug)]
pub struct MapEntry<'a> {
    /// The key, which is in no other entry.
    pub key: Key<'a>,
    /// The whole value.
    pub value: &'a [u8],
    /// What the item is besides.
    pub header: &'a ItemHeader,
    /// The hits to its credit.
    pub hits: u8,
}

impl MapStore {
    /// Lays the store open: all that decides what it does next.
    #[must_use]
    pub fn view(&self) -> MapView<'_> {
        let Self {
            bytes_max,
            evict,
            names,
            slots,
            // Where the next new item goes, and with it the order of `keys` and of a crawl.
            free: _,
            queue,
            // The sums of what the items take (M3).
            bytes: _,
            locked_bytes: _,
            crawled,
            // Told to whoever watches, and read by no rule.
            last_eviction: _,
        } = self;
        let locked = names
            .values()
            .filter(|slot| self.entry(**slot).header.locked);
        let entries = queue.iter().chain(locked);
        let entries = entries.map(|slot| self.entry(*slot).view());
        MapView {
            entries: entries.collect(),
            bytes_max: *bytes_max,
            evict: *evict,
            slots: slots.len(),
            crawled: *crawled,
        }
    }
}
