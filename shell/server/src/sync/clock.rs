//! The two clocks: what time it is for the core.
//!
//! - C1: the core's time is monotonic. A step of the wall clock moves only how dates in requests
//!   are read.
//! - C2: moment 0 lies on a whole Unix second, so that the whole seconds the core is told
//!   ([`Clock::unix_s_at_start`]) are exact, and a date in a request is as exact as a span.

use std::time::Duration;

use latchd_core::Instant;

use crate::sync::{self, since_epoch};

/// Counts the core's time from the server's start.
#[derive(Debug)]
pub(crate) struct Clock {
    started: sync::Instant,
    /// How far into a Unix second the server was started (C2): 0 to 999.
    ahead_ms: u64,
}

impl Clock {
    /// Starts counting.
    pub(crate) fn start() -> Self {
        Self {
            started: sync::Instant::now(),
            ahead_ms: u64::from(since_epoch().subsec_millis()),
        }
    }

    /// The moment it is. No system call: the kernel maps this clock into the process.
    pub(crate) fn now(&self) -> Instant {
        let since = self.started.elapsed();
        let ms = since.as_secs().saturating_mul(1000) + u64::from(since.subsec_millis());
        Instant::from_millis(ms.saturating_add(self.ahead_ms))
    }

    /// What the wall clock says was the Unix second at moment 0.
    pub(crate) fn unix_s_at_start(&self) -> u64 {
        let unix_ms = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        // The two clocks are read one after the other, so the difference is a hair off a second.
        (unix_ms + 500).saturating_sub(self.now().as_millis()) / 1000
    }

    /// How long the server has run.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// What the wall clock shows: milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}

/// What the wall clock shows: seconds since 1970, and microseconds.
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
