//! The meaning of the answer to each request of a lock.

use alloc::boxed::Box;
use core::time::Duration;

use latchd_protocol::fence::Fence;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::reply::Code;

use super::grant::{Goal, Grant, Query};
use super::{Grants, Link};
use crate::lock::{LockId, LockMachine, LockNews, LockState, item_state};
use crate::machine::{Failure, Loss};
use crate::own::Call;
use crate::session::AnyResponse;
use crate::terms::LEASE_ITEM;

impl Grants {
    /// The answer to a request of a lock, which was sent at `sent` and asked for `ttl`.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        id: LockId,
        (query, sent, ttl): (Query, Instant, Option<Duration>),
        answer: &AnyResponse<'_>,
    ) {
        let Some(goal) = self.locks.get(&id).map(|grant| grant.goal.clone()) else {
            return;
        };
        self.change(id, Grant::rest);
        match (goal, query) {
            (Goal::Obtain { .. }, Query::Acquire) => self.acquired(now, id, (sent, ttl), answer),
            // The moment of the grant is unknown, also to a retry: its own time is renewed before it is believed.
            (Goal::Obtain { .. }, Query::Wait { .. }) => {
                self.acquired(now, id, (sent, None), answer);
            }
            (Goal::Obtain { .. }, Query::Add) => self.added(now, id, sent, answer),
            (Goal::Obtain { .. }, Query::Confirm) => self.found(now, id, (sent, ttl), answer),
            (Goal::Obtain { .. } | Goal::GiveBack(_), Query::Release | Query::Remove) => {
                self.given_back(now, id);
            }
            (Goal::Obtain { .. } | Goal::GiveBack(_), _) => {}
            (Goal::Hold, Query::Add | Query::Touch) => self.touched(now, id, sent, answer),
            (Goal::Hold, _) => self.confirmed(now, id, (sent, ttl), answer),
            (Goal::Release { .. }, Query::Release | Query::Remove) => {
                self.released(now, id, query, answer);
            }
            (Goal::Release { .. }, _) => self.release_next(now, id, query, answer),
        }
    }

    /// The answer to `ml`.
    fn acquired(
        &mut self,
        now: Instant,
        id: LockId,
        (sent, ttl): (Instant, Option<Duration>),
        answer: &AnyResponse<'_>,
    ) {
        match answer.code() {
            Some(Code::Done | Code::Value) => {}
            Some(Code::Locked) => {
                return self.remove(now, id, LockNews::Held(LockState::of_refusal(answer)));
            }
            _ => return self.fail(now, id, Failure::from_answer(answer)),
        }
        let fence = fence_in(answer);
        self.change(id, |grant| grant.fence = fence);
        if fence.is_none() {
            return self.give_back(now, id, LockNews::Failed(Failure::Unexpected));
        }
        if let Some(in_the_way) = self
            .locks
            .get(&id)
            .and_then(|grant| in_the_way(grant, answer))
        {
            return self.give_back(now, id, in_the_way);
        }
        let heartbeat = self.heartbeat();
        let needs_item = self.change(id, |grant| {
            grant.confirmed(now, sent, ttl, heartbeat);
            let needs_item = grant.terms.item.is_some();
            if needs_item && answer.code() == Some(Code::Value) {
                // It is ours from an earlier lock, and is renewed at once.
                grant.has_item(now);
                return false;
            }
            needs_item
        });
        if needs_item == Some(true) {
            self.change(id, |grant| grant.begin(Query::Add, now));
        } else {
            self.obtained(now, id);
        }
    }

    /// The answer to the store of a new item (B9).
    fn added(&mut self, now: Instant, id: LockId, sent: Instant, answer: &AnyResponse<'_>) {
        match answer.code() {
            Some(Code::Done) => {
                self.change(id, |grant| grant.touched(sent));
                self.obtained(now, id);
            }
            Some(Code::NotStored) => {
                self.give_back(now, id, LockNews::Obstructed(LockState::default()));
            }
            _ => self.give_back(now, id, LockNews::Failed(Failure::from_answer(answer))),
        }
    }

    /// It is granted. It counts as ours if its owner and its time are certain.
    fn obtained(&mut self, now: Instant, id: LockId) {
        let is_over = self.common_deadline().is_some_and(|until| now >= until);
        if is_over {
            self.attach_again();
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

    /// The answer to the confirmation of a lock that is not believed yet.
    fn found(
        &mut self,
        now: Instant,
        id: LockId,
        (sent, ttl): (Instant, Option<Duration>),
        answer: &AnyResponse<'_>,
    ) {
        let Some(fence) = fence_in(answer) else {
            let is_adopted = self
                .locks
                .get(&id)
                .is_some_and(|grant| grant.terms.is_adopted);
            return match answer.code() {
                Some(Code::NotFound | Code::Locked) if is_adopted => {
                    self.remove(now, id, LockNews::NotHeld);
                }
                Some(Code::NotFound | Code::Locked) => {
                    self.remove(now, id, LockNews::Held(LockState::of_refusal(answer)));
                }
                _ => self.fail(now, id, Failure::from_answer(answer)),
            };
        };
        if self.hold_until().is_some_and(|until| now >= until) {
            // Another server may serve: the server cannot say that it is primary.
            return self.give_back(now, id, LockNews::Failed(Failure::NoAnswer));
        }
        let heartbeat = self.heartbeat();
        self.change(id, |grant| {
            let was_unknown = grant.fence.replace(fence).is_none();
            grant.confirmed(now, sent, ttl.filter(|_| !was_unknown), heartbeat);
            if was_unknown && grant.terms.item.is_some() {
                grant.has_item(now);
            }
        });
        self.obtained(now, id);
    }

    /// It was granted, and cannot be kept.
    fn give_back(&mut self, now: Instant, id: LockId, news: LockNews) {
        self.change(id, |grant| {
            grant.goal = Goal::GiveBack(Box::new(news));
            grant.begin(grant.release_query(), now);
        });
    }

    /// The grant that could not be kept is released, or ended in another way.
    pub(super) fn given_back(&mut self, now: Instant, id: LockId) {
        let news = match self.locks.get(&id).map(|grant| &grant.goal) {
            Some(Goal::GiveBack(news)) => (**news).clone(),
            Some(Goal::Obtain { .. } | Goal::Hold | Goal::Release { .. }) | None => {
                LockNews::NotHeld
            }
        };
        self.remove(now, id, news);
    }

    /// The answer to a confirmation of a held lock (B5).
    fn confirmed(
        &mut self,
        now: Instant,
        id: LockId,
        (sent, ttl): (Instant, Option<Duration>),
        answer: &AnyResponse<'_>,
    ) {
        let heartbeat = self.heartbeat();
        let held = self.locks.get(&id).and_then(|grant| grant.fence);
        let news = match (answer.code(), fence_in(answer)) {
            (Some(Code::Done), fence @ Some(_)) if fence == held => self
                .change(id, |grant| {
                    grant.confirmed(now, sent, ttl, heartbeat);
                    grant.take_call()
                })
                .filter(|call| *call != Call::None)
                .map(|_| LockNews::Confirmed(None)),
            (Some(Code::Done), fence @ Some(_)) => {
                // The earlier grant has ended, and the request has acquired the lock anew: that is released.
                self.news.push_back((id, LockNews::Lost(Loss::Taken)));
                self.change(id, |grant| {
                    grant.fence = fence;
                    grant.begin_release(now, false);
                });
                return;
            }
            (Some(Code::NotFound | Code::Locked), _) => {
                return self.lose(now, id, Loss::Taken);
            }
            _ => self
                .change(id, |grant| {
                    grant.put_off(now);
                    grant.take_call()
                })
                .filter(|call| *call != Call::None)
                .map(|_| LockNews::Undone(Failure::from_answer(answer))),
        };
        self.news.extend(news.map(|news| (id, news)));
    }

    /// The answer to a renewal of its item, or to the store of a new one.
    fn touched(&mut self, now: Instant, id: LockId, sent: Instant, answer: &AnyResponse<'_>) {
        self.change(id, |grant| match answer.code() {
            Some(Code::Done) => grant.touched(sent),
            // It has expired while the client was stopped.
            Some(Code::Miss) => grant.begin(Query::Add, now),
            _ => grant.put_off_touch(now),
        });
    }

    /// The answer to a release.
    fn released(&mut self, now: Instant, id: LockId, query: Query, answer: &AnyResponse<'_>) {
        let Some(Goal::Release {
            is_told,
            is_unanswered,
        }) = self.locks.get(&id).map(|grant| grant.goal.clone())
        else {
            return;
        };
        match answer.code() {
            Some(Code::Done) => self.remove(now, id, LockNews::Released),
            // The item has expired, which does not end the lock.
            Some(Code::NotFound) if query == Query::Remove => {
                self.change(id, |grant| {
                    grant.has_no_item();
                    grant.begin(Query::Release, now);
                });
            }
            Some(Code::NotFound | Code::Exists) if is_unanswered => {
                self.remove(now, id, LockNews::Released);
            }
            Some(_) => self.remove(now, id, LockNews::NotHeld),
            None => {
                self.change(id, |grant| {
                    let at = grant.pause(now);
                    grant.begin(grant.release_query(), at);
                });
                if is_told {
                    let failure = Failure::from_answer(answer);
                    self.news.push_back((id, LockNews::Failed(failure)));
                }
            }
        }
    }

    /// The request under way at the call of the release is answered: the release follows, if there is a grant.
    fn release_next(&mut self, now: Instant, id: LockId, query: Query, answer: &AnyResponse<'_>) {
        let granted = fence_in(answer);
        if matches!(query, Query::Acquire | Query::Wait { .. }) && granted.is_none() {
            return self.remove(now, id, LockNews::NotHeld);
        }
        self.change(id, |grant| {
            // A late renewal may have acquired it anew.
            grant.fence = granted.or(grant.fence);
            if query == Query::Add && answer.code() == Some(Code::Done) {
                grant.touched(now);
            }
            grant.begin(grant.release_query(), now);
        });
    }

    /// Asks for a new sign of life of the session before the next request.
    fn attach_again(&mut self) {
        if self.link == Link::Up
            && let Some(session) = &mut self.session
        {
            session.doubt();
        }
    }
}

fn fence_in(answer: &AnyResponse<'_>) -> Option<Fence> {
    answer.number(b'F').and_then(Fence::new)
}

/// The news if the item of the key, as `ml` shows it, is in the way of the lock (B9).
fn in_the_way(grant: &Grant, answer: &AnyResponse<'_>) -> Option<LockNews> {
    let flags = answer.number(b'f')?;
    let is_lock = flags == u64::from(LEASE_ITEM);
    let Some(item) = &grant.terms.item else {
        return is_lock.then(|| LockNews::Obstructed(LockState::default()));
    };
    let value = answer.value();
    if item.own_token && item.value.token().owns(value) {
        return None;
    }
    let left = answer.number(b't').map(Duration::from_secs);
    if !is_lock && left.is_none() {
        return Some(LockNews::HasValue);
    }
    Some(LockNews::Obstructed(item_state(value, left, is_lock)))
}
