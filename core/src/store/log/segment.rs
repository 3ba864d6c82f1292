//! A part of the log: records one after the other in one allocation.
//!
//! A segment is filled from its beginning and emptied as a whole. The bytes after the last record were never
//! touched, and are not cleared.
//!
//! - B1: `live_bytes` is the sum of the live records' sizes, and `evictable_bytes` that of the live records that
//!   are evicted with their segment.
//! - B2: No item in the segment that may expire does so before `earliest`.
//! - B3: The segment never grows beyond its allocation.

use super::block::Block;
use super::list::{Linked, Links, Row};
use super::queue::Queue;
use super::record::{NEVER, Record, RecordMut};

/// The state of a segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum State {
    /// It has no memory: a number to be reused.
    #[default]
    Bare,
    /// It has memory and no records.
    Spare,
    /// The newest of its queue, to which records are appended.
    Open,
    /// In its queue; no more records are appended.
    Sealed,
    /// Out of its queue, while its items worth keeping are moved.
    Draining,
}

/// Writes are padded to this unit, which is the unit of all but the largest memories.
const ZEROS: [u8; 8] = [0; 8];

/// A segment.
#[derive(Debug)]
pub(super) struct Segment<B> {
    block: B,
    pub(super) live_bytes: u32,
    pub(super) evictable_bytes: usize,
    /// In ticks; [`NEVER`] is none.
    pub(super) earliest: u32,
    /// Its place in the heap of deadlines.
    pub(super) place: u32,
    /// The use of its memory: a later use has a larger number.
    pub(super) serial: u64,
    /// The number of flushes before it was opened.
    pub(super) epoch: u64,
    pub(super) queue: Queue,
    pub(super) state: State,
    /// It was sealed although the next record would have fitted.
    pub(super) is_short: bool,
    /// The list of [`Row::Slack`] that it is in.
    pub(super) slack_class: u8,
    links: [Links; 2],
}

impl<B: Block> Default for Segment<B> {
    fn default() -> Self {
        Self {
            block: B::default(),
            live_bytes: 0,
            evictable_bytes: 0,
            earliest: NEVER,
            place: 0,
            serial: 0,
            epoch: 0,
            queue: Queue::Small,
            state: State::Bare,
            is_short: false,
            slack_class: 0,
            links: [Links::default(); 2],
        }
    }
}

impl<B: Block> Segment<B> {
    /// The number of written bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.block.bytes().len()
    }

    #[cfg(any(test, feature = "verify"))]
    pub(super) fn has_memory(&self) -> bool {
        self.block.capacity() > 0
    }

    #[inline]
    pub(super) fn record(&self, offset: usize) -> Record<'_> {
        Record::new(&self.block.bytes()[offset..])
    }

    #[inline]
    pub(super) fn record_mut(&mut self, offset: usize) -> RecordMut<'_> {
        RecordMut::new(&mut self.block.bytes_mut()[offset..])
    }

    /// Appends bytes (B3: the caller has checked that they fit).
    pub(super) fn write(&mut self, bytes: &[u8]) {
        debug_assert!(
            self.len() + bytes.len() <= self.block.capacity(),
            "B3: {} and {} bytes",
            self.len(),
            bytes.len()
        );
        self.block.write(bytes);
    }

    /// Appends a copy of bytes of this segment.
    pub(super) fn write_again(&mut self, range: core::ops::Range<usize>) {
        self.block.write_again(range);
    }

    /// Writes zeros up to `len`.
    pub(super) fn pad(&mut self, len: usize) {
        while self.len() < len {
            let missing = len - self.len();
            self.write(&ZEROS[..missing.min(ZEROS.len())]);
        }
    }

    /// Takes the bytes out, so that they can be written into another segment.
    pub(super) fn lend(&mut self) -> B {
        core::mem::take(&mut self.block)
    }

    /// Puts back the bytes from [`lend`](Self::lend).
    pub(super) fn take_back(&mut self, block: B) {
        self.block = block;
    }

    pub(super) fn give_memory(&mut self, memory: B) {
        self.block = memory;
    }

    pub(super) fn take_memory(&mut self) {
        self.block = B::default();
    }

    /// Drops the records, and keeps the memory.
    pub(super) fn forget(&mut self) {
        self.block.clear();
        self.live_bytes = 0;
        self.is_short = false;
    }

    /// The bytes that emptying it would free if it has `segment_bytes` and is in `queue`: those of dead records, and
    /// in the pinned queue those of evictable items. The unused end is not counted, since
    /// moving the records would not avoid it. In a segment that was sealed short, it is.
    pub(super) fn slack_bytes(&self, segment_bytes: usize, queue: Queue) -> usize {
        let filled = if self.is_short {
            segment_bytes
        } else {
            self.len()
        };
        let dead = filled - self.live_bytes as usize;
        match queue {
            Queue::Pinned => dead + self.evictable_bytes,
            Queue::Small | Queue::Main | Queue::Flushed => dead,
        }
    }

    #[cfg(test)]
    pub(super) const fn block(&self) -> &B {
        &self.block
    }
}

impl<B> Linked for Segment<B> {
    fn links(&mut self, row: Row) -> &mut Links {
        &mut self.links[row as usize]
    }

    #[cfg(any(test, feature = "verify"))]
    fn links_of(&self, row: Row) -> Links {
        self.links[row as usize]
    }
}
