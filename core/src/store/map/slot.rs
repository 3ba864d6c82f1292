//! The places of the items of the reference store, and the results of its look-ups.

/// A place for an item in a [`MapStore`](super::MapStore): its index in the list of places.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Place(u32);

impl Place {
    /// The place with this number.
    ///
    /// # Panics
    /// Past 2^32 places, which would be over 500 GiB of items.
    pub(super) fn from_number(number: usize) -> Self {
        Self(u32::try_from(number).expect("an item takes over 100 bytes"))
    }

    pub(super) const fn number(self) -> usize {
        self.0 as usize
    }
}

/// Names an item of a [`MapStore`](super::MapStore) until the next call that may move items (M4).
#[derive(Clone, Copy, Debug)]
pub struct MapSlot {
    pub(super) place: Place,
    pub(super) moves: u32,
}

/// The result of a look-up in a [`MapStore`](super::MapStore) without an item, until the next call that may move items (M4).
#[derive(Clone, Copy, Debug)]
pub struct MapVacancy {
    pub(super) moves: u32,
}
