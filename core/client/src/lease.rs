//! A lock that the server ends by time: an item with a token, which only its holder changes.
//!
//! It needs four requests, which any memcached with meta commands serves:
//!
//! | | request | done | in the way |
//! | --- | --- | --- | --- |
//! | add | `ms KEY <len> ME F<flags> T<exptime> c` | `HD c<cas>` | `NS` |
//! | ask | `mg KEY v c t` | `VA … c<cas> t<ttl>` | `EN` |
//! | renew | `ms KEY <len> C<cas> F<flags> T<exptime> c` | `HD c<cas>` | `EX`, `NF` |
//! | remove | `md KEY C<cas>` | `HD` | `EX`, `NF` |
//!
//! On a server that has locks of keys, two more keep the order of waiting clients ([`Terms::queues`]):
//!
//! | | request | done | in the way |
//! | --- | --- | --- | --- |
//! | place | `ml KEY F T<seconds>` | `HD F<fence>` | `LK` |
//! | leave | `mu KEY F<fence>` | `HD` | `NF` |
//!
//! The client flags are always [`LEASE_ITEM`]. By these a lock that is bound to a connection of a latchd
//! recognizes the item of a lease, and waits for its end.
//!
//! - C1: The item is changed and removed only by the version that we know to be ours. So a late holder changes
//!   nothing of its successor's.
//! - C2: A holder believes in its lock from an answer until `ttl` after the request was *sent*, and never again
//!   after it learned that the lock is lost.
//! - C3: After a request without an answer, the client asks the server for the result instead of guessing; the
//!   whole token decides. If an obtain learns this way that the item is ours, it renews the item before it
//!   believes.
//! - C4: One request is unanswered at a time; an add and the place behind it count as one.
//! - C5: A version is known only on the connection that told it. A server that restarts counts anew, so our
//!   item's version may soon be another item's; but every restart ends the connections. On a new connection the
//!   token is asked for before a request names a version.
//! - C6: While no connection has told the version, the lease is in doubt. As long as it has time it is not
//!   lost. It is not held either, since the server may have restarted and granted it to another client.
//!
//! - C7: The item alone decides about the owner of the lease. The lock of the key is the holder's place at the
//!   head of the server's queue. It is acquired together with the item, released with it in one step, and
//!   expires soon after it. The changes of a holder name its fence, so they succeed over a new connection while
//!   the server still keeps the old one open. If the lock is lost, waiters look at the item, and nothing else
//!   changes.
//!
//! A limit of every client: a server that evicts the item, or restarts, grants the lock to another client while
//! we believe. The number of the grant ([`Lease::number`]) lets the resource itself refuse a late holder, as
//! long as the server does not restart.
//!
//! Source of the requests: memcached 1.6.45 `doc/protocol.txt`; all of them work on 1.6.18.

mod answers;
mod clock;
mod place;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::{Flag, Verb};

use self::place::Place;
use super::machine::{Action, Failure, Loss, Machine, NotObtained};
use super::moment::after;
use super::retry::Retries;
use super::session::{AnyRequest, AnyResponse, Flags};
use super::terms::{
    LEASE_ITEM, OnDisconnect, RECONNECT, Terms, TermsError, check_ttl, exptime_for,
};
use super::token::{Token, TokenValue};

/// The news of a lease.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum LeaseNews {
    /// It is ours.
    Obtained,
    /// It is not ours, and no more tries follow.
    NotObtained(NotObtained),
    /// A requested refresh succeeded.
    Refreshed,
    /// A requested refresh or measurement failed, but the lease is still ours for now.
    Undone(Failure),
    /// It was ours until this moment, and is released.
    Released,
    /// There was nothing of ours to refresh, release or measure.
    NotHeld,
    /// The time that is left by the server's answer: the result of [`measure`](Lease::measure).
    Lasts(Duration),
    /// It is no longer ours, or may not be. Only the answer to a release can follow.
    Lost(Loss),
    /// The result is unknown: the obtain or the release has ended without an answer.
    Failed(Failure),
    /// Another client holds it, and the server has a queue. Wait for the key's lock on a connection of its own,
    /// then call [`granted`](Lease::granted), [`unqueued`](Lease::unqueued) or
    /// [`not_granted`](Lease::not_granted).
    Queues,
    /// It now belongs to the client that shows its token, and its place is free.
    Detached,
}

/// The goal of the lease.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum LeaseGoal {
    /// Nothing.
    None,
    /// To obtain it.
    Obtain {
        /// When to stop trying.
        until: Instant,
    },
    /// To keep it.
    Hold,
    /// To release it.
    Release {
        /// When to stop trying.
        until: Instant,
    },
}

/// An [`Action`] that borrows nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum LeaseAction {
    Connect,
    Disconnect,
    Send(Query),
    Tell(LeaseNews),
    Wait { until: Option<Instant> },
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
    /// Acquires or renews the key's lock (C7).
    Place,
    /// Releases the key's lock (C7).
    Leave(Fence),
}

/// The side that acts next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Turn {
    /// Neither side.
    Rest,
    /// We send this request.
    Due { query: Query, at: Instant },
    /// The server answers. A store was for `ttl`.
    Awaiting {
        query: Query,
        sent: Instant,
        ttl: Duration,
    },
}

/// Whether there is a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Link {
    Down { retry_at: Instant },
    Up,
}

/// The progress of a refresh that the caller asked for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Refresh {
    None,
    /// The request under way is older than the refresh.
    Asked,
    /// The request under way serves the refresh.
    Sent,
}

/// A belief in the lock (C2).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Belief {
    /// When it ends.
    deadline: Instant,
    /// When it began.
    since: Instant,
}

/// One leased lock.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each may be so or not whatever the others are"
)]
pub struct Lease {
    key: Box<[u8]>,
    value: TokenValue,
    terms: Terms,
    retries: Retries,
    goal: LeaseGoal,
    turn: Turn,
    link: Link,
    belief: Option<Belief>,
    /// The version of the item that is ours, as this connection told it (C5).
    cas: Option<Cas>,
    /// The version it had when it was obtained.
    number: Option<Cas>,
    /// The server has said in this obtain that another client holds the lock.
    heard_held: bool,
    /// An item with our token and an unknown version may exist: an add went unanswered (C3), or the connection
    /// that told the version is gone (C5).
    unresolved: bool,
    /// A remove went unanswered while we believed, so our own request may have removed the item.
    removal_unresolved: bool,
    /// When the watchdog next renews.
    renew_at: Option<Instant>,
    /// The caller asked for a refresh, and has no result yet.
    refresh: Refresh,
    /// The caller asked for the remaining time by the server's clock.
    measure_asked: bool,
    /// The place at the head of the key's queue (C7).
    place: Place,
    /// The server does not know `ml`.
    lacks_queue: bool,
    /// The holder wants to leave the item to another client.
    is_leaving: bool,
    news: VecDeque<LeaseNews>,
}

impl Lease {
    /// A lease that was not requested yet. `key` is the item's key, `value` its value.
    ///
    /// # Errors
    /// [`TermsError`] if the server cannot measure the ttl.
    pub fn new(key: Key<'_>, value: TokenValue, terms: Terms) -> Result<Self, TermsError> {
        check_ttl(terms.ttl)?;
        Ok(Self {
            key: key.as_bytes().into(),
            value,
            retries: terms.retry.begin(terms.seed),
            terms,
            goal: LeaseGoal::None,
            turn: Turn::Rest,
            link: Link::Down {
                retry_at: Instant::default(),
            },
            belief: None,
            cas: None,
            number: None,
            heard_held: false,
            unresolved: false,
            removal_unresolved: false,
            renew_at: None,
            refresh: Refresh::None,
            measure_asked: false,
            place: Place::None,
            lacks_queue: false,
            is_leaving: false,
            news: VecDeque::new(),
        })
    }

    /// Begins to obtain it. Ends in [`Obtained`](LeaseNews::Obtained),
    /// [`NotObtained`](LeaseNews::NotObtained) or [`Failed`](LeaseNews::Failed).
    pub fn obtain(&mut self, now: Instant) {
        let patience = self.terms.deadline.unwrap_or(self.terms.ttl);
        self.obtain_until(now, after(now, patience));
    }

    /// As [`obtain`](Self::obtain), with a deadline shared with other leases.
    pub(super) fn obtain_until(&mut self, now: Instant, until: Instant) {
        if self.goal != LeaseGoal::None {
            return;
        }
        self.retries = self.terms.retry.begin(self.terms.seed);
        self.removal_unresolved = false;
        self.heard_held = false;
        self.is_leaving = false;
        self.goal = LeaseGoal::Obtain { until };
        // If an older answer is still to come, it may even say that the item is ours (C4).
        if self.turn == Turn::Rest {
            self.begin(Query::Add, now);
        }
    }

    /// Asks for `ttl` from now on, also with every later renewal. Ends in [`Refreshed`](LeaseNews::Refreshed),
    /// [`Undone`](LeaseNews::Undone), [`Lost`](LeaseNews::Lost) or [`NotHeld`](LeaseNews::NotHeld).
    ///
    /// # Errors
    /// [`TermsError`] if the server cannot measure `ttl`; nothing is sent then.
    pub fn refresh(&mut self, now: Instant, ttl: Duration) -> Result<(), TermsError> {
        check_ttl(ttl)?;
        if !self.has_time(now) {
            self.deny(now);
            return Ok(());
        }
        self.terms.ttl = ttl;
        self.refresh = Refresh::Asked;
        if self.turn == Turn::Rest {
            self.begin_renewal(now);
        }
        Ok(())
    }

    /// Asks the server for the remaining time. Ends in [`Lasts`](LeaseNews::Lasts), [`Lost`](LeaseNews::Lost),
    /// [`NotHeld`](LeaseNews::NotHeld) or [`Undone`](LeaseNews::Undone).
    pub fn measure(&mut self, now: Instant) {
        if !self.has_time(now) {
            return self.deny(now);
        }
        self.measure_asked = true;
        if self.turn == Turn::Rest {
            self.begin(Query::Ask, now);
        }
    }

    /// There is nothing to refresh or to measure. If its time is over and the caller does not know yet, the
    /// news is the loss.
    fn deny(&mut self, now: Instant) {
        if self.lost_by(now).is_none() {
            self.news.push_back(LeaseNews::NotHeld);
        }
    }

    /// The loss, if it is lost by `now` and the caller does not know yet.
    pub(super) fn lost_by(&mut self, now: Instant) -> Option<Loss> {
        self.pass_time(now);
        self.news.iter().find_map(|news| {
            if let LeaseNews::Lost(loss) = news {
                Some(*loss)
            } else {
                None
            }
        })
    }

    /// Releases it. Ends in [`Released`](LeaseNews::Released), [`NotHeld`](LeaseNews::NotHeld) or
    /// [`Failed`](LeaseNews::Failed). An obtain that is under way is broken off, and its item, if any, is
    /// removed.
    pub fn release(&mut self, now: Instant) {
        match self.goal {
            LeaseGoal::Release { .. } => return,
            // An item that may be ours is looked up; without one there is nothing to release.
            LeaseGoal::None if self.cas.is_none() && !self.unresolved => {
                return self.news.push_back(LeaseNews::NotHeld);
            }
            LeaseGoal::None | LeaseGoal::Obtain { .. } | LeaseGoal::Hold => {}
        }
        self.goal = LeaseGoal::Release {
            until: after(now, self.terms.reply_timeout.saturating_mul(2)),
        };
        match self.turn {
            Turn::Awaiting { .. } => {}
            Turn::Rest | Turn::Due { .. } if self.cas.is_some() || self.unresolved => {
                self.begin_removal(now);
            }
            Turn::Rest | Turn::Due { .. } => self.end(LeaseNews::NotHeld),
        }
    }

    /// The item's key.
    #[must_use]
    pub const fn key(&self) -> &[u8] {
        &self.key
    }

    /// The token of this holder.
    #[must_use]
    pub const fn token(&self) -> &Token {
        self.value.token()
    }

    /// The note that others can read.
    #[must_use]
    pub const fn metadata(&self) -> &[u8] {
        self.value.metadata()
    }

    /// Whether it is ours at this moment, as far as we can know (C2, C6).
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        self.has_time(now) && !self.is_in_doubt()
    }

    /// Whether its connection is gone, and the server has not been heard over a new one (C6).
    #[must_use]
    pub const fn is_in_doubt(&self) -> bool {
        self.cas.is_none()
    }

    fn has_time(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now < deadline)
    }

    /// When it is lost without a renewal, by the local clock; `None` if it is not ours.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.belief
            .filter(|_| self.goal == LeaseGoal::Hold)
            .map(|belief| belief.deadline)
    }

    /// The number of the grant. On one run of a server, a later grant has a higher number. Renewals do not
    /// change it. `None` before it was obtained.
    #[must_use]
    pub const fn number(&self) -> Option<Cas> {
        self.number
    }

    fn begin(&mut self, query: Query, at: Instant) {
        self.turn = Turn::Due { query, at };
    }

    /// Renews the item by its version, or asks for the version first (C5).
    fn begin_renewal(&mut self, now: Instant) {
        self.begin(self.cas.map_or(Query::Ask, Query::Renew), now);
    }

    /// Removes the item by its version, or asks for the version first (C5).
    fn begin_removal(&mut self, now: Instant) {
        self.begin(self.cas.map_or(Query::Ask, Query::Remove), now);
    }

    /// The goal is reached or abandoned.
    fn end(&mut self, news: LeaseNews) {
        self.goal = LeaseGoal::None;
        self.is_leaving = false;
        self.belief = None;
        self.renew_at = None;
        self.refresh = Refresh::None;
        self.measure_asked = false;
        if !matches!(self.turn, Turn::Awaiting { .. }) {
            self.turn = Turn::Rest;
        }
        self.news.push_back(news);
    }

    fn lose(&mut self, loss: Loss) {
        if loss == Loss::Taken {
            (self.cas, self.unresolved) = (None, false);
        }
        self.end(LeaseNews::Lost(loss));
    }

    /// A request is sent; from here on the server may execute it.
    fn sending(&mut self, query: Query, now: Instant) {
        let ttl = self.terms.ttl;
        self.turn = Turn::Awaiting {
            query,
            sent: now,
            ttl,
        };
        if query == Query::Add && self.terms.queues && self.place == Place::None {
            self.place = Place::Due;
        }
        if !matches!(query, Query::Renew(_)) {
            return;
        }
        if self.refresh == Refresh::Asked {
            self.refresh = Refresh::Sent;
        }
        // The new time may be shorter than our belief, and the answer may never come.
        if let Some(belief) = &mut self.belief {
            belief.deadline = belief.deadline.min(after(now, ttl));
        }
    }

    /// The request for a [`LeaseAction::Send`].
    pub(super) fn request(&self, query: Query) -> AnyRequest<'_> {
        let key = Key::new(&self.key).expect("these bytes were taken from a key");
        let touch = Flag::Touch(exptime_for(self.terms.ttl));
        let store = |first| AnyRequest::Meta {
            verb: Verb::Set,
            key,
            flags: self.in_place(Flags::of([
                first,
                Flag::ClientFlags(LEASE_ITEM),
                touch,
                Flag::ShowCas,
            ])),
            value: self.value.as_bytes(),
        };
        match query {
            Query::Add => store(Flag::Mode(b'E')),
            Query::Renew(cas) => store(Flag::Cas(cas.number())),
            Query::Ask => {
                let flags = Flags::of([Flag::Value, Flag::ShowCas, Flag::ShowTtl]);
                AnyRequest::meta(Verb::Get, key, flags)
            }
            Query::Remove(cas) => {
                let flags = self.in_place(Flags::of([Flag::Cas(cas.number())]));
                let flags = match self.place {
                    Place::Held(_) => flags.with(Flag::Unlock),
                    Place::None | Place::Due | Place::Asked { .. } => flags,
                };
                AnyRequest::meta(Verb::Delete, key, flags)
            }
            Query::Place => AnyRequest::meta(Verb::Lock, key, self.place_flags()),
            Query::Leave(fence) => {
                AnyRequest::meta(Verb::Unlock, key, Flags::of([Flag::OfGrant(fence)]))
            }
        }
    }

    /// Returns the next action, with nothing borrowed.
    pub(super) fn advance(&mut self, now: Instant) -> LeaseAction {
        self.pass_time(now);
        if let Some(news) = self.news.pop_front() {
            return LeaseAction::Tell(news);
        }
        if self.turn == Turn::Rest
            && self.goal == LeaseGoal::Hold
            && self.renew_at.is_some_and(|at| now >= at)
        {
            self.renew_at = None;
            if !self.is_capped(now) {
                self.begin_renewal(now);
            }
        }
        if let Some(action) = self.keep_place(now) {
            return action;
        }
        match self.turn {
            Turn::Due { query, at } if now >= at => match self.link {
                Link::Down { retry_at } if now >= retry_at => {
                    return LeaseAction::Connect;
                }
                Link::Down { .. } => {}
                Link::Up => {
                    self.sending(query, now);
                    return LeaseAction::Send(query);
                }
            },
            Turn::Awaiting { sent, .. } if now >= after(sent, self.terms.reply_timeout) => {
                return LeaseAction::Disconnect;
            }
            Turn::Due { .. } | Turn::Awaiting { .. } | Turn::Rest => {}
        }
        LeaseAction::Wait { until: self.wake() }
    }
}

impl Machine for Lease {
    type News = LeaseNews;

    fn poll(&mut self, now: Instant) -> Action<'_, LeaseNews> {
        match self.advance(now) {
            LeaseAction::Connect => Action::Connect {
                until: self.goal_end(),
            },
            LeaseAction::Disconnect => Action::Disconnect,
            LeaseAction::Send(query) => Action::Send(self.request(query)),
            LeaseAction::Tell(news) => Action::Tell(news),
            LeaseAction::Wait { until } => Action::Wait { until },
        }
    }

    fn connected(&mut self, _: Instant) {
        self.link = Link::Up;
    }

    fn disconnected(&mut self, now: Instant) {
        let had_none = matches!(self.link, Link::Down { .. });
        self.link = Link::Down {
            retry_at: if had_none { after(now, RECONNECT) } else { now },
        };
        let unanswered = match self.turn {
            Turn::Awaiting { query, .. } => Some(query),
            Turn::Due { .. } | Turn::Rest => None,
        };
        if unanswered.is_some() {
            self.turn = Turn::Rest;
        }
        if self.refresh == Refresh::Sent {
            self.refresh = Refresh::Asked;
        }
        if self.goal == LeaseGoal::None && self.place != Place::None {
            // Its keeper waits for this news.
            self.place = Place::None;
            self.news.push_back(LeaseNews::NotHeld);
        }
        self.place.forget_unanswered();
        // C5. A request that named the version waits until the token was asked for, below.
        let knew = self.cas.take().is_some();
        self.unresolved |= knew || unanswered == Some(Query::Add);
        match self.goal {
            // A wait for another client's lock continues through a restart of the server.
            LeaseGoal::Obtain { .. } if had_none && self.heard_held => {}
            LeaseGoal::Obtain { .. } | LeaseGoal::Release { .. } if had_none => {
                self.end(LeaseNews::Failed(Failure::Disconnected));
            }
            // Two connections in a row were closed without an answer: the peer is no cache server.
            LeaseGoal::Obtain { .. } if unanswered == Some(Query::Ask) && !self.heard_held => {
                self.end(LeaseNews::Failed(Failure::Disconnected));
            }
            LeaseGoal::Obtain { .. } if knew || unanswered.is_some() => self.begin(Query::Ask, now),
            LeaseGoal::Hold => match self.terms.on_disconnect {
                OnDisconnect::Lost => self.lose(Loss::Disconnected),
                OnDisconnect::Ask => self.begin(Query::Ask, now),
            },
            LeaseGoal::Release { .. } => {
                self.removal_unresolved |= matches!(unanswered, Some(Query::Remove(_)));
                self.begin(Query::Ask, now);
            }
            // An add that is due may still be sent.
            LeaseGoal::Obtain { .. } | LeaseGoal::None => {}
        }
    }

    fn reply(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let Turn::Awaiting { query, sent, ttl } = self.turn else {
            // This answer comes behind the answer to the add (C4).
            return self.placed(now, answer);
        };
        self.turn = Turn::Rest;
        // This answer cannot save a belief that ran out before this moment (C2).
        self.pass_time(now);
        match query {
            Query::Add => self.added(now, (sent, ttl), answer),
            Query::Ask => self.asked(now, answer),
            Query::Renew(_) => self.renewed(now, (sent, ttl), answer),
            Query::Remove(_) => self.removed(now, answer),
            Query::Place => self.placed(now, answer),
            Query::Leave(_) => self.left(now),
        }
    }
}

#[cfg(test)]
mod tests;
