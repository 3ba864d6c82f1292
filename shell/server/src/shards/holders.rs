//! The number of connections that hold locks, over all shards.
//!
//! A connection with locks in several shards counts once, so the sum of the shards' counts is too large. A few connections
//! are counted at each request. If there are many, that would delay other clients: the clock then counts a part of them at
//! each tick ([`Shards::count_holders`]), and the number is as old as a count takes, usually some tenths of a second.

use latchd_core::Owner;

use super::Shards;
use super::look::NOBODY;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The most connections counted at a request. Each counts in every shard in which it has ever requested a lock.
const LOOKED_AT_MAX: usize = 4_096;

/// The most connections read while a shard is locked.
const PER_SHARD: usize = 256;

/// The steps per tick. With 16 shards, each step takes a fraction of a millisecond.
const STEPS_PER_TICK: usize = 8;

/// The last count, and the one in progress.
#[derive(Debug, Default)]
pub(super) struct Holders {
    counted: AtomicUsize,
    count: Mutex<Count>,
}

/// A count in progress.
#[derive(Debug)]
struct Count {
    /// The last counted connection.
    behind: Owner,
    /// The counted connections that hold locks.
    holders: usize,
}

impl Default for Count {
    fn default() -> Self {
        Self {
            behind: NOBODY,
            holders: 0,
        }
    }
}

impl Shards {
    /// The number of connections that hold locks.
    pub(super) fn lock_holders(&self) -> usize {
        let (mut most, mut sum) = (0, 0);
        for shard in 0..self.cores.len() {
            let holders = self.core(shard).locks().holders();
            most = most.max(holders);
            sum += holders;
        }
        if most == sum {
            return sum;
        }
        if self.are_many() {
            let counted = self.holders.counted.load(Ordering::Relaxed);
            return counted.clamp(most, sum);
        }
        let mut all = Vec::new();
        for shard in 0..self.cores.len() {
            all.extend(self.core(shard).locks().holding_connections());
        }
        distinct(&mut all)
    }

    /// Whether the connections are too many to count at a request.
    fn are_many(&self) -> bool {
        let looked_at = |shard| self.core(shard).locks().open_count();
        (0..self.cores.len()).map(looked_at).sum::<usize>() > LOOKED_AT_MAX
    }

    /// Continues the count by a bounded part.
    pub(crate) fn count_holders(&self) {
        if !self.are_many() {
            return;
        }
        let mut count = self
            .holders
            .count
            .lock()
            .expect("nothing panics while it counts");
        for _ in 0..STEPS_PER_TICK {
            if self.count_on(&mut count) {
                self.holders.counted.store(count.holders, Ordering::Relaxed);
                *count = Count::default();
                return;
            }
        }
    }

    /// Counts connections after the last counted one, at most [`PER_SHARD`] per shard. Returns whether the count is complete.
    fn count_on(&self, count: &mut Count) -> bool {
        let mut all = Vec::new();
        let mut known_up_to = None;
        for shard in 0..self.cores.len() {
            let core = self.core(shard);
            let behind = core.locks().connections_behind(count.behind);
            let (mut looked_at, mut last) = (0, count.behind);
            for (conn, holds) in behind.take(PER_SHARD) {
                (looked_at, last) = (looked_at + 1, conn);
                if holds {
                    all.push(conn);
                }
            }
            if looked_at == PER_SHARD {
                known_up_to = Some(known_up_to.map_or(last, |known: Owner| known.min(last)));
            }
        }
        if let Some(known) = known_up_to {
            all.retain(|conn| *conn <= known);
            count.behind = known;
        }
        count.holders += distinct(&mut all);
        known_up_to.is_none()
    }
}

/// The number of different connections in the list.
fn distinct(all: &mut Vec<Owner>) -> usize {
    all.sort_unstable();
    all.dedup();
    all.len()
}
