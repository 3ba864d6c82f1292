//! A list that grows at its end and never moves its elements.
//!
//! A growing vector copies all its elements, which stops the server for milliseconds if it is large. This
//! list consists of chunks of the same size, and grows by one chunk. A chunk fills from its beginning, so its
//! memory is first touched when it is first needed.
//!
//! - H1: Every chunk before the last used one is full, and the chunks after that are empty.
//! - H2: No chunk grows beyond the size it was allocated with.

use alloc::vec::Vec;
use core::mem::size_of;
use core::ops::{Index, IndexMut};

use super::Full;
use super::geometry::ALLOCATION_BYTES;

/// A list of `T`, in chunks of a power of two elements.
#[derive(Debug)]
pub(super) struct Chunks<T> {
    parts: Vec<Vec<T>>,
    len: usize,
    shift: u32,
}

impl<T> Chunks<T> {
    /// An empty list, in chunks of `chunk_len` or the next power of two. Allocates nothing.
    pub(super) const fn new(chunk_len: usize) -> Self {
        Self {
            parts: Vec::new(),
            len: 0,
            shift: chunk_len.next_power_of_two().trailing_zeros(),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes that the list has allocated.
    pub(super) const fn held_bytes(&self) -> usize {
        self.parts.len() * self.chunk_bytes() + self.parts.capacity() * size_of::<Vec<T>>()
    }

    /// The bytes that the next [`push`](Self::push) will allocate.
    pub(super) const fn push_bytes(&self) -> usize {
        if self.len < self.parts.len() << self.shift {
            return 0;
        }
        let outer = if self.parts.len() == self.parts.capacity() {
            (self.parts.capacity() + OUTER_STEP) * size_of::<Vec<T>>()
        } else {
            0
        };
        self.chunk_bytes() + outer
    }

    /// The most bytes that the next [`push`](Self::push) but one allocates.
    pub(super) const fn chunk_bytes_max(&self) -> usize {
        self.chunk_bytes() + (self.parts.capacity() + OUTER_STEP) * size_of::<Vec<T>>()
    }

    /// Adds `value` at the end.
    ///
    /// # Errors
    /// [`Full`] if the allocator refuses; nothing has changed then.
    pub(super) fn push(&mut self, value: T) -> Result<(), Full> {
        if self.push_bytes() > 0 {
            if self.parts.len() == self.parts.capacity() {
                let more = self.parts.capacity() + OUTER_STEP;
                self.parts.try_reserve_exact(more).map_err(|_| Full)?;
            }
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(1 << self.shift).map_err(|_| Full)?;
            self.parts.push(chunk);
        }
        self.parts[self.len >> self.shift].push(value);
        self.len += 1;
        Ok(())
    }

    /// Removes the last element. Its chunk stays until [`trim`](Self::trim).
    pub(super) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        self.parts[self.len >> self.shift].pop()
    }

    /// Frees an empty chunk once the one before it is at most half full. This avoids an allocation each time
    /// the length crosses a chunk boundary.
    pub(super) fn trim(&mut self) {
        let half = (1 << self.shift) / 2;
        if let [.., before, last] = self.parts.as_slice()
            && last.is_empty()
            && before.len() <= half
        {
            self.parts.pop();
        }
    }

    #[cfg(any(test, feature = "verify"))]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flatten()
    }

    /// H1 and H2.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self) {
        let size = 1 << self.shift;
        for (number, chunk) in self.parts.iter().enumerate() {
            let wanted = self.len.saturating_sub(number * size).min(size);
            assert_eq!(chunk.len(), wanted, "H1: chunk {number}");
            assert!(
                chunk.capacity() == size || size_of::<T>() == 0,
                "H2: chunk {number} has moved"
            );
        }
    }

    const fn chunk_bytes(&self) -> usize {
        (size_of::<T>() << self.shift) + ALLOCATION_BYTES
    }
}

/// The list of chunks itself doubles, starting from this length: it has one pointer for thousands of bytes in
/// a chunk.
const OUTER_STEP: usize = 4;

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.parts[index >> self.shift][index & ((1 << self.shift) - 1)]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.parts[index >> self.shift][index & ((1 << self.shift) - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_found_and_popped() {
        let mut list = Chunks::new(4);
        for number in 0..11_u32 {
            list.push(number).unwrap();
            list.check();
        }
        assert!((0..11).all(|index| list[index as usize] == index));
        assert_eq!(list.iter().copied().sum::<u32>(), 55);
        for number in (0..11).rev() {
            assert_eq!(list.pop(), Some(number));
            list.trim();
            list.check();
        }
        assert_eq!(list.pop(), None);
    }

    #[test]
    fn a_push_allocates_what_it_said() {
        let mut list = Chunks::new(4);
        assert_eq!(list.held_bytes(), 0);
        for number in 0..100_u32 {
            let expected = list.held_bytes() + list.push_bytes();
            list.push(number).unwrap();
            assert_eq!(list.held_bytes(), expected);
        }
    }

    #[test]
    fn a_chunk_is_given_back_when_the_one_before_it_is_half_empty() {
        let mut list = Chunks::new(4);
        for number in 0..5_u32 {
            list.push(number).unwrap();
        }
        let two_chunks = list.held_bytes();
        list.pop();
        list.trim();
        assert_eq!(list.held_bytes(), two_chunks);
        list.pop();
        list.pop();
        list.trim();
        assert!(list.held_bytes() < two_chunks);
        list.check();
    }
}
