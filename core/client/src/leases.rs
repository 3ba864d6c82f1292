//! Locks on memcached: items with a token, which the server ends by time. The rules of one are in [`lease`].
//!
//! All leases of a machine share a connection. Each asks for itself, and one request of it is unanswered at a time.

mod lease;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::time::Duration;

use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use self::lease::{Lease, LeaseAction};
use super::lock::{Belief, LockId, LockMachine, LockNews, LockTerms};
use super::machine::{Action, Machine};
use super::moment::{after, earlier};
use super::own::Call;
use super::session::AnyResponse;
use super::terms::RECONNECT;

/// The most unanswered requests of a machine.
const IN_FLIGHT_MAX: usize = 1_000;

/// Whether there is a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Link {
    Down { retry_at: Instant },
    Up,
}

/// Locks on memcached.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Leases {
    reply_timeout: Duration,
    link: Link,
    all: BTreeMap<LockId, Lease>,
    next_id: u64,
    /// When each lease has something to do.
    due: BTreeSet<(Instant, LockId)>,
    /// The leases with unanswered requests and the moments of these, the oldest first.
    in_flight: VecDeque<(LockId, Instant)>,
    is_closing: bool,
    changed: VecDeque<LockId>,
    /// News of locks that were not there.
    news: VecDeque<(LockId, LockNews)>,
}

impl Leases {
    /// A machine without locks, whose server may take this long to answer.
    #[must_use]
    pub const fn new(reply_timeout: Duration) -> Self {
        Self {
            reply_timeout,
            link: Link::Down {
                retry_at: Instant::from_millis(0),
            },
            all: BTreeMap::new(),
            next_id: 0,
            due: BTreeSet::new(),
            in_flight: VecDeque::new(),
            is_closing: false,
            changed: VecDeque::new(),
            news: VecDeque::new(),
        }
    }

    /// Changes a lease, and notes when it has something to do.
    fn change<T>(&mut self, id: LockId, change: impl FnOnce(&mut Lease) -> T) -> Option<T> {
        let lease = self.all.get_mut(&id)?;
        let (due, belief) = (lease.next(), lease.belief());
        let result = change(lease);
        let (now_due, now_belief) = (lease.next(), lease.belief());
        if now_belief != belief {
            self.changed.push_back(id);
        }
        if let Some(at) = due {
            self.due.remove(&(at, id));
        }
        self.due.extend(now_due.map(|at| (at, id)));
        Some(result)
    }

    fn remove(&mut self, id: LockId) {
        if let Some(at) = self.all.remove(&id).and_then(|lease| lease.next()) {
            self.due.remove(&(at, id));
        }
    }

    fn each(&mut self, change: impl Fn(&mut Lease)) {
        let ids: VecDeque<LockId> = self.all.keys().copied().collect();
        for id in ids {
            self.change(id, &change);
        }
    }

    /// When the oldest unanswered request has been silent for too long.
    fn silence_end(&self) -> Option<Instant> {
        let (_, sent) = self.in_flight.front()?;
        Some(after(*sent, self.reply_timeout))
    }

    /// Passes a call on; without such a lock, the news is that it is not held.
    fn call(&mut self, id: LockId, call: impl FnOnce(&mut Lease)) {
        if self.change(id, call).is_none() {
            self.news.push_back((id, LockNews::NotHeld));
        }
    }
}

impl Machine for Leases {
    type News = (LockId, LockNews);

    fn poll(&mut self, now: Instant) -> Action<'_, Self::News> {
        if let Some(news) = self.news.pop_front() {
            return Action::Tell(news);
        }
        let mut connects = false;
        let mut until = None;
        let ids = self.due.range(..=(now, LockId(u64::MAX)));
        let ids: VecDeque<LockId> = ids.map(|(_, id)| *id).collect();
        for id in ids {
            let may_send = self.link == Link::Up && self.in_flight.len() < IN_FLIGHT_MAX;
            match self.change(id, |lease| lease.advance(now, may_send)) {
                Some(LeaseAction::Tell(news)) => {
                    if self.all.get(&id).is_some_and(Lease::is_over) {
                        self.remove(id);
                    }
                    return Action::Tell((id, news));
                }
                Some(LeaseAction::Send(query)) => {
                    self.in_flight.push_back((id, now));
                    let lease = self.all.get(&id).expect("it has just asked");
                    return Action::Send(lease.request(query));
                }
                Some(LeaseAction::NeedsLink { until: one }) => {
                    connects = true;
                    until = earlier(until, one);
                }
                Some(LeaseAction::Wait) | None => {}
            }
        }
        if self.silence_end().is_some_and(|end| now >= end) {
            return Action::Disconnect;
        }
        let later = self.due.range((now, LockId(u64::MAX))..).next();
        let until = earlier(until, later.map(|(at, _)| *at));
        let until = earlier(until, self.silence_end());
        match self.link {
            Link::Down { retry_at } if connects && now >= retry_at => Action::Connect { until },
            Link::Down { retry_at } if connects => Action::Wait {
                until: earlier(until, Some(retry_at)),
            },
            Link::Down { .. } | Link::Up => Action::Wait { until },
        }
    }

    fn connected(&mut self, _: Instant) {
        self.link = Link::Up;
    }

    fn disconnected(&mut self, now: Instant) {
        let had_none = self.link != Link::Up;
        let at_once = Instant::from_millis(0);
        let retry_at = if had_none {
            after(now, RECONNECT)
        } else {
            at_once
        };
        self.link = Link::Down { retry_at };
        self.in_flight.clear();
        self.each(|lease| lease.disconnected(now, had_none));
    }

    fn reply(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        if let Some((id, sent)) = self.in_flight.pop_front() {
            self.change(id, |lease| lease.reply(now, sent, answer));
        }
    }
}

impl LockMachine for Leases {
    /// A server without a queue does not wait.
    fn acquire(
        &mut self,
        now: Instant,
        key: Key<'_>,
        terms: LockTerms,
        _: Option<Duration>,
    ) -> LockId {
        let id = LockId(self.next_id);
        self.next_id += 1;
        let lease = Lease::new(key, terms, now);
        self.due.extend(lease.next().map(|at| (at, id)));
        self.all.insert(id, lease);
        id
    }

    fn check(&mut self, now: Instant, id: LockId) {
        self.call(id, |lease| lease.call(now, Call::Check));
    }

    fn refresh(&mut self, now: Instant, id: LockId, ttl: Duration) {
        self.call(id, |lease| lease.call(now, Call::Refresh(ttl)));
    }

    fn release(&mut self, now: Instant, id: LockId) {
        self.call(id, |lease| lease.release(now, true));
    }

    fn abandon(&mut self, now: Instant, id: LockId) {
        self.call(id, |lease| lease.release(now, false));
    }

    fn forget(&mut self, id: LockId) {
        self.remove(id);
    }

    fn knows(&self, id: LockId) -> bool {
        self.all.contains_key(&id)
    }

    fn close(&mut self) {
        self.is_closing = true;
    }

    fn is_over(&self) -> bool {
        self.is_closing && self.all.is_empty() && self.news.is_empty()
    }

    /// A version is no fence: memcached can assign one out of order, and counts anew after a restart.
    fn fence(&self, _: LockId) -> Option<Fence> {
        None
    }

    fn common_deadline(&self) -> Option<Instant> {
        None
    }

    fn changed(&mut self) -> Option<LockId> {
        self.changed.pop_front()
    }

    fn belief(&self, id: LockId) -> Option<Belief> {
        self.all.get(&id)?.belief()
    }
}

#[cfg(test)]
mod tests;
