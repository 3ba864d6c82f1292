//! The time in which grants are withheld: clients of a server that has ended may still believe in its locks, or this
//! server is about to end.
//!
//! - L17: While grants are withheld, no lock is granted and no queue is handed over. A request for a free key is treated as
//!   if another owner held it, and the item of a lease is not added. Held locks are renewed and released.
//! - L18: When this time has passed, the waiters get the free locks in their order, and before any request sees the key.

use alloc::sync::Arc;
use core::ops::Bound;

use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use super::Locks;
use super::queue::WaitTable;
use crate::engine::owned_key::OwnedKey;

/// Whether grants are withheld.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub enum Withheld {
    /// They are not.
    #[default]
    No,
    /// Until this moment.
    Until(Instant),
    /// For as long as the core lives.
    Forever,
    /// No longer. The queues of the keys behind this one are still to be handed over; with `None`, all queues.
    Ending(Option<OwnedKey>),
}

impl Withheld {
    /// The moment at which this changes by itself; in the past if queues are still to be handed over.
    pub(in crate::engine) const fn next(&self) -> Option<Instant> {
        match self {
            Self::No | Self::Forever => None,
            Self::Until(at) => Some(*at),
            Self::Ending(_) => Some(Instant::from_millis(0)),
        }
    }
}

impl WaitTable {
    /// Whether grants are withheld (L17).
    #[inline]
    pub(in crate::engine) const fn are_withheld(&self) -> bool {
        matches!(self.withheld(), Withheld::Until(_) | Withheld::Forever)
    }

    /// Whether grants are no longer withheld, and queues are still to be handed over (L18).
    #[inline]
    pub(in crate::engine) const fn is_ending(&self) -> bool {
        matches!(self.withheld(), Withheld::Ending(_))
    }

    /// Withholds grants until this moment, with `None` for ever. An earlier call that asked for a longer time stays in force.
    pub(in crate::engine) fn withhold(&mut self, until: Option<Instant>) {
        let withheld = match (self.withheld(), until) {
            (Withheld::Forever, _) | (_, None) => Withheld::Forever,
            (Withheld::Until(at), Some(until)) => Withheld::Until(until.max(*at)),
            (Withheld::No | Withheld::Ending(_), Some(until)) => Withheld::Until(until),
        };
        self.set_withheld(withheld);
    }

    /// It is `now`: grants may be withheld no longer.
    #[cold]
    pub(in crate::engine) fn pass_withheld(&mut self, now: Instant) {
        if matches!(self.withheld(), Withheld::Until(at) if *at <= now) {
            self.set_withheld(Withheld::Ending(None));
        }
    }

    /// Whether the queue of `key` may wait for a free lock (L17, L18).
    #[cfg(any(test, feature = "verify"))]
    pub(in crate::engine) fn is_unserved(&self, key: Key<'_>) -> bool {
        match self.withheld() {
            Withheld::No => false,
            Withheld::Until(_) | Withheld::Forever | Withheld::Ending(None) => true,
            Withheld::Ending(Some(behind)) => key.as_bytes() > &**behind,
        }
    }

    /// The next key whose queue is to be handed over because grants are no longer withheld (L18).
    pub(in crate::engine) fn next_unserved(&mut self) -> Option<OwnedKey> {
        let Withheld::Ending(behind) = self.withheld() else {
            return None;
        };
        let from = match behind {
            None => Bound::Unbounded,
            Some(key) => Bound::Excluded(&**key),
        };
        let (key, has_more) = {
            let mut keys = self.keys_from(from);
            (keys.next().map(Arc::clone), keys.next().is_some())
        };
        self.set_withheld(match &key {
            Some(key) if has_more => Withheld::Ending(Some(Arc::clone(key))),
            Some(_) | None => Withheld::No,
        });
        key
    }
}

impl Locks {
    /// Whether a request of an owner without a part in the lock of `key` finds it taken: another owner holds it, or grants
    /// are withheld.
    pub(in crate::engine) fn is_taken(&self, key: Key<'_>) -> bool {
        self.queue.are_withheld() || self.table.owner(key).is_some()
    }
}
