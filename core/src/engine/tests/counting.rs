//! The counters, and the commands that each counts.

use latchd_protocol::stats::{Counters, Gauges, StatsTopic};

use super::*;
use crate::store::EVICTED_MAX;

fn stats<S: Store>(bench: &mut Bench<S>) -> (Counters, Gauges) {
    match bench.ask(A, GlobalCommand::Stats(StatsTopic::General)) {
        Reply::Stats(report) => (report.stats.counters, report.stats.gauges),
        other => panic!("expected stats, not {other:?}"),
    }
}

fn prefixes(bench: &Bench) -> Vec<(alloc::string::String, alloc::string::String)> {
    let lines = bench.core.prefixes().lines().into_iter();
    lines
        .map(|line| (line.name.into_owned(), line.value))
        .collect()
}

#[test]
fn keys_are_counted_by_prefix_once_that_is_asked_for() {
    let mut bench = Bench::new();
    bench.set(A, "a:1", "x");
    assert_eq!(prefixes(&bench), []);
    bench.ask(A, GlobalCommand::Stats(StatsTopic::DetailOn));
    assert!(stats(&mut bench).1.counts_prefixes);
    bench.set(A, "a:1", "x");
    bench.set(A, "a:2:3", "x");
    bench.set(A, "none", "x");
    bench.set(A, ":", "x");
    bench.ask(A, Get::new(key("a:1")));
    bench.ask(A, Get::new(key("a:9")));
    bench.ask(A, Delete::new(key("a:9")));
    bench.ask(A, Get::new(key("b c:\n")));
    let a = ("a".into(), "get 2 hit 1 set 2 del 1".into());
    let empty = (
        alloc::string::String::new(),
        "get 0 hit 0 set 1 del 0".into(),
    );
    let odd = ("b%20c".into(), "get 1 hit 0 set 0 del 0".into());
    assert_eq!(prefixes(&bench), [empty, a, odd]);
    bench.ask(A, GlobalCommand::StatsReset);
    assert_eq!(prefixes(&bench), []);
    bench.ask(A, Get::new(key("a:1")));
    bench.ask(A, GlobalCommand::Stats(StatsTopic::DetailOff));
    bench.ask(A, Get::new(key("a:1")));
    let a = ("a".into(), "get 1 hit 1 set 0 del 0".into());
    assert_eq!(prefixes(&bench), [a]);
    assert!(!stats(&mut bench).1.counts_prefixes);
}

#[test]
fn prefixes_have_a_delimiter_of_the_operators_and_a_bound() {
    let mut bench = Bench::of(Core::new(config(1 << 20).detailed(b'/')));
    for number in 0..PREFIXES_MAX + 10 {
        let name = alloc::format!("p{number}/a:b");
        bench.core.execute(
            Instant::default(),
            A,
            &Get::new(Key::new(name.as_bytes()).unwrap()).into(),
        );
    }
    let counted = prefixes(&bench);
    assert_eq!(counted.len(), PREFIXES_MAX);
    assert_eq!(counted[0].0, "p0");
}

#[test]
fn get_of_flushed_item_is_counted() {
    let mut bench = Bench::new();
    bench.set(A, "k", "x");
    bench.ask(A, Get::new(key("other")));
    bench.ask(A, GlobalCommand::FlushAll { at: Exptime::Never });
    bench.ask(A, Get::new(key("k")));
    bench.ask(A, Get::new(key("other")));
    let (counters, _) = stats(&mut bench);
    assert_eq!((counters.get_flushed, counters.get_misses), (1, 3));
    bench.set(A, "k", "x");
    bench.ask(A, Get::new(key("k")));
    assert_eq!(stats(&mut bench).0.get_flushed, 1);
}

#[test]
fn evictions_are_counted_by_kind() {
    let mut bench = Bench::of(Core::new(config(1 << 20)));
    bench.now_ms = 10_000;
    for number in 0..4_000 {
        let name = alloc::format!("k{number}");
        let exptime = if number % 2 == 0 {
            Exptime::Never
        } else {
            Exptime::In { seconds: 1_000 }
        };
        bench.now_ms += 1_000 * u64::from(number == 500);
        let set = Set {
            exptime,
            ..Set::new(Key::new(name.as_bytes()).unwrap(), &[b'x'; 1_000])
        };
        let now = Instant::from_millis(bench.now_ms);
        bench.core.execute(now, A, &set.into());
    }
    let (counters, gauges) = stats(&mut bench);
    assert!(counters.evictions > 1_000, "{counters:?}");
    let nonzero = counters.evictions / 2;
    assert!(
        counters.evicted_nonzero.abs_diff(nonzero) <= 1,
        "{counters:?}"
    );
    assert_eq!(counters.evicted_unfetched, counters.evictions);
    assert_eq!(counters.evicted_active, 0);
    assert_eq!(gauges.last_eviction.map(|last| last.idle_s), Some(0));
    bench.now_ms += 7_000;
    assert_eq!(stats(&mut bench).1.oldest_s, 7);
    assert!(stats(&mut bench).1.hash_bytes > 0);
}

#[test]
fn an_item_that_is_found_expired_is_counted_as_such() {
    let mut bench = Bench::new();
    for name in ["read", "unread", "other"] {
        bench.ask(A, expiring(name, 1));
    }
    bench.value("read");
    bench.now_ms = 2_000;
    assert_eq!((bench.value("read"), bench.value("unread")), (None, None));
    bench.set(A, "other", "v");
    let (seen, _) = stats(&mut bench);
    assert_eq!(
        (seen.get_expired, seen.reclaimed, seen.expired_unfetched),
        (3, 3, 2)
    );
}

/// However the lock ends: its item goes because its time is over, unless a flush has come over it.
#[test]
fn an_item_that_goes_with_its_lock_is_counted_as_expired() {
    for (is_flushed, reclaimed) in [(false, 1), (true, 0)] {
        let mut bench = Bench::new();
        bench.ask(A, expiring("k", 1));
        bench.ask(A, lock("k"));
        if is_flushed {
            bench.ask(B, GlobalCommand::FlushAll { at: Exptime::Never });
        }
        bench.now_ms = 2_000;
        assert_eq!(stats(&mut bench).0.reclaimed, 0);
        assert_eq!(bench.ask(A, unlock("k")), Reply::Unlocked);
        let (seen, gauges) = stats(&mut bench);
        let counted = (seen.reclaimed, seen.expired_unfetched);
        assert_eq!((counted, gauges.curr_items), ((reclaimed, reclaimed), 0));
    }
}

#[test]
fn a_value_that_is_too_large_is_counted_where_it_is_refused() {
    let mut bench = Bench::new();
    let value = [b'v'; 1_025];
    for _ in 0..2 {
        let reply = bench.ask(A, Set::new(key("k"), &value));
        assert_eq!(reply, Reply::Refused(Refusal::TooLarge));
    }
    bench.ask(A, Set::new(key("k"), &value[1..]));
    let (seen, _) = stats(&mut bench);
    assert_eq!((seen.store_too_large, seen.cmd_set), (2, 1));
}

/// Up to so many between two looks, and how many more there were.
#[test]
fn watchers_see_evictions() {
    let mut bench = Bench::of(Core::new(config(1 << 20)));
    let fill = |core: &mut Core, from: usize| {
        for number in from..from + 4_000 {
            let name = alloc::format!("k{number}");
            let set = Set::new(Key::new(name.as_bytes()).unwrap(), &[b'x'; 1_000]);
            core.execute(Instant::default(), A, &set.into());
        }
    };
    fill(&mut bench.core, 0);
    let now = Instant::default();
    let evicted = |bench: &mut Bench| {
        let is_watched = true;
        bench.core.handle(now, Event::ReadEvictions { is_watched });
        match bench.core.poll() {
            Some(Notification::Evicted { items, missed }) => (items, missed),
            other => panic!("expected evictions, not {other:?}"),
        }
    };
    assert_eq!(evicted(&mut bench), (Vec::new(), 0), "nobody watched");
    let (before, _) = stats(&mut bench);
    fill(&mut bench.core, 4_000);
    let (after, _) = stats(&mut bench);
    let (items, more) = evicted(&mut bench);
    let evictions = after.evictions - before.evictions;
    assert_eq!(items.len(), EVICTED_MAX);
    assert_eq!(items.len() as u64 + more, evictions);
    assert!(
        items
            .iter()
            .all(|item| item.value_bytes == 1_000 && !item.fetched)
    );
    assert_eq!(
        evicted(&mut bench),
        (Vec::new(), 0),
        "they are reported once"
    );
}

#[test]
fn a_delayed_flush_takes_effect_in_all_shards_at_once() {
    let store = || MapStore::new(&config(1 << 20).limits.share(2));
    let core = Core::with_stores(config(1 << 20), alloc::vec![store(), store()]);
    let mut bench = Bench::of(core);
    assert_ne!(bench.core.shard_of(key("k")), bench.core.shard_of(key("l")));
    let at = Exptime::In { seconds: 60 };
    bench.ask(A, GlobalCommand::FlushAll { at });
    assert_eq!(bench.core.flush_at(), Some(Instant::from_millis(60_000)));
    bench.set(A, "k", "x");
    bench.set(A, "l", "x");
    bench.now_ms = 59_999;
    assert!(bench.value("k").is_some() && bench.value("l").is_some());
    bench.now_ms = 60_000;
    assert!(bench.value("k").is_none());
    assert_eq!(bench.core.flush_at(), None);
    assert!(bench.value("l").is_none());
    let stats = bench.ask(A, GlobalCommand::Stats(StatsTopic::General));
    let Reply::Stats(report) = stats else {
        panic!("{stats:?}");
    };
    assert_eq!(report.stats.counters.cmd_flush, 1);
}
