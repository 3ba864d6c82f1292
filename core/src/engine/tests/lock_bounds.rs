//! Bounds of locks, and the end of many at once.

use alloc::string::{String, ToString};

use super::*;

/// L11: One owner leaves capacity for the locks of others, and its locked items grow no further.
#[test]
fn a_connection_has_its_share_of_locks() {
    let mut bench = Bench::with_memory(10_000);
    for name in ["a", "b", "c"] {
        bench.set(A, name, "1");
    }
    let slot = bench.core.store().find(key("a")).unwrap();
    let each = bench.core.store().item_bytes(slot);
    bench.core.change_limits(|limits| {
        limits.lock_bytes_per_connection_max = each + LockTable::bytes_for(key("a"));
    });
    assert_eq!(bench.ask(A, lock("a")), Reply::Locked);
    assert_eq!(
        bench.ask(A, lock("b")),
        Reply::Refused(Refusal::TooManyLocks)
    );
    assert_eq!(bench.ask(B, lock("b")), Reply::Locked);
    let long = "1".repeat(200);
    assert_eq!(
        bench.set(A, "a", &long),
        Reply::Refused(Refusal::OutOfMemory)
    );
    let append = Set {
        mode: SetMode::Append {
            missing: OnMissing::Refuse,
        },
        ..Set::new(key("a"), long.as_bytes())
    };
    assert_eq!(bench.ask(A, append), Reply::Refused(Refusal::OutOfMemory));
    assert!(matches!(bench.set(A, "a", "2"), Reply::Stored(_)));
}

/// L9: A thousand locks end in one step, and are free before their items are unlocked.
#[test]
fn locks_that_end_together_are_free_at_once() {
    let mut bench = Bench::with_memory(1 << 20);
    bench
        .core
        .change_limits(|limits| limits.locks_settled_max = 1);
    bench
        .core
        .change_limits(|limits| limits.lock_bytes_per_connection_max = 1 << 20);
    let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    for name in &names {
        bench.set(A, name, "1");
        assert_eq!(bench.ask(A, lock(name)), Reply::Locked);
    }
    bench.ask(B, GlobalCommand::FlushAll { at: Exptime::Never });
    bench.set(A, "999", "2");
    bench.close(A);
    assert_eq!(bench.core.locks().len(), 0);
    assert!(bench.core.store().usage().locked_bytes > 0, "not let go of");
    // The effects that the locks have delayed are visible: the flush, with one exception.
    assert_eq!(bench.value("998"), None);
    assert_eq!(bench.value("999"), Some(b"2".to_vec()));
    assert_eq!(bench.ask(B, lock("999")), Reply::Locked);
    assert_eq!(bench.ask(B, lock("998")), Reply::NotFound);
    for _ in 0..2 {
        bench.event(Event::Tick);
    }
    assert_eq!(bench.core.store().usage().items, 1);
    assert_eq!(bench.core.locks().len(), 1);
}

/// The table of locks takes its memory from the items.
#[test]
fn lock_tables_count_against_the_memory_limit() {
    let mut bench = Bench::of(Core::new(config(32 << 10)));
    let names: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    for name in &names {
        bench.set(A, name, "1");
    }
    let limit = bench.core.limits().memory_bytes_max;
    bench
        .core
        .change_limits(|limits| limits.lock_bytes_per_connection_max = limit);
    let before = bench.core.store().usage();
    let mut locked = 0;
    for name in names.iter().rev() {
        match bench.ask(A, lock(name)) {
            Reply::Locked => locked += 1,
            Reply::NotFound | Reply::Refused(Refusal::TooManyLocks) => {}
            other => panic!("{other:?}"),
        }
    }
    let (usage, table) = (bench.core.store().usage(), bench.core.locks().table_bytes());
    assert!(locked > 30, "{locked}");
    assert!(table > limit / 5, "{table} bytes of {locked} locks");
    assert!(usage.held_bytes <= limit && usage.held_bytes > table + usage.bytes);
    assert!(usage.items < before.items, "some had to go for them");
    bench.core.check();
    bench.ask(A, GlobalCommand::UnlockAll);
    for _ in 0..20 {
        bench.event(Event::Tick);
    }
    assert_eq!(bench.core.locks().table_bytes(), 0);
    let after = bench.core.store().usage().held_bytes;
    assert!(after + table / 2 < usage.held_bytes, "{after}");
    bench.core.check();
}

/// L11: In a store that is full of locked items, a locked item grows by append, prepend and incr up to the bound and no
/// further; a change that does not grow it succeeds.
fn what_is_held_grows_to_the_bound<S: Store>(mut bench: Bench<S>) {
    let change =
        |limits: &mut Limits| limits.lock_bytes_per_connection_max = limits.memory_bytes_max;
    bench.core.change_limits(change);
    let bound = bench.core.limits().locked_bytes_max;
    bench.set(A, "number", "9999");
    assert_eq!(bench.ask(A, lock("number")), Reply::Locked);
    bench.set(A, "text", "t");
    assert_eq!(bench.ask(A, lock("text")), Reply::Locked);
    // The rest is pinned but for less than one item more.
    let value = [b'v'; 500];
    let mut refused = false;
    for number in 0..1_000 {
        let name = number.to_string();
        bench
            .core
            .execute(Instant::default(), A, &Set::new(key(&name), &value).into());
        let lock = lock(&name).into();
        match bench.core.execute(Instant::default(), A, &lock) {
            Reply::Locked => {}
            Reply::Refused(Refusal::TooManyLocks) => {
                refused = true;
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(refused, "all was locked");
    let extend = |mode, bytes: &'static [u8]| Set {
        mode,
        ..Set::new(key("text"), bytes)
    };
    let missing = OnMissing::Refuse;
    for mode in [SetMode::Append { missing }, SetMode::Prepend { missing }] {
        let mut length = bench.value("text").unwrap().len();
        loop {
            let reply = bench.ask(A, extend(mode, b"more"));
            if !matches!(reply, Reply::Stored(_)) {
                assert_eq!(reply, Reply::Refused(Refusal::OutOfMemory));
                break;
            }
            length += 4;
        }
        assert_eq!(bench.value("text").unwrap().len(), length, "S2");
        assert!(
            bench.core.manager.locks.table.pinned_bytes(0) <= bound,
            "L11"
        );
    }
    // From 4 digits to 20.
    let grow = Arithmetic::new(key("number"), Direction::Increment, u64::MAX - 9_999);
    assert_eq!(bench.ask(A, grow), Reply::Refused(Refusal::OutOfMemory));
    assert_eq!(bench.value("number"), Some(b"9999".to_vec()), "S2");
    let shrink = Arithmetic::new(key("number"), Direction::Decrement, 9_998);
    assert!(matches!(bench.ask(A, shrink), Reply::Number(number) if number.value == 1));
    // Room that a lock gives back can be grown into.
    assert_eq!(bench.ask(A, unlock("0")), Reply::Unlocked);
    let reply = bench.ask(A, extend(SetMode::Append { missing }, b"more"));
    assert!(matches!(reply, Reply::Stored(_)), "{reply:?}");
    bench.core.check();
}

#[test]
fn locked_item_grows_to_the_bound_in_the_log() {
    what_is_held_grows_to_the_bound(Bench::of(Core::new(config(64 << 10))));
}

#[test]
fn locked_item_grows_to_the_bound_in_the_reference() {
    what_is_held_grows_to_the_bound(Bench::with_memory(16 << 10));
}
