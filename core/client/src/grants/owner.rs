//! The session of a machine's locks. Its own rules are in [`attachment`](crate::attachment).
//!
//! - F1: A lock that was waited for longer than its session is believed is confirmed before it is believed.
//! - F2: While a lock may be held, a new connection only resumes the session. If there is none, all locks are lost.
//! - F3: A session that has kept no lock for its time is ended, and so is one that is left at the end. Nothing but its
//!   locks is worth a ping.

use latchd_protocol::time::Instant;
use latchd_protocol::wire::meta::session::SessionResponse;

use super::grant::{Goal, Grant};
use super::{Asked, Grants, Link, LockNews};
use crate::attachment::{Attached, Attachment};
use crate::lock::LockMachine;
use crate::machine::Loss;
use crate::moment::{after, earlier};
use crate::session::AnyResponse;

impl Grants {
    /// Whether requests of locks may be sent: the connection is attached to the session, if there is one.
    pub(super) fn is_attached(&self) -> bool {
        let is_attached = self.session.as_ref().is_none_or(Attachment::is_attached);
        self.link == Link::Up && is_attached && !self.is_to_end()
    }

    /// Whether the session surely lives.
    pub(super) fn is_session_alive(&self, now: Instant) -> bool {
        let session = self.session.as_ref();
        let until = session.and_then(Attachment::believed_until);
        until.is_some_and(|until| now < until)
    }

    /// Whether the session is to be ended.
    pub(super) fn is_to_end(&self) -> bool {
        let is_left = self.is_closing && self.locks.is_empty();
        let may_live = self.session.as_ref().is_some_and(Attachment::may_live);
        may_live && (self.ends_session || is_left)
    }

    /// When a session without locks is ended (F3).
    fn idle_end(&self) -> Option<Instant> {
        let session = self
            .session
            .as_ref()
            .filter(|session| session.is_attached())?;
        let is_idle = self.locks.is_empty() && !self.ends_session;
        is_idle.then(|| after(self.idle_since, session.ttl()))
    }

    /// The next request about the session.
    pub(super) fn owner_request(&self, now: Instant) -> Option<Asked> {
        let session = self.session.as_ref()?;
        let is_asked = |sent: &super::Sent| matches!(sent.what, Asked::Attach { .. } | Asked::End);
        if self.in_flight.iter().any(is_asked) {
            return None;
        }
        if self.is_to_end() {
            return Some(Asked::End);
        }
        let is_wanted = !self.locks.is_empty();
        let is_due = match session.ping_at() {
            Some(at) => session.is_attached() && now >= at || is_wanted && !session.is_attached(),
            None => is_wanted,
        };
        let holds = self.holds();
        is_due.then_some(Asked::Attach { holds })
    }

    /// The effect of time alone on the session.
    pub(super) fn pass_session(&mut self, now: Instant) {
        if self.idle_end().is_some_and(|end| now >= end) {
            self.ends_session = true;
        }
        let is_over = self.session.as_ref().is_some_and(|session| {
            session.may_live() && !session.is_attached() && now >= session.ends_at()
        });
        let is_used = |grant: &Grant| matches!(grant.goal, Goal::Hold | Goal::Obtain { .. });
        if is_over && (self.is_to_end() || !self.locks.values().any(is_used)) {
            self.session_ended(now);
        }
    }

    /// When the session needs an action by time alone.
    pub(super) fn session_wake(&self) -> Option<Instant> {
        let session = self.session.as_ref()?;
        let ends = (session.may_live() && !session.is_attached()).then(|| session.ends_at());
        let is_asked = |sent: &super::Sent| matches!(sent.what, Asked::Attach { .. });
        let pings = session.is_attached() && !self.in_flight.iter().any(is_asked) && !self.waits();
        let ping = session.ping_at().filter(|_| pings);
        let retry = match self.link {
            Link::Down { retry_at } if !self.locks.is_empty() || self.is_to_end() => Some(retry_at),
            Link::Down { .. } | Link::Up | Link::Unwanted => None,
        };
        earlier(earlier(ends, self.idle_end()), earlier(ping, retry))
    }

    /// Until when a connection is wanted; `None` means for ever.
    pub(super) fn wake_down(&self) -> Option<Instant> {
        let session = self.session.as_ref();
        let ends = session
            .filter(|session| session.may_live())
            .map(Attachment::ends_at);
        let own = self.ends.first().map(|(at, _)| *at);
        earlier(
            earlier(ends, own),
            self.common_deadline().filter(|_| self.held > 0),
        )
    }

    /// The answer to [`Asked::Attach`], which was sent at `sent`.
    pub(super) fn attached(
        &mut self,
        now: Instant,
        (sent, holds): (Instant, bool),
        answer: &AnyResponse<'_>,
    ) {
        let Some(session) = &mut self.session else {
            return;
        };
        match session.answered(now, (sent, holds), answer) {
            Attached::Yes => {}
            Attached::Ended => {
                self.link = Link::Unwanted;
                self.session_ended(now);
            }
            // Another connection may do better, as long as the session has time.
            Attached::Failed(_) if holds => self.link = Link::Unwanted,
            Attached::Failed(failure) => {
                for id in self.ids(|_| true) {
                    self.fail(now, id, failure.clone());
                }
            }
        }
    }

    /// The answer to [`Asked::End`]. After a refusal the connection may still be attached.
    pub(super) fn end_answered(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let is_done = matches!(
            answer,
            AnyResponse::Session(SessionResponse::Ended | SessionResponse::NotFound)
        );
        if !is_done {
            self.link = Link::Unwanted;
        }
        self.session_ended(now);
    }

    /// The session has ended, and all that it had (F2). Obtains go on in the next one.
    fn session_ended(&mut self, now: Instant) {
        if let Some(session) = &mut self.session {
            session.has_ended();
        }
        self.ends_session = false;
        for id in self.ids(|_| true) {
            match self
                .locks
                .get(&id)
                .map(|grant| (&grant.goal, grant.terms.is_adopted))
            {
                Some((Goal::Obtain { .. }, true)) => self.remove(now, id, LockNews::NotHeld),
                Some((Goal::Obtain { .. }, false)) => {
                    self.change(id, |grant| grant.begin_again(now, false));
                }
                Some((Goal::GiveBack(_), _)) => self.given_back(now, id),
                Some((Goal::Hold, _)) => self.lose(now, id, Loss::Taken),
                Some((Goal::Release { .. }, _)) => {
                    if self.locks.get(&id).is_some_and(Grant::is_told) {
                        self.news.push_back((id, LockNews::Lost(Loss::Taken)));
                    }
                    self.remove(now, id, LockNews::NotHeld);
                }
                None => {}
            }
        }
        self.idle_since = now;
    }
}
