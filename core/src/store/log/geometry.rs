//! How large things are, and how a place in the log is named.
//!
//! An address is 32 bits: the segment's number above, and below it the place in the segment,
//! counted in units of 8 bytes. That reaches over 32 GiB; a store with more memory counts in larger
//! units, and so pads its records to them.
//!
//! - G1: no two places have the same address, and none has 0.

/// What an allocator adds to an allocation, at most, in bytes: it is charged to the limit.
pub(super) const ALLOCATION_BYTES: usize = 64;

/// The largest segment: large enough that what a record leaves unused at its end is a fraction of a
/// percent, small enough that a few empty ones cost nothing.
const SEGMENT_BYTES_MAX: usize = 256 << 10;

/// The smallest segment: the longest key has room, with the head of its record.
pub(super) const SEGMENT_BYTES_MIN: usize = 512;

/// How many segments a small memory has at least, so that queues of whole segments still make an
/// order and the empty ones are few beside the others.
const SEGMENTS_MIN: usize = 128;

/// The largest value that is kept in a segment: with longer ones, the end of it that the next record
/// does not fit into would be too much of it. An eighth of a large segment, a quarter of a small one.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// From this size on a segment leaves [`ALLOCATION_BYTES`] unused, so that with what the allocator
/// adds it takes whole pages.
const PAGE_BYTES: usize = 4096;

/// The least unit of an address.
const UNIT_SHIFT_MIN: u32 = 3;

/// The sizes of one store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    segment_shift: u32,
    unit_shift: u32,
    /// How many segments there are addresses for.
    pub(super) segments_max: usize,
}

/// The number of a segment.
pub(super) type SegmentId = u32;

/// Names a place in the log where a record begins.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Address(u32);

impl Address {
    /// As an entry of the index keeps it: never 0.
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// The address that [`number`](Self::number) gave.
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

    /// For a store of `memory_bytes` in segments of `segment_bytes`, a power of two from
    /// [`SEGMENT_BYTES_MIN`] on.
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
            segments_max: (u32::MAX >> (segment_shift - unit_shift)) as usize,
        }
    }

    /// What a segment takes of the limit, in bytes.
    pub(super) const fn segment_bytes(&self) -> usize {
        1 << self.segment_shift
    }

    /// How many whole segments so many bytes are.
    pub(super) const fn segments_in(&self, bytes: usize) -> usize {
        bytes >> self.segment_shift
    }

    /// What a segment can hold, in bytes.
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

    /// `bytes` up to the next unit.
    pub(super) const fn padded(&self, bytes: usize) -> usize {
        let unit = 1 << self.unit_shift;
        (bytes + unit - 1) & !(unit - 1)
    }

    /// The address of a place (G1).
    pub(super) fn address(&self, segment: SegmentId, offset: usize) -> Address {
        let offset = u32::try_from(offset >> self.unit_shift).expect("a segment is small");
        Address((segment << (self.segment_shift - self.unit_shift)) + offset + 1)
    }

    /// The place of an address: the segment, and the offset in bytes.
    #[inline]
    pub(super) const fn place(&self, address: Address) -> (SegmentId, usize) {
        let units = address.0 - 1;
        let shift = self.segment_shift - self.unit_shift;
        let offset = units & ((1 << shift) - 1);
        (units >> shift, (offset as usize) << self.unit_shift)
    }

    /// How many elements of `element_bytes` a chunk of a list should have, so that a quarter of a
    /// segment is allocated at a time, and of a tiny one at least `least`.
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
