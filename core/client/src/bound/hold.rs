//! A lock whose server says for how long it surely is the only one: `H` of `ml`, and `mn H`.
//!
//! - J1: From the first answer with `H` on, a lock is believed no longer than the hold after the request was *sent*.
//!   The server cannot end the belief of a client that it does not reach, so the client does that itself. Counted
//!   from the answer, the belief would outlast the hold by the time that the answer took.
//! - J2: A lock that was granted after so long a wait that the hold is over is confirmed before it is believed.
//! - J3: A holder asks once a second, or three times in a hold if that is shorter. A server that does not answer in
//!   time costs the lock.
//!
//! A server that shows no `H` has no other to fear, and its locks are believed as before. A server that does not know the
//! flag is asked again without it, once for each connection (M1).
//!
//! Source: docs/PROTOCOL.md, "Clusters".

use core::time::Duration;

use latchd_protocol::time::Instant;
use latchd_protocol::wire::classic::reply::ClassicResponse;

use super::{Bound, BoundGoal, BoundNews, Link, Query};
use crate::machine::Failure;
use crate::moment::after;
use crate::session::AnyResponse;

/// The longest time between two questions (J3).
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The hold of the server, as a client knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Hold {
    /// Until then no other server can grant the lock (J1).
    until: Instant,
    /// When to ask again (J3).
    ask_at: Instant,
}

impl Bound {
    /// Reads the hold from an answer to a request that was sent at `sent`.
    pub(super) fn note_hold(&mut self, sent: Instant, answer: &AnyResponse<'_>) {
        let Some(ms) = answer.number(b'H') else {
            return;
        };
        let shown = Duration::from_millis(ms);
        let until = after(sent, shown);
        self.hold = Some(Hold {
            // An earlier answer may show more: both are true.
            until: self.hold.map_or(until, |hold| hold.until.max(until)),
            ask_at: after(sent, (shown / 3).clamp(ASK_AGAIN, ASK_EVERY)),
        });
    }

    /// Until when a lock is believed; `None` if the server shows no hold.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.hold.map(|hold| hold.until)
    }

    /// When the holder asks for the hold.
    pub(super) fn hold_at(&self) -> Option<Instant> {
        self.hold.map(|hold| hold.ask_at)
    }

    pub(super) fn is_hold_due(&self, now: Instant) -> bool {
        self.hold_at().is_some_and(|at| now >= at)
    }

    /// Whether a lock that is granted now would not be believed (J2).
    pub(super) fn is_hold_over(&self) -> bool {
        self.held_until().is_some_and(|until| self.heard >= until)
    }

    /// The answer to `mn`. A lock that was not believed before is obtained if the hold is in force now (J2).
    pub(super) fn pinged(&mut self, now: Instant, answer: &AnyResponse<'_>) {
        if let Some(hold) = &mut self.hold {
            hold.ask_at = hold.ask_at.max(after(now, ASK_AGAIN));
        }
        if !matches!(self.goal, BoundGoal::Obtain { .. }) {
            return;
        }
        if self.is_hold_over() {
            // The connection is closed, which releases the lock.
            self.link = Link::Unwanted;
            self.end(BoundNews::Failed(match answer.refusal() {
                Some(words) => Failure::Refused(words),
                None => Failure::NoAnswer,
            }));
        } else {
            self.obtained();
        }
    }

    /// Whether the answer to `ml … H` shows that the server knows `ml` and not the flag. Then it is asked without it.
    pub(super) fn is_without_hold(&mut self, now: Instant, answer: &AnyResponse<'_>) -> bool {
        let is_refused = matches!(
            answer,
            AnyResponse::Classic(ClassicResponse::ClientError(_))
        );
        let is_first = is_refused && !self.lacks_hold;
        if is_first {
            self.lacks_hold = true;
            self.begin(Query::Lock, now);
        }
        is_first
    }
}
