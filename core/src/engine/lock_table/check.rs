//! What always holds of the table of locks, asserted.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use super::{ENTRY_BYTES, LISTED_BYTES, LockTable, WAITED_BYTES, as_key};
use crate::key::Key;

impl LockTable {
    /// L1, L2, L4, L9, L10, L13 and L14. `pinned` is what the item of a key takes of the memory limit.
    pub(in crate::engine) fn check(&self, pinned: impl Fn(Key<'_>) -> usize) {
        let mut over = (0, 0);
        let mut table_bytes = 0;
        for (key, entry) in &self.by_key {
            table_bytes += ENTRY_BYTES;
            if self.is_of_term(entry) {
                let held = &self.by_conn[&entry.owner].keys;
                assert!(
                    held.contains(key),
                    "L2: an owner that does not know what it holds"
                );
            } else {
                over = (over.0 + 1, over.1 + pinned(as_key(key)));
                assert!(
                    self.ended.iter().any(|keys| keys.contains(key)),
                    "L9: a lock that is over and not in line"
                );
            }
        }
        for (leases, is_waited) in [(&self.leases, false), (&self.waited_leases, true)] {
            let leased = self.by_key.iter();
            let leased = leased.filter(|(_, entry)| entry.is_waited == is_waited);
            let leased = leased
                .filter_map(|(key, entry)| entry.lease_until.map(|until| (until, Arc::clone(key))));
            let leased: BTreeSet<_> = leased.collect();
            assert_eq!(*leases, leased, "L13 and L14: leases");
        }
        assert_eq!(self.lease_next, self.first_lease(), "L13: the first");
        for (key, entry) in &self.by_key {
            let first = if self.is_of_term(entry) {
                self.by_conn[&entry.owner].waited.contains(key)
            } else {
                self.handovers.iter().any(|keys| keys.contains(key))
            };
            assert!(
                first || !entry.is_waited,
                "L14: somebody waits for it, and it does not come first"
            );
        }
        let bare = self.by_key.values().filter(|entry| !entry.has_item);
        assert_eq!(
            self.bare_entries,
            bare.count(),
            "L10: locks without an item"
        );
        assert_eq!(self.ended_entries, over.0, "L10: locks that are over");
        assert_eq!(self.ended_pinned_bytes, over.1, "L10: what they pin");
        let mut holders = 0;
        for (conn, holder) in &self.by_conn {
            let (mut bytes, mut own_bytes) = (0, 0);
            for key in &holder.keys {
                let entry = self.by_key.get(key);
                assert_eq!(
                    entry.map(|entry| (entry.owner, entry.term)),
                    Some((*conn, holder.term)),
                    "L2: a holding without its lock"
                );
                bytes += pinned(as_key(key));
                table_bytes += LISTED_BYTES + key.len();
                own_bytes += Self::bytes_for(as_key(key));
            }
            assert_eq!(holder.pinned_bytes, bytes, "L10: what {conn} pins");
            assert_eq!(
                holder.table_bytes, own_bytes,
                "L10: what {conn}'s locks take"
            );
            for key in &holder.waited {
                let entry = self.by_key.get(key).filter(|entry| entry.is_waited);
                assert_eq!(
                    entry.map(|entry| (entry.owner, entry.term)),
                    Some((*conn, holder.term)),
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
}
