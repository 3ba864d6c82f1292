//! Bounds that change while there are items and locks.
//!
//! A lock in force stays: it pins its item, and its place in the table, under the new bounds too. So bounds that the
//! locks exceed are refused, and no holder loses anything.

use latchd_protocol::reply::MemoryRefused;
use latchd_protocol::time::Instant;

use super::items::Items;
use super::manager::LockManager;
use super::rules::{Access, Rules};
use super::{Core, Event};
use crate::limits::Limits;
use crate::store::Store;

/// Values of the largest size that must fit into the memory.
const LARGEST_VALUES: usize = 2;

impl<S: Store> Core<S> {
    /// Whether its bounds may be these.
    ///
    /// # Errors
    /// Why not.
    pub fn judge_limits(&self, limits: &Limits) -> Result<(), MemoryRefused> {
        judge(&self.items, &self.manager, limits)
    }
}

fn judge<S: Store>(
    items: &Items<S>,
    manager: &LockManager,
    limits: &Limits,
) -> Result<(), MemoryRefused> {
    if limits.memory_bytes_max / LARGEST_VALUES < limits.value_bytes_max {
        return Err(MemoryRefused::TooSmall);
    }
    items.store.judge_memory(limits.memory_bytes_max)?;
    let share = limits.lock_bytes_per_connection_max;
    let table = &manager.locks.table;
    let is_past_share = |owner| table.held_here(owner).bytes > share;
    if manager.locks.pinned_bytes() > limits.locked_bytes_max
        || manager.all_table_bytes() > limits.lock_table_bytes_max
        || table.open_connections().any(is_past_share)
    {
        return Err(MemoryRefused::Locked);
    }
    Ok(())
}

impl<S: Store, M: Access> Rules<'_, S, M> {
    /// The bounds are these from `now` on, unless they are refused ([`Event::Limits`]). More
    /// memory may be used at once; less is come to by and by, with the commands that store and with each
    /// [`Tick`](Event::Tick), as in [`Store::set_memory`].
    pub(super) fn set_limits(&mut self, now: Instant, limits: &Limits) {
        self.pass(now);
        if judge(self.items, &self.manager, limits).is_ok() {
            let items = &mut *self.items;
            items.limits = *limits;
            let tick = items.clock.tick();
            items
                .store
                .set_memory(tick, limits, &mut items.stats.counters);
        }
    }
}

/// The memory of a core is `bytes` from `now` on, and the shares that locks may have of it follow.
///
/// # Errors
/// As [`Core::judge_limits`] at `now`; the bounds are the old ones then.
pub(crate) fn limit_memory<S: Store>(
    core: &mut Core<S>,
    now: Instant,
    bytes: usize,
) -> Result<(), MemoryRefused> {
    core.handle(now, Event::Due);
    let limits = core.items.limits.with_memory(bytes);
    core.judge_limits(&limits)?;
    core.handle(now, Event::Limits(limits));
    Ok(())
}
