//! A lock in a session: it outlives its connection. The rules of the session itself are in
//! [`attachment`](crate::attachment).
//!
//! - F1: A lock is believed no longer than its session. A lock that was waited for longer than that is confirmed before
//!   it is believed.
//! - F2: After a break the holder resumes the session, and asks for the lock again. It is still held if the server shows
//!   the number of the same grant; otherwise it is lost.
//! - F3: A request to acquire or release whose reply was lost is sent again in the resumed session. A lock that is not
//!   there at a second release was released by the first.
//! - F4: A session without a lock is ended. Closing its connection would keep a lock or a place in the queue for the
//!   session's time.

use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::reply::Code;
use latchd_protocol::wire::meta::session::SessionResponse;

use super::{Bound, BoundGoal, BoundNews, Job, Link, Query, Release, Turn};
use crate::attachment::{Attached, Attachment};
use crate::machine::{Failure, Loss};
use crate::moment::earlier;
use crate::session::AnyResponse;

impl Bound {
    /// Whether a session has the lock, and not a connection.
    #[must_use]
    pub const fn is_in_session(&self) -> bool {
        self.session.is_some()
    }

    /// Wants nothing more of a lock in a session, whatever is under way, and reports nothing but
    /// [`SessionEnded`](BoundNews::SessionEnded). Drive the machine until it [is idle](Self::is_idle). Without a
    /// session, close the connection instead.
    pub fn abandon(&mut self) {
        if self.goal == BoundGoal::None {
            self.news.retain(|news| *news == BoundNews::SessionEnded);
            return;
        }
        if self.link == Link::Up && matches!(self.turn, Turn::Awaiting { .. }) {
            self.link = Link::Unwanted;
        }
        (self.goal, self.turn) = (BoundGoal::None, Turn::Rest);
        self.jobs.clear();
        self.news.clear();
    }

    /// Whether the session may have ended while the lock was waited for, as far as the client can know (F1).
    pub(super) fn has_waited_too_long(&self) -> bool {
        let session = self.session.as_ref();
        session
            .and_then(Attachment::believed_until)
            .is_some_and(|until| self.heard >= until)
    }

    /// Asks for the lock again, after a sign of life (F1).
    pub(super) fn attach_again(&mut self) {
        self.then = Some(Query::Lock);
        self.begin(Query::Attach, self.heard);
    }

    /// The request to send before `query` may follow.
    pub(super) fn after_attaching(&mut self, query: Query) -> Query {
        let is_attached = self.session.as_ref().is_none_or(Attachment::is_attached);
        if is_attached || matches!(query, Query::Attach | Query::EndSession) {
            return query;
        }
        self.then = Some(query);
        Query::Attach
    }

    pub(super) fn note_sent(&mut self, query: Query, now: Instant) {
        let Some(session) = &mut self.session else {
            return;
        };
        if query != Query::EndSession {
            session.speaks(now);
        }
        let is_release = matches!(self.jobs.front(), Some(Job::Unlock { .. }));
        if query == Query::Job && is_release && self.release == Release::Unsent {
            self.release = Release::Sent;
        }
    }

    /// Until when a connection is wanted; `None` means for ever.
    pub(super) fn connect_end(&self) -> Option<Instant> {
        let end = match (&self.session, self.goal) {
            (Some(session), BoundGoal::None) => Some(session.ends_at()),
            (Some(_) | None, _) => self.deadline(),
        };
        earlier(self.goal_end(), end)
    }

    /// Chooses the next request, if no request is under way.
    pub(super) fn take_turn_in_session(&mut self, now: Instant) {
        let Some(session) = &self.session else {
            return;
        };
        match self.goal {
            // F4
            BoundGoal::None if session.may_live() => self.begin(Query::EndSession, now),
            BoundGoal::None | BoundGoal::Obtain { .. } => {}
            BoundGoal::Hold if session.is_attached() && self.is_hold_due(now) => {
                self.begin(Query::Ping, now);
            }
            BoundGoal::Hold => {
                let pings = session.ping_at().is_some_and(|at| now >= at);
                match self.jobs.front() {
                    Some(Job::Check) => self.begin(Query::Attach, now),
                    _ if pings => self.begin(Query::Attach, now),
                    Some(_) => self.begin(Query::Job, now),
                    None => {}
                }
            }
        }
    }

    /// Gives up ending a session that has ended by itself.
    pub(super) fn pass_session(&mut self, now: Instant) {
        let is_over = self.session.as_ref().is_some_and(|session| {
            session.may_live() && !session.is_attached() && now >= session.ends_at()
        });
        if is_over && self.goal == BoundGoal::None {
            if matches!(self.turn, Turn::Awaiting { .. }) {
                self.link = Link::Unwanted;
            }
            self.turn = Turn::Rest;
            self.session_ended();
        }
    }

    /// The answer to [`Query::Attach`].
    pub(super) fn attached(&mut self, now: Instant, sent: Instant, answer: &AnyResponse<'_>) {
        let holds = self.is_held();
        let Some(session) = &mut self.session else {
            return;
        };
        match session.answered(now, (sent, holds), answer) {
            Attached::Yes => {
                if holds && self.jobs.front() == Some(&Job::Check) {
                    self.jobs.pop_front();
                    self.news.push_back(BoundNews::Checked);
                }
                if let Some(query) = self.then.take() {
                    self.begin(query, now);
                }
            }
            Attached::Ended => {
                self.link = Link::Unwanted;
                if self.jobs.front() == Some(&Job::Unlock { is_written: true }) {
                    self.jobs.pop_front();
                    self.end(BoundNews::Released);
                } else {
                    self.lose(Loss::Taken);
                }
                self.news.push_back(BoundNews::SessionEnded);
            }
            // Another connection may do better, as long as the session has time.
            Attached::Failed(_) if holds => self.link = Link::Unwanted,
            Attached::Failed(failure) => {
                self.end(BoundNews::Failed(failure));
                if !self.session.as_ref().is_some_and(Attachment::may_live) {
                    self.news.push_back(BoundNews::SessionEnded);
                }
            }
        }
    }

    /// The answer to [`Query::Confirm`] (F2).
    pub(super) fn confirmed(&mut self, answer: &AnyResponse<'_>) {
        let fence = answer.number(b'F').filter(|fence| *fence > 0);
        if answer.code() != Some(Code::Done) || fence.is_none() || fence != self.number {
            self.lose(Loss::Taken);
        }
    }

    /// The answer to [`Query::EndSession`]. After a refusal the connection may still be attached.
    pub(super) fn end_answered(&mut self, answer: &AnyResponse<'_>) {
        let is_done = matches!(
            answer,
            AnyResponse::Session(SessionResponse::Ended | SessionResponse::NotFound)
        );
        if !is_done {
            self.link = Link::Unwanted;
        }
        self.session_ended();
    }

    fn session_ended(&mut self) {
        if let Some(session) = &mut self.session {
            session.has_ended();
        }
        self.news.push_back(BoundNews::SessionEnded);
    }

    /// The connection is gone, and the session goes on.
    pub(super) fn disconnected_in_session(&mut self, now: Instant) {
        let Some(session) = &mut self.session else {
            return;
        };
        self.then = None;
        let again = session.detach(now);
        let is_alive = session.believed_until().is_some_and(|until| now < until);
        match self.goal {
            BoundGoal::None if session.may_live() => self.begin(Query::EndSession, again),
            BoundGoal::None => self.turn = Turn::Rest,
            BoundGoal::Obtain { .. } if self.heard_held || is_alive => {
                (self.creations, self.ours, self.is_obstructed) = (0, false, false);
                self.begin(Query::Lock, again);
            }
            BoundGoal::Obtain { .. } => self.end(BoundNews::Failed(Failure::Disconnected)),
            BoundGoal::Hold if self.release == Release::Unsent => self.begin(Query::Confirm, again),
            // F3: a confirmation would acquire the lock anew.
            BoundGoal::Hold => {
                self.release = Release::Unanswered;
                self.begin(Query::Job, again);
            }
        }
    }
}
