//! What always holds of the table of locks, asserted.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use super::shares::SHARE_BYTES;
use super::{
    ENTRY_BYTES, Entry, Hold, LISTED_BYTES, LockTable, OwnedKey, Tenure, WAITED_BYTES, as_key,
};
use crate::conn_id::ConnId;
use crate::key::Key;

impl LockTable {
    /// L1, L2, L4, L9, L10, L13 and L14. `pinned` is what the item of a key takes of the memory limit.
    pub(in crate::engine) fn check(&self, pinned: impl Fn(Key<'_>) -> usize) {
        let mut over = (0, 0);
        let mut table_bytes = 0;
        self.check_shares();
        for (key, entry, tenure) in self.tenures() {
            if self.is_of_term(tenure) {
                let held = &self.by_conn[&tenure.owner].keys;
                assert!(
                    held.contains(key),
                    "L2: an owner that does not know what it holds"
                );
            } else {
                let pinned = match entry.hold {
                    Hold::Alone(_) => pinned(as_key(key)),
                    Hold::Shared => 0,
                };
                over = (over.0 + 1, over.1 + pinned);
                assert!(
                    self.ended.iter().any(|keys| keys.contains(key)),
                    "L9: a lock that is over and not in line"
                );
            }
        }
        for (leases, is_waited) in [(&self.leases, false), (&self.waited_leases, true)] {
            let leased = self.tenures();
            let leased = leased.filter(|(_, entry, _)| entry.is_waited == is_waited);
            let leased = leased.filter_map(|(key, _, tenure)| {
                let until = tenure.lease_until?;
                Some((until, Arc::clone(key), tenure.owner))
            });
            let leased: BTreeSet<_> = leased.collect();
            assert_eq!(*leases, leased, "L13 and L14: leases");
        }
        assert_eq!(self.lease_next, self.first_lease(), "L13: the first");
        for (key, entry, tenure) in self.tenures() {
            let first = if self.is_of_term(tenure) {
                self.by_conn[&tenure.owner].waited.contains(key)
            } else {
                self.handovers.iter().any(|keys| keys.contains(key))
            };
            assert!(
                first || !entry.is_waited,
                "L14: somebody waits for it, and it does not come first"
            );
        }
        table_bytes += self.by_key.len() * ENTRY_BYTES + self.share_entries * SHARE_BYTES;
        let bare = self.by_key.values().filter(|entry| !entry.has_item);
        assert_eq!(
            self.bare_entries,
            bare.count(),
            "L10: locks without an item"
        );
        assert_eq!(self.ended_entries, over.0, "L10: locks that are over");
        assert_eq!(self.ends.locks_left(), over.0, "L10: what is left of terms");
        assert_eq!(self.ended_pinned_bytes, over.1, "L10: what they pin");
        let mut holders = 0;
        for (conn, holder) in &self.by_conn {
            let (mut bytes, mut shared_bytes, mut own_bytes) = (0, 0, 0);
            for key in &holder.keys {
                let (is_shared, term) = self.known_of(key, *conn);
                assert_eq!(term, Some(holder.term), "L2: a holding without its lock");
                bytes += pinned(as_key(key));
                table_bytes += LISTED_BYTES + key.len();
                if is_shared {
                    shared_bytes += pinned(as_key(key));
                    own_bytes += Self::bytes_for_share(as_key(key));
                } else {
                    own_bytes += Self::bytes_for(as_key(key));
                }
            }
            assert_eq!(holder.pinned_bytes, bytes, "L10: what {conn} pins");
            assert_eq!(
                holder.shared_pinned_bytes, shared_bytes,
                "L10: what {conn} pins with others"
            );
            assert_eq!(
                holder.table_bytes, own_bytes,
                "L10: what {conn}'s locks take"
            );
            for key in &holder.waited {
                let is_waited = self.by_key.get(key).is_some_and(|entry| entry.is_waited);
                let (_, term) = self.known_of(key, *conn);
                assert!(
                    is_waited && term == Some(holder.term),
                    "L14: waited for, and not held"
                );
                table_bytes += WAITED_BYTES + key.len();
            }
            holders += usize::from(!holder.keys.is_empty());
        }
        assert_eq!(self.holders, holders, "L10: holders");
        for keys in &self.ended {
            assert!(!keys.is_empty(), "L9: nothing stands in line");
            table_bytes += keys
                .iter()
                .map(|key| LISTED_BYTES + key.len())
                .sum::<usize>();
        }
        for keys in &self.handovers {
            assert!(!keys.is_empty(), "L14: nothing stands in line");
            table_bytes += keys
                .iter()
                .map(|key| WAITED_BYTES + key.len())
                .sum::<usize>();
        }
        assert!(
            self.handovers.len() <= self.ended.len(),
            "L14: a line that is longer than that of all"
        );
        assert_eq!(self.table_bytes, table_bytes, "L10: the table's own bytes");
    }

    /// Every grant in the table.
    fn tenures(&self) -> impl Iterator<Item = (&OwnedKey, &Entry, &Tenure)> {
        self.by_key.iter().flat_map(|(key, entry)| {
            let (alone, shares) = match &entry.hold {
                Hold::Alone(tenure) => (Some(tenure), [].as_slice()),
                Hold::Shared => (None, self.shares[key].as_slice()),
            };
            let shares = shares.iter().map(|share| &share.tenure);
            let tenures = alone.into_iter().chain(shares);
            tenures.map(move |tenure| (key, entry, tenure))
        })
    }

    /// Whether a key is shared, and of which term the hold is that a connection has of it.
    fn known_of(&self, key: &OwnedKey, conn: ConnId) -> (bool, Option<u64>) {
        let tenure = match self.by_key.get(key).map(|entry| &entry.hold) {
            Some(Hold::Alone(tenure)) => Some(tenure).filter(|it| it.owner == conn),
            Some(Hold::Shared) => {
                let mut shares = self.shares[key].iter().map(|share| &share.tenure);
                shares.find(|it| it.owner == conn)
            }
            None => None,
        };
        let is_shared = self.shares.contains_key(key);
        (is_shared, tenure.map(|it| it.term))
    }

    /// L1, and L10 of shares.
    fn check_shares(&self) {
        let mut share_entries = 0;
        for (key, shares) in &self.shares {
            let entry = self.by_key.get(key).map(|entry| entry.hold);
            assert_eq!(entry, Some(Hold::Shared), "L1: one alone, and others");
            assert!(!shares.is_empty(), "L1: shared by nobody");
            assert!(
                shares.is_sorted_by_key(|share| share.tenure.fence),
                "L12: fences of shares"
            );
            let owners: BTreeSet<_> = shares.iter().map(|share| share.tenure.owner).collect();
            assert_eq!(owners.len(), shares.len(), "L1: two shares of one");
            let in_force = self.holders_of(as_key(key));
            let (count, among) = in_force.fold((0, u32::MAX), |(count, least), (_, among)| {
                (count + 1, least.min(among))
            });
            assert!(count <= among, "L1: {count} share what is for {among}");
            share_entries += shares.len();
        }
        let shared = self.by_key.values().filter(|it| it.hold == Hold::Shared);
        assert_eq!(shared.count(), self.shares.len(), "L1: shared by nobody");
        assert_eq!(self.share_entries, share_entries, "L10: shares");
    }
}
