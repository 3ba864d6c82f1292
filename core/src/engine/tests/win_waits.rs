//! Wins that are bound to their winners, and gets that wait for a value or a win, by example.

use super::*;
use crate::item::WinMark;
use crate::key::KeyForm;
use crate::wait::{Notice, Outcome};

const C: ConnId = ConnId::from_number(3);
const D: ConnId = ConnId::from_number(4);

/// `mg <name> N30`.
fn vivifying(name: &str) -> Get<'_> {
    Get {
        steps: TtlSteps::one(TtlStep::Vivify(Exptime::In { seconds: 30 })),
        ..meta_get(name)
    }
}

/// `mg <name> N30 B`.
fn bound(name: &str) -> Get<'_> {
    Get {
        binds: true,
        ..vivifying(name)
    }
}

/// `mg <name> N30 B w10000`.
fn patient(name: &str) -> Get<'_> {
    Get {
        wait_ms: 10_000,
        ..bound(name)
    }
}

/// `mg <name> R60 B`: wins an item that has less than a minute left.
fn early(name: &str) -> Get<'_> {
    Get {
        steps: TtlSteps::one(TtlStep::Recache(Exptime::In { seconds: 60 })),
        binds: true,
        ..meta_get(name)
    }
}

fn mark_stale(name: &str) -> Delete<'_> {
    Delete {
        removal: Removal::MarkStale { exptime: None },
        ..Delete::new(key(name))
    }
}

impl<S: Store> Bench<S> {
    fn of_four_getters(mut self) -> Self {
        for conn in [C, D] {
            self.event(Event::Opened(conn));
        }
        self
    }

    fn win(&mut self, conn: ConnId, get: Get<'_>) -> Win {
        self.hit(conn, get).win
    }

    fn parks(&mut self, conn: ConnId, get: Get<'_>) {
        assert_eq!(self.ask(conn, get), Reply::Waits);
        self.core.check();
    }

    /// Those whose waits are over, and how.
    fn notices(&mut self) -> Vec<(ConnId, Outcome)> {
        self.core.check();
        let notices = core::iter::from_fn(|| self.core.next_notice());
        notices
            .map(|Notice { conn, outcome }| (conn, outcome))
            .collect()
    }

    fn let_pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.core.pass(Instant::from_millis(self.now_ms));
        self.core.check();
    }
}

fn bench() -> Bench {
    Bench::new().of_four_getters()
}

/// As a connection asks again that has been told that its wait is over.
fn again(get: Get<'_>) -> Get<'_> {
    Get { wait_ms: 0, ..get }
}

const GRANTED: Outcome = Outcome::Granted;

#[test]
fn the_win_of_a_made_item_is_open_when_its_winner_ends() {
    let mut bench = bench();
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    assert_eq!(bench.win(B, bound("k")), Win::Sent);
    bench.close(A);
    assert_eq!(bench.core.bound_wins().len(), 0);
    // Whatever the next one asks for.
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
        let conn = if name == "short" { A } else { C };
        assert_eq!(bench.win(conn, get), Win::Won);
        assert_eq!(bench.win(B, get), Win::Sent);
        bench.close(conn);
        assert_eq!(
            bench.win(B, meta_get(name)) == Win::Won,
            name == "stale",
            "one that runs short is won by those who ask for it"
        );
        assert_eq!(bench.win(D, get) == Win::Won, name == "short");
    }
}

#[test]
fn what_closes_a_win_or_opens_it_ends_the_binding() {
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
    assert_eq!(bench.win(B, bound("s")), Win::Won, "nobody was told");
    // One without `B` may; and one that is gone unseen makes room.
    assert_eq!(bench.win(A, vivifying("c")), Win::Won);
    bench.now_ms += 31_000;
    assert_eq!(bench.win(A, bound("d")), Win::Won);
}

/// Also for one who waits: who has as many as he may is refused, but not for those that are gone unseen.
#[test]
fn who_waits_has_a_win_to_spare() {
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
    bench.parks(A, patient("k"));
}

#[test]
fn who_is_nobody_binds_nothing_and_does_not_wait() {
    let mut bench = bench();
    let nobody = ConnId::from_number(9);
    let refused = Reply::Refused(Refusal::ConnectionClosed);
    assert_eq!(bench.ask(nobody, bound("k")), refused);
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    assert_eq!(bench.ask(nobody, patient("k")), refused);
}

#[test]
fn a_store_answers_all_who_wait() {
    let mut bench = bench();
    bench.win(A, bound("k"));
    assert!(!bench.core.has_waits());
    for conn in [C, B, D] {
        bench.parks(conn, patient("k"));
    }
    assert!(bench.core.has_waits());
    assert_eq!(bench.notices(), []);
    bench.set(A, "k", "1");
    let all = [C, B, D].map(|conn| (conn, GRANTED));
    assert_eq!(bench.notices(), all);
    for conn in [C, B, D] {
        let hit = bench.hit(conn, again(patient("k")));
        assert_eq!((hit.win, &*hit.value), (Win::None, &b"1"[..]));
    }
    assert!(!bench.core.has_waits());
    assert_eq!(bench.core.win_waits().table_bytes(), 0);
}

/// Every way in which a win is open again gives it to the first in line, and to nobody else.
#[test]
fn whatever_opens_a_win_gives_it_to_the_first_in_line() {
    for way in 0..6 {
        for is_stale in [false, true] {
            let mut bench = bench();
            if is_stale {
                bench.ask(A, expiring("k", 30));
                bench.ask(A, mark_stale("k"));
            }
            assert_eq!(bench.win(A, bound("k")), Win::Won);
            bench.parks(B, patient("k"));
            bench.parks(C, patient("k"));
            match way {
                0 => bench.close(A),
                1 => drop(bench.ask(A, Delete::new(key("k")))),
                2 => drop(bench.ask(D, mark_stale("k"))),
                3 => drop(bench.ask(D, GlobalCommand::FlushAll { at: Exptime::Past })),
                4 => bench.let_pass(31_000),
                _ => {
                    bench.ask(
                        D,
                        GlobalCommand::FlushAll {
                            at: Exptime::In { seconds: 1 },
                        },
                    );
                    bench.let_pass(1_000);
                }
            }
            let told = if way == 4 {
                // In that moment, their own time is over as well.
                let late = Outcome::TimedOut;
                vec_of(&[(B, late), (C, late)])
            } else {
                vec_of(&[(B, GRANTED)])
            };
            assert_eq!(bench.notices(), told, "way {way}");
            if way == 4 {
                continue;
            }
            // A newcomer is not served before the one who has it.
            assert_eq!(bench.win(D, vivifying("k")), Win::Sent, "way {way}");
            assert_eq!(bench.win(B, again(patient("k"))), Win::Won, "way {way}");
            assert_eq!(bench.win(B, again(patient("k"))), Win::Sent, "told once");
            // It is bound to that one from now on.
            bench.close(B);
            assert_eq!(bench.notices(), [(C, GRANTED)], "way {way}");
            assert_eq!(bench.win(C, again(patient("k"))), Win::Won, "way {way}");
        }
    }
}

fn vec_of<T: Clone>(slice: &[T]) -> Vec<T> {
    slice.to_vec()
}

#[test]
fn an_item_that_expires_is_made_anew_for_the_first_who_vivifies() {
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
    // Who does not vivify is told of the miss.
    assert_eq!(bench.notices(), [(B, Outcome::NotFound), (C, GRANTED)]);
    assert_eq!(bench.core.stats.counters.get_misses, 2);
    assert_eq!(bench.win(C, again(patient("k"))), Win::Won);
    bench.close(C);
    assert_eq!(bench.notices(), [(D, GRANTED)]);
}

/// What is made for one who has waited is what would have been made for it at once.
#[test]
fn what_is_made_for_one_who_waits_is_as_it_was_asked_for() {
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
fn a_newcomer_finds_an_expired_item_made_for_those_who_wait() {
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

#[test]
fn a_win_that_was_given_to_one_who_has_ended_is_passed_on() {
    let mut bench = bench();
    bench.win(A, bound("k"));
    let free = Get {
        binds: false,
        ..patient("k")
    };
    bench.parks(B, free);
    bench.parks(C, patient("k"));
    bench.close(A);
    bench.close(B);
    assert_eq!(bench.notices(), [(B, GRANTED), (C, GRANTED)]);
    assert_eq!(bench.win(C, again(patient("k"))), Win::Won);
    assert_eq!(bench.core.bound_wins().len(), 1);
}

#[test]
fn a_win_that_was_waited_for_without_b_is_not_bound() {
    let mut bench = bench();
    bench.win(A, bound("k"));
    let free = Get {
        binds: false,
        ..patient("k")
    };
    bench.parks(B, free);
    bench.close(A);
    assert_eq!(bench.notices(), [(B, GRANTED)]);
    assert_eq!(bench.win(B, again(free)), Win::Won);
    assert_eq!(bench.core.bound_wins().len(), 0);
    bench.close(B);
    assert_eq!(bench.win(C, bound("k")), Win::Sent);
}

#[test]
fn one_who_closes_loses_its_place() {
    let mut bench = bench();
    bench.win(A, bound("k"));
    bench.parks(B, patient("k"));
    bench.parks(C, patient("k"));
    bench.close(B);
    bench.close(A);
    assert_eq!(bench.notices(), [(C, GRANTED)]);
}

#[test]
fn a_wait_that_is_over_is_told_as_ever_and_once() {
    let mut bench = bench();
    bench.win(A, bound("k"));
    bench.parks(B, patient("k"));
    assert_eq!(
        bench.core.next_deadline(),
        Some(Instant::from_millis(10_000))
    );
    bench.let_pass(9_999);
    assert_eq!(bench.notices(), []);
    bench.let_pass(1);
    assert_eq!(bench.notices(), [(B, Outcome::TimedOut)]);
    assert_eq!(bench.win(B, again(patient("k"))), Win::Sent);
    bench.set(A, "k", "1");
    assert_eq!(bench.notices(), []);
    let counters = bench.core.stats.counters;
    assert_eq!((counters.get_waits, counters.get_wait_timeouts), (1, 1));
    assert_eq!(
        counters.cmd_get, 2,
        "a get that waits is counted when it is answered"
    );
}

#[test]
fn nothing_is_waited_for_that_is_there() {
    let mut bench = bench();
    bench.set(A, "k", "1");
    assert_eq!(bench.win(B, patient("k")), Win::None);
    let plain = Get {
        wait_ms: 1_000,
        ..meta_get("missing")
    };
    assert_eq!(bench.ask(B, plain), Reply::Miss);
    assert_eq!(bench.win(B, patient("missing")), Win::Won);
    // What does not take part in recaching does not wait either.
    let classic = Get {
        wait_ms: 1_000,
        ..Get::new(key("missing"))
    };
    assert_eq!(bench.win(C, classic), Win::None);
}

#[test]
fn a_get_waits_within_bounds() {
    let mut config = config(1 << 20);
    config.limits.waits_per_key_max = 1;
    config.limits.waits_max = 2;
    let mut bench = Bench::of(Core::new(config)).of_four_getters();
    for name in ["a", "b", "c"] {
        bench.win(A, vivifying(name));
    }
    bench.parks(B, patient("a"));
    let refused = Reply::Refused(Refusal::TooManyLocks);
    assert_eq!(bench.ask(C, patient("a")), refused, "of this key");
    assert_eq!(bench.ask(B, patient("b")), refused, "it waits already");
    bench.parks(C, patient("b"));
    assert_eq!(bench.ask(D, patient("c")), refused, "of all");
    bench.set(A, "a", "1");
    assert_eq!(
        bench.ask(D, patient("c")),
        refused,
        "B has not been told yet"
    );
    assert_eq!(bench.notices().len(), 1);
    bench.parks(D, patient("c"));
}

/// What is evicted goes unseen; the next tick sees it.
#[test]
fn an_eviction_is_noticed_by_the_next_tick() {
    let mut bench = Bench::with_memory(1 << 14).of_four_getters();
    bench.win(A, bound("k"));
    bench.parks(B, patient("k"));
    for number in 0..200 {
        let name = alloc::format!("filler{number}");
        bench.set(C, &name, "some value that takes room");
    }
    assert!(bench.core.peek(key("k")).is_none(), "it is evicted");
    assert_eq!(bench.notices(), []);
    bench.event(Event::Tick);
    assert_eq!(bench.notices(), [(B, GRANTED)]);
    assert_eq!(bench.win(B, again(patient("k"))), Win::Won);
    bench.close(A);
    assert_eq!(bench.win(C, bound("k")), Win::Sent);
}

#[test]
fn a_lock_does_not_keep_a_win_from_being_given() {
    let mut bench = bench();
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    assert_eq!(bench.ask(C, lock("k")), Reply::Locked);
    bench.parks(B, patient("k"));
    // Held, it does not expire, and nobody is kept busy by that.
    bench.now_ms += 5_000;
    bench.close(A);
    assert_eq!(bench.notices(), [(B, GRANTED)]);
    assert_eq!(bench.win(B, again(patient("k"))), Win::Won);
    bench.parks(
        D,
        Get {
            wait_ms: 90_000,
            ..patient("k")
        },
    );
    bench.let_pass(40_000);
    assert_eq!(bench.notices(), []);
    assert_eq!(
        bench.core.next_deadline(),
        Some(Instant::from_millis(95_000))
    );
    // It goes with its lock, and who waits makes it anew.
    assert_eq!(bench.ask(C, unlock("k")), Reply::Unlocked);
    assert_eq!(bench.notices(), [(D, GRANTED)]);
    assert_eq!(bench.win(D, again(patient("k"))), Win::Won);
}

/// More locks end than are let go of in one call; an item that is waited for may be behind all of them.
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
        // Whoever drives the core comes back as long as there is something to do at once.
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

#[test]
fn who_waits_shares_the_memory_of_locks() {
    let mut config = config(1 << 20);
    config.limits.lock_table_bytes_max =
        WinWaits::bytes_for(key("k")) + BoundWins::bytes_for(key("k"));
    let mut bench = Bench::of(Core::new(config)).of_four_getters();
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    bench.parks(B, patient("k"));
    let refused = Reply::Refused(Refusal::TooManyLocks);
    assert_eq!(bench.ask(C, patient("k")), refused);
    assert_eq!(bench.ask(C, bound("l")), refused);
    bench.close(A);
    assert_eq!(bench.notices(), [(B, GRANTED)]);
    bench.parks(C, patient("k"));
}

/// The placeholder has expired while its winner held its lock: it goes with the lock, and is made anew for who
/// waits, whose win that is.
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

/// An item that is looked at because somebody waits for it is counted like one that the crawler comes by.
#[test]
fn an_item_that_goes_while_somebody_waits_is_counted() {
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
        let counters = &bench.core.stats.counters;
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
    let counters = &bench.core.stats.counters;
    assert_eq!((counters.get_expired, counters.reclaimed), (1, 1));
}

/// Also where no win is bound, so that nothing but the queue of those who wait knows of the key.
#[test]
fn an_eviction_is_noticed_by_the_next_tick_for_those_who_only_wait() {
    let mut bench = Bench::with_memory(8 << 10).of_four_getters();
    bench.core.limits.lock_table_bytes_max = 4 << 10;
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

/// A few with every call: as long as there are more, there is something to do at once. What ends with nothing to
/// let go of is no reason to look.
#[test]
fn a_round_is_gone_on_with_until_all_were_looked_at() {
    let mut bench = bench();
    bench.core.limits.crawl_items_max = 1;
    bench.core.limits.locks_settled_max = 1;
    let names = ["a", "b", "c"];
    for (name, conn) in names.into_iter().zip([B, C, D]) {
        assert_eq!(bench.win(A, vivifying(name)), Win::Won);
        bench.parks(conn, patient(name));
    }
    let now = Some(Instant::default());
    let first_end = Some(Instant::from_millis(10_000));
    let nobody = ConnId::from_number(9);
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

/// What is looked after to see whether one more win may be bound is made anew for those who wait for it. That may take the room
/// of anything, of the item too that is asked for: then that is made anew as well.
#[test]
fn a_win_is_spared_before_the_item_is_looked_for() {
    let names: Vec<_> = (0..8)
        .map(|number| alloc::format!("{number:0>200}"))
        .collect();
    let (mut has_moved_on, mut was_won) = (0, 0);
    for fillers in 0..100 {
        let mut bench = Bench::with_memory(8 << 10);
        bench.core.limits.lock_table_bytes_max = 1 << 20;
        bench.core.limits.bound_wins_per_connection_max = names.len();
        for (name, number) in names.iter().zip(10..) {
            let waiting = ConnId::from_number(number);
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
