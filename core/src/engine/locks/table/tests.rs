//! The table by example, without the items.

use alloc::vec::Vec;

use super::*;
use crate::engine::owned_key::as_key;

const ALICE: Owner = Owner::from_number(1);
const BOB: Owner = Owner::from_number(2);

fn key(bytes: &'static [u8]) -> Key<'static> {
    Key::new(bytes).unwrap()
}

fn grant(owner: Owner, number: u64) -> NewGrant {
    NewGrant {
        owner,
        fence: Fence::new(number).unwrap(),
        now: Instant::default(),
        lease_until: None,
        scope: LockScope::Item,
        shard: 0,
    }
}

fn table() -> LockTable {
    let mut table = LockTable::default();
    table.open(ALICE);
    table.open(BOB);
    table
}

#[test]
fn locks_that_end_together_leave_no_owner() {
    let mut table = table();
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    table.acquire(key(b"b"), grant(ALICE, 2), Some(10));
    assert_eq!(table.end_all(ALICE, EndCause::Released), 2);
    assert_eq!(
        (table.owner(key(b"a")), table.len(), table.holders()),
        (None, 0, 0)
    );
    assert_eq!(table.held_by(ALICE), Some(OwnerUsage::default()));
    table.check(|_| 10);
}

#[test]
fn a_key_that_is_looked_up_before_its_turn_can_be_taken_again() {
    let mut table = table();
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    table.close(ALICE);
    assert!(table.release(key(b"a"), 10).unwrap().is_over);
    table.acquire(key(b"a"), grant(BOB, 3), Some(10));
    table.check(|_| 10);
    assert_eq!(table.next_ended(), None);
    assert_eq!(table.owner(key(b"a")), Some(BOB));
    table.check(|_| 10);
}

#[test]
fn later_locks_of_the_same_owner_have_not_ended() {
    let mut table = table();
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    table.acquire(key(b"b"), grant(ALICE, 2), Some(10));
    table.end_all(ALICE, EndCause::Released);
    table.release(key(b"a"), 10);
    table.acquire(key(b"a"), grant(ALICE, 3), Some(10));
    let owners = |table: &LockTable| [b"a", b"b"].map(|name| table.owner(key(name)));
    assert_eq!(owners(&table), [Some(ALICE), None]);
    assert_eq!(table.held_by(ALICE).unwrap().locks, 1);
    table.check(|_| 10);
    assert_eq!(table.next_ended(), Some((Arc::from(&b"b"[..]), None)));
    table.release(key(b"b"), 10);
    assert_eq!(table.next_ended(), None);
    assert_eq!(owners(&table), [Some(ALICE), None]);
    table.check(|_| 10);
}

/// L14: over all owners, keys with waiters come first; the owner that has ended first, otherwise.
#[test]
fn ended_locks_with_waiters_are_removed_first() {
    let mut table = table();
    for (name, owner, fence) in [
        (&b"a"[..], ALICE, 1),
        (b"b", ALICE, 2),
        (b"c", BOB, 3),
        (b"d", BOB, 4),
    ] {
        table.acquire(Key::new(name).unwrap(), grant(owner, fence), Some(10));
    }
    table.set_waited(key(b"d"), true);
    table.set_waited(key(b"b"), true);
    assert!(!table.has_handovers());
    assert_eq!((table.close(ALICE), table.close(BOB)), (2, 2));
    let mut removed = Vec::new();
    while let Some((name, share)) = table.next_ended() {
        let is_waited = table.has_handovers();
        table.check(|_| 10);
        assert!(table.release(as_key(&name), 10).unwrap().is_over && share.is_none());
        removed.push((name[0], is_waited));
    }
    let expected = [(b'b', true), (b'd', true), (b'a', false), (b'c', false)];
    assert_eq!(removed, expected);
    assert_eq!((table.table_bytes(), table.has_over()), (0, false));
    assert_eq!(table.open_connections().count(), 0);
}

#[test]
fn flush_is_pending_for_earlier_locks() {
    let mut table = table();
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    table.postpone_flush();
    table.acquire(key(b"b"), grant(BOB, 4), Some(10));
    assert!(table.get(key(b"a")).unwrap().flush_pending);
    assert!(!table.get(key(b"b")).unwrap().flush_pending);
    table.clear_flush(key(b"a"));
    assert!(!table.get(key(b"a")).unwrap().flush_pending);
}

#[test]
fn a_lease_that_has_passed_leaves_no_owner_before_it_is_taken_out() {
    let mut table = table();
    let until = |ms| Some(Instant::from_millis(ms));
    for (fence, (name, ms)) in (1..).zip([(b"a", 10), (b"b", 20), (b"c", 10)]) {
        let grant = NewGrant {
            lease_until: until(ms),
            ..grant(ALICE, fence)
        };
        table.acquire(Key::new(name).unwrap(), grant, Some(7));
    }
    assert!(!table.pass_leases(Instant::from_millis(9)));
    assert_eq!(table.owner(key(b"a")), Some(ALICE));
    assert!(table.pass_leases(Instant::from_millis(10)));
    table.check(|_| 7);
    let owners = [b"a", b"b", b"c"].map(|name| table.owner(Key::new(name).unwrap()));
    assert_eq!(owners, [None, Some(ALICE), None]);
    // One is read first, one goes with its owner, one when its turn comes.
    table.release(key(b"c"), 7);
    table.close(ALICE);
    table.check(|_| 7);
    assert_eq!(table.next_expired(), Some((Arc::from(&b"a"[..]), None)));
    for name in [b"a", b"b"] {
        assert!(table.release(Key::new(name).unwrap(), 7).unwrap().is_over);
    }
    assert_eq!(table.next_expired(), None);
    table.check(|_| 7);
}

#[test]
fn an_item_may_come_to_a_lock_and_go_from_it() {
    let mut table = table();
    table.acquire(key(b"a"), grant(ALICE, 1), None);
    assert!(table.has_lock_without_item());
    table.check(|_| 0);
    table.postpone_flush();
    table.gain_item(key(b"a"), 10);
    assert!(!table.has_lock_without_item());
    assert!(!table.get(key(b"a")).unwrap().flush_pending);
    table.check(|_| 10);
    table.lose_item(key(b"a"), 10);
    assert!(table.has_lock_without_item());
    table.check(|_| 0);
    table.close(ALICE);
    assert!(table.has_lock_without_item(), "until it is let go of");
    table.release(key(b"a"), 0);
    assert!(!table.has_lock_without_item());
    table.check(|_| 0);
}

#[test]
fn when_everything_is_taken_out_nothing_is_counted() {
    let mut table = table();
    for (fence, name) in (1..).zip([&b"a"[..], b"b", b"ab"]) {
        table.acquire(Key::new(name).unwrap(), grant(ALICE, fence), Some(7));
    }
    table.resize(key(b"b"), 7, 9);
    table.release(key(b"a"), 7);
    table.close(ALICE);
    while let Some((ended, _)) = table.next_ended() {
        let ended = as_key(&ended);
        table.release(ended, if ended.as_bytes() == b"b" { 9 } else { 7 });
    }
    assert_eq!((table.table_bytes(), table.pinned_bytes(0)), (0, 0));
    table.check(|_| 0);
}

#[test]
fn only_the_holder_has_an_answer() {
    let mut table = table();
    let is_unacknowledged = |table: &LockTable| table.get(key(b"a")).map(|it| it.is_unacknowledged);
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    table.set_unacknowledged(key(b"a"), BOB, true);
    assert_eq!(is_unacknowledged(&table), Some(false));
    table.set_unacknowledged(key(b"a"), ALICE, true);
    table.set_unacknowledged(key(b"a"), BOB, false);
    assert_eq!(is_unacknowledged(&table), Some(true));
    table.set_unacknowledged(key(b"a"), ALICE, false);
    assert_eq!(is_unacknowledged(&table), Some(false));
}
