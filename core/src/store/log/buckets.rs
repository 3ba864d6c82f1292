//! The buckets of the index, in blocks of the same memory as segments.
//!
//! With small values, the index is a tenth of the memory, and shrinks with the items. A general allocator
//! returns freed pieces to the system only when all memory behind them is free, and then in one call. That
//! call takes longer the more items there were. So the index returns its memory block by block, as segments
//! do.
//!
//! - H3: Every block before the last used one is full, and the blocks after that are empty.
//! - H4: The buckets of a block start at its beginning and never move.

use alloc::vec::Vec;

use super::Full;
use super::block::Block;
use super::bucket::{BUCKET_BYTES, Bucket};
use super::geometry::ALLOCATION_BYTES;

/// A list of buckets, in blocks of a power of two buckets.
#[derive(Debug)]
pub(super) struct Buckets<B> {
    /// A block is written as far as it was ever used.
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

    /// The bytes that the list has allocated.
    pub(super) const fn held_bytes(&self) -> usize {
        self.blocks.len() * self.charged_bytes() + self.blocks.capacity() * size_of::<B>()
    }

    /// The bytes that the next [`push`](Self::push) will allocate.
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

    /// The bucket with this number, which exists.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Bucket {
        debug_assert!(number < self.len, "H3: the bucket is there");
        let at = self.offset(number);
        Bucket::at(&self.blocks[number >> self.shift].bytes()[at..])
    }

    /// Writes the bucket with this number, which exists.
    pub(super) fn set(&mut self, number: usize, bucket: &Bucket) {
        debug_assert!(number < self.len, "H3: the bucket is there");
        let at = self.offset(number);
        let bytes = self.blocks[number >> self.shift].bytes_mut();
        bytes[at..at + BUCKET_BYTES].copy_from_slice(bucket.as_bytes());
    }

    /// Adds a bucket at the end.
    ///
    /// # Errors
    /// [`Full`] if the allocation fails; nothing has changed then.
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
            block.write(bucket.as_bytes());
        }
        Ok(())
    }

    /// Removes the last bucket. Its block stays until [`trim`](Self::trim).
    pub(super) fn pop(&mut self) -> Option<Bucket> {
        let last = self.len.checked_sub(1)?;
        let bucket = self.get(last);
        self.len = last;
        Some(bucket)
    }

    /// Frees an empty block once the one before it is at most half full. This avoids an allocation each time
    /// the length crosses a block boundary.
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

/// The list of blocks itself doubles, starting from this length: it has one pointer for thousands of bytes in
/// a block.
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
