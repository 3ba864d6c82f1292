//! Where the memory of segments, and of the buckets of the index, comes from.
//!
//! A store allocates most of what it has in pieces of one size, and large values by themselves. An
//! allocator that also serves smaller things cuts up what it was given back, and then the process
//! holds more than the store does: up to twice as much after a change of sizes. So an embedder gives the store
//! blocks of pages ([`LogStore::in_blocks`](super::LogStore::in_blocks)), or has its allocator take large
//! allocations straight from the system (glibc: a fixed `M_MMAP_THRESHOLD` of 64 KiB).
//!
//! - C1: what is written in a block stays in its place until the block is cleared, and it never holds
//!   more than was asked for.
//! - C2: a block that cannot be had is refused; nobody's program ends for it.
//! - C3: what shared memory takes is what was said that it would take.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use bytes::Bytes;

use super::geometry::ALLOCATION_BYTES;
use crate::erased::erased;

/// A piece of memory that is filled from its beginning. The default is one of no bytes.
pub trait Block: Default + fmt::Debug {
    /// An empty block with room for `bytes` bytes; `None` if there is no memory for it (C2). What
    /// was never written need not take any.
    fn allocate(bytes: usize) -> Option<Self>;

    /// Whether so many bytes may be allocated elsewhere for the store, as far as memory of this kind
    /// knows.
    #[must_use]
    fn allows(bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// Copies a large value, which comes in pieces, into memory of its own, to be shared with those who send it; `None` if
    /// there is no memory for it (C2). If it `erases`, the last one to have it zeroes it.
    #[must_use]
    fn share(pieces: &[&[u8]], erases: bool) -> Option<Bytes> {
        let mut value = Vec::new();
        value
            .try_reserve_exact(pieces.iter().map(|piece| piece.len()).sum())
            .ok()?;
        for piece in pieces {
            value.extend_from_slice(piece);
        }
        Some(if erases {
            erased(value)
        } else {
            Bytes::from(value)
        })
    }

    /// What the memory of a value of so many bytes takes, with what an allocator adds (C3).
    #[must_use]
    fn share_bytes(bytes: usize) -> usize {
        bytes + ALLOCATION_BYTES
    }

    /// How many bytes it has room for.
    fn room(&self) -> usize;

    /// What was written.
    fn bytes(&self) -> &[u8];

    /// What was written, to be changed.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Writes behind what was written. There is room for it (C1).
    fn write(&mut self, bytes: &[u8]);

    /// Writes behind what was written what stands here already. There is room for it (C1).
    fn write_again(&mut self, range: Range<usize>);

    /// Forgets what was written; the memory stays.
    fn clear(&mut self);
}

/// From the allocator.
impl Block for Vec<u8> {
    fn allocate(bytes: usize) -> Option<Self> {
        let mut block = Self::new();
        block.try_reserve_exact(bytes).ok()?;
        Some(block)
    }

    fn room(&self) -> usize {
        self.capacity()
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(self.len() + bytes.len() <= self.capacity(), "C1");
        self.extend_from_slice(bytes);
    }

    fn write_again(&mut self, range: Range<usize>) {
        debug_assert!(self.len() + range.len() <= self.capacity(), "C1");
        self.extend_from_within(range);
    }

    fn clear(&mut self) {
        Self::clear(self);
    }
}
