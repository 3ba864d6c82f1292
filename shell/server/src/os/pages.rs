//! Memory for items and their index: pages of the system's.
//!
//! From the allocator, what a store gives back can be cut up for something smaller and stay with the
//! process; how much depends on sizes, on threads, and on what else was freed. Pages that are given
//! back are gone.
//!
//! - Y1: the process holds no page for a block or a value that has been given back, and none of one that nothing
//!   was written in.
//! - Y2: values take at most half of the mappings that the system allows a process; further values come from the allocator.
//!   The system cuts a mapping in two when its middle is given back, so it would refuse that if there were none left.

use std::fs;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use latchd_core::store::Block;
use memmap2::{MmapMut, MmapOptions};
use rustix::param::page_size;
use zeroize::Zeroize;

use crate::os::headroom;

/// Smaller blocks, of small stores, come from the allocator, in bytes: pages would be too coarse.
const MAPPED_BYTES_MIN: usize = 16 << 10;

/// Up to so many bytes the system gives all pages of a value at once. It keeps other threads from giving pages back meanwhile.
const POPULATED_BYTES_MAX: usize = 1 << 20;

/// How many mappings a process may have.
const MAP_COUNT: &str = "/proc/sys/vm/max_map_count";

/// Linux's own number of these, where that cannot be read.
const MAP_COUNT_DEFAULT: usize = 65_530;

/// How many values may have pages of their own (Y2).
static VALUES_MAX: LazyLock<usize> = LazyLock::new(|| {
    let map_count = fs::read_to_string(MAP_COUNT).ok();
    let map_count = map_count.and_then(|count| count.trim().parse().ok());
    map_count.unwrap_or(MAP_COUNT_DEFAULT) / 2
});

/// How many values have, of all servers of the process.
static VALUES: AtomicUsize = AtomicUsize::new(0);

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

/// A value in pages of its own.
#[derive(Debug)]
struct ValuePages {
    pages: MmapMut,
    /// How many bytes have been written.
    len: usize,
    /// They are zeroed at their end.
    erases: bool,
    _counted: Counted,
}

/// One of those that may be (Y2).
#[derive(Debug)]
struct Counted;

impl Counted {
    fn within(values_max: usize) -> Option<Self> {
        let counted = Self;
        // If it is too many, its end takes it back.
        (VALUES.fetch_add(1, Ordering::Relaxed) < values_max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        VALUES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ValuePages {
    /// Pages for so many bytes, none of which is written yet.
    fn allocate(bytes: usize, erases: bool, counted: Counted) -> Option<Self> {
        let mut options = MmapOptions::new();
        options.len(bytes);
        if bytes <= POPULATED_BYTES_MAX {
            options.populate();
        }
        Some(Self {
            pages: headroom::allocate(bytes, || options.map_anon().ok())?,
            len: 0,
            erases,
            _counted: counted,
        })
    }

    /// Writes behind what was written. There is room for it.
    fn write(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.pages[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

/// A value in pages, if it is worth them and not too many values have some; or else in the allocator's memory.
fn share_within(values_max: usize, pieces: &[&[u8]], erases: bool) -> Option<Bytes> {
    let bytes = pieces.iter().map(|piece| piece.len()).sum();
    if bytes < MAPPED_BYTES_MIN {
        return headroom::allocate(bytes, || Vec::<u8>::share(pieces, erases));
    }
    let Some(counted) = Counted::within(values_max) else {
        return headroom::allocate(bytes, || Vec::<u8>::share(pieces, erases));
    };
    let mut value = ValuePages::allocate(bytes, erases, counted)?;
    for piece in pieces {
        value.write(piece);
    }
    Some(Bytes::from_owner(value))
}

impl AsRef<[u8]> for ValuePages {
    fn as_ref(&self) -> &[u8] {
        &self.pages[..self.len]
    }
}

impl Drop for ValuePages {
    fn drop(&mut self) {
        if self.erases {
            self.pages[..self.len].zeroize();
        }
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

    fn share(pieces: &[&[u8]], erases: bool) -> Option<Bytes> {
        share_within(*VALUES_MAX, pieces, erases)
    }

    fn share_bytes(bytes: usize) -> usize {
        let pages_bytes = if bytes < MAPPED_BYTES_MIN {
            bytes
        } else {
            bytes.next_multiple_of(page_size())
        };
        Vec::<u8>::share_bytes(pages_bytes)
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

    /// Y2, and that what a value takes is what it is charged for.
    #[test]
    fn a_value_is_whole_wherever_its_memory_comes_from() {
        let half = vec![b'v'; MAPPED_BYTES_MIN / 2 + 1];
        for (values_max, pieces) in [
            (usize::MAX, [&half[..], &half[..]]),
            (0, [&half[..], &half[..]]),
            (usize::MAX, [&half[..], b""]),
        ] {
            let value = share_within(values_max, &pieces, true).unwrap();
            assert_eq!(value, pieces.concat());
            assert!(value.len() + 64 <= Pages::share_bytes(value.len()));
        }
        assert!(Counted::within(0).is_none());
        let counted = Counted::within(usize::MAX).unwrap();
        let pages = ValuePages::allocate(MAPPED_BYTES_MIN + 1, false, counted).unwrap();
        assert_eq!(pages.pages.len() % page_size(), 1);
        assert_eq!(
            Pages::share_bytes(MAPPED_BYTES_MIN + 1),
            MAPPED_BYTES_MIN + page_size() + 64,
            "the system rounds up"
        );
    }
}
