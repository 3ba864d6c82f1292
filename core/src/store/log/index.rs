//! Finds the addresses that may hold the item of a key: a hash table that grows and shrinks by one bucket at
//! a time.
//!
//! Linear hashing: the lowest bits of the hash choose the bucket, as many as the number of buckets needs. To
//! grow, the next bucket in turn is split in two. To shrink, the last bucket is merged with the one it was
//! split from. So no insert waits while a whole table is copied. A full bucket continues in overflow buckets,
//! which stand in a second list. The last overflow bucket fills a gap in that list.
//!
//! The index does not hold keys: the caller compares the key in the log.
//!
//! - I1: An entry is in the chain of the bucket that its key's hash chooses, exactly once.
//! - I2: In a chain, only the last bucket may have free places, and only the first may be empty.
//! - I3: Every overflow bucket is in the chain of its owner.
//!
//! Source: Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980.

use super::Full;
use super::block::Block;
use super::bucket::{BUCKET_BYTES, BUCKET_ENTRIES, Bucket, Entry, Tag};
use super::buckets::Buckets;
use super::chunks::Chunks;
use super::geometry::{Address, Geometry};

/// A bucket is split when the average of entries in a bucket exceeds this. An entry then takes about 9.8
/// bytes, and one look-up in ten reads a second bucket.
const ENTRIES_GROW: usize = 8;

/// Two buckets are merged when the average of entries in a bucket falls below this.
const ENTRIES_SHRINK: usize = 3;

/// The addresses of a store by the hash of their keys.
#[derive(Debug)]
pub(super) struct Index<B> {
    primary: Buckets<B>,
    overflow: Buckets<B>,
    /// The number of the primary bucket for each overflow bucket.
    owners: Chunks<u32>,
    len: usize,
}

/// Names a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum At {
    Primary(u32),
    Overflow(u32),
}

/// [`Index::split`] and [`Index::shrink`] call this for the hash of an entry's key.
type HashOf<'a> = &'a dyn Fn(Address) -> u64;

/// As [`Index::find`], in one bucket.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "each command calls it, and a call costs as much as it does"
)]
fn find_in<T>(
    bucket: &Bucket,
    hash: u64,
    look: &impl Fn(Address) -> Option<T>,
) -> Option<(Address, T)> {
    // Not `find_map`, which is a call of its own.
    for (_, address) in bucket.candidates(hash) {
        if let Some(found) = look(address) {
            return Some((address, found));
        }
    }
    None
}

impl<B: Block> Index<B> {
    pub(super) const fn new(geometry: Geometry) -> Self {
        let buckets = geometry.chunk_len(BUCKET_BYTES, 2);
        Self {
            primary: Buckets::new(buckets),
            overflow: Buckets::new(buckets),
            owners: Chunks::new(geometry.chunk_len(size_of::<u32>(), 2)),
            len: 0,
        }
    }

    /// The number of entries.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The number of primary buckets.
    pub(super) const fn buckets(&self) -> usize {
        self.primary.len()
    }

    /// The bytes that it has allocated.
    pub(super) const fn held_bytes(&self) -> usize {
        self.primary.held_bytes() + self.overflow.held_bytes() + self.owners.held_bytes()
    }

    /// The bucket that `hash` chooses; there is at least one.
    // The cast drops bits that the mask would drop.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) const fn bucket(&self, hash: u64) -> usize {
        let mask = self.primary.len().next_power_of_two() - 1;
        let bucket = hash as usize & mask;
        if bucket < self.primary.len() {
            bucket
        } else {
            bucket & (mask >> 1)
        }
    }

    /// The number of bits of a hash that choose this bucket.
    pub(super) const fn depth(&self, bucket: usize) -> u32 {
        let half = self.primary.len().next_power_of_two() / 2;
        let depth = self.primary.len().next_power_of_two().trailing_zeros();
        if bucket >= half || bucket + half < self.primary.len() {
            depth
        } else {
            depth - 1
        }
    }

    /// The first address that may belong to a key of this hash and for which `look` returns a value, with
    /// that value.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "each command calls it, and a call costs as much as it does"
    )]
    pub(super) fn find<T>(
        &self,
        hash: u64,
        look: impl Fn(Address) -> Option<T>,
    ) -> Option<(Address, T)> {
        if self.primary.len() == 0 {
            return None;
        }
        let bucket = self.primary.get(self.bucket(hash));
        match find_in(&bucket, hash, &look) {
            Some(found) => Some(found),
            None => self.find_behind(bucket.overflow()?, hash, &look),
        }
    }

    /// Continues in this overflow bucket and those after it. A separate function, since most look-ups do not
    /// get here.
    #[inline(never)]
    fn find_behind<T>(
        &self,
        first: u32,
        hash: u64,
        look: &impl Fn(Address) -> Option<T>,
    ) -> Option<(Address, T)> {
        let mut bucket = self.overflow.get(first as usize);
        loop {
            if let Some(found) = find_in(&bucket, hash, look) {
                return Some(found);
            }
            bucket = self.overflow.get(bucket.overflow()? as usize);
        }
    }

    /// Loads the bucket of `hash` into the processor's cache. Returns a value that depends on it.
    pub(super) fn touch(&self, hash: u64) -> u32 {
        if self.primary.len() == 0 {
            return 0;
        }
        self.primary.get(self.bucket(hash)).overflow().unwrap_or(0)
    }

    /// The bytes that must be allocated before an entry of this hash can be inserted.
    pub(super) fn insert_bytes(&self, hash: u64) -> usize {
        if self.primary.len() == 0 {
            return self.primary.push_bytes();
        }
        let last = self.last_of(At::primary(self.bucket(hash)));
        if self.at(last).is_full() {
            self.overflow.push_bytes() + self.owners.push_bytes()
        } else {
            0
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`Full`] if the allocation announced by [`insert_bytes`](Self::insert_bytes) fails.
    pub(super) fn insert(&mut self, hash: u64, address: Address) -> Result<(), Full> {
        if self.primary.len() == 0 {
            self.primary.push(&Bucket::EMPTY)?;
        }
        let bucket = self.bucket(hash);
        let tag = Tag::new(hash, self.depth(bucket));
        self.push(bucket, Entry { address, tag })?;
        self.len += 1;
        Ok(())
    }

    /// Changes the address of an indexed item from `old` to `new`.
    pub(super) fn replace(&mut self, hash: u64, old: Address, new: Address) {
        let (at, place) = self.position(hash, old);
        self.edit(at, |bucket| {
            let tag = bucket.entry(place).tag;
            bucket.set(place, Entry { address: new, tag });
        });
    }

    /// Removes an indexed entry.
    pub(super) fn remove(&mut self, hash: u64, address: Address) {
        let (at, place) = self.position(hash, address);
        self.take(self.bucket(hash), at, place);
        self.len -= 1;
    }

    /// Whether the number of entries calls for a split.
    pub(super) const fn wants_split(&self) -> bool {
        self.len > self.primary.len() * ENTRIES_GROW
    }

    /// The bytes that a split allocates.
    pub(super) const fn split_bytes(&self) -> usize {
        self.primary.push_bytes()
    }

    /// Splits the next bucket in turn.
    ///
    /// # Errors
    /// [`Full`] if the allocator refuses; nothing has changed then.
    pub(super) fn split(&mut self, hash_of: HashOf<'_>) -> Result<(), Full> {
        let upper = self.primary.len();
        let lower = upper - (1 << upper.ilog2());
        let depth = self.depth(lower);
        self.primary.push(&Bucket::EMPTY)?;
        let upper_count = self.halve(lower, depth, hash_of);
        if upper_count == self.chain_len(lower) {
            // All of them: the whole chain changes its owner.
            let bucket = self.primary.get(lower);
            self.primary.set(lower, &Bucket::EMPTY);
            self.primary.set(upper, &bucket);
            let mut next = bucket.overflow();
            while let Some(number) = next {
                self.owners[number as usize] = number_of(upper);
                next = self.overflow.get(number as usize).overflow();
            }
        } else if upper_count > 0 {
            self.part(lower, upper);
        }
        for bucket in [lower, upper] {
            self.cut(bucket);
        }
        self.overflow.trim();
        self.owners.trim();
        Ok(())
    }

    /// Merges the last bucket with its other half, if the number of entries is low enough. Returns whether it
    /// did.
    pub(super) fn shrink(&mut self) -> bool {
        let last = self.primary.len().saturating_sub(1);
        if last == 0 || self.len >= self.primary.len() * ENTRIES_SHRINK {
            return false;
        }
        let lower = last - (1 << last.ilog2());
        let (above, below) = (self.chain_len(last), self.chain_len(lower));
        if above + below > BUCKET_ENTRIES {
            // Later, with still fewer entries: then freeing memory takes no memory.
            return false;
        }
        let upper_entries = self.primary.get(last);
        let lower_entries = self.primary.get(lower);
        let mut merged = lower_entries;
        for (at, entry) in lower_entries.entries().enumerate() {
            let tag = entry.tag.merge(false);
            merged.set(at, Entry { tag, ..entry });
        }
        for (at, entry) in upper_entries.entries().enumerate() {
            let tag = entry.tag.merge(true);
            merged.set(below + at, Entry { tag, ..entry });
        }
        self.primary.set(lower, &merged);
        self.primary.pop();
        self.primary.trim();
        true
    }

    /// All entries of the chain that begins with `bucket`.
    pub(super) fn chain(&self, bucket: usize) -> impl Iterator<Item = Entry> {
        let mut next = self
            .primary
            .len()
            .checked_sub(1)
            .map(|_| At::primary(bucket));
        core::iter::from_fn(move || {
            let bucket = self.at(next?);
            next = bucket.overflow().map(At::Overflow);
            Some(bucket.into_entries())
        })
        .flatten()
    }

    /// The number of entries in a chain.
    pub(super) fn chain_len(&self, bucket: usize) -> usize {
        self.chain(bucket).count()
    }

    /// Renews the bits that a split needs in a chain; returns the number of entries that move to the upper
    /// half.
    fn halve(&mut self, bucket: usize, depth: u32, hash_of: HashOf<'_>) -> usize {
        let mut upper_count = 0;
        let mut next = Some(At::primary(bucket));
        while let Some(at) = next {
            for place in 0..self.at(at).len() {
                let entry = self.at(at).entry(place);
                let (is_upper, _) = entry.tag.split().unwrap_or_else(|| {
                    let tag = Tag::new(hash_of(entry.address), depth);
                    self.edit(at, |bucket| bucket.set(place, Entry { tag, ..entry }));
                    tag.split().expect("a new tag knows three splits")
                });
                upper_count += usize::from(is_upper);
            }
            next = self.at(at).overflow().map(At::Overflow);
        }
        upper_count
    }

    /// Moves the entries of the upper half to it. Both halves together never need more buckets than the
    /// whole, so nothing is allocated.
    fn part(&mut self, lower: usize, upper: usize) {
        let mut place = 0;
        // Freeing a bucket changes the numbers of others, so each is looked up again.
        while let Some((at, place_in)) = self.nth(lower, place) {
            let entry = self.at(at).entry(place_in);
            let (is_upper, _) = entry.tag.split().expect("halve has seen to it");
            if is_upper {
                self.take(lower, at, place_in);
                self.push(upper, entry)
                    .expect("the bucket that was left over is still allocated");
            } else {
                place += 1;
            }
        }
    }

    /// The position of the entry with `place` entries before it in its chain (I2).
    fn nth(&self, bucket: usize, place: usize) -> Option<(At, usize)> {
        let mut at = At::primary(bucket);
        for _ in 0..place / BUCKET_ENTRIES {
            at = At::Overflow(self.at(at).overflow()?);
        }
        let place = place % BUCKET_ENTRIES;
        (place < self.at(at).len()).then_some((at, place))
    }

    /// Drops the bits that have decided a split.
    fn cut(&mut self, bucket: usize) {
        let mut next = Some(At::primary(bucket));
        while let Some(at) = next {
            next = self.edit(at, |bucket| {
                for place in 0..bucket.len() {
                    let entry = bucket.entry(place);
                    let (_, tag) = entry.tag.split().expect("halve has seen to it");
                    bucket.set(place, Entry { tag, ..entry });
                }
                bucket.overflow().map(At::Overflow)
            });
        }
    }

    /// Adds an entry to a chain (I2).
    fn push(&mut self, bucket: usize, entry: Entry) -> Result<(), Full> {
        let last = self.last_of(At::primary(bucket));
        if self.at(last).is_full() {
            let number = number_of(self.overflow.len());
            self.owners.push(number_of(bucket))?;
            let mut added = Bucket::EMPTY;
            added.set(0, entry);
            if let Err(full) = self.overflow.push(&added) {
                self.owners.pop();
                return Err(full);
            }
            self.edit(last, |bucket| bucket.set_overflow(Some(number)));
        } else {
            self.edit(last, |bucket| bucket.set(bucket.len(), entry));
        }
        Ok(())
    }

    /// Removes an entry from a chain, and moves the chain's last entry to its place (I2).
    fn take(&mut self, bucket: usize, at: At, place: usize) {
        let last = self.last_of(at);
        let entry = self.edit(last, Bucket::pop);
        if last != at || place < self.at(at).len() {
            self.edit(at, |bucket| bucket.set(place, entry));
        }
        if let At::Overflow(number) = last
            && self.at(last).len() == 0
        {
            self.unchain(bucket, number);
        }
    }

    /// Frees an overflow bucket that is empty and the last of its chain. The last bucket of the list takes
    /// its place, so the list has no gaps.
    fn unchain(&mut self, bucket: usize, number: u32) {
        let before = self.link_to(bucket, number);
        self.edit(before, |bucket| bucket.set_overflow(None));
        let moved = number_of(self.overflow.len() - 1);
        if moved != number {
            let owner = self.owners[moved as usize];
            let before = self.link_to(owner as usize, moved);
            self.edit(before, |bucket| bucket.set_overflow(Some(number)));
            let bucket = self.overflow.get(moved as usize);
            self.overflow.set(number as usize, &bucket);
            self.owners[number as usize] = owner;
        }
        self.overflow.pop();
        self.owners.pop();
    }

    /// The predecessor of an overflow bucket in its chain.
    fn link_to(&self, bucket: usize, number: u32) -> At {
        let mut at = At::primary(bucket);
        loop {
            let next = self.at(at).overflow();
            if next == Some(number) {
                return at;
            }
            at = At::Overflow(next.expect("I3: it is in its owner's chain"));
        }
    }

    fn last_of(&self, mut at: At) -> At {
        while let Some(number) = self.at(at).overflow() {
            at = At::Overflow(number);
        }
        at
    }

    fn position(&self, hash: u64, address: Address) -> (At, usize) {
        let mut at = At::primary(self.bucket(hash));
        loop {
            if let Some(place) = self.at(at).position(address) {
                return (at, place);
            }
            let next = self.at(at).overflow();
            at = At::Overflow(next.expect("I1: it stands in the chain of its hash"));
        }
    }

    fn at(&self, at: At) -> Bucket {
        match at {
            At::Primary(number) => self.primary.get(number as usize),
            At::Overflow(number) => self.overflow.get(number as usize),
        }
    }

    /// Changes a bucket.
    fn edit<T>(&mut self, at: At, change: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut bucket = self.at(at);
        let changed = change(&mut bucket);
        match at {
            At::Primary(number) => self.primary.set(number as usize, &bucket),
            At::Overflow(number) => self.overflow.set(number as usize, &bucket),
        }
        changed
    }

    /// Frees memory that is not needed any more.
    pub(super) fn trim(&mut self) {
        self.overflow.trim();
        self.owners.trim();
    }

    /// I1 to I3, and U1. `hash_of` returns the hash of the key at an address.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self, hash_of: HashOf<'_>) {
        self.primary.check();
        self.overflow.check();
        self.owners.check();
        let (mut entries, mut overflows) = (0, 0);
        for number in 0..self.primary.len() {
            let depth = self.depth(number);
            for entry in self.chain(number) {
                let hash = hash_of(entry.address);
                assert_eq!(self.bucket(hash), number, "I1: {entry:?}");
                assert!(entry.tag.fits(hash, depth), "I1: {entry:?}, hash {hash:x}");
                entries += 1;
            }
            let mut at = At::primary(number);
            self.at(at).check();
            while let Some(next) = self.at(at).overflow() {
                assert!(self.at(at).is_full(), "I2: {at:?}");
                at = At::Overflow(next);
                self.at(at).check();
                assert!(self.at(at).len() > 0, "I2: {at:?}");
                assert_eq!(self.owners[next as usize] as usize, number, "I3");
                overflows += 1;
            }
        }
        assert_eq!(self.len, entries, "I1");
        assert_eq!(self.overflow.len(), overflows, "I3");
        assert_eq!(self.owners.len(), overflows, "I3");
    }
}

impl At {
    fn primary(bucket: usize) -> Self {
        Self::Primary(number_of(bucket))
    }
}

fn number_of(bucket: usize) -> u32 {
    u32::try_from(bucket).expect("there are fewer buckets than addresses")
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    fn index() -> Index<Vec<u8>> {
        Index::new(Geometry::for_memory(1 << 20))
    }

    fn insert(index: &mut Index<Vec<u8>>, number: u32, hash_of: HashOf<'_>) {
        let address = Address::from_number(number);
        let hash = hash_of(address);
        let expected = index.held_bytes() + index.insert_bytes(hash);
        index.insert(hash, address).unwrap();
        assert_eq!(index.held_bytes(), expected);
        if index.wants_split() {
            index.split(hash_of).unwrap();
        }
    }

    fn remove(index: &mut Index<Vec<u8>>, number: u32, hash_of: HashOf<'_>) {
        let address = Address::from_number(number);
        index.remove(hash_of(address), address);
        index.shrink();
        index.trim();
    }

    fn mixed(address: Address) -> u64 {
        // Twice the constant of Knuth's multiplicative hash, to mix low and high bits.
        let number = u64::from(address.number()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (number ^ (number >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn holds_all(hash_of: HashOf<'_>, count: u32) {
        let mut index = index();
        for number in 1..=count {
            insert(&mut index, number, hash_of);
            if number % 64 == 0 || number < 64 {
                index.check(hash_of);
            }
        }
        for number in 1..=count {
            let address = Address::from_number(number);
            let found = index.find(hash_of(address), |candidate| {
                (candidate == address).then_some(())
            });
            assert_eq!(found, Some((address, ())));
        }
        let most = index.held_bytes();
        for number in 1..=count {
            remove(&mut index, number, hash_of);
            if number % 64 == 0 || count - number < 64 {
                index.check(hash_of);
            }
        }
        assert_eq!(index.len(), 0);
        assert!(index.held_bytes() < most / 2 || count < 1_000, "it shrinks");
    }

    #[test]
    fn many_entries_come_and_go() {
        holds_all(&mixed, 20_000);
    }

    #[test]
    fn entries_whose_whole_hash_collides_are_told_apart() {
        holds_all(&|_| 0, 300);
        holds_all(&|_| u64::MAX, 300);
        holds_all(&|address| u64::from(address.number() % 3) << 40, 300);
    }

    #[test]
    fn a_moved_item_is_found_where_it_is() {
        let mut index = index();
        insert(&mut index, 1, &|_| 5);
        insert(&mut index, 2, &|_| 5);
        index.replace(5, Address::from_number(1), Address::from_number(9));
        let found = index.find(5, |address| {
            (address != Address::from_number(2)).then_some(())
        });
        assert_eq!(found, Some((Address::from_number(9), ())));
    }

    #[test]
    fn most_splits_look_at_no_key() {
        let mut index = index();
        let asked = core::cell::Cell::new(0);
        let counting = |address: Address| {
            asked.set(asked.get() + 1);
            mixed(address)
        };
        for number in 1..=50_000 {
            let address = Address::from_number(number);
            index.insert(mixed(address), address).unwrap();
            if index.wants_split() {
                index.split(&counting).unwrap();
            }
        }
        assert!(asked.get() < 50_000 / 4, "{} of 50,000", asked.get());
    }

    quickcheck! {
        fn any_order_keeps_the_invariants(changes: Vec<(u8, bool)>, modulus: u8) -> bool {
            let hash_of = |address: Address| mixed(Address::from_number(
                address.number() % (u32::from(modulus) + 1) + 1,
            ));
            let mut index = index();
            let mut inside = [false; 256];
            for (number, is_insert) in changes {
                let slot = usize::from(number);
                let number = u32::from(number) + 1;
                if inside[slot] {
                    remove(&mut index, number, &hash_of);
                    inside[slot] = false;
                } else if is_insert {
                    insert(&mut index, number, &hash_of);
                    inside[slot] = true;
                }
                index.check(&hash_of);
            }
            inside.iter().filter(|inside| **inside).count() == index.len()
        }
    }
}
