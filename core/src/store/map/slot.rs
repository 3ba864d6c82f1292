//! The names of the items of the reference store.

/// Names a place for an item in a [`MapStore`](super::MapStore): its index in the list of places.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MapSlot(u32);

impl MapSlot {
    /// The name of the place with this number.
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
