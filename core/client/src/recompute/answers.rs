//! The meaning of the answers to a read, a store and a returned win.

use latchd_protocol::item::Cas;
use latchd_protocol::time::Instant;
use latchd_protocol::wire::classic::reply::ClassicResponse;
use latchd_protocol::wire::meta::reply::Code;
use latchd_protocol::wire::u64_from;

use super::{Query, Recompute, RecomputeGoal, RecomputeNews, Turn, Win, WinSupport};
use crate::machine::Failure;
use crate::moment::after;
use crate::recompute::Losers;
use crate::session::AnyResponse;
use crate::terms::DRIFT_PART;

/// How much a server may overstate its uptime, in seconds.
const UPTIME_EXCESS_S: u64 = 3;

impl Recompute {
    /// The answer to an abandoned read has arrived (R6).
    pub(super) fn was_abandoned(&mut self, now: Instant, sent: Instant, answer: &AnyResponse<'_>) {
        self.won = win_in(answer, sent, self.binds());
        if self.won.is_some() {
            self.is_proven = true;
            self.begin(RecomputeGoal::GiveBack, now);
        } else {
            self.end(RecomputeNews::GaveBack);
        }
    }

    pub(super) fn was_read(
        &mut self,
        now: Instant,
        (query, sent, until): (Query, Instant, Instant),
        answer: &AnyResponse<'_>,
    ) {
        if answer.code() != Some(Code::Value) {
            if answer.code() == Some(Code::Miss) {
                return self.is_locked();
            }
            return self.was_refused(now, answer);
        }
        let value = answer.value();
        if self.words == WinSupport::Unknown {
            self.words = WinSupport::Binds;
        }
        let stale = answer.has(b'X');
        let empty = value.is_empty();
        if answer.has(b'W') {
            self.won = win_in(answer, sent, self.binds());
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
        self.repeated = false;
        if query == Query::Goal && self.wait_left(now).is_some() {
            self.turn = Turn::Due { at: now };
        } else if now >= until || self.has_waited_enough(now) {
            self.end(RecomputeNews::TimedOut);
        } else if let Some(wait) = self.retries.next_wait() {
            self.turn = Turn::Due {
                at: after(now, wait).min(until),
            };
        } else {
            self.end(RecomputeNews::TimedOut);
        }
    }

    /// Another client has locked the key, which has no item: the value is computed, and not stored (R8).
    fn is_locked(&mut self) {
        self.won = None;
        self.end(RecomputeNews::Compute { old: None });
        self.goal = RecomputeGoal::Compute;
    }

    /// The answer to a read was no value (M1, M2).
    fn was_refused(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let asked_more = self.binds();
        if self.words == WinSupport::Unknown {
            self.words = if answer.is_not_understood() {
                WinSupport::Plain
            } else {
                WinSupport::Binds
            };
        }
        if asked_more && answer.refusal().is_some() {
            self.is_plain = true;
            self.repeated = false;
            self.turn = Turn::Due { at: now };
        } else {
            self.end(RecomputeNews::Failed(Failure::from_answer(answer)));
        }
    }

    pub(super) fn was_stored(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        match answer.code() {
            Some(Code::Done) => self.end(RecomputeNews::Stored),
            Some(Code::Exists | Code::NotFound | Code::NotStored | Code::Locked) => {
                self.end(RecomputeNews::Superseded);
            }
            // As with a value that is too large: the next reader computes (R2).
            _ => {
                self.end(RecomputeNews::Failed(Failure::from_answer(answer)));
                self.begin(RecomputeGoal::GiveBack, now);
            }
        }
    }

    pub(super) fn was_given_back(&mut self, answer: &AnyResponse<'_>) {
        match answer.code() {
            // An item with another version is no longer ours to give back.
            Some(Code::Done | Code::Exists | Code::NotFound | Code::Locked) => {
                self.end(RecomputeNews::GaveBack);
            }
            _ => self.end(RecomputeNews::Failed(Failure::from_answer(answer))),
        }
    }

    /// A line of the answer to [`Query::Uptime`], or its end.
    pub(super) fn was_up(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        if let Some(ClassicResponse::Stat { name, value }) = answer.classic() {
            if *name == b"uptime" {
                self.uptime_s = u64_from(value);
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
}

/// The win that an answer to a read sent at `sent` tells of.
fn win_in(answer: &AnyResponse<'_>, sent: Instant, is_bound: bool) -> Option<Win> {
    if answer.code() != Some(Code::Value) || !answer.has(b'W') {
        return None;
    }
    Some(Win {
        cas: answer.number(b'c').and_then(Cas::new)?,
        is_claim: answer.value().is_empty() && !answer.has(b'X'),
        is_bound,
        sent,
    })
}

/// Whether a server with an uptime of `uptime_s` at `now` already ran at `then`.
///
/// In doubt the answer is no. The uptime may be three seconds too much: memcached begins to count at 2 (1.6.45
/// `memcached.c`, `process_started`), and in whole seconds; and two clocks drift.
fn ran_at(then: Instant, now: Instant, uptime_s: u64) -> bool {
    let elapsed_ms = now.as_millis().saturating_sub(then.as_millis());
    let needed_ms = elapsed_ms.saturating_add(elapsed_ms.div_ceil(DRIFT_PART));
    let ran_ms = uptime_s
        .saturating_sub(UPTIME_EXCESS_S)
        .saturating_mul(1000);
    // All of it, including a restart, may have happened within one millisecond.
    ran_ms > needed_ms
}
