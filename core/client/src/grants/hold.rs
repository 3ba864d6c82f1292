//! Locks whose server says for how long it surely is the only one: `H` of `ml`, and `mn H`.
//!
//! - J1: From the first answer with `H` on, locks are believed no longer than the hold after the request was *sent*.
//!   The server cannot end the belief of a client that it does not reach, so the client does that itself.
//! - J2: A lock that was granted after so long a wait that the hold is over is confirmed before it is believed.
//! - J3: While there are locks, the machine asks once a second, or three times in a hold if that is shorter: one question
//!   for all of them. A server that does not answer in time costs the locks.
//!
//! A server that shows no `H` has no other to fear, and its locks are believed as before.
//!
//! Source: docs/PROTOCOL.md, "Clusters".

use core::time::Duration;

use latchd_protocol::time::Instant;

use super::{Asked, Grants};
use crate::moment::after;
use crate::session::AnyResponse;

/// The longest time between two questions (J3).
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two questions.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The hold of the server, as a client knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Hold {
    /// Until then no other server can grant the locks (J1).
    until: Instant,
    /// When to ask again (J3).
    ask_at: Instant,
}

impl Grants {
    /// Reads the hold from an answer to a request that was sent at `sent`.
    pub(super) fn note_hold(&mut self, now: Instant, sent: Instant, answer: &AnyResponse<'_>) {
        if let Some(ms) = answer.number(b'H') {
            let shown = Duration::from_millis(ms);
            let until = after(sent, shown);
            let ask_at = after(sent, (shown / 3).clamp(ASK_AGAIN, ASK_EVERY));
            self.hold = Some(Hold {
                // An earlier answer may show more: both are true.
                until: self.hold.map_or(until, |hold| hold.until.max(until)),
                ask_at: ask_at.max(after(now, ASK_AGAIN)),
            });
        } else if let Some(hold) = &mut self.hold {
            hold.ask_at = hold.ask_at.max(after(now, ASK_AGAIN));
        }
    }

    /// Until when locks are believed; `None` if the server shows no hold.
    pub(super) fn hold_until(&self) -> Option<Instant> {
        self.hold.map(|hold| hold.until)
    }

    /// When the machine asks for the hold.
    pub(super) fn hold_at(&self) -> Option<Instant> {
        let is_asked = self.in_flight.iter().any(|sent| sent.what == Asked::Hold);
        let hold = self.hold.filter(|_| !is_asked && !self.locks.is_empty())?;
        Some(hold.ask_at)
    }

    pub(super) fn is_hold_due(&self, now: Instant) -> bool {
        self.is_attached() && self.hold_at().is_some_and(|at| now >= at)
    }
}
