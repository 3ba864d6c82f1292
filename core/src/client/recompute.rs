//! Read a value, or be the one client who computes it.
//!
//! One request reads, and settles who computes: `mg KEY v c N<claim> R<early>`. If there is no item,
//! the first reader makes an empty one and has the win; an item that is about to expire, or was
//! marked stale, is won by its first reader as well. Everyone else is told that somebody is at it. On latchd the win
//! is bound to the connection (`B`), and who is told that waits for the value there (`waiting.rs`).
//!
//! - R1: the value is stored with the version that was won (`ms … C<cas>`). If the item was changed
//!   or deleted meanwhile, what was computed is out of date and is not stored.
//! - R2: whoever fails to compute gives the win back, so that the next reader has it: an empty item
//!   of ours is deleted (`md … C<cas>`), one with a value is marked stale (`md … I C<cas>`).
//! - R3: whoever dies with the win keeps the others waiting no longer than `claim` when there was
//!   no value, and than the value has left otherwise; where wins are bound, not at all.
//! - R4: a value that is empty and being computed cannot be told from none, and is waited for.
//! - R5: a version is good on the connection that told it. Over another one the server is first asked
//!   how long it runs: one that has started since the win counts its versions anew, so that ours may
//!   be the next winner's, and nothing is stored or given back by it.
//! - R6: a read that is broken off, by its caller or its deadline, keeps nobody waiting: if its answer
//!   turns out to be a win, that is given back ([`Recompute::abandon`]). One that waits on the server closes its connection.
//! - R7: a bound win that has lost its connection is the next reader's already, and is not given back. What was computed
//!   is stored all the same, unless that one was faster (R1).
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Meta Get", "stampeding herd"; it works on 1.6.18.

mod answers;
mod requests;
mod terms;
mod waiting;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::machine::{Action, Failure, Machine};
use super::moment::{after, earlier};
use super::retry::Retries;
use super::session::AnyResponse;
use super::terms::{LAST_TRY, SILENCE};
use crate::item::Cas;
use crate::key::Key;
use crate::time::Instant;

pub use terms::{Losers, RecomputeTerms, WinWords};

/// What comes of it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum RecomputeNews {
    /// The value.
    Found {
        /// Its bytes.
        value: Box<[u8]>,
        /// It was marked stale, and somebody computes a new one.
        stale: bool,
    },
    /// It is ours to compute. [`computed`](Recompute::computed) or
    /// [`give_back`](Recompute::give_back) is to follow.
    Compute {
        /// The value that is about to expire or was marked stale; `None` if there is none.
        old: Option<Box<[u8]>>,
    },
    /// What was computed is stored.
    Stored,
    /// What was computed is not stored: the item was changed in the meantime (R1), or the server may
    /// have restarted (R5).
    Superseded,
    /// There is no win of ours any more: it is given back, has gone with a server that restarted (R5),
    /// or there was none.
    GaveBack,
    /// Somebody else computes, and takes longer than we wait.
    TimedOut,
    /// Nothing is known: there was no answer.
    Failed(Failure),
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum RecomputeGoal {
    None,
    Read {
        until: Instant,
    },
    /// The caller computes.
    Compute,
    Store {
        value: Box<[u8]>,
    },
    GiveBack,
    /// Nothing, but the answer to a read is to come, and may be a win (R6).
    Abandon,
}

/// A win.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Win {
    /// The version that was won.
    cas: Cas,
    /// The item is an empty one that the win has made.
    is_claim: bool,
    /// It ends with its connection.
    is_bound: bool,
    /// When it was asked for.
    sent: Instant,
}

/// One of the requests.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Query {
    /// What the goal needs.
    Goal,
    /// The value that another computes, for so long.
    Wait { ms: u64 },
    /// How long the server runs (R5).
    Uptime,
}

/// Whose turn it is. A request is repeated once if the connection breaks: each of them is harmless
/// a second time, since those that change anything name the version they change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Turn {
    Rest,
    Due { at: Instant },
    Awaiting { query: Query, sent: Instant },
}

/// One read of a value that may have to be computed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each may be so or not whatever the others are"
)]
pub struct Recompute {
    key: Box<[u8]>,
    terms: RecomputeTerms,
    retries: Retries,
    goal: RecomputeGoal,
    turn: Turn,
    connected: bool,
    /// This read has been told that somebody else computes.
    heard_busy: bool,
    /// When all tries of this read with their pauses would be over.
    tries_end: Option<Instant>,
    /// What the server understands of wins.
    words: WinWords,
    /// This read neither binds nor waits (M2).
    is_plain: bool,
    /// Its connection waits on the server for what nobody wants any more.
    hangs_up: bool,
    /// The connection broke under this request before.
    repeated: bool,
    won: Option<Win>,
    /// The version that was won is good on this connection (R5).
    is_proven: bool,
    /// How long the server runs, in seconds, when it has said so and its answer is not over.
    uptime_s: Option<u64>,
    news: VecDeque<RecomputeNews>,
}

impl Recompute {
    /// A read that has not begun.
    #[must_use]
    pub fn new(key: Key<'_>, terms: RecomputeTerms) -> Self {
        Self {
            key: key.as_bytes().into(),
            retries: terms.retry.begin(terms.seed),
            terms,
            goal: RecomputeGoal::None,
            turn: Turn::Rest,
            connected: false,
            heard_busy: false,
            tries_end: None,
            words: WinWords::Unknown,
            is_plain: false,
            hangs_up: false,
            repeated: false,
            won: None,
            is_proven: false,
            uptime_s: None,
            news: VecDeque::new(),
        }
    }

    /// Begins to read. Ends in [`Found`](RecomputeNews::Found),
    /// [`Compute`](RecomputeNews::Compute), [`TimedOut`](RecomputeNews::TimedOut) or
    /// [`Failed`](RecomputeNews::Failed).
    pub fn read(&mut self, now: Instant) {
        if self.goal != RecomputeGoal::None || self.turn != Turn::Rest {
            return;
        }
        self.retries = self.terms.retry.begin(self.terms.seed);
        let patience = self.terms.deadline.unwrap_or(self.terms.claim);
        let until = after(now, patience);
        let span = self.terms.retry.span();
        self.tries_end = span.map(|span| after(now, span));
        (self.heard_busy, self.is_plain) = (false, false);
        self.begin(RecomputeGoal::Read { until }, now);
    }

    /// Stores what the caller has computed. Ends in [`Stored`](RecomputeNews::Stored),
    /// [`Superseded`](RecomputeNews::Superseded) or [`Failed`](RecomputeNews::Failed). Nothing
    /// happens if there was no win.
    pub fn computed(&mut self, now: Instant, value: &[u8]) {
        if self.goal == RecomputeGoal::Compute {
            self.begin(
                RecomputeGoal::Store {
                    value: value.into(),
                },
                now,
            );
        }
    }

    /// Lets the next reader compute. Ends in [`GaveBack`](RecomputeNews::GaveBack) or
    /// [`Failed`](RecomputeNews::Failed). Nothing happens if there was no win.
    pub fn give_back(&mut self, now: Instant) {
        if self.goal != RecomputeGoal::Compute {
            return;
        }
        if self.has_lost_bound() {
            return self.end(RecomputeNews::GaveBack);
        }
        self.begin(RecomputeGoal::GiveBack, now);
    }

    /// Whether the win has ended with its connection (R7).
    fn has_lost_bound(&self) -> bool {
        !self.is_proven && self.won.is_some_and(|win| win.is_bound)
    }

    /// What the connection has told of its server: for whoever uses it next.
    #[must_use]
    pub const fn words(&self) -> WinWords {
        self.words
    }

    /// Takes note of what the connection that is there has told another read. Not before
    /// [`connected`](Machine::connected), which forgets it.
    pub const fn knows(&mut self, words: WinWords) {
        self.words = words;
    }

    /// Lets nobody wait for what does not interest the caller any more (R6). What is being stored is
    /// stored all the same. The machine is to be driven until it [is idle](Self::is_idle).
    pub fn abandon(&mut self, now: Instant) {
        match (&self.goal, self.turn) {
            (RecomputeGoal::Read { .. }, Turn::Awaiting { query, .. }) => {
                self.goal = RecomputeGoal::Abandon;
                self.hangs_up = !query.wait().is_zero();
            }
            (RecomputeGoal::Read { .. }, Turn::Due { .. } | Turn::Rest) => {
                self.goal = RecomputeGoal::None;
                self.turn = Turn::Rest;
            }
            (RecomputeGoal::Compute, _) => self.give_back(now),
            (
                RecomputeGoal::None
                | RecomputeGoal::Store { .. }
                | RecomputeGoal::GiveBack
                | RecomputeGoal::Abandon,
                _,
            ) => {}
        }
    }

    /// Whether nothing is under way, and no win is ours.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.goal == RecomputeGoal::None
    }

    fn begin(&mut self, goal: RecomputeGoal, at: Instant) {
        self.goal = goal;
        self.repeated = false;
        self.turn = Turn::Due { at };
    }

    fn end(&mut self, news: RecomputeNews) {
        self.goal = RecomputeGoal::None;
        self.turn = Turn::Rest;
        self.news.push_back(news);
    }

    /// Ends a read whose deadline has passed.
    fn pass_time(&mut self, now: Instant) {
        if self.goal_end().is_none_or(|end| now < end) {
            return;
        }
        let (is_out, answers) = match self.turn {
            Turn::Awaiting { query, sent } => {
                self.hangs_up = !query.wait().is_zero();
                (true, now < after(sent, query.wait() + SILENCE))
            }
            Turn::Due { .. } | Turn::Rest => (false, self.connected),
        };
        self.news.push_back(if self.heard_busy && answers {
            RecomputeNews::TimedOut
        } else {
            RecomputeNews::Failed(Failure::NoAnswer)
        });
        if is_out {
            self.goal = RecomputeGoal::Abandon;
        } else {
            self.goal = RecomputeGoal::None;
            self.turn = Turn::Rest;
        }
    }

    /// When a read ends by time alone, whatever the server does.
    fn goal_end(&self) -> Option<Instant> {
        match self.goal {
            RecomputeGoal::Read { until } => Some(after(until, LAST_TRY)),
            RecomputeGoal::None
            | RecomputeGoal::Compute
            | RecomputeGoal::Store { .. }
            | RecomputeGoal::GiveBack
            | RecomputeGoal::Abandon => None,
        }
    }
}

impl Machine for Recompute {
    type News = RecomputeNews;

    fn poll(&mut self, now: Instant) -> Action<'_, RecomputeNews> {
        self.pass_time(now);
        if let Some(news) = self.news.pop_front() {
            return Action::Tell(news);
        }
        if self.hangs_up {
            return Action::Disconnect;
        }
        let goal_end = self.goal_end();
        match self.turn {
            Turn::Due { at } if now >= at => {
                if !self.connected {
                    return Action::Connect { until: goal_end };
                }
                let query = self.query(now);
                self.turn = Turn::Awaiting { query, sent: now };
                Action::Send(self.request(query))
            }
            Turn::Due { at } => Action::Wait {
                until: earlier(goal_end, Some(at)),
            },
            Turn::Awaiting { query, sent } => {
                let patience = query.wait().saturating_add(self.terms.reply_timeout);
                let until = after(sent, patience);
                if now >= until {
                    return Action::Disconnect;
                }
                Action::Wait {
                    until: earlier(goal_end, Some(until)),
                }
            }
            Turn::Rest => Action::Wait { until: None },
        }
    }

    fn connected(&mut self, _: Instant) {
        self.connected = true;
        self.words = WinWords::Unknown;
    }

    fn disconnected(&mut self, now: Instant) {
        let had_none = !core::mem::replace(&mut self.connected, false);
        (self.is_proven, self.hangs_up) = (false, false);
        self.uptime_s = None;
        if self.turn == Turn::Rest {
            return;
        }
        // A read that nobody waits for is not repeated: it could win anew.
        if self.goal == RecomputeGoal::Abandon {
            return self.end(RecomputeNews::GaveBack);
        }
        if self.goal == RecomputeGoal::GiveBack && self.has_lost_bound() {
            return self.end(RecomputeNews::GaveBack);
        }
        if had_none || self.repeated {
            return self.end(RecomputeNews::Failed(Failure::Disconnected));
        }
        if matches!(self.turn, Turn::Awaiting { .. }) {
            self.repeated = true;
            self.turn = Turn::Due { at: now };
        }
    }

    fn reply(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let Turn::Awaiting { query, sent } = self.turn else {
            return;
        };
        self.turn = Turn::Rest;
        if query == Query::Uptime {
            return self.was_up(now, answer);
        }
        match self.goal {
            RecomputeGoal::Read { until } => self.was_read(now, (query, sent, until), answer),
            RecomputeGoal::Store { .. } => self.was_stored(answer),
            RecomputeGoal::GiveBack => self.was_given_back(answer),
            RecomputeGoal::Abandon => self.was_abandoned(now, sent, answer),
            RecomputeGoal::None | RecomputeGoal::Compute => {}
        }
    }
}

#[cfg(test)]
mod tests;
