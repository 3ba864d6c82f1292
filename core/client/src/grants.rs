//! Locks on latchd: `ml`, in a session of the server or on a connection.
//!
//! - B1: All locks of a machine have one owner, a session or a connection. They end with it, and each by its own time if
//!   it has one. A connection carries the requests of all; each lock has one unanswered request (B2).
//! - B3: A client in a session believes no longer than its session surely lives (H1 of [`attachment`](super::attachment)).
//!   After a break it resumes the session and asks for each lock. A lock is still held if the server shows the same fence.
//! - B4: Without a session the end of the connection is the end of the locks. The client notices it within a heartbeat and
//!   the reply timeout. The server may notice earlier, and grant a lock to another client: the fence is the answer.
//! - B5: Each lock is confirmed once a heartbeat (`T-1`, or the rest of its own time). So a lock that an operator has
//!   released is lost within a heartbeat. Both requests change nothing of a lock that is ours.
//! - B6: A request whose reply was lost is sent again in the resumed session. A granted lock is granted again with the
//!   same fence; a lock that is not there at a second release was released by the first.
//! - B7: A release names the fence of its grant, so a late one releases no later grant.
//! - B8: While a request waits in the queue, the machine keeps no other lock, and sends nothing else.
//! - B9: A key whose item has [`LEASE_ITEM`] is locked by a client that locks by `add`. `ml` shows the item in the same
//!   step, so the grant is released before it is believed. A lock with an item of its own ([`LockItem`]) makes it after
//!   the grant, and removes it in one step with the release.
//! - B10: A lost belief is followed by a release. If all locks of a session are lost, the session is ended.
//!
//! The bound of the belief in a cluster is in `grants/hold.rs`.
//!
//! Source: docs/PROTOCOL.md, "Locks of keys", "Sessions".

mod answers;
mod grant;
mod hold;
mod owner;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use latchd_protocol::fence::Fence;
#[cfg(doc)]
use latchd_protocol::item::LEASE_ITEM;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use self::grant::{Goal, Grant, Query};
use self::hold::Hold;
use super::attachment::{Attachment, SessionTerms};
#[cfg(doc)]
use super::lock::LockItem;
use super::lock::{Belief, LockId, LockMachine, LockNews, LockTerms};
use super::machine::{Action, Failure, Loss, Machine};
use super::moment::{after, earlier};
use super::own::Call;
use super::session::{AnyRequest, AnyResponse};
use super::terms::RECONNECT;

/// The most unanswered requests of a machine.
const IN_FLIGHT_MAX: usize = 1_000;

/// The shortest time between the confirmations of two locks, on average. So ten thousand locks cost a thousand requests
/// a second, and each is confirmed every ten seconds.
const CONFIRM_PACE: Duration = Duration::from_millis(1);

/// The owner of a machine's locks.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct OwnerTerms {
    /// The session that has the locks; `None` means the connection.
    pub session: Option<SessionTerms>,
    /// How often each lock is confirmed; in a session at least three times in its time.
    pub heartbeat: Duration,
    /// How long the server may take to answer before the connection counts as broken.
    pub reply_timeout: Duration,
    /// The seed of the jitter: any number that differs between clients.
    pub seed: u64,
}

/// Whether there is a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Link {
    Down {
        retry_at: Instant,
    },
    Up,
    /// It must be closed.
    Unwanted,
}

/// An unanswered request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Sent {
    what: Asked,
    at: Instant,
}

/// What an unanswered request asks for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Asked {
    /// A lock; with its own time, as it was requested.
    Lock {
        id: LockId,
        query: Query,
        ttl: Option<Duration>,
    },
    /// The session. `holds`: it is only resumed.
    Attach { holds: bool },
    /// The end of the session.
    End,
    /// The hold of the server.
    Hold,
}

/// The locks of one owner on latchd.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Grants {
    terms: OwnerTerms,
    session: Option<Attachment>,
    /// The session is to be ended (B10).
    ends_session: bool,
    is_closing: bool,
    link: Link,
    locks: BTreeMap<LockId, Grant>,
    next_id: u64,
    /// The number of locks that are held.
    held: usize,
    /// The number of locks that the server may have granted.
    granted: usize,
    /// When the next request of each lock is due.
    due: BTreeSet<(Instant, LockId)>,
    /// When each lock with a time of its own is lost.
    ends: BTreeSet<(Instant, LockId)>,
    in_flight: VecDeque<Sent>,
    /// Since when there is no lock.
    idle_since: Instant,
    hold: Option<Hold>,
    changed: VecDeque<LockId>,
    news: VecDeque<(LockId, LockNews)>,
}

impl Grants {
    /// A machine without locks.
    #[must_use]
    pub fn new(terms: OwnerTerms) -> Self {
        let session = terms.session.clone();
        Self {
            session: session.map(|session| Attachment::new(session, terms.seed)),
            terms,
            ends_session: false,
            is_closing: false,
            link: Link::Down {
                retry_at: Instant::default(),
            },
            locks: BTreeMap::new(),
            next_id: 0,
            held: 0,
            granted: 0,
            due: BTreeSet::new(),
            ends: BTreeSet::new(),
            in_flight: VecDeque::new(),
            idle_since: Instant::default(),
            hold: None,
            changed: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    /// Whether a session has the locks, and not a connection.
    #[must_use]
    pub const fn is_in_session(&self) -> bool {
        self.session.is_some()
    }

    /// Changes a lock, and notes when its next request is due.
    fn change<T>(&mut self, id: LockId, change: impl FnOnce(&mut Grant) -> T) -> Option<T> {
        let grant = self.locks.get_mut(&id)?;
        let before = Shown::of(grant);
        let result = change(grant);
        let after = Shown::of(grant);
        if before.belief != after.belief {
            self.changed.push_back(id);
        }
        self.show(id, before, after);
        Some(result)
    }

    /// Forgets a lock, and tells its last news.
    fn remove(&mut self, now: Instant, id: LockId, news: LockNews) {
        self.drop_lock(id);
        self.idle_since = now;
        self.news.push_back((id, news));
    }

    fn drop_lock(&mut self, id: LockId) {
        if let Some(grant) = self.locks.remove(&id) {
            self.show(id, Shown::of(&grant), Shown::default());
        }
    }

    /// Notes what a lock shows now, and not any more.
    fn show(&mut self, id: LockId, before: Shown, after: Shown) {
        replace(&mut self.due, id, before.due, after.due);
        replace(&mut self.ends, id, before.end, after.end);
        let (held, granted) = (self.held, self.granted);
        self.held =
            held + usize::from(after.belief.is_some()) - usize::from(before.belief.is_some());
        self.granted = granted + usize::from(after.may_hold) - usize::from(before.may_hold);
    }

    fn ids(&self, such: impl Fn(&Grant) -> bool) -> VecDeque<LockId> {
        let chosen = self.locks.iter().filter(|(_, grant)| such(grant));
        chosen.map(|(id, _)| *id).collect()
    }

    /// Whether a lock is held, or may be held: a session is only resumed then.
    const fn holds(&self) -> bool {
        self.granted > 0
    }

    /// A held lock is lost, and is released if the server may still have it (B10).
    fn lose(&mut self, now: Instant, id: LockId, loss: Loss) {
        if loss == Loss::Taken || self.session.is_none() && loss == Loss::Disconnected {
            return self.remove(now, id, LockNews::Lost(loss));
        }
        self.news.push_back((id, LockNews::Lost(loss)));
        self.change(id, |grant| grant.begin_release(now, false));
        if self.held == 0 && loss != Loss::HeldTooLong && self.session.is_some() {
            self.ends_session = true;
        }
    }

    /// An obtain has ended without a grant that we know of.
    fn fail(&mut self, now: Instant, id: LockId, failure: Failure) {
        let may_have_it = self.session.as_ref().is_some_and(Attachment::may_live);
        let news = LockNews::Failed(failure);
        if !may_have_it {
            return self.remove(now, id, news);
        }
        self.news.push_back((id, news));
        self.change(id, |grant| grant.begin_release(now, false));
    }

    /// How often each lock is confirmed.
    fn heartbeat(&self) -> Duration {
        let count = u32::try_from(self.locks.len()).unwrap_or(u32::MAX);
        let own = match &self.session {
            Some(session) => session.patience(self.terms.heartbeat),
            None => self.terms.heartbeat,
        };
        own.max(CONFIRM_PACE.saturating_mul(count))
    }

    /// The effect of time alone.
    fn pass_time(&mut self, now: Instant) {
        while let Some((at, id)) = self.ends.first().copied()
            && at <= now
        {
            let grant = self.locks.get(&id);
            let loss = grant.map_or(Loss::Expired, |grant| grant.loss(now));
            self.lose(now, id, loss);
        }
        let common = self.common_deadline();
        if common.is_some_and(|until| now >= until) {
            let is_unconfirmed = self.hold_until().is_some_and(|until| now >= until);
            let loss = if is_unconfirmed {
                Loss::Unconfirmed
            } else {
                Loss::Expired
            };
            for id in self.ids(Grant::is_held) {
                self.lose(now, id, loss);
                self.link_must_break();
            }
        }
        self.pass_session(now);
    }

    /// The connection has not served well: another one may.
    fn link_must_break(&mut self) {
        if self.link == Link::Up && !self.in_flight.is_empty() {
            self.link = Link::Unwanted;
        }
    }

    /// When the oldest unanswered request has been silent for too long.
    fn silence_end(&self) -> Option<Instant> {
        let oldest = self.in_flight.front()?;
        let own = self.terms.reply_timeout;
        let patience = match &self.session {
            Some(session) => session.patience(own),
            None => own,
        };
        let wait = match oldest.what {
            Asked::Lock { query, .. } => query.wait(),
            Asked::Attach { .. } | Asked::End | Asked::Hold => Duration::ZERO,
        };
        Some(after(oldest.at, wait.saturating_add(patience)))
    }

    /// Whether a request waits in the queue of the server (B8).
    fn waits(&self) -> bool {
        let last = self.in_flight.back();
        last.is_some_and(|sent| {
            matches!(
                sent.what,
                Asked::Lock {
                    query: Query::Wait { .. },
                    ..
                }
            )
        })
    }

    /// The next lock whose request may be sent now.
    fn next_due(&self, now: Instant) -> Option<LockId> {
        let (at, id) = *self.due.first()?;
        let is_free = self.in_flight.len() < IN_FLIGHT_MAX;
        (at <= now && is_free && self.is_attached()).then_some(id)
    }

    /// Whether a connection is wanted.
    fn wants_link(&self, now: Instant) -> bool {
        let keeps = self.session.is_some() && !self.locks.is_empty();
        let is_due = self.due.first().is_some_and(|(at, _)| *at <= now);
        keeps || is_due || self.is_to_end()
    }

    fn send(&mut self, what: Asked, now: Instant) {
        self.in_flight.push_back(Sent { what, at: now });
        if let Some(session) = &mut self.session
            && what != Asked::End
        {
            session.speaks(now);
        }
    }

    /// The next action on an open connection.
    fn next_request(&mut self, now: Instant) -> Option<Asked> {
        if self.waits() {
            return None;
        }
        if let Some(asked) = self.owner_request(now) {
            return Some(asked);
        }
        if self.is_hold_due(now) {
            return Some(Asked::Hold);
        }
        let id = self.next_due(now)?;
        let (query, ttl) = self.change(id, |grant| grant.sending(now))?;
        Some(Asked::Lock { id, query, ttl })
    }

    fn request(&self, asked: Asked) -> AnyRequest<'_> {
        match asked {
            Asked::Lock { id, query, ttl } => {
                let grant = self.locks.get(&id).expect("it has just asked");
                grant.request(query, ttl)
            }
            Asked::Hold => AnyRequest::Hold,
            Asked::Attach { holds } => {
                let session = self.session.as_ref().expect("only a session asks for it");
                session.attach(holds)
            }
            Asked::End => {
                let session = self.session.as_ref().expect("only a session asks for it");
                session.end()
            }
        }
    }

    /// When the next action by time alone is due.
    fn wake(&self) -> Option<Instant> {
        let end = self.ends.first().map(|(at, _)| *at);
        let common = self.common_deadline().filter(|_| self.held > 0);
        let ends = earlier(earlier(end, common), self.session_wake());
        let sends = match self.link {
            Link::Down { retry_at } => self.due.first().map(|(at, _)| (*at).max(retry_at)),
            Link::Up if self.waits() => None,
            Link::Up => {
                let is_free = self.in_flight.len() < IN_FLIGHT_MAX;
                let due = self.due.first().filter(|_| is_free && self.is_attached());
                earlier(due.map(|(at, _)| *at), self.hold_at())
            }
            Link::Unwanted => None,
        };
        earlier(earlier(ends, sends), self.silence_end())
    }
}

/// What a lock shows to its machine.
#[derive(Clone, Copy, Default)]
struct Shown {
    due: Option<Instant>,
    end: Option<Instant>,
    belief: Option<Belief>,
    may_hold: bool,
}

impl Shown {
    fn of(grant: &Grant) -> Self {
        Self {
            due: grant.next(),
            end: grant.end(),
            belief: grant.belief(),
            may_hold: grant.may_hold(),
        }
    }
}

/// Replaces the moment of a lock in a list.
fn replace(
    list: &mut BTreeSet<(Instant, LockId)>,
    id: LockId,
    before: Option<Instant>,
    now: Option<Instant>,
) {
    if before != now {
        if let Some(at) = before {
            list.remove(&(at, id));
        }
        list.extend(now.map(|at| (at, id)));
    }
}

impl Machine for Grants {
    type News = (LockId, LockNews);

    fn poll(&mut self, now: Instant) -> Action<'_, Self::News> {
        self.pass_time(now);
        if let Some(news) = self.news.pop_front() {
            return Action::Tell(news);
        }
        if self.link == Link::Unwanted || self.silence_end().is_some_and(|end| now >= end) {
            return Action::Disconnect;
        }
        match self.link {
            Link::Up => {
                if let Some(asked) = self.next_request(now) {
                    self.send(asked, now);
                    return Action::Send(self.request(asked));
                }
            }
            Link::Down { retry_at } if now >= retry_at && self.wants_link(now) => {
                return Action::Connect {
                    until: self.wake_down(),
                };
            }
            Link::Down { .. } | Link::Unwanted => {}
        }
        Action::Wait { until: self.wake() }
    }

    fn connected(&mut self, _: Instant) {
        self.link = Link::Up;
        if !self.holds() {
            // It may be another server.
            self.hold = None;
        }
    }

    fn disconnected(&mut self, now: Instant) {
        let had_link = !matches!(self.link, Link::Down { .. });
        let sent: VecDeque<Sent> = core::mem::take(&mut self.in_flight);
        let retry_at = match &mut self.session {
            Some(session) => session.detach(now),
            None if had_link => now,
            None => after(now, RECONNECT),
        };
        self.link = Link::Down { retry_at };
        let is_alive = self.is_session_alive(now);
        for id in self.ids(|_| true) {
            let Some(grant) = self.locks.get(&id) else {
                continue;
            };
            let releases = |sent: &Sent| match sent.what {
                Asked::Lock { id: one, query, .. } => one == id && query.is_release(),
                Asked::Attach { .. } | Asked::End | Asked::Hold => false,
            };
            let is_unanswered = sent.iter().any(releases);
            match grant.goal {
                Goal::Obtain { is_repeated, .. } if is_alive || had_link && !is_repeated => {
                    self.change(id, |grant| grant.begin_again(now, had_link));
                }
                Goal::Obtain { .. } => {
                    // Its request gets no answer, after which the release would follow.
                    self.change(id, Grant::rest);
                    self.fail(now, id, Failure::Disconnected);
                }
                Goal::Hold if self.session.is_some() => {
                    self.change(id, |grant| grant.begin(Query::Confirm, now));
                }
                Goal::Hold => self.lose(now, id, Loss::Disconnected),
                Goal::GiveBack { .. } | Goal::Release { .. } if self.session.is_some() => {
                    self.change(id, |grant| grant.release_again(now, is_unanswered));
                }
                Goal::GiveBack { .. } => self.given_back(now, id),
                Goal::Release { .. } => {
                    // The server may have noticed the break earlier, and another client may have held the lock (B4).
                    if grant.is_told() {
                        self.news
                            .push_back((id, LockNews::Lost(Loss::Disconnected)));
                    }
                    self.remove(now, id, LockNews::NotHeld);
                }
            }
        }
    }

    fn reply(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let Some(sent) = self.in_flight.pop_front() else {
            return;
        };
        self.note_hold(now, sent.at, answer);
        if answer.is_not_primary() {
            // The next connection may lead to the primary.
            self.link = Link::Unwanted;
        }
        match sent.what {
            Asked::Lock { id, query, ttl } => self.answered(now, id, (query, sent.at, ttl), answer),
            Asked::Attach { holds } => self.attached(now, (sent.at, holds), answer),
            Asked::End => self.end_answered(now, answer),
            Asked::Hold => {}
        }
    }
}

impl LockMachine for Grants {
    fn acquire(
        &mut self,
        now: Instant,
        key: Key<'_>,
        terms: LockTerms,
        wait: Option<Duration>,
    ) -> LockId {
        let id = LockId(self.next_id);
        self.next_id += 1;
        let until = wait.map(|wait| after(now, wait));
        let grant = Grant::new(key, terms, until, now);
        self.show(id, Shown::default(), Shown::of(&grant));
        self.locks.insert(id, grant);
        id
    }

    fn check(&mut self, now: Instant, id: LockId) {
        self.call(now, id, Call::Check);
    }

    fn refresh(&mut self, now: Instant, id: LockId, ttl: Duration) {
        self.call(now, id, Call::Refresh(ttl));
    }

    fn release(&mut self, now: Instant, id: LockId) {
        let is_there = self.change(id, |grant| grant.begin_release(now, true));
        if is_there.is_none() {
            self.news.push_back((id, LockNews::NotHeld));
        }
    }

    fn abandon(&mut self, now: Instant, id: LockId) {
        let waits = self.waits() && self.locks.contains_key(&id);
        let is_there = self.change(id, |grant| grant.begin_release(now, false));
        if is_there.is_none() {
            return self.news.push_back((id, LockNews::NotHeld));
        }
        if waits {
            // The connection is closed, which leaves the queue; a session is ended (B8).
            self.link = Link::Unwanted;
            self.ends_session = self.session.is_some();
        }
    }

    fn forget(&mut self, id: LockId) {
        self.drop_lock(id);
        if let Some(session) = &mut self.session
            && self.locks.is_empty()
        {
            session.leave();
        }
    }

    fn knows(&self, id: LockId) -> bool {
        self.locks.contains_key(&id)
    }

    fn close(&mut self) {
        self.is_closing = true;
    }

    fn is_over(&self) -> bool {
        let has_session = self.session.as_ref().is_some_and(Attachment::may_live);
        self.is_closing && self.locks.is_empty() && self.news.is_empty() && !has_session
    }

    fn fence(&self, id: LockId) -> Option<Fence> {
        self.locks.get(&id)?.fence
    }

    fn common_deadline(&self) -> Option<Instant> {
        let session = self.session.as_ref();
        earlier(
            session.and_then(Attachment::believed_until),
            self.hold_until(),
        )
    }

    fn changed(&mut self) -> Option<LockId> {
        self.changed.pop_front()
    }

    fn belief(&self, id: LockId) -> Option<Belief> {
        self.locks.get(&id)?.belief()
    }
}

impl Grants {
    fn call(&mut self, now: Instant, id: LockId, call: Call) {
        let is_called = self.change(id, |grant| grant.call(now, call));
        if is_called != Some(true) {
            self.news.push_back((id, LockNews::NotHeld));
        }
    }
}

#[cfg(test)]
mod tests;
