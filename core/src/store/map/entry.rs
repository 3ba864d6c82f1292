//! One item as the store keeps it, and what it is charged for.

use alloc::boxed::Box;

#[cfg(feature = "verify")]
use super::view::MapEntry;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::store::slot::MapSlot;
use crate::time::Tick;

/// What an item takes besides its key and its value, in bytes: its entry, with the room that a
/// growing list of entries keeps, its share of an index node, and what the allocator adds.
const ITEM_OVERHEAD_BYTES: usize = 144;

/// An item, in its place in the queue.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The key, then the value.
    bytes: Box<[u8]>,
    key_bytes: u8,
    pub(super) hits: u8,
    pub(super) header: ItemHeader,
    pub(super) older: Option<MapSlot>,
    pub(super) newer: Option<MapSlot>,
}

impl Entry {
    pub(super) fn new(key: Key<'_>, value: &[u8], header: ItemHeader) -> Self {
        let bytes = [key.as_bytes(), value].concat().into_boxed_slice();
        let key_bytes = u8::try_from(key.as_bytes().len()).expect("K1: at most 250");
        Self {
            bytes,
            key_bytes,
            hits: 0,
            header,
            older: None,
            newer: None,
        }
    }

    pub(super) fn key(&self) -> Key<'_> {
        Key::new(&self.bytes[..usize::from(self.key_bytes)]).expect("it was made from a key")
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[usize::from(self.key_bytes)..]
    }

    pub(super) fn value_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[usize::from(self.key_bytes)..]
    }

    pub(super) fn cost(&self) -> usize {
        cost(usize::from(self.key_bytes), self.value().len())
    }

    /// The entry, laid open.
    #[cfg(feature = "verify")]
    pub(super) fn view(&self) -> MapEntry<'_> {
        let Self {
            bytes: _,
            key_bytes: _,
            hits,
            header,
            // The queue's own order, which is that of the view.
            older: _,
            newer: _,
        } = self;
        MapEntry {
            key: self.key(),
            value: self.value(),
            header,
            hits: *hits,
        }
    }

    pub(super) fn is_past(&self, now: Tick) -> bool {
        self.header
            .deadline
            .is_some_and(|deadline| deadline.has_passed(now))
    }
}

pub(super) fn cost(key_bytes: usize, value_bytes: usize) -> usize {
    ITEM_OVERHEAD_BYTES + key_bytes + value_bytes
}
