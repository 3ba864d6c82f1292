//! The meaning of the answer to each request of a lock.

use alloc::boxed::Box;
use core::mem;
use core::time::Duration;

use latchd_protocol::fence::Fence;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::reply::Code;

use super::grant::{Goal, Grant, Query};
use super::{Grants, Link};
use crate::lock::{LockId, LockMachine, LockNews, LockState};
use crate::machine::{Failure, Loss};
use crate::own::Call;
use crate::session::AnyResponse;

/// The effect of an answer on a lock.
pub(super) enum Outcome {
    /// It goes on, perhaps with news.
    Kept(Option<LockNews>),
    /// It is granted.
    Granted,
    /// It is forgotten.
    Ended(LockNews),
    /// The obtain has ended without a grant that we know of.
    Failed(Failure),
    Lost(Loss),
}

/// A request of a lock, and what its machine knows.
pub(super) struct Asked<'a> {
    now: Instant,
    query: Query,
    /// When it was sent, and the time that it asked for.
    sent: Instant,
    ttl: Option<Duration>,
    heartbeat: Duration,
    /// The server may not be primary any more.
    is_unconfirmed: bool,
    answer: &'a AnyResponse<'a>,
}

impl Grants {
    /// The answer to a request of a lock, which was sent at `sent` and asked for `ttl`.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        id: LockId,
        (query, sent, ttl): (Query, Instant, Option<Duration>),
        answer: &AnyResponse<'_>,
    ) {
        let asked = Asked {
            now,
            query,
            sent,
            ttl,
            heartbeat: self.heartbeat(),
            is_unconfirmed: self.hold_until().is_some_and(|until| now >= until),
            answer,
        };
        match self.change(id, |grant| grant.answered(&asked)) {
            Some(Outcome::Kept(news)) => self.news.extend(news.map(|news| (id, news))),
            Some(Outcome::Granted) => self.obtained(now, id),
            Some(Outcome::Ended(news)) => self.remove(now, id, news),
            Some(Outcome::Failed(failure)) => self.fail(now, id, failure),
            Some(Outcome::Lost(loss)) => self.lose(now, id, loss),
            None => {}
        }
    }

    /// It is granted. It counts as ours if its owner and its time are certain.
    fn obtained(&mut self, now: Instant, id: LockId) {
        let is_over = self.common_deadline().is_some_and(|until| now >= until);
        if is_over
            && self.link == Link::Up
            && let Some(session) = &mut self.session
        {
            // A new sign of life comes before the next request.
            session.doubt();
        }
        self.change(id, |grant| {
            let lacks_time = grant.terms.lease.is_some() && grant.end_of_own().is_none();
            if is_over || lacks_time || grant.is_late(now) {
                return grant.begin(Query::Confirm, now);
            }
            grant.goal = Goal::Hold;
        });
        if self.locks.get(&id).is_some_and(Grant::is_held) {
            self.news.push_back((id, LockNews::Obtained));
        }
    }

    /// The grant that could not be kept is released, or ended in another way.
    pub(super) fn given_back(&mut self, now: Instant, id: LockId) {
        if let Some(news) = self.change(id, Grant::given_back) {
            self.remove(now, id, news);
        }
    }
}

impl Grant {
    fn answered(&mut self, asked: &Asked<'_>) -> Outcome {
        self.rest();
        match (&self.goal, asked.query) {
            (Goal::Obtain { .. }, Query::Acquire) => self.acquired(asked, asked.ttl),
            // The moment of the grant is unknown, also to a retry: its own time is renewed before it is believed.
            (Goal::Obtain { .. }, Query::Wait { .. }) => self.acquired(asked, None),
            (Goal::Obtain { .. }, Query::Add) => self.added(asked),
            (Goal::Obtain { .. }, Query::Confirm) => self.found(asked),
            (Goal::Obtain { .. } | Goal::GiveBack(_), Query::Release | Query::Remove) => {
                Outcome::Ended(self.given_back())
            }
            (Goal::Obtain { .. } | Goal::GiveBack(_), _) => Outcome::Kept(None),
            (Goal::Hold, Query::Add | Query::Touch) => self.was_touched(asked),
            (Goal::Hold, _) => self.was_confirmed(asked),
            (
                Goal::Release {
                    is_told,
                    is_unanswered,
                },
                Query::Release | Query::Remove,
            ) => self.released(asked, *is_told, *is_unanswered),
            (Goal::Release { .. }, _) => self.release_next(asked),
        }
    }

    /// The answer to `ml`.
    fn acquired(&mut self, asked: &Asked<'_>, ttl: Option<Duration>) -> Outcome {
        let answer = asked.answer;
        match answer.code() {
            Some(Code::Done | Code::Value) => {}
            Some(Code::Locked) => {
                return Outcome::Ended(LockNews::Held(LockState::of_refusal(answer)));
            }
            _ => return Outcome::Failed(Failure::from_answer(answer)),
        }
        self.fence = fence_in(answer);
        if self.fence.is_none() {
            return self.give_back(asked.now, LockNews::Failed(Failure::Unexpected));
        }
        if let Some(news) = self.in_the_way(answer) {
            return self.give_back(asked.now, news);
        }
        self.confirmed(asked.now, asked.sent, ttl, asked.heartbeat);
        if self.terms.item.is_none() {
            return Outcome::Granted;
        }
        if answer.code() == Some(Code::Value) {
            // It is ours from an earlier lock, and is renewed at once.
            self.has_item(asked.now);
            return Outcome::Granted;
        }
        self.begin(Query::Add, asked.now);
        Outcome::Kept(None)
    }

    /// The answer to the store of a new item (B9).
    fn added(&mut self, asked: &Asked<'_>) -> Outcome {
        let news = match asked.answer.code() {
            Some(Code::Done) => {
                self.touched(asked.sent);
                return Outcome::Granted;
            }
            Some(Code::NotStored) => LockNews::Obstructed(LockState::default()),
            _ => LockNews::Failed(Failure::from_answer(asked.answer)),
        };
        self.give_back(asked.now, news)
    }

    /// The answer to the confirmation of a lock that is not believed yet.
    fn found(&mut self, asked: &Asked<'_>) -> Outcome {
        let answer = asked.answer;
        let Some(fence) = fence_in(answer) else {
            return match answer.code() {
                Some(Code::NotFound | Code::Locked) if self.terms.is_adopted => {
                    Outcome::Ended(LockNews::NotHeld)
                }
                Some(Code::NotFound | Code::Locked) => {
                    Outcome::Ended(LockNews::Held(LockState::of_refusal(answer)))
                }
                _ => Outcome::Failed(Failure::from_answer(answer)),
            };
        };
        if asked.is_unconfirmed {
            // Another server may serve: the server cannot say that it is primary.
            return self.give_back(asked.now, LockNews::Failed(Failure::NoAnswer));
        }
        let was_unknown = self.fence.replace(fence).is_none();
        let ttl = asked.ttl.filter(|_| !was_unknown);
        self.confirmed(asked.now, asked.sent, ttl, asked.heartbeat);
        if was_unknown && self.terms.item.is_some() {
            self.has_item(asked.now);
        }
        Outcome::Granted
    }

    /// It was granted, and cannot be kept.
    fn give_back(&mut self, now: Instant, news: LockNews) -> Outcome {
        self.goal = Goal::GiveBack(Box::new(news));
        self.begin(self.release_query(), now);
        Outcome::Kept(None)
    }

    fn given_back(&mut self) -> LockNews {
        match &mut self.goal {
            Goal::GiveBack(news) => mem::replace(news, LockNews::NotHeld),
            Goal::Obtain { .. } | Goal::Hold | Goal::Release { .. } => LockNews::NotHeld,
        }
    }

    /// The answer to a confirmation of a held lock (B5).
    fn was_confirmed(&mut self, asked: &Asked<'_>) -> Outcome {
        let fence = fence_in(asked.answer);
        let news = match asked.answer.code() {
            Some(Code::Done) if fence.is_some() && fence == self.fence => {
                self.confirmed(asked.now, asked.sent, asked.ttl, asked.heartbeat);
                LockNews::Confirmed(None)
            }
            Some(Code::Done) if fence.is_some() => {
                // The earlier grant has ended, and the request has acquired the lock anew: that is released.
                self.fence = fence;
                self.begin_release(asked.now, false);
                return Outcome::Kept(Some(LockNews::Lost(Loss::Taken)));
            }
            Some(Code::NotFound | Code::Locked) => return Outcome::Lost(Loss::Taken),
            _ => {
                self.put_off(asked.now);
                LockNews::Undone(Failure::from_answer(asked.answer))
            }
        };
        Outcome::Kept((self.take_call() != Call::None).then_some(news))
    }

    /// The answer to a renewal of its item, or to the store of a new one.
    fn was_touched(&mut self, asked: &Asked<'_>) -> Outcome {
        match asked.answer.code() {
            Some(Code::Done) => self.touched(asked.sent),
            // It has expired while the client was stopped.
            Some(Code::Miss) => self.begin(Query::Add, asked.now),
            _ => self.put_off_touch(asked.now),
        }
        Outcome::Kept(None)
    }

    /// The answer to a release.
    fn released(&mut self, asked: &Asked<'_>, is_told: bool, is_unanswered: bool) -> Outcome {
        match asked.answer.code() {
            Some(Code::Done) => Outcome::Ended(LockNews::Released),
            // The item has expired, which does not end the lock.
            Some(Code::NotFound) if asked.query == Query::Remove => {
                self.has_no_item();
                self.begin(Query::Release, asked.now);
                Outcome::Kept(None)
            }
            Some(Code::NotFound | Code::Exists) if is_unanswered => {
                Outcome::Ended(LockNews::Released)
            }
            Some(_) => Outcome::Ended(LockNews::NotHeld),
            None => {
                let at = self.pause(asked.now);
                self.begin(self.release_query(), at);
                let failure = Failure::from_answer(asked.answer);
                Outcome::Kept(is_told.then_some(LockNews::Failed(failure)))
            }
        }
    }

    /// The request under way at the call of the release is answered: the release follows, if there is a grant.
    fn release_next(&mut self, asked: &Asked<'_>) -> Outcome {
        let granted = fence_in(asked.answer);
        if matches!(asked.query, Query::Acquire | Query::Wait { .. }) && granted.is_none() {
            return Outcome::Ended(LockNews::NotHeld);
        }
        // A late renewal may have acquired it anew.
        self.fence = granted.or(self.fence);
        if asked.query == Query::Add && asked.answer.code() == Some(Code::Done) {
            self.touched(asked.now);
        }
        self.begin(self.release_query(), asked.now);
        Outcome::Kept(None)
    }

    /// The news if the item of the key, as `ml` shows it, is in the way of the lock (B9).
    fn in_the_way(&self, answer: &AnyResponse<'_>) -> Option<LockNews> {
        answer.number(b'f')?;
        let is_lock = answer.is_lock();
        let Some(item) = &self.terms.item else {
            return is_lock.then(|| LockNews::Obstructed(LockState::default()));
        };
        if item.own_token && item.value.token().owns(answer.value()) {
            return None;
        }
        let state = LockState::of_item(answer);
        if !is_lock && state.left.is_none() {
            return Some(LockNews::HasValue);
        }
        Some(LockNews::Obstructed(state))
    }
}

fn fence_in(answer: &AnyResponse<'_>) -> Option<Fence> {
    answer.number(b'F').and_then(Fence::new)
}
