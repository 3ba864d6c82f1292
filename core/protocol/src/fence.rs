//! The number of a grant.
//!
//! A client that writes under a lock can be paused until after its lock has expired, and does not notice. So
//! each grant has a number, and the resource can refuse writes of an earlier grant.

use core::num::NonZeroU64;

/// The number of one grant of one lock: unique over the server, and greater than that of every
/// grant of the same key before. Never 0.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Fence(NonZeroU64);

/// The number of grants per millisecond, as a power of two, that a server may make on average without reaching
/// the numbers of a later run.
const GRANTS_PER_MS_BITS: u32 = 20;

impl Fence {
    /// The lowest fence.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The highest fence.
    pub const LAST: Self = Self(NonZeroU64::MAX);

    /// The fence with this number; `None` for 0.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The first fence of a run that starts `unix_ms` milliseconds after 1970. It is above every fence of an
    /// earlier run, unless that run granted a thousand locks per microsecond, or the clock was set back.
    #[must_use]
    pub const fn first_at(unix_ms: u64) -> Self {
        let number = match unix_ms.checked_shl(GRANTS_PER_MS_BITS) {
            Some(number) if number >> GRANTS_PER_MS_BITS == unix_ms => number,
            // The clock is past the year 500,000.
            Some(_) | None => u64::MAX / 2,
        };
        Self::FIRST.step(number)
    }

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0.get()
    }

    /// The fence `stride` after this one. There are enough for thousands of years.
    #[must_use]
    pub const fn step(self, stride: u64) -> Self {
        Self(self.0.saturating_add(stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_begins_above_an_earlier_one() {
        let (earlier, later) = (
            Fence::first_at(1_700_000_000_000),
            Fence::first_at(1_700_000_000_001),
        );
        assert!(later.number() - earlier.number() > 1_000_000);
        assert!(Fence::first_at(u64::MAX).number() < u64::MAX);
        assert_eq!(Fence::first_at(0), Fence::FIRST.step(0));
    }

    #[test]
    fn a_clock_past_the_last_number_begins_in_the_middle() {
        let last = u64::MAX >> GRANTS_PER_MS_BITS;
        assert_eq!(
            Fence::first_at(last).number(),
            (last << GRANTS_PER_MS_BITS) + 1
        );
        for beyond in [last + 1, u64::MAX] {
            assert_eq!(Fence::first_at(beyond).number(), u64::MAX / 2 + 1);
        }
    }
}
