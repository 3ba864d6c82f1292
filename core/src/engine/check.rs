//! The check of a core: the invariants that one state shows, over the store and all tables.

use super::Core;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// Asserts every invariant that can be seen in one state. Looks at every item: for tests, the
    /// model, and fuzzing.
    pub fn check(&self) {
        self.store.check();
        self.locks.table.check(|key| {
            self.store
                .find(key)
                .map_or(0, |slot| self.store.item_bytes(slot))
        });
        let mut locked_bytes = 0;
        for (key, holding) in self.locks.table.iter() {
            let found = self.store.find(key).ok();
            assert_eq!(
                holding.has_item,
                found.is_some(),
                "L3: a lock that knows nothing of its item"
            );
            let Some(slot) = found else {
                continue;
            };
            assert!(
                self.store.header(slot).locked,
                "L3: a lock that its item does not know of"
            );
            locked_bytes += self.store.item_bytes(slot);
        }
        // With the loop above, equal sums mean that no item is marked locked without an owner.
        assert_eq!(
            self.store.usage().locked_bytes,
            locked_bytes,
            "L3: an item locked by nobody"
        );
        assert!(
            self.locks.pinned_bytes() <= self.limits.locked_bytes_max,
            "L11: locks pin too much"
        );
        assert!(
            self.lock_memory_bytes() + self.tables_elsewhere <= self.limits.lock_table_bytes_max,
            "L11: the table of locks is too large"
        );
        for owner in self.locks.table.open_connections() {
            assert!(
                self.locks.table.held_here(owner).bytes
                    <= self.limits.lock_bytes_per_connection_max,
                "L11: {owner} has more than its share"
            );
        }
        self.locks.check_waits(self.clock.now, &self.limits);
        assert!(
            self.locks.queue.places() + self.notices.singles() <= self.limits.waits_max,
            "Q10: too many notices"
        );
        self.check_wins();
        let shares = self.locks.table.shared().flat_map(|(_, shares)| shares);
        for holding in self
            .locks
            .table
            .iter()
            .map(|(_, holding)| holding)
            .chain(shares)
        {
            let has_passed = holding.lease_until.is_some_and(|at| at <= self.clock.now);
            assert!(
                holding.is_over || !has_passed,
                "L13: a lock whose lease has passed"
            );
            assert!(
                holding.fence < self.locks.next_fence,
                "L12: a fence that is still to be given"
            );
        }
    }
}
