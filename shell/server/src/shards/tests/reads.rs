//! Sums, lists and copies of the items of several shards.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use latchd_core::engine::{Numbers, Restored, SavedItem};
use latchd_core::store::EVICTED_MAX;
use latchd_protocol::command::Wait;
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::KeyForm;

use super::*;

/// The evictions while they are watched, and none from before. Those beyond the bound of each shard are counted.
#[test]
fn watched_evictions_are_handed_out() {
    let limits = Limits::new(4 << 20, 1 << 10);
    let shards = Shards::new(2, Config::new(limits, 0), nobody_waits());
    let mut one = session(1);
    let mut evict = |numbers: Range<u32>| {
        let before = shards.stats(NOW).counters.evictions;
        for number in numbers {
            let name = format!("item{number}");
            store(&shards, &mut one, &name, &[b'v'; 1 << 10]);
        }
        let evicted = shards.stats(NOW).counters.evictions - before;
        assert!(evicted > 0);
        evicted
    };
    evict(0..8_000);
    let nothing = (Vec::new(), 0);
    assert_eq!(shards.evicted(false), nothing);
    assert_eq!(shards.evicted(true), nothing);
    let count = evict(10_000..18_000);
    let (items, missed) = shards.evicted(true);
    assert_eq!(items.len(), 2 * EVICTED_MAX);
    assert_eq!(items.len() as u64 + missed, count);
    assert_eq!(shards.evicted(false), nothing);
    evict(20_000..21_000);
    assert_eq!(shards.evicted(true), nothing);
}

/// The status port shows since when a lock has blocked other clients.
#[test]
fn lock_without_waiters_blocks_nobody() {
    let at_ms = Instant::from_millis;
    let shards = shards(4);
    let mut holder = session(1);
    let acquire = Acquire::new(key("k"));
    for (ms, name) in [(10, "free"), (11, "k")] {
        let acquire = ItemCommand::Acquire(Acquire::new(key(name)));
        ask_at(at_ms(ms), &shards, &mut holder, acquire, |_| ());
    }
    assert_eq!(shards.look(at_ms(20), 5).blocking_since, None);
    let wait = Wait::UpTo { ms: 60_000 };
    let waiter = ItemCommand::Acquire(Acquire { wait, ..acquire });
    ask_at(at_ms(20), &shards, &mut session(2), waiter, |_| ());
    let seen = shards.look(at_ms(30), 5);
    assert_eq!(seen.blocking_since, Some(at_ms(11)));
    assert_eq!((&*seen.locks[0].key, seen.locks[0].waiting), (&b"k"[..], 1));
}

/// As a server that starts again does it with the items of the last run.
#[test]
fn every_item_is_saved_and_restored() {
    let (last, next) = (shards(8), shards(4));
    fill(&last, &mut session(1));
    let mut items = Vec::new();
    let saved = last.save(NOW, &mut |item| {
        items.push((item.key.as_bytes().to_vec(), item.value.to_vec(), item.cas));
        Ok(())
    });
    assert!(saved.is_ok());
    for (name, value, cas) in &items {
        let item = SavedItem {
            key: Key::new(name).unwrap(),
            key_form: KeyForm::Plain,
            value,
            client_flags: 0,
            cas: *cas,
            expires_unix_ms: None,
            fetched: false,
            stale: false,
        };
        assert_eq!(next.restore(NOW, &item), Restored::Kept);
    }
    assert_eq!(next.stats(NOW).gauges.curr_items, 200);
    let cas = Cas::new(1 << 62).unwrap();
    let fence = Fence::new(1 << 62).unwrap();
    next.resume(Numbers { cas, fence });
    let given = fill(&next, &mut session(1));
    assert!(given.into_iter().all(|number| number >= cas.number()));
    assert!(next.numbers(NOW).fence >= fence);
}

#[test]
fn items_of_a_failed_shard_are_not_used() {
    let shards = shards(4);
    assert!(!shards.have_failed());
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let _items = shards.shard(2);
        panic!("an assertion fails");
    }));
    assert!(failed.is_err() && shards.have_failed());
}
