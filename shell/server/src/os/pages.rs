//! Memory for items and their index: pages of the system's.
//!
//! From the allocator, what a store gives back can be cut up for something smaller and stay with the
//! process; how much depends on sizes, on threads, and on what else was freed. Pages that are given
//! back are gone.
//!
//! - Y1: the process holds no page for a block that has been given back, and none of one that nothing
//!   was written in.

use std::ops::Range;

use latchd_core::store::Block;
use memmap2::MmapMut;

use crate::os::headroom;

/// Smaller blocks, of small stores, come from the allocator, in bytes: pages would be too coarse.
const MAPPED_BYTES_MIN: usize = 16 << 10;

/// A block of pages, or a small one from the allocator.
#[derive(Debug)]
pub(crate) enum Pages {
    /// Of the system's.
    Mapped {
        /// All of them, in a row.
        pages: MmapMut,
        /// How many bytes have been written.
        len: usize,
    },
    /// From the allocator.
    Heap(Vec<u8>),
}

impl Default for Pages {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Block for Pages {
    fn allocate(bytes: usize) -> Option<Self> {
        if bytes < MAPPED_BYTES_MIN {
            return Vec::allocate(bytes).map(Self::Heap);
        }
        let pages = headroom::allocate(bytes, || MmapMut::map_anon(bytes).ok())?;
        Some(Self::Mapped { pages, len: 0 })
    }

    fn allows(bytes: usize) -> bool {
        headroom::stays_beside(bytes)
    }

    fn room(&self) -> usize {
        match self {
            Self::Mapped { pages, .. } => pages.len(),
            Self::Heap(heap) => heap.room(),
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped { pages, len } => &pages[..*len],
            Self::Heap(heap) => heap,
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Mapped { pages, len } => &mut pages[..*len],
            Self::Heap(heap) => heap,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Mapped { pages, len } => {
                pages[*len..*len + bytes.len()].copy_from_slice(bytes);
                *len += bytes.len();
            }
            Self::Heap(heap) => heap.write(bytes),
        }
    }

    fn write_again(&mut self, range: Range<usize>) {
        match self {
            Self::Mapped { pages, len } => {
                let written = range.len();
                pages.copy_within(range, *len);
                *len += written;
            }
            Self::Heap(heap) => heap.write_again(range),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Mapped { len, .. } => *len = 0,
            Self::Heap(heap) => heap.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same of pages and of the allocator's memory.
    fn both() -> [Pages; 2] {
        [MAPPED_BYTES_MIN, MAPPED_BYTES_MIN - 1].map(|bytes| Pages::allocate(bytes).unwrap())
    }

    #[test]
    fn what_is_written_stays_until_it_is_cleared() {
        for mut block in both() {
            let room = block.room();
            assert!(room >= MAPPED_BYTES_MIN - 1);
            block.write(b"one");
            block.write(b"two");
            block.write_again(1..5);
            assert_eq!(block.bytes(), b"onetwonetw");
            block.bytes_mut()[0] = b'O';
            block.write(b"");
            assert_eq!(block.bytes(), b"Onetwonetw");
            block.clear();
            assert_eq!((block.bytes(), block.room()), (&b""[..], room));
            block.write(b"x");
            assert_eq!(block.bytes(), b"x");
        }
    }

    #[test]
    fn large_blocks_are_pages_and_none_has_no_memory() {
        let [large, small] = both();
        assert!(matches!(large, Pages::Mapped { .. }));
        assert!(matches!(small, Pages::Heap(_)));
        assert_eq!(Pages::default().room(), 0);
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(Pages::allocate(usize::MAX / 4).is_none());
    }
}
