//! A win in a session: it outlives its connection. The rules of the session itself are in
//! [`attachment`](crate::attachment).
//!
//! - F1: After a break the winner resumes the session. If that succeeds, the server is the one that granted the win, so
//!   the version that was won counts there (R5). If the session has ended, the win is over, as one that has lost its
//!   connection (R7).
//! - F2: A read whose reply was lost is sent again in the resumed session, which is told of a win of its own again.
//! - F3: A session that may have an unwanted win is ended. Otherwise it stays with its connection for the next read, and
//!   ends by time.

use core::time::Duration;

use latchd_protocol::time::Instant;

use super::{Query, Recompute, RecomputeGoal, RecomputeNews, Turn, WinSupport};
use crate::attachment::{Attached, Attachment};
use crate::machine::{Failure, Machine as _};
use crate::moment::after;
use crate::session::AnyResponse;

/// What is known of a connection between two reads: the server's support for wins, and the session that the connection is
/// attached to (F3).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Kept {
    words: WinSupport,
    session: Option<Attachment>,
}

impl Kept {
    /// Whether the connection is attached to a session.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.session.is_some()
    }
}

impl Recompute {
    /// What it knows of its connection, for the next read there.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let session = self.session.clone();
        Kept {
            words: self.words,
            session: session.filter(Attachment::is_attached),
        }
    }

    /// Uses the open connection of an earlier read, and its session instead of a new one. Call it before the read begins.
    pub fn resume(&mut self, now: Instant, kept: Kept) {
        self.connected(now);
        self.words = kept.words;
        if let (Some(terms), Some(mut session)) = (&self.terms.session, kept.session) {
            session.last_for(terms);
            self.session = Some(session);
        }
    }

    pub(super) fn awaits_attach(&self) -> bool {
        let query = Query::Attach;
        matches!(self.turn, Turn::Awaiting { query: sent, .. } if sent == query)
    }

    /// Whether the next request is that for the session.
    pub(super) fn is_to_attach(&self, now: Instant) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let is_due = match self.goal {
            RecomputeGoal::EndSession | RecomputeGoal::Abandon | RecomputeGoal::None => {
                return false;
            }
            // A win is to have most of the session's time.
            RecomputeGoal::Read { .. } | RecomputeGoal::Compute => {
                session.ping_at().is_none_or(|at| now >= at)
            }
            RecomputeGoal::Store { .. } | RecomputeGoal::GiveBack => false,
        };
        is_due || !session.is_attached()
    }

    pub(super) fn note_sent(&mut self, now: Instant) {
        if let Some(session) = &mut self.session
            && self.goal != RecomputeGoal::EndSession
        {
            session.speaks(now);
        }
    }

    /// How long the server may take to answer.
    pub(super) fn reply_timeout(&self) -> Duration {
        let own = self.terms.reply_timeout;
        match &self.session {
            Some(session) => session.patience(own),
            None => own,
        }
    }

    /// When the session is pinged or resumed while the caller computes.
    pub(super) fn sign_of_life_at(&self) -> Option<Instant> {
        let session = self.session.as_ref()?;
        if self.goal != RecomputeGoal::Compute {
            return None;
        }
        if session.is_attached() {
            session.ping_at()
        } else {
            Some(self.resumes_at)
        }
    }

    /// Chooses the next request of the session, if no request is under way.
    pub(super) fn take_turn_in_session(&mut self, now: Instant) {
        if self.turn == Turn::Rest && self.sign_of_life_at().is_some_and(|at| now >= at) {
            self.turn = Turn::Due { at: now };
        }
        let is_over = self
            .session
            .as_ref()
            .is_some_and(|session| now >= session.ends_at());
        if is_over && self.goal == RecomputeGoal::EndSession {
            self.session_ended();
        }
    }

    pub(super) fn was_attached(&mut self, now: Instant, sent: Instant, answer: &AnyResponse<'_>) {
        let Some(session) = &mut self.session else {
            return;
        };
        let holds = self.won.is_some();
        match session.answered(now, (sent, holds), answer) {
            Attached::Yes => self.is_proven |= holds,
            Attached::Ended => {
                (self.session, self.is_proven) = (None, false);
                if self.goal == RecomputeGoal::GiveBack {
                    return self.end(RecomputeNews::GaveBack);
                }
            }
            // The win is kept as long as the session has time.
            Attached::Failed(_) if self.goal == RecomputeGoal::Compute => {
                session.detach(now);
                self.resumes_at = after(now, self.reply_timeout());
                return;
            }
            Attached::Failed(failure) => return self.fail(failure),
        }
        match self.goal {
            RecomputeGoal::Compute | RecomputeGoal::None => {}
            RecomputeGoal::Abandon => self.rest(now),
            RecomputeGoal::Read { .. }
            | RecomputeGoal::Store { .. }
            | RecomputeGoal::GiveBack
            | RecomputeGoal::EndSession => self.turn = Turn::Due { at: now },
        }
    }

    /// Has no goal any more. A session that was told of no end to the last read may have a win (F3).
    pub(super) fn rest(&mut self, at: Instant) {
        let may_have_won = self.session.as_ref().is_some_and(|session| {
            session.may_live() && (!session.is_attached() || self.goal == RecomputeGoal::Abandon)
        });
        (self.goal, self.turn) = if may_have_won {
            (RecomputeGoal::EndSession, Turn::Due { at })
        } else {
            (RecomputeGoal::None, Turn::Rest)
        };
    }

    /// Ends without a result. A win that the server may have granted to the session is given up with it (F3).
    fn fail(&mut self, failure: Failure) {
        self.news.push_back(RecomputeNews::Failed(failure));
        self.rest(self.resumes_at);
    }

    pub(super) fn session_ended(&mut self) {
        if let Some(session) = &mut self.session {
            session.has_ended();
        }
        self.end(RecomputeNews::GaveBack);
    }

    /// The connection is gone. Returns whether the session goes on.
    pub(super) fn disconnected_in_session(&mut self, now: Instant, had_none: bool) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        let again = session.detach(now);
        let is_alive = session.believed_until().is_some_and(|until| now < until);
        self.resumes_at = again;
        match self.goal {
            RecomputeGoal::None | RecomputeGoal::Compute => self.turn = Turn::Rest,
            RecomputeGoal::EndSession => self.turn = Turn::Due { at: again },
            RecomputeGoal::Abandon if session.may_live() => self.rest(again),
            RecomputeGoal::Abandon => self.end(RecomputeNews::GaveBack),
            // F2. A server that has not answered this read may be down.
            RecomputeGoal::Read { .. } if is_alive && (self.is_answered || !had_none) => {
                self.turn = Turn::Due { at: again };
            }
            RecomputeGoal::Read { .. } => self.fail(Failure::Disconnected),
            RecomputeGoal::Store { .. } | RecomputeGoal::GiveBack if is_alive => {
                self.turn = Turn::Due { at: again };
            }
            RecomputeGoal::Store { .. } | RecomputeGoal::GiveBack => {
                self.session = None;
                return false;
            }
        }
        true
    }
}
