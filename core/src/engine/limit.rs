//! Bounds that change while there are items and locks.
//!
//! A lock in force stays: it pins its item, and its place in the table, under the new bounds too. So bounds that the
//! locks exceed are refused, and no holder loses anything.

use core::ops::Deref;

use latchd_protocol::reply::MemoryRefused;

use super::items::Items;
use super::manager::LockManager;
use crate::limits::Limits;
use crate::store::Store;

/// Values of the largest size that must fit into the memory.
const LARGEST_VALUES: usize = 2;

/// Whether the bounds of all shards together may be these.
pub(super) fn judge<S: Store, I: Deref<Target = Items<S>>>(
    all: &[I],
    manager: &LockManager,
    limits: &Limits,
) -> Result<(), MemoryRefused> {
    let share = limits.share(all.len());
    if share.memory_bytes_max / LARGEST_VALUES < share.value_bytes_max {
        return Err(MemoryRefused::TooSmall);
    }
    let table = &manager.locks.table;
    let mut fits = manager.table_bytes() <= limits.lock_table_bytes_max;
    for items in all {
        items.store.judge_memory(share.memory_bytes_max)?;
        fits &= table.pinned_bytes(items.shard) <= share.locked_bytes_max;
    }
    let bytes_max = limits.lock_bytes_per_connection_max;
    let mut owners = table.open_connections();
    if fits && owners.all(|owner| manager.held(owner).bytes <= bytes_max) {
        Ok(())
    } else {
        Err(MemoryRefused::Locked)
    }
}

impl<S: Store> Items<S> {
    /// Its bounds are these from now on. More memory may be used at once. Less is reached in steps: each command that stores, and
    /// each tick, frees some ([`Store::set_memory`]).
    pub(super) fn set_limits(&mut self, limits: &Limits) {
        self.limits = *limits;
        let tick = self.clock.tick();
        let counters = &mut self.counters;
        self.store.set_memory(tick, limits, counters);
    }
}
