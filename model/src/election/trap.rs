//! The mistakes that an election like this can have, planted between the shipped elections and the world: on the
//! transactions and answers, on the clock at which they count, and on the steps of the driver.

use super::{Bounds, DELAYED};

/// A mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trap {
    /// A hold counts from the answer to its heartbeat.
    HoldsFromAnswer,
    /// A claim is written whatever the record is.
    ClaimsWithoutCompare,
    /// T = H.
    WaitIsHold,
    /// A new record does not restart the wait.
    WaitGoesOn,
    /// The clock is not checked before a reply is sent.
    SendsUnchecked,
    /// The clock is not checked before a deferred reply is sent.
    SendsDeferredUnchecked,
    /// A claim counts as held from its answer.
    ClaimsFromAnswer,
    /// A heartbeat without an answer counts as not executed, so it begins anew.
    LostIsFailed,
    /// The answer to an earlier transaction counts for the newest one.
    LateIsCurrent,
    /// An error of the authority counts as the loss of the record.
    ErrorIsLoss,
    /// A vacant record is claimed at once.
    ClaimsAtOnce,
    /// The lock of the state directory counts without the id in it.
    LockWithoutId,
    /// The record says `free` before the process has closed.
    FreeTooEarly,
    /// Each term numbers from 1.
    NumbersFromOne,
    /// The client believes from the answer on.
    BelievesFromAnswer,
    /// A process that was started again at once grants locks at once.
    GrantsAtOnce,
}

/// Every trap, and the number of steps into it.
pub const TRAPS: &[(Trap, usize)] = &[
    (Trap::HoldsFromAnswer, 12),
    (Trap::ClaimsWithoutCompare, 8),
    (Trap::WaitIsHold, 5),
    (Trap::WaitGoesOn, 8),
    (Trap::SendsUnchecked, 13),
    (Trap::SendsDeferredUnchecked, 13),
    (Trap::ClaimsFromAnswer, 11),
    (Trap::LostIsFailed, 12),
    (Trap::LateIsCurrent, 10),
    (Trap::ErrorIsLoss, 5),
    (Trap::ClaimsAtOnce, 4),
    (Trap::LockWithoutId, 3),
    (Trap::FreeTooEarly, 6),
    (Trap::NumbersFromOne, 8),
    (Trap::BelievesFromAnswer, 10),
    (Trap::GrantsAtOnce, 6),
];

impl Trap {
    const fn within(self, steps: u64, delays: u8) -> Bounds {
        Bounds {
            steps,
            delays,
            lates: 0,
            trap: Some(self),
            ..DELAYED
        }
    }

    /// Bounds in which it is found.
    pub(super) const fn bounds(self) -> Bounds {
        let (restarts, leaves, stops, deletions) = (1, 1, 1, 1);
        match self {
            Self::HoldsFromAnswer | Self::LostIsFailed => self.within(8, 5),
            Self::ClaimsWithoutCompare | Self::WaitIsHold | Self::WaitGoesOn => self.within(6, 6),
            Self::LateIsCurrent => Bounds {
                lates: 1,
                ..self.within(6, 6)
            },
            Self::ErrorIsLoss => self.within(4, 2),
            Self::ClaimsFromAnswer => Bounds {
                restarts,
                ..self.within(7, 7)
            },
            Self::LockWithoutId => Bounds {
                restarts,
                ..self.within(4, 2)
            },
            Self::GrantsAtOnce => Bounds {
                restarts,
                asks: 1,
                ..self.within(4, 1)
            },
            Self::ClaimsAtOnce => Bounds {
                deletions,
                ..self.within(4, 2)
            },
            Self::FreeTooEarly => Bounds {
                leaves,
                asks: 1,
                ..self.within(4, 1)
            },
            Self::NumbersFromOne => Bounds {
                leaves,
                asks: 2,
                ..self.within(4, 1)
            },
            Self::SendsUnchecked | Self::SendsDeferredUnchecked => Bounds {
                stops,
                asks: 1,
                ..self.within(7, 1)
            },
            Self::BelievesFromAnswer => Bounds {
                asks: 1,
                ..self.within(7, 4)
            },
        }
    }
}
