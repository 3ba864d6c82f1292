//! Values that are too large for a segment, each in an allocation of its own.
//!
//! The log holds the number of such a value. A reply shares the value while it is being sent, so it is not
//! copied.
//!
//! - V1: A number is in the list of its [`Number`]'s stage. Only a free number has no value. A used number is
//!   charged with its memory.
//! - V2: A value is in the window or in the main list if and only if its item is not locked.
//!
//! Numbers are reused, and their memory is never freed: one takes a four-hundredth of the smallest huge value.

use core::marker::PhantomData;

use bytes::Bytes;

use super::Full;
use super::block::Block;
use super::chunks::Chunks;
use super::geometry::{ALLOCATION_BYTES, Address, Geometry};
use super::list::{Linked, Links, List, Row};
use crate::work::Meter;

/// The huge values of a store.
#[derive(Debug)]
pub(super) struct Huge<B> {
    values: Chunks<Number>,
    /// The numbers by stage.
    lists: [List; 4],
    /// Their memory, in bytes.
    value_bytes: usize,
    /// That of the values in the window.
    window_bytes: usize,
    /// Work of values added and removed, by their bytes.
    work: Meter,
    /// Whether removed values are zeroed.
    erases: bool,
    /// The source of their memory.
    memory: PhantomData<fn() -> B>,
}

/// The state of a number, and the list that it is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    Free,
    /// Its item is locked, or not written yet.
    Locked,
    /// It has been there for a short time.
    Window,
    /// It has earned its memory in the window.
    Main,
}

/// A number.
#[derive(Debug)]
struct Number {
    value: Bytes,
    /// The record that holds the number.
    address: Option<Address>,
    stage: Stage,
    merit: Merit,
    links: Links,
}

/// The use of a value since the last look at it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Merit {
    pub(super) hits: u32,
    /// Its item was stored again soon after its eviction.
    pub(super) is_back: bool,
    /// The returns of small items before that look. Their number wraps.
    pub(super) since: u32,
}

impl Linked for Number {
    fn links(&mut self, _: Row) -> &mut Links {
        &mut self.links
    }

    #[cfg(any(test, feature = "verify"))]
    fn links_of(&self, _: Row) -> Links {
        self.links
    }
}

/// The cost of a huge value besides its length, in bytes.
pub(super) const HUGE_BYTES: usize = ALLOCATION_BYTES;

impl<B: Block> Huge<B> {
    pub(super) const fn new(geometry: Geometry, erases: bool) -> Self {
        Self {
            values: Chunks::new(geometry.chunk_len(size_of::<Number>(), 2)),
            lists: [List::new(Row::Queue); 4],
            value_bytes: 0,
            window_bytes: 0,
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
        let place = if self.oldest(Stage::Free).is_some() {
            0
        } else {
            self.values.push_bytes()
        };
        place + B::share_bytes(value_bytes)
    }

    /// Adds a value of an item that is not written yet, and returns its number.
    ///
    /// # Errors
    /// [`Full`] if the list cannot grow.
    pub(super) fn insert(&mut self, value: Bytes) -> Result<u32, Full> {
        let number = if let Some(number) = self.oldest(Stage::Free) {
            number
        } else {
            let number = u32::try_from(self.values.len()).map_err(|_| Full)?;
            self.values.push(Number {
                value: Bytes::new(),
                address: None,
                stage: Stage::Free,
                merit: Merit::default(),
                links: Links::default(),
            })?;
            self.lists[Stage::Free as usize].push(&mut self.values, number);
            number
        };
        self.work.charge_bytes(value.len());
        self.value_bytes += B::share_bytes(value.len());
        self.values[number as usize].value = value;
        self.move_to(number, Stage::Locked);
        Ok(number)
    }

    /// Sets the record that holds a number.
    pub(super) fn set_address(&mut self, number: u32, address: Address) {
        self.values[number as usize].address = Some(address);
    }

    /// Appends the value to the window, or removes it from there.
    pub(super) fn set_locked(&mut self, number: u32, is_locked: bool) {
        let stage = if is_locked {
            Stage::Locked
        } else {
            Stage::Window
        };
        self.move_to(number, stage);
    }

    pub(super) fn is_in_window(&self, number: u32) -> bool {
        self.values[number as usize].stage == Stage::Window
    }

    pub(super) fn merit(&self, number: u32) -> Merit {
        self.values[number as usize].merit
    }

    pub(super) fn set_merit(&mut self, number: u32, merit: Merit) {
        self.values[number as usize].merit = merit;
    }

    /// The number that has been in the list of `stage` for the longest time.
    pub(super) const fn oldest(&self, stage: Stage) -> Option<u32> {
        self.lists[stage as usize].oldest()
    }

    /// The memory of all values, in bytes.
    pub(super) const fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The memory of the values in the window, in bytes.
    pub(super) const fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// The record that holds a used number.
    pub(super) fn address(&self, number: u32) -> Address {
        let address = self.values[number as usize].address;
        address.expect("V1: a record holds it")
    }

    /// Makes a number the newest in the list of `stage`.
    pub(super) fn move_to(&mut self, number: u32, stage: Stage) {
        let place = &mut self.values[number as usize];
        let bytes = B::share_bytes(place.value.len());
        let before = core::mem::replace(&mut place.stage, stage);
        self.lists[before as usize].unlink(&mut self.values, number);
        self.lists[stage as usize].push(&mut self.values, number);
        self.window_bytes -= if before == Stage::Window { bytes } else { 0 };
        self.window_bytes += if stage == Stage::Window { bytes } else { 0 };
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
        let place = &self.values[number as usize];
        assert!(place.stage != Stage::Free, "V1: a record names a value");
        &place.value
    }

    /// The value of a used number, which a client reads; counts a hit if `is_use`.
    pub(super) fn read(&mut self, number: u32, is_use: bool) -> &Bytes {
        if is_use {
            let merit = &mut self.values[number as usize].merit;
            merit.hits = merit.hits.saturating_add(1);
        }
        self.value(number)
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, number: u32) {
        let value_bytes = self.value(number).len();
        self.work.charge_bytes(value_bytes);
        self.value_bytes -= B::share_bytes(value_bytes);
        self.move_to(number, Stage::Free);
        let place = &mut self.values[number as usize];
        place.value = Bytes::new();
        place.address = None;
    }

    /// The work of adding and removing values so far.
    pub(super) const fn work(&self) -> u64 {
        self.work.units()
    }

    /// The number of values.
    pub(super) const fn used(&self) -> usize {
        self.values.len() - self.lists[Stage::Free as usize].len()
    }

    /// V1. `check_place` checks the record at an address: whether it holds the number, and whether it is locked (V2).
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self, check_place: &dyn Fn(u32, Option<Address>, bool)) {
        self.values.check();
        let (mut count, mut value_bytes, mut window_bytes) = (0, 0, 0);
        for stage in [Stage::Free, Stage::Locked, Stage::Window, Stage::Main] {
            for number in self.lists[stage as usize].iter(&self.values) {
                let place = &self.values[number as usize];
                assert_eq!(place.stage, stage, "V1: {number}");
                count += 1;
                if stage == Stage::Free {
                    assert!(place.value.is_empty(), "V1: {number}");
                    continue;
                }
                let bytes = B::share_bytes(place.value.len());
                value_bytes += bytes;
                window_bytes += if stage == Stage::Window { bytes } else { 0 };
                check_place(number, place.address, stage == Stage::Locked);
            }
        }
        assert_eq!(self.value_bytes, value_bytes, "V1");
        assert_eq!(self.window_bytes, window_bytes, "V1");
        assert_eq!(count, self.values.len(), "V1: a number got lost");
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
        huge.check(&|_, _, _| {});
        let number = huge.insert(huge.joined(&[b"fo", b"ur"]).unwrap()).unwrap();
        assert_eq!(number, numbers[1]);
        assert_eq!(huge.value(number).as_ref(), b"four");
        assert_eq!(huge.value(numbers[2]).as_ref(), b"three");
        huge.check(&|_, _, _| {});
    }

    #[test]
    fn what_it_holds_is_what_was_said() {
        let mut huge = Huge::new(Geometry::for_memory(1 << 20), false);
        let expected = huge.held_bytes() + huge.insert_bytes(5);
        let number = huge.insert(huge.joined(&[b"12345"]).unwrap()).unwrap();
        assert_eq!(huge.held_bytes(), expected);
        huge.remove(number);
        huge.check(&|_, _, _| {});
        assert_eq!(huge.held_bytes(), expected - HUGE_BYTES - 5);
        assert_eq!(huge.used(), 0);
    }
}
