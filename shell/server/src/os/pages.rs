//! Memory for items and their index: pages mapped from the system.
//!
//! Memory that a store returns to the allocator can be split for smaller blocks and stay with the process.
//! How much stays depends on sizes, on threads, and on other freed blocks. Unmapped pages leave the process
//! at once.
//!
//! - Y1: The process holds no page of a freed block or value, and no page of a block that was never written
//!   to.
//! - Y2: Values take at most half of the mappings that the system allows a process; further values come from
//!   the allocator. Unmapping the middle of a mapping splits it in two, and the system refuses that when no
//!   mapping is left.
//! - Y3: Of dead values that are to be zeroed, at most [`WAITING_BYTES_MAX`] bytes wait, or one value. Beyond
//!   that, the thread that drops a value zeroes it. A value is zeroed before its pages are unmapped.

use std::fs;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SendError, Sender, channel};

use bytes::Bytes;
use latchd_core::store::Block;
use memmap2::{MmapMut, MmapOptions};
use rustix::param::page_size;
use zeroize::Zeroize;

use crate::os::headroom;
use crate::os::threads::spawn_thread;

/// Smaller blocks, of small stores, come from the allocator, in bytes: whole pages would waste memory.
const MAPPED_BLOCK_BYTES_MIN: usize = 4 << 10;

/// Smaller values come from the allocator, in bytes. A value seldom fills its last page.
const MAPPED_VALUE_BYTES_MIN: usize = 16 << 10;

/// Up to this size, the system maps all pages of a value at once, in bytes. Meanwhile other threads cannot
/// unmap pages.
const POPULATED_BYTES_MAX: usize = 1 << 20;

/// The file with the mapping limit of a process.
const MAP_COUNT: &str = "/proc/sys/vm/max_map_count";

/// Linux's default, if the file is unreadable.
const MAP_COUNT_DEFAULT: usize = 65_530;

/// The most values with pages of their own (Y2).
static VALUES_MAX: LazyLock<usize> = LazyLock::new(|| {
    let map_count = fs::read_to_string(MAP_COUNT).ok();
    let map_count = map_count.and_then(|count| count.trim().parse().ok());
    map_count.unwrap_or(MAP_COUNT_DEFAULT) / 2
});

/// The number of these values, over all servers of the process.
static VALUES: AtomicUsize = AtomicUsize::new(0);

/// A dead value of at least this size is zeroed by a thread of its own, in bytes. Zeroing it takes as long as
/// a turn.
const ERASED_LATER_BYTES_MIN: usize = 512 << 10;

/// The most bytes of dead values that wait to be zeroed, or one value.
const WAITING_BYTES_MAX: usize = 128 << 20;

/// The bytes that wait now, over all servers of the process.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The thread that zeroes them, started with the first value; `None` if it could not start.
static ERASER: LazyLock<Option<Sender<Mapping>>> = LazyLock::new(|| {
    let (eraser, dead) = channel();
    let is_running = spawn_thread("erase", move || erase_on(&dead)).is_ok();
    is_running.then_some(eraser)
});

/// A block of pages, or a small one from the allocator.
#[derive(Debug)]
pub(crate) enum Pages {
    /// Mapped from the system.
    Mapped {
        /// All its pages, contiguous.
        pages: MmapMut,
        /// The number of written bytes.
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

/// The shortest value that may stay in the buffer of its request ([`part_of`]), in bytes. The rest of the
/// request is small beside it.
pub(crate) const KEPT_VALUE_BYTES_MIN: usize = 256 << 10;

/// Such a value may be surrounded by one unused byte in this many, or by a page.
const AROUND_SHARE: usize = 128;

/// A value, or a request with a value in it, in pages of its own.
#[derive(Debug)]
pub(crate) struct ValuePages(
    /// `Some` until the drop.
    Option<Mapping>,
);

#[derive(Debug)]
struct Mapping {
    pages: MmapMut,
    /// The number of written bytes.
    len: usize,
    /// Whether the bytes are zeroed at the end.
    erases: bool,
    _counted: Counted,
}

/// The permission for one value with pages of its own (Y2).
#[derive(Debug)]
struct Counted;

impl Counted {
    fn within(values_max: usize) -> Option<Self> {
        let counted = Self;
        // If there are too many, its drop lowers the count again.
        (VALUES.fetch_add(1, Ordering::Relaxed) < values_max).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        VALUES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ValuePages {
    /// Maps pages for this many bytes; none is written yet.
    fn allocate(bytes: usize, erases: bool, counted: Counted) -> Option<Self> {
        let mut options = MmapOptions::new();
        options.len(bytes);
        if bytes <= POPULATED_BYTES_MAX {
            options.populate();
        }
        Self::map(&options, bytes, erases, counted)
    }

    /// Reserves space for bytes that are still to arrive; the system adds each page at its first write.
    /// `None` if there are too many mappings (Y2), or the system refuses.
    pub(crate) fn reserve(bytes: usize, erases: bool) -> Option<Self> {
        let counted = Counted::within(*VALUES_MAX)?;
        Self::map(MmapOptions::new().len(bytes), bytes, erases, counted)
    }

    fn map(options: &MmapOptions, bytes: usize, erases: bool, counted: Counted) -> Option<Self> {
        let pages = headroom::allocate(bytes, || options.map_anon().ok())?;
        Some(Self(Some(Mapping {
            pages,
            len: 0,
            erases,
            _counted: counted,
        })))
    }

    fn mapping(&self) -> &Mapping {
        self.0.as_ref().expect("it has not ended")
    }

    fn mapping_mut(&mut self) -> &mut Mapping {
        self.0.as_mut().expect("it has not ended")
    }

    /// Appends to the written bytes. The caller has reserved the space.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.space()[..bytes.len()].copy_from_slice(bytes);
        self.advance(bytes.len());
    }

    /// The space behind the written bytes.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let Mapping { pages, len, .. } = self.mapping_mut();
        &mut pages[*len..]
    }

    /// Marks this many more bytes as written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.mapping_mut().len += bytes;
    }

    /// The bytes taken: the written pages; where memory is limited, all reserved bytes.
    pub(crate) fn taken_bytes(&self) -> usize {
        let Mapping { pages, len, .. } = self.mapping();
        if headroom::has_end() {
            pages.len()
        } else {
            len.next_multiple_of(page_size())
        }
    }
}

/// A large value as a part of its request's buffer, if the rest of the buffer is small. It avoids a copy.
pub(crate) fn part_of(request: &Bytes, value: &[u8]) -> Option<Bytes> {
    let (whole, part) = (request.as_ptr_range(), value.as_ptr_range());
    let is_part = whole.start <= part.start && part.end <= whole.end;
    let page = page_size();
    let around = request.len().next_multiple_of(page)
        - value.len().next_multiple_of(page).min(request.len());
    let is_worth_it =
        value.len() >= KEPT_VALUE_BYTES_MIN && around <= page.max(value.len() / AROUND_SHARE);
    (is_part && is_worth_it).then(|| request.slice_ref(value))
}

/// A value in pages of its own, if it is large enough and too many values do not have pages yet; otherwise in
/// the allocator's memory.
fn share_within(values_max: usize, pieces: &[&[u8]], erases: bool) -> Option<Bytes> {
    let bytes = pieces.iter().map(|piece| piece.len()).sum();
    if bytes < MAPPED_VALUE_BYTES_MIN {
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
        let Mapping { pages, len, .. } = self.mapping();
        &pages[..*len]
    }
}

impl Drop for ValuePages {
    fn drop(&mut self) {
        if let Some(mapping) = self.0.take()
            && mapping.erases
        {
            erase(mapping);
        }
    }
}

impl Mapping {
    fn erase(&mut self) {
        self.pages[..self.len].zeroize();
    }
}

/// Zeroes and unmaps a dead value: a long one on the thread for that (Y3).
fn erase(mut dead: Mapping) {
    let bytes = dead.len;
    if bytes >= ERASED_LATER_BYTES_MIN {
        let waiting = WAITING_BYTES.fetch_add(bytes, Ordering::Relaxed);
        if (waiting == 0 || waiting + bytes <= WAITING_BYTES_MAX)
            && let Some(eraser) = &*ERASER
        {
            match eraser.send(dead) {
                Ok(()) => return,
                Err(SendError(unsent)) => dead = unsent,
            }
        }
        WAITING_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
    dead.erase();
}

/// Zeroes the received values, as long as the process lives.
fn erase_on(dead: &Receiver<Mapping>) {
    for mut mapping in dead {
        let bytes = mapping.len;
        mapping.erase();
        drop(mapping);
        WAITING_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Block for Pages {
    fn allocate(bytes: usize) -> Option<Self> {
        if bytes < MAPPED_BLOCK_BYTES_MIN {
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
        let pages_bytes = if bytes < MAPPED_VALUE_BYTES_MIN {
            bytes
        } else {
            bytes.next_multiple_of(page_size())
        };
        Vec::<u8>::share_bytes(pages_bytes)
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Mapped { pages, .. } => pages.len(),
            Self::Heap(heap) => heap.capacity(),
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
    use std::time::{Duration, Instant};

    use super::*;

    /// Two stores of pages: one mapped, one from the allocator.
    fn both() -> [Pages; 2] {
        [MAPPED_BLOCK_BYTES_MIN, MAPPED_BLOCK_BYTES_MIN - 1]
            .map(|bytes| Pages::allocate(bytes).unwrap())
    }

    #[test]
    fn written_bytes_stay_until_cleared() {
        for mut block in both() {
            let capacity = block.capacity();
            assert!(capacity >= MAPPED_BLOCK_BYTES_MIN - 1);
            block.write(b"one");
            block.write(b"two");
            block.write_again(1..5);
            assert_eq!(block.bytes(), b"onetwonetw");
            block.bytes_mut()[0] = b'O';
            block.write(b"");
            assert_eq!(block.bytes(), b"Onetwonetw");
            block.clear();
            assert_eq!((block.bytes(), block.capacity()), (&b""[..], capacity));
            block.write(b"x");
            assert_eq!(block.bytes(), b"x");
        }
    }

    #[test]
    fn only_large_blocks_are_pages() {
        let [large, small] = both();
        assert!(matches!(large, Pages::Mapped { .. }));
        assert!(matches!(small, Pages::Heap(_)));
        assert_eq!(Pages::default().capacity(), 0);
    }

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(Pages::allocate(usize::MAX / 4).is_none());
    }

    /// Y2, and that a value takes as much memory as it is charged for.
    #[test]
    fn value_is_whole_in_either_memory() {
        let half = vec![b'v'; MAPPED_VALUE_BYTES_MIN / 2 + 1];
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
        let pages = ValuePages::allocate(MAPPED_VALUE_BYTES_MIN + 1, false, counted).unwrap();
        assert_eq!(pages.mapping().pages.len() % page_size(), 1);
        assert_eq!(
            Pages::share_bytes(MAPPED_VALUE_BYTES_MIN + 1),
            MAPPED_VALUE_BYTES_MIN + page_size() + 64,
            "the system rounds up"
        );
    }

    #[test]
    fn value_stays_in_a_tight_request() {
        let stays = |before: usize, value: usize, behind: usize| {
            let request = Bytes::from(vec![b'v'; before + value + behind]);
            let value = request.slice(before..before + value);
            let kept = part_of(&request, &value);
            assert!(
                kept.as_ref()
                    .is_none_or(|kept| kept.as_ptr() == value.as_ptr())
            );
            kept.is_some()
        };
        let least = KEPT_VALUE_BYTES_MIN;
        assert!(stays(30, least, 2));
        assert!(!stays(30, least - 1, 2), "it is copied soon enough");
        assert!(
            !stays(30, least, 2 * page_size()),
            "that would stay as well"
        );
        assert!(stays(30, 4 << 20, 2 * page_size()));
        let other = vec![b'v'; least];
        let request = Bytes::from(vec![b'v'; least]);
        assert_eq!(part_of(&request, &other), None);
    }

    /// Y3: the queue gets empty, and a value that does not fit into it is zeroed all the same.
    #[test]
    fn dead_values_are_zeroed_soon() {
        let bytes = WAITING_BYTES_MAX / 2;
        let mut values: Vec<_> = (0..4)
            .map(|_| ValuePages::reserve(bytes, true).unwrap())
            .collect();
        for value in &mut values {
            value.advance(bytes);
        }
        let mut dead = ValuePages::reserve(10, true).unwrap();
        dead.write(b"secret");
        dead.mapping_mut().erase();
        assert_eq!(dead.as_ref(), [0; 6]);
        drop(values);
        let begun = Instant::now();
        while WAITING_BYTES.load(Ordering::Relaxed) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "Y3");
            std::thread::yield_now();
        }
    }
}
