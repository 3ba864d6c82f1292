//! Making room for what is to be stored.
//!
//! A few segments are always kept free: some for what is stored next, and the last ones for what must
//! be carried to empty others. When there are fewer, every store empties a little more than it
//! takes, long before there is none; so none of them waits for a whole segment. Only if that was not
//! enough is one made to wait, and refused when emptying wins nothing more.

use super::block::Block;
use super::geometry::SegmentId;
use super::queue::Queue;
use super::{Full, KeyHasher, LogStore};
use crate::limits::Limits;
use crate::stats::Counters;
use crate::time::Tick;
use crate::work::BYTES_A_UNIT;

/// Segments that are kept for carrying: what one segment holds fits into another.
pub(super) const KEPT_TO_CARRY: usize = 1;

/// With fewer free segments than this, stores begin to win room back.
pub(super) const FREE_WANTED: usize = 3;

/// How many records a small store looks at to win room, at most, as long as it need not wait. Large ones count as
/// several.
const LOOKS_A_STORE: usize = 24;

/// What is set aside grows by such parts of a segment.
const STEPS_A_SEGMENT: usize = 4;

/// What a store that evicts nothing sets aside from the beginning: one in so many bytes. Else nothing
/// could be locked any more once it is full.
const ASIDE_SHARE: usize = 32;

/// What is set aside at least, in bytes.
pub(super) const fn aside_bytes_min(limits: &Limits) -> usize {
    if limits.evict {
        0
    } else {
        limits.memory_bytes_max / ASIDE_SHARE
    }
}

/// Who wants room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Haste {
    /// Those who come later: nobody yet.
    Ahead,
    /// Somebody who waits for it.
    Now,
}

/// A bit of work to win room back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bit {
    /// What it has won, in bytes.
    pub(super) won: usize,
    /// As looking at how many items it counts: at least one.
    pub(super) looks: usize,
}

impl Bit {
    /// A look, and what it has won.
    pub(super) const fn won(bytes: usize) -> Self {
        Self {
            won: bytes,
            looks: 1 + looks_for(bytes),
        }
    }

    /// A look at what was carried elsewhere.
    pub(super) const fn carried(bytes: usize) -> Self {
        Self {
            won: 0,
            looks: 1 + looks_for(bytes),
        }
    }
}

/// To move, erase or give back so many bytes counts as looking at so many items.
pub(super) const fn looks_for(bytes: usize) -> usize {
    bytes / BYTES_A_UNIT
}

/// What is about to be stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) queue: Queue,
    pub(super) record_bytes: usize,
    /// What goes into an allocation of its own.
    pub(super) huge_bytes: usize,
    /// Of the key, if it needs an entry in the index.
    pub(super) new_hash: Option<u64>,
}

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// How many segments are free, or could be allocated within the limit.
    pub(super) fn free_segments(&self) -> usize {
        let room = self.bytes_max.saturating_sub(self.held_bytes());
        let Some(rest) = self
            .log
            .allocate_bytes()
            .and_then(|bytes| room.checked_sub(bytes))
        else {
            return self.log.spare();
        };
        // The next one may need more room in the lists than this one does.
        let more = rest.saturating_sub(self.log.listing_bytes_max());
        let by_memory = 1 + self.geometry.segments_in(more);
        let by_number = self.geometry.segments_max - self.log.with_memory();
        self.log.spare() + by_memory.min(by_number)
    }

    /// Sees to it that there is room for what is needed. What there is may have moved.
    ///
    /// # Errors
    /// [`Full`] if there would be none without all that may be given up, or the allocator refuses.
    pub(super) fn make_room(
        &mut self,
        now: Tick,
        need: &Need,
        counters: &mut Counters,
    ) -> Result<(), Full> {
        self.keep_pace(now, need, counters);
        self.win_until(now, counters, |store| store.meet(need))
    }

    /// Sets `bytes` of the limit aside, or a little more. Going to and fro costs nothing.
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

    /// Wins room back until there is enough.
    fn win_until(
        &mut self,
        now: Tick,
        counters: &mut Counters,
        is_enough: impl Fn(&mut Self) -> Result<bool, Full>,
    ) -> Result<(), Full> {
        // Every segment could have to be looked at once, and what is carried once more.
        let mut segments_left = 2 * self.log.with_memory() + FREE_WANTED;
        while !is_enough(self)? {
            if self.drain.is_none() && self.sweep.is_none() {
                segments_left = segments_left.checked_sub(1).ok_or(Full)?;
            }
            self.win_back(now, Haste::Now, counters).ok_or(Full)?;
        }
        Ok(())
    }

    /// The queue in which a record that is to be carried finds room: the one that is wanted, if there
    /// is a free segment for it, or else any.
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

    /// Gives memory back that will not be needed soon: as much as takes about as long as looking at so
    /// many items.
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

    /// Whether `bytes` more may be allocated, once spare segments are given back for it.
    fn has_memory(&mut self, bytes: usize) -> bool {
        while !self.fits(bytes) && self.log.spare() > KEPT_TO_CARRY {
            self.log.give_back();
        }
        self.fits(bytes)
    }

    /// Whether `bytes` more may be allocated for what nobody waits for: once a spare segment is given back, if as many are free
    /// as are wanted. Else a full store, whose memory is all in segments, would never have any for that.
    pub(super) fn has_memory_left(&mut self, bytes: usize) -> bool {
        if !self.fits(bytes) && self.free_segments() >= FREE_WANTED {
            self.log.give_back();
        }
        self.fits(bytes)
    }

    /// Whether `bytes` more may be allocated, and there is a segment to carry to all the same: a store
    /// that had none could not win anything back any more.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        let kept = if self.log.spare() > 0 {
            0
        } else {
            self.log.allocate_bytes().unwrap_or(0)
        };
        self.held_bytes() + bytes + kept <= self.bytes_max
    }

    /// Empties a little, if little is free: for each segment that is missing, twice as much as is
    /// taken, so that there is more each time.
    fn keep_pace(&mut self, now: Tick, need: &Need, counters: &mut Counters) {
        let missing = FREE_WANTED.saturating_sub(self.free_segments());
        let needed = need.record_bytes + need.huge_bytes;
        let wanted = 2 * missing * needed;
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

    /// Whether there is room for all that is needed; opens a segment if that is what is missing.
    fn meet(&mut self, need: &Need) -> Result<bool, Full> {
        if !self.log.has_room(need.queue, need.record_bytes) {
            if self.free_segments() <= KEPT_TO_CARRY || !self.may_have_spare() {
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
    /// [`Full`] if the system has no memory for it: to evict items would not change that.
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

    /// Sees to it that a segment is spare.
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

    /// Does the next bit of work to win room back; `None` if there is nothing to be won.
    pub(super) fn win_back(
        &mut self,
        now: Tick,
        haste: Haste,
        counters: &mut Counters,
    ) -> Option<Bit> {
        if self.drain.is_some() {
            if let Ok(bit) = self.drain_record(now, counters) {
                return Some(bit);
            }
            // There is nowhere to carry to. A flush may have ended what there was: then a sweep gives room.
            self.abandon_drain();
            self.oldest_flushed()?;
        }
        // What is not there any more goes before what is; where little of it was found, only after
        // another segment was emptied, since there may be little of it in each.
        if self.sweep.is_some() {
            return Some(Bit::won(self.sweep_record(now, counters).won()));
        }
        let is_flushed = self.oldest_flushed().is_some();
        if (is_flushed || !self.has_swept) && self.begin_sweep(now) {
            return Some(Bit::won(0));
        }
        (self.begin_drain(haste) || self.begin_sweep(now)).then_some(Bit::won(0))
    }

    fn oldest_flushed(&self) -> Option<SegmentId> {
        self.log.queues.line(Queue::Flushed).segments.oldest()
    }
}
