//! A limit that changes while items are there.
//!
//! A larger one holds at once. A smaller one is come down to: what may be allocated is what the store holds, and goes
//! down with all that it gives back, until it is the limit that was asked for. Meanwhile the store is a full one like
//! any other, but that every call that stores, and every crawl, wins a bounded amount of room more than it needs. A segment
//! to carry to is allocated before, if there is none: it may not be afterwards.
//!
//! - Z1: what may be allocated is never less than the limit that was asked for, and as long as it is more, it goes
//!   up only when it is asked for anew.
//!
//! Segments keep their size, and lists of them and of huge values never shrink: a limit below what those take, and a
//! few segments besides, is refused.

use super::block::Block;
use super::room::{self, FREE_WANTED, Haste, looks_for};
use super::{KeyHasher, LogStore};
use crate::limits::{Limits, MemoryRefused};
use crate::stats::Counters;
use crate::time::Tick;

/// The fewest segments that a store can do with: one to be written, one to be carried to, and one for what is
/// evicted next.
const SEGMENTS_LEAST: usize = 3;

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// As [`Store::judge_memory`](super::Store::judge_memory).
    pub(super) fn judge_limit(&self, bytes: usize) -> Result<(), MemoryRefused> {
        let least = SEGMENTS_LEAST * self.geometry.segment_bytes() + self.fixed_bytes();
        if bytes < least {
            Err(MemoryRefused::TooSmall)
        } else if self.geometry.segments_in(bytes) > self.geometry.segments_max {
            Err(MemoryRefused::TooLarge)
        } else {
            Ok(())
        }
    }

    /// As [`Store::set_memory`](super::Store::set_memory).
    pub(super) fn set_limit(&mut self, limits: &Limits) {
        self.bytes_wanted = limits.memory_bytes_max;
        let segment_bytes = self.log.allocate_bytes().unwrap_or(0);
        if self.held_bytes() + segment_bytes > self.bytes_wanted {
            // What could be allocated to carry to cannot be any more, and nothing is won back without it.
            let _ = self.find_spare();
        }
        self.aside_bytes_min = room::aside_bytes_min(limits);
        self.aside_bytes = self.aside_bytes.max(self.aside_bytes_min);
        self.is_stuck = false;
        self.bytes_max = self.bytes_wanted.max(self.held_bytes());
    }

    /// Whether there is more to be won on the way down to the limit, as far as is known.
    pub(super) const fn comes_down(&self) -> bool {
        self.bytes_max > self.bytes_wanted && !self.is_stuck
    }

    /// Wins room on the way down to the limit, if that is not reached: as much as takes about as long as looking at
    /// `looks_max` records.
    pub(super) fn come_down(&mut self, now: Tick, looks_max: usize, counters: &mut Counters) {
        self.is_stuck = false;
        let mut left = looks_max;
        while self.bytes_max > self.bytes_wanted {
            self.index.trim();
            if self.index.len() == 0 {
                self.ghost.clear();
            }
            self.bytes_max = self.bytes_wanted.max(self.held_bytes());
            if left == 0 {
                return;
            }
            if self.log.spare() > FREE_WANTED {
                self.log.give_back();
                left = left.saturating_sub(looks_for(self.geometry.segment_bytes()).max(1));
            } else if let Some(bit) = self.win_back(now, Haste::Ahead, counters) {
                left = left.saturating_sub(bit.looks);
            } else {
                self.is_stuck = true;
                return;
            }
        }
    }

    /// What does not become less when items go, in bytes: the lists of what there once was.
    const fn fixed_bytes(&self) -> usize {
        self.log.listing_bytes() + self.huge.listing_bytes()
    }

    /// Z1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check_limit(&self) {
        assert!(self.bytes_max >= self.bytes_wanted, "Z1");
    }
}
