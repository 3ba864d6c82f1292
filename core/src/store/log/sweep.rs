//! Looking through a segment for what is not there any more, and leaving the rest where it is.
//!
//! Two kinds of segment are worth it: what a flush has left behind, and one with an item that has
//! expired. The heap of deadlines knows the latter, so where nothing has expired, nothing is looked
//! at. The crawl does it, and before living items are given up, so does who needs room.
//!
//! - W1: after a sweep, nothing is left in the segment that was not there at its beginning, and its
//!   `earliest` is exact but for what came or changed since.

use super::ahead::Ahead;
use super::block::Block;
use super::geometry::{Address, SegmentId};
use super::queue::Queue;
use super::record::NEVER;
use super::room::Bit;
use super::segment::State;
use super::{KeyHasher, LogStore};
use crate::stats::Counters;
use crate::time::Tick;

/// A sweep was worth it if it won more than one in so many bytes of a segment.
const SWEEP_WORTH: usize = 4;

/// A segment that is being looked through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    segment: SegmentId,
    /// Which use of the segment's memory is meant.
    serial: u64,
    /// A flush came before it: what it has passed is swept for that, too.
    is_flushed: bool,
    offset: usize,
    ahead: Ahead,
    /// Of what has been looked at.
    earliest: u32,
    won_bytes: usize,
}

/// What a sweep has done with a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Swept {
    /// Its item is not there, and has not been since before.
    Gone {
        /// What it took.
        bytes: usize,
    },
    /// Its item had expired.
    Expired {
        /// What it took.
        bytes: usize,
    },
    /// Its item is there.
    Left,
    /// There was no record left.
    Ended,
}

impl Swept {
    /// What was won, in bytes.
    pub(super) const fn won(self) -> usize {
        match self {
            Self::Gone { bytes } | Self::Expired { bytes } => bytes,
            Self::Left | Self::Ended => 0,
        }
    }
}

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// Looks at up to `items_max` records in segments that a flush has left behind, or that have an
    /// item that has expired; large ones that go count as several. Returns how many more it would have looked at.
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

    /// The next segment that is worth it.
    pub(super) fn worth_sweeping(&self, now: Tick) -> Option<SegmentId> {
        let flushed = self.log.queues.line(Queue::Flushed).segments.oldest();
        flushed.or_else(|| {
            let first = self.log.deadlines.first()?;
            (self.log.segments[first as usize].earliest <= now.count()).then_some(first)
        })
    }

    /// Begins with the next segment that is worth it. Returns whether there is one.
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
            counters.reclaimed += 1;
            counters.expired_unfetched += u64::from(!record.is_fetched());
            self.bury(address, hash);
            Swept::Expired { bytes: won }
        } else {
            // One that is locked does not expire; when it is unlocked, its deadline counts again.
            if !record.is_locked() {
                sweep.earliest = sweep.earliest.min(record.deadline());
            }
            Swept::Left
        };
        sweep.won_bytes += swept.won();
        self.sweep = Some(sweep);
        swept
    }

    /// An item may expire at `deadline`, in ticks, from now on.
    pub(super) fn expect(&mut self, address: Address, deadline: u32) {
        let (segment, _) = self.geometry.place(address);
        self.log.expect(segment, deadline);
        if let Some(sweep) = &mut self.sweep
            && sweep.segment == segment
        {
            sweep.earliest = sweep.earliest.min(deadline);
        }
    }

    /// An item that a flush had spared is not there any more: a sweep that has passed it comes back.
    pub(super) fn revisit(&mut self, address: Address) {
        let (segment, _) = self.geometry.place(address);
        if let Some(sweep) = &mut self.sweep
            && sweep.segment == segment
        {
            sweep.offset = 0;
            sweep.ahead = Ahead::default();
        }
    }

    /// W1. What is left of a flushed segment is locked: it is pinned. If the flush came in between,
    /// the segment stays where it is, to be swept once more.
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
