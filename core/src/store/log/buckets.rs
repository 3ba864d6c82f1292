//! The buckets of the index, in blocks of the memory that segments are made of.
//!
//! The index is a tenth of the memory where values are small, and goes with the items. An allocator that is given
//! back a thousand pieces keeps them until what lies behind them is free, too, and gives all of it to the system in one
//! call then: the more items there were, the longer whoever makes it waits. So it goes as segments do, piece by piece.
//!
//! - H3: every block but the last that holds something is full, and those behind it are empty.
//! - H4: what a block holds begins at its beginning, and nothing in it moves.

use alloc::vec::Vec;

use super::Full;
use super::block::Block;
use super::bucket::{BUCKET_BYTES, Bucket};
use super::geometry::ALLOCATION_BYTES;

/// A list of buckets in blocks of a power of two.
#[derive(Debug)]
pub(super) struct Buckets<B> {
    /// Of each block as much is written as was ever needed of it.
    blocks: Vec<B>,
    len: usize,
    shift: u32,
}

impl<B: Block> Buckets<B> {
    /// An empty list, in blocks of `block_len` or the next power of two. Allocates nothing.
    pub(super) const fn new(block_len: usize) -> Self {
        Self {
            blocks: Vec::new(),
            len: 0,
            shift: block_len.next_power_of_two().trailing_zeros(),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// What the list has allocated, in bytes.
    pub(super) const fn held_bytes(&self) -> usize {
        self.blocks.len() * self.charged_bytes() + self.blocks.capacity() * size_of::<B>()
    }

    /// What the next [`push`](Self::push) will allocate, in bytes.
    pub(super) const fn push_bytes(&self) -> usize {
        if self.len < self.blocks.len() << self.shift {
            return 0;
        }
        let outer = if self.blocks.len() == self.blocks.capacity() {
            (self.blocks.capacity() + OUTER_STEP) * size_of::<B>()
        } else {
            0
        };
        self.charged_bytes() + outer
    }

    /// The bucket of this number, of which there is one.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Bucket {
        debug_assert!(number < self.len, "H3: the bucket is there");
        let at = self.offset(number);
        let bytes = self.blocks[number >> self.shift].bytes();
        Bucket::from_bytes(&bytes[at..at + BUCKET_BYTES])
    }

    /// Writes the bucket of this number, of which there is one.
    pub(super) fn set(&mut self, number: usize, bucket: &Bucket) {
        debug_assert!(number < self.len, "H3: the bucket is there");
        let at = self.offset(number);
        let bytes = self.blocks[number >> self.shift].bytes_mut();
        bytes[at..at + BUCKET_BYTES].copy_from_slice(&bucket.to_bytes());
    }

    /// Adds a bucket at the end.
    ///
    /// # Errors
    /// [`Full`] if there is no memory; nothing has changed then.
    pub(super) fn push(&mut self, bucket: &Bucket) -> Result<(), Full> {
        if self.push_bytes() > 0 {
            if self.blocks.len() == self.blocks.capacity() {
                let more = self.blocks.capacity() + OUTER_STEP;
                self.blocks.try_reserve_exact(more).map_err(|_| Full)?;
            }
            self.blocks
                .push(B::allocate(self.block_bytes()).ok_or(Full)?);
        }
        let (number, at) = (self.len, self.offset(self.len));
        self.len += 1;
        let block = &mut self.blocks[number >> self.shift];
        if at < block.bytes().len() {
            self.set(number, bucket);
        } else {
            block.write(&bucket.to_bytes());
        }
        Ok(())
    }

    /// Takes the last one off. Its block stays until [`trim`](Self::trim).
    pub(super) fn pop(&mut self) -> Option<Bucket> {
        let last = self.len.checked_sub(1)?;
        let bucket = self.get(last);
        self.len = last;
        Some(bucket)
    }

    /// Gives back a block that holds nothing, once the one before it is at most half full: whoever goes to and fro
    /// over a boundary does not allocate each time.
    pub(super) fn trim(&mut self) {
        let full = 1 << self.shift;
        let needed = self.blocks.len().saturating_sub(1) * full;
        if self.blocks.len() > 1 && self.len + full / 2 <= needed {
            self.blocks.pop();
        }
    }

    const fn block_bytes(&self) -> usize {
        BUCKET_BYTES << self.shift
    }

    const fn charged_bytes(&self) -> usize {
        self.block_bytes() + ALLOCATION_BYTES
    }

    const fn offset(&self, number: usize) -> usize {
        (number & ((1 << self.shift) - 1)) * BUCKET_BYTES
    }

    /// H3 and H4.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self) {
        let size = 1 << self.shift;
        for (number, block) in self.blocks.iter().enumerate() {
            let wanted = self.len.saturating_sub(number * size).min(size);
            assert!(block.bytes().len() >= wanted * BUCKET_BYTES, "H3: {number}");
            assert!(block.bytes().len() <= self.block_bytes(), "H4: {number}");
        }
        assert!(self.len <= self.blocks.len() * size, "H3");
    }
}

/// The list of blocks itself doubles, and begins with this many: it has a pointer where a block has thousands of bytes.
const OUTER_STEP: usize = 4;

#[cfg(test)]
mod tests {
    use super::super::bucket::{Entry, Tag};
    use super::super::geometry::Address;
    use super::*;

    fn bucket(number: u32) -> Bucket {
        let mut bucket = Bucket::EMPTY;
        let entry = Entry {
            address: Address::from_number(number + 1),
            tag: Tag::new(u64::from(number) << 50, 0),
        };
        bucket.set(0, entry);
        bucket
    }

    fn number(bucket: &Bucket) -> u32 {
        bucket.entry(0).address.number() - 1
    }

    #[test]
    fn what_is_pushed_is_found_and_popped() {
        let mut list = Buckets::<Vec<u8>>::new(4);
        assert_eq!(list.held_bytes(), 0);
        for _ in 0..2 {
            for at in 0..11 {
                let expected = list.held_bytes() + list.push_bytes();
                list.push(&bucket(at)).unwrap();
                assert_eq!(list.held_bytes(), expected);
                list.check();
            }
            assert!((0..11).all(|at| number(&list.get(at as usize)) == at));
            list.set(5, &bucket(50));
            assert_eq!(number(&list.get(5)), 50);
            list.set(5, &bucket(5));
            for at in (0..11).rev() {
                assert_eq!(list.pop().as_ref().map(number), Some(at));
                list.trim();
                list.check();
            }
            assert!(list.pop().is_none());
        }
    }

    #[test]
    fn a_block_is_given_back_when_the_one_before_it_is_half_empty() {
        let mut list = Buckets::<Vec<u8>>::new(4);
        for at in 0..5 {
            list.push(&bucket(at)).unwrap();
        }
        let two_blocks = list.held_bytes();
        list.pop();
        list.trim();
        assert_eq!(list.held_bytes(), two_blocks);
        list.pop();
        list.pop();
        list.trim();
        assert!(list.held_bytes() < two_blocks);
        list.check();
    }
}
