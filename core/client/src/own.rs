//! What the two kinds of lock have in common: the holder's calls, and a belief that ends by itself.

use core::time::Duration;

use latchd_protocol::time::Instant;

use super::machine::Loss;
use super::moment::after;

/// A call of the holder.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Call {
    None,
    Check,
    Refresh(Duration),
}

impl Call {
    /// The time to ask for: a new one, or that of the terms.
    pub(super) const fn ttl(self, of_terms: Duration) -> Duration {
        match self {
            Self::Refresh(ttl) => ttl,
            Self::None | Self::Check => of_terms,
        }
    }
}

/// The belief in a lock with a time of its own.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Own {
    pub(super) deadline: Instant,
    pub(super) since: Instant,
}

impl Own {
    /// Until `deadline`, and at most for `hold_max`.
    pub(super) fn new(deadline: Instant, since: Instant, hold_max: Option<Duration>) -> Self {
        let own = Self { deadline, since };
        let end = own.capped_at(hold_max);
        Self {
            deadline: end.map_or(deadline, |end| deadline.min(end)),
            since,
        }
    }

    /// When it has been held as long as it may.
    pub(super) fn capped_at(self, hold_max: Option<Duration>) -> Option<Instant> {
        hold_max.map(|span| after(self.since, span))
    }

    /// Why it is lost, now that it is over.
    pub(super) fn loss(self, now: Instant, hold_max: Option<Duration>) -> Loss {
        if self.capped_at(hold_max).is_some_and(|end| now >= end) {
            return Loss::HeldTooLong;
        }
        Loss::Expired
    }

    /// A request for `ttl` is sent. That may be shorter than the belief, and the answer may never come.
    pub(super) fn asks_for(&mut self, now: Instant, ttl: Duration) {
        self.deadline = self.deadline.min(after(now, ttl));
    }
}
