//! What was given up not long ago, as far as it is remembered.
//!
//! A table of 16-bit marks, a few for each bucket of the index: the hash chooses one place and leaves
//! its mark there, over whatever stood there before. To be wrong is harmless, to forget too: it is
//! only asked whether a new item should have a second chance. The table grows and shrinks with the
//! index; what stands in a bucket that is split is forgotten in part.
//!
//! - O1: it never has more places than the index has buckets for.

use alloc::vec::Vec;
use core::mem::size_of;

use super::geometry::{ALLOCATION_BYTES, Geometry};

/// How many marks a bucket of the index has: about as many as items.
const MARKS: usize = 8;

/// The marks of a store.
#[derive(Debug)]
pub(super) struct Ghost {
    /// Parts of the table, each allocated when the first mark is left in it.
    parts: Vec<Vec<u16>>,
    part_shift: u32,
    allocated: usize,
}

impl Ghost {
    pub(super) const fn new(geometry: Geometry) -> Self {
        let part_len = geometry.chunk_len(size_of::<u16>(), 4 * MARKS) / 4;
        Self {
            parts: Vec::new(),
            part_shift: part_len.next_power_of_two().trailing_zeros(),
            allocated: 0,
        }
    }

    /// What it has allocated, in bytes.
    pub(super) const fn held_bytes(&self) -> usize {
        self.allocated * self.part_bytes() + self.parts.capacity() * size_of::<Vec<u16>>()
    }

    /// Whether `hash`, which chooses this bucket, has left its mark.
    pub(super) fn remembers(&self, hash: u64, bucket: usize) -> bool {
        let (part, at) = self.place(hash, bucket);
        self.parts.get(part).and_then(|part| part.get(at)) == Some(&mark(hash))
    }

    /// What [`note`](Self::note) will allocate, in bytes.
    pub(super) fn note_bytes(&self, hash: u64, bucket: usize) -> usize {
        let (part, _) = self.place(hash, bucket);
        let list = if part < self.parts.len() {
            0
        } else {
            (2 * part + 4) * size_of::<Vec<u16>>()
        };
        match self.parts.get(part) {
            Some(part) if !part.is_empty() => 0,
            Some(_) | None => self.part_bytes() + list,
        }
    }

    /// Remembers `hash`, if the allocator has memory for that.
    pub(super) fn note(&mut self, hash: u64, bucket: usize) {
        let (number, at) = self.place(hash, bucket);
        if number >= self.parts.len() {
            let more = number + 1 - self.parts.len();
            if number >= self.parts.capacity()
                && self.parts.try_reserve_exact(more + number + 3).is_err()
            {
                return;
            }
            self.parts.resize_with(number + 1, Vec::new);
        }
        let part_len = self.part_len();
        let part = &mut self.parts[number];
        if part.is_empty() {
            if part.try_reserve_exact(part_len).is_err() {
                return;
            }
            part.resize(part_len, 0);
            self.allocated += 1;
        }
        part[at] = mark(hash);
    }

    /// Forgets `hash`.
    pub(super) fn forget(&mut self, hash: u64, bucket: usize) {
        if self.remembers(hash, bucket) {
            let (part, at) = self.place(hash, bucket);
            self.parts[part][at] = 0;
        }
    }

    /// The index has so many buckets (O1).
    pub(super) fn shrink(&mut self, buckets: usize) {
        let wanted = (buckets * MARKS).div_ceil(self.part_len());
        while self.parts.len() > wanted {
            let part = self.parts.pop();
            self.allocated -= usize::from(part.is_some_and(|part| !part.is_empty()));
        }
    }

    /// Gives all of it back.
    pub(super) fn clear(&mut self) {
        self.parts = Vec::new();
        self.allocated = 0;
    }

    const fn part_len(&self) -> usize {
        1 << self.part_shift
    }

    const fn part_bytes(&self) -> usize {
        self.part_len() * size_of::<u16>() + ALLOCATION_BYTES
    }

    // The cast keeps the bits that are wanted.
    #[allow(clippy::cast_possible_truncation)]
    const fn place(&self, hash: u64, bucket: usize) -> (usize, usize) {
        let at = bucket * MARKS + (hash >> 32) as usize % MARKS;
        (at >> self.part_shift, at & (self.part_len() - 1))
    }

    /// O1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self, buckets: usize) {
        assert!(
            self.parts.len() <= (buckets * MARKS).div_ceil(self.part_len()),
            "O1"
        );
        let allocated = self.parts.iter().filter(|part| !part.is_empty());
        assert_eq!(self.allocated, allocated.count(), "O1");
    }
}

/// Never 0, which is no mark.
// The cast keeps the bits that are wanted.
#[allow(clippy::cast_possible_truncation)]
const fn mark(hash: u64) -> u16 {
    (hash >> 35) as u16 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ghost() -> Ghost {
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

    /// What was never noted, or forgotten, is 0 in the table, and that is nobody's mark.
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
