//! Ghosts: the keys evicted recently, as far as they are remembered.
//!
//! The table has a few 16-bit marks for each bucket of the index. A hash chooses one place and overwrites the
//! mark there. A wrong or lost mark is harmless, since marks only decide whether a new item gets a second
//! chance. The table grows and shrinks with the index. A split loses part of the bucket's marks.
//!
//! With small values, the table is a twentieth of the memory. Its parts are blocks of the same memory as
//! segments, so a freed part leaves the process at once.
//!
//! - O1: The table never has more places than the index has buckets for.

use alloc::vec::Vec;
use core::mem::size_of;

use super::block::Block;
use super::geometry::{ALLOCATION_BYTES, Geometry};

/// The marks for each bucket of the index: about as many as items.
const MARKS: usize = 8;

/// The size of a mark, in bytes.
const MARK_BYTES: usize = size_of::<u16>();

/// The zeros that fill a new part, written in pieces of this size. Every part is a multiple of it.
const ZEROS: [u8; MARKS * MARK_BYTES] = [0; MARKS * MARK_BYTES];

/// The marks of a store.
#[derive(Debug)]
pub(super) struct Ghost<B> {
    /// The parts of the table, each allocated when its first mark is written.
    parts: Vec<B>,
    part_shift: u32,
    allocated: usize,
}

impl<B: Block> Ghost<B> {
    pub(super) const fn new(geometry: Geometry) -> Self {
        let part_len = geometry.chunk_len(MARK_BYTES, 4 * MARKS) / 4;
        Self {
            parts: Vec::new(),
            part_shift: part_len.next_power_of_two().trailing_zeros(),
            allocated: 0,
        }
    }

    /// The bytes that it has allocated.
    pub(super) const fn held_bytes(&self) -> usize {
        self.allocated * self.part_bytes() + self.parts.capacity() * size_of::<B>()
    }

    /// Whether the mark of `hash`, which chooses this bucket, is present.
    pub(super) fn remembers(&self, hash: u64, bucket: usize) -> bool {
        let (part, at) = self.place(hash, bucket);
        let marks = self.parts.get(part).map_or(&[][..], Block::bytes);
        marks.get(at..at + MARK_BYTES) == Some(&mark(hash).to_le_bytes())
    }

    /// The bytes that [`note`](Self::note) will allocate.
    pub(super) fn note_bytes(&self, hash: u64, bucket: usize) -> usize {
        let (part, _) = self.place(hash, bucket);
        let list = if part < self.parts.len() {
            0
        } else {
            (2 * part + 4) * size_of::<B>()
        };
        match self.parts.get(part) {
            Some(part) if part.capacity() > 0 => 0,
            Some(_) | None => self.part_bytes() + list,
        }
    }

    /// Writes the mark of `hash`, if the memory for it can be allocated.
    pub(super) fn note(&mut self, hash: u64, bucket: usize) {
        let (number, at) = self.place(hash, bucket);
        if number >= self.parts.len() {
            let more = number + 1 - self.parts.len();
            if number >= self.parts.capacity()
                && self.parts.try_reserve_exact(more + number + 3).is_err()
            {
                return;
            }
            self.parts.resize_with(number + 1, B::default);
        }
        if self.parts[number].capacity() == 0 {
            let Some(part) = self.empty_part() else {
                return;
            };
            self.parts[number] = part;
            self.allocated += 1;
        }
        self.parts[number].bytes_mut()[at..at + MARK_BYTES]
            .copy_from_slice(&mark(hash).to_le_bytes());
    }

    /// Removes the mark of `hash`.
    pub(super) fn forget(&mut self, hash: u64, bucket: usize) {
        if self.remembers(hash, bucket) {
            let (part, at) = self.place(hash, bucket);
            self.parts[part].bytes_mut()[at..at + MARK_BYTES].fill(0);
        }
    }

    /// Changes the number of buckets to that of the index (O1).
    pub(super) fn shrink(&mut self, buckets: usize) {
        let wanted = (buckets * MARKS).div_ceil(self.part_len());
        while self.parts.len() > wanted {
            let part = self.parts.pop();
            self.allocated -= usize::from(part.is_some_and(|part| part.capacity() > 0));
        }
    }

    /// Frees all parts.
    pub(super) fn clear(&mut self) {
        self.parts = Vec::new();
        self.allocated = 0;
    }

    const fn part_len(&self) -> usize {
        1 << self.part_shift
    }

    /// The bytes of a part that count against the limit.
    const fn part_bytes(&self) -> usize {
        self.part_len() * MARK_BYTES + ALLOCATION_BYTES
    }

    /// A part without marks; `None` if the allocation fails.
    fn empty_part(&self) -> Option<B> {
        let bytes = self.part_len() * MARK_BYTES;
        let mut part = B::allocate(bytes)?;
        for _ in 0..bytes / ZEROS.len() {
            part.write(&ZEROS);
        }
        Some(part)
    }

    /// The part with the place of a mark, and the offset of the mark in it, in bytes.
    // The cast keeps the needed bits.
    #[allow(clippy::cast_possible_truncation)]
    const fn place(&self, hash: u64, bucket: usize) -> (usize, usize) {
        let at = bucket * MARKS + (hash >> 32) as usize % MARKS;
        let in_part = at & (self.part_len() - 1);
        (at >> self.part_shift, in_part * MARK_BYTES)
    }

    /// O1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self, buckets: usize) {
        assert!(
            self.parts.len() <= (buckets * MARKS).div_ceil(self.part_len()),
            "O1"
        );
        let allocated = self.parts.iter().filter(|part| part.capacity() > 0);
        assert_eq!(self.allocated, allocated.count(), "O1");
    }
}

/// The mark of a hash: never 0, which is an empty place.
// The cast keeps the needed bits.
#[allow(clippy::cast_possible_truncation)]
const fn mark(hash: u64) -> u16 {
    (hash >> 35) as u16 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ghost() -> Ghost<Vec<u8>> {
        Ghost::new(Geometry::for_memory(1 << 20))
    }

    #[test]
    fn what_is_noted_is_remembered_until_it_is_forgotten() {
        let mut ghost = ghost();
        let hash = 0x1234_5678_9ABC_DEF0;
        assert!(!ghost.remembers(hash, 700));
        ghost.note(hash, 700);
        assert!(ghost.remembers(hash, 700));
        assert!(!ghost.remembers(hash, 701));
        ghost.forget(hash, 700);
        assert!(!ghost.remembers(hash, 700));
        ghost.check(701);
    }

    /// A place without a mark is 0 in the table, and 0 is the mark of no hash.
    #[test]
    fn every_hash_leaves_a_mark() {
        let mut ghost = ghost();
        ghost.note(7 << 32, 0);
        for bits in 0..4_u64 {
            let hash = bits << 35;
            assert!(!ghost.remembers(hash, 0), "{bits}");
            ghost.note(hash, 0);
            assert!(ghost.remembers(hash, 0), "{bits}");
            ghost.forget(hash, 0);
            assert!(!ghost.remembers(hash, 0), "{bits}");
        }
    }

    #[test]
    fn a_note_allocates_what_it_said() {
        let mut ghost = ghost();
        for bucket in [0, 1, 9_000, 300, 100_000] {
            let most = ghost.held_bytes() + ghost.note_bytes(7 << 32, bucket);
            ghost.note(7 << 32, bucket);
            assert!(ghost.held_bytes() <= most, "{bucket}");
            assert_eq!(ghost.note_bytes(7 << 32, bucket), 0);
        }
    }

    #[test]
    fn it_shrinks_with_the_index() {
        let mut ghost = ghost();
        ghost.note(1, 50_000);
        ghost.note(1, 5);
        let before = ghost.held_bytes();
        ghost.shrink(1_000);
        assert!(ghost.held_bytes() < before);
        assert!(ghost.remembers(1, 5));
        ghost.check(1_000);
    }
}
