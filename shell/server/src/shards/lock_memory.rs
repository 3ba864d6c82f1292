//! The memory that the tables of locks take, over all shards: one budget, wherever the keys are.
//!
//! - D9: the tables of all shards together take no more than [`Limits::lock_table_bytes_max`](latchd_core::Limits). A command
//!   that may make a table larger reserves the most that it may add, so two at once do not take the same bytes.
//! - D10: the items of every shard make room for an equal part of what all tables take. Whoever makes the tables larger by
//!   [`SPREAD_BYTES`] has every shard do so; if one cannot, no table grows until a tick finds that all can.

use latchd_core::Instant;
use latchd_core::engine::{Event, TABLES_GROWTH_MAX};

use super::{ShardCore, Shards};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How much the tables grow before the items of all shards make room for it, in bytes.
const SPREAD_BYTES: usize = 256 << 10;

/// What the tables of all shards take.
#[derive(Debug)]
pub(super) struct LockMemory {
    /// What they take and what is reserved, in bytes.
    total: AtomicUsize,
    /// As much of that as was known when all shards last made room.
    spread: AtomicUsize,
    /// What each shard's take, as it was last seen; changed only while the shard is held.
    published: Box<[AtomicUsize]>,
    /// A shard could not make room.
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

    /// A command in this shard may make its tables larger: reserves what that may take, and tells the core what is taken
    /// elsewhere. [`settle`](Self::settle) is to follow while the shard is held.
    pub(super) fn reserve(&self, shard: usize, core: &mut ShardCore) {
        let before = self.total.fetch_add(TABLES_GROWTH_MAX, Ordering::Relaxed);
        let own = self.published[shard].load(Ordering::Relaxed);
        let elsewhere = if self.is_full.load(Ordering::Relaxed) {
            // No more than there is.
            core.limits().lock_table_bytes_max
        } else {
            before - own
        };
        core.handle(Instant::default(), Event::TablesElsewhere(elsewhere));
    }

    /// The command is over: what it has not used is reserved no more.
    pub(super) fn settle(&self, shard: usize, core: &ShardCore) {
        self.publish(shard, core);
        self.total.fetch_sub(TABLES_GROWTH_MAX, Ordering::Relaxed);
    }

    /// Notes what the tables of a shard take now.
    pub(super) fn publish(&self, shard: usize, core: &ShardCore) {
        let bytes = core.lock_memory_bytes();
        let before = self.published[shard].load(Ordering::Relaxed);
        if bytes == before {
            return;
        }
        self.published[shard].store(bytes, Ordering::Relaxed);
        if bytes > before {
            self.total.fetch_add(bytes - before, Ordering::Relaxed);
        } else {
            self.total.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }

    /// Tells the core of a shard what is taken elsewhere.
    pub(super) fn tell(&self, shard: usize, core: &mut ShardCore) {
        self.publish(shard, core);
        let own = self.published[shard].load(Ordering::Relaxed);
        let elsewhere = self.total.load(Ordering::Relaxed) - own;
        core.handle(Instant::default(), Event::TablesElsewhere(elsewhere));
    }

    /// Whether all shards are to make room.
    pub(super) fn is_due(&self) -> bool {
        let spread = self.spread.load(Ordering::Relaxed);
        self.total.load(Ordering::Relaxed) >= spread + SPREAD_BYTES
    }
}

impl Shards {
    /// Every shard, one after the other, makes room for its part of what all tables take (D10), if that has grown much. To be
    /// called while none is held.
    pub(super) fn spread_lock_memory(&self, now: Instant) {
        if self.cores.len() > 1 && self.lock_memory.is_due() {
            self.make_room_for_tables(now, |_| ());
        }
    }

    /// Every shard, one after the other, makes room for its part of what all tables take, and does what is asked for besides.
    pub(super) fn make_room_for_tables(
        &self,
        now: Instant,
        mut besides: impl FnMut(&mut ShardCore),
    ) {
        let total = self.lock_memory.total.load(Ordering::Relaxed);
        // First, so that one thread does it.
        self.lock_memory.spread.store(total, Ordering::Relaxed);
        let mut is_full = false;
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            self.lock_memory.tell(shard, &mut core);
            is_full |= core.make_room_for_tables().is_err();
            besides(&mut core);
            self.lock_memory.publish(shard, &core);
        }
        self.lock_memory.is_full.store(is_full, Ordering::Relaxed);
    }
}
