//! Freeing memory for new items.
//!
//! The store always keeps a few segments free: some for the next items, and the last ones to move items to
//! while others are emptied. If fewer are free, every store empties a little more than it takes, long before
//! none is left. So no store waits for a whole segment. A store waits only if that was not enough, and is
//! refused if emptying frees nothing more.
//!
//! - F1: A segment is free, or an open one has a place for the live records of another one. Otherwise, with a locked
//!   item in each segment, none could be emptied any more. A flush suspends this until its segments are swept.

use super::block::Block;
use super::drain::{Drain, Rule, SLACK_WORTH};
use super::geometry::SegmentId;
use super::queue::Queue;
use super::record::HITS_MAX;
#[cfg(any(test, feature = "verify"))]
use super::segment::{Segment, State};
use super::{Full, KeyHasher, LogStore};
use crate::limits::Limits;
use crate::work::BYTES_A_UNIT;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;

/// Segments reserved for moving items: the live items of one segment fit into another.
pub(super) const KEPT_TO_CARRY: usize = 1;

/// How often each segment may have to be emptied to evict all that may be evicted: an item can be promoted, pass
/// once more for each hit, and at last a locked one is moved out of slack (E2).
const TURNS_MAX: usize = HITS_MAX as usize + 3;

/// If fewer segments are free, stores begin to free memory.
pub(super) const FREE_WANTED: usize = 3;

/// The most records that a small store reads to free memory, as long as it need not wait. Large records count
/// as several.
const LOOKS_A_STORE: usize = 24;

/// The reservation grows in steps of this fraction of a segment.
const STEPS_A_SEGMENT: usize = 4;

/// A store without eviction reserves one byte in so many from the beginning. Otherwise no lock could be taken
/// once it is full.
const ASIDE_SHARE: usize = 32;

/// The smallest reservation, in bytes.
pub(super) const fn aside_bytes_min(limits: &Limits) -> usize {
    if limits.evict {
        0
    } else {
        limits.memory_bytes_max / ASIDE_SHARE
    }
}

/// The urgency of a request for memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Haste {
    /// Later stores need it; no caller is waiting.
    Ahead,
    /// A caller waits for it.
    Now,
}

/// A step of work to free memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bit {
    /// The bytes that it has freed.
    pub(super) won: usize,
    /// The work, in records read: at least one.
    pub(super) looks: usize,
}

impl Bit {
    /// A read of a record that freed these bytes.
    pub(super) const fn won(bytes: usize) -> Self {
        Self {
            won: bytes,
            looks: 1 + looks_for(bytes),
        }
    }

    /// A read of a record that was moved.
    pub(super) const fn carried(bytes: usize) -> Self {
        Self {
            won: 0,
            looks: 1 + looks_for(bytes),
        }
    }
}

/// Moving, erasing or freeing so many bytes counts as reading so many records.
pub(super) const fn looks_for(bytes: usize) -> usize {
    bytes / BYTES_A_UNIT
}

/// The memory for the next item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) queue: Queue,
    pub(super) record_bytes: usize,
    /// The bytes of its own allocation.
    pub(super) huge_bytes: usize,
    /// The hash of its key, if it needs an entry in the index.
    pub(super) new_hash: Option<u64>,
}

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// The number of segments that are spare or could be allocated within the limit.
    pub(super) fn free_segments(&self) -> usize {
        let headroom = self.bytes_max.saturating_sub(self.held_bytes());
        let Some(rest) = self
            .log
            .allocate_bytes()
            .and_then(|bytes| headroom.checked_sub(bytes))
        else {
            return self.log.spare();
        };
        // The next segment may need more memory in the lists than this one.
        let more = rest.saturating_sub(self.log.listing_bytes_max());
        let by_memory = 1 + self.geometry.segments_in(more);
        let by_number = self.geometry.segments_max - self.log.with_memory();
        self.log.spare() + by_memory.min(by_number)
    }

    /// Frees memory until there is enough for `need`. May move items.
    ///
    /// # Errors
    /// [`Full`] if evicting every item that may be evicted is not enough, or if the allocation fails.
    pub(super) fn make_room(
        &mut self,
        now: Tick,
        need: &Need,
        counters: &mut Counters,
    ) -> Result<(), Full> {
        let never_freed = self.tally.locked_bytes + self.aside_bytes;
        if never_freed + need.record_bytes + need.huge_bytes > self.bytes_max {
            // Evicting every other item would not be enough, so none is.
            return Err(Full);
        }
        self.keep_pace(now, need, counters);
        self.win_until(now, counters, |store| store.meet(need))
    }

    /// Reserves `bytes` of the limit, or a little more. Small changes to and fro cost nothing.
    ///
    /// # Errors
    /// As [`make_room`](Self::make_room).
    pub(super) fn put_aside(
        &mut self,
        now: Tick,
        bytes: usize,
        counters: &mut Counters,
    ) -> Result<(), Full> {
        let step = self.geometry.segment_bytes() / STEPS_A_SEGMENT;
        let wanted = bytes.next_multiple_of(step).max(self.aside_bytes_min);
        if wanted > self.aside_bytes {
            let more = wanted - self.aside_bytes;
            self.win_until(now, counters, |store| store.get_memory(more))?;
            self.aside_bytes = wanted;
        } else if wanted + step < self.aside_bytes {
            self.aside_bytes = wanted;
        }
        Ok(())
    }

    /// Frees memory until there is enough.
    fn win_until(
        &mut self,
        now: Tick,
        counters: &mut Counters,
        is_enough: impl Fn(&mut Self) -> Result<bool, Full>,
    ) -> Result<(), Full> {
        let mut segments_left =
            TURNS_MAX * (self.log.with_memory() + self.huge.used()) + FREE_WANTED;
        while !is_enough(self)? {
            if self.drain.is_none() && self.sweep.is_none() {
                segments_left = segments_left.checked_sub(1).ok_or(Full)?;
            }
            self.win_back(now, Haste::Now, counters).ok_or(Full)?;
        }
        Ok(())
    }

    /// The queue to whose open segment a record can be moved: `wanted` if a segment is free for it, otherwise
    /// any.
    ///
    /// # Errors
    /// [`Full`] if there is none.
    pub(super) fn open_to_carry(&mut self, wanted: Queue, bytes: usize) -> Result<Queue, Full> {
        if !self.log.has_room(wanted, bytes) {
            if self.find_spare().is_err() {
                let others = [Queue::Main, Queue::Small, Queue::Pinned];
                let other = others
                    .into_iter()
                    .find(|queue| self.log.has_room(*queue, bytes));
                return other.ok_or(Full);
            }
            self.log.open(wanted);
        }
        Ok(wanted)
    }

    /// Returns memory that will not be needed soon. Takes about as long as reading so many records.
    pub(super) fn give_back(&mut self, items_max: usize) {
        self.index.trim();
        if self.index.len() == 0 {
            self.ghost.clear();
        }
        let looks = looks_for(self.geometry.segment_bytes()).max(1);
        for _ in 0..items_max.div_ceil(looks) {
            if self.log.spare() <= 1 || self.free_segments() <= self.log.spare() + FREE_WANTED {
                break;
            }
            self.log.give_back();
        }
    }

    /// Whether `bytes` more may be allocated, after freeing spare segments if necessary.
    fn has_memory(&mut self, bytes: usize) -> bool {
        while !self.fits(bytes) && self.log.spare() > KEPT_TO_CARRY {
            self.log.give_back();
        }
        self.fits(bytes)
    }

    /// Whether `bytes` more may be allocated for a purpose that no caller waits for. A spare segment may be
    /// freed for it, if enough are free. Otherwise a full store, whose memory is all in segments, could never
    /// allocate for it.
    pub(super) fn has_memory_left(&mut self, bytes: usize) -> bool {
        if !self.fits(bytes) && self.free_segments() >= FREE_WANTED {
            self.log.give_back();
        }
        self.fits(bytes)
    }

    /// Whether `bytes` more may be allocated so that a segment to move items to remains. A store without such
    /// a segment could not free memory any more.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        let kept = if self.log.spare() > 0 {
            0
        } else {
            self.log.allocate_bytes().unwrap_or(0)
        };
        self.held_bytes() + bytes + kept <= self.bytes_max
    }

    /// Frees a little memory if few segments are free: twice the record's bytes for each missing segment, so
    /// that free memory grows. The memory of a huge value itself is not freed ahead, since it is used at once.
    fn keep_pace(&mut self, now: Tick, need: &Need, counters: &mut Counters) {
        let missing = FREE_WANTED.saturating_sub(self.free_segments());
        let needed = need.record_bytes + need.huge_bytes;
        let wanted = 2 * missing * need.record_bytes;
        let looks_max = missing * (LOOKS_A_STORE + needed / 128);
        let (mut won, mut looks) = (0, 0);
        while won < wanted && looks < looks_max {
            let Some(bit) = self.win_back(now, Haste::Ahead, counters) else {
                break;
            };
            won += bit.won;
            looks += bit.looks;
        }
        self.come_down(now, LOOKS_A_STORE + needed / 128, counters);
    }

    /// Whether there is enough memory for `need`; opens a segment if only that is missing.
    fn meet(&mut self, need: &Need) -> Result<bool, Full> {
        let free = self.free_segments();
        if free < KEPT_TO_CARRY {
            // F1: the last one is for the items of the segment that is being emptied.
            return Ok(false);
        }
        if !self.log.has_room(need.queue, need.record_bytes) {
            if free == KEPT_TO_CARRY || !self.may_have_spare() {
                return Ok(false);
            }
            self.find_spare()?;
            self.log.open(need.queue);
        }
        let entry_bytes = need
            .new_hash
            .map_or(0, |hash| self.index.insert_bytes(hash));
        let huge_bytes = if need.huge_bytes > 0 {
            self.huge.insert_bytes(need.huge_bytes)
        } else {
            0
        };
        let bytes = entry_bytes + huge_bytes;
        if bytes == 0 {
            return Ok(true);
        }
        self.get_memory(bytes)
    }

    /// Whether `bytes` more may be allocated.
    ///
    /// # Errors
    /// [`Full`] if the allocator has no memory for it, which evicting items would not change.
    pub(super) fn get_memory(&mut self, bytes: usize) -> Result<bool, Full> {
        if !self.has_memory(bytes) {
            return Ok(false);
        }
        if B::allows(bytes) {
            Ok(true)
        } else {
            Err(Full)
        }
    }

    /// Makes sure that a segment is spare.
    pub(super) fn find_spare(&mut self) -> Result<(), Full> {
        if self.log.spare() > 0 {
            return Ok(());
        }
        if !self.may_have_spare() {
            return Err(Full);
        }
        self.log.allocate()
    }

    /// Whether a segment is spare, or may be allocated within the limit.
    fn may_have_spare(&self) -> bool {
        let fits = |bytes| self.held_bytes() + bytes <= self.bytes_max;
        self.log.spare() > 0 || self.log.allocate_bytes().is_some_and(fits)
    }

    /// Does the next step of work to free memory; `None` if no more can be freed.
    pub(super) fn win_back(
        &mut self,
        now: Tick,
        haste: Haste,
        counters: &mut Counters,
    ) -> Option<Bit> {
        let is_window_full = self.is_window_full();
        let is_next = |drain: Drain| drain.rule == Rule::Keep || !is_window_full;
        if self.drain.is_some_and(is_next) {
            if let Ok(bit) = self.drain_record(now, counters) {
                return Some(bit);
            }
            // There is no segment to move items to. A flush may have removed items, so that a sweep frees memory;
            // and a caller that waits tries the other segments.
            self.abandon_drain();
            let goes_on = haste != Haste::Ahead || self.oldest_flushed().is_some();
            return goes_on.then_some(Bit::won(0));
        }
        // Dead and expired items are removed before present ones are evicted. If a sweep found few, the next
        // sweep comes after emptying another segment, since each segment may hold few.
        if self.sweep.is_some() {
            return Some(Bit::won(self.sweep_record(now, counters).won()));
        }
        let is_flushed = self.oldest_flushed().is_some();
        if (is_flushed || !self.has_swept) && self.begin_sweep(now) {
            return Some(Bit::won(0));
        }
        let may_drain = self.evict && self.drain.is_none();
        if may_drain && self.drain_slack(SLACK_WORTH) {
            return Some(Bit::won(0));
        }
        if is_window_full {
            return self.judge_window(now, counters);
        }
        if self.evict
            && let Some(bit) = self.judge_main(now, counters)
        {
            return Some(bit);
        }
        (self.begin_drain(haste) || self.begin_sweep(now)).then_some(Bit::won(0))
    }

    fn oldest_flushed(&self) -> Option<SegmentId> {
        self.log.queues.line(Queue::Flushed).segments.oldest()
    }

    /// F1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check_free(&self) {
        let queues = [Queue::Small, Queue::Main, Queue::Pinned];
        let can_be_emptied = |segment: &Segment<B>| {
            let live_bytes = segment.live_bytes as usize;
            matches!(segment.state, State::Sealed | State::Draining)
                && queues
                    .iter()
                    .any(|queue| self.log.has_room(*queue, live_bytes))
        };
        assert!(
            self.free_segments() >= KEPT_TO_CARRY
                || self.log.segments.iter().any(can_be_emptied)
                || self.log.holds_flushed(),
            "F1"
        );
    }
}
