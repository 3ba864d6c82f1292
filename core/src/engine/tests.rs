//! The rules by example, one core and two connections at a time.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "any other reply is a failure"
)]

mod counting;
mod key_locks;
mod limit;
mod lock_bounds;
mod lookups;
mod metadata;
mod queues;
mod saved;
mod shared;
mod waits;
mod win_waits;
mod wins;

use alloc::vec::Vec;

use latchd_protocol::command::{
    Arithmetic, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand, Keys, LockAfter, NewCas,
    OnMissing, Removal, Set, SetMode, TtlStep, TtlSteps,
};
use latchd_protocol::item::Cas;
use latchd_protocol::reply::{Hit, Refusal, Win};
use latchd_protocol::stats::{Stats, StatsTopic};
use latchd_protocol::time::Exptime;

use super::*;

const A: Owner = Owner::from_number(1);
const B: Owner = Owner::from_number(2);

impl<S> Core<S> {
    /// Changes the bounds without a look at the locks.
    fn change_limits(&mut self, change: impl Fn(&mut Limits)) {
        let of_shards = self.shards.iter_mut().map(|items| &mut items.limits);
        let all = [&mut self.limits, &mut self.manager.limits];
        all.into_iter().chain(of_shards).for_each(change);
    }
}

/// A core, the time by hand, and two connections.
struct Bench<S = LogStore> {
    core: Core<S>,
    now_ms: u64,
}

impl Bench {
    fn new() -> Self {
        Self::of(Core::new(config(1 << 20)))
    }
}

impl Bench<MapStore> {
    /// On the reference store, where it is known how many items fit.
    fn with_memory(bytes: usize) -> Self {
        Self::of(Core::reference(config(bytes)))
    }
}

fn config(bytes: usize) -> Config {
    Config::new(Limits::new(bytes, 1 << 10), 1_700_000_000)
}

impl<S: Store> Bench<S> {
    fn of(mut core: Core<S>) -> Self {
        for owner in [A, B] {
            core.handle(Instant::default(), Event::Opened(owner));
        }
        Self { core, now_ms: 0 }
    }

    /// Executes, and looks for broken invariants before handing out the reply.
    fn ask<'a>(&'a mut self, owner: Owner, command: impl Into<Command<'a>>) -> Reply<'a> {
        self.core.check();
        let now = Instant::from_millis(self.now_ms);
        self.core.execute(now, owner, &command.into())
    }

    fn close(&mut self, owner: Owner) {
        self.event(Event::Closed(owner));
    }

    fn event(&mut self, event: Event) {
        let now = Instant::from_millis(self.now_ms);
        self.core.handle(now, event);
        self.core.check();
    }

    fn set(&mut self, owner: Owner, name: &str, value: &str) -> Reply<'static> {
        match self.ask(owner, Set::new(key(name), value.as_bytes())) {
            Reply::Stored(stored) => Reply::Stored(stored),
            Reply::Refused(refusal) => Reply::Refused(refusal),
            other => panic!("a plain set is stored or refused, not {other:?}"),
        }
    }

    /// The value that a plain get sees.
    fn value(&mut self, name: &str) -> Option<Vec<u8>> {
        match self.ask(B, Get::new(key(name))) {
            Reply::Hit(hit) => Some(hit.value.to_vec()),
            Reply::Miss => None,
            other => panic!("a get hits or misses, not {other:?}"),
        }
    }

    fn hit<'a>(&'a mut self, owner: Owner, get: Get<'a>) -> Hit<'a> {
        match self.ask(owner, get) {
            Reply::Hit(hit) => hit,
            other => panic!("expected a hit, not {other:?}"),
        }
    }
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).unwrap()
}

/// An `mg`: the one read that takes part in recaching.
fn meta_get(name: &str) -> Get<'_> {
    Get {
        recaches: true,
        ..Get::new(key(name))
    }
}

fn lock(name: &str) -> ItemCommand<'_> {
    ItemCommand::Lock { key: key(name) }
}

fn unlock(name: &str) -> ItemCommand<'_> {
    ItemCommand::Unlock { key: key(name) }
}

fn expiring(name: &str, seconds: u32) -> Set<'_> {
    Set {
        exptime: Exptime::In { seconds },
        ..Set::new(key(name), b"v")
    }
}

#[test]
fn closing_a_connection_releases_its_locks() {
    let mut bench = Bench::new();
    bench.set(A, "j", "1");
    bench.set(A, "k", "1");
    bench.ask(A, lock("j"));
    bench.ask(A, lock("k"));
    bench.close(A);
    assert_eq!(bench.ask(B, lock("j")), Reply::Locked);
    assert_eq!(bench.ask(B, lock("k")), Reply::Locked);
    bench.ask(B, GlobalCommand::UnlockAll);
    assert_eq!(
        bench.ask(A, lock("k")),
        Reply::Refused(Refusal::ConnectionClosed)
    );
}

#[test]
fn delayed_flush_removes_earlier_items() {
    let mut bench = Bench::new();
    bench.set(A, "k", "1");
    bench.ask(
        A,
        GlobalCommand::FlushAll {
            at: Exptime::In { seconds: 2 },
        },
    );
    bench.now_ms = 1_999;
    bench.set(A, "late", "1");
    assert_eq!(bench.value("k"), Some(b"1".to_vec()));
    bench.now_ms = 2_000;
    assert_eq!(bench.value("k"), None);
    assert_eq!(bench.value("late"), None);
    bench.set(A, "k", "2");
    bench.now_ms = 9_000;
    assert_eq!(bench.value("k"), Some(b"2".to_vec()));
}

#[test]
fn eviction_passes_over_held_items_and_says_when_nothing_else_is_left() {
    let mut bench = Bench::with_memory(1_000);
    bench
        .core
        .change_limits(|limits| limits.locked_bytes_max = 1_000);
    bench
        .core
        .change_limits(|limits| limits.lock_bytes_per_connection_max = 2_000);
    bench
        .core
        .change_limits(|limits| limits.lock_table_bytes_max = 2_000);
    for name in ["a", "b"] {
        bench.set(A, name, &"v".repeat(250));
        bench.ask(A, lock(name));
    }
    for name in ["c", "d", "e"] {
        assert!(matches!(bench.set(B, name, "v"), Reply::Stored(_)));
    }
    assert_eq!(
        bench.set(B, "f", &"v".repeat(250)),
        Reply::Refused(Refusal::OutOfMemory)
    );
    assert!(bench.value("a").is_some() && bench.value("b").is_some());
    assert_eq!(bench.value("c"), None, "evicted");
    bench.close(A);
    assert!(matches!(
        bench.set(B, "f", &"v".repeat(250)),
        Reply::Stored(_)
    ));
}

#[test]
fn locks_are_bounded() {
    let mut bench = Bench::with_memory(1_000);
    bench
        .core
        .change_limits(|limits| limits.locks_per_connection_max = 1);
    bench
        .core
        .change_limits(|limits| limits.lock_bytes_per_connection_max = 1_000);
    bench
        .core
        .change_limits(|limits| limits.lock_table_bytes_max = 1_000);
    bench.set(A, "a", "1");
    bench.set(A, "b", "1");
    assert_eq!(bench.ask(A, lock("a")), Reply::Locked);
    assert_eq!(
        bench.ask(A, lock("b")),
        Reply::Refused(Refusal::TooManyLocks)
    );
    let pinned_bytes = bench.core.manager.locks.table.pinned_bytes(0);
    bench
        .core
        .change_limits(|limits| limits.locked_bytes_max = pinned_bytes + 100);
    assert_eq!(
        bench.ask(B, lock("b")),
        Reply::Refused(Refusal::TooManyLocks)
    );
    assert_eq!(
        bench.set(A, "a", &"v".repeat(200)),
        Reply::Refused(Refusal::OutOfMemory)
    );
    assert_eq!(bench.value("a"), Some(b"1".to_vec()), "E1");
}

#[test]
fn a_refused_command_uses_up_no_version() {
    let mut bench = Bench::new();
    bench.set(A, "k", "1");
    bench.ask(A, lock("k"));
    let before = bench.core.shards[0].next_cas;
    bench.set(B, "k", "2");
    let add = Set {
        mode: SetMode::Add,
        ..Set::new(key("k"), b"x")
    };
    bench.ask(A, add);
    assert_eq!(bench.core.shards[0].next_cas, before);
}

#[test]
fn shards_never_give_the_same_version() {
    let limits = Limits::default();
    let store = |_| MapStore::new(&limits.share(3));
    let mut core = Core::with_stores(Config::new(limits, 0), (0..3).map(store).collect());
    let mut seen = alloc::collections::BTreeSet::new();
    for _ in 0..5 {
        for name in ["a", "b", "c"] {
            let set = Set::new(key(name), b"v");
            match core.execute(Instant::default(), A, &set.into()) {
                Reply::Stored(reply) => assert!(seen.insert(reply.cas)),
                other => panic!("a plain set is stored, not {other:?}"),
            }
        }
    }
    let counts = core.shards.iter().map(|items| items.store.usage().items);
    assert!(counts.eq([1, 1, 1]));
}

#[test]
fn keys_come_in_pages_and_without_the_expired() {
    let mut bench = Bench::new();
    bench.core.change_limits(|limits| limits.scan_items_max = 2);
    for name in ["a1", "a2", "a3", "b1"] {
        bench.set(A, name, "v");
    }
    bench.ask(A, expiring("a4", 1));
    bench.now_ms = 5_000;
    let mut seen = Vec::new();
    let mut cursor = Some(ScanCursor::default());
    while let Some(from) = cursor {
        match bench.ask(
            A,
            GlobalCommand::Keys(Keys {
                prefix: b"a",
                cursor: from,
            }),
        ) {
            Reply::Keys(page) => {
                seen.extend(page.items.iter().map(|item| item.key.to_vec()));
                cursor = page.next;
            }
            other => panic!("keys are listed, not {other:?}"),
        }
    }
    seen.sort();
    assert_eq!(seen, [b"a1", b"a2", b"a3"]);
}

#[test]
fn a_clock_that_steps_back_revives_nothing() {
    let mut bench = Bench::new();
    bench.ask(A, expiring("k", 1));
    bench.now_ms = 2_000;
    // An event passes the time and does not read the item, since a read would remove it.
    assert_eq!(bench.value("another"), None);
    bench.now_ms = 0;
    assert_eq!(bench.value("k"), None);
}
