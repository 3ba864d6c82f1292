//! The check of a core: the invariants that one state shows, over the store and all tables.

use latchd_protocol::item::WinMark;

use super::Core;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// Asserts every invariant that can be seen in one state. Looks at every item: for tests, the
    /// model, and fuzzing.
    pub fn check(&self) {
        self.items.store.check();
        self.manager.locks.table.check(|key| {
            self.items
                .store
                .find(key)
                .map_or(0, |slot| self.items.store.item_bytes(slot))
        });
        let mut locked_bytes = 0;
        for (key, holding) in self.manager.locks.table.iter() {
            let found = self.items.store.find(key).ok();
            assert_eq!(
                holding.has_item,
                found.is_some(),
                "L3: a lock that knows nothing of its item"
            );
            let Some(slot) = found else {
                continue;
            };
            assert!(
                self.items.store.header(slot).locked,
                "L3: a lock that its item does not know of"
            );
            locked_bytes += self.items.store.item_bytes(slot);
        }
        // With the loop above, equal sums mean that no item is marked locked without an owner.
        assert_eq!(
            self.items.store.usage().locked_bytes,
            locked_bytes,
            "L3: an item locked by nobody"
        );
        assert!(
            self.manager.locks.pinned_bytes() <= self.items.limits.locked_bytes_max,
            "L11: locks pin too much"
        );
        assert!(
            self.manager.all_table_bytes() <= self.items.limits.lock_table_bytes_max,
            "L11: the table of locks is too large"
        );
        for owner in self.manager.locks.table.open_connections() {
            assert!(
                self.manager.locks.table.held_here(owner).bytes
                    <= self.items.limits.lock_bytes_per_connection_max,
                "L11: {owner} has more than its share"
            );
        }
        self.manager
            .locks
            .check_waits(self.items.clock.now, &self.items.limits);
        assert!(
            self.manager.locks.queue.places() + self.manager.notices.singles()
                <= self.items.limits.waits_max,
            "Q10: too many notices"
        );
        self.check_wins();
        let shares = self
            .manager
            .locks
            .table
            .shared()
            .flat_map(|(_, shares)| shares);
        for holding in self
            .manager
            .locks
            .table
            .iter()
            .map(|(_, holding)| holding)
            .chain(shares)
        {
            let has_passed = holding
                .lease_until
                .is_some_and(|at| at <= self.items.clock.now);
            assert!(
                holding.is_over || !has_passed,
                "L13: a lock whose lease has passed"
            );
            assert!(
                holding.fence < self.manager.locks.next_fence,
                "L12: a fence that is still to be given"
            );
        }
    }

    /// Z7 to Z9, and that the tables agree with the items.
    fn check_wins(&self) {
        self.manager.wins.bound.check();
        self.manager.wins.queue.check();
        assert!(
            self.manager.waiting_in_all() <= self.items.limits.waits_max,
            "Z11: too many notices"
        );
        for (key, win) in self.manager.wins.bound.iter() {
            let winner = win.winner;
            assert!(
                self.manager.locks.table.held_by(winner).is_some(),
                "Z7: {winner} has gone"
            );
            assert!(
                self.manager.wins.bound.won_by(winner)
                    <= self.items.limits.bound_wins_per_connection_max,
                "Z7: {winner} has too many"
            );
            if let Some((header, _)) = self.peek(key) {
                assert_eq!(
                    header.win,
                    WinMark::Sent,
                    "Z7: the win of {key:?} is not sent"
                );
            }
        }
        for key in self.manager.wins.queue.keys() {
            assert!(
                self.manager.wins.queue.waiting(key) <= self.items.limits.waits_per_key_max,
                "Z8: too many wait for {key:?}"
            );
            let noted = self.manager.wins.bound.noted(key);
            let has_ended = noted.is_some_and(|win| self.manager.wins.bound.has_ended(&win));
            if let Some((header, _)) = self.peek(key) {
                assert!(
                    header.win == WinMark::Sent
                        || has_ended && self.manager.wins.queue.is_on_round(),
                    "Z8: the win of {key:?} is open"
                );
            }
            for (owner, _) in self.manager.wins.queue.queue(key) {
                assert!(
                    self.manager.locks.table.held_by(owner).is_some(),
                    "Z10: {owner} has gone"
                );
                assert!(
                    self.manager.locks.queue.waits_for(owner).is_none(),
                    "Z11: {owner} waits twice"
                );
            }
        }
    }
}
