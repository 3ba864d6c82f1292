//! The memory limit, divided over the shards: at the start, and when it changes.
//!
//! - D8: All shards have the same share of the same limit, except while the limit changes.

use std::sync::PoisonError;

use latchd_core::engine::Event;
use latchd_core::{Instant, Limits};
use latchd_protocol::reply::MemoryRefused;

use super::Shards;
use super::session::ShardSet;

/// The share of each of `count` shards.
pub(super) fn share(limits: Limits, count: usize) -> Limits {
    let mut share = limits;
    share.memory_bytes_max /= count;
    share.locked_bytes_max /= count;
    // Lock tables (D9) and the locks of a connection (D4) are counted over all shards. A connection waits for one lock at a
    // time, in any shard.
    share
}

impl Shards {
    /// Sets the memory limit of all items together. The number of shards and the largest value do not change.
    ///
    /// # Errors
    /// That of the first shard that refuses ([`Core::judge_limits`](latchd_core::engine::Core::judge_limits)). Then no shard
    /// has changed.
    pub(crate) fn limit_memory(&self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = limits.with_memory(bytes);
        let share = share(wanted, self.cores.len());
        let mut cores = self.cores_at(now, ShardSet::ALL);
        for (shard, core) in cores.iter_mut().enumerate() {
            core.handle(now, Event::Due);
            self.lock_memory.publish(shard, core);
        }
        for (shard, core) in cores.iter_mut().enumerate() {
            self.lock_memory.tell(shard, core);
            core.judge_limits(&share)?;
        }
        for core in &mut cores {
            core.judge_limits(&share)?;
            core.handle(now, Event::Limits(share));
        }
        *limits = wanted;
        Ok(())
    }
}
