//! Bounds of locks, and the end of many at once.

use alloc::string::{String, ToString};

use super::*;

/// L11: one connection leaves room for the locks of others, and grows what it holds no further.
#[test]
fn a_connection_has_its_share_of_locks() {
    let mut bench = Bench::with_memory(10_000);
    for name in ["a", "b", "c"] {
        bench.set(A, name, "1");
    }
    let slot = bench.core.store().find(key("a")).unwrap();
    let each = bench.core.store().item_bytes(slot);
    bench.core.limits.lock_bytes_per_connection_max = each + LockTable::bytes_for(key("a"));
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
    // What it holds in other cores counts as well.
    assert_eq!(bench.ask(B, unlock("b")), Reply::Unlocked);
    let elsewhere = Held {
        locks: bench.core.limits.locks_per_connection_max,
        bytes: 0,
    };
    bench.event(Event::HoldsElsewhere(B, elsewhere));
    assert_eq!(
        bench.ask(B, lock("c")),
        Reply::Refused(Refusal::TooManyLocks)
    );
}

/// L9: a thousand locks end in one step, and are free before anybody has let go of their items.
#[test]
fn locks_that_end_together_are_free_at_once() {
    let mut bench = Bench::with_memory(1 << 20);
    bench.core.limits.locks_settled_max = 1;
    bench.core.limits.lock_bytes_per_connection_max = 1 << 20;
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
    // What the locks have held off has happened for whoever looks: the flush, but for one.
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
fn what_locks_take_is_part_of_the_memory_limit() {
    let mut bench = Bench::of(Core::new(config(32 << 10)));
    let names: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    for name in &names {
        bench.set(A, name, "1");
    }
    let limit = bench.core.limits().memory_bytes_max;
    bench.core.limits.lock_bytes_per_connection_max = limit;
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
