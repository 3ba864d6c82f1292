//! The check of a core: the invariants that one state shows, over the stores and all tables.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Deref;

use latchd_protocol::Owner;
use latchd_protocol::item::WinMark;

use super::items::Items;
use super::manager::LockManager;
use super::owned_key::as_key;
use super::{Core, Holding};
use crate::store::Store;

impl<S: Store> Core<S> {
    /// Asserts every invariant that can be seen in one state. Looks at every item: for tests, the
    /// model, and fuzzing.
    pub fn check(&self) {
        let all: Vec<_> = self.shards.iter().collect();
        check(&all, &self.manager);
    }
}

/// Asserts every invariant that one state of all shards and their manager shows.
pub fn check<S: Store, I: Deref<Target = Items<S>>>(all: &[I], manager: &LockManager) {
    manager.locks.table.check(|key| {
        let items = &all[usize::from(manager.locks.table.shard(key))];
        let found = items.store.find(key);
        found.map_or(0, |slot| items.store.item_bytes(slot))
    });
    for items in all {
        check_locked(items, manager);
    }
    check_noted(all, manager);
    assert!(
        manager.table_bytes() <= manager.limits.lock_table_bytes_max,
        "L11: the table of locks is too large"
    );
    for owner in manager.locks.table.open_connections() {
        assert!(
            manager.held(owner).bytes <= manager.limits.lock_bytes_per_connection_max,
            "L11: {owner} has more than its share"
        );
    }
    manager.sessions.check();
    for session in manager.sessions.behind(Owner::of_session(0)) {
        let owner = session.owner();
        assert!(
            manager.locks.table.held_by(owner).is_some(),
            "L4: the session {owner} is open"
        );
    }
    manager.check_waits();
    check_wins(all, manager);
    let shares = manager.locks.table.shared();
    let shares = shares.flat_map(|(_, shares)| shares);
    let all = manager.locks.table.iter().map(|(_, holding)| holding);
    for holding in all.chain(shares) {
        check_times(&holding, manager);
    }
}

fn check_times(holding: &Holding, manager: &LockManager) {
    let has_passed = holding.lease_until.is_some_and(|at| at <= manager.now);
    assert!(
        holding.is_over || !has_passed,
        "L13: a lock whose lease has passed"
    );
    assert!(
        holding.fence < manager.locks.next_fence,
        "L12: a fence that is still to be given"
    );
}

/// L3, and L11 of one shard.
fn check_locked<S: Store>(items: &Items<S>, manager: &LockManager) {
    items.store.check();
    let mut locked_bytes = 0;
    let locks = manager.locks.table.iter();
    for (key, holding) in locks.filter(|(key, _)| manager.locks.table.shard(*key) == items.shard) {
        let found = items.store.find(key).ok();
        assert_eq!(
            holding.has_item,
            found.is_some(),
            "L3: a lock that knows nothing of its item"
        );
        let Some(slot) = found else {
            continue;
        };
        assert!(
            items.store.header(slot).locked,
            "L3: a lock that its item does not know of"
        );
        locked_bytes += items.store.item_bytes(slot);
    }
    // With the loop above, equal sums mean that no item is marked locked without an owner.
    assert_eq!(
        items.store.usage().locked_bytes,
        locked_bytes,
        "L3: an item locked by nobody"
    );
    assert!(
        manager.locks.table.pinned_bytes(items.shard) <= items.limits.locked_bytes_max,
        "L11: locks pin too much"
    );
}

/// N6.
fn check_noted<S: Store, I: Deref<Target = Items<S>>>(all: &[I], manager: &LockManager) {
    let without_item = manager.locks.table.iter();
    let without_item = without_item.filter(|(_, holding)| !holding.has_item);
    let without_item = without_item.map(|(key, _)| key);
    let waited = manager.locks.queue.keys().chain(manager.wins.queue.keys());
    let won = manager.wins.bound.all_noted().map(|(key, _)| key);
    let mut needed = BTreeSet::new();
    for key in without_item.chain(waited).chain(won) {
        if manager.note_of(key).is_some() {
            let mut shards = all.iter();
            assert!(
                shards.any(|items| items.is_noted(key)),
                "N6: {key:?} is not noted"
            );
            needed.insert(key);
        }
    }
    let due = manager.left();
    for key in all.iter().flat_map(|items| &items.noted) {
        let key = as_key(key);
        assert!(
            needed.contains(&key) || due.contains(&key),
            "N6: nothing needs the note of {key:?}"
        );
    }
}

/// Z7 to Z9, and that the tables agree with the items.
fn check_wins<S: Store, I: Deref<Target = Items<S>>>(all: &[I], manager: &LockManager) {
    let peek = |key| all.iter().find_map(|items| items.peek(&manager, key));
    for (key, win) in manager.wins.bound.iter() {
        let winner = win.winner;
        assert!(
            manager.locks.table.held_by(winner).is_some(),
            "Z7: {winner} has ended"
        );
        assert!(
            manager.wins.bound.won_by(winner) <= manager.limits.bound_wins_per_connection_max,
            "Z7: {winner} has too many"
        );
        if let Some((header, _)) = peek(key) {
            assert_eq!(
                header.win,
                WinMark::Sent,
                "Z7: the win of {key:?} is not sent"
            );
        }
    }
    for key in manager.wins.queue.keys() {
        assert!(
            manager.wins.queue.waiting(key) <= manager.limits.waits_per_key_max,
            "Z8: too many wait for {key:?}"
        );
        let noted = manager.wins.bound.noted(key);
        let has_ended = noted.is_some_and(|win| manager.wins.bound.has_ended(&win));
        if let Some((header, _)) = peek(key) {
            assert!(
                header.win == WinMark::Sent || has_ended && manager.wins.queue.is_on_round(),
                "Z8: the win of {key:?} is open"
            );
        }
        for (owner, _) in manager.wins.queue.queue(key) {
            assert!(
                manager.locks.table.held_by(owner).is_some(),
                "Z10: {owner} has ended"
            );
            assert!(
                manager.locks.queue.waits_for(owner).is_none(),
                "Z11: {owner} waits twice"
            );
        }
    }
}

impl LockManager {
    /// Q6 to Q10, Z3 to Z6 and Z11.
    fn check_waits(&self) {
        self.locks.check_waits(self.now, &self.limits, &self.left());
        self.wins.bound.check();
        self.wins.queue.check();
        assert!(
            self.waiting_in_all() <= self.limits.waits_max,
            "Q10, Z11: too many notices"
        );
    }
}
