//! A stretch of the log: records, one behind the other, in one allocation.
//!
//! A segment is filled from its beginning and emptied as a whole. Its bytes are as many as have been
//! written: what lies behind has never been touched, and nothing is cleared for it.
//!
//! - B1: `live_bytes` are what the records take that are not dead; `locked_bytes` those of them whose
//!   items are locked.
//!   `huge_bytes` is what the values of living records take elsewhere.
//! - B2: no item in it that may expire does so before `earliest`.
//! - B3: it never grows beyond the memory it was given.

use super::block::Block;
use super::list::{Links, Row};
use super::queue::Queue;
use super::record::{NEVER, Record, RecordMut};

/// What a segment is doing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum State {
    /// It has no memory: a number to be used again.
    #[default]
    Bare,
    /// It has memory and no records.
    Spare,
    /// The newest of its queue, to which records are added.
    Open,
    /// In its queue; no more records are added.
    Sealed,
    /// Out of its queue: what is worth keeping is carried elsewhere.
    Draining,
}

/// What is written up to the next unit: the unit of all but the largest memories.
const ZEROS: [u8; 8] = [0; 8];

/// A segment.
#[derive(Debug)]
pub(super) struct Segment<B> {
    block: B,
    pub(super) live_bytes: u32,
    pub(super) locked_bytes: u32,
    pub(super) huge_bytes: usize,
    /// In ticks; [`NEVER`] is none.
    pub(super) earliest: u32,
    /// Where it stands in the heap of deadlines.
    pub(super) place: usize,
    /// Which use of this memory it is: a later one has a larger number.
    pub(super) serial: u64,
    /// After how many flushes it was opened.
    pub(super) epoch: u64,
    pub(super) queue: Queue,
    pub(super) state: State,
    /// It was sealed before a record did not fit into it.
    pub(super) is_short: bool,
    /// Which list of [`Row::Slack`] it is in.
    pub(super) slack_class: u8,
    links: [Links; 2],
}

impl<B: Block> Default for Segment<B> {
    fn default() -> Self {
        Self {
            block: B::default(),
            live_bytes: 0,
            locked_bytes: 0,
            huge_bytes: 0,
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
    /// How many bytes have been written.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.block.bytes().len()
    }

    #[cfg(any(test, feature = "verify"))]
    pub(super) fn has_memory(&self) -> bool {
        self.block.room() > 0
    }

    #[inline]
    pub(super) fn record(&self, offset: usize) -> Record<'_> {
        Record::new(&self.block.bytes()[offset..])
    }

    #[inline]
    pub(super) fn record_mut(&mut self, offset: usize) -> RecordMut<'_> {
        RecordMut::new(&mut self.block.bytes_mut()[offset..])
    }

    /// Writes at the end (B3: the caller has asked for room).
    pub(super) fn write(&mut self, bytes: &[u8]) {
        debug_assert!(
            self.len() + bytes.len() <= self.block.room(),
            "B3: {} and {} bytes",
            self.len(),
            bytes.len()
        );
        self.block.write(bytes);
    }

    /// Writes at the end what stands here already.
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

    /// Lends its bytes out, so that they can be written into another segment.
    pub(super) fn lend(&mut self) -> B {
        core::mem::take(&mut self.block)
    }

    /// Takes back what [`lend`](Self::lend) gave.
    pub(super) fn take_back(&mut self, block: B) {
        self.block = block;
    }

    pub(super) fn give_memory(&mut self, memory: B) {
        self.block = memory;
    }

    pub(super) fn take_memory(&mut self) {
        self.block = B::default();
    }

    /// Forgets the records; the memory stays.
    pub(super) fn forget(&mut self) {
        self.block.clear();
        self.live_bytes = 0;
        self.locked_bytes = 0;
        self.is_short = false;
    }

    /// What its living items take, in bytes, huge values included.
    pub(super) const fn weight(&self) -> usize {
        self.live_bytes as usize + self.huge_bytes
    }

    /// What could be won back by carrying away what must stay, in bytes, of a segment that has `room` bytes. The end that no
    /// record fitted into is not counted: carrying the records elsewhere would not win it. That of a short one is.
    pub(super) fn slack_bytes(&self, room: usize) -> usize {
        let staying = match self.queue {
            Queue::Pinned => self.locked_bytes,
            Queue::Small | Queue::Main | Queue::Flushed => self.live_bytes,
        };
        let filled = if self.is_short { room } else { self.len() };
        filled - staying as usize
    }

    #[cfg(test)]
    pub(super) const fn block(&self) -> &B {
        &self.block
    }

    pub(super) const fn links(&mut self, row: Row) -> &mut Links {
        &mut self.links[row as usize]
    }

    #[cfg(any(test, feature = "verify"))]
    pub(super) const fn links_of(&self, row: Row) -> Links {
        self.links[row as usize]
    }
}
