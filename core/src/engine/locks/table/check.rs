//! The check of the table of locks.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

use super::pins::Pins;
use super::shares::SHARE_BYTES;
use super::{ENTRY_BYTES, Entry, Grant, Holders, LISTED_BYTES, LockTable, WAITED_BYTES};
use crate::engine::owned_key::{OwnedKey, as_key};

impl LockTable {
    /// L1, L2, L4, L9, L10, L13, L14, L16 and L19. `pinned` returns the bytes of the item of a key.
    pub(in crate::engine) fn check(&self, pinned: impl Fn(Key<'_>) -> usize) {
        let mut over = 0;
        let mut table_bytes = 0;
        self.check_shares();
        let mut of_metadata = BTreeMap::new();
        let mut with_metadata = 0;
        for (key, entry, grant) in self.grants() {
            let bytes = self.metadata_bytes(grant.fence);
            with_metadata += usize::from(bytes > 0);
            table_bytes += bytes;
            let holder = &self.by_owner[&grant.owner];
            let (listed, waited) = match entry.holders {
                Holders::Alone(_) => (&holder.keys, entry.is_waited),
                Holders::Shared(_) => (&holder.shared, false),
            };
            let knows = listed.get(&grant.fence) == Some(key);
            assert!(knows, "L2: an owner that does not know what it holds");
            let is_waited = holder.waited.get(&grant.fence) == Some(key);
            assert_eq!(is_waited, waited, "L14: the keys with waiters");
            over += usize::from(!holder.has(grant));
            if holder.has(grant) {
                *of_metadata.entry(grant.owner).or_insert(0) += bytes;
            }
        }
        assert_eq!(self.metadata.len(), with_metadata, "L19: of no grant");
        for (leases, is_waited) in [(&self.leases, false), (&self.waited_leases, true)] {
            let keys = self.by_key.iter();
            let keys = keys.filter(|(_, entry)| entry.is_waited == is_waited);
            let leased = keys.filter_map(|(key, entry)| {
                let until = self.leases_of(entry).map(|(until, _)| until).min()?;
                Some((until, Arc::clone(key)))
            });
            let leased: BTreeSet<_> = leased.collect();
            assert_eq!(*leases, leased, "L13 and L14: leases");
        }
        assert_eq!(self.lease_next, self.first_lease(), "L13: the first");
        table_bytes += self.by_key.len() * ENTRY_BYTES + self.shares.by_fence.len() * SHARE_BYTES;
        let without_item = self.by_key.values().filter(|entry| !entry.has_item);
        assert_eq!(
            self.entries_without_item,
            without_item.count(),
            "L10: locks without an item"
        );
        assert_eq!(self.ended_entries, over, "L10: locks that are over");
        let mut holders = 0;
        let mut listed = BTreeSet::new();
        for (owner, holder) in &self.by_owner {
            let (mut bytes, mut pins) = (0, Pins::default());
            let mut own_bytes = of_metadata.get(owner).copied().unwrap_or(0);
            for (fence, key) in holder.keys.iter().chain(&holder.shared) {
                let entry = &self.by_key[key];
                let mut grants = self.all_grants_of(entry);
                let is_held = grants.any(|it| (it.owner, it.fence) == (*owner, *fence));
                assert!(is_held, "L2: a holding without its lock");
                table_bytes += LISTED_BYTES + key.len();
                if *fence < holder.valid_from {
                    continue;
                }
                bytes += pinned(as_key(key));
                if let Holders::Shared(_) = entry.holders {
                    own_bytes += Self::bytes_for_share(as_key(key));
                } else {
                    pins.add(self.shard(as_key(key)), pinned(as_key(key)));
                    own_bytes += Self::bytes_for(as_key(key));
                }
            }
            assert_eq!(holder.pinned_bytes, bytes, "L10: what {owner} pins");
            assert_eq!(holder.pins, pins, "L10: what {owner} pins alone");
            assert_eq!(
                holder.table_bytes, own_bytes,
                "L10: what {owner}'s locks take"
            );
            table_bytes += holder
                .waited
                .values()
                .map(|key| WAITED_BYTES + key.len())
                .sum::<usize>();
            holders += usize::from(holder.in_force() > 0);
            listed.extend(holder.place_over(*owner));
            assert!(
                holder.is_open || holder.over > 0,
                "L4: {owner} has ended, and has nothing left"
            );
        }
        assert_eq!(self.over, listed, "L9: the owners of ended locks");
        assert_eq!(self.holders, holders, "L10: holders");
        assert_eq!(self.table_bytes, table_bytes, "L10: the table's own bytes");
        let mut pins = Pins::default();
        for (key, entry) in &self.by_key {
            let is_over = matches!(entry.holders, Holders::Alone(grant) if !self.is_valid(&grant));
            pins.add(entry.shard, if is_over { 0 } else { pinned(as_key(key)) });
        }
        assert_eq!(self.pins, pins, "L10: bytes of items");
    }

    /// How many shares are in the table.
    #[cfg(test)]
    pub(in crate::engine) fn share_entries(&self) -> usize {
        self.shares.by_fence.len()
    }

    /// Every grant in the table.
    fn grants(&self) -> impl Iterator<Item = (&OwnedKey, &Entry, &Grant)> {
        self.by_key.iter().flat_map(|(key, entry)| {
            self.all_grants_of(entry)
                .map(move |grant| (key, entry, grant))
        })
    }

    fn all_grants_of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = &'a Grant> {
        let (alone, group) = match &entry.holders {
            Holders::Alone(grant) => (Some(grant), None),
            Holders::Shared(group) => (None, Some(group.id)),
        };
        let shares = group.into_iter().flat_map(|group| self.shares.of(group));
        alone.into_iter().chain(shares.map(|share| &share.grant))
    }

    /// The leases of a lock, with their fences.
    fn leases_of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = (Instant, Fence)> + 'a {
        let grants = self.all_grants_of(entry);
        grants.filter_map(|grant| Some((grant.lease_until?, grant.fence)))
    }

    /// L1, L16, and L10 of shares.
    fn check_shares(&self) {
        let (mut keys, mut waited_keys, mut count) = (0, 0, 0);
        let (mut leases, mut amongs) = (BTreeSet::new(), BTreeMap::new());
        for (key, entry) in &self.by_key {
            let Holders::Shared(group) = entry.holders else {
                continue;
            };
            keys += 1;
            waited_keys += usize::from(entry.is_waited);
            count += group.count as usize;
            let shares: Vec<_> = self.shares.of(group.id).collect();
            assert_eq!(shares.len(), group.count as usize, "L16: shares of a group");
            assert!(!shares.is_empty(), "L1: shared by nobody");
            for (until, fence) in self.leases_of(entry) {
                leases.insert((group.id, until, fence));
            }
            for share in &shares {
                let place = (group.id, share.mode().max_sharers());
                *amongs.entry(place).or_insert(0_u32) += 1;
            }
            let in_force: Vec<_> = self.holders_of(as_key(key)).collect();
            let owners: BTreeSet<_> = in_force.iter().map(|(owner, _)| owner).collect();
            assert_eq!(owners.len(), in_force.len(), "L1: two shares of one");
            let max_sharers = in_force
                .iter()
                .map(|(_, max_sharers)| *max_sharers as usize)
                .min();
            assert!(
                in_force.len() <= max_sharers.unwrap_or(usize::MAX),
                "L1: {} share what is for {max_sharers:?}",
                in_force.len()
            );
        }
        let counts = (keys, waited_keys, count);
        let shares = &self.shares;
        assert_eq!(
            (shares.keys, shares.waited_keys, shares.by_fence.len()),
            counts,
            "L10 and L16: shares"
        );
        assert_eq!(shares.leases, leases, "L16: leases of shares");
        assert_eq!(shares.amongs, amongs, "L16: numbers of sharers");
        assert_eq!(shares.by_owner.len(), count, "L16: shares by owner");
        for ((group, fence), share) in &shares.by_fence {
            assert_eq!(*fence, share.grant.fence, "L16: a fence of another share");
            let of_owner = shares.by_owner.get(&(*group, share.grant.owner));
            assert_eq!(of_owner, Some(fence), "L16: a share of another owner");
        }
    }
}
