//! The clock of a machine, beside the time of the simulation.

use latchd_core::Instant;
use latchd_harness::random::Random;

/// Parts in a million.
const MILLION: u128 = 1_000_000;

/// The most by which a clock gains or loses, in parts of a million: 5 %.
const DRIFT: u64 = 50_000;

/// A clock: milliseconds since an unknown moment, at its own rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    offset_ms: u64,
    /// Milliseconds that it counts in 1,000 s.
    rate: u64,
}

impl Clock {
    /// A clock that is as wrong as it can be in every second case.
    pub(super) fn draw(random: &mut Random) -> Self {
        let rate = match random.below(4) {
            0 => 1_000_000 - DRIFT,
            1 => 1_000_000 + DRIFT,
            2 => 1_000_000 - DRIFT + random.below(2 * DRIFT),
            _ => 1_000_000,
        };
        Self {
            offset_ms: 10_000 + random.below(100_000),
            rate,
        }
    }

    /// Its time at a microsecond of the simulation.
    pub(super) fn at(self, now_us: u64) -> Instant {
        let since = u128::from(now_us) * u128::from(self.rate) / MILLION / 1000;
        Instant::from_millis(self.offset_ms + u64::try_from(since).expect("a run is short"))
    }

    /// The first microsecond of the simulation at which it shows this time.
    pub(super) fn us_at(self, instant: Instant) -> u64 {
        let since = u128::from(instant.as_millis().saturating_sub(self.offset_ms));
        let us = (since * 1000 * MILLION).div_ceil(u128::from(self.rate));
        u64::try_from(us).unwrap_or(u64::MAX)
    }
}
