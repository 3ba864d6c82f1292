//! Leases whose server says for how long it surely is the only one: `mn H`.
//!
//! - U1: After an answer with `H`, a lease is believed no longer than the hold after that request was *sent*, or after a
//!   later one. A ttl is no such bound, however short it is: it counts from the last request that the old primary has
//!   executed, and the next primary, which has no items, may grant the lock as soon as the hold is over, or at a planned
//!   hand-over before that.
//! - U2: On each connection the question follows the first request at once, so that a refusal of the connection is the
//!   answer to that. A lease is obtained only when the answer to the question is there too.
//!   If no hold is in force then, the leases are given back, and the obtain has failed: another server may serve. It
//!   never counts as held by another client.
//! - U3: While the leases are wanted or held, the question is repeated once a second, or three times in a hold if that is
//!   shorter. A server that does not answer in time costs the leases.
//! - U4: A server that shows no `H` has no other to fear. Nobody asks it again on this connection, and its leases are
//!   believed until their ttl. While the first question of another user of the connection is unanswered, the leases do
//!   not ask: the answer to that comes before the answer to their own first request.
//!
//! If an earlier server has shown a hold, the leases ask in any case: that hold bounds them (U1).
//!
//! Source: docs/PROTOCOL.md, "Clusters".

use core::time::Duration;

use latchd_protocol::time::Instant;
use latchd_protocol::wire::classic::reply::ClassicResponse;

use super::{LeaseNews, Leases, LeasesGoal};
use crate::machine::{Failure, Loss};
use crate::moment::{after, earlier};
use crate::session::{AnyResponse, HoldSupport};
use crate::terms::LAST_TRY;

/// The longest time between two questions (U3).
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The hold of the server, as the leases know it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Hold {
    /// Until then no other server can grant the locks (U1); `None` if no server has shown a hold.
    until: Option<Instant>,
    /// When to ask next; `None` without a connection, and on one whose server shows no hold.
    ask_at: Option<Instant>,
    /// When the unanswered question was sent.
    asked: Option<Instant>,
    /// Whether the question on this connection is to follow (U2).
    first: FirstQuestion,
    /// All leases are obtained, and the answer to the question is not there (U2).
    is_granted: bool,
}

/// The first question on a connection.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum FirstQuestion {
    /// It was sent, or is not needed (U4).
    #[default]
    Done,
    /// It follows the first request (U2).
    Follows,
    /// It follows the answer to the first request, if it is needed then (U4).
    Waits,
}

impl Leases {
    /// Asks the server for its hold from now on (U1 to U3).
    pub fn confirm(&mut self) {
        self.hold = Some(Hold::default());
    }

    /// The hold, if it is of interest: the leases are wanted or held.
    fn wanted_hold(&self) -> Option<&Hold> {
        let is_wanted = match self.goal {
            LeasesGoal::Obtain { .. } | LeasesGoal::Hold => true,
            LeasesGoal::None | LeasesGoal::Release { .. } => false,
        };
        self.hold.as_ref().filter(|_| is_wanted)
    }

    /// Whether to send the question now. If so, it counts as sent.
    pub(super) fn asks_hold(&mut self, now: Instant) -> bool {
        let is_due = self.hold_ask_at().is_some_and(|at| now >= at);
        if let Some(hold) = self.hold.as_mut().filter(|_| is_due) {
            hold.asked = Some(now);
        }
        is_due
    }

    /// When to send the next question; `None` if another event comes first.
    fn hold_ask_at(&self) -> Option<Instant> {
        let hold = self.wanted_hold()?;
        hold.ask_at.filter(|_| hold.asked.is_none())
    }

    /// A request of a lease is sent: on a new connection, the question follows (U2).
    pub(super) fn hold_follows(&mut self, now: Instant) {
        self.first_question(now, FirstQuestion::Follows);
    }

    /// A request of a lease is answered: a question that has waited for that is due (U4).
    pub(super) fn hold_due(&mut self, now: Instant) {
        self.first_question(now, FirstQuestion::Waits);
    }

    fn first_question(&mut self, now: Instant, state: FirstQuestion) {
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.first == state) {
            (hold.first, hold.ask_at) = (FirstQuestion::Done, Some(now));
        }
    }

    /// What the users of the connection know of its server (U4).
    pub(super) fn note_hold_support(&mut self, support: HoldSupport) {
        let Some(hold) = &mut self.hold else {
            return;
        };
        match support {
            HoldSupport::Lacks if hold.until.is_none() => hold.first = FirstQuestion::Done,
            HoldSupport::Asked if hold.first == FirstQuestion::Follows => {
                hold.first = FirstQuestion::Waits;
            }
            HoldSupport::Unknown | HoldSupport::Asked | HoldSupport::Shows | HoldSupport::Lacks => {
            }
        }
    }

    /// All leases are obtained. Returns whether that must wait for the answer to a question (U2).
    pub(super) fn waits_for_hold(&mut self, now: Instant) -> bool {
        match &mut self.hold {
            Some(hold) => {
                let is_due = hold.ask_at.is_some_and(|at| now >= at);
                hold.is_granted = hold.asked.is_some() || is_due;
                hold.is_granted
            }
            None => false,
        }
    }

    /// Whether all leases are obtained, and nothing but the answer to a question is missing (U2).
    pub(super) fn is_granted(&self) -> bool {
        self.hold.is_some_and(|hold| hold.is_granted)
    }

    /// The obtain has ended.
    pub(super) fn hold_settled(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.is_granted = false;
        }
    }

    /// The answer to the question.
    pub(super) fn hold_shown(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        let Some(hold) = &mut self.hold else {
            return;
        };
        let Some(sent) = hold.asked.take() else {
            return;
        };
        let shown = answer.number(b'H').map(Duration::from_millis);
        let is_refused = matches!(
            answer,
            AnyResponse::Classic(ClassicResponse::ServerError(_))
        );
        hold.ask_at = match shown {
            Some(shown) => {
                // An earlier answer may show more: both are true.
                hold.until = hold.until.max(Some(after(sent, shown)));
                let next = after(sent, (shown / 3).clamp(ASK_AGAIN, ASK_EVERY));
                Some(next.max(after(now, ASK_AGAIN)))
            }
            None if is_refused || hold.until.is_some() => Some(after(now, ASK_EVERY)),
            None => None,
        };
        if core::mem::take(&mut hold.is_granted) {
            self.all_obtained(now);
        }
    }

    /// A connection is open: its server is asked anew.
    pub(super) fn hold_connected(&mut self) {
        if let Some(hold) = &mut self.hold {
            (hold.ask_at, hold.asked) = (None, None);
            hold.first = FirstQuestion::Follows;
        }
    }

    /// The connection is gone.
    pub(super) fn hold_disconnected(&mut self) {
        if let Some(hold) = &mut self.hold {
            (hold.ask_at, hold.asked) = (None, None);
        }
    }

    /// Until when the leases are believed at most (U1); `None` without a bound.
    pub(super) fn hold_until(&self) -> Option<Instant> {
        self.hold.and_then(|hold| hold.until)
    }

    /// Held leases are lost at the end of the hold. An obtain ends if the answer to its question does not come.
    pub(super) fn pass_hold(&mut self, now: Instant) {
        if self.granted_until().is_some_and(|until| now >= until) {
            self.not_obtained(now, LeaseNews::Failed(Failure::NoAnswer));
        }
        let is_over = self.hold_until().is_some_and(|until| now >= until);
        if is_over && self.goal == LeasesGoal::Hold {
            self.lose(Loss::Unconfirmed);
        }
    }

    /// When an obtain ends whose leases are obtained, if the answer to its question does not come.
    fn granted_until(&self) -> Option<Instant> {
        match self.goal {
            LeasesGoal::Obtain { until } if self.is_granted() => Some(after(until, LAST_TRY)),
            LeasesGoal::None
            | LeasesGoal::Obtain { .. }
            | LeasesGoal::Hold
            | LeasesGoal::Release { .. } => None,
        }
    }

    /// The next moment at which the hold needs an action.
    pub(super) fn hold_wake(&self) -> Option<Instant> {
        let ends = self.hold_until();
        let ends = ends.filter(|_| self.goal == LeasesGoal::Hold);
        earlier(earlier(self.hold_ask_at(), self.granted_until()), ends)
    }
}
