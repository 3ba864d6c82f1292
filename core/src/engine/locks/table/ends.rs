//! How locks have ended: how long each was held, and, for a transport that logs it, which it was and why.
//!
//! No reply depends on it. A lock that has ended with all others of its owner leaves the table later (L9); it counts as held
//! until the last such end of its owner.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use latchd_protocol::Owner;
use latchd_protocol::fence::Fence;
use latchd_protocol::time::Instant;

use super::Holding;
use crate::engine::owned_key::OwnedKey;
use crate::times::Times;

/// The most ends that are kept for a transport. Further ends are counted only.
pub const LOCK_ENDS_MAX: usize = 4096;

/// A lock, or a share of one, that has ended.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct LockEnd {
    /// Its key.
    pub key: Arc<[u8]>,
    /// Its holder.
    pub holder: Owner,
    /// The number of the grant.
    pub fence: Fence,
    /// Its metadata, if it had some.
    pub metadata: Option<Box<[u8]>>,
    /// How long it was held, in milliseconds.
    pub held_ms: u64,
    /// The cause of its end.
    pub cause: EndCause,
}

/// The cause of the end of a lock.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum EndCause {
    /// Its holder, by a request.
    Released,
    /// Its lease has passed.
    Expired,
    /// The end of its owner.
    Closed,
}

/// The record of ended locks.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Ends {
    /// As the last event left it.
    pub(super) now: Instant,
    pub(super) times: Times,
    /// The oldest first, if a transport takes them.
    kept: Option<VecDeque<LockEnd>>,
    /// How many did not fit there.
    missed: u64,
}

impl Ends {
    /// A lock is out of the table, which was this holding and had this metadata. `ended`: when and why all locks of its owner have ended.
    pub(super) fn note(
        &mut self,
        key: &OwnedKey,
        holding: &Holding,
        metadata: Option<Box<[u8]>>,
        ended: Option<(Instant, EndCause)>,
    ) {
        let (at, cause) = match (ended, holding.lease_until) {
            (Some((at, _)), Some(until)) if until <= at => (until, EndCause::Expired),
            (Some(ended), _) => ended,
            (None, Some(until)) if holding.is_expired => (until, EndCause::Expired),
            (None, _) => (self.now, EndCause::Released),
        };
        let held_ms = at.as_millis().saturating_sub(holding.since.as_millis());
        self.times.note(held_ms);
        let Some(kept) = &mut self.kept else {
            return;
        };
        if kept.len() >= LOCK_ENDS_MAX {
            self.missed += 1;
            return;
        }
        kept.push_back(LockEnd {
            key: Arc::clone(key),
            holder: holding.owner,
            fence: holding.fence,
            metadata,
            held_ms,
            cause,
        });
    }

    pub(super) fn keep(&mut self, is_taken: bool) {
        if !is_taken {
            self.kept = None;
        } else if self.kept.is_none() {
            self.kept = Some(VecDeque::new());
        }
    }

    #[inline]
    pub(super) fn has_some(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| !kept.is_empty())
    }

    pub(super) fn take(&mut self) -> (VecDeque<LockEnd>, u64) {
        let kept = self.kept.as_mut().map(core::mem::take);
        (kept.unwrap_or_default(), core::mem::take(&mut self.missed))
    }
}
