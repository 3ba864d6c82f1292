//! The two clocks: the monotonic clock, which gives the core its time, and the wall clock.
//!
//! - C1: The core's time is monotonic. A step of the wall clock affects only the interpretation of dates in
//!   requests.
//! - C2: Moment 0 is a whole Unix second. So the core's whole seconds ([`Clock::unix_s_at_start`]) are exact,
//!   and a date in a request is as exact as a relative time.
//!
//! A proof can stop the core's time and set it (`Clock::set`).

#[cfg(feature = "verify")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use latchd_core::Instant;

use crate::sync::{self, since_epoch};

/// The core's time, counted from the server's start.
#[derive(Debug)]
pub(crate) struct Clock {
    started: sync::Instant,
    /// The offset of the server's start within its Unix second (C2): 0 to 999.
    ahead_ms: u64,
    /// The moment that a proof has set, in milliseconds; 0 while time passes.
    #[cfg(feature = "verify")]
    set_ms: AtomicU64,
}

impl Clock {
    /// Starts counting.
    pub(crate) fn start() -> Self {
        Self {
            started: sync::Instant::now(),
            ahead_ms: u64::from(since_epoch().subsec_millis()),
            #[cfg(feature = "verify")]
            set_ms: AtomicU64::new(0),
        }
    }

    /// Stops at this moment, which is not 0, until the next call.
    #[cfg(feature = "verify")]
    pub(crate) fn set(&self, now: Instant) {
        self.set_ms.store(now.as_millis(), Ordering::Relaxed);
    }

    /// The current moment. No system call: the kernel maps this clock into the process.
    pub(crate) fn now(&self) -> Instant {
        #[cfg(feature = "verify")]
        if let ms @ 1.. = self.set_ms.load(Ordering::Relaxed) {
            return Instant::from_millis(ms);
        }
        let since = self.started.elapsed();
        let ms = since.as_secs().saturating_mul(1000) + u64::from(since.subsec_millis());
        Instant::from_millis(ms.saturating_add(self.ahead_ms))
    }

    /// The Unix second of moment 0, according to the wall clock.
    pub(crate) fn unix_s_at_start(&self) -> u64 {
        let unix_ms = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        // The two clocks are read one after the other, so the difference may not be a whole second.
        (unix_ms + 500).saturating_sub(self.now().as_millis()) / 1000
    }

    /// The time since the server's start.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// The wall clock: milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}

/// The wall clock: seconds since 1970, and microseconds.
pub(crate) fn unix_now() -> (u64, u32) {
    let since = since_epoch();
    (since.as_secs(), since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_and_the_wall_clock_agree() {
        let clock = Clock::start();
        let unix_ms = clock.unix_s_at_start() * 1000 + clock.now().as_millis();
        let wall_ms = u64::try_from(since_epoch().as_millis()).unwrap();
        assert!(
            unix_ms.abs_diff(wall_ms) < 100,
            "{unix_ms} is not {wall_ms}"
        );
    }

    #[test]
    fn time_does_not_run_back() {
        let clock = Clock::start();
        let earlier = clock.now();
        assert!(clock.now() >= earlier);
    }
}
