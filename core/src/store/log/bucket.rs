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

/// A bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    addresses: [u32; BUCKET_ENTRIES],
    tags: [u16; BUCKET_ENTRIES],
    /// The overflow bucket that continues this one: its number plus one, or 0.
    overflow: u32,
}

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
    pub(super) const EMPTY: Self = Self {
        addresses: [0; BUCKET_ENTRIES],
        tags: [0; BUCKET_ENTRIES],
        overflow: 0,
    };

    /// The bucket that [`to_bytes`](Self::to_bytes) wrote.
    #[inline]
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut bucket = Self::EMPTY;
        let (addresses, _) = bytes[..TAGS_AT].as_chunks();
        for (address, bytes) in bucket.addresses.iter_mut().zip(addresses) {
            *address = u32::from_le_bytes(*bytes);
        }
        let (tags, _) = bytes[TAGS_AT..OVERFLOW_AT].as_chunks();
        for (tag, bytes) in bucket.tags.iter_mut().zip(tags) {
            *tag = u16::from_le_bytes(*bytes);
        }
        let (overflow, _) = bytes[OVERFLOW_AT..].as_chunks();
        bucket.overflow = u32::from_le_bytes(overflow[0]);
        bucket
    }

    /// The bucket as bytes in memory.
    #[inline]
    pub(super) fn to_bytes(self) -> [u8; BUCKET_BYTES] {
        let mut bytes = [0; BUCKET_BYTES];
        let (addresses, _) = bytes[..TAGS_AT].as_chunks_mut();
        for (bytes, address) in addresses.iter_mut().zip(self.addresses) {
            *bytes = address.to_le_bytes();
        }
        let (tags, _) = bytes[TAGS_AT..OVERFLOW_AT].as_chunks_mut();
        for (bytes, tag) in tags.iter_mut().zip(self.tags) {
            *bytes = tag.to_le_bytes();
        }
        bytes[OVERFLOW_AT..].copy_from_slice(&self.overflow.to_le_bytes());
        bytes
    }

    /// The entries whose keys may have this hash.
    // The cast keeps the needed bits.
    #[allow(clippy::cast_possible_truncation)]
    #[inline]
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = (usize, Address)> {
        let wanted = (hash >> 48) as u16 & COMPARED;
        // As in `position`.
        let mut found = 0_u32;
        for (at, tag) in self.tags.iter().enumerate() {
            found |= u32::from(tag & COMPARED == wanted) << at;
        }
        core::iter::from_fn(move || {
            while found != 0 {
                let at = found.trailing_zeros() as usize;
                found &= found - 1;
                if self.addresses[at] != 0 {
                    return Some((at, Address::from_number(self.addresses[at])));
                }
            }
            None
        })
    }

    /// The position of `address`.
    pub(super) fn position(&self, address: Address) -> Option<usize> {
        // Without a branch for each, the compiler compares several at once.
        let mut found = 0_u32;
        for (at, number) in self.addresses.iter().enumerate() {
            found |= u32::from(*number == address.number()) << at;
        }
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    pub(super) fn len(&self) -> usize {
        self.addresses
            .iter()
            .filter(|address| **address != 0)
            .count()
    }

    pub(super) const fn is_full(&self) -> bool {
        self.addresses[BUCKET_ENTRIES - 1] != 0
    }

    /// The entry at an occupied position.
    pub(super) const fn entry(&self, at: usize) -> Entry {
        Entry {
            address: Address::from_number(self.addresses[at]),
            tag: Tag(self.tags[at]),
        }
    }

    pub(super) const fn set(&mut self, at: usize, entry: Entry) {
        self.addresses[at] = entry.address.number();
        self.tags[at] = entry.tag.0;
    }

    /// Removes the last entry; the bucket is not empty.
    pub(super) fn pop(&mut self) -> Entry {
        let at = self.len() - 1;
        let entry = self.entry(at);
        self.addresses[at] = 0;
        self.tags[at] = 0;
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
    pub(super) const fn overflow(&self) -> Option<u32> {
        self.overflow.checked_sub(1)
    }

    pub(super) fn set_overflow(&mut self, number: Option<u32>) {
        self.overflow = number.map_or(0, |number| number + 1);
    }

    /// U1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self) {
        let len = self.len();
        assert!(
            self.addresses[len..].iter().all(|address| *address == 0),
            "U1: an entry behind the end"
        );
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
        for at in 0..BUCKET_ENTRIES {
            let entry = Entry {
                address: Address::from_number(0x0102_0304 << at),
                tag: Tag(0x8001 >> at),
            };
            bucket.set(at, entry);
        }
        bucket.set_overflow(Some(0xA0B0_C0D0));
        let again = Bucket::from_bytes(&bucket.to_bytes());
        assert_eq!(again.addresses, bucket.addresses);
        assert_eq!(again.tags, bucket.tags);
        assert_eq!(again.overflow(), Some(0xA0B0_C0D0));
        assert_eq!(Bucket::from_bytes(&[0; BUCKET_BYTES]).len(), 0);
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
