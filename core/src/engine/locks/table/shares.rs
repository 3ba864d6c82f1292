//! The shares of keys that several owners hold.
//!
//! A share is a grant like any other: it has a fence and a lease of its own. Its owner pays for it as for a
//! lock, with the item that it pins. The item of a shared key does not change, so its size is the same until the last
//! share is removed.
//!
//! The shares of all keys are in one set of trees, by the number of their [`Group`]. So a change of one share takes a
//! number of steps that grows with the logarithm of their number.
//!
//! - L1: A key has no more sharers than each of them has asked for.
//! - L9: A share that is over has no holder. A command about the key removes such shares first
//!   ([`LockTable::over_shares`]), so all shares that it counts are in force.
//! - L16: A share is in the tables under its group and fence. The counts of its group, and the list of its owner, agree with
//!   that.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use latchd_protocol::Owner;
use latchd_protocol::command::Mode;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use super::{ENTRY_BYTES, Entry, Grant, Holders, Holding, LISTED_BYTES, LockTable, NewGrant};
use crate::engine::owned_key::{OwnedKey, as_key};

/// The bytes of a share besides a lock, in trees with nodes that are at least 5/11 full. The share takes 159 (72 a
/// place), its lease 53 (24), its number of sharers 44 (20), and its place by owner 53 (24). The nodes' own fields and the
/// nodes above take the rest.
pub(super) const SHARE_BYTES: usize = 372;

/// The shares of all keys.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Shares {
    /// Each share, those of one key in the order of the grants; those included that are over.
    pub(super) by_fence: BTreeMap<(Fence, Fence), Share>,
    /// The leases of shares, those of one key by the moments at which they end.
    pub(super) leases: BTreeSet<(Fence, Instant, Fence)>,
    /// How many shares of a key were asked for among how many.
    pub(super) amongs: BTreeMap<(Fence, u32), u32>,
    /// How many keys are shared.
    pub(super) keys: usize,
    /// How many of these are waited for.
    pub(super) waited_keys: usize,
    /// The fence of each owner's share of a key.
    pub(super) by_owner: BTreeMap<(Fence, Owner), Fence>,
}

/// The shares of one key, as its entry knows them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Group {
    /// Its number: the fence of its first share.
    pub(super) id: Fence,
    /// How many shares it has, those included that are over.
    pub(super) count: u32,
}

/// One owner's part in the lock of a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Share {
    pub(super) grant: Grant,
    /// Among how many.
    pub(super) max_sharers: Option<NonZeroU32>,
    /// Its owner has waited for it, and does not know yet.
    pub(super) is_unacknowledged: bool,
}

impl Share {
    pub(super) const fn mode(&self) -> Mode {
        Mode::Shared {
            max_sharers: self.max_sharers,
        }
    }
}

impl Shares {
    /// The shares of a group, in the order of the grants.
    pub(super) fn of(&self, group: Fence) -> impl DoubleEndedIterator<Item = &Share> {
        let shares = self
            .by_fence
            .range((group, Fence::FIRST)..=(group, Fence::LAST));
        shares.map(|(_, share)| share)
    }

    /// The least number of sharers that one of a group has asked for.
    fn least_among(&self, group: Fence) -> u32 {
        let mut amongs = self.amongs.range((group, 0)..=(group, u32::MAX));
        amongs
            .next()
            .map_or(u32::MAX, |((_, max_sharers), _)| *max_sharers)
    }

    /// The first lease of a group to expire, with its fence.
    pub(super) fn first_lease(&self, group: Fence) -> Option<(Instant, Fence)> {
        let leases = (group, Instant::default(), Fence::FIRST)..;
        let (of, until, fence) = self.leases.range(leases).next()?;
        (*of == group).then_some((*until, *fence))
    }

    fn put(&mut self, group: Fence, share: Share) {
        *self
            .amongs
            .entry((group, share.mode().max_sharers()))
            .or_default() += 1;
        let Grant { owner, fence, .. } = share.grant;
        self.by_owner.insert((group, owner), fence);
        self.by_fence.insert((group, fence), share);
    }

    /// Takes out a share that has no lease.
    fn take(&mut self, group: Fence, fence: Fence) -> Option<Share> {
        let share = self.by_fence.remove(&(group, fence))?;
        self.by_owner.remove(&(group, share.grant.owner));
        let place = (group, share.mode().max_sharers());
        if let Some(count) = self.amongs.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.amongs.remove(&place);
            }
        }
        Some(share)
    }
}

impl LockTable {
    /// The bytes that a share of this key takes of its owner's share of memory. [`Self::table_bytes`] grows by as much
    /// or less.
    #[must_use]
    pub const fn bytes_for_share(key: Key<'_>) -> usize {
        Self::bytes_for(key) + SHARE_BYTES
    }

    /// The bytes that a lock of this key takes of its owner's share of memory, in this mode.
    pub(in crate::engine) const fn bytes_in(mode: Mode, key: Key<'_>) -> usize {
        match mode {
            Mode::Exclusive => Self::bytes_for(key),
            Mode::Shared { .. } => Self::bytes_for_share(key),
        }
    }

    /// The holders of `key`, in the order of the grants, each with its bound of sharers: 1 for an exclusive lock.
    pub fn holders_of(&self, key: Key<'_>) -> impl Iterator<Item = (Owner, u32)> {
        self.grants_of(key).flatten()
    }

    /// The same, with `None` for each grant that is over and still in the table: each entry is one that was read.
    pub fn grants_of(&self, key: Key<'_>) -> impl Iterator<Item = Option<(Owner, u32)>> {
        let hold = self.by_key.get(key.as_bytes()).map(|entry| &entry.holders);
        let (alone, group) = match hold {
            Some(Holders::Alone(grant)) => (Some((grant, 1)), None),
            Some(Holders::Shared(group)) => (None, Some(group.id)),
            None => (None, None),
        };
        let shares = group.into_iter().flat_map(|group| self.shares.of(group));
        let shares = shares.map(|share| (&share.grant, share.mode().max_sharers()));
        let all = alone.into_iter().chain(shares);
        all.map(|(grant, max_sharers)| {
            self.is_in_force(grant)
                .then_some((grant.owner, max_sharers))
        })
    }

    /// Whether the lock of `key` can be had in this mode, by an owner without a part in it.
    pub(in crate::engine) fn has_room(&self, key: Key<'_>, mode: Mode) -> bool {
        match self.by_key.get(key.as_bytes()).map(|entry| &entry.holders) {
            None => true,
            Some(Holders::Alone(_)) => false,
            Some(Holders::Shared(group)) => {
                let max_sharers = self.shares.least_among(group.id).min(mode.max_sharers());
                mode.is_shared() && group.count < max_sharers
            }
        }
    }

    /// How many shares of `key` are in the table.
    pub(in crate::engine) fn share_count(&self, key: Key<'_>) -> u32 {
        self.group(key).map_or(0, |group| group.count)
    }

    fn group(&self, key: Key<'_>) -> Option<&Group> {
        if self.shares.keys == 0 {
            return None;
        }
        match &self.by_key.get(key.as_bytes())?.holders {
            Holders::Alone(_) => None,
            Holders::Shared(group) => Some(group),
        }
    }

    fn share(&self, key: Key<'_>, fence: Fence) -> Option<&Share> {
        let group = self.group(key)?;
        self.shares.by_fence.get(&(group.id, fence))
    }

    /// Whether `fence` is that of a share of `key` that is over, and still in the table.
    pub(in crate::engine) fn is_share_that_is_over(&self, key: Key<'_>, fence: Fence) -> bool {
        let share = self.share(key, fence);
        share.is_some_and(|share| !self.is_in_force(&share.grant))
    }

    /// The shares of `key` that are over and still in the table, each at least once; the caller removes them. Also returns the
    /// number of shares or owners that it read: no more than the key has shares.
    pub(in crate::engine) fn over_shares(&self, key: Key<'_>) -> (Vec<Fence>, usize) {
        let Some(Group { id, count }) = self.group(key).copied() else {
            return (Vec::new(), 0);
        };
        let passed = (id, Instant::default(), Fence::FIRST)..=(id, self.leases_passed, Fence::LAST);
        let expired = self.shares.leases.range(passed);
        let mut over: Vec<Fence> = expired.map(|(_, _, fence)| *fence).collect();
        let looks = self.over.len().min(count as usize);
        if looks < self.over.len() {
            let shares = self.shares.of(id);
            let ended = shares.filter(|share| !self.is_valid(&share.grant));
            over.extend(ended.map(|share| share.grant.fence));
        } else {
            for (_, _, owner) in &self.over {
                let fence = self.shares.by_owner.get(&(id, *owner));
                let holder = &self.by_owner[owner];
                over.extend(fence.filter(|fence| **fence < holder.valid_from));
            }
        }
        (over, looks)
    }

    /// Whether shares of a key may be over and still in the table, as far as a few looks tell.
    pub(super) fn may_be_over(&self, group: &Group) -> bool {
        let first = self.shares.first_lease(group.id);
        self.has_ended() || first.is_some_and(|(until, _)| until <= self.leases_passed)
    }

    fn holders_mut(&mut self, key: Key<'_>) -> Option<&mut Holders> {
        let entry = self.by_key.get_mut(key.as_bytes())?;
        Some(&mut entry.holders)
    }

    /// Gives a share of `key` to an open owner that has none. The lock is not in the table, or it is shared. The item,
    /// if there is one, takes `pinned_bytes` of the memory limit.
    pub(in crate::engine) fn acquire_share(
        &mut self,
        key: Key<'_>,
        new: NewGrant,
        max_sharers: Option<NonZeroU32>,
        pinned_bytes: Option<usize>,
    ) {
        let (owned, group) = self.shared_entry(key, &new, pinned_bytes);
        let holder = self.enter(new.owner);
        holder.shared.insert(new.fence, owned);
        holder.pinned_bytes += pinned_bytes.unwrap_or(0);
        holder.table_bytes += Self::bytes_for_share(key);
        let grant = Grant {
            owner: new.owner,
            fence: new.fence,
            since: new.now,
            lease_until: None,
        };
        let share = Share {
            grant,
            max_sharers,
            is_unacknowledged: false,
        };
        self.shares.put(group, share);
        self.table_bytes += SHARE_BYTES + LISTED_BYTES + key.as_bytes().len();
        self.set_lease(key, new.owner, new.lease_until);
    }

    /// The key of a lock that is shared, with one share more, and its group; the lock is entered if it is not there.
    fn shared_entry(
        &mut self,
        key: Key<'_>,
        grant: &NewGrant,
        pinned_bytes: Option<usize>,
    ) -> (OwnedKey, Fence) {
        let has_item = pinned_bytes.is_some();
        if let Some(Holders::Shared(group)) = self.holders_mut(key) {
            group.count += 1;
            let id = group.id;
            let known = self.by_key.get_key_value(key.as_bytes());
            let (owned, _) = known.expect("it was there a moment ago");
            return (Arc::clone(owned), id);
        }
        let owned: OwnedKey = Arc::from(key.as_bytes());
        let group = Group {
            id: grant.fence,
            count: 1,
        };
        let entry = Entry {
            holders: Holders::Shared(group),
            flushes: self.flushes,
            scope: grant.scope,
            shard: grant.shard,
            has_item,
            is_waited: false,
            is_unacknowledged: false,
        };
        self.by_key.insert(Arc::clone(&owned), entry);
        self.shares.keys += 1;
        self.entries_without_item += usize::from(!has_item);
        self.pins.add(grant.shard, pinned_bytes.unwrap_or(0));
        self.table_bytes += ENTRY_BYTES;
        (owned, grant.fence)
    }

    /// Removes the share of `key` with this fence; its item takes `pinned_bytes` of the memory limit. Returns the
    /// share; `None` if there was none.
    pub(in crate::engine) fn release_share(
        &mut self,
        key: Key<'_>,
        fence: Fence,
        pinned_bytes: usize,
    ) -> Option<Holding> {
        let (owned, entry) = self.by_key.get_key_value(key.as_bytes())?;
        let (owned, entry) = (Arc::clone(owned), *entry);
        let Holders::Shared(group) = entry.holders else {
            return None;
        };
        let share = *self.shares.by_fence.get(&(group.id, fence))?;
        let holding = self.holding_of(&entry, &share.grant, share.mode(), share.is_unacknowledged);
        self.set_lease_of_share(&owned, group.id, fence, None);
        self.shares.take(group.id, fence);
        let (metadata, metadata_bytes) = self.take_metadata(fence);
        self.note_end(&owned, &share.grant, &holding, metadata);
        self.table_bytes -= SHARE_BYTES;
        if let Some(holder) = self.leave(key, &share.grant) {
            holder.pinned_bytes -= pinned_bytes;
            holder.table_bytes -= Self::bytes_for_share(key) + metadata_bytes;
        }
        if group.count > 1 {
            if let Some(Holders::Shared(group)) = self.holders_mut(key) {
                group.count -= 1;
            }
        } else {
            self.by_key.remove(&owned);
            self.shares.keys -= 1;
            self.shares.waited_keys -= usize::from(entry.is_waited);
            self.table_bytes -= ENTRY_BYTES;
            self.entries_without_item -= usize::from(!entry.has_item);
            self.pins.remove(entry.shard, pinned_bytes);
        }
        Some(holding)
    }

    /// The fence of the share of `key` that `owner` has not given back. Its lease may have passed.
    pub(super) fn fence_of_share(&self, key: Key<'_>, owner: Owner) -> Option<Fence> {
        let group = self.group(key)?;
        self.shares.by_owner.get(&(group.id, owner)).copied()
    }

    /// The share of `key`, which is shared, that `owner` has not given back.
    pub(super) fn share_of(&self, key: Key<'_>, entry: &Entry, owner: Owner) -> Option<Holding> {
        let fence = self.fence_of_share(key, owner)?;
        self.share_with(key, entry, fence)
    }

    /// The share of `key`, which is shared, with this fence.
    pub(super) fn share_with(&self, key: Key<'_>, entry: &Entry, fence: Fence) -> Option<Holding> {
        let share = self.share(key, fence)?;
        Some(self.holding_of(entry, &share.grant, share.mode(), share.is_unacknowledged))
    }

    /// The first share in force of a key that is shared; if there is none, the first.
    pub(super) fn holding_of_first(&self, group: Fence, entry: &Entry) -> Holding {
        let mut in_force = self.shares.of(group);
        let first = in_force.find(|share| self.is_in_force(&share.grant));
        let share = first.or_else(|| self.shares.of(group).next());
        let share = share.expect("L1: never none");
        self.holding_of(entry, &share.grant, share.mode(), share.is_unacknowledged)
    }

    pub(super) fn first_sharer(&self, group: Fence) -> Option<Owner> {
        let mut shares = self.shares.of(group);
        let first = shares.find(|share| self.is_in_force(&share.grant))?;
        Some(first.grant.owner)
    }

    pub(super) fn set_share_unacknowledged(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        is_unacknowledged: bool,
    ) {
        if let Some(fence) = self.fence_of_share(key, owner)
            && let Some(group) = self.group(key)
            && let Some(share) = self.shares.by_fence.get_mut(&(group.id, fence))
        {
            share.is_unacknowledged = is_unacknowledged;
        }
    }

    /// Every key that is shared, with its shares in the order of the grants, those that are over included.
    pub fn shared(&self) -> impl Iterator<Item = (Key<'_>, Vec<Holding>)> {
        self.by_key.iter().filter_map(|(key, entry)| {
            let Holders::Shared(group) = &entry.holders else {
                return None;
            };
            let shares = self.shares.of(group.id);
            let shares = shares.map(|share| {
                self.holding_of(entry, &share.grant, share.mode(), share.is_unacknowledged)
            });
            Some((as_key(key), shares.collect()))
        })
    }
}
