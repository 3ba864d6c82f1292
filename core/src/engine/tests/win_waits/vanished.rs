//! Items that vanish while gets wait for them: expired, flushed, evicted.

use super::*;

#[test]
fn expired_item_is_made_for_first_vivifier() {
    let mut bench = bench();
    let short = Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 2 })),
        ..bound("k")
    };
    bench.win(A, short);
    let plain = Get {
        wait_ms: 9_000,
        ..meta_get("k")
    };
    bench.parks(B, plain);
    bench.parks(C, patient("k"));
    bench.parks(D, patient("k"));
    let end = bench.core.next_deadline().expect("the end of the item");
    assert!(end.as_millis() <= 2_250);
    bench.let_pass(end.as_millis());
    // A get that does not vivify has a miss.
    assert_eq!(bench.notices(), [(B, Outcome::NotFound), (C, GRANTED)]);
    assert_eq!(bench.core.counters().get_misses, 1);
    assert_eq!(bench.win(C, again(patient("k"))), Win::Won);
    bench.close(C);
    assert_eq!(bench.notices(), [(D, GRANTED)]);
}

/// The item that is made for a waiting get is the one that it would have made at once.
#[test]
fn made_item_has_the_waiters_options() {
    for bump in [false, true] {
        let mut bench = bench();
        let short = Get {
            steps: TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 2 })),
            ..bound("k")
        };
        bench.win(A, short);
        let chosen = Cas::new(1 << 40).expect("not 0");
        let waiting = Get {
            key_form: KeyForm::Binary,
            new_cas: NewCas::Is(chosen),
            bump,
            ..patient("k")
        };
        bench.parks(B, waiting);
        let end = bench.core.next_deadline().expect("the end of the item");
        bench.let_pass(end.as_millis());
        assert_eq!(bench.notices(), [(B, GRANTED)]);
        let (made, _) = bench.core.peek(key("k")).expect("it was made");
        assert_eq!(
            (made.key_form, made.cas, made.fetched),
            (KeyForm::Binary, chosen, bump)
        );
    }
}

#[test]
fn new_get_finds_item_made_for_waiters() {
    let mut bench = bench();
    bench.win(A, vivifying("k"));
    let patient = Get {
        wait_ms: 100_000,
        ..patient("k")
    };
    bench.parks(B, patient);
    bench.now_ms += 31_000;
    assert_eq!(bench.win(C, vivifying("k")), Win::Sent);
    assert_eq!(bench.notices(), [(B, GRANTED)]);
    assert_eq!(bench.win(B, again(patient)), Win::Won);
}

/// No step sees an eviction; the next tick finds it.
#[test]
fn an_eviction_is_noticed_by_the_next_tick() {
    let mut bench = Bench::with_memory(1 << 14).of_four_getters();
    bench.win(A, bound("k"));
    bench.parks(B, patient("k"));
    for number in 0..200 {
        let name = alloc::format!("filler{number}");
        bench.set(C, &name, "some value that uses bytes");
    }
    assert!(bench.core.peek(key("k")).is_none(), "it is evicted");
    assert_eq!(bench.notices(), []);
    bench.event(Event::Tick);
    assert_eq!(bench.notices(), [(B, GRANTED)]);
    assert_eq!(bench.win(B, again(patient("k"))), Win::Won);
    bench.close(A);
    assert_eq!(bench.win(C, bound("k")), Win::Sent);
}

/// More locks end than one call removes; an item with waiters may be behind all of them.
#[test]
fn an_item_that_many_locks_held_off_goes_on_time() {
    type End = fn(&mut Bench);
    let ends: [End; 2] = [
        |bench| drop(bench.ask(B, GlobalCommand::UnlockAll)),
        |bench| bench.close(B),
    ];
    for end in ends {
        let mut bench = bench();
        for number in 0..3 * Limits::default().locks_settled_max {
            let name = alloc::format!("b{number}");
            bench.set(A, &name, "1");
            bench.ask(B, lock(&name));
        }
        assert_eq!(bench.win(A, vivifying("z")), Win::Won);
        bench.ask(B, lock("z"));
        bench.parks(
            C,
            Get {
                wait_ms: 60_000,
                ..meta_get("z")
            },
        );
        end(&mut bench);
        // A transport calls again as long as there is something to do at once.
        let now = Instant::from_millis(bench.now_ms);
        while bench.core.next_deadline() == Some(now) {
            bench.let_pass(0);
        }
        let next = bench.core.next_deadline().expect("somebody waits");
        assert!(
            next <= Instant::from_millis(bench.now_ms + 31_000),
            "{next:?}"
        );
        bench.let_pass(next.as_millis() - bench.now_ms);
        assert_eq!(bench.notices(), [(C, Outcome::NotFound)]);
    }
}

/// The placeholder has expired while its winner held its lock. It goes with the lock, and is made anew for the waiting
/// get, which wins it.
#[test]
fn a_winner_that_held_its_expired_item_takes_no_win_from_its_heir() {
    let mut bench = bench();
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    assert_eq!(bench.ask(A, lock("k")), Reply::Locked);
    bench.now_ms += 31_000;
    bench.parks(B, patient("k"));
    bench.close(A);
    assert_eq!(bench.notices(), [(B, GRANTED)]);
    assert_eq!(bench.win(C, vivifying("k")), Win::Sent);
    assert_eq!(bench.win(B, again(patient("k"))), Win::Won);
}

/// `mg <name> w60000`: makes nothing.
fn plain(name: &str) -> Get<'_> {
    Get {
        wait_ms: 60_000,
        ..meta_get(name)
    }
}

/// An item that is read for its waiters is counted like one that the crawler finds.
#[test]
fn vanished_item_of_waiters_is_counted() {
    for is_fetched in [false, true] {
        let mut bench = bench();
        let made = Get {
            bump: is_fetched,
            ..vivifying("k")
        };
        assert_eq!(bench.win(A, made), Win::Won);
        bench.parks(B, plain("k"));
        bench.let_pass(31_000);
        assert_eq!(bench.notices(), [(B, Outcome::NotFound)]);
        let counters = bench.core.counters();
        assert_eq!(
            (counters.reclaimed, counters.expired_unfetched),
            (1, u64::from(!is_fetched))
        );
    }
}

#[test]
fn an_item_is_found_expired_as_ever_while_another_is_won() {
    let mut bench = bench();
    assert_eq!(bench.win(A, bound("won")), Win::Won);
    bench.parks(C, patient("won"));
    bench.ask(A, expiring("k", 1));
    bench.now_ms = 2_000;
    assert_eq!(bench.value("k"), None);
    let counters = bench.core.counters();
    assert_eq!((counters.get_expired, counters.reclaimed), (1, 1));
}

#[test]
fn expired_item_with_bound_win_is_counted() {
    let mut bench = bench();
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    bench.let_pass(31_000);
    assert_eq!(bench.value("k"), None);
    let counters = bench.core.counters();
    assert_eq!((counters.get_expired, counters.reclaimed), (1, 1));
}

/// Also if no win is bound, so that only the queue of gets knows the key.
#[test]
fn next_tick_tells_waiters_of_an_eviction() {
    let mut bench = Bench::with_memory(8 << 10).of_four_getters();
    bench
        .core
        .change_limits(|limits| limits.lock_table_bytes_max = 4 << 10);
    assert_eq!(bench.win(A, vivifying("k")), Win::Won);
    bench.parks(B, plain("k"));
    let mut names = (0..100).map(|number| alloc::format!("{number}"));
    while bench.core.peek(key("k")).is_some() {
        let name = names.next().expect("it is not held");
        bench.set(C, &name, &"v".repeat(250));
    }
    assert_eq!(bench.notices(), []);
    bench.event(Event::Tick);
    assert_eq!(bench.notices(), [(B, Outcome::NotFound)]);
}

/// A few with every call: as long as there are more, there is something to do at once. An owner without wins and locks
/// ends without any such work.
#[test]
fn a_round_is_gone_on_with_until_all_were_looked_at() {
    let mut bench = bench();
    bench
        .core
        .change_limits(|limits| limits.crawl_items_max = 1);
    bench
        .core
        .change_limits(|limits| limits.locks_settled_max = 1);
    let names = ["a", "b", "c"];
    for (name, owner) in names.into_iter().zip([B, C, D]) {
        assert_eq!(bench.win(A, vivifying(name)), Win::Won);
        bench.parks(owner, patient(name));
    }
    let now = Some(Instant::default());
    let first_end = Some(Instant::from_millis(10_001));
    let nobody = Owner::from_number(9);
    bench.event(Event::Opened(nobody));
    bench.close(nobody);
    assert_eq!(bench.core.next_deadline(), first_end);
    bench.event(Event::Tick);
    for due in [now, now, first_end] {
        assert_eq!(bench.core.next_deadline(), due);
        bench.let_pass(0);
    }
    assert_eq!(bench.notices(), []);
}

/// An item that expires at once leaves nothing to the next get. However long the queue is, the step ends.
#[test]
fn crowd_without_lasting_item_is_woken() {
    let mut bench = bench();
    assert_eq!(bench.win(A, vivifying("k")), Win::Won);
    let fleeting = Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::Past)),
        wait_ms: 10_000,
        ..meta_get("k")
    };
    let crowd: Vec<_> = (10..210).map(Owner::from_number).collect();
    for owner in &crowd {
        bench.event(Event::Opened(*owner));
        assert_eq!(bench.ask(*owner, fleeting), Reply::Waits);
    }
    bench.ask(A, Delete::new(key("k")));
    let expected: Vec<_> = crowd.iter().map(|owner| (*owner, GRANTED)).collect();
    assert_eq!(bench.notices(), expected);
    assert_eq!(bench.core.lock_memory_bytes(), 0);
    assert_eq!(bench.win(crowd[0], again(fleeting)), Win::Won);
}
