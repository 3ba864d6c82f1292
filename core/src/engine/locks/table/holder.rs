//! The locks of one owner, and their common end.
//!
//! All locks of an owner end in one step: their fences are below the first valid one from then on. The keys stay where they are
//! listed, by fence, so the ended ones come first.
//!
//! - L9: A lock whose fence is not valid has no holder. Its owner is listed until the last such lock is removed.
//! - L14: Exclusive locks with waiters are removed first, then shares, then the rest.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use latchd_protocol::Owner;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use super::ends::EndCause;
use super::pins::Pins;
use super::{Grant, Holding, LISTED_BYTES, LockTable};
use crate::engine::owned_key::OwnedKey;

/// The next of the ended locks of an owner to be removed (L14).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Rank {
    Waited,
    Shared,
    Alone,
}

/// Keys by the fences of their grants.
pub(super) type Grants = BTreeMap<Fence, OwnedKey>;

/// An owner.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Holder {
    /// It has not ended.
    pub(super) is_open: bool,
    /// Grants with lower fences have ended.
    pub(super) valid_from: Fence,
    /// When and why the last of them have ended.
    pub(super) ended: (Instant, EndCause),
    /// Their number.
    pub(super) over: usize,
    /// Its place among the owners of ended locks, if there are some.
    pub(super) place: u64,
    /// The keys that it holds alone, ended ones included.
    pub(super) keys: Grants,
    /// The keys that it shares, ended ones included.
    pub(super) shared: Grants,
    /// The keys that it holds alone and that have waiters.
    pub(super) waited: Grants,
    /// The bytes that the items of its locks in force take of the memory limit.
    pub(super) pinned_bytes: usize,
    /// As much of that as no other owner shares, by shard.
    pub(super) pins: Pins,
    /// The bytes that its locks in force take of the table.
    pub(super) table_bytes: usize,
}

impl Default for Holder {
    fn default() -> Self {
        Self {
            is_open: false,
            valid_from: Fence::FIRST,
            ended: (Instant::default(), EndCause::Released),
            over: 0,
            place: 0,
            keys: Grants::new(),
            shared: Grants::new(),
            waited: Grants::new(),
            pinned_bytes: 0,
            pins: Pins::default(),
            table_bytes: 0,
        }
    }
}

impl Holder {
    /// The number of its locks that have not ended with the others.
    pub(super) fn in_force(&self) -> usize {
        self.keys.len() + self.shared.len() - self.over
    }

    /// Whether this grant, which it has, has not ended with the others.
    pub(super) fn has(&self, grant: &Grant) -> bool {
        self.valid_from <= grant.fence
    }

    /// The first grant of a list, if it has ended.
    fn first_over<'a>(&self, grants: &'a Grants) -> Option<(Fence, &'a OwnedKey)> {
        let (fence, key) = grants.first_key_value()?;
        (*fence < self.valid_from).then_some((*fence, key))
    }

    /// The ended lock that is to be removed next; a share with its fence.
    fn next_over(&self) -> Option<(Rank, &OwnedKey, Option<Fence>)> {
        if self.over == 0 {
            None
        } else if let Some((_, key)) = self.first_over(&self.waited) {
            Some((Rank::Waited, key, None))
        } else if let Some((fence, key)) = self.first_over(&self.shared) {
            Some((Rank::Shared, key, Some(fence)))
        } else {
            let (_, key) = self.first_over(&self.keys)?;
            Some((Rank::Alone, key, None))
        }
    }

    /// Its place among the owners of ended locks.
    pub(super) fn place_over(&self, owner: Owner) -> Option<(Rank, u64, Owner)> {
        let (rank, ..) = self.next_over()?;
        Some((rank, self.place, owner))
    }
}

impl LockTable {
    /// Every lock of `owner` has ended (L9), in one step. Returns their number.
    pub(in crate::engine) fn end_all(&mut self, owner: Owner, cause: EndCause) -> usize {
        let (at, place) = (self.ends.now, self.ends_begun);
        let ended = self.change_holder(owner, |holder| {
            let ended = holder.in_force();
            let lists = [&holder.keys, &holder.shared].into_iter();
            let last = lists.filter_map(|grants| grants.last_key_value()).max()?;
            if ended == 0 {
                return None;
            }
            holder.valid_from = last.0.step(1);
            if holder.over == 0 {
                holder.place = place;
            }
            holder.over += ended;
            holder.ended = (at, cause);
            holder.pinned_bytes = 0;
            holder.table_bytes = 0;
            Some((ended, core::mem::take(&mut holder.pins)))
        });
        let Some((ended, pins)) = ended.flatten() else {
            return 0;
        };
        self.ends_begun += 1;
        self.holders -= 1;
        self.ended_entries += ended;
        self.pins.remove_all(pins);
        ended
    }

    /// `owner` is not open any more, and nothing of it is in force. Returns the number of its locks.
    pub(in crate::engine) fn close(&mut self, owner: Owner) -> usize {
        let ended = self.end_all(owner, EndCause::Closed);
        self.change_holder(owner, |holder| holder.is_open = false);
        ended
    }

    /// Changes an owner, and lists it by its ended locks. One that has ended is forgotten with its last lock.
    pub(super) fn change_holder<R>(
        &mut self,
        owner: Owner,
        change: impl FnOnce(&mut Holder) -> R,
    ) -> Option<R> {
        let holder = self.by_owner.get_mut(&owner)?;
        let before = holder.place_over(owner);
        let changed = change(holder);
        let after = holder.place_over(owner);
        let is_needed = holder.is_open || after.is_some();
        if before != after {
            if let Some(before) = before {
                self.over.remove(&before);
            }
            self.over.extend(after);
        }
        if !is_needed {
            self.by_owner.remove(&owner);
        }
        Some(changed)
    }

    /// Removes a key from those of its owner; `None` if its lock has ended with the others.
    pub(super) fn leave(&mut self, key: Key<'_>, grant: &Grant) -> Option<&mut Holder> {
        self.table_bytes -= LISTED_BYTES + key.as_bytes().len();
        let is_in_force = self.change_holder(grant.owner, |holder| {
            let is_in_force = holder.has(grant);
            holder.over -= usize::from(!is_in_force);
            if holder.keys.remove(&grant.fence).is_none() {
                holder.shared.remove(&grant.fence);
            }
            is_in_force
        });
        if is_in_force != Some(true) {
            self.ended_entries -= 1;
            return None;
        }
        let holder = self.by_owner.get_mut(&grant.owner)?;
        self.holders -= usize::from(holder.in_force() == 0);
        Some(holder)
    }

    /// A lock is out of the table, which had this grant and this metadata, and was this holding.
    pub(super) fn note_end(
        &mut self,
        key: &OwnedKey,
        grant: &Grant,
        holding: &Holding,
        metadata: Option<Box<[u8]>>,
    ) {
        let holder = self.by_owner.get(&grant.owner);
        let ended = holder.filter(|holder| !holder.has(grant));
        let ended = ended.map(|holder| holder.ended);
        self.ends.note(key, holding, metadata, ended);
    }

    /// Whether locks that have ended many at once are still to be removed.
    #[inline]
    pub(in crate::engine) fn has_ended(&self) -> bool {
        !self.over.is_empty()
    }

    /// The same, or some with expired leases.
    pub(in crate::engine) fn has_over(&self) -> bool {
        self.has_ended() || self.lease_next.is_some_and(|at| at <= self.leases_passed)
    }

    /// Whether clients may wait for some of them.
    pub(in crate::engine) fn has_handovers(&self) -> bool {
        match self.over.first() {
            Some((Rank::Waited, ..)) => true,
            Some((Rank::Shared, ..)) => self.shares.waited_keys > 0,
            Some((Rank::Alone, ..)) | None => false,
        }
    }

    /// The owners of ended locks, in the order of their removal.
    pub(super) fn owners_over(&self) -> impl Iterator<Item = &Holder> {
        let owners = self.over.iter();
        owners.filter_map(|(_, _, owner)| self.by_owner.get(owner))
    }

    /// The key whose ended lock is to be removed next (L9), of a share with its fence. It stays listed until then.
    pub(in crate::engine) fn next_ended(&self) -> Option<(OwnedKey, Option<Fence>)> {
        let (_, key, share) = self.owners_over().next()?.next_over()?;
        Some((Arc::clone(key), share))
    }
}
