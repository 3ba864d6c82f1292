//! Bounds that change.

use alloc::format;

use latchd_protocol::reply::MemoryRefused;

use super::*;
use crate::store::Usage;

const MIB: usize = 1 << 20;

const VALUE: &[u8] = &[b'v'; 1_000];

fn lock(name: &str) -> ItemCommand<'_> {
    ItemCommand::Lock { key: key(name) }
}

fn limit(bench: &mut Bench, bytes: usize) -> Result<(), MemoryRefused> {
    let now = Instant::from_millis(bench.now_ms);
    let done = bench.core.limit_memory(now, bytes);
    bench.core.check();
    done
}

/// Stores items of a kilobyte, from `key0` on, without a check of invariants after each.
fn fill(bench: &mut Bench, items: usize) {
    for number in 0..items {
        store(bench, &format!("key{number}"));
    }
}

fn store<S: Store>(bench: &mut Bench<S>, name: &str) {
    let set = Set::new(key(name), VALUE);
    bench.core.execute(Instant::default(), A, &set.into());
}

fn usage(bench: &Bench) -> Usage {
    bench.core.store().usage()
}

/// The shares of locks are computed anew.
#[test]
fn derived_limits_follow_the_memory_limit() {
    let mut bench = Bench::new();
    limit(&mut bench, 8 * MIB).unwrap();
    assert_eq!(bench.core.limits(), &Limits::new(8 * MIB, 1 << 10));
    let stats = bench.ask(A, GlobalCommand::Stats(StatsTopic::General));
    let Reply::Stats(report) = stats else {
        panic!("{stats:?}")
    };
    assert_eq!(report.stats.gauges.limit_maxbytes, 8 << 20);
}

#[test]
fn a_larger_memory_is_there_at_once() {
    let mut bench = Bench::new();
    limit(&mut bench, 4 * MIB).unwrap();
    fill(&mut bench, 3_000);
    assert!(usage(&bench).items == 3_000, "{:?}", usage(&bench));
}

/// Between two looks there is one tick, which does no more than it may.
#[test]
fn a_smaller_memory_is_come_to_by_and_by() {
    let mut bench = Bench::of(Core::new(config(16 * MIB)));
    bench
        .core
        .change_limits(|limits| limits.crawl_items_max = 500);
    fill(&mut bench, 14_000);
    assert_eq!(bench.ask(A, lock("key7")), Reply::Locked);
    let unlimited = usage(&bench);
    limit(&mut bench, 2 * MIB).unwrap();
    let mut before = usage(&bench);
    let held_bytes = before.held_bytes;
    let due = Usage {
        held_bytes,
        ..unlimited
    };
    assert_eq!(before, due, "nothing goes in the command itself");
    // A segment to carry to may have been allocated.
    assert!(
        held_bytes <= unlimited.held_bytes + 128 * 1024,
        "{before:?}"
    );
    let mut ticks = 0;
    while usage(&bench).held_bytes > 2 * MIB {
        assert!(bench.core.wants_tick());
        bench.event(Event::Tick);
        let after = usage(&bench);
        assert!(
            before.items - after.items <= 3 * 500,
            "{before:?} {after:?}"
        );
        assert!(after.held_bytes <= before.held_bytes);
        before = after;
        ticks += 1;
        assert!(ticks < 100, "{after:?}");
    }
    assert!(ticks > 5, "{ticks} ticks");
    bench.event(Event::Tick);
    assert!(!bench.core.wants_tick());
    assert_eq!(bench.value("key7").unwrap(), VALUE);
    for number in 0..3_000 {
        store(&mut bench, &format!("new{number}"));
        assert!(usage(&bench).held_bytes <= 2 * MIB);
    }
}

/// Without a tick, the commands that store free the memory.
#[test]
fn stores_reach_the_smaller_memory_limit() {
    let mut bench = Bench::of(Core::new(config(16 * MIB)));
    fill(&mut bench, 14_000);
    limit(&mut bench, 2 * MIB).unwrap();
    let mut stores = 0;
    while usage(&bench).held_bytes > 2 * MIB {
        let evicted = bench.core.counters().evictions;
        store(&mut bench, &format!("new{stores}"));
        let evicted = bench.core.counters().evictions - evicted;
        assert!(evicted < 200, "{evicted} for one");
        stores += 1;
        assert!(stores < 2_000, "{:?}", usage(&bench));
    }
}

#[test]
fn refused_limit_changes_nothing() {
    let mut bench = Bench::of(Core::new(config(16 * MIB)));
    let mut number = 0;
    while bench.core.manager.locks.table.pinned_bytes(0) < 3 * MIB / 2 {
        let name = format!("key{number}");
        store(&mut bench, &name);
        let lock = lock(&name);
        bench.core.execute(Instant::default(), A, &lock.into());
        number += 1;
    }
    let limits = *bench.core.limits();
    for (bytes, why) in [
        (2 * MIB, MemoryRefused::Locked),
        // One connection would have more than an eighth.
        (12 * MIB, MemoryRefused::Locked),
        (2_000, MemoryRefused::TooSmall),
        (100 << 10, MemoryRefused::TooSmall),
        (1 << 50, MemoryRefused::TooLarge),
    ] {
        assert_eq!(limit(&mut bench, bytes), Err(why), "{bytes}");
        assert_eq!(bench.core.limits(), &limits);
    }
    bench.ask(A, GlobalCommand::UnlockAll);
    limit(&mut bench, 2 * MIB).unwrap();
}

/// Nothing is evicted: memory is freed as items expire or are deleted. Until then nothing more is stored.
#[test]
fn without_eviction_items_stay() {
    let mut without = config(16 * MIB);
    without.limits.evict = false;
    let mut bench = Bench::of(Core::new(without));
    fill(&mut bench, 10_000);
    limit(&mut bench, 4 * MIB).unwrap();
    bench.event(Event::Tick);
    assert!(!bench.core.wants_tick(), "there is nothing to be won");
    assert_eq!(usage(&bench).items, 10_000);
    for number in 0..9_000 {
        let name = format!("key{number}");
        let delete = Delete::new(key(&name));
        bench.core.execute(Instant::default(), A, &delete.into());
    }
    for _ in 0..100 {
        bench.event(Event::Tick);
    }
    assert!(usage(&bench).held_bytes <= 4 * MIB, "{:?}", usage(&bench));
    assert_eq!(usage(&bench).items, 1_000);
}

/// The locks fit into bounds of their exact size, and into none that is a byte smaller.
#[test]
fn bounds_may_shrink_to_present_locks() {
    let mut bench = Bench::with_memory(MIB);
    store(&mut bench, "k");
    let lock = lock("k");
    bench.core.execute(Instant::default(), A, &lock.into());
    let core = &bench.core;
    let held = Limits {
        locked_bytes_max: core.manager.locks.table.pinned_bytes(0),
        lock_table_bytes_max: core.lock_memory_bytes(),
        lock_bytes_per_connection_max: core.held(A).bytes,
        value_bytes_max: MIB / 2,
        ..*core.limits()
    };
    assert_eq!(core.judge_limits(&held), Ok(()));
    let smaller = |bound: fn(&mut Limits) -> &mut usize| {
        let mut limits = held;
        assert!(*bound(&mut limits) > 0);
        *bound(&mut limits) -= 1;
        core.judge_limits(&limits)
    };
    let refused = Err(MemoryRefused::Locked);
    assert_eq!(smaller(|limits| &mut limits.locked_bytes_max), refused);
    assert_eq!(smaller(|limits| &mut limits.lock_table_bytes_max), refused);
    assert_eq!(
        smaller(|limits| &mut limits.lock_bytes_per_connection_max),
        refused
    );
    let larger = Limits {
        value_bytes_max: MIB / 2 + 1,
        ..held
    };
    assert_eq!(core.judge_limits(&larger), Err(MemoryRefused::TooSmall));
}
