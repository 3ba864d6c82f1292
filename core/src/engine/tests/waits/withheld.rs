//! Grants that are withheld: after a start, and before the end of a server.

use latchd_protocol::command::Mode;
use latchd_protocol::item::LEASE_ITEM;

use super::*;

/// A bench whose core withholds grants until 3 s, with an item `k`.
fn withheld() -> Bench {
    let mut bench = bench();
    bench.set(A, "k", "1");
    let until = Instant::from_millis(3_000);
    bench.event(Event::WithholdGrants(Some(until)));
    bench
}

fn lease_item(name: &str) -> Set<'_> {
    Set {
        client_flags: LEASE_ITEM,
        mode: SetMode::Add,
        ..Set::new(key(name), b"token")
    }
}

#[test]
fn withheld_locks_are_refused_until_the_moment() {
    let mut bench = withheld();
    for name in ["k", "missing"] {
        let needs_item = |needs_item| Acquire {
            needs_item,
            ..Acquire::new(key(name))
        };
        let shared = Acquire {
            mode: Mode::Shared { max_sharers: None },
            ..needs_item(false)
        };
        for acquire in [needs_item(false), needs_item(true), shared] {
            let reply = bench.ask(A, ItemCommand::Acquire(acquire));
            assert_eq!(reply, Reply::Withheld { waiting: 0 });
        }
        let locked = Reply::Refused(Refusal::Locked);
        assert_eq!(bench.ask(A, lock(name)), locked);
        let lock_and_get = Get {
            lock: true,
            ..Get::new(key(name))
        };
        assert_eq!(bench.ask(A, lock_and_get), locked);
    }
    assert_eq!(
        bench.ask(A, lease_item("lease")),
        Reply::Refused(Refusal::Locked)
    );
    bench.now_ms = 2_999;
    let reply = bench.ask(A, now_or_never("k"));
    assert_eq!(reply, Reply::Withheld { waiting: 0 });
    assert_eq!(
        bench.ask(A, lease_item("lease")),
        Reply::Refused(Refusal::Locked)
    );
    bench.now_ms = 3_000;
    bench.holds(A, "k");
    let stored = bench.ask(A, lease_item("lease"));
    assert!(matches!(stored, Reply::Stored(_)), "{stored:?}");
}

#[test]
fn withheld_grants_leave_items_alone() {
    let mut bench = withheld();
    bench.set(A, "k", "2");
    bench.set(B, "j", "3");
    assert_eq!(bench.value("k").as_deref(), Some(&b"2"[..]));
    assert_eq!(bench.ask(A, Delete::new(key("j"))), Reply::Deleted);
    // Not a lease: an item with other flags.
    let add = Set {
        client_flags: LEASE_ITEM + 1,
        ..lease_item("lease")
    };
    assert!(matches!(bench.ask(A, add), Reply::Stored(_)));
}

#[test]
fn waiters_get_withheld_locks_in_order() {
    let mut bench = withheld();
    for owner in [C, B, D] {
        bench.waits(owner, "k");
    }
    bench.waits(A, "missing");
    let reply = bench.ask(Owner::of_session(9), now_or_never("k"));
    assert_eq!(reply, Reply::Refused(Refusal::ConnectionClosed));
    bench.passes(2_999);
    assert_eq!(bench.take_notices(), []);
    assert_eq!(
        bench.core.next_deadline(),
        Some(Instant::from_millis(3_000))
    );
    bench.passes(1);
    assert_eq!(
        bench.take_notices(),
        [notice(C, Outcome::Granted), notice(A, Outcome::Granted)]
    );
    assert_eq!(bench.core.locks().owner(key("k")), Some(C));
    bench.close(C);
    bench.is_given(B, "k");
}

/// The request may come before the transport's event of that moment.
#[test]
fn no_request_overtakes_withheld_waiters() {
    let mut bench = withheld();
    bench.waits(C, "k");
    bench.now_ms = 3_000;
    let Reply::Contended(seen) = bench.ask(A, now_or_never("k")) else {
        panic!("it is C's");
    };
    assert_eq!(seen.holder, C);
    bench.is_given(C, "k");
}

#[test]
fn withheld_wait_ends_by_itself() {
    let mut bench = withheld();
    let soon = waiting("k", |acquire| acquire.wait = Wait::UpTo { ms: 10 });
    assert_eq!(bench.ask(A, soon), Reply::Waits);
    bench.waits(B, "k");
    bench.waits(C, "k");
    bench.close(B);
    bench.passes(10);
    assert_eq!(bench.take_notices(), []);
    bench.passes(1);
    assert_eq!(bench.take_notices(), [notice(A, Outcome::TimedOut)]);
    let reply = bench.ask(A, now_or_never("k"));
    assert_eq!(reply, Reply::Withheld { waiting: 1 });
    bench.passes(2_989);
    bench.is_given(C, "k");
}

/// A server that is about to end releases and renews, and grants nothing.
#[test]
fn ended_locks_go_to_no_waiter_while_withheld() {
    let mut bench = bench();
    let fence = bench.holds(A, "k");
    bench.set(B, "free", "1");
    bench.waits(C, "k");
    bench.event(Event::WithholdGrants(None));
    // A shorter time does not shorten it.
    bench.event(Event::WithholdGrants(Some(Instant::from_millis(1))));
    let renewal = Acquire {
        lease: Some(Lease::For { ms: 50 }),
        ..Acquire::new(key("k"))
    };
    let Reply::Granted(granted) = bench.ask(A, ItemCommand::Acquire(renewal)) else {
        panic!("it holds the lock");
    };
    assert_eq!(granted.fence, fence);
    bench.waits(D, "free");
    bench.passes(50);
    assert_eq!(bench.core.locks().len(), 1);
    bench.passes(1);
    assert_eq!(
        (bench.take_notices(), bench.core.locks().len()),
        (Vec::new(), 0)
    );
    let reply = bench.ask(A, now_or_never("k"));
    assert_eq!(reply, Reply::Withheld { waiting: 1 });
    bench.passes(9_949);
    assert_eq!(bench.take_notices(), []);
    bench.passes(1);
    let timed_out = [C, D].map(|owner| notice(owner, Outcome::TimedOut));
    assert_eq!(bench.take_notices(), timed_out);
}

/// Sharers that hold the lock keep it, and no other joins them.
#[test]
fn withheld_lock_gains_no_sharer() {
    let mut bench = bench();
    let shared = Acquire {
        mode: Mode::Shared { max_sharers: None },
        ..Acquire::new(key("k"))
    };
    bench.ask(A, ItemCommand::Acquire(shared));
    bench.event(Event::WithholdGrants(Some(Instant::from_millis(100))));
    let Reply::Contended(seen) = bench.ask(B, ItemCommand::Acquire(shared)) else {
        panic!("it is withheld");
    };
    assert_eq!((seen.holder, seen.is_shared), (A, true));
    for owner in [B, C] {
        let wait = Wait::UpTo { ms: 10_000 };
        let waits = Acquire { wait, ..shared };
        assert_eq!(bench.ask(owner, ItemCommand::Acquire(waits)), Reply::Waits);
    }
    bench.passes(100);
    let granted = [B, C].map(|owner| notice(owner, Outcome::Granted));
    assert_eq!(bench.take_notices(), granted);
}

/// More queues than one step hands over: each is handed over before a request sees its key.
#[test]
fn many_withheld_queues_are_handed_over_in_steps() {
    const KEYS: u64 = 1_000;
    let mut bench = Bench::of(Core::new(config(16 << 20)));
    let until = Instant::from_millis(3_000);
    bench.event(Event::WithholdGrants(Some(until)));
    let names: Vec<_> = (0..KEYS).map(|number| number.to_string()).collect();
    for (number, name) in (100..).zip(&names) {
        let owner = Owner::from_number(number);
        bench.core.handle(Instant::default(), Event::Opened(owner));
        bench.waits(owner, name);
    }
    bench.now_ms = 3_000;
    let last = names.last().unwrap();
    let Reply::Contended(seen) = bench.ask(A, now_or_never(last)) else {
        panic!("its waiter came first");
    };
    assert_eq!(seen.holder, Owner::from_number(99 + KEYS));
    let granted = bench.take_notices().len() as u64;
    assert!(granted < KEYS / 2, "{granted} in one step");
    assert!(bench.core.next_deadline() <= Some(Instant::from_millis(3_000)));
    for _ in 0..KEYS {
        bench.passes(0);
    }
    assert_eq!(granted + bench.take_notices().len() as u64, KEYS);
    assert_eq!(bench.core.waits().table_bytes(), 0);
}

/// An item that expires meanwhile is no item of the waiter's lock.
#[test]
fn withheld_queue_is_served_without_an_expired_item() {
    let mut bench = bench();
    bench.ask(A, expiring("k", 2));
    bench.event(Event::WithholdGrants(Some(Instant::from_millis(3_000))));
    let needs_item = waiting("k", |acquire| acquire.needs_item = true);
    assert_eq!(bench.ask(A, needs_item), Reply::Waits);
    bench.waits(B, "k");
    bench.passes(3_000);
    assert_eq!(
        bench.take_notices(),
        [notice(A, Outcome::NotFound), notice(B, Outcome::Granted)]
    );
}

/// A session that asks for another lock leaves its place, also in the queue of a free key.
#[test]
fn session_leaves_its_place_in_a_withheld_queue() {
    let mut bench = withheld();
    let session = Owner::of_session(9);
    bench.event(Event::Opened(session));
    bench.waits(session, "j");
    bench.waits(session, "k");
    bench.waits(session, "k");
    assert_eq!(bench.core.waits().len(), 1);
    bench.passes(3_000);
    bench.is_given(session, "k");
}
