//! Several leases as one lock: all of them or none.
//!
//! - A1: keys are obtained one after the other in the order of their bytes, so that two clients that
//!   want the same ones never wait for each other in a ring.
//! - A2: all are held, or what was got is given back, the last first.
//! - A3: the loss of one is the loss of the whole; the others are left for the caller to release.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::lease::{Lease, LeaseNews, Move, after};
use super::link::{Failure, Loss, Machine, NotObtained, Step};
use super::session::Answer;
use super::tenure::{Terms, TermsError};
use super::token::{Token, TokenValue};
use crate::item::Cas;
use crate::key::Key;
use crate::time::Instant;

/// What several leases have to tell: as [`LeaseNews`], of all of them.
pub type LeasesNews = LeaseNews;

/// How long an obtain that has failed may take to give back what it got, before it is told of.
const TELL_WITHIN: Duration = Duration::from_millis(250);

/// What is wanted of all of them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Goal {
    None,
    /// Those before `next` are held.
    Obtain {
        next: usize,
        until: Instant,
    },
    Hold,
    /// Those behind `next` are given back. `told` is what comes of it all, once it is done, but no
    /// later than `tell_at`.
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
    goal: Goal,
    /// Whose requests are unanswered, the oldest first.
    in_flight: VecDeque<usize>,
    /// Refreshes that are not told of yet, and the first thing that went wrong with one.
    refreshes: usize,
    undone: Option<Failure>,
    news: VecDeque<LeaseNews>,
}

impl Leases {
    /// Leases that have not been asked for, all with the same token, note and terms.
    ///
    /// # Errors
    /// [`TermsError::Keys`] if there is no key, or one is there twice; another one if the server
    /// cannot measure the ttl.
    pub fn new(keys: &[Key<'_>], value: &TokenValue, terms: &Terms) -> Result<Self, TermsError> {
        let mut keys: Vec<Key<'_>> = keys.to_vec();
        keys.sort_unstable();
        if keys.is_empty() || keys.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(TermsError::Keys);
        }
        let leases: Vec<Lease> = keys
            .iter()
            .map(|key| Lease::new(*key, value.clone(), terms.clone()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            all: leases,
            patience: terms.deadline.unwrap_or(terms.ttl),
            goal: Goal::None,
            in_flight: VecDeque::new(),
            refreshes: 0,
            undone: None,
            news: VecDeque::new(),
        })
    }

    /// Begins to obtain them; see [`Lease::obtain`]. The deadline is one for all of them, the
    /// retry strategy begins anew for each.
    pub fn obtain(&mut self, now: Instant) {
        if self.goal == Goal::None {
            let until = after(now, self.patience);
            self.goal = Goal::Obtain { next: 0, until };
            if let Some(first) = self.all.first_mut() {
                first.obtain_until(now, until);
            }
        }
    }

    /// Refreshes all of them; see [`Lease::refresh`].
    ///
    /// # Errors
    /// [`TermsError`] if the server cannot measure `ttl`.
    pub fn refresh(&mut self, now: Instant, ttl: Duration) -> Result<(), TermsError> {
        if !self.is_held(now) {
            self.news.push_back(LeaseNews::NotHeld);
            return super::tenure::check_ttl(ttl);
        }
        for lease in &mut self.all {
            lease.refresh(now, ttl)?;
        }
        self.refreshes = self.all.len();
        self.undone = None;
        Ok(())
    }

    /// Asks the server how long the first of them lasts; see [`Lease::measure`].
    pub fn measure(&mut self, now: Instant) {
        if !self.is_held(now) {
            return self.news.push_back(LeaseNews::NotHeld);
        }
        if let Some(first) = self.all.first_mut() {
            first.measure(now);
        }
    }

    /// Gives all of them back, the last first; see [`Lease::release`].
    pub fn release(&mut self, now: Instant) {
        if !matches!(self.goal, Goal::Release { .. }) {
            self.give_back(now, LeaseNews::Released, None);
        }
    }

    fn not_obtained(&mut self, now: Instant, told: LeaseNews) {
        self.give_back(now, told, Some(after(now, TELL_WITHIN)));
    }

    fn give_back(&mut self, now: Instant, told: LeaseNews, tell_at: Option<Instant>) {
        self.refreshes = 0;
        let next = self.all.len().saturating_sub(1);
        self.goal = Goal::Release {
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

    /// What tells us from other holders.
    #[must_use]
    pub fn token(&self) -> Option<&Token> {
        self.all.first().map(Lease::token)
    }

    /// Whether all are ours at this moment.
    #[must_use]
    pub fn is_held(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now < deadline)
    }

    /// When the first of them ceases to be ours without a renewal; `None` if one is not ours.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let held = self.goal == Goal::Hold && self.all.iter().all(|one| one.deadline().is_some());
        let first = self.all.iter().filter_map(Lease::deadline).min();
        first.filter(|_| held)
    }

    /// The number of the grant of the key at this place; see [`Lease::number`].
    #[must_use]
    pub fn number(&self, place: usize) -> Option<Cas> {
        self.all.get(place)?.number()
    }

    /// One of them has something to tell.
    fn hear(&mut self, now: Instant, place: usize, news: LeaseNews) {
        match (&mut self.goal, news) {
            (Goal::Obtain { next, until }, LeaseNews::Obtained) => {
                *next += 1;
                let until = *until;
                if let Some(lease) = self.all.get_mut(place + 1) {
                    return lease.obtain_until(now, until);
                }
                self.goal = Goal::Hold;
                // The first may have run out while the last was waited for.
                if self.is_held(now) {
                    self.news.push_back(LeaseNews::Obtained);
                } else {
                    self.not_obtained(now, LeaseNews::NotObtained(NotObtained::Deadline));
                }
            }
            (Goal::Obtain { .. }, LeaseNews::Lost(_)) => {
                self.not_obtained(now, LeaseNews::NotObtained(NotObtained::Deadline));
            }
            (Goal::Obtain { .. }, news) => self.not_obtained(now, news),
            (Goal::Hold, LeaseNews::Lost(loss)) => self.lose(loss),
            (Goal::Hold, LeaseNews::Refreshed) => self.refreshed(None),
            (Goal::Hold, LeaseNews::Undone(failure)) if self.refreshes > 0 => {
                self.refreshed(Some(failure));
            }
            (Goal::Hold, news) => self.news.push_back(news),
            (Goal::Release { next, told, .. }, news) => {
                // A loss is told before the answer to the release comes.
                if place != *next || matches!(news, LeaseNews::Lost(_)) {
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
                    self.goal = Goal::None;
                }
            }
            (Goal::None, _) => {}
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.goal = Goal::None;
        self.refreshes = 0;
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

    /// Whether nothing is under way, nothing is held and nothing is left to tell.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.goal == Goal::None && self.news.is_empty()
    }

    /// Tells of an obtain that has failed, if giving back what it may have got takes long.
    fn pass_time(&mut self, now: Instant) {
        if let Goal::Release { told, tell_at, .. } = &mut self.goal
            && tell_at.is_some_and(|at| now >= at)
        {
            *tell_at = None;
            self.news.extend(told.take());
        }
    }
}

impl Machine for Leases {
    type News = LeaseNews;

    fn poll(&mut self, now: Instant) -> Step<'_, LeaseNews> {
        let mut place = 0;
        let mut until = None;
        loop {
            self.pass_time(now);
            if let Some(news) = self.news.pop_front() {
                return Step::Tell(news);
            }
            let Some(lease) = self.all.get_mut(place) else {
                break;
            };
            match lease.advance(now) {
                Move::Connect => return Step::Connect,
                Move::Disconnect => return Step::Disconnect,
                Move::Send(query) => {
                    self.in_flight.push_back(place);
                    let lease = self.all.get(place).expect("it was there a moment ago");
                    return Step::Send(lease.request(query));
                }
                // What it says may concern one before it.
                Move::Tell(news) => {
                    self.hear(now, place, news);
                    (place, until) = (0, None);
                }
                Move::Wait { until: one } => {
                    until = earlier(until, one);
                    place += 1;
                }
            }
        }
        if let Goal::Release { tell_at, .. } = &self.goal {
            until = earlier(until, *tell_at);
        }
        Step::Wait { until }
    }

    fn connected(&mut self, now: Instant) {
        for lease in &mut self.all {
            lease.connected(now);
        }
    }

    fn disconnected(&mut self, now: Instant) {
        self.in_flight.clear();
        for lease in &mut self.all {
            lease.disconnected(now);
        }
    }

    fn reply(&mut self, now: Instant, answer: &Answer<'_>) {
        let place = self.in_flight.pop_front();
        if let Some(lease) = place.and_then(|place| self.all.get_mut(place)) {
            lease.reply(now, answer);
        }
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use alloc::string::String;

    use super::*;
    use crate::client::Session;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn leases(keys: &[&str], terms: &Terms) -> Leases {
        let keys: Vec<Key<'_>> = keys
            .iter()
            .map(|key| Key::new(key.as_bytes()).unwrap())
            .collect();
        let value = TokenValue::new(Token::new(b"me").unwrap(), b"").unwrap();
        let mut leases = Leases::new(&keys, &value, terms).unwrap();
        leases.connected(at(0));
        leases
    }

    fn terms() -> Terms {
        Terms {
            watchdog: None,
            ..Terms::new(Duration::from_secs(3)).unwrap()
        }
    }

    /// Plays until it waits: what it sends is answered by `serve`. Returns everything it did.
    fn play(leases: &mut Leases, ms: u64, serve: impl Fn(&str) -> &'static str) -> Vec<String> {
        let mut done = Vec::new();
        loop {
            let mut session = Session::new();
            match leases.poll(at(ms)) {
                Step::Send(request) => {
                    let mut out = Vec::new();
                    session.send(&request, &mut out).unwrap();
                    let line = String::from_utf8(out).unwrap();
                    let line = line.lines().next().unwrap();
                    done.push(line.into());
                    let answer = serve(line);
                    if answer.is_empty() {
                        continue;
                    }
                    let received = session.receive(answer.as_bytes()).unwrap().unwrap();
                    leases.reply(at(ms), &received.answer);
                }
                Step::Tell(news) => done.push(std::format!("{news:?}")),
                Step::Wait { .. } => return done,
                other @ (Step::Connect | Step::Disconnect) => {
                    done.push(std::format!("{other:?}"));
                    return done;
                }
            }
        }
    }

    #[test]
    fn all_are_obtained_in_order_and_given_back_in_reverse() {
        let mut both = leases(&["b", "a"], &terms());
        both.obtain(at(0));
        assert_eq!(
            play(&mut both, 0, |_| "HD c5\r\n"),
            ["ms a 2 ME T5 c", "ms b 2 ME T5 c", "Obtained"]
        );
        assert!(both.is_held(at(0)));
        both.release(at(1));
        assert_eq!(
            play(&mut both, 1, |_| "HD\r\n"),
            ["md b C5", "md a C5", "Released"]
        );
        assert!(both.is_idle());
    }

    #[test]
    fn one_that_is_not_to_be_had_gives_the_others_back() {
        let mut three = leases(&["a", "b", "c"], &terms());
        three.obtain(at(0));
        let serve = |line: &str| match line.split(' ').take(2).last() {
            Some("c") => "NS c0\r\n",
            _ if line.starts_with("md") => "HD\r\n",
            _ => "HD c5\r\n",
        };
        assert_eq!(
            play(&mut three, 0, serve),
            [
                "ms a 2 ME T5 c",
                "ms b 2 ME T5 c",
                "ms c 2 ME T5 c",
                "md b C5",
                "md a C5",
                "NotObtained(Held)"
            ]
        );
        assert!(!three.is_held(at(0)) && three.is_idle());
    }

    #[test]
    fn an_obtain_that_nobody_answers_is_told_of_before_all_is_cleared_up() {
        let mut one = leases(&["a"], &terms());
        one.obtain(at(0));
        assert_eq!(play(&mut one, 0, |_| ""), ["ms a 2 ME T5 c"]);
        assert_eq!(play(&mut one, 3_100, |_| ""), [""; 0]);
        assert_eq!(
            play(&mut one, 3_100 + 250, |_| ""),
            ["NotObtained(Deadline)"]
        );
        assert!(!one.is_idle());
        let mut session = Session::new();
        let noop = crate::client::Flags::of([]);
        let key = Key::new(b"a").unwrap();
        let get = crate::client::Request::meta(crate::wire::meta::Verb::Get, key, noop);
        session.send(&get, &mut Vec::new()).unwrap();
        let late = session.receive(b"HD c5\r\n").unwrap().unwrap();
        one.reply(at(3_400), &late.answer);
        assert_eq!(play(&mut one, 3_400, |_| "HD\r\n"), ["md a C5"]);
        assert!(one.is_idle());
    }

    #[test]
    fn one_that_runs_out_while_another_is_waited_for_spoils_the_whole() {
        let patient = Terms {
            deadline: Some(Duration::from_secs(60)),
            retry: crate::client::Retry::linear(Duration::from_secs(4)),
            ..terms()
        };
        let mut both = leases(&["a", "b"], &patient);
        both.obtain(at(0));
        let serve = |line: &str| match line.split(' ').take(2).last() {
            Some("a") => "HD c5\r\n",
            _ => "NS c0\r\n",
        };
        play(&mut both, 0, serve);
        assert_eq!(
            play(&mut both, 3_000, |_| "NF\r\n"),
            ["md a C5", "NotObtained(Deadline)"]
        );
    }

    #[test]
    fn a_refresh_is_one_of_all_and_a_loss_of_one_is_a_loss_of_all() {
        let mut both = leases(&["a", "b"], &terms());
        both.obtain(at(0));
        play(&mut both, 0, |_| "HD c5\r\n");
        both.refresh(at(1_000), Duration::from_secs(10)).unwrap();
        assert_eq!(
            play(&mut both, 1_000, |_| "HD c6\r\n"),
            ["ms a 2 C5 T12 c", "ms b 2 C5 T12 c", "Refreshed"]
        );
        assert_eq!(both.deadline(), Some(at(11_000)));
        both.refresh(at(2_000), Duration::from_secs(10)).unwrap();
        let serve = |line: &str| match line.split(' ').take(2).last() {
            Some("a") => "HD c7\r\n",
            _ if line.starts_with("mg") => "EN\r\n",
            _ => "NF\r\n",
        };
        let done = play(&mut both, 2_000, serve);
        assert_eq!(done.last().unwrap(), "Lost(Taken)");
        assert!(!both.is_held(at(2_000)));
        assert_eq!(both.deadline(), None);
        // The other is still on the server, and is given back.
        both.release(at(2_001));
        assert_eq!(play(&mut both, 2_001, |_| "HD\r\n"), ["md a C7", "NotHeld"]);
    }

    #[test]
    fn keys_must_be_there_and_differ() {
        let value = TokenValue::new(Token::new(b"me").unwrap(), b"").unwrap();
        let key = Key::new(b"a").unwrap();
        assert_eq!(Leases::new(&[], &value, &terms()), Err(TermsError::Keys));
        assert_eq!(
            Leases::new(&[key, key], &value, &terms()),
            Err(TermsError::Keys)
        );
    }
}
