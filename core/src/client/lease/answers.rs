//! What the answer to each of the four requests means, for each thing that may be wanted meanwhile.

use core::time::Duration;

use super::{Belief, Goal, Lease, LeaseNews, Query, Refresh, after};
use crate::client::link::{Failure, Loss, NotObtained};
use crate::client::session::Answer;
use crate::item::Cas;
use crate::time::Instant;
use crate::wire::meta::reply::{Code, Response};

impl Lease {
    /// A store for `ttl` that was sent at `sent` has made the item ours, with version `cas`.
    fn grip(&mut self, cas: Cas, (sent, ttl): (Instant, Duration), now: Instant) {
        self.cas = Some(cas);
        let deadline = after(sent, ttl);
        match self.goal {
            Goal::Obtain { .. } | Goal::Hold if now >= deadline => self.begin(Query::Renew, now),
            Goal::Obtain { .. } => {
                self.unresolved = false;
                self.number = Some(cas);
                self.goal = Goal::Hold;
                self.believe(
                    Belief {
                        deadline,
                        since: now,
                    },
                    sent,
                );
                self.news.push_back(LeaseNews::Obtained);
            }
            Goal::Hold => {
                let since = self.belief.map_or(now, |belief| belief.since);
                self.believe(Belief { deadline, since }, sent);
                match core::mem::replace(&mut self.refresh, Refresh::None) {
                    Refresh::Sent => self.news.push_back(LeaseNews::Refreshed),
                    Refresh::Asked => {
                        self.refresh = Refresh::Asked;
                        return self.begin(Query::Renew, now);
                    }
                    Refresh::None => {}
                }
                if self.measure_asked {
                    self.begin(Query::Ask, now);
                }
            }
            Goal::Release { .. } => self.begin(Query::Remove, now),
            Goal::None => {}
        }
    }

    fn believe(&mut self, mut belief: Belief, sent: Instant) {
        if let Some(end) = self.hold_end(belief.since) {
            belief.deadline = belief.deadline.min(end);
        }
        self.belief = Some(belief);
        self.renew_at = self.terms.watchdog.map(|_| after(sent, self.terms.ttl / 3));
    }

    /// Somebody else has it.
    fn back_off(&mut self, now: Instant, until: Instant) {
        self.cas = None;
        match self.retries.next_wait() {
            _ if now >= until => self.end(LeaseNews::NotObtained(NotObtained::Deadline)),
            Some(wait) => self.begin(Query::Add, after(now, wait).min(until)),
            None => self.end(LeaseNews::NotObtained(NotObtained::Held)),
        }
    }

    /// A renewal or a question did not work out, and it says nothing of whose the lease is.
    fn put_off(&mut self, now: Instant, failure: Failure) {
        self.renew_at = self.terms.watchdog.map(|_| after(now, self.terms.ttl / 10));
        if core::mem::replace(&mut self.refresh, Refresh::None) != Refresh::None {
            self.news.push_back(LeaseNews::Undone(failure.clone()));
        }
        if core::mem::take(&mut self.measure_asked) {
            self.news.push_back(LeaseNews::Undone(failure));
        }
    }

    pub(super) fn added(&mut self, now: Instant, stored: (Instant, Duration), answer: &Answer<'_>) {
        // What shows our own token from an earlier obtain is taken over, but not broken off.
        let own = self.terms.own_token && matches!(self.goal, Goal::Obtain { .. });
        match (answer.code(), cas_of(answer)) {
            (Some(Code::Done), Some(cas)) => return self.grip(cas, stored, now),
            (Some(Code::NotStored), _) if own || self.unresolved => {
                return self.begin(Query::Ask, now);
            }
            (Some(Code::NotStored | Code::Locked), _) => {}
            _ => return self.fail(now, answer),
        }
        match self.goal {
            Goal::Obtain { until } => self.back_off(now, until),
            Goal::Release { .. } => self.end(LeaseNews::NotHeld),
            Goal::Hold | Goal::None => {}
        }
    }

    pub(super) fn asked(&mut self, now: Instant, answer: &Answer<'_>) {
        let ours = match answer {
            Answer::Meta(Response {
                code: Code::Value,
                value,
                ..
            }) if self.token().owns(value) => cas_of(answer),
            Answer::Meta(Response {
                code: Code::Value | Code::Miss,
                ..
            }) => None,
            Answer::Meta(_) | Answer::Classic(_) | Answer::Silent => return self.fail(now, answer),
        };
        if let Some(cas) = ours {
            self.cas = Some(cas);
            match self.goal {
                Goal::Hold if self.measure_asked => {
                    self.measure_asked = false;
                    let left = answer.number(b't').unwrap_or_default();
                    self.news
                        .push_back(LeaseNews::Lasts(Duration::from_secs(left)));
                    // A renewal may have been broken off by the disconnect before this.
                    let due = self.terms.watchdog.is_some() && self.renew_at.is_none();
                    if self.refresh != Refresh::None || (due && !self.is_capped(now)) {
                        self.begin(Query::Renew, now);
                    }
                }
                Goal::Obtain { .. } | Goal::Hold => self.begin(Query::Renew, now),
                Goal::Release { .. } => self.begin(Query::Remove, now),
                Goal::None => {}
            }
            return;
        }
        let missing = answer.code() == Some(Code::Miss);
        match self.goal {
            // It went between the two requests: the add is worth repeating at once.
            Goal::Obtain { until } if missing && now < until => self.begin(Query::Add, now),
            Goal::Obtain { until } => self.back_off(now, until),
            Goal::Hold => self.lose(Loss::Taken),
            Goal::Release { .. } => {
                self.cas = None;
                self.unresolved = false;
                let gone = self.removal_unresolved;
                self.end(if gone {
                    LeaseNews::Released
                } else {
                    LeaseNews::NotHeld
                });
            }
            Goal::None => self.cas = None,
        }
    }

    pub(super) fn renewed(
        &mut self,
        now: Instant,
        stored: (Instant, Duration),
        answer: &Answer<'_>,
    ) {
        match (answer.code(), cas_of(answer)) {
            (Some(Code::Done), Some(cas)) => self.grip(cas, stored, now),
            // A renewal of ours that went unanswered may have come after all (C3).
            (Some(Code::Exists | Code::NotFound), _) => self.begin(Query::Ask, now),
            (Some(Code::Locked), _) => match self.goal {
                Goal::Obtain { until } => self.back_off(now, until),
                Goal::Hold => self.put_off(now, Failure::from_answer(answer)),
                Goal::Release { .. } => self.begin(Query::Remove, now),
                Goal::None => {}
            },
            // A memcached that cannot store gives the old item up as well.
            _ if self.goal == Goal::Hold => {
                self.put_off(now, Failure::from_answer(answer));
                self.begin(Query::Ask, now);
            }
            _ => self.fail(now, answer),
        }
    }

    pub(super) fn removed(&mut self, now: Instant, answer: &Answer<'_>) {
        let news = match answer.code() {
            Some(Code::Done) => LeaseNews::Released,
            Some(Code::NotFound) => LeaseNews::NotHeld,
            Some(Code::Exists) => return self.begin(Query::Ask, now),
            _ => return self.fail(now, answer),
        };
        self.cas = None;
        match self.goal {
            Goal::Release { .. } => self.end(news),
            // The release was given up, and the next obtain has begun.
            Goal::Obtain { .. } => self.begin(Query::Add, now),
            Goal::Hold | Goal::None => {}
        }
    }

    /// The server gave an answer that none of the four requests has.
    fn fail(&mut self, now: Instant, answer: &Answer<'_>) {
        let failure = Failure::from_answer(answer);
        match self.goal {
            Goal::Obtain { .. } | Goal::Release { .. } => self.end(LeaseNews::Failed(failure)),
            Goal::Hold => self.put_off(now, failure),
            Goal::None => {}
        }
    }
}

/// The version that an answer shows.
fn cas_of(answer: &Answer<'_>) -> Option<Cas> {
    Cas::new(answer.number(b'c')?)
}
