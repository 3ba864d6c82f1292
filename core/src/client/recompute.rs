//! Read a value, or be the one client who computes it.
//!
//! One request reads, and settles who computes: `mg KEY v c N<claim> R<early>`. If there is no item,
//! the first reader makes an empty one and has the win; an item that is about to expire, or was
//! marked stale, is won by its first reader as well. Everyone else is told that somebody is at it.
//!
//! - R1: the value is stored with the version that was won (`ms … C<cas>`). If the item was changed
//!   or deleted meanwhile, what was computed is out of date and is not stored.
//! - R2: whoever fails to compute gives the win back, so that the next reader has it: an empty item
//!   of ours is deleted (`md … C<cas>`), one with a value is marked stale (`md … I C<cas>`).
//! - R3: whoever dies with the win keeps the others waiting no longer than `claim` when there was
//!   no value, and than the value has left otherwise.
//! - R4: a value that is empty and being computed cannot be told from none, and is waited for.
//! - R5: a version is good on the connection that told it. Over another one the server is first asked
//!   how long it runs: one that has started since the win counts its versions anew, so that ours may
//!   be the next winner's, and nothing is stored or given back by it.
//! - R6: a read that is broken off, by its caller or its deadline, keeps nobody waiting: if its answer
//!   turns out to be a win, that is given back ([`Recompute::abandon`]).
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Meta Get", "stampeding herd"; it works on 1.6.18.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use super::machine::{Action, Failure, Machine};
use super::moment::{after, earlier};
use super::retry::{Retries, Retry};
use super::session::{AnyRequest, AnyResponse, Flags};
use super::terms::{DRIFT_PART, LAST_TRY, SILENCE, TTL_MAX, TTL_MIN, TermsError};
use crate::command::{Command, GlobalCommand};
use crate::item::Cas;
use crate::key::Key;
use crate::stats::StatsTopic;
use crate::time::{Exptime, Instant};
use crate::wire::meta::reply::{Code, MetaResponse};
use crate::wire::meta::{Flag, Verb};
use crate::wire::{classic, scan};

/// How much more than it has been running a server may say, in seconds.
const UPTIME_EXCESS_S: u64 = 3;

/// How a value is read, and kept.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct RecomputeTerms {
    /// How long the value lives; 0 is for ever.
    pub ttl: Duration,
    /// How long before its end one client is told to compute it anew; 0 is not to.
    pub early: Duration,
    /// How long a client may take to compute a value that is not there at all, before another one is
    /// told to.
    pub claim: Duration,
    /// What those do who may not compute it.
    pub losers: Losers,
    /// When to look again while somebody else computes.
    pub retry: Retry,
    /// How long to go on looking; `None` is as long as `claim`.
    pub deadline: Option<Duration>,
    /// How long the server may take to answer before the connection counts as broken.
    pub reply_timeout: Duration,
    /// What jitter is drawn from: any number that differs between clients.
    pub seed: u64,
}

impl RecomputeTerms {
    /// A value that lives for `ttl`, and is computed anew `early` before its end.
    ///
    /// # Errors
    /// [`TermsError`] if the server cannot measure `ttl`.
    pub const fn new(ttl: Duration, early: Duration) -> Result<Self, TermsError> {
        if !ttl.is_zero() && ttl.as_millis() < TTL_MIN.as_millis() {
            return Err(TermsError::TtlTooShort);
        }
        if ttl.as_millis() > TTL_MAX.as_millis() || early.as_millis() > TTL_MAX.as_millis() {
            return Err(TermsError::TtlTooLong);
        }
        Ok(Self {
            ttl,
            early,
            claim: Duration::from_secs(30),
            losers: Losers::Wait,
            retry: Retry::exponential(Duration::from_millis(10), Duration::from_millis(500))
                .with_jitter(),
            deadline: None,
            reply_timeout: Duration::from_secs(5),
            seed: 0,
        })
    }
}

/// What those do who may not compute a value. One that is only about to expire is good for all.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Losers {
    /// They wait for the new value.
    #[default]
    Wait,
    /// They take a value that was marked stale, and wait if there is none.
    TakeStale,
}

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
    /// When it was asked for.
    sent: Instant,
}

/// One of the requests.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Query {
    /// What the goal needs.
    Goal,
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
        self.heard_busy = false;
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
        if self.goal == RecomputeGoal::Compute {
            self.begin(RecomputeGoal::GiveBack, now);
        }
    }

    /// Lets nobody wait for what does not interest the caller any more (R6). What is being stored is
    /// stored all the same. The machine is to be driven until it [is idle](Self::is_idle).
    pub fn abandon(&mut self, now: Instant) {
        match (&self.goal, self.turn) {
            (RecomputeGoal::Read { .. }, Turn::Awaiting { .. }) => {
                self.goal = RecomputeGoal::Abandon;
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
            Turn::Awaiting { sent, .. } => (true, now < after(sent, SILENCE)),
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

    /// The answer to a read that nobody waits for has come (R6).
    fn was_abandoned(&mut self, now: Instant, sent: Instant, answer: &AnyResponse<'_>) {
        self.won = win_in(answer, sent);
        if self.won.is_some() {
            self.is_proven = true;
            self.begin(RecomputeGoal::GiveBack, now);
        } else {
            self.end(RecomputeNews::GaveBack);
        }
    }

    fn was_read(
        &mut self,
        now: Instant,
        (sent, until): (Instant, Instant),
        answer: &AnyResponse<'_>,
    ) {
        let AnyResponse::Meta(MetaResponse {
            code: Code::Value,
            value,
            ..
        }) = *answer
        else {
            return self.end(RecomputeNews::Failed(Failure::from_answer(answer)));
        };
        let stale = answer.has(b'X');
        let empty = value.is_empty();
        if answer.has(b'W') {
            self.won = win_in(answer, sent);
            if self.won.is_none() {
                return self.end(RecomputeNews::Failed(Failure::Unexpected));
            }
            self.is_proven = true;
            let old = (!empty).then(|| value.into());
            self.end(RecomputeNews::Compute { old });
            self.goal = RecomputeGoal::Compute;
            return;
        }
        let usable =
            !answer.has(b'Z') || (!empty && (!stale || self.terms.losers == Losers::TakeStale));
        if usable {
            let value = value.into();
            return self.end(RecomputeNews::Found { value, stale });
        }
        self.heard_busy = true;
        match self.retries.next_wait() {
            Some(wait) if now < until => {
                self.repeated = false;
                self.turn = Turn::Due {
                    at: after(now, wait).min(until),
                };
            }
            Some(_) | None => self.end(RecomputeNews::TimedOut),
        }
    }

    fn was_stored(&mut self, answer: &AnyResponse<'_>) {
        match answer.code() {
            Some(Code::Done) => self.end(RecomputeNews::Stored),
            Some(Code::Exists | Code::NotFound | Code::NotStored | Code::Locked) => {
                self.end(RecomputeNews::Superseded);
            }
            _ => self.end(RecomputeNews::Failed(Failure::from_answer(answer))),
        }
    }

    fn was_given_back(&mut self, answer: &AnyResponse<'_>) {
        match answer.code() {
            // An item of another version is not ours to give back any more.
            Some(Code::Done | Code::Exists | Code::NotFound | Code::Locked) => {
                self.end(RecomputeNews::GaveBack);
            }
            _ => self.end(RecomputeNews::Failed(Failure::from_answer(answer))),
        }
    }

    /// A line of the answer to [`Query::Uptime`], or its end.
    fn was_up(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        if let AnyResponse::Classic(classic::reply::ClassicResponse::Stat { name, value }) = answer
        {
            if *name == b"uptime" {
                self.uptime_s = scan::u64_from(value);
            }
            self.turn = Turn::Awaiting {
                query: Query::Uptime,
                sent: now,
            };
            return;
        }
        let is_same_run = match (self.won, self.uptime_s.take()) {
            (Some(win), Some(uptime_s)) => ran_at(win.sent, now, uptime_s),
            (None, _) | (_, None) => false,
        };
        if is_same_run {
            self.is_proven = true;
            self.turn = Turn::Due { at: now };
            return;
        }
        let is_store = matches!(self.goal, RecomputeGoal::Store { .. });
        self.end(if is_store {
            RecomputeNews::Superseded
        } else {
            RecomputeNews::GaveBack
        });
    }

    /// What is to be sent next.
    const fn query(&self) -> Query {
        match self.goal {
            RecomputeGoal::Store { .. } | RecomputeGoal::GiveBack if !self.is_proven => {
                Query::Uptime
            }
            RecomputeGoal::Store { .. }
            | RecomputeGoal::GiveBack
            | RecomputeGoal::None
            | RecomputeGoal::Compute
            | RecomputeGoal::Abandon
            | RecomputeGoal::Read { .. } => Query::Goal,
        }
    }

    fn request(&self, query: Query) -> AnyRequest<'_> {
        if query == Query::Uptime {
            let topic = StatsTopic::General;
            return AnyRequest::Classic {
                command: Command::Global(GlobalCommand::Stats(topic)),
                envelope: classic::ClassicEnvelope::Stats(topic),
            };
        }
        let key = Key::new(&self.key).expect("these bytes were taken from a key");
        let (cas, is_claim) = match self.won {
            Some(Win { cas, is_claim, .. }) => (Flag::Cas(cas.number()), is_claim),
            None => (Flag::Cas(0), false),
        };
        match &self.goal {
            RecomputeGoal::Store { value } => AnyRequest::Meta {
                verb: Verb::Set,
                key,
                flags: Flags::of([cas, Flag::Touch(whole_seconds(self.terms.ttl))]),
                value,
            },
            RecomputeGoal::GiveBack if is_claim => {
                AnyRequest::meta(Verb::Delete, key, Flags::of([cas]))
            }
            RecomputeGoal::GiveBack => {
                AnyRequest::meta(Verb::Delete, key, Flags::of([cas, Flag::Invalidate]))
            }
            RecomputeGoal::None
            | RecomputeGoal::Compute
            | RecomputeGoal::Abandon
            | RecomputeGoal::Read { .. } => {
                let claim = Flag::Vivify(whole_seconds(self.terms.claim.max(TTL_MIN)));
                let read = [Flag::Value, Flag::ShowCas, claim];
                let flags = if self.terms.early.is_zero() {
                    Flags::of(read)
                } else {
                    let [value, cas, claim] = read;
                    let early = Flag::Recache(whole_seconds(self.terms.early));
                    Flags::of([value, cas, claim, early])
                };
                AnyRequest::meta(Verb::Get, key, flags)
            }
        }
    }
}

/// A span as an exptime, rounded up to a second and at most [`TTL_MAX`]; 0 is "never".
fn whole_seconds(span: Duration) -> Exptime {
    match u32::try_from(span.min(TTL_MAX).as_millis().div_ceil(1000)) {
        Ok(seconds @ 1..) => Exptime::In { seconds },
        Ok(0) | Err(_) => Exptime::Never,
    }
}

/// The win that an answer to a read sent at `sent` tells of.
fn win_in(answer: &AnyResponse<'_>, sent: Instant) -> Option<Win> {
    let AnyResponse::Meta(MetaResponse {
        code: Code::Value,
        value,
        ..
    }) = answer
    else {
        return None;
    };
    if !answer.has(b'W') {
        return None;
    }
    Some(Win {
        cas: answer.number(b'c').and_then(Cas::new)?,
        is_claim: value.is_empty() && !answer.has(b'X'),
        sent,
    })
}

/// Whether a server that says at `now` that it has been running for `uptime_s` ran at `then` already.
///
/// In doubt it did not. What is said may be three seconds too much: memcached begins to count at 2
/// (1.6.45 `memcached.c`, `process_started`), and in whole seconds; and two clocks drift.
fn ran_at(then: Instant, now: Instant, uptime_s: u64) -> bool {
    let elapsed_ms = now.as_millis().saturating_sub(then.as_millis());
    let needed_ms = elapsed_ms.saturating_add(elapsed_ms.div_ceil(DRIFT_PART));
    let ran_ms = uptime_s
        .saturating_sub(UPTIME_EXCESS_S)
        .saturating_mul(1000);
    // All of it, a restart as well, may have happened within one millisecond.
    ran_ms > needed_ms
}

impl Machine for Recompute {
    type News = RecomputeNews;

    fn poll(&mut self, now: Instant) -> Action<'_, RecomputeNews> {
        self.pass_time(now);
        if let Some(news) = self.news.pop_front() {
            return Action::Tell(news);
        }
        let goal_end = self.goal_end();
        match self.turn {
            Turn::Due { at } if now >= at => {
                if !self.connected {
                    return Action::Connect { until: goal_end };
                }
                let query = self.query();
                self.turn = Turn::Awaiting { query, sent: now };
                Action::Send(self.request(query))
            }
            Turn::Due { at } => Action::Wait {
                until: earlier(goal_end, Some(at)),
            },
            Turn::Awaiting { sent, .. } => {
                let until = after(sent, self.terms.reply_timeout);
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
    }

    fn disconnected(&mut self, now: Instant) {
        let had_none = !core::mem::replace(&mut self.connected, false);
        self.is_proven = false;
        self.uptime_s = None;
        if self.turn == Turn::Rest {
            return;
        }
        // A read that nobody waits for is not repeated: it could win anew.
        if self.goal == RecomputeGoal::Abandon {
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
            RecomputeGoal::Read { until } => self.was_read(now, (sent, until), answer),
            RecomputeGoal::Store { .. } => self.was_stored(answer),
            RecomputeGoal::GiveBack => self.was_given_back(answer),
            RecomputeGoal::Abandon => self.was_abandoned(now, sent, answer),
            RecomputeGoal::None | RecomputeGoal::Compute => {}
        }
    }
}

#[cfg(test)]
mod tests;
