//! The number of present items, and their size.

/// The sums over the present items.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Tally {
    pub(super) items: usize,
    pub(super) bytes: usize,
    pub(super) locked_items: usize,
    pub(super) locked_bytes: usize,
}

impl Tally {
    pub(super) const NONE: Self = Self {
        items: 0,
        bytes: 0,
        locked_items: 0,
        locked_bytes: 0,
    };

    /// Adds an item that is present now.
    pub(super) fn enter(&mut self, cost: usize, is_locked: bool) {
        self.items += 1;
        self.bytes += cost;
        self.locked_items += usize::from(is_locked);
        self.locked_bytes += if is_locked { cost } else { 0 };
    }

    /// Removes an item that is not present any more.
    pub(super) fn leave(&mut self, cost: usize, is_locked: bool) {
        self.items -= 1;
        self.bytes -= cost;
        self.locked_items -= usize::from(is_locked);
        self.locked_bytes -= if is_locked { cost } else { 0 };
    }

    /// The sums after a flush.
    pub(super) const fn locked_only(self) -> Self {
        Self {
            items: self.locked_items,
            bytes: self.locked_bytes,
            ..self
        }
    }
}
