//! The end of a term: all locks of an owner end in one step, and leave the table later.
//!
//! - L9: A lock has no holder from the moment at which its term is over, and its key is queued for removal.
//! - L14: Exclusive locks with waiters are removed first, then shares, then the rest: each kind has a queue.

use latchd_protocol::Owner;

use super::{LISTED_BYTES, LockTable, WAITED_BYTES};
use crate::engine::owned_key::OwnedKey;

impl LockTable {
    /// Every lock of `owner` is over (L9), in one step. Returns how many there were.
    pub(in crate::engine) fn end_term(&mut self, owner: Owner) -> usize {
        let Some(holder) = self.by_owner.get_mut(&owner) else {
            return 0;
        };
        let term = holder.term;
        holder.term += 1;
        if holder.holds_nothing() {
            return 0;
        }
        let keys = core::mem::take(&mut holder.keys);
        let shared = core::mem::take(&mut holder.shared);
        let waited = core::mem::take(&mut holder.waited);
        holder.pinned_bytes = 0;
        let pins = core::mem::take(&mut holder.pins);
        holder.table_bytes = 0;
        let ended = keys.len() + shared.len();
        self.ends.end_term(owner, term, ended);
        self.holders -= 1;
        self.ended_entries += ended;
        self.pins.remove_all(pins);
        if !keys.is_empty() {
            self.ended.push_back(keys);
        }
        if !shared.is_empty() {
            self.shares.ended.push_back(shared);
            self.shares.lines_begun += 1;
        }
        if !waited.is_empty() {
            self.handovers.push_back(waited);
        }
        ended
    }

    /// `owner` is not open any more, and nothing of it is in force. Returns how many locks it had.
    pub(in crate::engine) fn close(&mut self, owner: Owner) -> usize {
        let ended = self.end_term(owner);
        self.by_owner.remove(&owner);
        if ended > 0 {
            self.ends.close(owner);
        }
        ended
    }

    /// Whether locks that have ended many at once are still to be taken out.
    #[inline]
    pub(in crate::engine) fn has_ended(&self) -> bool {
        !self.ended.is_empty() || !self.shares.ended.is_empty()
    }

    /// The same, or some with expired leases.
    pub(in crate::engine) fn has_over(&self) -> bool {
        self.has_ended() || self.lease_next.is_some_and(|at| at <= self.leases_passed)
    }

    /// Whether some of them may be waited for.
    pub(in crate::engine) fn has_handovers(&self) -> bool {
        !self.handovers.is_empty() || self.shares.waited_keys > 0 && !self.shares.ended.is_empty()
    }

    /// The next of the keys that were waited for when their term was over (L14); as
    /// [`Self::next_ended`].
    pub(in crate::engine) fn next_handover(&mut self) -> Option<OwnedKey> {
        let keys = self.handovers.front_mut()?;
        let key = keys
            .pop_first()
            .expect("an empty list does not stand in line");
        if keys.is_empty() {
            self.handovers.pop_front();
        }
        self.table_bytes -= WAITED_BYTES + key.len();
        Some(key)
    }

    /// The next ended key that was held alone (L9). A command may have read it, and a client acquired it, in the
    /// meantime: then it is not over.
    pub(in crate::engine) fn next_ended(&mut self) -> Option<OwnedKey> {
        let keys = self.ended.front_mut()?;
        let key = keys
            .pop_first()
            .expect("an empty list does not stand in line");
        if keys.is_empty() {
            self.ended.pop_front();
        }
        self.table_bytes -= LISTED_BYTES + key.len();
        Some(key)
    }
}
