//! Waiting for a value that another client computes: on the server if it has such waits, otherwise by asking
//! again.
//!
//! The first request for a value is without a wait. So if another client computes it, the server says so
//! itself, and this is not concluded from silence. A value that is good for all readers (one that is only about
//! to expire) needs no wait.
//!
//! - M1: If a server does not understand the flags, memcached's flags are used from then on, once per
//!   connection.
//! - M2: If a server binds no more wins, or accepts no more waiters, this read uses memcached's flags.
//! - M3: A wait that ends early without an answer is a try in vain. The next one comes after the pause of the
//!   strategy, so neither side is kept busy.

use core::time::Duration;

use latchd_protocol::command::WAIT_MS_MAX;
use latchd_protocol::time::Instant;

use super::{Query, Recompute, RecomputeGoal, WinSupport};
use crate::moment::earlier;

impl Recompute {
    /// Whether its reads ask for a win that is bound.
    pub(super) fn binds(&self) -> bool {
        self.words != WinSupport::Plain && !self.is_plain
    }

    /// How long to wait on the server, in milliseconds; `None` means not at all.
    pub(super) fn wait_left(&self, now: Instant) -> Option<u64> {
        let RecomputeGoal::Read { until } = self.goal else {
            return None;
        };
        if self.words != WinSupport::Binds || self.is_plain {
            return None;
        }
        let end = earlier(Some(until), self.tries_end)?;
        let left = end.as_millis().saturating_sub(now.as_millis());
        (left > 0).then_some(left.min(WAIT_MS_MAX))
    }

    /// Whether all tries of the strategy, had there been any, would be over by now.
    pub(super) fn has_waited_enough(&self, now: Instant) -> bool {
        self.words == WinSupport::Binds
            && !self.is_plain
            && self.tries_end.is_some_and(|end| now >= end)
    }
}

impl Query {
    /// How long the server may be silent because the request waits.
    pub(super) const fn wait(self) -> Duration {
        if let Self::Wait { ms } = self {
            return Duration::from_millis(ms);
        }
        Duration::ZERO
    }
}
