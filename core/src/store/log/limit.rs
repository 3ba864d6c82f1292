//! A memory limit that changes at run time.
//!
//! A larger limit holds at once. A smaller one is reached gradually: the bytes that may be allocated are
//! those that the store holds, and fall with every freed byte until they are the configured limit. Meanwhile
//! the store acts as a full one. In addition, every call that stores and every crawl frees a bounded number
//! of bytes more than it needs. If there is no segment to move items to, one is allocated first, since none
//! may be allocated later.
//!
//! - Z1: The bytes that may be allocated are never below the configured limit. While they are above it, they
//!   rise only when the limit is changed.
//!
//! Segments keep their size, and the lists of segments and huge values never shrink. A limit below the size
//! of those lists and a few segments is refused.

use latchd_protocol::reply::MemoryRefused;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;

use super::block::Block;
use super::reclaim::{self, FREE_WANTED, Haste, looks_for};
use super::{KeyHasher, LogStore};
use crate::limits::Limits;

/// The fewest segments of a store: one to write to, one to move items to, and one to evict next.
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
            // A segment to move items to could not be allocated later, and without one no memory can be
            // freed.
            let _ = self.find_spare();
        }
        self.aside_bytes_min = reclaim::aside_bytes_min(limits);
        self.aside_bytes = self.aside_bytes.max(self.aside_bytes_min);
        self.is_stuck = false;
        self.bytes_max = self.bytes_wanted.max(self.held_bytes());
    }

    /// Whether more memory can be freed on the way to the limit, as far as is known.
    pub(super) const fn comes_down(&self) -> bool {
        self.bytes_max > self.bytes_wanted && !self.is_stuck
    }

    /// Frees memory if the limit is not reached: takes about as long as reading `looks_max` records.
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

    /// The bytes that do not fall when items are removed: lists sized by the highest count so far.
    const fn fixed_bytes(&self) -> usize {
        self.log.listing_bytes() + self.huge.listing_bytes()
    }

    /// Z1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check_limit(&self) {
        assert!(self.bytes_max >= self.bytes_wanted, "Z1");
    }
}
