//! Reads a value, or makes this client the only one that computes it.
//!
//! One request reads and decides which client computes: `mg KEY v c N<claim> R<early>`. If there is no item,
//! the first reader makes an empty one and wins. The first reader also wins an item that is about to expire or
//! was marked stale. Every other reader learns that a client computes. On latchd the win is bound to the
//! connection (`B`), and the other readers wait there for the value (`waiting.rs`).
//!
//! - R1: The value is stored with the version that was won (`ms … C<cas>`). If the item was changed or deleted
//!   meanwhile, the computed value is out of date and is not stored.
//! - R2: A client that fails to compute gives the win back, so that the next reader has it. An empty item of
//!   ours is deleted (`md … C<cas>`); one with a value is marked stale (`md … I C<cas>`).
//! - R3: A winner that dies blocks the other readers for at most `claim` if there was no value, and otherwise
//!   for the remaining ttl of the value. Where wins are bound, it does not block them.
//! - R4: A value that is empty and being computed cannot be told from a missing one, and readers wait for it.
//! - R5: A version is valid only on the connection that told it. Over another one the server is first asked for
//!   its uptime. A server that has started since the win counts its versions anew, so that ours may be the next
//!   winner's. Then nothing is stored or given back by that version.
//! - R6: A read that is broken off, by its caller or its deadline, blocks no other reader. If its answer turns
//!   out to be a win, that is given back ([`Recompute::abandon`]). If it waits on the server, it closes its
//!   connection.
//! - R7: A bound win that has lost its connection already belongs to the next reader, and is not given back.
//!   The computed value is stored all the same, unless that reader was faster (R1).
//! - R8: If another client has locked a key without an item, the value is computed without a win, and not stored.
//!
//! A win in a session ([`SessionTerms`]) outlives its connection (`in_session.rs`); R3 and R7 are about the others.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Meta Get", "stampeding herd"; it works on 1.6.18.

mod answers;
mod in_session;
mod requests;
mod terms;
mod waiting;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::attachment::Attachment;
#[cfg(doc)]
use super::attachment::SessionTerms;
use super::machine::{Action, Failure, Machine};
use super::moment::{after, earlier};
use super::retry::Retries;
use super::session::AnyResponse;
use super::terms::{LAST_TRY, SILENCE};
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use self::terms::WinSupport;

pub use in_session::Kept;
pub use terms::{Losers, RecomputeTerms};

/// The news of a read.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum RecomputeNews {
    /// The value.
    Found {
        /// Its bytes.
        value: Box<[u8]>,
        /// It was marked stale, and another client computes a new one.
        stale: bool,
    },
    /// This client computes. A call of [`computed`](Recompute::computed) or [`give_back`](Recompute::give_back)
    /// must follow.
    Compute {
        /// The value that is about to expire or was marked stale; `None` if there is none.
        old: Option<Box<[u8]>>,
    },
    /// The computed value is stored.
    Stored,
    /// The computed value is not stored: the item was changed in the meantime (R1), or the server may have
    /// restarted (R5).
    Superseded,
    /// This client has no win any more: it was given back, has ended with a restart of the server (R5), or
    /// there was none.
    GaveBack,
    /// Another client computes, and takes longer than the wait.
    TimedOut,
    /// The result is unknown: there was no answer.
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
    /// No goal, but the answer to a read is still to come, and may be a win (R6).
    Abandon,
    /// The session may have a win that nobody wants.
    EndSession,
}

/// A win.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Win {
    /// The version that was won.
    cas: Cas,
    /// The win has made the item, which is empty.
    is_claim: bool,
    /// The win ends with its connection.
    is_bound: bool,
    /// When the request was sent.
    sent: Instant,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Query {
    /// The request for the goal.
    Goal,
    /// Reads the value that another client computes, with a wait of this length.
    Wait { ms: u64 },
    /// Asks for the server's uptime (R5).
    Uptime,
    /// Attaches the connection to the session, or is its sign of life.
    Attach,
}

/// The side that acts next. A request is repeated once if the connection breaks. A second time does no harm,
/// since every request that changes an item names its version.
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
    /// The server has said in this read that another client computes.
    heard_busy: bool,
    /// When all tries of this read with their pauses would be over.
    tries_end: Option<Instant>,
    /// The server's support for wins.
    words: WinSupport,
    /// This read neither binds nor waits (M2).
    is_plain: bool,
    /// The session of its wins.
    session: Option<Attachment>,
    /// The server has answered since this read began.
    is_answered: bool,
    /// When a broken connection is replaced while the caller computes.
    resumes_at: Instant,
    /// Its connection waits on the server for a value that is no longer wanted.
    hangs_up: bool,
    /// The connection broke under this request before.
    repeated: bool,
    won: Option<Win>,
    /// The version that was won is valid on this connection (R5).
    is_proven: bool,
    /// The server's uptime, in seconds, if it has arrived and its answer is not over.
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
            session: terms
                .session
                .clone()
                .map(|session| Attachment::new(session, terms.seed)),
            is_answered: false,
            resumes_at: Instant::default(),
            terms,
            goal: RecomputeGoal::None,
            turn: Turn::Rest,
            connected: false,
            heard_busy: false,
            tries_end: None,
            words: WinSupport::Unknown,
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
        (self.heard_busy, self.is_plain, self.is_answered) = (false, false, false);
        self.won = None;
        self.begin(RecomputeGoal::Read { until }, now);
    }

    /// Stores the value that the caller has computed. Ends in [`Stored`](RecomputeNews::Stored),
    /// [`Superseded`](RecomputeNews::Superseded) or [`Failed`](RecomputeNews::Failed). Without a win, nothing
    /// happens.
    pub fn computed(&mut self, now: Instant, value: &[u8]) {
        if self.goal == RecomputeGoal::Compute && self.won.is_none() {
            self.end(RecomputeNews::Superseded);
        } else if self.goal == RecomputeGoal::Compute {
            self.begin(
                RecomputeGoal::Store {
                    value: value.into(),
                },
                now,
            );
        }
    }

    /// Lets the next reader compute. Ends in [`GaveBack`](RecomputeNews::GaveBack) or
    /// [`Failed`](RecomputeNews::Failed). Without a win, nothing happens.
    pub fn give_back(&mut self, now: Instant) {
        if self.goal != RecomputeGoal::Compute {
            return;
        }
        if self.has_lost_bound() || self.won.is_none() {
            return self.end(RecomputeNews::GaveBack);
        }
        self.begin(RecomputeGoal::GiveBack, now);
    }

    /// Whether the win has ended with its connection (R7), or with its session.
    fn has_lost_bound(&self) -> bool {
        !self.is_proven && self.session.is_none() && self.won.is_some_and(|win| win.is_bound)
    }

    /// Abandons the read, so that no other client waits for this one (R6). A store under way continues. Drive
    /// the machine until it [is idle](Self::is_idle).
    pub fn abandon(&mut self, now: Instant) {
        match (&self.goal, self.turn) {
            (RecomputeGoal::Read { .. }, Turn::Awaiting { query, .. }) => {
                self.goal = RecomputeGoal::Abandon;
                self.hangs_up = !query.wait().is_zero();
            }
            (RecomputeGoal::Read { .. }, Turn::Due { .. } | Turn::Rest) => self.rest(now),
            (RecomputeGoal::Compute, _) => self.give_back(now),
            (
                RecomputeGoal::None
                | RecomputeGoal::Store { .. }
                | RecomputeGoal::GiveBack
                | RecomputeGoal::EndSession
                | RecomputeGoal::Abandon,
                _,
            ) => {}
        }
    }

    /// Whether nothing is under way, and this client has no win.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.goal == RecomputeGoal::None
    }

    fn begin(&mut self, goal: RecomputeGoal, at: Instant) {
        self.goal = goal;
        self.repeated = false;
        // A sign of life is answered first.
        if !self.awaits_attach() {
            self.turn = Turn::Due { at };
        }
    }

    fn end(&mut self, news: RecomputeNews) {
        self.goal = RecomputeGoal::None;
        self.turn = Turn::Rest;
        self.news.push_back(news);
    }

    /// Ends a read after its deadline.
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
            self.rest(now);
        }
    }

    /// When a read ends by time alone, without any answer.
    fn goal_end(&self) -> Option<Instant> {
        let RecomputeGoal::Read { until } = self.goal else {
            return None;
        };
        Some(after(until, LAST_TRY))
    }
}

impl Machine for Recompute {
    type News = RecomputeNews;

    fn poll(&mut self, now: Instant) -> Action<'_, RecomputeNews> {
        self.pass_time(now);
        self.take_turn_in_session(now);
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
                self.note_sent(now);
                self.turn = Turn::Awaiting { query, sent: now };
                Action::Send(self.request(query))
            }
            Turn::Due { at } => Action::Wait {
                until: earlier(goal_end, Some(at)),
            },
            Turn::Awaiting { query, sent } => {
                let patience = query.wait().saturating_add(self.reply_timeout());
                let until = after(sent, patience);
                if now >= until {
                    return Action::Disconnect;
                }
                Action::Wait {
                    until: earlier(goal_end, Some(until)),
                }
            }
            Turn::Rest => Action::Wait {
                until: self.sign_of_life_at(),
            },
        }
    }

    fn connected(&mut self, _: Instant) {
        self.connected = true;
        self.words = WinSupport::Unknown;
    }

    fn disconnected(&mut self, now: Instant) {
        let had_none = !core::mem::replace(&mut self.connected, false);
        (self.is_proven, self.hangs_up) = (false, false);
        self.uptime_s = None;
        if self.disconnected_in_session(now, had_none) {
            return;
        }
        if self.turn == Turn::Rest {
            return;
        }
        // An abandoned read is not repeated: it could win anew.
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
        self.is_answered = true;
        match query {
            Query::Uptime => return self.was_up(now, answer),
            Query::Attach => return self.was_attached(now, sent, answer),
            Query::Goal | Query::Wait { .. } => {}
        }
        match self.goal {
            RecomputeGoal::Read { until } => self.was_read(now, (query, sent, until), answer),
            RecomputeGoal::Store { .. } => self.was_stored(now, answer),
            RecomputeGoal::GiveBack => self.was_given_back(answer),
            RecomputeGoal::Abandon => self.was_abandoned(now, sent, answer),
            RecomputeGoal::EndSession => self.session_ended(),
            RecomputeGoal::None | RecomputeGoal::Compute => {}
        }
    }
}

#[cfg(test)]
mod tests;
