//! How many connections hold locks, over all shards.
//!
//! A connection that holds locks in several shards counts once, so that the shards' own counts do not add up. Few are
//! counted when somebody asks. Of many the clock counts a part at each tick ([`Shards::count_holders`]), since one who
//! asks would hold others up: then what is told is as old as a count takes, some tenths of a second as a rule.

use latchd_core::Owner;

use super::Shards;
use super::look::NOBODY;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Up to so many connections, each counted in every shard where it has ever asked for a lock, are looked at when
/// somebody asks.
const LOOKED_AT_MAX: usize = 4_096;

/// How many connections of a shard are looked at while others wait for it.
const PER_SHARD: usize = 256;

/// How many steps are made in a tick: of a shard of 16, a fraction of a millisecond each.
const STEPS_PER_TICK: usize = 8;

/// What was counted last.
#[derive(Debug, Default)]
pub(super) struct Holders {
    counted: AtomicUsize,
    count: Mutex<Count>,
}

/// A count that goes on.
#[derive(Debug)]
struct Count {
    /// Up to here, this one included, all have been counted.
    behind: Owner,
    /// How many of them hold locks.
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
    /// How many connections hold locks.
    pub(super) fn lock_holders(&self) -> usize {
        let (mut looked_at, mut most, mut sum) = (0, 0, 0);
        for shard in 0..self.cores.len() {
            let core = self.core(shard);
            let holders = core.locks().holders();
            looked_at += core.locks().open_count();
            most = most.max(holders);
            sum += holders;
        }
        if most == sum {
            return sum;
        }
        if looked_at > LOOKED_AT_MAX {
            let counted = self.holders.counted.load(Ordering::Relaxed);
            return counted.clamp(most, sum);
        }
        let mut all = Vec::new();
        for shard in 0..self.cores.len() {
            all.extend(self.core(shard).locks().holding_connections());
        }
        distinct(&mut all)
    }

    /// Goes on with the count, a bounded part of it.
    pub(crate) fn count_holders(&self) {
        let looked_at = |shard| self.core(shard).locks().open_count();
        if (0..self.cores.len()).map(looked_at).sum::<usize>() <= LOOKED_AT_MAX {
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

    /// Counts those behind the last one that was, as far as each shard can tell in one step. Returns whether these were all.
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

/// How many they are, each counted once.
fn distinct(all: &mut Vec<Owner>) -> usize {
    all.sort_unstable();
    all.dedup();
    all.len()
}
