//! One lock of a [`Grants`](super::Grants): its state, and the bytes of its requests.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use latchd_protocol::command::{LEASE_MS_MIN, Lease, LockMetadata, Mode, WAIT_MS_MAX};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::LEASE_ITEM;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::{Flag, Verb};

use crate::lock::{Belief, LockNews, LockTerms};
use crate::machine::Loss;
use crate::moment::{after, earlier, growing, millis, span};
use crate::own::{Call, Own};
use crate::session::AnyRequest;
use crate::terms::{DRIFT_PART, TICK_MS, exptime_for};

/// A kind of request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Query {
    Acquire,
    /// Acquires it, with a wait in the queue.
    Wait {
        ms: u64,
    },
    /// Asks whether it is ours, and renews its own time (B5).
    Confirm,
    /// Makes its item (B9).
    Add,
    /// Renews its item.
    Touch,
    /// Releases it together with its item.
    Remove,
    Release,
}

impl Query {
    /// Whether it releases the lock.
    pub(super) const fn is_release(self) -> bool {
        matches!(self, Self::Release | Self::Remove)
    }

    /// How long the server may be silent because the request waits.
    pub(super) const fn wait(self) -> Duration {
        if let Self::Wait { ms } = self {
            return Duration::from_millis(ms);
        }
        Duration::ZERO
    }
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) enum Goal {
    Obtain {
        /// Until when to wait in the queue.
        until: Option<Instant>,
        /// A connection broke under it before.
        is_repeated: bool,
    },
    /// It was granted, and cannot be kept, with this news.
    GiveBack(Box<LockNews>),
    Hold,
    Release {
        /// The caller waits for the news.
        is_told: bool,
        /// A request to release it was sent on a connection that broke before the reply (B6).
        is_unanswered: bool,
    },
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Turn {
    Rest,
    Due { query: Query, at: Instant },
    Awaiting,
}

/// One lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Grant {
    key: Box<[u8]>,
    pub(super) terms: LockTerms,
    pub(super) goal: Goal,
    turn: Turn,
    pub(super) fence: Option<Fence>,
    own: Option<Own>,
    /// When it is confirmed next.
    confirm_at: Instant,
    /// When its item is renewed next; `None` without an item.
    touch_at: Option<Instant>,
    call: Call,
    /// Requests refused in a row.
    refusals: u32,
}

impl Grant {
    pub(super) fn new(
        key: Key<'_>,
        terms: LockTerms,
        until: Option<Instant>,
        now: Instant,
    ) -> Self {
        let query = first_query(&terms, until, now);
        Self {
            key: key.as_bytes().into(),
            terms,
            goal: Goal::Obtain {
                until,
                is_repeated: false,
            },
            turn: Turn::Due { query, at: now },
            fence: None,
            own: None,
            confirm_at: now,
            touch_at: None,
            call: Call::None,
            refusals: 0,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.goal == Goal::Hold
    }

    /// Whether the server may have granted it: then its session is only resumed.
    pub(super) const fn may_hold(&self) -> bool {
        match self.goal {
            Goal::Hold | Goal::Release { .. } | Goal::GiveBack(_) => true,
            Goal::Obtain { .. } => self.terms.is_adopted,
        }
    }

    /// Whether the caller waits for the news of its release.
    pub(super) const fn is_told(&self) -> bool {
        matches!(self.goal, Goal::Release { is_told: true, .. })
    }

    /// When its next request is due; `None` while one is unanswered.
    pub(super) fn next(&self) -> Option<Instant> {
        match self.turn {
            Turn::Due { at, .. } => Some(at),
            Turn::Rest if self.is_held() => earlier(Some(self.confirm_at), self.touch_at),
            Turn::Rest | Turn::Awaiting => None,
        }
    }

    /// When its own time is over.
    pub(super) fn end(&self) -> Option<Instant> {
        self.own.filter(|_| self.is_held()).map(|own| own.deadline)
    }

    pub(super) fn belief(&self) -> Option<Belief> {
        self.is_held().then(|| Belief {
            until: self.end(),
            is_certain: true,
        })
    }

    /// Why it is lost, now that its own time is over.
    pub(super) fn loss(&self, now: Instant) -> Loss {
        self.own
            .map_or(Loss::Expired, |own| own.loss(now, self.hold_max()))
    }

    fn hold_max(&self) -> Option<Duration> {
        self.terms.lease?.hold_max
    }

    pub(super) const fn begin(&mut self, query: Query, at: Instant) {
        self.turn = Turn::Due { query, at };
    }

    pub(super) const fn rest(&mut self) {
        self.turn = Turn::Rest;
    }

    /// Begins the obtain anew, over another connection or in another session.
    pub(super) fn begin_again(&mut self, now: Instant, is_repeat: bool) {
        if let Goal::Obtain { until, is_repeated } = &mut self.goal {
            *is_repeated |= is_repeat;
            let query = first_query(&self.terms, *until, now);
            (self.touch_at, self.own) = (None, None);
            self.begin(query, now);
        }
    }

    /// Wants to release it. A request under way is answered first.
    pub(super) fn begin_release(&mut self, now: Instant, is_told: bool) {
        let is_unanswered = match self.goal {
            Goal::Release { is_unanswered, .. } => is_unanswered,
            Goal::Obtain { .. } | Goal::GiveBack(_) | Goal::Hold => false,
        };
        self.goal = Goal::Release {
            is_told,
            is_unanswered,
        };
        if self.turn != Turn::Awaiting {
            self.begin(self.release_query(), now);
        }
    }

    /// Releases it again, over another connection.
    pub(super) fn release_again(&mut self, now: Instant, is_repeat: bool) {
        if let Goal::Release { is_unanswered, .. } = &mut self.goal {
            *is_unanswered |= is_repeat;
        }
        self.begin(self.release_query(), now);
    }

    pub(super) const fn release_query(&self) -> Query {
        if self.touch_at.is_some() {
            Query::Remove
        } else {
            Query::Release
        }
    }

    /// A call of the holder. Returns whether it is held.
    pub(super) fn call(&mut self, now: Instant, call: Call) -> bool {
        if !self.is_held() {
            return false;
        }
        self.call = call;
        if self.turn == Turn::Rest {
            self.begin(Query::Confirm, now);
        }
        true
    }

    /// The holder's call, if one is to be answered.
    pub(super) const fn take_call(&mut self) -> Call {
        core::mem::replace(&mut self.call, Call::None)
    }

    /// A refused request is repeated after a pause that grows.
    pub(super) fn pause(&mut self, now: Instant) -> Instant {
        after(now, growing(&mut self.refusals))
    }

    /// A refused confirmation or renewal.
    pub(super) fn put_off(&mut self, now: Instant) {
        self.confirm_at = self.pause(now);
        self.rest();
    }

    /// The server has confirmed it, with its own time as it was requested at `sent`.
    pub(super) fn confirmed(
        &mut self,
        now: Instant,
        sent: Instant,
        ttl: Option<Duration>,
        heartbeat: Duration,
    ) {
        self.refusals = 0;
        if let (Call::Refresh(ttl), Some(lease)) = (self.call, &mut self.terms.lease) {
            lease.ttl = ttl;
        }
        if let Some(ttl) = ttl {
            let since = self.own.map_or(now, |own| own.since);
            self.own = Some(Own::new(after(sent, ttl), since, self.hold_max()));
        }
        let third = self
            .terms
            .lease
            .filter(|lease| lease.renews)
            .map(|lease| lease.ttl / 3);
        self.confirm_at = after(sent, third.map_or(heartbeat, |third| third.min(heartbeat)));
        self.rest();
    }

    /// Its item is there, as stored by a request sent at `sent`.
    pub(super) fn touched(&mut self, sent: Instant) {
        let ttl = self.terms.item.as_ref().map(|item| item.ttl);
        self.touch_at = ttl.map(|ttl| after(sent, ttl / 3));
        self.refusals = 0;
        self.rest();
    }

    /// It has an item, which is to be renewed now.
    pub(super) const fn has_item(&mut self, now: Instant) {
        self.touch_at = Some(now);
    }

    /// Its item is gone.
    pub(super) const fn has_no_item(&mut self) {
        self.touch_at = None;
    }

    /// A refused renewal of its item.
    pub(super) fn put_off_touch(&mut self, now: Instant) {
        self.touch_at = Some(self.pause(now));
        self.rest();
    }

    /// The end of its own time, whether it is held or not.
    pub(super) fn end_of_own(&self) -> Option<Instant> {
        self.own.map(|own| own.deadline)
    }

    /// Whether its own time, if it has one, is over by the client's clock.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.own.is_some_and(|own| now >= own.deadline)
    }

    /// Its next request is sent. Returns it, and the time that it asks for.
    pub(super) fn sending(&mut self, now: Instant) -> (Query, Option<Duration>) {
        let query = match self.turn {
            Turn::Due { query, .. } => query,
            Turn::Rest | Turn::Awaiting if self.confirm_at <= now => Query::Confirm,
            Turn::Rest | Turn::Awaiting => Query::Touch,
        };
        self.turn = Turn::Awaiting;
        let ttl = match query {
            Query::Acquire | Query::Wait { .. } | Query::Confirm => self.ttl(now),
            Query::Add | Query::Touch | Query::Remove | Query::Release => None,
        };
        if let (Some(own), Some(ttl)) = (&mut self.own, ttl) {
            own.asks_for(now, ttl);
        }
        (query, ttl)
    }

    /// The own time to ask for now: a new one, or the rest of the last.
    fn ttl(&self, now: Instant) -> Option<Duration> {
        let lease = self.terms.lease?;
        let whole = self.call.ttl(lease.ttl);
        let is_new = lease.renews || matches!(self.call, Call::Refresh(_));
        match self.own {
            Some(own) if !is_new => Some(span(now, own.deadline)),
            Some(own) => {
                let end = own.capped_at(lease.hold_max);
                Some(end.map_or(whole, |end| whole.min(span(now, end))))
            }
            None => Some(whole.min(lease.hold_max.unwrap_or(Duration::MAX))),
        }
    }

    /// The bytes of a request.
    pub(super) fn request(&self, query: Query, ttl: Option<Duration>) -> AnyRequest<'_> {
        let key = Key::new(&self.key).expect("these bytes were taken from a key");
        let item = self.terms.item.as_ref();
        let exptime = item.map(|item| exptime_for(item.ttl)).unwrap_or_default();
        let grant = self.fence;
        match query {
            Query::Acquire => AnyRequest::meta(Verb::Lock, key, self.lock_flags(ttl), &[]),
            Query::Wait { ms } => {
                let mut flags = self.lock_flags(ttl);
                flags.push(Flag::Wait(ms));
                AnyRequest::meta(Verb::Lock, key, flags, &[])
            }
            Query::Confirm => {
                let lease = match ttl {
                    // Only what is ours is confirmed; its time follows.
                    Some(_) if grant.is_none() => Lease::Off,
                    Some(ttl) => asked_for(ttl),
                    None => Lease::Off,
                };
                let mut flags = self.grant_flags();
                flags.push(Flag::Lease(lease));
                AnyRequest::meta(Verb::Lock, key, flags, &[])
            }
            Query::Add => {
                let value = item.map(|item| item.value.as_bytes()).unwrap_or_default();
                let flags = [
                    Flag::Mode(b'E'),
                    Flag::ClientFlags(LEASE_ITEM),
                    Flag::Touch(exptime),
                ];
                AnyRequest::meta(Verb::Set, key, flags, value)
            }
            Query::Touch => AnyRequest::meta(Verb::Get, key, [Flag::Touch(exptime)], &[]),
            Query::Remove => {
                let mut flags = vec![Flag::Unlock];
                flags.extend(grant.map(Flag::InGrant));
                AnyRequest::meta(Verb::Delete, key, flags, &[])
            }
            Query::Release => {
                let flags: Vec<_> = grant.map(Flag::OfGrant).into_iter().collect();
                AnyRequest::meta(Verb::Unlock, key, flags, &[])
            }
        }
    }

    /// The flags of `ml` that show the grant.
    fn grant_flags(&self) -> Vec<Flag<'_>> {
        let mut flags = vec![Flag::ShowFence, Flag::ShowHold];
        if let Mode::Shared { max_sharers } = self.terms.mode {
            flags.push(Flag::Shared(max_sharers));
        }
        flags
    }

    /// The flags of `ml` for a new grant. They show the item if there is one (B9).
    fn lock_flags(&self, ttl: Option<Duration>) -> Vec<Flag<'_>> {
        let mut flags = self.grant_flags();
        flags.extend([Flag::ShowClientFlags, Flag::ShowMetadata]);
        flags.extend(ttl.map(|ttl| Flag::Lease(asked_for(ttl))));
        flags.extend(LockMetadata::new(&self.terms.metadata).map(Flag::Metadata));
        if self.terms.item.is_some() {
            flags.extend([Flag::ShowTtl, Flag::Value]);
        }
        flags
    }
}

/// The first request of an obtain.
fn first_query(terms: &LockTerms, until: Option<Instant>, now: Instant) -> Query {
    match until {
        _ if terms.is_adopted => Query::Confirm,
        Some(until) => {
            let ms = millis(span(now, until)).clamp(1, WAIT_MS_MAX);
            Query::Wait { ms }
        }
        None => Query::Acquire,
    }
}

/// The time that a request asks for, so that it outlives the belief in it: one percent and ten milliseconds more.
fn asked_for(ttl: Duration) -> Lease {
    let ttl_ms = millis(ttl);
    let ms = ttl_ms
        .saturating_add(ttl_ms.div_ceil(DRIFT_PART))
        .saturating_add(TICK_MS);
    Lease::For {
        ms: ms.max(LEASE_MS_MIN),
    }
}
