//! The waiters for locks, and the order of their grants.

use alloc::string::{String, ToString};

mod withheld;

use super::*;
use latchd_protocol::command::{Acquire, Lease, Release, ReleaseOf, Wait};
use latchd_protocol::fence::Fence;
use latchd_protocol::wait::{Notice, Outcome};

const C: Owner = Owner::from_number(3);
const D: Owner = Owner::from_number(4);

/// `ml <name> w10000`, with the changes of `with`.
fn waiting<'a>(name: &'a str, with: impl FnOnce(&mut Acquire<'a>)) -> Command<'a> {
    let mut acquire = Acquire {
        wait: Wait::UpTo { ms: 10_000 },
        ..Acquire::new(key(name))
    };
    with(&mut acquire);
    ItemCommand::Acquire(acquire).into()
}

fn now_or_never(name: &str) -> Command<'_> {
    ItemCommand::Acquire(Acquire::new(key(name))).into()
}

fn give_back(name: &str) -> Command<'_> {
    ItemCommand::Release(Release::new(key(name))).into()
}

fn notice(owner: Owner, outcome: Outcome) -> Notice {
    Notice { owner, outcome }
}

impl<S: Store> Bench<S> {
    fn of_four(mut self) -> Self {
        for owner in [C, D] {
            self.event(Event::Opened(owner));
        }
        self
    }

    fn holds(&mut self, owner: Owner, name: &str) -> Fence {
        match self.ask(owner, now_or_never(name)) {
            Reply::Granted(granted) => granted.fence,
            other => panic!("{other:?}"),
        }
    }

    fn waits(&mut self, owner: Owner, name: &str) {
        assert_eq!(self.ask(owner, waiting(name, |_| {})), Reply::Waits);
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        self.core.check();
        core::iter::from_fn(|| self.core.poll().and_then(Notification::wait_over)).collect()
    }

    /// Only the granted waiter gets a notice.
    fn is_given(&mut self, owner: Owner, name: &str) {
        assert_eq!(self.take_notices(), [notice(owner, Outcome::Granted)]);
        assert_eq!(self.core.locks().owner(key(name)), Some(owner));
    }

    fn passes(&mut self, ms: u64) {
        self.now_ms += ms;
        self.core
            .handle(Instant::from_millis(self.now_ms), Event::Due);
        self.core.check();
    }
}

fn bench() -> Bench {
    Bench::new().of_four()
}

#[test]
fn locks_are_given_in_the_order_of_arrival() {
    let mut bench = bench();
    let first = bench.holds(A, "k");
    for owner in [C, B, D] {
        bench.waits(owner, "k");
    }
    assert_eq!(bench.take_notices(), []);
    bench.ask(A, give_back("k"));
    bench.is_given(C, "k");
    // No request is served before the waiters.
    let Reply::Contended(seen) = bench.ask(A, now_or_never("k")) else {
        panic!("it is C's");
    };
    assert_eq!((seen.holder, seen.waiting), (C, 2));
    assert!(seen.fence > first);
    bench.ask(C, give_back("k"));
    bench.is_given(B, "k");
    bench.waits(A, "k");
    bench.ask(B, give_back("k"));
    bench.is_given(D, "k");
    bench.ask(D, give_back("k"));
    bench.is_given(A, "k");
    assert_eq!(bench.core.waits().len(), 0);
    assert_eq!(bench.core.waits().table_bytes(), 0);
}

/// Each way in which a lock can end hands it over to the first waiter.
#[test]
fn every_end_of_a_lock_hands_over() {
    let fenced = |fence| Set {
        fence: Some(fence),
        lock: LockAfter::Release,
        ..Set::new(key("k"), b"2")
    };
    let mine = || Set {
        lock: LockAfter::Release,
        ..Set::new(key("k"), b"2")
    };
    let delete = || Delete {
        lock: LockAfter::Release,
        ..Delete::new(key("k"))
    };
    for way in 0..11 {
        for has_item in [false, true] {
            let mut bench = bench();
            if has_item {
                bench.set(A, "k", "1");
            }
            let fence = bench.holds(A, "k");
            bench.waits(B, "k");
            bench.waits(C, "k");
            match way {
                0 => drop(bench.ask(A, give_back("k"))),
                1 => drop(bench.ask(A, unlock("k"))),
                2 => drop(bench.ask(A, GlobalCommand::UnlockAll)),
                3 => bench.close(A),
                4 => drop(bench.ask(A, mine())),
                5 => drop(bench.ask(D, fenced(fence))),
                6 => {
                    bench.ask(
                        A,
                        ItemCommand::Acquire(Acquire {
                            lease: Some(Lease::For { ms: 100 }),
                            ..Acquire::new(key("k"))
                        }),
                    );
                    let at = Some(Instant::from_millis(101));
                    assert_eq!(bench.core.next_deadline(), at);
                    bench.passes(100);
                    assert_eq!(bench.take_notices(), []);
                    bench.passes(1);
                }
                7 if has_item => drop(bench.ask(A, delete())),
                8 if has_item => {
                    let mut counts = Arithmetic::new(key("k"), Direction::Increment, 1);
                    counts.lock = LockAfter::Release;
                    bench.ask(A, counts);
                }
                9 => {
                    bench.ask(A, GlobalCommand::FlushAll { at: Exptime::Never });
                    bench.ask(A, give_back("k"));
                    assert_eq!(bench.value("k"), None);
                }
                10 => {
                    bench.ask(
                        A,
                        ItemCommand::Release(Release {
                            of: ReleaseOf::OwnGrant(fence),
                            ..Release::new(key("k"))
                        }),
                    );
                }
                _ => continue,
            }
            bench.is_given(B, "k");
            assert!(bench.core.locks().in_force(key("k")).unwrap().fence > fence);
            assert_eq!(bench.core.waits().waiting(key("k")), 1);
            bench.close(B);
            bench.is_given(C, "k");
        }
    }
}

/// The lock of an item ends with the item, and the waiter holds the key then.
#[test]
fn a_lock_that_goes_with_its_item_is_handed_over() {
    for keeps in [LockAfter::Keep, LockAfter::Release] {
        let mut bench = bench();
        bench.set(A, "k", "1");
        assert_eq!(bench.ask(A, lock("k")), Reply::Locked);
        bench.waits(B, "k");
        let delete = Delete {
            lock: keeps,
            ..Delete::new(key("k"))
        };
        assert_eq!(bench.ask(A, delete), Reply::Deleted);
        bench.is_given(B, "k");
        assert_eq!(bench.set(A, "k", "2"), Reply::Refused(Refusal::Locked));
        assert!(matches!(bench.set(B, "k", "2"), Reply::Stored(_)));
    }
}

#[test]
fn classic_lock_is_refused_before_waiters() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    assert_eq!(bench.ask(A, lock("k")), Reply::Locked);
    bench.waits(B, "k");
    bench.ask(A, unlock("k"));
    bench.is_given(B, "k");
    assert_eq!(bench.ask(A, lock("k")), Reply::Refused(Refusal::Locked));
    let get = Get {
        lock: true,
        ..Get::new(key("k"))
    };
    assert_eq!(bench.ask(C, get), Reply::Refused(Refusal::Locked));
    assert_eq!(bench.set(A, "k", "2"), Reply::Refused(Refusal::Locked));
    // A change of the item does not change the queue.
    bench.waits(C, "k");
    assert!(matches!(bench.set(B, "k", "2"), Reply::Stored(_)));
    assert_eq!(bench.ask(B, Delete::new(key("k"))), Reply::Deleted);
    bench.ask(D, GlobalCommand::FlushAll { at: Exptime::Never });
    assert_eq!(bench.take_notices(), []);
    assert_eq!(bench.ask(B, unlock("k")), Reply::Unlocked);
    bench.is_given(C, "k");
}

#[test]
fn grant_shows_the_item_at_reply_time() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    bench.holds(A, "k");
    let look = |acquire: &mut Acquire<'_>| {
        acquire.reads_item = true;
        acquire.lease = Some(Lease::For { ms: 1_000 });
    };
    assert_eq!(bench.ask(B, waiting("k", look)), Reply::Waits);
    bench.set(A, "k", "2");
    bench.now_ms = 400;
    bench.ask(A, give_back("k"));
    bench.is_given(B, "k");
    bench.now_ms = 700;
    let Reply::Granted(granted) = bench.ask(B, waiting("k", look).without_wait()) else {
        panic!("it is B's");
    };
    assert_eq!(granted.item.unwrap().value.len(), 1);
    let held = bench.core.locks().in_force(key("k")).unwrap();
    // Its lease lasts from when it was granted.
    assert_eq!(held.lease_until, Some(Instant::from_millis(1_401)));
    assert_eq!(held.since, Instant::from_millis(400));
    // It is notified once: after that, it is a holder like any other.
    assert!(matches!(
        bench.ask(B, now_or_never("k")),
        Reply::Contended(_)
    ));
    assert_eq!(bench.core.counters().cmd_lock, 3);
}

/// A grant that is over before its holder hears of it: it is as if it asked then.
#[test]
fn a_grant_may_be_over_before_it_is_told() {
    let mut bench = bench();
    let lease = |acquire: &mut Acquire<'_>| acquire.lease = Some(Lease::For { ms: 100 });
    let late = waiting("k", lease).without_wait();
    for is_taken in [false, true] {
        bench.holds(A, "k");
        assert_eq!(bench.ask(B, waiting("k", lease)), Reply::Waits);
        bench.ask(A, give_back("k"));
        bench.is_given(B, "k");
        bench.passes(101);
        if is_taken {
            bench.holds(C, "k");
            assert!(matches!(bench.ask(B, late), Reply::Contended(_)));
        } else {
            assert!(matches!(bench.ask(B, late), Reply::Granted(_)));
            bench.ask(B, give_back("k"));
        }
    }
}

#[test]
fn a_wait_has_an_end() {
    let mut bench = bench();
    bench.holds(A, "k");
    let short = |ms| move |acquire: &mut Acquire<'_>| acquire.wait = Wait::UpTo { ms };
    let day = 24 * 3600 * 1000;
    assert_eq!(bench.ask(B, waiting("k", short(day))), Reply::Waits);
    assert_eq!(bench.ask(C, waiting("k", short(50))), Reply::Waits);
    assert!(matches!(
        bench.ask(D, waiting("k", short(0))),
        Reply::Contended(_)
    ));
    assert_eq!(bench.core.next_deadline(), Some(Instant::from_millis(51)));
    bench.passes(50);
    assert_eq!(bench.take_notices(), []);
    // With any event, also a request of another connection.
    bench.now_ms = 51;
    bench.ask(A, Get::new(key("x")));
    assert_eq!(bench.take_notices(), [notice(C, Outcome::TimedOut)]);
    // An hour is the most.
    let hour = Some(Instant::from_millis(3_600_001));
    assert_eq!(bench.core.next_deadline(), hour);
    assert_eq!(bench.core.counters().lock_wait_timeouts, 1);
}

/// Q8: in the moment in which a wait ends, the lock comes too late for it.
#[test]
fn late_waiter_gets_no_lock() {
    let mut bench = bench();
    bench
        .core
        .change_limits(|limits| limits.locks_settled_max = 0);
    bench.holds(A, "k");
    bench.waits(B, "k");
    bench.now_ms = 5_000;
    bench.waits(C, "k");
    bench.now_ms = 10_001;
    bench.ask(A, give_back("k"));
    let both = [notice(B, Outcome::TimedOut), notice(C, Outcome::Granted)];
    assert_eq!(bench.take_notices(), both);
    assert_eq!(bench.core.counters().lock_wait_timeouts, 1);
    let Reply::Contended(seen) = bench.ask(B, now_or_never("k")) else {
        panic!("it is C's");
    };
    assert_eq!((seen.holder, seen.waiting), (C, 0));
}

#[test]
fn gone_waiter_is_passed_over() {
    let mut bench = bench();
    bench.holds(A, "k");
    for owner in [B, C, D] {
        bench.waits(owner, "k");
    }
    bench.close(B);
    bench.ask(A, give_back("k"));
    bench.is_given(C, "k");
    // It goes before it hears of it: the next is given it.
    bench.waits(A, "k");
    bench.close(C);
    bench.is_given(D, "k");
    bench.close(A);
    bench.ask(D, give_back("k"));
    assert_eq!(bench.take_notices(), []);
    assert_eq!(bench.core.locks().len(), 0);
}

#[test]
fn a_lock_of_an_item_that_has_gone_is_the_next_ones() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    bench.holds(A, "k");
    let item = |acquire: &mut Acquire<'_>| acquire.needs_item = true;
    assert_eq!(bench.ask(B, waiting("k", item)), Reply::Waits);
    bench.waits(C, "k");
    assert_eq!(bench.ask(D, waiting("k", item)), Reply::Waits);
    bench.ask(A, Delete::new(key("k")));
    bench.ask(A, give_back("k"));
    let expected = [notice(B, Outcome::NotFound), notice(C, Outcome::Granted)];
    assert_eq!(bench.take_notices(), expected);
    // And if it is there again, it is granted.
    bench.set(C, "k", "2");
    bench.ask(C, give_back("k"));
    bench.is_given(D, "k");
}

#[test]
fn wait_that_closes_a_cycle_is_refused() {
    let mut bench = bench();
    for (owner, name) in [(A, "a"), (B, "b"), (C, "c")] {
        bench.holds(owner, name);
    }
    bench.waits(A, "b");
    bench.waits(B, "c");
    // A wait behind others is no cycle.
    bench.waits(D, "b");
    let Reply::WouldDeadlock(seen) = bench.ask(C, waiting("a", |_| {})) else {
        panic!("A waits for B, B for C");
    };
    assert_eq!((seen.holder, seen.waiting), (A, 0));
    // For oneself, too.
    assert!(matches!(
        bench.ask(C, waiting("c", |_| {})),
        Reply::WouldDeadlock(_)
    ));
    // Without waiting there is none.
    assert!(matches!(
        bench.ask(C, now_or_never("a")),
        Reply::Contended(_)
    ));
    // It gives way, and the others go on.
    bench.ask(C, GlobalCommand::UnlockAll);
    bench.is_given(B, "c");
    bench.waits(C, "a");
    bench.close(A);
    bench.is_given(C, "a");
    assert_eq!(bench.core.counters().lock_deadlocks, 2);
}

#[test]
fn waits_have_bounds() {
    let too_many = Reply::Refused(Refusal::TooManyLocks);
    let mut bench = bench();
    bench
        .core
        .change_limits(|limits| limits.waits_per_key_max = 1);
    bench.holds(A, "a");
    bench.holds(A, "b");
    bench.waits(B, "a");
    assert_eq!(bench.ask(C, waiting("a", |_| {})), too_many);
    // One at a time.
    assert_eq!(bench.ask(B, waiting("b", |_| {})), too_many);
    bench.core.change_limits(|limits| limits.waits_max = 1);
    assert_eq!(bench.ask(C, waiting("b", |_| {})), too_many);
    // Notices that were not taken count, so that they cannot grow without bound.
    bench.ask(A, give_back("a"));
    assert_eq!(bench.ask(C, waiting("b", |_| {})), too_many);
    bench.is_given(B, "a");
    bench.waits(C, "b");
    bench.core.change_limits(|limits| limits.waits_max = 9);
    let table_bytes = bench.core.lock_memory_bytes();
    bench
        .core
        .change_limits(|limits| limits.lock_table_bytes_max = table_bytes);
    bench
        .core
        .change_limits(|limits| limits.waits_per_key_max = 9);
    assert_eq!(bench.ask(D, waiting("b", |_| {})), too_many);
    bench
        .core
        .change_limits(|limits| limits.lock_table_bytes_max *= 2);
    bench.core.change_limits(|limits| limits.wait_chain_max = 1);
    bench.waits(D, "b");
    bench.holds(C, "c");
    assert_eq!(bench.ask(A, waiting("c", |_| {})), too_many);
    bench
        .core
        .change_limits(|limits| limits.locks_per_connection_max = 1);
    bench.core.change_limits(|limits| limits.wait_chain_max = 9);
    let closed = Owner::from_number(9);
    assert_eq!(
        bench.ask(closed, waiting("c", |_| {})),
        Reply::Refused(Refusal::ConnectionClosed)
    );
    assert_eq!(bench.ask(B, waiting("c", |_| {})), too_many);
}

/// A lock that is handed over must fit into the bounds of its new holder.
#[test]
fn waiter_over_its_bounds_is_passed_over() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    bench.holds(A, "k");
    bench.waits(B, "k");
    bench.waits(C, "k");
    bench
        .core
        .change_limits(|limits| limits.locks_per_connection_max = 1);
    bench.holds(B, "other");
    assert_eq!(bench.core.counters().cmd_lock, 2);
    bench.ask(A, give_back("k"));
    let expected = [
        notice(B, Outcome::TooManyLocks),
        notice(C, Outcome::Granted),
    ];
    assert_eq!(bench.take_notices(), expected);
    // B's is answered with that; C's is counted when it asks again.
    assert_eq!(bench.core.counters().cmd_lock, 3);
}

/// L14: Of very many locks that end at once, those with waiters come first, and no request comes in between, whatever
/// their number.
#[test]
fn of_many_that_end_at_once_those_that_are_waited_for_come_first() {
    for is_lease in [false, true] {
        let mut bench = Bench::new();
        bench
            .core
            .change_limits(|limits| limits.locks_settled_max = 2);
        bench
            .core
            .change_limits(|limits| limits.crawl_items_max = 3);
        let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let lease = is_lease.then_some(Lease::For { ms: 1_000 });
        for name in &names {
            let acquire = Acquire {
                lease,
                ..Acquire::new(key(name))
            };
            let granted = bench.ask(A, ItemCommand::Acquire(acquire));
            assert!(matches!(granted, Reply::Granted(_)));
        }
        let waits: Vec<_> = names.iter().skip(90).zip(10..).collect();
        for (name, number) in &waits {
            let owner = Owner::from_number(*number);
            bench.event(Event::Opened(owner));
            bench.waits(owner, name);
        }
        let mut notices = Vec::new();
        if is_lease {
            bench.now_ms = 1_001;
        } else {
            bench.close(A);
            notices.extend(bench.take_notices());
            assert_eq!(notices.len(), 2, "no step does the work of many");
            assert!(bench.core.wants_tick());
        }
        // Each request finds the key held by its former waiter.
        let (name, number) = waits.last().unwrap();
        let Reply::Contended(seen) = bench.ask(B, now_or_never(name)) else {
            panic!("somebody waits for it");
        };
        assert_eq!(seen.holder, Owner::from_number(*number));
        notices.extend(bench.take_notices());
        for _ in 0..4 {
            let at = bench.core.next_deadline();
            let now = Instant::from_millis(bench.now_ms);
            assert!(notices.len() == 10 || at.is_some_and(|at| at <= now));
            bench.passes(0);
            notices.extend(bench.take_notices());
        }
        assert_eq!(notices.len(), 10);
        for (name, number) in waits {
            let owner = Owner::from_number(number);
            assert!(notices.contains(&notice(owner, Outcome::Granted)));
            assert_eq!(bench.core.locks().owner(key(name)), Some(owner));
        }
        assert!(bench.core.locks().iter().count() > 50, "the rest can wait");
        for _ in 0..50 {
            bench.event(Event::Tick);
        }
        assert_eq!(bench.core.locks().iter().count(), 10);
    }
}

#[test]
fn ten_thousand_wait_and_half_of_them_go() {
    let mut bench = Bench::of(Core::new(config(256 << 20)));
    bench.holds(A, "k");
    let owners: Vec<Owner> = (10..10_010).map(Owner::from_number).collect();
    let now = Instant::default();
    for owner in &owners {
        bench.core.handle(now, Event::Opened(*owner));
        let reply = bench.core.execute(now, *owner, &waiting("k", |_| {}));
        assert_eq!(reply, Reply::Waits);
    }
    for owner in owners.iter().step_by(2) {
        bench.core.handle(now, Event::Closed(*owner));
    }
    bench.core.check();
    bench.core.handle(now, Event::Closed(A));
    for owner in owners.iter().skip(1).step_by(2) {
        let polled = bench.core.poll().and_then(Notification::wait_over);
        assert_eq!(polled, Some(notice(*owner, Outcome::Granted)));
        let reply = bench.core.execute(now, *owner, &give_back("k"));
        assert_eq!(reply, Reply::Unlocked);
    }
    bench.core.check();
    assert_eq!(bench.core.poll().and_then(Notification::wait_over), None);
    assert_eq!(bench.core.lock_memory_bytes(), 0);
}

#[test]
fn stats_show_the_waiters() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    bench.holds(A, "k");
    bench.waits(B, "k");
    bench.waits(C, "k");
    let Reply::Hit(hit) = bench.ask(D, Get::new(key("k"))) else {
        panic!("it is there");
    };
    assert_eq!(hit.lock.unwrap().waiting, 2);
    let lines = bench.core.lock_lines();
    assert_eq!(
        lines[0].value,
        "mode=x,conn=1,held=0,waiting=2,fence=1,lease=-1,holders=1"
    );
    let Reply::Stats(report) = bench.ask(D, GlobalCommand::Stats(StatsTopic::General)) else {
        panic!("these are numbers");
    };
    let Stats { counters, gauges } = report.stats;
    assert_eq!((gauges.lock_waiting, counters.lock_waits), (2, 2));
    assert_eq!((counters.cmd_lock, counters.lock_contended), (1, 0));
}

#[test]
fn a_line_tells_for_how_long_a_lock_was_held_and_is_leased() {
    let mut bench = bench();
    bench.passes(500);
    bench.ask(
        A,
        waiting("k", |acquire| {
            acquire.lease = Some(Lease::For { ms: 10_000 });
        }),
    );
    let line = |bench: &Bench| bench.core.lock_lines().remove(0).value;
    bench.passes(2_999);
    assert_eq!(
        line(&bench),
        "mode=x,conn=1,held=2,waiting=0,fence=1,lease=8,holders=1"
    );
    bench.passes(1);
    assert_eq!(
        line(&bench),
        "mode=x,conn=1,held=3,waiting=0,fence=1,lease=8,holders=1"
    );
    bench.passes(1);
    assert_eq!(
        line(&bench),
        "mode=x,conn=1,held=3,waiting=0,fence=1,lease=7,holders=1"
    );
    bench.passes(3_000);
    assert_eq!(
        line(&bench),
        "mode=x,conn=1,held=6,waiting=0,fence=1,lease=4,holders=1"
    );
}

#[test]
fn has_waits_until_last_notice_is_taken() {
    let mut bench = bench();
    bench.holds(A, "k");
    assert!(!bench.core.has_waits(), "who holds it does not wait");
    bench.waits(B, "k");
    assert!(bench.core.has_waits());
    bench.ask(A, give_back("k"));
    assert!(bench.core.has_waits(), "its notice is not read");
    bench.is_given(B, "k");
    assert!(!bench.core.has_waits());
}

/// A wait needs free memory for all its tables, including those of the lock for its first waiter, and no more.
#[test]
fn a_wait_has_room_to_the_byte() {
    let held = || {
        let mut bench = bench();
        bench.holds(A, "k");
        let bytes = bench.core.lock_memory_bytes();
        (bench, bytes)
    };
    let (mut bench, before) = held();
    bench.waits(B, "k");
    let after = bench.core.lock_memory_bytes();
    assert!(after > before + WaitTable::bytes_for(key("k")));
    for (table_bytes_max, is_refused) in [(after - 1, true), (after, false)] {
        let (mut bench, _) = held();
        bench
            .core
            .change_limits(|limits| limits.lock_table_bytes_max = table_bytes_max);
        let reply = bench.ask(B, waiting("k", |_| {}));
        assert_eq!(reply == Reply::Refused(Refusal::TooManyLocks), is_refused);
        assert_eq!(reply == Reply::Waits, !is_refused);
    }
}

/// L13: The expired locks of an owner do not count against the lock that it gets at that moment, although the lock with
/// waiters is removed first.
#[test]
fn a_lease_that_is_over_leaves_room_in_the_share() {
    let of_a_second = |acquire: &mut Acquire<'_>| acquire.lease = Some(Lease::For { ms: 1_000 });
    for with_item in [false, true] {
        let mut bench = bench();
        let mut share = LockTable::bytes_for(key("b"));
        if with_item {
            bench.set(C, "a", "1");
            bench.set(C, "b", "1");
            let slot = bench.core.store().find(key("b")).unwrap();
            share += bench.core.store().item_bytes(slot);
        }
        bench
            .core
            .change_limits(|limits| limits.lock_bytes_per_connection_max = share);
        for (owner, name) in [(A, "a"), (B, "b")] {
            let reply = bench.ask(owner, waiting(name, of_a_second));
            assert!(matches!(reply, Reply::Granted(_)), "{reply:?}");
        }
        bench.waits(A, "b");
        bench.passes(1_000);
        assert_eq!(bench.take_notices(), []);
        bench.passes(1);
        bench.is_given(A, "b");
        assert_eq!(bench.core.locks().owner(key("a")), None);
        // It has its share now, and no more.
        let refused = Reply::Refused(Refusal::TooManyLocks);
        assert_eq!(bench.ask(A, now_or_never("a")), refused);
    }
}

#[test]
fn a_session_is_told_nothing_of_the_wait_that_it_has_left() {
    let session = Owner::of_session(9);
    let mut bench = bench();
    bench.event(Event::Opened(session));
    bench.holds(A, "a");
    bench.holds(A, "b");
    bench.waits(session, "a");
    // Its time is over, and nobody has taken the notice yet.
    bench.passes(10_000);
    assert!(!bench.core.has_notices());
    bench.passes(1);
    bench.event(Event::Due);
    assert!(bench.core.has_notices());
    bench.waits(session, "b");
    assert_eq!(bench.take_notices(), []);
    assert_eq!(bench.ask(A, give_back("a")), Reply::Unlocked);
    assert_eq!(bench.ask(A, give_back("b")), Reply::Unlocked);
    bench.is_given(session, "b");
}
