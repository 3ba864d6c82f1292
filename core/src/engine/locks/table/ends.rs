//! How locks have ended: how long each was held, and, for a transport that logs it, which it was and why.
//!
//! No reply depends on it. A lock of a term that is over leaves the table later (L9); it counts as held until its term
//! was over.
//!
//! - L10: The record of a term that is over goes with its last lock.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use latchd_protocol::Owner;
use latchd_protocol::fence::Fence;
use latchd_protocol::time::Instant;

use super::{Grant, Holding};
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

/// When a term was over, and how many of its locks are still in the table.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct TermEnd {
    at: Instant,
    cause: EndCause,
    locks: usize,
}

/// The record of ended locks.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Ends {
    /// As the last event left it.
    pub(super) now: Instant,
    pub(super) times: Times,
    /// The terms that are over, of which locks are still in the table.
    terms: BTreeMap<(Owner, u64), TermEnd>,
    /// The oldest first, if a transport takes them.
    kept: Option<VecDeque<LockEnd>>,
    /// How many had no room there.
    missed: u64,
}

impl Ends {
    /// A term with so many locks is over.
    pub(super) fn end_term(&mut self, owner: Owner, term: u64, locks: usize) {
        let end = TermEnd {
            at: self.now,
            cause: EndCause::Released,
            locks,
        };
        self.terms.insert((owner, term), end);
    }

    /// The end of an owner has ended its last term.
    pub(super) fn close(&mut self, owner: Owner) {
        let mut terms = self.terms.range_mut((owner, 0)..=(owner, u64::MAX));
        if let Some((_, end)) = terms.next_back() {
            end.cause = EndCause::Closed;
        }
    }

    /// A lock is out of the table, which had this grant and this metadata, and was this holding.
    pub(super) fn note(
        &mut self,
        key: &OwnedKey,
        grant: &Grant,
        holding: &Holding,
        metadata: Option<Box<[u8]>>,
    ) {
        let term = self.leave_term(grant);
        let (at, cause) = match (term, holding.lease_until) {
            (Some(end), Some(until)) if until <= end.at => (until, EndCause::Expired),
            (Some(end), _) => (end.at, end.cause),
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

    /// The end of the term of a lock, if it is over: one lock fewer is left of it.
    fn leave_term(&mut self, grant: &Grant) -> Option<TermEnd> {
        let term = (grant.owner, grant.term);
        let end = self.terms.get_mut(&term)?;
        end.locks -= 1;
        let end = *end;
        if end.locks == 0 {
            self.terms.remove(&term);
        }
        Some(end)
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

    /// L10: how many locks are left of terms that are over.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn locks_left(&self) -> usize {
        assert!(
            self.terms.values().all(|end| end.locks > 0),
            "L10: a term of no locks"
        );
        self.terms.values().map(|end| end.locks).sum()
    }
}
