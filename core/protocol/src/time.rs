//! Points and spans of time, as the core counts them.
//!
//! The core has no clock: every event carries an [`Instant`], and the wall clock reaches it as the
//! offset of [`Clock`]. Inside an item, time is kept in ticks of a quarter second, so that a
//! deadline fits 32 bits and still meets the promise of the protocol page:
//!
//! - T1: An item never expires before its TTL has passed.
//! - T2: An item is never readable more than 250 ms after its TTL has passed.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Expiration times"; `memcached.c:realtime`. Where we
//! differ: docs/PROTOCOL.md, "Time".

use core::time::Duration;

/// Milliseconds in a [`Tick`].
pub const TICK_MS: u64 = 1000 / TICKS_PER_SECOND as u64;

/// Ticks in a second.
const TICKS_PER_SECOND: u32 = 4;

/// The longest exptime that is a span and not a date: 30 days in seconds.
///
/// Source: memcached 1.6.45 `memcached.c`, `REALTIME_MAXDELTA`.
pub const RELATIVE_EXPTIME_MAX_S: i64 = 60 * 60 * 24 * 30;

/// ρ, in percent: the clock of any machine gains or loses less.
pub const CLOCK_DRIFT_PERCENT: u64 = 5;

/// A clock is read in whole milliseconds, so a measured span may be this much longer than the real one.
pub const CLOCK_GRAIN_MS: u64 = 1;

/// Returns the time in milliseconds that a server may promise a client, of the `left_ms` that it may still serve by its own
/// clock. By the clock of any client, the promise is over before the server stops serving.
///
/// ```
/// use latchd_protocol::time::promise_ms;
///
/// assert_eq!(promise_ms(3200), 2894);
/// assert_eq!(promise_ms(0), 0);
/// ```
#[must_use]
pub const fn promise_ms(left_ms: u64) -> u64 {
    let (slow, fast) = (100 - CLOCK_DRIFT_PERCENT, 100 + CLOCK_DRIFT_PERCENT);
    left_ms.saturating_sub(CLOCK_GRAIN_MS).saturating_mul(slow) / fast
}

/// A point in time: milliseconds since the core was made.
///
/// It is an input of every event. A transport takes it from a monotonic clock, a test or a model
/// makes it up.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instant(u64);

impl Instant {
    /// The moment `ms` milliseconds after the core was made.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the core was made.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The end of a span that begins now and lasts at least so many milliseconds. A clock that has just shown this moment may
    /// have begun the next one already, so the end is one more.
    #[must_use]
    pub const fn end_after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms).saturating_add(1))
    }

    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The tick this moment lies in.
    #[must_use]
    pub const fn tick(self) -> Tick {
        Tick::at_or_before(self.0 / TICK_MS)
    }
}

impl From<Duration> for Instant {
    /// The moment this long after the core was made; less than a millisecond does not count.
    fn from(since_start: Duration) -> Self {
        Self(saturating_millis(since_start))
    }
}

/// A span in milliseconds: 64 bits last 500 million years.
#[must_use]
pub fn saturating_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A quarter second, counted since the core was made; from the 17th year on, a whole one.
///
/// So 32 bits reach 85 years far, and every date that a 32-bit count of Unix seconds can name. A
/// date is a whole second, so nothing is lost on it; only a process that runs for 17 years sees an
/// item up to a second after its TTL (T2).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Tick(u32);

/// The first tick that is a whole second.
const COARSE_FROM: u32 = 1 << 31;

impl Tick {
    /// The tick that a moment lies in, given in quarter seconds.
    const fn at_or_before(quarters: u64) -> Self {
        let coarse = COARSE_FROM as u64;
        Self::saturating(if quarters < coarse {
            quarters
        } else {
            coarse + (quarters - coarse) / TICKS_PER_SECOND as u64
        })
    }

    /// The first tick that begins at this moment or later, given in quarter seconds.
    const fn at_or_after(quarters: u64) -> Self {
        let coarse = COARSE_FROM as u64;
        Self::saturating(if quarters < coarse {
            quarters
        } else {
            coarse + (quarters - coarse).div_ceil(TICKS_PER_SECOND as u64)
        })
    }

    const fn saturating(ticks: u64) -> Self {
        // The cast keeps the value: it is at most `u32::MAX`.
        #[allow(clippy::cast_possible_truncation)]
        Self(if ticks > u32::MAX as u64 {
            u32::MAX
        } else {
            ticks as u32
        })
    }

    /// When it begins, in quarter seconds.
    const fn quarters(self) -> u64 {
        if self.0 < COARSE_FROM {
            self.0 as u64
        } else {
            let seconds = self.0 - COARSE_FROM;
            COARSE_FROM as u64 + seconds as u64 * TICKS_PER_SECOND as u64
        }
    }

    /// The tick with this number.
    #[must_use]
    pub const fn from_count(count: u32) -> Self {
        Self(count)
    }

    /// How many ticks lie between the core's making and this one. Ticks compare as their counts do.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// Whole seconds from `earlier` to this tick; 0 if `earlier` is later.
    #[must_use]
    pub const fn seconds_since(self, earlier: Self) -> u32 {
        saturating_seconds(self.quarters().saturating_sub(earlier.quarters()))
    }
}

/// Whole seconds in this number of quarters: 136 years at most.
const fn saturating_seconds(quarters: u64) -> u32 {
    let seconds = quarters / TICKS_PER_SECOND as u64;
    // The cast keeps the value: it is at most `u32::MAX`.
    #[allow(clippy::cast_possible_truncation)]
    if seconds > u32::MAX as u64 {
        u32::MAX
    } else {
        seconds as u32
    }
}

/// When an item expires: the first tick in which it has expired.
///
/// "Never" is `None` of an `Option<Deadline>`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Deadline(Tick);

impl Deadline {
    /// The deadline that passes when `tick` begins.
    #[must_use]
    pub const fn at(tick: Tick) -> Self {
        Self(tick)
    }

    /// The first tick in which the item has expired.
    #[must_use]
    pub const fn tick(self) -> Tick {
        self.0
    }

    /// The first moment at which the item has expired.
    #[must_use]
    pub const fn begins(self) -> Instant {
        Instant(self.0.quarters().saturating_mul(TICK_MS))
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn has_passed(self, now: Tick) -> bool {
        self.0 <= now
    }

    /// Seconds that remain, as `t` of meta get shows them: 0 once the deadline has passed.
    ///
    /// A deadline is rounded up to a tick (T1). So up to one tick of the remaining time is not part of the
    /// requested TTL. It is subtracted before rounding up to a second.
    #[must_use]
    pub const fn remaining_s(self, now: Tick) -> u32 {
        saturating_seconds(self.0.quarters().saturating_sub(now.quarters()) + 2)
    }
}

/// The exptime of a request, with its meaning decoded.
///
/// Source: memcached 1.6.45 `doc/protocol.txt`, "Expiration times".
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Exptime {
    /// 0: the item never expires.
    #[default]
    Never,
    /// A negative number: the item has already expired.
    Past,
    /// 1 to 2 592 000 (30 days): seconds from now.
    In {
        /// The span in seconds.
        seconds: u32,
    },
    /// Anything above 30 days: seconds since 1970.
    At {
        /// The date in Unix seconds.
        unix_s: u64,
    },
}

impl Exptime {
    /// Reads the number that a request carries.
    #[must_use]
    pub const fn from_wire(seconds: i64) -> Self {
        // Both casts keep the value: the arms bound it.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        match seconds {
            0 => Self::Never,
            i64::MIN..=-1 => Self::Past,
            1..=RELATIVE_EXPTIME_MAX_S => Self::In {
                seconds: seconds as u32,
            },
            _ => Self::At {
                unix_s: seconds as u64,
            },
        }
    }

    /// The number a client writes into a request to mean this.
    #[must_use]
    pub const fn to_wire(self) -> i64 {
        match self {
            Self::Never => 0,
            Self::Past => -1,
            Self::In { seconds } => seconds as i64,
            // A date past the year 292 billion is not one that `from_wire` returns.
            #[allow(clippy::cast_possible_wrap)]
            Self::At { unix_s } => unix_s as i64,
        }
    }
}

/// The time of one event: the monotonic moment, and the offset of the wall clock.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Clock {
    /// The moment of the event.
    pub now: Instant,
    /// Unix seconds at [`Instant`] 0. A date in a request is turned into a span with it.
    pub unix_s_at_start: u64,
}

impl Clock {
    /// The tick of the event.
    #[must_use]
    pub const fn tick(&self) -> Tick {
        self.now.tick()
    }

    /// The Unix second that `tick` begins in.
    #[must_use]
    pub const fn unix_s(&self, tick: Tick) -> u64 {
        self.unix_s_at_start
            .saturating_add(tick.quarters() / TICKS_PER_SECOND as u64)
    }

    /// The Unix millisecond that `tick` begins in.
    #[must_use]
    pub const fn unix_ms(&self, tick: Tick) -> u64 {
        self.unix_s_at_start
            .saturating_mul(1000)
            .saturating_add(tick.quarters() * TICK_MS)
    }

    /// The deadline that passes at this Unix millisecond, or has passed if that is over.
    #[must_use]
    pub const fn deadline_at_unix_ms(&self, unix_ms: u64) -> Deadline {
        // Whole Unix seconds begin where the wall clock says; `now` is that much further.
        let now_ms = self
            .unix_s_at_start
            .saturating_mul(1000)
            .saturating_add(self.now.as_millis());
        if unix_ms <= now_ms {
            Deadline(self.tick())
        } else {
            self.after_ms(unix_ms - now_ms)
        }
    }

    /// Resolves an exptime to a deadline; `None` is "never".
    ///
    /// Rounds up to a tick (T1). A date at or before now is a deadline that has passed.
    #[must_use]
    pub const fn deadline(&self, exptime: Exptime) -> Option<Deadline> {
        match exptime {
            Exptime::Never => None,
            Exptime::Past => Some(Deadline(self.tick())),
            Exptime::In { seconds } => Some(self.after_ms(seconds as u64 * 1000)),
            Exptime::At { unix_s } => Some(self.deadline_at_unix_ms(unix_s.saturating_mul(1000))),
        }
    }

    /// Milliseconds from now until `exptime`, for a `flush_all` at a later moment; 0 for one at once.
    #[must_use]
    pub const fn delay_ms(&self, exptime: Exptime) -> u64 {
        match exptime {
            Exptime::Never | Exptime::Past => 0,
            Exptime::In { seconds } => seconds as u64 * 1000,
            Exptime::At { unix_s } => unix_s.saturating_mul(1000).saturating_sub(
                self.unix_s_at_start
                    .saturating_mul(1000)
                    .saturating_add(self.now.as_millis()),
            ),
        }
    }

    const fn after_ms(&self, ms: u64) -> Deadline {
        Deadline(Tick::at_or_after(
            self.now.as_millis().saturating_add(ms).div_ceil(TICK_MS),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(ms: u64) -> Clock {
        Clock {
            now: Instant::from_millis(ms),
            unix_s_at_start: 1_700_000_000,
        }
    }

    #[test]
    fn item_outlives_its_ttl_by_250_ms() {
        for start_ms in [0, 1, 249, 250, 251, 999, 12_345] {
            let deadline = clock(start_ms)
                .deadline(Exptime::In { seconds: 3 })
                .unwrap();
            assert!(
                !deadline.has_passed(clock(start_ms + 2_999).tick()),
                "T1 from {start_ms}"
            );
            assert!(
                deadline.has_passed(clock(start_ms + 3_250).tick()),
                "T2 from {start_ms}"
            );
        }
    }

    #[test]
    fn the_ttl_shown_starts_at_the_ttl_asked_for() {
        for start_ms in [0, 1, 249, 250, 251, 999] {
            let clock = clock(start_ms);
            let deadline = clock.deadline(Exptime::In { seconds: 30 }).unwrap();
            assert_eq!(deadline.remaining_s(clock.tick()), 30);
        }
    }

    #[test]
    fn the_ttl_shown_never_grows() {
        let deadline = clock(7).deadline(Exptime::In { seconds: 5 }).unwrap();
        let shown: alloc::vec::Vec<u32> = (0..6_000)
            .map(|ms| deadline.remaining_s(clock(7 + ms).tick()))
            .collect();
        assert!(shown.windows(2).all(|pair| pair[1] <= pair[0]));
        assert_eq!((shown[0], shown[5_999]), (5, 0));
    }

    #[test]
    fn a_date_is_a_span_from_now() {
        let clock = clock(10_000);
        assert_eq!(
            clock.deadline(Exptime::At {
                unix_s: 1_700_000_040
            }),
            clock.deadline(Exptime::In { seconds: 30 })
        );
        let past = clock
            .deadline(Exptime::At {
                unix_s: 1_700_000_010,
            })
            .unwrap();
        assert!(past.has_passed(clock.tick()));
    }

    #[test]
    fn a_date_far_away_is_shown_as_that_date() {
        const YEAR_S: u64 = 31_557_600;
        for years in [16, 18, 34, 35, 60] {
            let clock = clock(10_000);
            let seconds = years * YEAR_S;
            let date = Exptime::At {
                unix_s: 1_700_000_010 + seconds,
            };
            let deadline = clock.deadline(date).unwrap();
            assert_eq!(u64::from(deadline.remaining_s(clock.tick())), seconds);
            // T1, T2: a date is a whole second, also where ticks are.
            let end_ms = 10_000 + seconds * 1000;
            let at = |ms| Instant::from_millis(ms).tick();
            assert!(!deadline.has_passed(at(end_ms - 1)), "{years} years");
            assert!(deadline.has_passed(at(end_ms)), "{years} years");
        }
    }

    #[test]
    fn the_last_tick_is_never_passed_over() {
        let far = Exptime::At { unix_s: u64::MAX };
        let deadline = clock(0).deadline(far).unwrap();
        assert_eq!(deadline.tick(), Tick::from_count(u32::MAX));
        assert!(deadline.remaining_s(Tick::default()) > 85 * 31_000_000);
    }

    #[test]
    fn exptimes_are_told_apart_as_the_protocol_says() {
        assert_eq!(Exptime::from_wire(0), Exptime::Never);
        assert_eq!(Exptime::from_wire(-1), Exptime::Past);
        assert_eq!(
            Exptime::from_wire(2_592_000),
            Exptime::In { seconds: 2_592_000 }
        );
        assert_eq!(
            Exptime::from_wire(2_592_001),
            Exptime::At { unix_s: 2_592_001 }
        );
        for wire in [0, -1, 1, 2_592_000, 2_592_001, i64::MAX] {
            assert_eq!(Exptime::from_wire(wire).to_wire(), wire);
        }
    }

    /// Where ticks become whole seconds, and where they end: to the tick.
    #[test]
    fn ticks_and_quarters_fit_together_at_both_ends_of_the_seconds() {
        const COARSE: u64 = COARSE_FROM as u64;
        let before = |quarters| Tick::at_or_before(quarters).count();
        let after = |quarters| Tick::at_or_after(quarters).count();
        let count = |quarters| u32::try_from(quarters).unwrap();
        for quarters in [0, 1, COARSE - 1, COARSE] {
            assert_eq!(before(quarters), count(quarters));
            assert_eq!(after(quarters), count(quarters));
            assert_eq!(Tick::from_count(count(quarters)).quarters(), quarters);
        }
        assert_eq!(
            [1, 3, 4].map(|more| before(COARSE + more)),
            [COARSE, COARSE, COARSE + 1].map(count)
        );
        assert_eq!(
            [1, 4, 5].map(|more| after(COARSE + more)),
            [COARSE + 1, COARSE + 1, COARSE + 2].map(count)
        );
        let last = COARSE + (u64::from(u32::MAX) - COARSE) * 4;
        assert_eq!(Tick::from_count(u32::MAX).quarters(), last);
        assert_eq!(
            [last - 1, last, last + 4, u64::MAX].map(before),
            [u32::MAX - 1, u32::MAX, u32::MAX, u32::MAX]
        );
        assert_eq!(saturating_seconds(u64::from(u32::MAX) * 4), u32::MAX);
        assert_eq!(
            saturating_seconds(u64::from(u32::MAX) * 4 - 1),
            u32::MAX - 1
        );
        assert_eq!(saturating_seconds((u64::from(u32::MAX) + 1) * 4), u32::MAX);
        assert_eq!(saturating_seconds(u64::MAX), u32::MAX);
    }

    #[test]
    fn a_span_is_a_moment_of_whole_milliseconds() {
        let span = Duration::from_micros(1_234_567);
        assert_eq!(Instant::from(span), Instant::from_millis(1_234));
        assert_eq!(Instant::from(Duration::MAX), Instant::from_millis(u64::MAX));
    }

    #[test]
    fn promise_ends_before_the_service_under_drift() {
        let (slow, fast) = (100 - CLOCK_DRIFT_PERCENT, 100 + CLOCK_DRIFT_PERCENT);
        for left_ms in 1..10_000 {
            let promised = promise_ms(left_ms);
            assert!(promised * fast <= (left_ms - CLOCK_GRAIN_MS) * slow);
            assert!((promised + 1) * fast > (left_ms - CLOCK_GRAIN_MS) * slow);
        }
        assert_eq!(promise_ms(u64::MAX), u64::MAX / fast);
    }
}
