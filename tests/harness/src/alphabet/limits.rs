//! Two sets of limits for drawn ops: between them every reply can occur.

use latchd_core::limits::Limits;
use latchd_core::store::{MapStore, Store as _};

use super::VALUE_BYTES_MAX;

/// The smallest segment of a log, in bytes.
pub const LOG_SEGMENT_BYTES: usize = 512;

/// Three segments, and the lists and index of a log.
const LOG_BYTES_MIN: usize = 3 * LOG_SEGMENT_BYTES + 1_100;

/// Limits that leave room for every item, and can be reached by locks, by wins that are bound and by appends.
#[must_use]
pub const fn ample() -> Limits {
    let mut limits = Limits::new(1 << 20, VALUE_BYTES_MAX);
    limits.locks_per_connection_max = 2;
    limits.bound_wins_per_connection_max = 2;
    limits.scan_items_max = 2;
    limits.crawl_items_max = 2;
    limits
}

/// Limits within which a log has the few segments that it needs, and `more` besides.
#[must_use]
pub const fn scarce_for_log(more: usize) -> Limits {
    let mut limits = ample();
    limits.memory_bytes_max = LOG_BYTES_MIN + more * LOG_SEGMENT_BYTES;
    limits.locked_bytes_max = 3 * LOG_SEGMENT_BYTES;
    limits.lock_table_bytes_max = 1 << 20;
    limits.lock_bytes_per_connection_max = 1 << 20;
    limits
}

/// Limits within which locks may pin `pinned` short items: then not a digit more, and no other item
/// has room beside them.
#[must_use]
pub fn scarce(pinned: usize) -> Limits {
    let mut limits = ample();
    let short_item_bytes = MapStore::new(&limits).bytes_for(1, 1);
    limits.memory_bytes_max = pinned * short_item_bytes + short_item_bytes * 3 / 4;
    limits.locked_bytes_max = pinned * short_item_bytes;
    // The number of locks must not depend on the bytes of a lock.
    limits.lock_table_bytes_max = 1 << 20;
    limits.lock_bytes_per_connection_max = 1 << 20;
    limits
}
