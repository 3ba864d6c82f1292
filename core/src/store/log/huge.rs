//! Values that are too large for a segment, each in an allocation of its own.
//!
//! The log holds the number of such a value. A reply shares the value while it is being sent, so it is not
//! copied.
//!
//! - V1: A number is in use or free. A used number is charged with its memory.
//!
//! Numbers are reused, and their memory is never freed: one takes a thousandth of the smallest huge value.

use core::marker::PhantomData;

use bytes::Bytes;

use super::Full;
use super::block::Block;
use super::chunks::Chunks;
use super::geometry::{ALLOCATION_BYTES, Geometry};
use crate::work::Meter;

/// The huge values of a store.
#[derive(Debug)]
pub(super) struct Huge<B> {
    values: Chunks<Place>,
    free: Option<u32>,
    used: usize,
    /// Their memory, in bytes.
    value_bytes: usize,
    /// Work of values added and removed, by their bytes.
    work: Meter,
    /// Whether removed values are zeroed.
    erases: bool,
    /// The source of their memory.
    memory: PhantomData<fn() -> B>,
}

/// The state of a number.
#[derive(Debug)]
enum Place {
    Used(Bytes),
    Free { next: Option<u32> },
}

/// The cost of a huge value besides its length, in bytes.
pub(super) const HUGE_BYTES: usize = ALLOCATION_BYTES;

impl<B: Block> Huge<B> {
    pub(super) const fn new(geometry: Geometry, erases: bool) -> Self {
        Self {
            values: Chunks::new(geometry.chunk_len(size_of::<Place>(), 2)),
            free: None,
            used: 0,
            value_bytes: 0,
            work: Meter::new(),
            erases,
            memory: PhantomData,
        }
    }

    /// The bytes that the values and their list have allocated.
    pub(super) const fn held_bytes(&self) -> usize {
        self.listing_bytes() + self.value_bytes
    }

    /// The bytes that the list has allocated, which depend on the highest count so far.
    pub(super) const fn listing_bytes(&self) -> usize {
        self.values.held_bytes()
    }

    /// The bytes that one more value will allocate in the list.
    pub(super) fn insert_bytes(&self, value_bytes: usize) -> usize {
        let place = if self.free.is_some() {
            0
        } else {
            self.values.push_bytes()
        };
        place + B::share_bytes(value_bytes)
    }

    /// Adds a value and returns its number.
    ///
    /// # Errors
    /// [`Full`] if the list cannot grow.
    pub(super) fn insert(&mut self, value: Bytes) -> Result<u32, Full> {
        let value_bytes = value.len();
        let number = if let Some(number) = self.free {
            let place = core::mem::replace(&mut self.values[number as usize], Place::Used(value));
            self.free = match place {
                Place::Free { next } => next,
                Place::Used(_) => unreachable!("V1: it is free"),
            };
            number
        } else {
            let number = u32::try_from(self.values.len()).map_err(|_| Full)?;
            self.values.push(Place::Used(value))?;
            number
        };
        self.used += 1;
        self.value_bytes += B::share_bytes(value_bytes);
        self.work.charge_bytes(value_bytes);
        Ok(number)
    }

    /// Copies pieces of a value into memory of its own.
    ///
    /// # Errors
    /// [`Full`] if the allocation fails.
    pub(super) fn joined(&self, pieces: &[&[u8]]) -> Result<Bytes, Full> {
        B::share(pieces, self.erases).ok_or(Full)
    }

    /// The value of a used number.
    pub(super) fn value(&self, number: u32) -> &Bytes {
        match &self.values[number as usize] {
            Place::Used(value) => value,
            Place::Free { .. } => unreachable!("V1: a record names a value that is there"),
        }
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, number: u32) {
        let value_bytes = self.value(number).len();
        self.value_bytes -= B::share_bytes(value_bytes);
        self.work.charge_bytes(value_bytes);
        self.used -= 1;
        self.values[number as usize] = Place::Free { next: self.free };
        self.free = Some(number);
    }

    /// The work of adding and removing values so far.
    pub(super) const fn work(&self) -> u64 {
        self.work.units()
    }

    /// The number of values.
    #[cfg(any(test, feature = "verify"))]
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    /// V1.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self) {
        self.values.check();
        let (mut used, mut value_bytes) = (0, 0);
        for place in self.values.iter() {
            if let Place::Used(value) = place {
                used += 1;
                value_bytes += B::share_bytes(value.len());
            }
        }
        assert_eq!((self.used, self.value_bytes), (used, value_bytes), "V1");
        let mut free = 0;
        let mut next = self.free;
        while let Some(number) = next {
            match &self.values[number as usize] {
                Place::Free { next: after } => next = *after,
                Place::Used(_) => panic!("V1: {number} is in use, and free"),
            }
            free += 1;
        }
        assert_eq!(used + free, self.values.len(), "V1: a number got lost");
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    type Huge = super::Huge<Vec<u8>>;

    #[test]
    fn a_number_is_used_again() {
        let mut huge = Huge::new(Geometry::for_memory(1 << 20), false);
        let numbers: Vec<u32> = [b"one".as_slice(), b"two", b"three"]
            .into_iter()
            .map(|value| huge.insert(huge.joined(&[value]).unwrap()).unwrap())
            .collect();
        huge.remove(numbers[1]);
        huge.check();
        let number = huge.insert(huge.joined(&[b"fo", b"ur"]).unwrap()).unwrap();
        assert_eq!(number, numbers[1]);
        assert_eq!(huge.value(number).as_ref(), b"four");
        assert_eq!(huge.value(numbers[2]).as_ref(), b"three");
        huge.check();
    }

    #[test]
    fn what_it_holds_is_what_was_said() {
        let mut huge = Huge::new(Geometry::for_memory(1 << 20), false);
        let expected = huge.held_bytes() + huge.insert_bytes(5);
        let number = huge.insert(huge.joined(&[b"12345"]).unwrap()).unwrap();
        assert_eq!(huge.held_bytes(), expected);
        huge.remove(number);
        huge.check();
        assert_eq!(huge.held_bytes(), expected - HUGE_BYTES - 5);
        assert_eq!(huge.used(), 0);
    }
}
