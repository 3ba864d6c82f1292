//! The hashes of the next records in a segment, computed a few at a time.
//!
//! To drop an item, the store reads its bucket of the index. In a large store that read is a cache miss.
//! Reading the buckets of several items together overlaps the misses, which is a third faster.
//!
//! - P1: The computed hash of a live record is the hash of its key.

use core::hint::black_box;

use super::block::Block;
use super::geometry::SegmentId;
use super::{KeyHasher, LogStore};

/// The number of records read together: more than memory can serve at a time.
const RECORDS: usize = 16;

/// The computed hashes of the records from some offset on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    hashes: [u64; RECORDS],
    next: usize,
    len: usize,
}

impl Ahead {
    /// The hash of the record at `offset`, the one after that of the last call. Reads more records if needed.
    pub(super) fn next<H: KeyHasher, B: Block>(
        &mut self,
        store: &LogStore<H, B>,
        segment: SegmentId,
        offset: usize,
    ) -> u64 {
        if self.next == self.len {
            self.look(store, segment, offset);
        }
        let hash = self.hashes[self.next];
        self.next += 1;
        hash
    }

    fn look<H: KeyHasher, B: Block>(
        &mut self,
        store: &LogStore<H, B>,
        segment: SegmentId,
        mut offset: usize,
    ) {
        let of_segment = &store.log.segments[segment as usize];
        (self.next, self.len) = (0, 0);
        while self.len < RECORDS && offset < of_segment.len() {
            let record = of_segment.record(offset);
            offset += record.padded_bytes(&store.geometry);
            // The hash of a dead record is never used.
            self.hashes[self.len] = if record.is_dead() {
                0
            } else {
                store.hasher.hash(record.key())
            };
            self.len += 1;
        }
        let touched = self.hashes[..self.len]
            .iter()
            .fold(0, |touched, hash| touched ^ store.index.touch(*hash));
        // The sum is unused; it only keeps the compiler from removing the reads.
        black_box(touched);
    }
}
