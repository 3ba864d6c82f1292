//! The limit of memory, divided over the shards: at the start, and when it changes.
//!
//! - D8: all shards have the same share of the same limit, but while they are being told of another.

use std::sync::PoisonError;

use latchd_core::engine::Event;
use latchd_core::limits::MemoryRefused;
use latchd_core::{Instant, Limits};

use super::Shards;

/// The share that each of `count` shards has.
pub(super) fn share(limits: Limits, count: usize) -> Limits {
    let mut share = limits;
    share.memory_bytes_max /= count;
    share.locked_bytes_max /= count;
    // What the tables of locks take is counted over all shards (D9). What a connection may have it may have anywhere: it is counted over all shards (D4). And it waits for one lock
    // at a time, wherever that is.
    share
}

impl Shards {
    /// All items together may take so many bytes from now on. How many shards there are does not change, nor how
    /// large a value may be.
    ///
    /// # Errors
    /// As a shard says ([`Core::judge_limits`](latchd_core::engine::Core::judge_limits)), if one does: then nothing
    /// has changed in any of them.
    pub(crate) fn limit_memory(&self, now: Instant, bytes: usize) -> Result<(), MemoryRefused> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = limits.with_memory(bytes);
        let share = share(wanted, self.cores.len());
        let mut cores = self.cores_at(now, self.all());
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
