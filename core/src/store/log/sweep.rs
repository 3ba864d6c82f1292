//! Sweeping a segment: removing flushed and expired items, and leaving the others in place.
//!
//! Two kinds of segment are swept: flushed ones, and ones with an expired item. The heap of deadlines finds
//! the latter, so if nothing has expired, no segment is read. The crawl sweeps. A store that needs memory
//! also sweeps before it evicts present items.
//!
//! - W1: After a sweep, the segment holds no item that had expired or was flushed when the sweep began. Its
//!   `earliest` is exact, except for items added or changed since.

use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;

use super::ahead::Ahead;
use super::block::Block;
use super::geometry::{Address, SegmentId};
use super::queue::Queue;
use super::reclaim::Bit;
use super::record::NEVER;
use super::segment::State;
use super::{KeyHasher, LogStore};

/// A sweep was worthwhile if it freed more than one in so many bytes of a segment.
const SWEEP_WORTH: usize = 4;

/// A segment that is being swept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    segment: SegmentId,
    /// The use of the segment's memory that is swept.
    serial: u64,
    /// Whether the last flush came before the sweep, so that swept records are swept for the flush, too.
    is_flushed: bool,
    offset: usize,
    ahead: Ahead,
    /// The earliest deadline of the swept items.
    earliest: u32,
    won_bytes: usize,
}

/// The result of sweeping a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Swept {
    /// Its item was removed before.
    Gone {
        /// Its size, in bytes.
        bytes: usize,
    },
    /// Its item had expired.
    Expired {
        /// Its size, in bytes.
        bytes: usize,
    },
    /// Its item is present.
    Left,
    /// No record was left.
    Ended,
}

impl Swept {
    /// The freed bytes.
    pub(super) const fn won(self) -> usize {
        match self {
            Self::Gone { bytes } | Self::Expired { bytes } => bytes,
            Self::Left | Self::Ended => 0,
        }
    }
}

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// Reads up to `items_max` records in flushed segments and in segments with an expired item. Removed
    /// large items count as several. Returns how many more it could have read.
    pub(super) fn sweep_some(
        &mut self,
        now: Tick,
        items_max: usize,
        counters: &mut Counters,
    ) -> usize {
        let mut left = items_max;
        while left > 0 && (self.sweep.is_some() || self.begin_sweep(now)) {
            let swept = self.sweep_record(now, counters);
            match swept {
                Swept::Ended => continue,
                Swept::Gone { .. } => {}
                Swept::Expired { .. } => {
                    counters.crawler_items_checked += 1;
                    counters.crawler_reclaimed += 1;
                }
                Swept::Left => counters.crawler_items_checked += 1,
            }
            left = left.saturating_sub(Bit::won(swept.won()).looks);
        }
        left
    }

    /// The next segment to sweep.
    pub(super) fn worth_sweeping(&self, now: Tick) -> Option<SegmentId> {
        let flushed = self.log.queues.line(Queue::Flushed).segments.oldest();
        flushed.or_else(|| {
            let first = self.log.deadlines.first()?;
            (self.log.segments[first as usize].earliest <= now.count()).then_some(first)
        })
    }

    /// Starts with the next segment to sweep. Returns whether there is one.
    pub(super) fn begin_sweep(&mut self, now: Tick) -> bool {
        let Some(segment) = self.worth_sweeping(now) else {
            return false;
        };
        self.sweep = Some(Sweep {
            segment,
            serial: self.log.segments[segment as usize].serial,
            is_flushed: self.log.is_flushed(segment),
            offset: 0,
            ahead: Ahead::default(),
            earliest: NEVER,
            won_bytes: 0,
        });
        true
    }

    /// Looks at the next record of the segment that is being swept.
    pub(super) fn sweep_record(&mut self, now: Tick, counters: &mut Counters) -> Swept {
        let Some(mut sweep) = self.sweep else {
            return Swept::Ended;
        };
        let segment = &self.log.segments[sweep.segment as usize];
        let is_same = match segment.state {
            State::Open | State::Sealed | State::Draining => segment.serial == sweep.serial,
            State::Bare | State::Spare => false,
        };
        if !is_same || sweep.offset >= segment.len() {
            self.sweep = None;
            self.has_swept = sweep.won_bytes < self.geometry.segment_bytes() / SWEEP_WORTH;
            if is_same {
                self.end_sweep(&sweep);
            }
            return Swept::Ended;
        }
        let hash = sweep.ahead.next(self, sweep.segment, sweep.offset);
        let address = self.geometry.address(sweep.segment, sweep.offset);
        let record = self.record(address);
        let bytes = record.padded_bytes(&self.geometry);
        sweep.offset += bytes;
        let is_kept = record.is_locked() || self.in_hand == Some(address);
        let won = bytes
            + if record.is_dead() {
                0
            } else {
                self.huge_bytes(record)
            };
        let swept = if record.is_dead() {
            Swept::Gone { bytes: 0 }
        } else if !self.log.is_there(address) && !is_kept {
            self.bury(address, hash);
            Swept::Gone { bytes: won }
        } else if record.is_past(now) && !is_kept {
            self.expire(address, hash, counters);
            Swept::Expired { bytes: won }
        } else {
            // A locked item does not expire; after the unlock, its deadline counts again.
            if !record.is_locked() {
                sweep.earliest = sweep.earliest.min(record.deadline());
            }
            Swept::Left
        };
        sweep.won_bytes += swept.won();
        self.sweep = Some(sweep);
        swept
    }

    /// Records that an item may expire at `deadline`, in ticks.
    pub(super) fn expect(&mut self, address: Address, deadline: u32) {
        let (segment, _) = self.geometry.place(address);
        self.log.expect(segment, deadline);
        if let Some(sweep) = &mut self.sweep
            && sweep.segment == segment
        {
            sweep.earliest = sweep.earliest.min(deadline);
        }
    }

    /// A locked item that survived a flush was removed: a sweep that has passed it must come again.
    pub(super) fn revisit(&mut self, address: Address) {
        let (segment, _) = self.geometry.place(address);
        if let Some(sweep) = &mut self.sweep
            && sweep.segment == segment
        {
            sweep.offset = 0;
            sweep.ahead = Ahead::default();
        }
    }

    /// Restores W1. Items left in a flushed segment are locked, so it is pinned. If the flush came during the
    /// sweep, the segment stays in place, to be swept once more.
    fn end_sweep(&mut self, sweep: &Sweep) {
        let id = sweep.segment;
        self.log
            .deadlines
            .set(&mut self.log.segments, id, sweep.earliest);
        let is_sealed = self.log.segments[id as usize].state == State::Sealed;
        if sweep.is_flushed && self.log.is_flushed(id) && is_sealed {
            self.log.pin(id);
        }
    }
}
