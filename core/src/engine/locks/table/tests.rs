//! The table by example, without the items.

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
fn a_term_that_is_over_leaves_no_owner() {
    let mut table = table();
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    table.acquire(key(b"b"), grant(ALICE, 2), Some(10));
    assert_eq!(table.end_term(ALICE), 2);
    assert_eq!(
        (table.owner(key(b"a")), table.len(), table.holders()),
        (None, 0, 0)
    );
    assert_eq!(table.held_by(ALICE), Some(Held::default()));
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
    // The turn of the old lock comes, and the new one is not meant.
    assert_eq!(table.next_ended().as_deref(), Some(&b"a"[..]));
    assert!(!table.get(key(b"a")).unwrap().is_over);
    assert_eq!(table.owner(key(b"a")), Some(BOB));
    table.check(|_| 10);
}

#[test]
fn a_new_term_of_the_same_connection_is_not_over() {
    let mut table = table();
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    table.end_term(ALICE);
    table.release(key(b"a"), 10);
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    assert_eq!(table.owner(key(b"a")), Some(ALICE));
    table.next_ended();
    assert_eq!(table.owner(key(b"a")), Some(ALICE));
    table.check(|_| 10);
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
    for (name, ms) in [(b"a", 10), (b"b", 20), (b"c", 10)] {
        let grant = NewGrant {
            lease_until: until(ms),
            ..grant(ALICE, 1)
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
    assert!(table.has_bare());
    table.check(|_| 0);
    table.postpone_flush();
    table.gain_item(key(b"a"), 10);
    assert!(!table.has_bare());
    assert!(!table.get(key(b"a")).unwrap().flush_pending);
    table.check(|_| 10);
    table.lose_item(key(b"a"), 10);
    assert!(table.has_bare());
    table.check(|_| 0);
    table.close(ALICE);
    assert!(table.has_bare(), "until it is let go of");
    table.release(key(b"a"), 0);
    assert!(!table.has_bare());
    table.check(|_| 0);
}

#[test]
fn when_everything_is_taken_out_nothing_is_counted() {
    let mut table = table();
    for name in [&b"a"[..], b"b", b"ab"] {
        table.acquire(Key::new(name).unwrap(), grant(ALICE, 1), Some(7));
    }
    table.resize(key(b"b"), 7, 9);
    table.release(key(b"a"), 7);
    table.close(ALICE);
    while let Some(ended) = table.next_ended() {
        let ended = as_key(&ended);
        table.release(ended, if ended.as_bytes() == b"b" { 9 } else { 7 });
    }
    assert_eq!((table.table_bytes(), table.pinned_bytes(0)), (0, 0));
    table.check(|_| 0);
}

#[test]
fn only_the_holder_has_an_answer() {
    let mut table = table();
    let is_unanswered = |table: &LockTable| table.get(key(b"a")).map(|it| it.is_unanswered);
    table.acquire(key(b"a"), grant(ALICE, 1), Some(10));
    table.set_unanswered(key(b"a"), BOB, true);
    assert_eq!(is_unanswered(&table), Some(false));
    table.set_unanswered(key(b"a"), ALICE, true);
    table.set_unanswered(key(b"a"), BOB, false);
    assert_eq!(is_unanswered(&table), Some(true));
    table.set_unanswered(key(b"a"), ALICE, false);
    assert_eq!(is_unanswered(&table), Some(false));
}
