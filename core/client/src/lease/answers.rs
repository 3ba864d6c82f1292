//! The meaning of the answer to each of the four requests, for each goal.

use core::time::Duration;

use latchd_protocol::item::Cas;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::reply::{Code, MetaResponse};

use super::{Belief, Lease, LeaseGoal, LeaseNews, Place, Query, Refresh};
use crate::machine::{Failure, Loss, NotObtained};
use crate::moment::after;
use crate::session::AnyResponse;
use crate::terms::RECONNECT;

impl Lease {
    /// A store for `ttl`, sent at `sent`, made the item ours, with version `cas`.
    fn grip(&mut self, cas: Cas, (sent, ttl): (Instant, Duration), now: Instant) {
        self.cas = Some(cas);
        let deadline = after(sent, ttl);
        match self.goal {
            LeaseGoal::Obtain { .. } | LeaseGoal::Hold if now >= deadline => {
                self.begin(Query::Renew(cas), now);
            }
            LeaseGoal::Obtain { .. } => {
                self.unresolved = false;
                self.number = Some(cas);
                self.goal = LeaseGoal::Hold;
                self.believe(
                    Belief {
                        deadline,
                        since: now,
                    },
                    sent,
                );
                self.news.push_back(LeaseNews::Obtained);
            }
            LeaseGoal::Hold => {
                self.unresolved = false;
                let since = self.belief.map_or(now, |belief| belief.since);
                self.believe(Belief { deadline, since }, sent);
                match core::mem::replace(&mut self.refresh, Refresh::None) {
                    Refresh::Sent => self.news.push_back(LeaseNews::Refreshed),
                    Refresh::Asked => {
                        self.refresh = Refresh::Asked;
                        return self.begin(Query::Renew(cas), now);
                    }
                    Refresh::None => {}
                }
                if self.measure_asked {
                    self.begin(Query::Ask, now);
                } else if self.terms.queues {
                    self.begin(Query::Place, now);
                }
            }
            LeaseGoal::Release { .. } => self.begin(Query::Remove(cas), now),
            LeaseGoal::None => {}
        }
    }

    fn believe(&mut self, mut belief: Belief, sent: Instant) {
        if let Some(end) = self.hold_end(belief.since) {
            belief.deadline = belief.deadline.min(end);
        }
        self.belief = Some(belief);
        let third = after(sent, self.terms.ttl / 3);
        self.renew_at = self.terms.watchdog.then_some(third);
    }

    /// Another client has it.
    pub(super) fn back_off(&mut self, now: Instant, until: Instant) {
        self.cas = None;
        self.heard_held = true;
        if self.must_settle_place(now) {
            return;
        }
        match self.retries.next_turn() {
            _ if now >= until => self.end(LeaseNews::NotObtained(NotObtained::Deadline)),
            Some(_) if self.terms.queues => self.news.push_back(LeaseNews::Queues),
            Some(wait) => self.begin(Query::Add, after(now, wait).min(until)),
            None => self.end(LeaseNews::NotObtained(NotObtained::Held)),
        }
    }

    /// A renewal or a question failed, which says nothing about the owner of the lease.
    fn put_off(&mut self, now: Instant, failure: Failure) {
        let soon = after(now, self.terms.ttl / 10);
        self.renew_at = (self.terms.watchdog || self.is_in_doubt()).then_some(soon);
        if core::mem::replace(&mut self.refresh, Refresh::None) != Refresh::None {
            self.news.push_back(LeaseNews::Undone(failure.clone()));
        }
        if core::mem::take(&mut self.measure_asked) {
            self.news.push_back(LeaseNews::Undone(failure));
        }
    }

    pub(super) fn added(
        &mut self,
        now: Instant,
        stored: (Instant, Duration),
        answer: &AnyResponse<'_>,
    ) {
        // An obtain takes over an item with our own token from an earlier obtain. A release leaves that item
        // alone.
        let own = self.terms.own_token && matches!(self.goal, LeaseGoal::Obtain { .. });
        match (answer.code(), cas_of(answer)) {
            (Some(Code::Done), Some(cas)) => return self.grip(cas, stored, now),
            (Some(Code::NotStored), _) if own || self.unresolved => {
                return self.begin(Query::Ask, now);
            }
            // The grant of the key's lock is over: `EX`.
            (Some(Code::NotStored | Code::Locked | Code::Exists), _) => {}
            _ => return self.fail(now, answer),
        }
        match self.goal {
            LeaseGoal::Obtain { until } => self.back_off(now, until),
            LeaseGoal::Release { .. } => self.end(LeaseNews::NotHeld),
            LeaseGoal::Hold | LeaseGoal::None => {}
        }
    }

    pub(super) fn asked(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let ours = match answer {
            AnyResponse::Meta(MetaResponse {
                code: Code::Value,
                value,
                ..
            }) if self.token().owns(value) => cas_of(answer),
            AnyResponse::Meta(MetaResponse {
                code: Code::Value | Code::Miss,
                ..
            }) => None,
            AnyResponse::Meta(_)
            | AnyResponse::Classic(_)
            | AnyResponse::Session(_)
            | AnyResponse::Silent => {
                return self.fail(now, answer);
            }
        };
        if let Some(cas) = ours {
            self.cas = Some(cas);
            match self.goal {
                LeaseGoal::Hold if self.measure_asked => {
                    self.measure_asked = false;
                    let left = answer.number(b't').unwrap_or_default();
                    self.news
                        .push_back(LeaseNews::Lasts(Duration::from_secs(left)));
                    // A renewal may have been broken off by the disconnect before this.
                    let due = self.terms.watchdog && self.renew_at.is_none();
                    if self.refresh != Refresh::None || (due && !self.is_capped(now)) {
                        self.begin(Query::Renew(cas), now);
                    }
                }
                LeaseGoal::Obtain { .. } | LeaseGoal::Hold => self.begin(Query::Renew(cas), now),
                LeaseGoal::Release { .. } => self.begin(Query::Remove(cas), now),
                LeaseGoal::None => {}
            }
            return;
        }
        let missing = answer.code() == Some(Code::Miss);
        match self.goal {
            // It was removed between the two requests, so an add at once may succeed.
            LeaseGoal::Obtain { until } if missing && now < until => self.begin(Query::Add, now),
            LeaseGoal::Obtain { until } => self.back_off(now, until),
            LeaseGoal::Hold => self.lose(Loss::Taken),
            LeaseGoal::Release { .. } => {
                self.cas = None;
                self.unresolved = false;
                let gone = self.removal_unresolved;
                self.end(if gone {
                    LeaseNews::Released
                } else {
                    LeaseNews::NotHeld
                });
            }
            LeaseGoal::None => self.cas = None,
        }
    }

    pub(super) fn renewed(
        &mut self,
        now: Instant,
        stored: (Instant, Duration),
        answer: &AnyResponse<'_>,
    ) {
        match (answer.code(), cas_of(answer)) {
            (Some(Code::Done), Some(cas)) => self.grip(cas, stored, now),
            // An unanswered renewal of ours may have been executed after all (C3).
            (Some(Code::Exists | Code::NotFound), _) => self.ask_anew(now),
            (Some(Code::Locked), _) => match self.goal {
                LeaseGoal::Obtain { until } => self.back_off(now, until),
                LeaseGoal::Hold => self.put_off(now, Failure::from_answer(answer)),
                LeaseGoal::Release { .. } => self.begin_removal(now),
                LeaseGoal::None => {}
            },
            // A memcached that cannot store also removes the old item.
            _ if self.goal == LeaseGoal::Hold => {
                self.put_off(now, Failure::from_answer(answer));
                self.begin(Query::Ask, now);
            }
            _ => self.fail(now, answer),
        }
    }

    pub(super) fn removed(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let news = match answer.code() {
            Some(Code::Done) => {
                // Both ended in one step (C7).
                self.place = Place::None;
                LeaseNews::Released
            }
            Some(Code::NotFound) => LeaseNews::NotHeld,
            Some(Code::Exists) => return self.ask_anew(now),
            // A connection has locked the key, and will find the item there.
            Some(Code::Locked) if matches!(self.goal, LeaseGoal::Release { .. }) => {
                return self.begin_removal(after(now, RECONNECT));
            }
            _ => return self.fail(now, answer),
        };
        self.cas = None;
        match self.goal {
            LeaseGoal::Release { .. } => {
                self.unresolved = false;
                self.end(news);
            }
            // The release was abandoned, and the next obtain has begun.
            LeaseGoal::Obtain { .. } => self.begin(Query::Add, now),
            LeaseGoal::Hold | LeaseGoal::None => {}
        }
    }

    /// None of the four requests has this answer.
    fn fail(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let failure = Failure::from_answer(answer);
        match self.goal {
            LeaseGoal::Obtain { .. } | LeaseGoal::Release { .. } => {
                self.end(LeaseNews::Failed(failure));
            }
            LeaseGoal::Hold => self.put_off(now, failure),
            LeaseGoal::None => {}
        }
    }
}

/// The version that an answer shows.
fn cas_of(answer: &AnyResponse<'_>) -> Option<Cas> {
    Cas::new(answer.number(b'c')?)
}
