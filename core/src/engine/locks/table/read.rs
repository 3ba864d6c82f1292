//! The questions to the table of locks: which owner holds a key, how many locks there are, and how many bytes they take.

use alloc::sync::Arc;

use latchd_protocol::Owner;
use latchd_protocol::command::Mode;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;

use super::{
    ENTRY_BYTES, Entry, Grant, Holders, Holding, LISTED_BYTES, LockTable, OwnerUsage, Shard,
    WAITED_BYTES,
};
use crate::engine::owned_key::{OwnedKey, as_key};
use crate::times::Times;

impl LockTable {
    /// The holder of `key`; of several, the one with the oldest grant.
    #[must_use]
    pub fn owner(&self, key: Key<'_>) -> Option<Owner> {
        match &self.by_key.get(key.as_bytes())?.holders {
            Holders::Alone(grant) => self.is_in_force(grant).then_some(grant.owner),
            Holders::Shared(group) => self.first_sharer(group.id),
        }
    }

    /// The lock of `key` that is in force; of one that is shared, the first share.
    #[must_use]
    pub fn in_force(&self, key: Key<'_>) -> Option<Holding> {
        self.get(key).filter(|holding| !holding.is_over)
    }

    /// How long the locks were held that have ended, each share by itself.
    #[must_use]
    pub const fn hold_times(&self) -> &Times {
        &self.ends.times
    }

    /// Whether there are ends to be taken.
    #[inline]
    #[must_use]
    pub fn has_ends(&self) -> bool {
        self.ends.has_some()
    }

    /// Whether the lock of a key without an item may be in the table: if not, a key that has none
    /// need not be looked for.
    #[must_use]
    pub(in crate::engine) const fn has_lock_without_item(&self) -> bool {
        self.entries_without_item > 0
    }

    /// Every lock, in the order of the keys, also ended ones that are still in the table; of a shared lock the share
    /// that [`Self::in_force`] shows, if there is one.
    pub fn iter(&self) -> impl Iterator<Item = (Key<'_>, Holding)> {
        self.by_key
            .iter()
            .map(|(key, entry)| (as_key(key), self.holding(entry)))
    }

    /// Every key in the table, with the number of grants that a look at it may have to read: one, unless shares may be
    /// over.
    pub(in crate::engine) fn keys(&self) -> impl Iterator<Item = (Key<'_>, usize)> {
        self.by_key.iter().map(|(key, entry)| {
            let looks = match &entry.holders {
                Holders::Shared(group) if self.may_be_over(group) => group.count as usize,
                Holders::Shared(_) | Holders::Alone(_) => 1,
            };
            (as_key(key), looks)
        })
    }

    /// The number of holders of `key`.
    #[must_use]
    pub fn holder_count(&self, key: Key<'_>) -> usize {
        match self.entry(key).map(|entry| &entry.holders) {
            Some(Holders::Shared(group)) if !self.may_be_over(group) => group.count as usize,
            Some(Holders::Shared(_) | Holders::Alone(_)) => self.holders_of(key).count(),
            None => 0,
        }
    }

    /// Every open owner that was announced.
    pub fn open_connections(&self) -> impl Iterator<Item = Owner> {
        let open = self.by_owner.iter().filter(|(_, holder)| holder.is_open);
        open.map(|(owner, _)| *owner)
    }

    /// The number of locks in force; a shared lock counts once for each sharer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len() - self.shares.keys + self.shares.by_fence.len() - self.ended_entries
    }

    /// Whether no lock is in force.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of owners that hold a lock.
    #[must_use]
    pub const fn holders(&self) -> usize {
        self.holders
    }

    /// The bytes that the table takes of the memory limit.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// The bytes that a lock of this key would add to [`Self::table_bytes`].
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        ENTRY_BYTES + LISTED_BYTES + key.as_bytes().len()
    }

    /// The bytes that the first waiter of this key would add besides.
    pub(in crate::engine) fn bytes_for_waited(&self, key: Key<'_>) -> usize {
        match self.by_key.get(key.as_bytes()) {
            Some(entry) if entry.is_waited || matches!(entry.holders, Holders::Shared(_)) => 0,
            Some(_) => WAITED_BYTES + key.as_bytes().len(),
            // Grants are withheld. When the key gets a holder, the bytes of that holder's wait are free.
            None => 0,
        }
    }

    /// The bytes of the items in a shard that locks pin.
    pub(in crate::engine) fn pinned_bytes(&self, shard: Shard) -> usize {
        self.pins.of(shard)
    }

    /// The shard of `key`, which is in the table.
    pub(in crate::engine) fn shard(&self, key: Key<'_>) -> Shard {
        self.entry(key).map_or(0, |entry| entry.shard)
    }

    /// The locks of `owner`, without wins; `None` if it is not open.
    #[must_use]
    pub fn held_by(&self, owner: Owner) -> Option<OwnerUsage> {
        let holder = self.by_owner.get(&owner).filter(|holder| holder.is_open);
        holder.map(|holder| OwnerUsage {
            locks: holder.in_force(),
            bytes: holder.pinned_bytes + holder.table_bytes,
            wins: 0,
        })
    }

    /// The lock of `key`, in force or not.
    pub(in crate::engine) fn get(&self, key: Key<'_>) -> Option<Holding> {
        let entry = self.by_key.get(key.as_bytes())?;
        Some(self.holding(entry))
    }

    pub(super) fn entry(&self, key: Key<'_>) -> Option<&Entry> {
        self.by_key.get(key.as_bytes())
    }

    /// Whether some of the lock of `key` may be over and still in the table.
    pub(in crate::engine) fn has_over_of(&self, key: Key<'_>) -> bool {
        match self.entry(key).map(|entry| &entry.holders) {
            Some(Holders::Alone(grant)) => !self.is_in_force(grant),
            Some(Holders::Shared(group)) => self.may_be_over(group),
            None => false,
        }
    }

    /// Whether `key` is in the table and has no holder.
    pub(in crate::engine) fn is_over(&self, key: Key<'_>) -> bool {
        self.entry(key).is_some() && self.owner(key).is_none()
    }

    /// Whether `key` has an exclusive lock that is over and still in the table.
    pub(in crate::engine) fn is_over_alone(&self, key: Key<'_>) -> bool {
        match self.entry(key).map(|entry| &entry.holders) {
            Some(Holders::Alone(grant)) => !self.is_in_force(grant),
            Some(Holders::Shared(_)) | None => false,
        }
    }

    /// The key, if it is in the table and has no item.
    pub(in crate::engine) fn without_item(&self, key: Key<'_>) -> Option<OwnedKey> {
        let (owned, entry) = self.by_key.get_key_value(key.as_bytes())?;
        (!entry.has_item).then(|| Arc::clone(owned))
    }

    /// Whether `key`, which is in the table, has an item.
    pub(in crate::engine) fn has_item(&self, key: Key<'_>) -> bool {
        self.entry(key).is_some_and(|entry| entry.has_item)
    }

    /// Whether a flush takes effect when the lock of `key` ends, which is in the table.
    pub(in crate::engine) fn is_flush_pending(&self, key: Key<'_>) -> bool {
        let entry = self.entry(key);
        entry.is_some_and(|entry| entry.flushes < self.flushes)
    }

    /// The lock, or the share, of `key` that `owner` has and that is in force.
    #[must_use]
    pub fn held_as(&self, key: Key<'_>, owner: Owner) -> Option<Holding> {
        let entry = self.by_key.get(key.as_bytes())?;
        let holding = match &entry.holders {
            Holders::Alone(grant) if grant.owner == owner => self.holding(entry),
            Holders::Alone(_) => return None,
            Holders::Shared(_) => self.share_of(key, entry, owner)?,
        };
        Some(holding).filter(|holding| !holding.is_over)
    }

    /// The lock, or the share, of `key` with this fence that is in force.
    pub(in crate::engine) fn grant(&self, key: Key<'_>, fence: Fence) -> Option<Holding> {
        let entry = self.by_key.get(key.as_bytes())?;
        let holding = match &entry.holders {
            Holders::Alone(grant) if grant.fence == fence => self.holding(entry),
            Holders::Alone(_) => return None,
            Holders::Shared(_) => self.share_with(key, entry, fence)?,
        };
        Some(holding).filter(|holding| !holding.is_over)
    }

    pub(super) fn is_in_force(&self, grant: &Grant) -> bool {
        !self.has_expired(grant) && self.is_valid(grant)
    }

    /// Whether its owner has not ended, nor released all of its locks, since.
    pub(super) fn is_valid(&self, grant: &Grant) -> bool {
        self.by_owner
            .get(&grant.owner)
            .is_some_and(|holder| holder.has(grant))
    }

    pub(super) fn holding(&self, entry: &Entry) -> Holding {
        match &entry.holders {
            Holders::Alone(grant) => {
                self.holding_of(entry, grant, Mode::Exclusive, entry.is_unacknowledged)
            }
            Holders::Shared(group) => self.holding_of_first(group.id, entry),
        }
    }

    pub(super) fn holding_of(
        &self,
        entry: &Entry,
        grant: &Grant,
        mode: Mode,
        is_unacknowledged: bool,
    ) -> Holding {
        let is_valid = self.is_valid(grant);
        let has_expired = self.has_expired(grant);
        Holding {
            owner: grant.owner,
            mode,
            is_over: has_expired || !is_valid,
            is_expired: has_expired && is_valid,
            flush_pending: entry.flushes < self.flushes,
            fence: grant.fence,
            since: grant.since,
            lease_until: grant.lease_until,
            scope: entry.scope,
            has_item: entry.has_item,
            is_waited: entry.is_waited,
            is_unacknowledged,
        }
    }
}
