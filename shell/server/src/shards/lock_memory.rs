//! The memory of the lock tables: one budget over all shards, wherever the keys are.
//!
//! - D9: The tables of all shards together take at most [`Limits::lock_table_bytes_max`](latchd_core::Limits). A command that
//!   may enlarge a table first reserves the most that it may add, so two commands do not take the same bytes.
//! - D10: The items of every shard leave an equal part of the memory of all tables free. The thread that has enlarged the
//!   tables by [`SPREAD_BYTES`] has every shard do so. If one shard cannot, no table grows until a tick finds that all can.

use latchd_core::Instant;
use latchd_core::engine::{Event, TABLES_GROWTH_MAX};

use super::{ShardCore, Shards};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The growth of the tables after which the items of all shards leave memory free for it, in bytes.
const SPREAD_BYTES: usize = 256 << 10;

/// The memory of the tables of all shards.
#[derive(Debug)]
pub(super) struct LockMemory {
    /// The memory of all tables and the reservations, in bytes.
    total: AtomicUsize,
    /// The total when all shards last left memory free for it.
    spread: AtomicUsize,
    /// The last known memory of each shard's tables; changed only while the shard is locked.
    published: Box<[AtomicUsize]>,
    /// A shard could not free the memory.
    is_full: AtomicBool,
}

impl LockMemory {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            total: AtomicUsize::new(0),
            spread: AtomicUsize::new(0),
            published: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            is_full: AtomicBool::new(false),
        }
    }

    /// Reserves the most memory that a command in this shard may add, and tells the core the memory of the other tables.
    /// Call [`end_reservation`](Self::end_reservation) afterwards, while the shard is still locked.
    pub(super) fn reserve(&self, shard: usize, core: &mut ShardCore) {
        let before = self.total.fetch_add(TABLES_GROWTH_MAX, Ordering::Relaxed);
        let own = self.published[shard].load(Ordering::Relaxed);
        let elsewhere = if self.is_full.load(Ordering::Relaxed) {
            // No table may grow.
            core.limits().lock_table_bytes_max
        } else {
            before - own
        };
        core.handle(Instant::default(), Event::TablesElsewhere(elsewhere));
    }

    /// Ends the reservation of a command.
    pub(super) fn end_reservation(&self, shard: usize, core: &ShardCore) {
        self.publish(shard, core);
        self.total.fetch_sub(TABLES_GROWTH_MAX, Ordering::Relaxed);
    }

    /// Notes the memory of a shard's tables.
    pub(super) fn publish(&self, shard: usize, core: &ShardCore) {
        let bytes = core.lock_memory_bytes();
        let before = self.published[shard].load(Ordering::Relaxed);
        if bytes != before {
            self.published[shard].store(bytes, Ordering::Relaxed);
            // If there are fewer, the difference wraps, and so does the sum.
            let more = bytes.wrapping_sub(before);
            self.total.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Tells the core of a shard the memory of the other tables.
    pub(super) fn tell(&self, shard: usize, core: &mut ShardCore) {
        let elsewhere = self.elsewhere(shard, core);
        core.handle(Instant::default(), Event::TablesElsewhere(elsewhere));
    }

    /// Has the core of a shard free its part of the memory of all tables. Returns whether it can.
    fn spread_to(&self, shard: usize, core: &mut ShardCore) -> bool {
        let elsewhere = self.elsewhere(shard, core);
        core.handle(Instant::default(), Event::TablesSpread(elsewhere));
        !core.lacks_room_for_tables()
    }

    /// The memory of the tables of all other shards, after this one's is noted.
    fn elsewhere(&self, shard: usize, core: &ShardCore) -> usize {
        self.publish(shard, core);
        let own = self.published[shard].load(Ordering::Relaxed);
        self.total.load(Ordering::Relaxed) - own
    }

    /// What the tables take and what is reserved, in bytes.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether all shards are to leave memory free for the tables.
    pub(super) fn is_due(&self) -> bool {
        let spread = self.spread.load(Ordering::Relaxed);
        self.total.load(Ordering::Relaxed) >= spread + SPREAD_BYTES
    }
}

impl Shards {
    /// Has every shard, one after the other, free its part of the memory of all tables (D10), if that has grown much. Call it
    /// without a locked shard.
    pub(super) fn spread_lock_memory(&self, now: Instant) {
        if self.lock_memory.is_due() {
            self.make_room_for_tables(now, |_| ());
        }
    }

    /// Has every shard, one after the other, free its part of the memory of all tables, and calls `besides` for it.
    pub(super) fn make_room_for_tables(
        &self,
        now: Instant,
        mut besides: impl FnMut(&mut ShardCore),
    ) {
        let total = self.lock_memory.total.load(Ordering::Relaxed);
        // First, so that only one thread does this.
        self.lock_memory.spread.store(total, Ordering::Relaxed);
        let mut is_full = false;
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            is_full |= !self.lock_memory.spread_to(shard, &mut core);
            besides(&mut core);
            self.lock_memory.publish(shard, &core);
        }
        self.lock_memory.is_full.store(is_full, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_have_grown_much_are_due() {
        let memory = LockMemory::new(2);
        memory.spread.store(1_000, Ordering::Relaxed);
        for (grown, is_due) in [(0, false), (SPREAD_BYTES - 1, false), (SPREAD_BYTES, true)] {
            memory.total.store(1_000 + grown, Ordering::Relaxed);
            assert_eq!(memory.is_due(), is_due, "{grown}");
        }
    }
}
