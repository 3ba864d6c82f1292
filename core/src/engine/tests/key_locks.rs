//! Locks of keys, with and without an item; and changes in the right of a grant.

use alloc::format;

use latchd_protocol::command::{Acquire, Lease, LockAfter, Mode, Release, ReleaseOf};
use latchd_protocol::fence::Fence;
use latchd_protocol::stats::LOCKS_LOOKED_AT_MAX;

use super::*;
use crate::times::Times;

fn acquire(name: &str) -> Command<'_> {
    ItemCommand::Acquire(Acquire::new(key(name))).into()
}

fn release(name: &str) -> Command<'_> {
    ItemCommand::Release(Release::new(key(name))).into()
}

fn shared(name: &str) -> Command<'_> {
    let acquire = Acquire {
        mode: Mode::Shared { max_sharers: None },
        ..Acquire::new(key(name))
    };
    ItemCommand::Acquire(acquire).into()
}

impl Bench {
    /// Takes a lock that is free, and says its number.
    fn granted(&mut self, owner: Owner, name: &str) -> Fence {
        match self.ask(owner, acquire(name)) {
            Reply::Granted(granted) => granted.fence,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_key_without_an_item_can_be_held() {
    let mut bench = Bench::new();
    let fence = bench.granted(A, "k");
    bench.now_ms += 2_500;
    let Reply::Contended(seen) = bench.ask(B, acquire("k")) else {
        panic!("it is held");
    };
    assert_eq!((seen.holder, seen.fence, seen.held_s), (A, fence, 2));
    assert!(matches!(bench.ask(A, acquire("k")), Reply::Contended(_)));
    // The old words for the same lock.
    assert_eq!(bench.ask(B, lock("k")), Reply::Refused(Refusal::Locked));
    assert_eq!(bench.set(B, "k", "1"), Reply::Refused(Refusal::Locked));
    let Reply::Stored(_) = bench.set(A, "k", "1") else {
        panic!("it is the holder's to make");
    };
    assert_eq!(bench.set(B, "k", "2"), Reply::Refused(Refusal::Locked));
    assert_eq!(bench.ask(A, unlock("k")), Reply::Unlocked);
    assert!(bench.granted(B, "k") > fence);
}

#[test]
fn the_lock_of_a_key_outlives_its_item() {
    let mut bench = Bench::new();
    bench.set(A, "k", "1");
    bench.granted(A, "k");
    assert_eq!(bench.ask(A, Delete::new(key("k"))), Reply::Deleted);
    assert_eq!(bench.set(B, "k", "1"), Reply::Refused(Refusal::Locked));
    assert_eq!(bench.ask(B, lock("k")), Reply::Refused(Refusal::Locked));
    assert_eq!(bench.ask(B, release("k")), Reply::NotFound);
    assert_eq!(bench.ask(A, release("k")), Reply::Unlocked);
    assert_eq!(bench.ask(B, lock("k")), Reply::NotFound);
}

#[test]
fn gone_owner_leaves_its_key_free() {
    let mut bench = Bench::new();
    bench
        .core
        .change_limits(|limits| limits.locks_settled_max = 1);
    for name in ["a", "b", "c"] {
        bench.granted(A, name);
    }
    bench.close(A);
    assert!(matches!(bench.set(B, "c", "1"), Reply::Stored(_)));
    bench.granted(B, "b");
    bench.granted(B, "c");
    bench.event(Event::Tick);
    assert_eq!(bench.core.locks().len(), 2);
}

#[test]
fn a_grant_that_is_over_changes_nothing() {
    let mut bench = Bench::new();
    bench.set(A, "k", "1");
    let old = bench.granted(A, "k");
    bench.ask(A, release("k"));
    let fence = bench.granted(B, "k");
    let fenced = |fence| Set {
        fence: Some(fence),
        ..Set::new(key("k"), b"2")
    };
    // Another connection of a pool writes with the fence of the grant, and none writes with the fence of an old one.
    assert_eq!(bench.ask(A, fenced(old)), Reply::Exists);
    assert_eq!(bench.ask(B, fenced(old)), Reply::Exists);
    assert!(matches!(bench.ask(A, fenced(fence)), Reply::Stored(_)));
    let of_old = Release {
        of: ReleaseOf::OwnGrant(old),
        ..Release::new(key("k"))
    };
    assert_eq!(bench.ask(B, ItemCommand::Release(of_old)), Reply::NotFound);
    let last = Set {
        lock: LockAfter::Release,
        ..fenced(fence)
    };
    assert!(matches!(bench.ask(A, last), Reply::Stored(_)));
    assert_eq!(bench.ask(A, fenced(fence)), Reply::Exists);
    assert_eq!(bench.core.locks().len(), 0);
}

#[test]
fn a_flush_before_the_item_has_no_claim_on_it() {
    let mut bench = Bench::new();
    bench.granted(A, "k");
    bench.ask(B, GlobalCommand::FlushAll { at: Exptime::Never });
    bench.set(A, "k", "1");
    bench.ask(A, release("k"));
    assert_eq!(bench.value("k"), Some(b"1".to_vec()));
}

#[test]
fn an_item_made_under_a_lock_counts_as_pinned() {
    let mut bench = Bench::new();
    bench
        .core
        .change_limits(|limits| limits.locked_bytes_max = 200);
    bench.granted(A, "k");
    let long = "1".repeat(300);
    assert_eq!(
        bench.set(A, "k", &long),
        Reply::Refused(Refusal::OutOfMemory)
    );
    assert!(matches!(bench.set(A, "k", "1"), Reply::Stored(_)));
}

/// An emptied item may move to another slot, and its lock ends there.
#[test]
fn an_item_is_emptied_and_given_back_in_one_step() {
    let mut bench = Bench::new();
    bench.set(A, "k", &"1".repeat(300));
    bench.granted(A, "k");
    let clear = Delete {
        removal: Removal::Clear {
            exptime: Exptime::Never,
            client_flags: 0,
        },
        lock: LockAfter::Release,
        ..Delete::new(key("k"))
    };
    assert_eq!(bench.ask(A, clear), Reply::Deleted);
    assert_eq!(bench.value("k"), Some(Vec::new()));
    assert!(matches!(bench.set(B, "k", "2"), Reply::Stored(_)));
}

fn leased(name: &str, ms: u64) -> Command<'_> {
    let lease = Some(Lease::For { ms });
    ItemCommand::Acquire(Acquire {
        lease,
        ..Acquire::new(key(name))
    })
    .into()
}

#[test]
fn a_lock_ends_with_its_lease_and_not_before() {
    let mut bench = Bench::new();
    bench.set(A, "k", "1");
    assert!(matches!(bench.ask(A, leased("k", 250)), Reply::Granted(_)));
    assert!(matches!(
        bench.ask(A, leased("bare", 250)),
        Reply::Granted(_)
    ));
    bench.now_ms = 250;
    assert!(matches!(bench.ask(B, acquire("k")), Reply::Contended(_)));
    bench.now_ms = 251;
    bench.granted(B, "k");
    bench.granted(B, "bare");
    assert_eq!(bench.ask(A, release("k")), Reply::NotFound);
}

#[test]
fn leases_that_end_together_are_over_at_once_and_taken_out_a_few_at_a_time() {
    let mut bench = Bench::new();
    let names: Vec<_> = (0..50).map(|number| format!("k{number}")).collect();
    for name in &names {
        assert!(matches!(bench.ask(A, leased(name, 100)), Reply::Granted(_)));
    }
    bench.now_ms = 101;
    bench.ask(B, Get::new(key("other")));
    let left = |bench: &Bench| bench.core.locks().iter().count();
    let settled = bench.core.limits().locks_settled_max;
    assert_eq!(
        left(&bench),
        50 - settled,
        "no command does the work of all"
    );
    let in_force = |bench: &Bench| bench.core.locks().iter().any(|(_, lock)| !lock.is_over);
    assert!(!in_force(&bench));
    bench.core.handle(Instant::from_millis(101), Event::Tick);
    assert_eq!(left(&bench), 0);
}

#[test]
fn list_of_ended_locks_is_bounded() {
    let mut bench = Bench::new();
    bench
        .core
        .change_limits(|limits| limits.locks_per_connection_max = 2 * LOCKS_LOOKED_AT_MAX);
    bench
        .core
        .change_limits(|limits| limits.lock_table_bytes_max = usize::MAX);
    bench
        .core
        .change_limits(|limits| limits.lock_bytes_per_connection_max = usize::MAX);
    // The end of their owner updates a few of them.
    let settled = bench.core.limits().locks_settled_max;
    for number in 0..LOCKS_LOOKED_AT_MAX + settled {
        bench.granted(A, &format!("k{number:05}"));
    }
    bench.granted(B, "z");
    bench.granted(B, "a");
    bench.close(A);
    // The ended lock is still in the table: the lock behind it is not read.
    let shown: Vec<_> = bench
        .core
        .locks_in_force()
        .map(|(key, _)| key.as_bytes().to_vec())
        .collect();
    assert_eq!(shown, [b"a"]);
    // In pages, all are found, and no page reads very many.
    let (mut shown, mut from) = (Vec::new(), 0);
    loop {
        let (lines, next) = bench.core.manager.lock_page(from, 1);
        shown.extend(lines.into_iter().map(|line| line.name));
        let Some(next) = next else {
            break;
        };
        assert!(next > from && next - from < LOCKS_LOOKED_AT_MAX / 8);
        from = next;
    }
    assert_eq!(shown, ["a", "z"]);
    while bench.core.locks().iter().count() > 2 {
        bench.event(Event::Tick);
    }
    assert_eq!(bench.core.locks_in_force().count(), 2);
}

#[test]
fn a_lease_that_is_renewed_lasts_from_then_on_under_the_same_number() {
    let mut bench = Bench::new();
    let Reply::Granted(granted) = bench.ask(A, leased("k", 100)) else {
        panic!("it is free");
    };
    let fence = granted.fence;
    bench.now_ms = 60;
    let Reply::Granted(renewed) = bench.ask(A, leased("k", 100)) else {
        panic!("it is the holder's");
    };
    assert_eq!(renewed.fence, fence);
    bench.now_ms = 160;
    assert!(matches!(bench.ask(B, acquire("k")), Reply::Contended(_)));
    let off = |name| Acquire {
        lease: Some(Lease::Off),
        ..Acquire::new(key(name))
    };
    let off = ItemCommand::Acquire(off("k"));
    assert_eq!(bench.ask(B, off), Reply::NotFound);
    assert!(matches!(bench.ask(A, off), Reply::Granted(_)));
    bench.now_ms = 10_000;
    assert!(matches!(bench.ask(B, acquire("k")), Reply::Contended(_)));
}

/// A delayed expiry or flush takes effect when the lease expires; a clock that steps back revives nothing.
#[test]
fn an_item_goes_with_the_lease_that_has_kept_it() {
    let mut bench = Bench::new();
    bench.ask(
        A,
        Set {
            exptime: Exptime::In { seconds: 1 },
            ..Set::new(key("k"), b"1")
        },
    );
    assert!(matches!(
        bench.ask(A, leased("k", 3_000)),
        Reply::Granted(_)
    ));
    bench.now_ms = 3_000;
    assert_eq!(bench.value("k"), Some(b"1".to_vec()));
    bench.now_ms = 3_001;
    assert_eq!(bench.value("k"), None);
    bench.now_ms = 2_000;
    assert_eq!(bench.value("k"), None);
    bench.close(A);
    bench.event(Event::Tick);
    assert_eq!(bench.core.locks().len(), 0);
}

/// How long a lock was held is known to the millisecond, also of one that leaves the table later.
#[test]
fn how_a_lock_has_ended_is_told_once() {
    let mut bench = Bench::new();
    bench.event(Event::ReportLockEnds(true));
    let ended = |bench: &mut Bench| {
        bench.event(Event::Tick);
        let Some(Notification::LocksEnded { ends, missed }) = bench.core.poll() else {
            panic!("a lock has ended");
        };
        assert_eq!(missed, 0);
        let shown = |end: &LockEnd| (end.key.to_vec(), end.holder, end.held_ms, end.cause);
        ends.iter().map(shown).collect::<Vec<_>>()
    };
    bench.granted(A, "released");
    bench.ask(A, leased("expired", 100));
    bench.granted(A, "closed");
    bench.now_ms = 5;
    bench.ask(A, release("released"));
    let released = (b"released".to_vec(), A, 5, EndCause::Released);
    assert_eq!(ended(&mut bench), [released]);
    bench.now_ms = 250;
    let expired = (b"expired".to_vec(), A, 101, EndCause::Expired);
    assert_eq!(ended(&mut bench), [expired]);
    for sharer in [A, B] {
        let granted = matches!(bench.ask(sharer, shared("s")), Reply::Granted(_));
        assert!(granted);
    }
    bench.now_ms = 1_250;
    bench.close(A);
    // Time passes before the table removes ended locks.
    bench.now_ms = 9_000;
    bench.ask(B, GlobalCommand::UnlockAll);
    bench.now_ms = 60_000;
    let mut ends = ended(&mut bench);
    ends.sort();
    let expected = [
        (b"closed".to_vec(), A, 1_250, EndCause::Closed),
        (b"s".to_vec(), A, 1_000, EndCause::Closed),
        (b"s".to_vec(), B, 8_750, EndCause::Released),
    ];
    assert_eq!(ends, expected);
    let times = bench.core.locks().hold_times();
    assert_eq!(times.sum_ms, 5 + 101 + 1_250 + 1_000 + 8_750);
    assert_eq!(times.counts.iter().sum::<u64>(), 5);
    bench.ask(B, GlobalCommand::StatsReset);
    assert_eq!(bench.core.locks().hold_times(), &Times::default());
    // Ends that no transport takes are not kept.
    bench.event(Event::ReportLockEnds(false));
    bench.granted(B, "k");
    bench.ask(B, release("k"));
    assert!(!bench.core.locks().has_ends());
}

#[test]
fn the_lock_of_an_item_that_is_renewed_is_that_of_its_key() {
    let mut bench = Bench::new();
    bench.set(A, "k", "1");
    assert_eq!(bench.ask(A, lock("k")), Reply::Locked);
    assert!(matches!(bench.ask(A, leased("k", 250)), Reply::Granted(_)));
    assert_eq!(bench.ask(A, Delete::new(key("k"))), Reply::Deleted);
    assert_eq!(bench.set(B, "k", "2"), Reply::Refused(Refusal::Locked));
    bench.now_ms = 250;
    assert_eq!(bench.set(B, "k", "2"), Reply::Refused(Refusal::Locked));
    bench.now_ms = 251;
    assert!(matches!(bench.set(B, "k", "2"), Reply::Stored(_)));
}

/// As many as end in one moment are free in that moment, however few of them an event takes out.
#[test]
fn leases_that_end_at_once_are_over_at_once() {
    let mut bench = Bench::new();
    bench
        .core
        .change_limits(|limits| limits.crawl_items_max = 1);
    bench
        .core
        .change_limits(|limits| limits.locks_settled_max = 1);
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        bench.set(A, name, "1");
        bench.ask(A, leased(name, 100));
    }
    bench.now_ms = 100;
    assert_eq!(bench.set(B, "e", "2"), Reply::Refused(Refusal::Locked));
    bench.now_ms = 101;
    for name in names.into_iter().rev() {
        assert!(
            matches!(bench.set(B, name, "2"), Reply::Stored(_)),
            "{name}"
        );
    }
    bench.event(Event::Tick);
    assert_eq!(bench.core.counters().lock_expired, 5);
    assert_eq!(bench.core.locks().held_by(A), Some(OwnerUsage::default()));
}

#[test]
fn lease_of_gone_owner_ends_nothing_else() {
    let mut bench = Bench::new();
    bench
        .core
        .change_limits(|limits| limits.locks_settled_max = 1);
    for name in ["a", "b"] {
        assert!(matches!(bench.ask(A, leased(name, 100)), Reply::Granted(_)));
    }
    bench.close(A);
    bench.granted(B, "a");
    bench.granted(B, "b");
    bench.now_ms = 101;
    bench.event(Event::Tick);
    assert_eq!(bench.core.locks().len(), 2);
}

/// L9: of many locks of no item that have ended, the last is taken again before its turn to be taken out has come.
#[test]
fn a_key_without_an_item_is_taken_before_its_old_lock_is_let_go_of() {
    let mut bench = Bench::new();
    bench
        .core
        .change_limits(|limits| limits.locks_settled_max = 1);
    for name in ["a", "b", "c", "d"] {
        bench.granted(A, name);
    }
    bench.close(A);
    bench.granted(B, "d");
    let keys = |bench: &Bench| bench.core.locks().iter().count();
    assert_eq!(keys(&bench), 2, "c is over, and still to be taken out");
    bench.event(Event::Tick);
    assert_eq!(keys(&bench), 1);
    assert_eq!(bench.ask(B, release("d")), Reply::Unlocked);
    assert_eq!(bench.core.locks().table_bytes(), 0);
    bench.core.check();
}
