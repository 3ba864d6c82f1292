//! Shows every item, page by page, while items are added, removed and moved.
//!
//! Pages follow the hash, lowest bit first. The index divides its buckets by the lowest bits, so each bucket
//! covers a range of that order, for any number of buckets. A cursor is a place in this fixed order. An item
//! keeps its place while its key is stored, wherever its record moves and however the index grows or shrinks
//! between two pages.
//!
//! Source: the idea of Redis' `SCAN` (`dict.c`, `dictScan`), here on a table that grows by single buckets.

use latchd_protocol::command::ScanCursor;

use super::block::Block;
use super::{KeyHasher, LogStore};
use crate::store::Visited;

/// The bits of the hash in a cursor; transports use the bits above them.
const CURSOR_BITS: u32 = 56;

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// A page from `cursor` on, as [`Store::scan`](crate::store::Store::scan). At least one bucket is shown,
    /// for any `items_max`.
    pub(super) fn page<'a>(
        &'a self,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(Visited<'a>),
    ) -> Option<ScanCursor> {
        let mut place = cursor.0;
        let mut looked_at = 0;
        while place < 1 << CURSOR_BITS && self.index.buckets() > 0 {
            let bucket = self.index.bucket(hash_at(place));
            let span = 1 << (CURSOR_BITS - self.index.depth(bucket));
            let start = place & !(span - 1);
            // An empty bucket takes time, too.
            let cost = self.index.chain_len(bucket).max(1);
            if looked_at > 0 && looked_at + cost > items_max {
                return Some(ScanCursor(place));
            }
            looked_at += cost;
            for entry in self.index.chain(bucket) {
                let record = self.record(entry.address);
                if self.log.is_there(entry.address)
                    // The part before the cursor was shown when the buckets were smaller.
                    && (start == place || place_of(self.hasher.hash(record.key())) >= place)
                {
                    let value = self.value_at(entry.address);
                    visit(Visited {
                        key: record.key(),
                        header: record.header(),
                        value,
                        item_bytes: self.cost_of(record.key_bytes(), value.len()),
                    });
                }
            }
            place = start + span;
        }
        None
    }
}

/// The place of a hash in the order of pages.
const fn place_of(hash: u64) -> u64 {
    hash.reverse_bits() >> (u64::BITS - CURSOR_BITS)
}

/// The smallest hash at that place.
const fn hash_at(place: u64) -> u64 {
    (place << (u64::BITS - CURSOR_BITS)).reverse_bits()
}
