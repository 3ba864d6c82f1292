//! The memory of segments and of the index.
//!
//! A store allocates most of its memory in pieces of one size, and large values separately. An allocator that
//! also serves small allocations splits the pieces that the store frees. After a change of value sizes, the
//! process can then hold up to twice the store's memory. To avoid this, an embedder gives the store blocks of
//! whole pages ([`LogStore::in_blocks`](super::LogStore::in_blocks)). Or it makes its allocator take large
//! allocations directly from the system (glibc: a fixed `M_MMAP_THRESHOLD` of 64 KiB).
//!
//! - C1: Bytes written to a block do not move until the block is cleared. A block never holds more than its
//!   size.
//! - C2: If a block cannot be allocated, the call is refused and the program goes on.
//! - C3: Shared memory takes exactly the number of bytes that was announced.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use bytes::Bytes;

use super::geometry::ALLOCATION_BYTES;
use crate::erased::erased;

/// A piece of memory, filled from its beginning. The default has no bytes.
pub trait Block: Default + fmt::Debug {
    /// An empty block of `bytes` bytes; `None` if the allocation fails (C2). Unwritten bytes may stay without
    /// physical memory.
    fn allocate(bytes: usize) -> Option<Self>;

    /// Whether `bytes` more may be allocated elsewhere for the store, as far as this kind of memory knows.
    #[must_use]
    fn allows(bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// Copies a large value, given in pieces, into memory of its own that readers share; `None` if the
    /// allocation fails (C2). If `erases`, the last owner zeroes it.
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

    /// The memory of a value of so many bytes, with the allocator's overhead (C3).
    #[must_use]
    fn share_bytes(bytes: usize) -> usize {
        bytes + ALLOCATION_BYTES
    }

    /// The capacity of the block, in bytes.
    fn capacity(&self) -> usize;

    /// The bytes written so far.
    fn bytes(&self) -> &[u8];

    /// The bytes written so far, mutable.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Appends bytes. The caller has checked that they fit (C1).
    fn write(&mut self, bytes: &[u8]);

    /// Appends a copy of bytes that are in this block. The caller has checked that they fit (C1).
    fn write_again(&mut self, range: Range<usize>);

    /// Clears the written bytes, and keeps the memory.
    fn clear(&mut self);
}

/// From the allocator.
impl Block for Vec<u8> {
    fn allocate(bytes: usize) -> Option<Self> {
        let mut block = Self::new();
        block.try_reserve_exact(bytes).ok()?;
        Some(block)
    }

    fn capacity(&self) -> usize {
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
