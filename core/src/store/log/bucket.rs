//! A bucket of the index: one cache line of addresses.
//!
//! Each address has a tag of 16 bits of its key's hash. The upper 12 bits rule out most other keys without
//! reading their records. The lower four bits hold the next bits of the hash that decide splits, the next one
//! lowest: at most three, with a 1 above the last. So most splits read no key either.
//!
//! - U1: Entries fill a bucket from the front. An address of 0 is no entry.

use super::geometry::Address;

/// The number of entries that fit.
pub(super) const BUCKET_ENTRIES: usize = 10;

/// The size of a bucket, in bytes: its addresses, its tags, and the link to the next one.
pub(super) const BUCKET_BYTES: usize = 64;

/// The offset of the tags.
const TAGS_AT: usize = BUCKET_ENTRIES * size_of::<u32>();

/// The offset of the link.
const OVERFLOW_AT: usize = TAGS_AT + BUCKET_ENTRIES * size_of::<u16>();

/// The bits of a tag that are compared.
const COMPARED: u16 = 0xFFF0;

/// The number of bits of the hash that a tag can hold for later splits.
const KNOWN_MAX: u32 = 3;

/// An entry: an address and its tag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) address: Address,
    pub(super) tag: Tag,
}

/// The tag of a hash in a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Tag(u16);

/// Four tags of 1.
const ONES: u64 = u64::MAX / 0xFFFF;

/// A bucket, as it is in memory: the addresses, the tags, and the number plus one of the overflow bucket that continues it, or
/// 0. All are little-endian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket([u8; BUCKET_BYTES]);

impl Tag {
    /// The tag of `hash` in a bucket that was chosen by the lower `depth` bits of it.
    // The casts keep the needed bits.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) const fn new(hash: u64, depth: u32) -> Self {
        let compared = (hash >> 48) as u16 & COMPARED;
        let known = (hash >> depth) as u16 & ((1 << KNOWN_MAX) - 1);
        Self(compared | (1 << KNOWN_MAX) | known)
    }

    /// The half that the entry moves to when its bucket is split, and its tag there; `None` if the tag holds
    /// no more bits.
    pub(super) const fn split(self) -> Option<(bool, Self)> {
        let known = self.0 & !COMPARED;
        if known == 1 {
            return None;
        }
        let tag = Self((self.0 & COMPARED) | (known >> 1));
        Some((known & 1 == 1, tag))
    }

    /// The tag after a merge of the entry's bucket, the upper or the lower half, with the other half.
    pub(super) const fn merge(self, is_upper: bool) -> Self {
        let known = ((self.0 & !COMPARED) << 1) | is_upper as u16;
        let known = if known >> (KNOWN_MAX + 1) == 0 {
            known
        } else {
            (known & ((1 << KNOWN_MAX) - 1)) | (1 << KNOWN_MAX)
        };
        Self((self.0 & COMPARED) | known)
    }

    /// Whether this can be the tag of `hash` in a bucket of this depth.
    #[cfg(any(test, feature = "verify"))]
    pub(super) const fn fits(self, hash: u64, depth: u32) -> bool {
        let whole = Self::new(hash, depth);
        let known = self.0 & !COMPARED;
        let known_bits = known.ilog2();
        let mask = (1 << known_bits) - 1;
        (self.0 ^ whole.0) & (COMPARED | mask) == 0 && known_bits <= KNOWN_MAX
    }
}

impl Bucket {
    pub(super) const EMPTY: Self = Self([0; BUCKET_BYTES]);

    /// The bucket at the start of these bytes.
    #[inline]
    pub(super) fn at(bytes: &[u8]) -> Self {
        Self(*bytes.first_chunk().expect("H4: a bucket begins here"))
    }

    /// The bucket as bytes in memory.
    pub(super) const fn as_bytes(&self) -> &[u8; BUCKET_BYTES] {
        &self.0
    }

    /// The `N` bytes from `at` on.
    #[inline]
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0[at..].first_chunk();
        *bytes.expect("they are in the bucket")
    }

    #[inline]
    fn address(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at * size_of::<u32>()))
    }

    /// The entries whose keys may have this hash.
    // The cast keeps the needed bits.
    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    pub(super) fn candidates(&self, hash: u64) -> Candidates<'_> {
        let wanted = ONES * u64::from((hash >> 48) as u16 & COMPARED);
        // Four tags at a time: bit 15 of a tag is set if it is equal.
        let equal = |at: usize| {
            let differs =
                (u64::from_le_bytes(self.bytes(at)) ^ wanted) & (ONES * u64::from(COMPARED));
            let highest = ONES << 15;
            !(((differs & !highest) + !highest) | differs) & highest
        };
        // The last four are two tags and the link.
        let last = equal(TAGS_AT + 16) & u64::from(u32::MAX);
        let found = equal(TAGS_AT) >> 3 | equal(TAGS_AT + 8) >> 2 | last >> 1;
        Candidates {
            bucket: self,
            found,
        }
    }

    /// The position of `address`.
    pub(super) fn position(&self, address: Address) -> Option<usize> {
        // Without a branch for each, the compiler compares several at once.
        let mut found = 0_u32;
        for at in 0..BUCKET_ENTRIES {
            found |= u32::from(self.address(at) == address.number()) << at;
        }
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    pub(super) fn len(&self) -> usize {
        (0..BUCKET_ENTRIES)
            .filter(|at| self.address(*at) != 0)
            .count()
    }

    pub(super) fn is_full(&self) -> bool {
        self.address(BUCKET_ENTRIES - 1) != 0
    }

    /// The entry at an occupied position.
    pub(super) fn entry(&self, at: usize) -> Entry {
        Entry {
            address: Address::from_number(self.address(at)),
            tag: Tag(u16::from_le_bytes(
                self.bytes(TAGS_AT + at * size_of::<u16>()),
            )),
        }
    }

    pub(super) fn set(&mut self, at: usize, entry: Entry) {
        self.put(at, entry.address.number(), entry.tag.0);
    }

    fn put(&mut self, at: usize, address: u32, tag: u16) {
        let (address_at, tag_at) = (at * size_of::<u32>(), TAGS_AT + at * size_of::<u16>());
        self.0[address_at..][..size_of::<u32>()].copy_from_slice(&address.to_le_bytes());
        self.0[tag_at..][..size_of::<u16>()].copy_from_slice(&tag.to_le_bytes());
    }

    /// Removes the last entry; the bucket is not empty.
    pub(super) fn pop(&mut self) -> Entry {
        let at = self.len() - 1;
        let entry = self.entry(at);
        self.put(at, 0, 0);
        entry
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        (0..self.len()).map(|at| self.entry(at))
    }

    /// As [`entries`](Self::entries), for a caller that gives up the bucket.
    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry> {
        (0..self.len()).map(move |at| self.entry(at))
    }

    /// The number of the overflow bucket that continues this one.
    #[inline]
    pub(super) fn overflow(&self) -> Option<u32> {
        u32::from_le_bytes(self.bytes(OVERFLOW_AT)).checked_sub(1)
    }

    pub(super) fn set_overflow(&mut self, number: Option<u32>) {
        let link = number.map_or(0, |number| number + 1);
        self.0[OVERFLOW_AT..].copy_from_slice(&link.to_le_bytes());
    }

    /// U1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self) {
        assert!(
            (self.len()..BUCKET_ENTRIES).all(|at| self.address(at) == 0),
            "U1: an entry behind the end"
        );
    }
}

/// The entries of a bucket with a certain tag: their positions and addresses.
#[derive(Debug)]
pub(super) struct Candidates<'a> {
    bucket: &'a Bucket,
    /// Bit `16 n + 12 + m` stands for position `4 m + n`.
    found: u64,
}

impl Iterator for Candidates<'_> {
    type Item = (usize, Address);

    #[inline]
    fn next(&mut self) -> Option<(usize, Address)> {
        while self.found != 0 {
            let bit = self.found.trailing_zeros() as usize;
            self.found &= self.found - 1;
            let at = (bit % 16 - 12) * 4 + bit / 16;
            let address = self.bucket.address(at);
            // An empty place has a tag, too.
            if address != 0 {
                return Some((at, Address::from_number(address)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_bucket_is_a_line_of_the_cache() {
        assert_eq!(OVERFLOW_AT + size_of::<u32>(), BUCKET_BYTES);
    }

    #[test]
    fn a_bucket_is_what_was_written() {
        let mut bucket = Bucket::EMPTY;
        let entry = |at: usize| Entry {
            address: Address::from_number(0x0102_0304_u32 << at),
            tag: Tag(0x8001_u16 >> at),
        };
        for at in 0..BUCKET_ENTRIES {
            bucket.set(at, entry(at));
        }
        bucket.set_overflow(Some(0xA0B0_C0D0));
        let again = Bucket::at(bucket.as_bytes());
        assert!(again.entries().eq((0..BUCKET_ENTRIES).map(entry)));
        assert_eq!(again.overflow(), Some(0xA0B0_C0D0));
        assert_eq!(Bucket::at(&[0; BUCKET_BYTES]).len(), 0);
    }

    #[test]
    fn each_place_is_found_by_its_tag() {
        let hash = |at: usize| 0x1230_0000_0000_0000 + ((at as u64) << 52);
        let mut bucket = Bucket::EMPTY;
        for at in 0..BUCKET_ENTRIES {
            let address = Address::from_number(u32::try_from(at).unwrap() + 1);
            bucket.set(
                at,
                Entry {
                    address,
                    tag: Tag::new(hash(at), 0),
                },
            );
        }
        for link in [None, Some(0x1230_1230), Some(u32::MAX - 1)] {
            bucket.set_overflow(link);
            for at in 0..BUCKET_ENTRIES {
                let found = bucket.candidates(hash(at)).map(|(place, _)| place);
                assert!(found.eq([at]), "{at}");
            }
            assert_eq!(bucket.candidates(hash(BUCKET_ENTRIES)).next(), None);
        }
    }

    #[test]
    fn a_tag_knows_three_splits() {
        let hash = 0xABC0_0000_0000_0000 | 0b101_0000;
        let mut tag = Tag::new(hash, 4);
        for (depth, is_upper) in [(4, true), (5, false), (6, true)] {
            assert!(tag.fits(hash, depth));
            let (half, next) = tag.split().unwrap();
            assert_eq!(half, is_upper);
            tag = next;
        }
        assert_eq!(tag.split(), None);
        assert!(tag.fits(hash, 7));
    }

    #[test]
    fn a_merge_undoes_a_split() {
        for hash in [0, u64::MAX, 0x1234_5678_9ABC_DEF0] {
            let tag = Tag::new(hash, 9);
            let (is_upper, half) = tag.split().unwrap();
            assert_eq!(half.merge(is_upper), tag);
            assert!(tag.merge(hash >> 8 & 1 == 1).fits(hash, 8));
        }
    }

    #[test]
    fn entries_are_found_by_their_tags() {
        let mut bucket = Bucket::EMPTY;
        let hash = 0xABC0_0000_0000_0000;
        for at in 0..3 {
            let number = u32::try_from(at).unwrap() + 1;
            bucket.set(
                at,
                Entry {
                    address: Address::from_number(number),
                    tag: Tag::new(if at == 1 { hash } else { !hash }, 0),
                },
            );
        }
        let found: Vec<_> = bucket.candidates(hash).collect();
        assert_eq!(found, [(1, Address::from_number(2))]);
        assert_eq!(
            bucket.candidates(0).next(),
            None,
            "an empty place has no tag"
        );
        assert_eq!(bucket.position(Address::from_number(3)), Some(2));
        assert_eq!((bucket.len(), bucket.is_full()), (3, false));
        assert_eq!(bucket.pop().address, Address::from_number(3));
        bucket.check();
    }
}
