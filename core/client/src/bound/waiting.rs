//! `ml`: a lock with a queue on the server.
//!
//! The first request for a lock is without a wait. So if another client holds the lock, the server says so
//! itself, and this is not concluded from silence (B5). If the lock is free, which is the usual case, one
//! request is enough.
//!
//! - M1: A flag that the server does not understand is avoided from then on, once per connection. `ERROR`
//!   alone, or `CLIENT_ERROR`, means "not understood"; an `ERROR` with a message, or a `SERVER_ERROR`, is an
//!   answer.
//! - M2: If the server refuses a wait, since too many clients wait, or ends it early, that was a try in vain.
//!   The next try comes after the pause of the strategy, so neither side is kept busy.

use core::time::Duration;

use latchd_protocol::command::WAIT_MS_MAX;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::reply::Code;

use super::answers::is_leased;
use super::{Bound, BoundGoal, BoundNews, LOCK_ITEM, LockSupport, Mark, Query};
use crate::machine::{Failure, NotObtained};
use crate::moment::{after, earlier};
use crate::session::AnyResponse;

/// How much earlier than requested a true wait may end: clocks tick in milliseconds.
const EARLY: Duration = Duration::from_millis(10);

impl Bound {
    /// The answer to `ml` without a wait.
    pub(super) fn asked(
        &mut self,
        now: Instant,
        stored: (Instant, Duration),
        answer: &AnyResponse<'_>,
    ) {
        if self.is_without_hold(now, answer) {
            return;
        }
        if self.words == LockSupport::Unknown {
            self.words = if answer.is_not_understood() {
                LockSupport::Classic
            } else {
                LockSupport::Waits
            };
        }
        match answer.code() {
            Some(Code::Done) => self.granted(now, Some(stored), answer),
            Some(Code::Locked) => self.held(now),
            Some(Code::NotFound) => self.end(BoundNews::NotObtained(NotObtained::NoItem)),
            None if self.words == LockSupport::Classic && self.needs_ml() => self.is_unsupported(),
            None if self.words == LockSupport::Classic => self.begin(Query::Lock, now),
            _ => self.end(BoundNews::Failed(Failure::from_answer(answer))),
        }
    }

    /// The answer to `ml` with a wait that was to end at `end`.
    pub(super) fn waited(&mut self, now: Instant, end: Instant, answer: &AnyResponse<'_>) {
        match answer.code() {
            Some(Code::Done) => self.granted(now, None, answer),
            Some(Code::Locked) if answer.has(b'd') => {
                self.end(BoundNews::NotObtained(NotObtained::Deadlock));
            }
            Some(Code::Locked) if now >= end => self.held(now),
            Some(Code::Locked) => {
                if after(now, EARLY) < end {
                    self.words = LockSupport::Asks;
                }
                self.back_off(now);
            }
            Some(Code::NotFound) => self.end(BoundNews::NotObtained(NotObtained::NoItem)),
            None if answer.is_not_understood() => {
                self.words = LockSupport::Asks;
                self.back_off(now);
            }
            None if answer.refusal().is_some() && !answer.is_not_primary() => self.back_off(now),
            _ => self.end(BoundNews::Failed(Failure::from_answer(answer))),
        }
    }

    /// Another client holds it: waits for it, or asks again.
    fn held(&mut self, now: Instant) {
        self.heard_held = true;
        match self.wait_left(now) {
            Some(ms) => self.begin(Query::Wait { ms }, now),
            None => self.back_off(now),
        }
    }

    /// How long to wait on the server, in milliseconds; `None` means not at all.
    fn wait_left(&self, now: Instant) -> Option<u64> {
        let BoundGoal::Obtain { until, tries_end } = self.goal else {
            return None;
        };
        if self.words != LockSupport::Waits {
            return None;
        }
        let left = earlier(until, tries_end).map_or(WAIT_MS_MAX, |end| {
            end.as_millis().saturating_sub(now.as_millis())
        });
        (left > 0).then_some(left.min(WAIT_MS_MAX))
    }

    /// Whether all tries of the strategy, had there been any, would be over by now.
    pub(super) fn has_waited_enough(&self, now: Instant) -> bool {
        match self.goal {
            BoundGoal::Obtain {
                tries_end: Some(end),
                ..
            } => self.words == LockSupport::Waits && now >= end,
            BoundGoal::Obtain { .. } | BoundGoal::None | BoundGoal::Hold => false,
        }
    }

    /// It is ours, as the key's lock. `stored`: the sending time and the ttl, if the moment of the grant is
    /// known (E1).
    fn granted(
        &mut self,
        now: Instant,
        stored: Option<(Instant, Duration)>,
        answer: &AnyResponse<'_>,
    ) {
        let fence = answer.number(b'F').filter(|fence| *fence > 0);
        if fence.is_none() {
            // The connection is closed, which releases the lock.
            return self.end(BoundNews::Failed(Failure::Unexpected));
        }
        (self.number, self.of_key) = (fence, true);
        if self.terms.lease.is_some() {
            return match stored {
                Some(stored) => self.leased(now, stored, answer),
                None if answer.has(b's') => self.obstructed(now),
                None if self.terms.is_place => self.obtained(),
                None => self.begin(Query::Renew, now),
            };
        }
        if is_leased(answer) {
            return self.obstructed(now);
        }
        match (&self.terms.mark, answer.number(b'f')) {
            (Mark::None | Mark::Number, _) => self.obtained(),
            (Mark::Note(..), Some(flags)) if flags != u64::from(LOCK_ITEM) => {
                self.begin(Query::GiveUp, now);
            }
            // There is no item, or one of a holder that has died: it is ours now.
            (Mark::Note(..), _) => {
                self.ours = true;
                self.begin(Query::Mark, now);
            }
        }
    }
}
