//! Waiting for what another computes: on the server where it lets us, by asking again where not.
//!
//! A value is asked for without a wait first: somebody who computes it is then told of by the server itself, and not by
//! its silence, and what is good for all (a value that is only about to expire) is waited for by nobody.
//!
//! - M1: what a server does not understand is asked in memcached's words, once a connection.
//! - M2: a server that binds no more wins, or lets nobody else wait, is asked in memcached's words for this read.
//! - M3: a wait that ends early without an answer is a try that was in vain: the next comes after the pause of the
//!   strategy, so nobody is kept busy.

use core::time::Duration;

use super::{Query, Recompute, RecomputeGoal, WinWords};
use crate::client::moment::earlier;
use crate::limits::WAIT_MS_MAX;
use crate::time::Instant;

impl Recompute {
    /// Whether its reads ask for a win that is bound.
    pub(super) fn binds(&self) -> bool {
        self.words != WinWords::Plain && !self.is_plain
    }

    /// How long to wait on the server, in milliseconds; `None` is not at all.
    pub(super) fn wait_left(&self, now: Instant) -> Option<u64> {
        let RecomputeGoal::Read { until } = self.goal else {
            return None;
        };
        if self.words != WinWords::Binds || self.is_plain {
            return None;
        }
        let end = earlier(Some(until), self.tries_end)?;
        let left = end.as_millis().saturating_sub(now.as_millis());
        (left > 0).then_some(left.min(WAIT_MS_MAX))
    }

    /// Whether all tries would be over by now, had there been any.
    pub(super) fn has_waited_enough(&self, now: Instant) -> bool {
        self.words == WinWords::Binds
            && !self.is_plain
            && self.tries_end.is_some_and(|end| now >= end)
    }
}

impl Query {
    /// How long the server may be silent because it was asked to wait.
    pub(super) const fn wait(self) -> Duration {
        match self {
            Self::Wait { ms } => Duration::from_millis(ms),
            Self::Goal | Self::Uptime => Duration::ZERO,
        }
    }
}
