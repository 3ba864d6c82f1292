//! A lock that also ends by time: `ml … T`. A lock of less than a second is made this way.
//!
//! - E1: A holder believes until `ttl` after the request was *sent*, and the request asks for more
//!   ([`asked_for`]). If the request waited, the moment of the grant is unknown: the lock is renewed before it
//!   is believed.
//! - E2: A renewal that shows another number has acquired the lock anew. The earlier grant ended in between,
//!   and is lost.
//! - E3: The item of such a key is another client's leased lock of a second or more
//!   ([`Lease`](crate::Lease)), or a value. The grant is released at once, and the item is looked up
//!   before the next try. Conversely, the server keeps the other client from storing its item. So the two kinds
//!   of lock exclude each other.
//! - E4: When its time is over the connection is closed, which releases any lock that the server still has for
//!   it.

use core::time::Duration;

use latchd_protocol::command::{LEASE_MS_MIN, Lease};
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::Flag;
use latchd_protocol::wire::meta::reply::Code;

use super::{Belief, Bound, BoundGoal, BoundNews, Query, Turn};
use crate::attachment::Attachment;
use crate::machine::{Failure, Feature, Loss};
use crate::moment::{after, earlier, millis};
use crate::session::AnyResponse;
use crate::terms::{DRIFT_PART, TICK_MS};

/// The lease that a request asks for, so that it outlives the belief in it: one percent and ten milliseconds
/// more than `ttl`.
pub(super) fn asked_for(ttl: Duration) -> Flag<'static> {
    let ttl_ms = millis(ttl);
    let ms = ttl_ms
        .saturating_add(ttl_ms.div_ceil(DRIFT_PART))
        .saturating_add(TICK_MS);
    Flag::Lease(Lease::For {
        ms: ms.max(LEASE_MS_MIN),
    })
}

impl Bound {
    /// Asks for `ttl` from now on, also with every later renewal. Ends in [`Refreshed`](BoundNews::Refreshed),
    /// [`Undone`](BoundNews::Undone), [`Lost`](BoundNews::Lost) or [`NotHeld`](BoundNews::NotHeld). A lock
    /// without a lease gets none.
    pub fn refresh(&mut self, ttl: Duration) {
        if let Some(lease) = &mut self.terms.lease {
            lease.ttl = ttl;
        }
        self.want(super::Job::Refresh);
    }

    /// When it is lost without a renewal, or without a sign of life of its session; `None` if it is not ours, or never
    /// expires.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.goal {
            BoundGoal::Hold => earlier(
                earlier(
                    self.belief.map(|belief| belief.deadline),
                    self.session.as_ref().and_then(Attachment::believed_until),
                ),
                self.held_until(),
            ),
            BoundGoal::None | BoundGoal::Obtain { .. } => None,
        }
    }

    /// Whether `lock` cannot express it.
    pub(super) const fn needs_ml(&self) -> bool {
        self.terms.lease.is_some() || self.terms.mode.is_shared() || self.needs_meta
    }

    /// The server does not support it.
    pub(super) fn is_unsupported(&mut self) {
        let feature = if self.terms.mode.is_shared() {
            Feature::SharedLocks
        } else if self.terms.lease.is_some() {
            Feature::ShortLeases
        } else {
            Feature::AnyKeys
        };
        self.end(BoundNews::Failed(Failure::Unsupported(feature)));
    }

    /// An answer to a request sent at `sent` granted the lock for `ttl`.
    pub(super) fn leased(
        &mut self,
        now: Instant,
        (sent, ttl): (Instant, Duration),
        answer: &AnyResponse<'_>,
    ) {
        if answer.has(b's') {
            // E3.
            return self.obstructed(now);
        }
        if now >= after(sent, ttl) {
            return self.begin(Query::Renew, now);
        }
        self.believe(now, sent, ttl);
        self.obtained();
    }

    /// The answer to a renewal.
    pub(super) fn renewed(
        &mut self,
        now: Instant,
        (sent, ttl): (Instant, Duration),
        answer: &AnyResponse<'_>,
    ) {
        let fence = answer.number(b'F').filter(|fence| *fence > 0);
        self.undone_renewal = None;
        match (self.goal, answer.code(), fence) {
            (BoundGoal::Obtain { .. }, Some(Code::Done), Some(_)) => {
                self.number = fence;
                self.leased(now, (sent, ttl), answer);
            }
            (BoundGoal::Obtain { .. }, Some(Code::Locked), _) => self.back_off(now),
            (BoundGoal::Hold, Some(Code::Done), Some(_)) if fence == self.number => {
                self.believe(now, sent, ttl);
            }
            (BoundGoal::Hold, Some(_), _) => self.lose(Loss::Taken),
            (BoundGoal::Hold, None, _) => {
                self.renew_at = Some(after(now, ttl / 10));
                self.undone_renewal = Some(Failure::from_answer(answer));
            }
            _ => self.end(BoundNews::Failed(Failure::from_answer(answer))),
        }
    }

    /// E1.
    fn believe(&mut self, now: Instant, sent: Instant, ttl: Duration) {
        let Some(lease) = &self.terms.lease else {
            return;
        };
        let since = self.belief.map_or(now, |belief| belief.since);
        let mut deadline = after(sent, ttl);
        if let Some(span) = lease.hold_max {
            deadline = deadline.min(after(since, span));
        }
        self.belief = Some(Belief { deadline, since });
        self.renew_at = lease.watchdog.then_some(after(sent, ttl / 3));
    }

    /// Ends a hold after its time is over (E4).
    pub(super) fn expire(&mut self, now: Instant) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let span = self.terms.lease.as_ref().and_then(|lease| lease.hold_max);
        let is_capped = self
            .belief
            .zip(span)
            .is_some_and(|(belief, span)| now >= after(belief.since, span));
        self.lose(if is_capped {
            Loss::HeldTooLong
        } else if self.held_until().is_some_and(|until| now >= until) {
            Loss::Unconfirmed
        } else {
            Loss::Expired
        });
    }

    pub(super) fn lose(&mut self, loss: Loss) {
        // A session is ended over the same connection if that can hear it.
        if self.session.is_none() || matches!(self.turn, Turn::Awaiting { .. }) {
            self.link = super::Link::Unwanted;
        }
        self.end(BoundNews::Lost(loss));
    }

    /// The ttl that requests ask for now.
    pub(super) fn ttl(&self) -> Duration {
        self.terms
            .lease
            .as_ref()
            .map_or(Duration::ZERO, |lease| lease.ttl)
    }
}
