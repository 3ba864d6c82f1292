//! A lock that the server ends by time: an item with a token, which only its holder changes.
//!
//! It needs four requests, which any memcached with meta commands serves:
//!
//! | | request | done | in the way |
//! | --- | --- | --- | --- |
//! | add | `ms KEY <len> ME F<flags> T<exptime> c` | `HD c<cas>` | `NS` |
//! | ask | `mg KEY v c t f` | `VA … c<cas> t<ttl> f<flags>` | `EN` |
//! | renew | `ms KEY <len> C<cas> F<flags> T<exptime> c` | `HD c<cas>` | `EX`, `NF` |
//! | remove | `md KEY C<cas>` | `HD` | `EX`, `NF` |
//!
//! The client flags are always [`LEASE_ITEM`]. By these, other clients of latchd recognize the item of a lock.
//!
//! - C1: The item is changed and removed only by the version that we know to be ours. So a late holder changes
//!   nothing of its successor's.
//! - C2: A holder believes in its lock from an answer until `ttl` after the request was *sent*, and never again
//!   after it learned that the lock is lost.
//! - C3: After a request without an answer, the client asks the server for the result instead of guessing; the
//!   whole token decides. If an obtain learns this way that the item is ours, it renews the item before it
//!   believes.
//! - C4: One request is unanswered at a time.
//! - C5: A version is known only on the connection that told it. A server that restarts counts anew, so our
//!   item's version may soon be another item's; but every restart ends the connections. On a new connection the
//!   token is asked for before a request names a version.
//! - C6: While no connection has told the version, the lease is in doubt. As long as it has time it is not
//!   lost. It is not held either, since the server may have restarted and granted it to another client.
//! - C7: A lease that is lost by time is released, as far as the server can be reached while it may have the item.
//!
//! A limit of every client: a server that evicts the item, or restarts, grants the lock to another client while
//! we believe.
//!
//! Source of the requests: memcached 1.6.45 `doc/protocol.txt`; all of them work on 1.6.18.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use latchd_protocol::item::{Cas, LEASE_ITEM};
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::reply::Code;
use latchd_protocol::wire::meta::{Flag, Verb};

use crate::lock::{Belief, LeaseTerms, LockNews, LockState, LockTerms};
use crate::machine::{Failure, Loss};
use crate::moment::{after, earlier, growing};
use crate::own::{Call, Own};
use crate::session::{AnyRequest, AnyResponse};
use crate::terms::exptime_for;

/// How often in a row an obtain finds no item to ask for before it counts as held by others.
const MISSES_MAX: u32 = 2;

/// The goal of the lease.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Goal {
    Obtain,
    Hold,
    /// `is_told`: the caller waits for the news.
    Release {
        is_told: bool,
    },
    /// It is over, apart from news.
    None,
}

/// The next action of a lease.
pub(super) enum LeaseAction {
    /// It waits for a connection, until this moment.
    NeedsLink {
        until: Option<Instant>,
    },
    Send(Query),
    Tell(LockNews),
    Wait,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Query {
    Add,
    Ask,
    /// Of the item with this version (C1, C5).
    Renew(Cas),
    /// Of the item with this version (C1, C5).
    Remove(Cas),
}

/// The side that acts next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Turn {
    /// Neither side.
    Rest,
    /// We send this request.
    Due { query: Query, at: Instant },
    /// The server answers. A store was for `ttl`.
    Awaiting { query: Query, ttl: Duration },
}

/// One leased lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Lease {
    key: Box<[u8]>,
    terms: LockTerms,
    time: LeaseTerms,
    goal: Goal,
    turn: Turn,
    /// The belief in it (C2).
    own: Option<Own>,
    /// The version of the item that is ours, as this connection told it (C5).
    cas: Option<Cas>,
    /// An item with our token and an unknown version may exist (C3, C5).
    is_unresolved: bool,
    /// A remove went unanswered while we believed, so our own request may have removed the item.
    removal_is_unresolved: bool,
    /// When the server has removed the item at the latest, if it has stored it.
    gone_at: Instant,
    /// When the item is renewed next.
    renew_at: Option<Instant>,
    call: Call,
    /// Requests refused in a row.
    refusals: u32,
    misses: u32,
    news: VecDeque<LockNews>,
}

impl Lease {
    /// A lease that begins to be obtained. Its terms have an item and a time.
    pub(super) fn new(key: Key<'_>, terms: LockTerms, now: Instant) -> Self {
        let time = terms.lease.unwrap_or(LeaseTerms {
            ttl: crate::terms::TTL_MIN,
            renews: false,
            hold_max: None,
        });
        let query = if terms.is_adopted {
            Query::Ask
        } else {
            Query::Add
        };
        Self {
            key: key.as_bytes().into(),
            is_unresolved: terms.is_adopted,
            terms,
            time,
            goal: Goal::Obtain,
            turn: Turn::Due { query, at: now },
            own: None,
            cas: None,
            removal_is_unresolved: false,
            gone_at: now,
            renew_at: None,
            call: Call::None,
            refusals: 0,
            misses: 0,
            news: VecDeque::new(),
        }
    }

    /// A call of the holder.
    pub(super) fn call(&mut self, now: Instant, call: Call) {
        if self.goal != Goal::Hold {
            return self.news.push_back(LockNews::NotHeld);
        }
        self.call = call;
        if self.turn == Turn::Rest {
            self.begin_call(now);
        }
    }

    fn begin_call(&mut self, now: Instant) {
        match (self.call, self.cas) {
            (Call::Refresh(_), Some(cas)) => self.begin(Query::Renew(cas), now),
            (Call::Refresh(_) | Call::Check, _) => self.begin(Query::Ask, now),
            (Call::None, _) => {}
        }
    }

    /// Releases it. An obtain that is under way is broken off, and its item, if any, is removed.
    pub(super) fn release(&mut self, now: Instant, is_told: bool) {
        match self.goal {
            Goal::Obtain | Goal::Hold | Goal::Release { .. } => {}
            Goal::None => return self.news.push_back(LockNews::NotHeld),
        }
        self.goal = Goal::Release { is_told };
        match self.turn {
            Turn::Awaiting { .. } => {}
            Turn::Rest | Turn::Due { .. } => self.begin_removal(now),
        }
    }

    fn begin(&mut self, query: Query, at: Instant) {
        self.turn = Turn::Due { query, at };
    }

    /// Removes the item by its version, or asks for the version first (C5).
    fn begin_removal(&mut self, now: Instant) {
        match self.cas {
            Some(cas) => self.begin(Query::Remove(cas), now),
            None if self.is_unresolved => self.begin(Query::Ask, now),
            None => self.end(LockNews::NotHeld),
        }
    }

    /// The goal is reached or abandoned.
    fn end(&mut self, news: LockNews) {
        (self.goal, self.turn, self.own) = (Goal::None, Turn::Rest, None);
        self.news.push_back(news);
    }

    /// An obtain has failed without a clear answer (C3).
    fn fail(&mut self, now: Instant, failure: Failure) {
        self.news.push_back(LockNews::Failed(failure));
        self.goal = Goal::Release { is_told: false };
        self.begin_removal(now);
    }

    fn lose(&mut self, now: Instant, loss: Loss) {
        if loss == Loss::Taken {
            return self.end(LockNews::Lost(loss));
        }
        self.news.push_back(LockNews::Lost(loss));
        self.own = None;
        self.release(now, false);
    }

    /// Whether the machine may forget it.
    pub(super) fn is_over(&self) -> bool {
        self.goal == Goal::None && self.news.is_empty()
    }

    pub(super) fn belief(&self) -> Option<Belief> {
        let own = self.own.filter(|_| self.goal == Goal::Hold)?;
        Some(Belief {
            until: Some(own.deadline),
            is_certain: self.cas.is_some(),
        })
    }

    /// The ttl of the next store.
    const fn ttl(&self) -> Duration {
        self.call.ttl(self.time.ttl)
    }

    /// When it has something to do; a moment in the past if it has already.
    pub(super) fn next(&self) -> Option<Instant> {
        if !self.news.is_empty() {
            return Some(Instant::default());
        }
        let turn = match self.turn {
            Turn::Due { at, .. } => Some(at),
            Turn::Rest if self.goal == Goal::Hold => self.renew_at,
            Turn::Rest | Turn::Awaiting { .. } => None,
        };
        earlier(turn, self.goal_end())
    }

    /// When the goal ends by time alone, without any answer.
    fn goal_end(&self) -> Option<Instant> {
        match self.goal {
            Goal::Hold => self.own.map(|own| own.deadline),
            Goal::Release { .. } => Some(self.gone_at),
            Goal::Obtain | Goal::None => None,
        }
    }

    /// The effect of time alone.
    fn pass_time(&mut self, now: Instant) {
        if self.goal_end().is_none_or(|end| now < end) {
            return;
        }
        if let (Goal::Hold, Some(own)) = (self.goal, self.own) {
            self.lose(now, own.loss(now, self.time.hold_max));
        } else if !matches!(self.turn, Turn::Awaiting { .. }) {
            self.end(LockNews::NotHeld);
        }
    }

    /// Returns the next action.
    pub(super) fn advance(&mut self, now: Instant, may_send: bool) -> LeaseAction {
        self.pass_time(now);
        if let Some(news) = self.news.pop_front() {
            return LeaseAction::Tell(news);
        }
        if self.turn == Turn::Rest
            && self.goal == Goal::Hold
            && self.renew_at.is_some_and(|at| now >= at)
        {
            self.renew_at = None;
            self.begin(self.cas.map_or(Query::Ask, Query::Renew), now);
        }
        match self.turn {
            Turn::Due { query, at } if now >= at && may_send => {
                self.sending(query, now);
                LeaseAction::Send(query)
            }
            Turn::Due { at, .. } if now >= at => LeaseAction::NeedsLink {
                until: self.goal_end(),
            },
            Turn::Due { .. } | Turn::Awaiting { .. } | Turn::Rest => LeaseAction::Wait,
        }
    }

    /// A request is sent; from here on the server may execute it.
    fn sending(&mut self, query: Query, now: Instant) {
        let ttl = self.ttl();
        self.turn = Turn::Awaiting { query, ttl };
        if matches!(query, Query::Ask | Query::Remove(_)) {
            return;
        }
        let seconds = u64::try_from(exptime_for(ttl).to_wire()).unwrap_or(u64::MAX);
        self.gone_at = self
            .gone_at
            .max(after(now, Duration::from_secs(seconds + 1)));
        if let Some(own) = &mut self.own {
            own.asks_for(now, ttl);
        }
    }

    /// The bytes of a request that was just sent.
    pub(super) fn request(&self, query: Query) -> AnyRequest<'_> {
        let key = Key::new(&self.key).expect("these bytes were taken from a key");
        let store = |first| {
            let flags = [
                first,
                Flag::ClientFlags(LEASE_ITEM),
                Flag::Touch(exptime_for(self.ttl())),
                Flag::ShowCas,
            ];
            let item = self.terms.item.as_ref();
            let value = item.map(|item| item.value.as_bytes()).unwrap_or_default();
            AnyRequest::meta(Verb::Set, key, flags, value)
        };
        match query {
            Query::Add => store(Flag::Mode(b'E')),
            Query::Renew(cas) => store(Flag::Cas(cas.number())),
            Query::Ask => {
                let shown = [
                    Flag::Value,
                    Flag::ShowCas,
                    Flag::ShowTtl,
                    Flag::ShowClientFlags,
                ];
                AnyRequest::meta(Verb::Get, key, shown, &[])
            }
            Query::Remove(cas) => {
                AnyRequest::meta(Verb::Delete, key, [Flag::Cas(cas.number())], &[])
            }
        }
    }

    /// The connection is gone, or there was none.
    pub(super) fn disconnected(&mut self, now: Instant, had_none: bool) {
        let unanswered = match self.turn {
            Turn::Awaiting { query, .. } => Some(query),
            Turn::Due { .. } | Turn::Rest => None,
        };
        // C5. A request that named the version waits until the token was asked for.
        let knew = self.cas.take().is_some();
        self.is_unresolved |= knew || matches!(unanswered, Some(Query::Add));
        match self.goal {
            Goal::Obtain if had_none => self.fail(now, Failure::Disconnected),
            // Two connections in a row were closed without an answer: the peer is no cache server.
            Goal::Obtain if unanswered == Some(Query::Ask) && !self.terms.is_adopted => {
                self.fail(now, Failure::Disconnected);
            }
            Goal::Obtain if knew || unanswered.is_some() => self.begin(Query::Ask, now),
            // An add that is due may still be sent.
            Goal::Obtain | Goal::None => {}
            Goal::Hold => self.begin(Query::Ask, now),
            Goal::Release { .. } => {
                self.removal_is_unresolved |= matches!(unanswered, Some(Query::Remove(_)));
                self.begin(Query::Ask, now);
            }
        }
    }

    /// Its request, which was sent at `sent`, is answered.
    pub(super) fn reply(&mut self, now: Instant, sent: Instant, answer: &AnyResponse<'_>) {
        let Turn::Awaiting { query, ttl } = self.turn else {
            return;
        };
        self.turn = Turn::Rest;
        // This answer cannot save a belief that ran out before this moment (C2).
        self.pass_time(now);
        if self.goal == Goal::None {
            return;
        }
        match query {
            Query::Add => self.added(now, (sent, ttl), answer),
            Query::Ask => self.asked(now, answer),
            Query::Renew(_) => self.renewed(now, (sent, ttl), answer),
            Query::Remove(_) => self.removed(now, answer),
        }
    }

    /// A store for `ttl`, sent at `sent`, made the item ours, with version `cas`.
    fn grip(&mut self, cas: Cas, (sent, ttl): (Instant, Duration), now: Instant) {
        self.cas = Some(cas);
        (self.is_unresolved, self.refusals) = (false, 0);
        let deadline = after(sent, ttl);
        match self.goal {
            Goal::Obtain | Goal::Hold if now >= deadline => self.begin(Query::Renew(cas), now),
            Goal::Obtain => {
                self.goal = Goal::Hold;
                self.believe(deadline, now, sent);
                self.news.push_back(LockNews::Obtained);
            }
            Goal::Hold => {
                if let Call::Refresh(asked) = self.call
                    && asked == ttl
                {
                    (self.time.ttl, self.call) = (ttl, Call::None);
                    self.news.push_back(LockNews::Confirmed(None));
                }
                let since = self.own.map_or(now, |own| own.since);
                self.believe(deadline, since, sent);
                self.begin_call(now);
            }
            Goal::Release { .. } => self.begin(Query::Remove(cas), now),
            Goal::None => {}
        }
    }

    fn believe(&mut self, deadline: Instant, since: Instant, sent: Instant) {
        self.own = Some(Own::new(deadline, since, self.time.hold_max));
        let third = after(sent, self.time.ttl / 3);
        self.renew_at = self.time.renews.then_some(third);
    }

    /// A renewal or a question failed, which says nothing about the owner of the lease.
    fn put_off(&mut self, now: Instant, failure: Failure) {
        let at = after(now, growing(&mut self.refusals));
        self.renew_at = (self.time.renews || self.cas.is_none()).then_some(at);
        if core::mem::replace(&mut self.call, Call::None) != Call::None {
            self.news.push_back(LockNews::Undone(failure));
        }
    }

    fn added(&mut self, now: Instant, stored: (Instant, Duration), answer: &AnyResponse<'_>) {
        match (answer.code(), cas_of(answer)) {
            (Some(Code::Done), Some(cas)) => self.grip(cas, stored, now),
            // The item shows its holder.
            (Some(Code::NotStored), _) if self.goal == Goal::Obtain || self.is_unresolved => {
                self.begin(Query::Ask, now);
            }
            (Some(Code::NotStored), _) => self.end(LockNews::NotHeld),
            _ => self.refused(now, answer),
        }
    }

    fn asked(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let (Some(code @ (Code::Value | Code::Miss)), value) = (answer.code(), answer.value())
        else {
            return self.refused(now, answer);
        };
        let is_missing = code == Code::Miss;
        let item = self.terms.item.as_ref();
        let shows_us = !is_missing && item.is_some_and(|item| item.value.token().owns(value));
        let may_be_ours = match self.goal {
            Goal::Obtain => self.is_unresolved || item.is_some_and(|item| item.own_token),
            Goal::Hold | Goal::Release { .. } => true,
            Goal::None => false,
        };
        let left = answer.number(b't').map(Duration::from_secs);
        if let Some(cas) = cas_of(answer).filter(|_| shows_us && may_be_ours) {
            return self.is_ours(now, cas, left);
        }
        match self.goal {
            Goal::Obtain if self.terms.is_adopted => self.end(LockNews::NotHeld),
            // It was removed between the two requests, so an add at once may succeed.
            Goal::Obtain if is_missing && self.misses < MISSES_MAX => {
                self.misses += 1;
                self.begin(Query::Add, now);
            }
            Goal::Obtain => {
                let (is_lock, state) = (answer.is_lock(), LockState::of_item(answer));
                self.end(if is_lock || is_missing {
                    LockNews::Held(state)
                } else if left.is_none() {
                    LockNews::HasValue
                } else {
                    LockNews::Obstructed(state)
                });
            }
            Goal::Hold => self.lose(now, Loss::Taken),
            Goal::Release { .. } if self.removal_is_unresolved => self.end(LockNews::Released),
            Goal::Release { .. } => self.end(LockNews::NotHeld),
            Goal::None => {}
        }
    }

    /// The item shows our token.
    fn is_ours(&mut self, now: Instant, cas: Cas, left: Option<Duration>) {
        let was_in_doubt = self.cas.replace(cas).is_none();
        let left_s = left.unwrap_or_default() + Duration::from_secs(1);
        self.gone_at = self.gone_at.max(after(now, left_s));
        match self.goal {
            Goal::Hold => {
                if self.call == Call::Check {
                    self.call = Call::None;
                    self.news.push_back(LockNews::Confirmed(left));
                }
                let renews = self.call != Call::None || was_in_doubt && self.time.renews;
                if renews || self.time.renews && self.renew_at.is_none() {
                    self.begin(Query::Renew(cas), now);
                }
            }
            Goal::Obtain => self.begin(Query::Renew(cas), now),
            Goal::Release { .. } => self.begin(Query::Remove(cas), now),
            Goal::None => {}
        }
    }

    fn renewed(&mut self, now: Instant, stored: (Instant, Duration), answer: &AnyResponse<'_>) {
        match (answer.code(), cas_of(answer)) {
            (Some(Code::Done), Some(cas)) => self.grip(cas, stored, now),
            // An unanswered renewal of ours may have been executed after all (C3).
            (Some(Code::Exists | Code::NotFound), _) => {
                self.is_unresolved = true;
                self.begin(Query::Ask, now);
            }
            // A memcached that cannot store also removes the old item.
            _ if self.goal == Goal::Hold => {
                self.cas = None;
                self.put_off(now, Failure::from_answer(answer));
            }
            _ => self.refused(now, answer),
        }
    }

    fn removed(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        match answer.code() {
            Some(Code::Done) => self.end(LockNews::Released),
            Some(Code::NotFound) => self.end(LockNews::NotHeld),
            Some(Code::Exists) => {
                (self.cas, self.is_unresolved) = (None, true);
                self.begin(Query::Ask, now);
            }
            _ => self.refused(now, answer),
        }
    }

    /// None of the four requests has this answer.
    fn refused(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let failure = Failure::from_answer(answer);
        match self.goal {
            Goal::Obtain => self.fail(now, failure),
            Goal::Hold => self.put_off(now, failure),
            Goal::Release { is_told } => {
                if is_told {
                    self.goal = Goal::Release { is_told: false };
                    self.news.push_back(LockNews::Failed(failure));
                }
                let at = after(now, growing(&mut self.refusals));
                self.begin_removal(at);
            }
            Goal::None => {}
        }
    }
}

/// The version that an answer shows.
fn cas_of(answer: &AnyResponse<'_>) -> Option<Cas> {
    Cas::new(answer.number(b'c')?)
}
