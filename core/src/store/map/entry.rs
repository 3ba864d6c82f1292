//! One item of the reference store, and its cost.

use alloc::sync::Arc;

#[cfg(feature = "verify")]
use super::view::MapEntry;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::time::Tick;

/// The overhead of an item besides its key and its value, in bytes. The model's limits depend on it. It does
/// not correspond to a measured size.
const ITEM_OVERHEAD_BYTES: usize = 144;

/// An item.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    key: Arc<[u8]>,
    value: Arc<[u8]>,
    pub(super) hits: u8,
    pub(super) header: ItemHeader,
}

impl Entry {
    pub(super) fn new(key: Arc<[u8]>, value: &[u8], header: ItemHeader) -> Self {
        Self {
            key,
            value: value.into(),
            hits: 0,
            header,
        }
    }

    pub(super) fn key(&self) -> Key<'_> {
        Key::new(&self.key).expect("it was made from a key")
    }

    /// The key, to be shared with another entry.
    pub(super) fn shared_key(&self) -> Arc<[u8]> {
        Arc::clone(&self.key)
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    pub(super) fn set_value(&mut self, value: &[u8]) {
        self.value = value.into();
    }

    pub(super) fn cost(&self) -> usize {
        cost(self.key.len(), self.value.len())
    }

    /// All fields of the entry.
    #[cfg(feature = "verify")]
    pub(super) fn view(&self) -> MapEntry<'_> {
        let Self {
            key: _,
            value: _,
            hits,
            header,
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
