//! Bounds that change while there are items and locks.
//!
//! What was promised stays: a lock that is held pins its item, and its place in the table, under the new bounds too.
//! So bounds that locks are past already are refused, and nothing else is asked of whoever holds them.

use super::{Core, Store};
use crate::limits::{Limits, MemoryRefused};
use crate::time::Instant;

/// Values of the largest size that must fit into the memory.
const LARGEST_VALUES: usize = 2;

impl<S: Store> Core<S> {
    /// Whether its bounds may be these.
    ///
    /// # Errors
    /// Why not.
    pub fn judge_limits(&self, limits: &Limits) -> Result<(), MemoryRefused> {
        if limits.memory_bytes_max / LARGEST_VALUES < limits.value_bytes_max {
            return Err(MemoryRefused::TooSmall);
        }
        self.store.judge_memory(limits.memory_bytes_max)?;
        let share = limits.lock_bytes_per_connection_max;
        let is_past_share = |conn| self.locks.held_here(conn).bytes > share;
        if self.pinned_bytes() > limits.locked_bytes_max
            || self.lock_memory_bytes() + self.tables_elsewhere > limits.lock_table_bytes_max
            || self.locks.open_connections().any(is_past_share)
        {
            return Err(MemoryRefused::Locked);
        }
        Ok(())
    }

    /// Its bounds are these from `now` on. More memory may be used at once; less is come to by and by, with the
    /// commands that store and with each [`Tick`](super::Event::Tick), as in [`Store::set_memory`].
    ///
    /// # Errors
    /// As [`judge_limits`](Self::judge_limits) at `now`; the bounds are the old ones then.
    pub fn set_limits(&mut self, now: Instant, limits: &Limits) -> Result<(), MemoryRefused> {
        self.pass(now);
        self.judge_limits(limits)?;
        self.limits = *limits;
        let tick = self.clock.tick();
        self.store
            .set_memory(tick, limits, &mut self.stats.counters);
        Ok(())
    }

    /// Its memory is `bytes` from `now` on, and the shares that locks may have of it follow.
    ///
    /// # Errors
    /// As [`set_limits`](Self::set_limits).
    pub fn limit_memory(&mut self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        self.set_limits(now, &self.limits.with_memory(bytes))
    }
}
