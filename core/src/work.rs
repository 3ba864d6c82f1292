//! The amount of work in a step. By this one measure a transport shares its time among clients.
//!
//! - K1: A step charges everything that it looks at, copies, wakes or erases, as far as that can be more than
//!   the work of a small command.
//!
//! A unit takes about as long as a small command. A command itself is one unit, which its transport counts.

/// Moving, erasing or freeing this many bytes is one unit: the kernel takes pages one by one.
pub const BYTES_A_UNIT: usize = 2 << 10;

/// Units of work: all that were ever charged, unless they are taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Meter {
    units: u64,
}

impl Meter {
    /// A meter at 0.
    #[must_use]
    pub const fn new() -> Self {
        Self { units: 0 }
    }

    /// Charges `units` units.
    #[inline]
    pub fn charge(&mut self, units: usize) {
        self.units = self.units.saturating_add(units as u64);
    }

    /// Charges the moving or erasing of `bytes` bytes.
    #[inline]
    pub fn charge_bytes(&mut self, bytes: usize) {
        self.charge(bytes / BYTES_A_UNIT);
    }

    /// The units charged and not taken.
    #[inline]
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Returns the units charged since the last call, at most [`u32::MAX`].
    #[inline]
    pub fn take(&mut self) -> u32 {
        u32::try_from(core::mem::take(&mut self.units)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_until_they_are_taken() {
        let mut meter = Meter::default();
        meter.charge(3);
        meter.charge_bytes(2 * BYTES_A_UNIT - 1);
        assert_eq!(meter.units(), 4);
        assert_eq!((meter.take(), meter.take()), (4, 0));
        meter.charge(usize::MAX);
        meter.charge(1);
        assert_eq!(meter.take(), u32::MAX);
    }
}
