//! The win, by example: which get recaches.

use super::*;

#[test]
fn of_all_gets_that_miss_exactly_one_wins() {
    let mut bench = Bench::new();
    let steps = TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 30 }));
    let get = Get {
        steps,
        ..meta_get("k")
    };
    let first = bench.hit(A, get);
    assert_eq!((first.win, &*first.value), (Win::Won, &b""[..]));
    let cas = first.cas;
    for owner in [A, B, B] {
        assert_eq!(bench.hit(owner, get).win, Win::Sent);
    }
    let fill = Set {
        guard: Guard::Match(cas),
        ..Set::new(key("k"), b"new")
    };
    assert!(matches!(bench.ask(A, fill), Reply::Stored(_)));
    assert_eq!(bench.hit(B, get).win, Win::None);
}

#[test]
fn a_stale_store_of_a_lower_version_keeps_ttl_stale_and_win() {
    let mut bench = Bench::new();
    bench.ask(A, expiring("k", 100));
    let low = bench.hit(A, meta_get("k")).cas;
    let stale = Removal::MarkStale {
        exptime: Some(Exptime::In { seconds: 30 }),
    };
    let mark = Delete {
        removal: stale,
        ..Delete::new(key("k"))
    };
    assert_eq!(bench.ask(A, mark), Reply::Deleted);
    assert_eq!(bench.hit(A, meta_get("k")).win, Win::Won);
    let late = Set {
        guard: Guard::MatchElseStale(low),
        exptime: Exptime::In { seconds: 360 },
        ..Set::new(key("k"), b"late")
    };
    assert!(matches!(bench.ask(A, late), Reply::Stored(_)));
    let hit = bench.hit(B, meta_get("k"));
    assert_eq!(
        (&*hit.value, hit.stale, hit.win),
        (&b"late"[..], true, Win::Sent)
    );
    assert_eq!(hit.ttl.after(0), Some(30));
}

#[test]
fn emptying_an_item_keeps_its_version_and_its_win() {
    let mut bench = Bench::new();
    let steps = TtlSteps::one(TtlStep::Vivify(Exptime::Never));
    let cas = bench
        .hit(
            A,
            Get {
                steps,
                ..meta_get("k")
            },
        )
        .cas;
    let removal = Removal::Clear {
        exptime: Exptime::Never,
        client_flags: 0,
    };
    bench.ask(
        B,
        Delete {
            removal,
            ..Delete::new(key("k"))
        },
    );
    let hit = bench.hit(B, meta_get("k"));
    assert_eq!((hit.cas, hit.win, &*hit.value), (cas, Win::Sent, &b""[..]));
}

#[test]
fn a_read_that_cannot_recache_leaves_the_win_alone() {
    let mut bench = Bench::new();
    bench.set(A, "k", "1");
    let stale = Removal::MarkStale { exptime: None };
    let mark = Delete {
        removal: stale,
        ..Delete::new(key("k"))
    };
    bench.ask(A, mark);
    assert_eq!(bench.hit(A, Get::new(key("k"))).win, Win::None);
    assert_eq!(bench.hit(B, meta_get("k")).win, Win::Won);
}

#[test]
fn an_evicted_item_is_won_again() {
    let mut bench = Bench::with_memory(1_000);
    let get = Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::Never)),
        ..meta_get("k")
    };
    assert_eq!(bench.hit(A, get).win, Win::Won);
    assert_eq!(bench.hit(B, get).win, Win::Sent);
    for name in ["a", "b", "c", "d", "e", "f"] {
        assert!(matches!(
            bench.set(B, name, &"v".repeat(250)),
            Reply::Stored(_)
        ));
    }
    assert!(bench.core.store().find(key("k")).is_err(), "it is there");
    assert_eq!(bench.hit(B, get).win, Win::Won);
    assert_eq!(bench.hit(A, get).win, Win::Sent);
}
