//! Wins that are bound to their winners, by example.

use latchd_protocol::item::WinMark;

use super::*;

#[test]
fn the_win_of_a_made_item_is_open_when_its_winner_ends() {
    let mut bench = bench();
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    assert_eq!(bench.win(B, bound("k")), Win::Sent);
    bench.close(A);
    assert_eq!(bench.core.bound_wins().len(), 0);
    // The same for every next request.
    assert_eq!(bench.win(B, meta_get("k")), Win::Won);
    assert_eq!(bench.win(C, bound("k")), Win::Sent);
    // That one was not bound.
    bench.close(B);
    assert_eq!(bench.win(C, bound("k")), Win::Sent);
}

#[test]
fn the_win_of_a_stale_item_and_of_a_short_one_are_open_again_as_they_were() {
    let mut bench = bench();
    bench.ask(A, expiring("short", 50));
    bench.set(A, "stale", "1");
    bench.ask(A, mark_stale("stale"));
    for (name, get) in [("short", early("short")), ("stale", bound("stale"))] {
        let owner = if name == "short" { A } else { C };
        assert_eq!(bench.win(owner, get), Win::Won);
        assert_eq!(bench.win(B, get), Win::Sent);
        bench.close(owner);
        assert_eq!(
            bench.win(B, meta_get(name)) == Win::Won,
            name == "stale",
            "one that runs short is won by those who ask for it"
        );
        assert_eq!(bench.win(D, get) == Win::Won, name == "short");
    }
}

#[test]
fn closed_or_opened_win_is_unbound() {
    let set = |mode| Set {
        mode,
        ..Set::new(key("k"), b"1")
    };
    let stores = [
        set(SetMode::Set),
        set(SetMode::Replace),
        set(SetMode::Append {
            missing: OnMissing::Refuse,
        }),
        set(SetMode::Prepend {
            missing: OnMissing::Refuse,
        }),
    ];
    for store in stores {
        let mut bench = bench();
        bench.win(A, bound("k"));
        assert!(matches!(bench.ask(B, store), Reply::Stored(_)));
        assert_eq!(bench.core.bound_wins().len(), 0);
        bench.close(A);
        assert_eq!(bench.win(B, bound("k")), Win::None);
    }
    for delete in [Delete::new(key("k")), mark_stale("k")] {
        let mut bench = bench();
        bench.win(A, bound("k"));
        bench.ask(B, delete);
        assert_eq!(bench.win(B, bound("k")), Win::Won);
        // The later win is not the earlier winner's.
        bench.close(A);
        assert_eq!(bench.win(C, bound("k")), Win::Sent);
        bench.close(B);
        assert_eq!(bench.win(C, bound("k")), Win::Won);
    }
}

#[test]
fn the_end_of_an_item_ends_the_binding() {
    for way in 0..3 {
        let mut bench = bench();
        bench.win(A, bound("k"));
        match way {
            0 => bench.now_ms += 31_000,
            1 => drop(bench.ask(B, GlobalCommand::FlushAll { at: Exptime::Past })),
            _ => {
                let past = TtlSteps::one(TtlStep::Touch(Exptime::Past));
                let touch = Get {
                    steps: past,
                    ..Get::new(key("k"))
                };
                bench.ask(B, touch);
            }
        }
        assert_eq!(bench.win(B, vivifying("k")), Win::Won, "way {way}");
        bench.close(A);
        assert_eq!(bench.win(C, vivifying("k")), Win::Sent, "way {way}");
    }
}

#[test]
fn counting_and_touching_leave_a_bound_win_as_it_is() {
    let mut bench = bench();
    bench.set(A, "n", "1");
    bench.ask(A, mark_stale("n"));
    assert_eq!(bench.win(A, bound("n")), Win::Won);
    bench.ask(B, Arithmetic::new(key("n"), Direction::Increment, 1));
    let touch = TtlSteps::one(TtlStep::Touch(Exptime::In { seconds: 9 }));
    bench.ask(
        B,
        Get {
            steps: touch,
            ..Get::new(key("n"))
        },
    );
    bench.ask(A, GlobalCommand::UnlockAll);
    assert_eq!(bench.win(B, bound("n")), Win::Sent);
    bench.close(A);
    assert_eq!(bench.win(B, bound("n")), Win::Won);
}

#[test]
fn only_so_many_wins_are_bound_to_a_connection() {
    let mut config = config(1 << 20);
    config.limits.bound_wins_per_connection_max = 2;
    let mut bench = Bench::of(Core::new(config));
    assert_eq!(bench.win(A, bound("a")), Win::Won);
    assert_eq!(bench.win(A, bound("b")), Win::Won);
    let refused = Reply::Refused(Refusal::TooManyLocks);
    assert_eq!(bench.ask(A, bound("c")), refused);
    assert_eq!(bench.value("c"), None, "nothing was made");
    bench.set(B, "s", "1");
    bench.ask(B, mark_stale("s"));
    assert_eq!(bench.ask(A, bound("s")), refused);
    assert_eq!(bench.win(B, bound("s")), Win::Won, "A has not won it");
    // One without `B` may. One that has expired unseen does not count.
    assert_eq!(bench.win(A, vivifying("c")), Win::Won);
    bench.now_ms += 31_000;
    assert_eq!(bench.win(A, bound("d")), Win::Won);
}

/// The same for a get that waits: an owner with as many wins as it may have is refused, but wins with vanished items do
/// not count.
#[test]
fn waiting_get_needs_a_free_win() {
    let mut config = config(1 << 20);
    config.limits.bound_wins_per_connection_max = 1;
    let mut bench = Bench::of(Core::new(config));
    assert_eq!(bench.win(A, bound("a")), Win::Won);
    let forever = Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::Never)),
        ..bound("k")
    };
    assert_eq!(bench.win(B, forever), Win::Won);
    assert_eq!(
        bench.ask(A, patient("k")),
        Reply::Refused(Refusal::TooManyLocks)
    );
    bench.now_ms += 31_000;
    // Without `B`, too: the win may be its all the same.
    let waiting = Get {
        bound_to_owner: false,
        ..patient("k")
    };
    bench.parks(A, waiting);
}

#[test]
fn unopened_owner_binds_and_waits_never() {
    let mut bench = bench();
    let nobody = Owner::from_number(9);
    let refused = Reply::Refused(Refusal::ConnectionClosed);
    assert_eq!(bench.ask(nobody, bound("k")), refused);
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    assert_eq!(bench.ask(nobody, patient("k")), refused);
}

/// A win that is updated to admit one more may be made anew for its waiters. That may evict any item, also the
/// requested one: then that is made anew as well.
#[test]
fn wins_are_freed_before_the_lookup() {
    let names: Vec<_> = (0..8)
        .map(|number| alloc::format!("{number:0>200}"))
        .collect();
    let (mut has_moved_on, mut was_won) = (0, 0);
    for fillers in 0..100 {
        let mut bench = Bench::with_memory(8 << 10);
        bench
            .core
            .change_limits(|limits| limits.lock_table_bytes_max = 1 << 20);
        bench
            .core
            .change_limits(|limits| limits.bound_wins_per_connection_max = names.len());
        for (name, number) in names.iter().zip(10..) {
            let waiting = Owner::from_number(number);
            bench.event(Event::Opened(waiting));
            assert_eq!(bench.win(A, bound(name)), Win::Won);
            bench.parks(waiting, patient(name));
        }
        bench.set(B, "k", "value");
        bench.ask(B, mark_stale("k"));
        for filler in 0..fillers {
            bench.set(B, &alloc::format!("f{filler}"), "filler");
        }
        let was_there = bench.core.peek(key("k")).is_some();
        if let Reply::Hit(hit) = bench.ask(A, bound("k")) {
            assert_eq!((hit.win, hit.stale), (Win::Won, !hit.value.is_empty()));
            was_won += 1;
            has_moved_on += u32::from(was_there && hit.value.is_empty());
        }
        bench.core.check();
        for filler in 0..fillers {
            if let Some((header, value)) = bench.core.peek(key(&alloc::format!("f{filler}"))) {
                assert_eq!((header.win, value), (WinMark::None, &b"filler"[..]));
            }
        }
    }
    assert!(was_won > 20, "{was_won}");
    assert!(has_moved_on > 0);
}

/// Z7, a few at a time: each request finds the win of its item open, in its turn or not.
#[test]
fn wins_that_end_together_are_open_before_their_turn() {
    let mut bench = bench();
    bench
        .core
        .change_limits(|limits| limits.locks_settled_max = 1);
    bench
        .core
        .change_limits(|limits| limits.crawl_items_max = 1);
    let names: Vec<_> = (0..10).map(|number| alloc::format!("k{number}")).collect();
    for name in &names {
        assert_eq!(bench.win(A, bound(name)), Win::Won);
    }
    bench.parks(B, patient("k7"));
    bench.parks(D, patient("k3"));
    bench.close(A);
    bench.core.check();
    let won = |bench: &Bench, name: &str| bench.core.peek(key(name)).map(|(it, _)| it.win);
    let marks: Vec<_> = names.iter().map(|name| won(&bench, name)).collect();
    // The first win with a waiter has had its turn.
    let mut open = [Some(WinMark::Open); 10];
    open[3] = Some(WinMark::Sent);
    assert_eq!(marks, open);
    assert_eq!(bench.core.bound_wins().len(), 1);
    assert!(bench.core.wants_tick());
    // Another wins one before its turn, and a third finds one that was waited for.
    assert_eq!(bench.win(C, bound("k9")), Win::Won);
    assert_eq!(bench.win(C, bound("k7")), Win::Sent);
    assert_eq!(bench.notices(), [(D, GRANTED), (B, GRANTED)]);
    for ticks in 0.. {
        assert!(ticks < 20, "the line has an end");
        if !bench.core.wants_tick() {
            break;
        }
        bench.event(Event::Tick);
        bench.core.check();
    }
    assert_eq!(bench.core.counters().win_reopened, 10);
    let taken = |name: &str| ["k3", "k7", "k9"].contains(&name);
    for name in &names {
        let mark = if taken(name) {
            WinMark::Sent
        } else {
            WinMark::Open
        };
        assert_eq!(won(&bench, name), Some(mark), "{name}");
    }
    assert_eq!(bench.core.bound_wins().len(), 3);
}
