//! The sizes of the log's parts, and the form of an address.
//!
//! An address has 32 bits: the segment's number in the upper bits, and below it the offset in the segment in
//! units of 8 bytes. That covers 32 GiB. A store with more memory uses larger units, and pads its records to
//! them.
//!
//! - G1: No two places have the same address, and none has address 0.

/// The largest overhead of an allocation, in bytes; it counts against the limit.
pub(super) const ALLOCATION_BYTES: usize = 64;

/// The largest segment. At this size, the unused end of a segment is a fraction of a percent, and a few empty
/// segments are still cheap.
const SEGMENT_BYTES_MAX: usize = 256 << 10;

/// The smallest segment: a record head with the longest key fits.
pub(super) const SEGMENT_BYTES_MIN: usize = 512;

/// The fewest segments of a small memory. With fewer, queues of whole segments would keep little order, and
/// the empty ones would be too large a share.
const SEGMENTS_MIN: usize = 128;

/// The largest value kept in a segment: an eighth of a large segment, a quarter of a small one. Longer values
/// would leave too much of a segment's end unused.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// From this size on, a segment leaves [`ALLOCATION_BYTES`] unused, so that with the allocator's overhead it
/// takes whole pages.
const PAGE_BYTES: usize = 4096;

/// The smallest unit of an address.
const UNIT_SHIFT_MIN: u32 = 3;

/// The sizes of one store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    segment_shift: u32,
    unit_shift: u32,
    /// The lower bits of an address: its offset in the segment, in units.
    offset_bits: u32,
    /// The number of segments that addresses can name.
    pub(super) segments_max: usize,
}

/// The number of a segment.
pub(super) type SegmentId = u32;

/// Names the place in the log at which a record begins.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Address(u32);

impl Address {
    /// The address as an index entry: never 0.
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// The address from a [`number`](Self::number).
    pub(super) const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

impl Geometry {
    /// For a store of `memory_bytes`.
    pub(super) const fn for_memory(memory_bytes: usize) -> Self {
        let wanted = memory_bytes / SEGMENTS_MIN;
        let segment_bytes = if wanted >= SEGMENT_BYTES_MAX {
            SEGMENT_BYTES_MAX
        } else if wanted <= SEGMENT_BYTES_MIN {
            SEGMENT_BYTES_MIN
        } else {
            1 << wanted.ilog2()
        };
        Self::with_segments(memory_bytes, segment_bytes)
    }

    /// For a store of `memory_bytes` in segments of `segment_bytes`, a power of two of at least
    /// [`SEGMENT_BYTES_MIN`].
    pub(super) const fn with_segments(memory_bytes: usize, segment_bytes: usize) -> Self {
        assert!(
            segment_bytes.is_power_of_two() && segment_bytes >= SEGMENT_BYTES_MIN,
            "a segment holds the longest key"
        );
        let mut unit_shift = UNIT_SHIFT_MIN;
        while (memory_bytes >> unit_shift) >= u32::MAX as usize {
            unit_shift += 1;
        }
        let segment_shift = segment_bytes.trailing_zeros();
        Self {
            segment_shift,
            unit_shift,
            offset_bits: segment_shift - unit_shift,
            segments_max: (u32::MAX >> (segment_shift - unit_shift)) as usize,
        }
    }

    /// The bytes of a segment that count against the limit.
    pub(super) const fn segment_bytes(&self) -> usize {
        1 << self.segment_shift
    }

    /// The number of whole segments in so many bytes.
    pub(super) const fn segments_in(&self, bytes: usize) -> usize {
        bytes >> self.segment_shift
    }

    /// The capacity of a segment, in bytes.
    pub(super) const fn segment_room(&self) -> usize {
        if self.segment_bytes() < PAGE_BYTES {
            self.segment_bytes()
        } else {
            self.segment_bytes() - ALLOCATION_BYTES
        }
    }

    /// The largest value that is kept in the log, in bytes.
    pub(super) const fn value_bytes_max(&self) -> usize {
        let quarter = self.segment_bytes() / 4;
        if quarter < VALUE_BYTES_MAX {
            quarter
        } else {
            VALUE_BYTES_MAX
        }
    }

    /// `bytes` rounded up to the next unit.
    pub(super) const fn padded(&self, bytes: usize) -> usize {
        let unit = 1 << self.unit_shift;
        (bytes + unit - 1) & !(unit - 1)
    }

    /// The address of a place (G1).
    pub(super) fn address(&self, segment: SegmentId, offset: usize) -> Address {
        let offset = u32::try_from(offset >> self.unit_shift).expect("a segment is small");
        Address((segment << self.offset_bits) + offset + 1)
    }

    /// The place of an address: the segment, and the offset in bytes.
    #[inline]
    pub(super) const fn place(&self, address: Address) -> (SegmentId, usize) {
        let units = address.0 - 1;
        let offset = units & ((1 << self.offset_bits) - 1);
        (
            units >> self.offset_bits,
            (offset as usize) << self.unit_shift,
        )
    }

    /// The number of elements of `element_bytes` in a chunk of a list. A chunk takes a quarter of a segment,
    /// and holds at least `least` elements.
    pub(super) const fn chunk_len(&self, element_bytes: usize, least: usize) -> usize {
        let wanted = self.segment_bytes() / 4 / element_bytes;
        if wanted < least { least } else { wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_an_address_of_its_own() {
        let geometry = Geometry::for_memory(64 << 20);
        assert_eq!(geometry.segment_bytes(), 256 << 10);
        let mut last = 0;
        for segment in 0..256 {
            for offset in [0, 8, 16, geometry.segment_bytes() - 8] {
                let address = geometry.address(segment, offset);
                assert!(address.number() > last, "G1");
                last = address.number();
                assert_eq!(geometry.place(address), (segment, offset));
            }
        }
    }

    #[test]
    fn small_memories_have_small_segments() {
        assert_eq!(Geometry::for_memory(1 << 20).segment_bytes(), 8 << 10);
        assert_eq!(Geometry::for_memory(100).segment_bytes(), SEGMENT_BYTES_MIN);
        assert_eq!(Geometry::for_memory(32 << 20).segment_bytes(), 256 << 10);
    }

    #[test]
    fn large_memories_have_addresses_to_their_end() {
        for memory_gib in [32, 33, 64, 1024] {
            let geometry = Geometry::for_memory(memory_gib << 30);
            let last = u32::try_from(geometry.segments_max - 1).unwrap();
            let offset = geometry.segment_bytes() - geometry.padded(1);
            let address = geometry.address(last, offset);
            assert_eq!(geometry.place(address), (last, offset));
        }
    }

    #[test]
    fn a_segment_with_what_the_allocator_adds_takes_whole_pages() {
        let geometry = Geometry::for_memory(64 << 20);
        assert_eq!(
            geometry.segment_room() + ALLOCATION_BYTES,
            geometry.segment_bytes()
        );
    }
}
