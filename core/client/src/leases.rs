//! Several leases as one lock: all of them or none.
//!
//! - A1: Keys are obtained one after the other in the order of their bytes, so that clients with the same keys
//!   never wait for each other in a cycle.
//! - A2: All keys are held, or the obtained ones are released, the last first.
//! - A3: The loss of one is the loss of all; the others stay until the caller releases them.
//!
//! The bound of the belief on a server of a cluster is in `leases/hold.rs`.

mod hold;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use self::hold::Hold;
use super::bound::Bound;
use super::lease::{Lease, LeaseAction, LeaseNews};
use super::machine::{Action, Failure, Loss, Machine, NotObtained};
use super::moment::{after, earlier, span};
use super::session::{AnyRequest, AnyResponse, HoldSupport};
use super::terms::{Terms, TermsError};
use super::token::{Token, TokenValue};

/// The news of several leases: a [`LeaseNews`] about all of them.
pub type LeasesNews = LeaseNews;

/// The most keys of one lock: all are renewed at once, over one connection.
pub const KEYS_MAX: usize = 1_000;

/// How long a failed obtain may take to release its keys before the caller gets the news.
const TELL_WITHIN: Duration = Duration::from_millis(250);

/// The goal for all of them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum LeasesGoal {
    None,
    Obtain {
        until: Instant,
    },
    Hold,
    /// The keys behind `next` are released. `told` is the news for the caller, once that is done, but no later
    /// than `tell_at`.
    Release {
        next: usize,
        told: Option<LeaseNews>,
        tell_at: Option<Instant>,
    },
}

/// Several leased locks, obtained and kept as one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Leases {
    /// In the order of their keys (A1).
    all: Vec<Lease>,
    patience: Duration,
    goal: LeasesGoal,
    /// The leases with unanswered requests, the oldest request first; `None` for the question for the hold.
    in_flight: VecDeque<Option<usize>>,
    /// `None` if the server is not asked for its hold.
    hold: Option<Hold>,
    /// Refreshes without a result yet, and the first failure among them.
    refreshes: usize,
    undone: Option<Failure>,
    /// Measurements without a result yet, and the shortest time so far.
    measurements: usize,
    least: Option<Duration>,
    /// How many now belong to the client that shows the token.
    detached: usize,
    news: VecDeque<LeaseNews>,
}

impl Leases {
    /// Leases that were not requested yet, all with the same token, note and terms.
    ///
    /// # Errors
    /// [`TermsError::Keys`] if there is no key, or one is there twice, or there are more than
    /// [`KEYS_MAX`]; another one if the server
    /// cannot measure the ttl.
    pub fn new(keys: &[Key<'_>], value: &TokenValue, terms: &Terms) -> Result<Self, TermsError> {
        let mut keys: Vec<Key<'_>> = keys.to_vec();
        keys.sort_unstable();
        let mut terms = terms.clone();
        // After a wait the machine moves to another connection, which would not hold the locks of its other
        // keys.
        terms.queues &= keys.len() == 1;
        if keys.len() > KEYS_MAX
            || keys.is_empty()
            || keys.windows(2).any(|pair| pair.first() == pair.last())
        {
            return Err(TermsError::Keys);
        }
        let leases: Vec<Lease> = keys
            .iter()
            .map(|key| Lease::new(*key, value.clone(), terms.clone()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            all: leases,
            patience: terms.deadline.unwrap_or(terms.ttl),
            goal: LeasesGoal::None,
            in_flight: VecDeque::new(),
            hold: None,
            refreshes: 0,
            undone: None,
            measurements: 0,
            least: None,
            detached: 0,
            news: VecDeque::new(),
        })
    }

    /// Begins to obtain them; see [`Lease::obtain`]. They share one deadline; the retry strategy begins anew
    /// for each.
    pub fn obtain(&mut self, now: Instant) {
        if self.goal == LeasesGoal::None {
            let until = after(now, self.patience);
            self.goal = LeasesGoal::Obtain { until };
            if let Some(first) = self.all.first_mut() {
                first.obtain_until(now, until);
            }
        }
    }

    /// As [`obtain`](Self::obtain), for a key that this process already leases over the same connection. It
    /// waits in the queue from the beginning; or, if the strategy has no second try, it requests no place.
    pub fn queue(&mut self, now: Instant) {
        if self.goal == LeasesGoal::None
            && let [only] = &mut *self.all
        {
            let until = after(now, self.patience);
            self.goal = LeasesGoal::Obtain { until };
            only.queue_until(now, until);
        }
    }

    /// As [`obtain`](Self::obtain), for a key that other clients want too, without a queue: the next try
    /// decides. A client that has just released the key lets others try first, for a pause of the strategy.
    pub fn obtain_late(&mut self, now: Instant) {
        self.obtain(now);
        self.each(|lease| lease.let_others_first(now));
    }

    /// Whether the latest obtain has met another holder.
    #[must_use]
    pub fn heard_held(&self) -> bool {
        self.all.iter().any(Lease::heard_held)
    }

    /// See [`Lease::granted`].
    pub fn granted(&mut self, now: Instant, fence: Option<Fence>) {
        self.each(|lease| lease.granted(now, fence));
    }

    /// See [`Lease::unqueued`].
    pub fn unqueued(&mut self, now: Instant, why: &Failure) {
        self.each(|lease| lease.unqueued(now, why.clone()));
    }

    /// See [`Lease::not_granted`].
    pub fn not_granted(&mut self, why: NotObtained) {
        self.each(|lease| lease.not_granted(why));
    }

    /// Leaves them to the client that shows their token; see [`Lease::detach`].
    pub fn detach(&mut self) {
        self.each(Lease::detach);
    }

    /// Whether the server has said that it has no queue.
    #[must_use]
    pub fn lacks_queue(&self) -> bool {
        self.all.iter().any(Lease::lacks_queue)
    }

    /// Whether a place is requested beside the item.
    #[must_use]
    pub fn queues(&self) -> bool {
        self.all.iter().any(Lease::queues)
    }

    /// The lock of the only key, with a wait in the queue until the obtain's deadline; `None` without an
    /// obtain, or with several keys.
    #[must_use]
    pub fn place(&self, now: Instant) -> Option<Bound> {
        let LeasesGoal::Obtain { until } = self.goal else {
            return None;
        };
        let [only] = &*self.all else {
            return None;
        };
        Some(only.bound(span(now, until)))
    }

    fn each(&mut self, act: impl FnMut(&mut Lease)) {
        self.all.iter_mut().for_each(act);
    }

    /// Refreshes all of them; see [`Lease::refresh`].
    ///
    /// # Errors
    /// [`TermsError`] if the server cannot measure `ttl`.
    pub fn refresh(&mut self, now: Instant, ttl: Duration) -> Result<(), TermsError> {
        if !self.has_time(now) {
            super::terms::check_ttl(ttl)?;
            self.deny(now);
            return Ok(());
        }
        for lease in &mut self.all {
            lease.refresh(now, ttl)?;
        }
        self.refreshes = self.all.len();
        self.undone = None;
        Ok(())
    }

    /// Asks the server for the remaining time of all of them; see [`Lease::measure`].
    pub fn measure(&mut self, now: Instant) {
        if !self.has_time(now) {
            return self.deny(now);
        }
        for lease in &mut self.all {
            lease.measure(now);
        }
        self.measurements = self.all.len();
        (self.undone, self.least) = (None, None);
    }

    /// As for one lease: if one is lost and the caller does not know yet, the news is the loss.
    fn deny(&mut self, now: Instant) {
        let mut all = self.all.iter_mut();
        match all.find_map(|lease| lease.lost_by(now)) {
            Some(loss) if self.goal == LeasesGoal::Hold => self.lose(loss),
            _ => self.news.push_back(LeaseNews::NotHeld),
        }
    }

    /// Releases all of them, the last first; see [`Lease::release`].
    pub fn release(&mut self, now: Instant) {
        if !matches!(self.goal, LeasesGoal::Release { .. }) {
            self.give_back(now, LeaseNews::Released, None);
        }
    }

    /// The obtain succeeds, unless the server cannot confirm it, or the time of the first was over during the obtain of
    /// the last.
    fn all_obtained(&mut self, now: Instant) {
        self.goal = LeasesGoal::Hold;
        if self.has_time(now) {
            self.news.push_back(LeaseNews::Obtained);
        } else if self.hold_until().is_some_and(|until| now >= until) {
            self.not_obtained(now, LeaseNews::Failed(Failure::NoAnswer));
        } else {
            self.not_obtained(now, LeaseNews::NotObtained(NotObtained::Deadline));
        }
    }

    fn not_obtained(&mut self, now: Instant, told: LeaseNews) {
        self.give_back(now, told, Some(after(now, TELL_WITHIN)));
    }

    fn give_back(&mut self, now: Instant, told: LeaseNews, tell_at: Option<Instant>) {
        (self.refreshes, self.measurements) = (0, 0);
        self.hold_settled();
        let next = self.all.len().saturating_sub(1);
        self.goal = LeasesGoal::Release {
            next,
            told: Some(told),
            tell_at,
        };
        if let Some(last) = self.all.last_mut() {
            last.release(now);
        }
    }

    /// Their keys, in the order in which they are obtained.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().map(Lease::key)
    }

    /// The token of this holder.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        self.all.first().map(Lease::token)
    }

    /// Whether all are ours at this moment; see [`Lease::is_held`].
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        self.has_time(now) && !self.is_in_doubt()
    }

    /// Whether one of them is in doubt; see [`Lease::is_in_doubt`].
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.all.iter().any(Lease::is_in_doubt)
    }

    fn has_time(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now < deadline)
    }

    /// When the first of them is lost without a renewal, or all without a sign of their server that it still is primary;
    /// `None` if one is not ours.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let held =
            self.goal == LeasesGoal::Hold && self.all.iter().all(|one| one.deadline().is_some());
        let first = self.all.iter().filter_map(Lease::deadline).min();
        earlier(first, self.hold_until()).filter(|_| held)
    }

    /// The number of the grant of the key at this place; see [`Lease::number`].
    #[must_use]
    pub fn number(&self, place: usize) -> Option<Cas> {
        self.all.get(place)?.number()
    }

    /// One of them has news.
    fn hear(&mut self, now: Instant, place: usize, news: LeaseNews) {
        match (&mut self.goal, news) {
            (LeasesGoal::Obtain { until }, LeaseNews::Obtained) => {
                let until = *until;
                if let Some(lease) = self.all.get_mut(place + 1) {
                    return lease.obtain_until(now, until);
                }
                if !self.waits_for_hold(now) {
                    self.all_obtained(now);
                }
            }
            (LeasesGoal::Obtain { .. }, LeaseNews::Lost(_)) => {
                let told = if self.is_granted() {
                    LeaseNews::Failed(Failure::NoAnswer)
                } else {
                    LeaseNews::NotObtained(NotObtained::Deadline)
                };
                self.not_obtained(now, told);
            }
            (LeasesGoal::Obtain { .. }, LeaseNews::Queues) => {
                self.news.push_back(LeaseNews::Queues);
            }
            (LeasesGoal::Obtain { .. }, news) => self.not_obtained(now, news),
            (LeasesGoal::Hold, LeaseNews::Detached) => {
                self.detached += 1;
                if self.detached == self.all.len() {
                    self.goal = LeasesGoal::None;
                    self.news.push_back(LeaseNews::Detached);
                }
            }
            (LeasesGoal::Hold, LeaseNews::Lost(loss)) => self.lose(loss),
            (LeasesGoal::Hold, LeaseNews::Refreshed) => self.refreshed(None),
            (LeasesGoal::Hold, LeaseNews::Undone(failure)) if self.refreshes > 0 => {
                self.refreshed(Some(failure));
            }
            (LeasesGoal::Hold, LeaseNews::Lasts(ttl)) => self.measured(Ok(ttl)),
            (LeasesGoal::Hold, LeaseNews::Undone(failure)) if self.measurements > 0 => {
                self.measured(Err(failure));
            }
            (LeasesGoal::Hold, news) => self.news.push_back(news),
            (LeasesGoal::Release { next, told, .. }, news) => {
                // A loss, or a wait that was broken off, is reported before the answer to the release comes.
                if place != *next || matches!(news, LeaseNews::Lost(_) | LeaseNews::Queues) {
                    return;
                }
                if *told == Some(LeaseNews::Released) {
                    *told = Some(news);
                }
                if let Some(before) = next.checked_sub(1) {
                    *next = before;
                    if let Some(lease) = self.all.get_mut(before) {
                        lease.release(now);
                    }
                } else {
                    self.news.extend(told.take());
                    self.goal = LeasesGoal::None;
                }
            }
            // The pending release of a place is done.
            (LeasesGoal::None, LeaseNews::NotHeld) => self.news.push_back(LeaseNews::NotHeld),
            (LeasesGoal::None, _) => {}
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.goal = LeasesGoal::None;
        (self.refreshes, self.measurements) = (0, 0);
        self.news.push_back(LeaseNews::Lost(loss));
    }

    fn refreshed(&mut self, failure: Option<Failure>) {
        self.undone = self.undone.take().or(failure);
        self.refreshes = self.refreshes.saturating_sub(1);
        if self.refreshes == 0 {
            self.news.push_back(match self.undone.take() {
                Some(failure) => LeaseNews::Undone(failure),
                None => LeaseNews::Refreshed,
            });
        }
    }

    /// The remaining time of one of them, or why it is unknown.
    fn measured(&mut self, ttl: Result<Duration, Failure>) {
        match ttl {
            Ok(ttl) => self.least = Some(self.least.map_or(ttl, |least| least.min(ttl))),
            Err(failure) => self.undone = self.undone.take().or(Some(failure)),
        }
        self.measurements = self.measurements.saturating_sub(1);
        if self.measurements == 0 {
            self.news.push_back(match (self.undone.take(), self.least) {
                (Some(failure), _) => LeaseNews::Undone(failure),
                (None, least) => LeaseNews::Lasts(least.unwrap_or_default()),
            });
        }
    }

    /// Whether nothing is under way, nothing is held and nothing is left to tell.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let owes_place = self.all.iter().any(Lease::owes_place);
        self.goal == LeasesGoal::None && self.news.is_empty() && !owes_place
    }

    /// Reports a failed obtain, if the release of its keys takes long.
    fn pass_time(&mut self, now: Instant) {
        self.pass_hold(now);
        if let LeasesGoal::Release { told, tell_at, .. } = &mut self.goal
            && tell_at.is_some_and(|at| now >= at)
        {
            *tell_at = None;
            self.news.extend(told.take());
        }
    }
}

impl Machine for Leases {
    type News = LeaseNews;

    fn poll(&mut self, now: Instant) -> Action<'_, LeaseNews> {
        let mut place = 0;
        let mut until = None;
        let mut connects = false;
        loop {
            self.pass_time(now);
            if let Some(news) = self.news.pop_front() {
                return Action::Tell(news);
            }
            if self.asks_hold(now) {
                self.in_flight.push_back(None);
                return Action::Send(AnyRequest::Hold);
            }
            let Some(lease) = self.all.get_mut(place) else {
                break;
            };
            match lease.advance(now) {
                // A lease behind it may have news by time alone.
                LeaseAction::Connect => {
                    connects = true;
                    until = earlier(until, lease.goal_end());
                    place += 1;
                }
                LeaseAction::Disconnect => return Action::Disconnect,
                LeaseAction::Send(query) => {
                    self.in_flight.push_back(Some(place));
                    self.hold_follows(now);
                    let lease = self.all.get(place).expect("it was there a moment ago");
                    return Action::Send(lease.request(query));
                }
                // Its news may concern a lease before it.
                LeaseAction::Tell(news) => {
                    self.hear(now, place, news);
                    (place, until, connects) = (0, None, false);
                }
                LeaseAction::Wait { until: one } => {
                    until = earlier(until, one);
                    place += 1;
                }
            }
        }
        if let LeasesGoal::Release { tell_at, .. } = &self.goal {
            until = earlier(until, *tell_at);
        }
        until = earlier(until, self.hold_wake());
        if connects {
            Action::Connect { until }
        } else {
            Action::Wait { until }
        }
    }

    fn connected(&mut self, now: Instant) {
        // After a wait in the queue, an answer may still be due on the connection before.
        self.in_flight.clear();
        self.hold_connected();
        for lease in &mut self.all {
            lease.connected(now);
        }
    }

    fn disconnected(&mut self, now: Instant) {
        self.in_flight.clear();
        self.hold_disconnected();
        for lease in &mut self.all {
            lease.disconnected(now);
        }
    }

    fn reply(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        match self.in_flight.pop_front() {
            Some(Some(place)) => {
                self.hold_due(now);
                if let Some(lease) = self.all.get_mut(place) {
                    lease.reply(now, answer);
                }
            }
            Some(None) => self.hold_shown(now, answer),
            None => {}
        }
    }

    fn hold_support(&mut self, support: HoldSupport) {
        self.note_hold_support(support);
    }
}

#[cfg(test)]
mod tests;
