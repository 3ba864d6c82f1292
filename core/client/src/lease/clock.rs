//! The effect of time alone on a lease, and the time of its next action.

use latchd_protocol::time::Instant;

use super::{Lease, LeaseGoal, LeaseNews, Link, Query, Turn};
use crate::machine::{Failure, Loss, NotObtained};
use crate::moment::{after, earlier};
use crate::terms::{LAST_TRY, SILENCE};

impl Lease {
    /// The effect of time alone.
    pub(super) fn pass_time(&mut self, now: Instant) {
        match (self.goal, self.belief) {
            (LeaseGoal::Hold, Some(belief)) if now >= belief.deadline => {
                self.lose(if self.is_capped(now) {
                    Loss::HeldTooLong
                } else {
                    Loss::Expired
                });
            }
            (LeaseGoal::Obtain { until }, _) if now >= after(until, LAST_TRY) => {
                if let Turn::Awaiting {
                    query: Query::Add, ..
                } = self.turn
                {
                    self.unresolved = true;
                }
                self.end(if self.is_known_held(now) {
                    LeaseNews::NotObtained(NotObtained::Deadline)
                } else if self.heard_held && self.link != Link::Up {
                    LeaseNews::Failed(Failure::Disconnected)
                } else {
                    LeaseNews::Failed(Failure::NoAnswer)
                });
            }
            (LeaseGoal::Release { until }, _) if now >= until => {
                self.end(LeaseNews::Failed(Failure::NoAnswer));
            }
            _ => {}
        }
    }

    /// Whether another client holds it by the server's answer, and that answer still counts: the server has not
    /// been silent for long since.
    fn is_known_held(&self, now: Instant) -> bool {
        let answers = match (self.turn, self.link) {
            (Turn::Awaiting { sent, .. }, _) => now < after(sent, SILENCE),
            (Turn::Due { .. } | Turn::Rest, Link::Up) => true,
            (Turn::Due { .. } | Turn::Rest, Link::Down { .. }) => false,
        };
        self.heard_held && answers
    }

    /// When a hold that began at `since` reaches its longest time.
    pub(super) fn hold_end(&self, since: Instant) -> Option<Instant> {
        Some(after(since, self.terms.hold_max?))
    }

    /// Whether it was held for its longest time.
    pub(super) fn is_capped(&self, now: Instant) -> bool {
        let end = self.belief.and_then(|belief| self.hold_end(belief.since));
        end.is_some_and(|end| now >= end)
    }

    /// When the goal ends by time alone, without any answer.
    pub(crate) fn goal_end(&self) -> Option<Instant> {
        match self.goal {
            LeaseGoal::Obtain { until } => Some(after(until, LAST_TRY)),
            LeaseGoal::Release { until } => Some(until),
            LeaseGoal::Hold => self.belief.map(|belief| belief.deadline),
            LeaseGoal::None => None,
        }
    }

    /// When the next action by time alone is due.
    pub(super) fn wake(&self) -> Option<Instant> {
        // Nothing is sent before the answer about the place (C4): a request that is due waits until then.
        if let Some(overdue) = self.place_overdue() {
            return earlier(self.goal_end(), Some(overdue));
        }
        let turn = match self.turn {
            Turn::Awaiting { sent, .. } => Some(after(sent, self.terms.reply_timeout)),
            Turn::Due { at, .. } => Some(match self.link {
                Link::Down { retry_at } => at.max(retry_at),
                Link::Up => at,
            }),
            Turn::Rest => self.renew_at,
        };
        earlier(self.goal_end(), turn)
    }
}
