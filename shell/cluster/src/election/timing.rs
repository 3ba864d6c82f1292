//! The times of an election, and the clocks under which they are safe.
//!
//! - E8: A standby waits longer than a hold lasts, even if its clock is fast by ρ = 5 % and the primary's is slow by
//!   as much: T / H > (1 + ρ) / (1 − ρ). Other times are refused.
//! - E13: A client is promised (1 − ρ) / (1 + ρ) of the time that a primary may still serve. So by the clock of any client
//!   the promise is over before the primary stops serving, and with it before any other holder, in the same term or in
//!   another one.
//!
//! All spans are milliseconds of `CLOCK_BOOTTIME`, which also counts while the machine sleeps.

use alloc::format;
use alloc::string::String;
use core::fmt;

use latchd_protocol::time::{CLOCK_DRIFT_PERCENT, CLOCK_GRAIN_MS};

/// A primary sends a heartbeat, and a standby reads, every 400 ms (E1, E7).
pub const HEARTBEAT_MS: u64 = 400;

/// A transaction without an answer for 400 ms is followed by another one (E1, E7). Its answer still counts.
pub const RETRY_MS: u64 = 400;

/// A driver waits at most 1.2 s for an answer. With the shortest H, that is a whole hold: a later answer confirms
/// nothing there.
pub const ANSWER_MS: u64 = 3 * RETRY_MS;

/// C: a primary stops serving 400 ms before the end of its hold, for the time between a check of the clock and the
/// effect of the step that it permits (E2).
pub const MARGIN_MS: u64 = 400;

/// A standby reads every 100 ms while the primary leaves (E7).
pub const LEAVING_MS: u64 = 100;

/// H, unless the ring has another one.
pub const HOLD_MS: u64 = 3600;

/// T, unless the ring has another one.
pub const WAIT_MS: u64 = 4000;

/// The longest H and T: ten minutes without a primary is no failover any more.
pub const SPAN_MS_MAX: u64 = 600_000;

/// The shortest H: two heartbeats can be lost before a primary stops serving.
pub const HOLD_MS_MIN: u64 = MARGIN_MS + 2 * HEARTBEAT_MS;

/// H and T of a ring, checked (E8).
///
/// ```
/// use latchd_cluster::election::Timing;
///
/// assert!(Timing::new(3600, 4000).is_ok());
/// let error = Timing::new(3600, 3900).unwrap_err();
/// assert_eq!(error.to_string(), "wait_ms 3900 is too short for hold_ms 3600; use at least 3980");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Timing {
    hold_ms: u64,
    wait_ms: u64,
}

/// Times that are not safe, or beyond a bound.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TimingError {
    /// H is not within [`HOLD_MS_MIN`] and [`SPAN_MS_MAX`].
    Hold(u64),
    /// T is over [`SPAN_MS_MAX`].
    Wait(u64),
    /// T is too short for H (E8).
    Ratio(Timing),
}

impl Timing {
    /// Checks H (`hold_ms`) and T (`wait_ms`).
    ///
    /// # Errors
    /// [`TimingError`], with the legal range.
    pub const fn new(hold_ms: u64, wait_ms: u64) -> Result<Self, TimingError> {
        let timing = Self { hold_ms, wait_ms };
        if hold_ms < HOLD_MS_MIN || hold_ms > SPAN_MS_MAX {
            Err(TimingError::Hold(hold_ms))
        } else if wait_ms > SPAN_MS_MAX {
            Err(TimingError::Wait(wait_ms))
        } else if wait_ms < timing.wait_ms_min() {
            Err(TimingError::Ratio(timing))
        } else {
            Ok(timing)
        }
    }

    /// The same without E8, for a proof that needs it.
    #[cfg(feature = "verify")]
    #[must_use]
    pub const fn unchecked(hold_ms: u64, wait_ms: u64) -> Self {
        Self { hold_ms, wait_ms }
    }

    /// H: how long a heartbeat that the authority has executed keeps the partition, from the moment it was sent.
    #[must_use]
    pub const fn hold_ms(self) -> u64 {
        self.hold_ms
    }

    /// T: how long a standby sees an unchanged record before it claims the partition.
    #[must_use]
    pub const fn wait_ms(self) -> u64 {
        self.wait_ms
    }

    /// The longest time for which a client can believe in a promise of a primary that has ended, by the clock of any other
    /// process (E13): the primary could have served for as long. The division in
    /// [`promise_ms`](latchd_protocol::time::promise_ms) covers the rates of both
    /// clocks.
    pub(super) const fn promise_ms_max(self) -> u64 {
        self.hold_ms - MARGIN_MS + CLOCK_GRAIN_MS
    }

    /// The shortest T for this H.
    const fn wait_ms_min(self) -> u64 {
        let (slow, fast) = (100 - CLOCK_DRIFT_PERCENT, 100 + CLOCK_DRIFT_PERCENT);
        self.hold_ms * fast / slow + 1 + CLOCK_GRAIN_MS
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            hold_ms: HOLD_MS,
            wait_ms: WAIT_MS,
        }
    }
}

impl TimingError {
    /// The message, with the names under which the caller knows H and T.
    #[must_use]
    pub fn named(&self, hold: &str, wait: &str) -> String {
        match self {
            Self::Hold(ms) => {
                format!("{hold} {ms} is out of range; use {HOLD_MS_MIN} to {SPAN_MS_MAX}")
            }
            Self::Wait(ms) => format!("{wait} {ms} is out of range; use at most {SPAN_MS_MAX}"),
            Self::Ratio(timing) => format!(
                "{wait} {} is too short for {hold} {}; use at least {}",
                timing.wait_ms,
                timing.hold_ms,
                timing.wait_ms_min()
            ),
        }
    }
}

impl fmt::Display for TimingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.named("hold_ms", "wait_ms"))
    }
}

impl core::error::Error for TimingError {}

#[cfg(test)]
mod tests {
    use latchd_protocol::time::promise_ms;

    use super::*;

    #[test]
    fn the_shortest_wait_outlasts_a_hold_under_drift() {
        let Timing { hold_ms, wait_ms } = Timing::default();
        assert_eq!(Timing::new(hold_ms, wait_ms), Ok(Timing::default()));
        for hold_ms in HOLD_MS_MIN..10_000 {
            let shortest = Timing {
                hold_ms,
                wait_ms: 0,
            }
            .wait_ms_min();
            assert!(
                (shortest - CLOCK_GRAIN_MS) * (100 - CLOCK_DRIFT_PERCENT)
                    > hold_ms * (100 + CLOCK_DRIFT_PERCENT)
            );
            assert!(Timing::new(hold_ms, shortest).is_ok());
            assert!(matches!(
                Timing::new(hold_ms, shortest - 1),
                Err(TimingError::Ratio(_))
            ));
        }
        let (least, most) = (HOLD_MS_MIN - 1, SPAN_MS_MAX + 1);
        assert_eq!(Timing::new(least, 9000), Err(TimingError::Hold(least)));
        assert_eq!(Timing::new(most, most), Err(TimingError::Hold(most)));
        assert_eq!(Timing::new(9000, most), Err(TimingError::Wait(most)));
    }

    /// Just before a heartbeat is confirmed, the one before it is as old as its own answer and this one took.
    #[test]
    fn promises_last_from_question_to_question() {
        // A client asks three times in a promise: at least the time for two answers of this length is left then.
        let answer_ms = 100;
        let least = |answer_ms: u64| {
            let age = answer_ms.max(HEARTBEAT_MS) + answer_ms;
            promise_ms(HOLD_MS - MARGIN_MS - age)
        };
        assert_eq!([20, 400, ANSWER_MS].map(least), [2514, 2170, 722]);
        assert!(least(ANSWER_MS) * 2 / 3 > 2 * answer_ms);
    }
}
