//! Locks that are shared, and among how many.

use core::num::NonZeroU32;

use latchd_protocol::command::{Acquire, Lease, Mode, Release, Wait};
use latchd_protocol::fence::Fence;
use latchd_protocol::wait::{Notice, Outcome};

use super::*;

const C: Owner = Owner::from_number(3);
const D: Owner = Owner::from_number(4);

/// `S`, or `S<among>`.
const fn shared(max_sharers: u32) -> Mode {
    Mode::Shared {
        max_sharers: NonZeroU32::new(max_sharers),
    }
}

/// `ml <name>` in this mode.
fn acquire(name: &str, mode: Mode) -> Acquire<'_> {
    Acquire {
        mode,
        ..Acquire::new(key(name))
    }
}

fn bench() -> Bench {
    let mut bench = Bench::new();
    for owner in [C, D] {
        bench.event(Event::Opened(owner));
    }
    bench
}

impl<S: Store> Bench<S> {
    fn take<'a>(&'a mut self, owner: Owner, acquire: Acquire<'a>) -> Reply<'a> {
        self.ask(owner, ItemCommand::Acquire(acquire))
    }

    fn shares(&mut self, owner: Owner, name: &str, max_sharers: u32) -> Fence {
        match self.take(owner, acquire(name, shared(max_sharers))) {
            Reply::Granted(granted) => granted.fence,
            other => panic!("{other:?}"),
        }
    }

    fn is_refused(&mut self, owner: Owner, name: &str, mode: Mode) {
        let reply = self.take(owner, acquire(name, mode));
        assert!(matches!(reply, Reply::Contended(_)), "{reply:?}");
    }

    fn waits_for(&mut self, owner: Owner, name: &str, mode: Mode) {
        let waiting = Acquire {
            wait: Wait::UpTo { ms: 10_000 },
            ..acquire(name, mode)
        };
        assert_eq!(self.take(owner, waiting), Reply::Waits);
    }

    fn is_deadlock(&mut self, owner: Owner, name: &str, mode: Mode) {
        let waiting = Acquire {
            wait: Wait::UpTo { ms: 10_000 },
            ..acquire(name, mode)
        };
        let reply = self.take(owner, waiting);
        assert!(matches!(reply, Reply::WouldDeadlock(_)), "{reply:?}");
    }

    fn gives_back<'a>(&'a mut self, owner: Owner, name: &'a str) -> Reply<'a> {
        self.ask(owner, ItemCommand::Release(Release::new(key(name))))
    }

    /// The owners with a notice of a grant.
    fn now_granted(&mut self) -> Vec<u64> {
        self.core.check();
        let notices = core::iter::from_fn(|| self.core.poll().and_then(Notification::wait_over));
        let granted = notices.map(|Notice { owner, outcome }| {
            assert_eq!(outcome, Outcome::Granted);
            owner.number()
        });
        granted.collect()
    }

    fn holders(&self, name: &str) -> Vec<u64> {
        let holders = self.core.locks().holders_of(key(name));
        holders.map(|(owner, _)| owner.number()).collect()
    }
}

#[test]
fn least_bound_of_sharers_counts() {
    let mut bench = bench();
    let first = bench.shares(A, "k", 3);
    assert!(bench.shares(B, "k", 0) > first);
    bench.is_refused(C, "k", shared(2));
    bench.is_refused(C, "k", Mode::Exclusive);
    bench.shares(C, "k", 9);
    bench.is_refused(D, "k", shared(9));
    assert_eq!(bench.holders("k"), [1, 2, 3]);
    // The sharer with the least bound releases it.
    assert_eq!(bench.gives_back(A, "k"), Reply::Unlocked);
    bench.shares(D, "k", 9);
    bench.is_refused(A, "k", shared(3));
    assert_eq!(bench.core.locks().len(), 3);
}

#[test]
fn one_among_one_is_alone() {
    let mut bench = bench();
    bench.shares(A, "k", 1);
    bench.is_refused(B, "k", shared(0));
    assert_eq!(bench.gives_back(B, "k"), Reply::NotFound);
    assert_eq!(bench.gives_back(A, "k"), Reply::Unlocked);
    bench.shares(B, "k", 0);
}

#[test]
fn shared_item_does_not_change() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    let fence = bench.shares(A, "k", 0);
    let locked = Reply::Refused(Refusal::Locked);
    assert_eq!(bench.set(A, "k", "2"), locked);
    assert_eq!(bench.set(B, "k", "2"), locked);
    let with = |fence, lock| Set {
        fence,
        lock,
        ..Set::new(key("k"), b"2")
    };
    assert_eq!(bench.ask(B, with(Some(fence), LockAfter::Keep)), locked);
    assert_eq!(bench.ask(A, with(None, LockAfter::Release)), locked);
    assert_eq!(
        bench.ask(B, with(None, LockAfter::Release)),
        Reply::Refused(Refusal::NotLocked)
    );
    let other = Some(fence.step(1));
    assert_eq!(bench.ask(A, with(other, LockAfter::Keep)), Reply::Exists);
    let delete = Delete::new(key("k"));
    assert_eq!(bench.ask(A, ItemCommand::Delete(delete)), locked);
    let count = Arithmetic::new(key("k"), Direction::Increment, 1);
    assert_eq!(bench.ask(A, ItemCommand::Arithmetic(count)), locked);
    assert_eq!(bench.value("k"), Some(b"1".to_vec()));
    // Nor is it made.
    bench.shares(A, "none", 0);
    assert_eq!(bench.set(A, "none", "2"), locked);
    bench.gives_back(A, "none");
    assert_eq!(bench.gives_back(A, "k"), Reply::Unlocked);
    assert!(matches!(bench.set(B, "k", "2"), Reply::Stored(_)));
}

#[test]
fn there_is_no_way_from_one_mode_to_the_other() {
    let mut bench = bench();
    bench.shares(A, "k", 0);
    bench.is_refused(A, "k", Mode::Exclusive);
    bench.is_deadlock(A, "k", Mode::Exclusive);
    bench.is_refused(A, "k", shared(0));
    bench.is_deadlock(A, "k", shared(0));
    bench.gives_back(A, "k");
    bench.take(A, acquire("k", Mode::Exclusive));
    bench.is_refused(A, "k", shared(0));
    bench.is_deadlock(A, "k", shared(0));
    bench.set(A, "k", "1");
    bench.gives_back(A, "k");
    bench.shares(A, "k", 0);
    let lock = ItemCommand::Lock { key: key("k") };
    let locked = Reply::Refused(Refusal::Locked);
    assert_eq!(bench.ask(A, lock), locked);
    assert_eq!(bench.ask(B, lock), locked);
    let unlock = ItemCommand::Unlock { key: key("k") };
    assert_eq!(bench.ask(B, unlock), Reply::Refused(Refusal::NotLocked));
    assert_eq!(bench.ask(A, unlock), Reply::Unlocked);
}

#[test]
fn each_share_has_a_lease_of_its_own() {
    let mut bench = bench();
    let lease = |ms| Acquire {
        lease: Some(Lease::For { ms }),
        ..acquire("k", shared(2))
    };
    bench.take(A, lease(100));
    bench.take(B, lease(50));
    bench.now_ms = 50;
    bench.take(A, lease(100));
    assert_eq!(bench.holders("k"), [1, 2]);
    bench.now_ms = 51;
    bench.take(A, lease(100));
    assert_eq!(bench.holders("k"), [1]);
    bench.shares(C, "k", 2);
    bench.now_ms = 151;
    bench.is_refused(B, "k", Mode::Exclusive);
    assert_eq!(bench.holders("k"), [1, 3]);
    bench.now_ms = 152;
    bench.is_refused(A, "k", Mode::Exclusive);
    assert_eq!(bench.holders("k"), [3]);
    assert_eq!(bench.core.counters().lock_expired, 2);
    let off = Acquire {
        lease: Some(Lease::Off),
        ..acquire("k", shared(2))
    };
    assert_eq!(bench.take(A, off), Reply::NotFound);
}

#[test]
fn no_sharer_joins_before_waiters() {
    let mut bench = bench();
    bench.shares(A, "k", 0);
    bench.waits_for(B, "k", Mode::Exclusive);
    bench.is_refused(C, "k", shared(0));
    bench.waits_for(C, "k", shared(0));
    // The first waiter has closed: the next can share.
    bench.close(B);
    assert_eq!(bench.now_granted(), [3]);
    assert_eq!(bench.holders("k"), [1, 3]);
}

#[test]
fn waiting_sharers_are_served_together() {
    let mut bench = bench();
    let e = Owner::from_number(5);
    bench.event(Event::Opened(e));
    bench.take(A, acquire("k", Mode::Exclusive));
    bench.waits_for(B, "k", shared(2));
    bench.waits_for(C, "k", shared(0));
    bench.waits_for(D, "k", shared(0));
    bench.waits_for(e, "k", Mode::Exclusive);
    bench.gives_back(A, "k");
    assert_eq!(bench.now_granted(), [2, 3]);
    bench.close(B);
    assert_eq!(bench.now_granted(), [4]);
    bench.ask(C, GlobalCommand::UnlockAll);
    assert_eq!(bench.now_granted(), [] as [u64; 0]);
    bench.close(D);
    assert_eq!(bench.now_granted(), [5]);
}

#[test]
fn cycle_over_any_sharer_is_found() {
    let mut bench = bench();
    bench.shares(A, "k", 0);
    bench.shares(B, "k", 0);
    bench.take(C, acquire("m", Mode::Exclusive));
    bench.waits_for(B, "m", shared(0));
    bench.is_deadlock(C, "k", Mode::Exclusive);
    // As one of two sharers it waits for A alone.
    bench.waits_for(C, "k", shared(2));
    bench.is_deadlock(A, "m", Mode::Exclusive);
}

/// A request behind an exclusive waiter waits for all owners for which that one waits.
#[test]
fn cycle_over_earlier_waiter_is_found() {
    let mut bench = bench();
    bench.shares(A, "k", 0);
    bench.take(C, acquire("m", Mode::Exclusive));
    bench.waits_for(B, "k", Mode::Exclusive);
    bench.waits_for(A, "m", Mode::Exclusive);
    bench.is_deadlock(C, "k", shared(0));
    bench.close(B);
    bench.shares(C, "k", 0);
}

#[test]
fn so_many_share_a_key_and_no_more() {
    let mut bench = bench();
    bench
        .core
        .change_limits(|limits| limits.sharers_per_key_max = 2);
    bench.shares(A, "k", 0);
    bench.shares(B, "k", 0);
    let too_many = Reply::Refused(Refusal::TooManyLocks);
    let one_more = acquire("k", shared(0));
    assert_eq!(bench.take(C, one_more), too_many);
    // The waiters get the locks that they can have, and no more.
    bench.waits_for(D, "k", Mode::Exclusive);
    bench.waits_for(C, "k", shared(0));
    bench.close(D);
    assert_eq!(bench.now_granted(), [] as [u64; 0]);
    bench.close(A);
    assert_eq!(bench.now_granted(), [3]);
}

#[test]
fn a_share_is_charged_like_a_lock() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    bench.shares(A, "k", 0);
    let alone = bench.core.held(A);
    let table_bytes = bench.core.locks().table_bytes();
    bench.shares(B, "k", 0);
    assert_eq!(bench.core.held(B), alone);
    bench
        .core
        .change_limits(|limits| limits.lock_bytes_per_connection_max = alone.bytes);
    bench.take(C, acquire("m", Mode::Exclusive));
    let too_many = Reply::Refused(Refusal::TooManyLocks);
    assert_eq!(bench.take(C, acquire("k", shared(0))), too_many);
    bench.gives_back(C, "m");
    // An item that is pinned already is not pinned again.
    let pinned_bytes = bench.core.manager.locks.table.pinned_bytes(0);
    bench
        .core
        .change_limits(|limits| limits.locked_bytes_max = pinned_bytes);
    bench.shares(C, "k", 0);
    for owner in [A, B] {
        bench.close(owner);
    }
    bench.gives_back(C, "k");
    bench.event(Event::Tick);
    assert_eq!(bench.core.locks().table_bytes(), 0);
    assert!(table_bytes > 0);
    assert_eq!(bench.core.manager.locks.table.pinned_bytes(0), 0);
}

/// An owner with thousands of shares ends in one step; no request sees any of them afterwards.
#[test]
fn many_shares_end_at_once() {
    let mut bench = bench();
    let names: Vec<_> = (0..150).map(|number| alloc::format!("k{number}")).collect();
    for name in &names {
        bench.shares(A, name, 2);
        bench.shares(B, name, 2);
    }
    bench.waits_for(C, "k149", Mode::Exclusive);
    bench.waits_for(D, "k149", shared(2));
    bench.close(A);
    assert_eq!(bench.core.locks().len(), 150);
    assert_eq!(bench.holders("k75"), [2]);
    bench.ask(B, GlobalCommand::UnlockAll);
    assert_eq!(bench.core.locks().len(), 0);
    assert_eq!(bench.holders("k149"), [] as [u64; 0]);
    // The shares of 150 keys are removed first; that is more than one command does, and a deadline is set.
    assert_eq!(bench.now_granted(), [] as [u64; 0]);
    let now = Instant::from_millis(bench.now_ms);
    assert!(bench.core.wants_tick() && bench.core.next_deadline() == Some(now));
    bench.take(B, acquire("k76", Mode::Exclusive));
    bench.core.handle(now, Event::Due);
    assert_eq!(bench.now_granted(), [3]);
    assert!(!bench.core.wants_tick());
    for _ in 0..40 {
        bench.event(Event::Tick);
    }
    assert_eq!(bench.holders("k76"), [2]);
    assert_eq!(bench.holders("k149"), [3]);
}

#[test]
fn last_share_releases_delayed_effects() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    bench.shares(A, "k", 0);
    bench.shares(B, "k", 0);
    let flush = GlobalCommand::FlushAll {
        at: Exptime::default(),
    };
    bench.ask(C, flush);
    bench.gives_back(A, "k");
    assert_eq!(bench.value("k"), Some(b"1".to_vec()));
    bench.gives_back(B, "k");
    assert_eq!(bench.value("k"), None);
}

/// The bytes of a wait in the table of locks are computed beforehand and are exact: 0 if the lock is shared or has a
/// waiter already.
#[test]
fn wait_adds_the_computed_bytes() {
    let mut bench = bench();
    for owner in [A, B, C] {
        bench.shares(owner, "shared", 3);
    }
    let long = "k".repeat(250);
    bench.take(A, acquire(&long, Mode::Exclusive));
    let mut added = Vec::new();
    for (owner, name) in [(D, "shared"), (B, &*long)] {
        let before = bench.core.locks().table_bytes();
        let reckoned = bench.core.manager.locks.table.bytes_for_waited(key(name));
        bench.waits_for(owner, name, Mode::Exclusive);
        assert_eq!(bench.core.locks().table_bytes() - before, reckoned);
        assert_eq!(
            bench.core.manager.locks.table.bytes_for_waited(key(name)),
            0
        );
        added.push(reckoned);
    }
    assert_eq!(added[0], 0);
    assert!(added[1] > 250);
}

/// Every byte of a key is reckoned as often as it is kept.
#[test]
fn bytes_of_waits_grow_with_the_key() {
    let (short, long) = ("k".repeat(10), "k".repeat(110));
    let (short, long) = (key(&short), key(&long));
    let grows = |bytes_for: fn(Key<'_>) -> usize| {
        assert!(bytes_for(short) > 64);
        bytes_for(long) - bytes_for(short)
    };
    assert_eq!(grows(LockTable::bytes_for), 100);
    assert_eq!(grows(BoundWins::bytes_for), 100);
    assert_eq!(grows(WaitTable::bytes_for), 300);
    assert_eq!(grows(WinWaits::bytes_for), 300);
    let apart = WaitTable::bytes_for(short) - LockTable::bytes_for_share(short);
    assert!(
        apart > 20,
        "a wait takes more than the lock that is given to it"
    );
    let apart = WinWaits::bytes_for(short) - BoundWins::bytes_for(short);
    assert!(
        apart > 20,
        "a wait takes more than the win that is given to it"
    );
}

#[test]
fn holders_are_known() {
    let mut bench = bench();
    assert!(bench.core.locks().is_empty());
    bench.shares(A, "k", 2);
    bench.shares(C, "k", 2);
    bench.take(C, acquire("other", Mode::Exclusive));
    let locks = bench.core.locks();
    assert!(!locks.is_empty());
    assert_eq!((locks.len(), locks.holders()), (3, 2));
    assert!(locks.open_connections().eq([A, B, C, D]));
    bench.gives_back(A, "k");
    assert_eq!(bench.core.locks().holders(), 1);
    bench.close(C);
    assert!(bench.core.locks().is_empty());
}

#[test]
fn shares_that_expire_together_count_singly() {
    let mut bench = bench();
    bench.set(A, "k", "v");
    for owner in [A, C, D] {
        let leased = Acquire {
            lease: Some(Lease::For { ms: 100 }),
            ..acquire("k", shared(3))
        };
        assert!(matches!(bench.take(owner, leased), Reply::Granted(_)));
    }
    bench.now_ms = 200;
    assert!(bench.value("k").is_some());
    let Reply::Stats(report) = bench.ask(A, GlobalCommand::Stats(StatsTopic::General)) else {
        panic!("these are numbers");
    };
    assert_eq!(report.stats.counters.lock_expired, 3);
}

/// The shares of many keys end in one step, and are released a few with every command; those of a key that a command is about
/// are released before it.
#[test]
fn shares_that_end_together_are_released_in_pieces() {
    const LAST: u64 = 49;
    let names: Vec<_> = (0..20).map(|number| alloc::format!("k{number}")).collect();
    for is_lease in [false, true] {
        let mut bench = Bench::of(Core::new(config(64 << 20)));
        let lease = is_lease.then_some(Lease::For { ms: 1_000 });
        bench.event(Event::Opened(C));
        for number in 10..=LAST {
            let owner = Owner::from_number(number);
            bench.event(Event::Opened(owner));
            for name in &names {
                let share = Acquire {
                    lease,
                    ..acquire(name, shared(0))
                };
                assert!(matches!(bench.take(owner, share), Reply::Granted(_)));
            }
        }
        bench.shares(A, "k7", 0);
        bench.waits_for(C, "k7", Mode::Exclusive);
        let left = |bench: &Bench<LogStore>| bench.core.manager.locks.table.share_entries();
        let all = left(&bench);
        if is_lease {
            bench.now_ms = 1_001;
        } else {
            for number in 10..=LAST {
                bench.close(Owner::from_number(number));
            }
        }
        let each_max = bench.core.limits().locks_settled_max;
        let mut before = left(&bench);
        // Each end updates as many keys before it as after it.
        assert!(all - before <= 2 * each_max * 40);
        for round in 0..6 {
            bench.set(B, "other", "1");
            bench.core.check();
            assert!(before - left(&bench) <= each_max, "{round}");
            before = left(&bench);
        }
        assert!(before > 0, "no command does the work of many");
        // For every request, they ended all at once.
        bench.take(B, acquire("k19", Mode::Exclusive));
        assert_eq!(bench.holders("k19"), [2]);
        bench.shares(B, "k18", 1);
        assert_eq!(bench.holders("k7"), [1]);
        assert_eq!(bench.now_granted(), [] as [u64; 0]);
        assert_eq!(bench.gives_back(A, "k7"), Reply::Unlocked);
        assert_eq!(bench.now_granted(), [3]);
        bench.event(Event::Tick);
        assert_eq!((left(&bench), bench.core.locks().len()), (1, 3));
    }
}

/// Locks that end together are handed to their waiters in pieces, and every grant is charged.
#[test]
fn grants_to_many_waiters_are_bounded_work() {
    const SHARERS: u64 = 200;
    let mut bench = Bench::of(Core::new(config(64 << 20)));
    let names = ["a", "b", "c", "d"];
    for (from, name) in (10..).step_by(1_000).zip(names) {
        bench.take(A, acquire(name, Mode::Exclusive));
        for number in from..from + SHARERS {
            let conn = Owner::from_number(number);
            bench.event(Event::Opened(conn));
            bench.waits_for(conn, name, shared(0));
        }
    }
    let before = bench.core.work();
    assert_eq!(bench.gives_back(A, "a"), Reply::Unlocked);
    assert!(bench.core.work() - before >= SHARERS);
    assert_eq!(bench.now_granted().len() as u64, SHARERS);
    bench.close(A);
    bench.core.check();
    assert_eq!(bench.now_granted().len() as u64, 2 * SHARERS);
    assert!(bench.core.wants_tick());
    bench.set(B, "other", "1");
    bench.core.check();
    assert_eq!(bench.now_granted().len() as u64, SHARERS);
}
