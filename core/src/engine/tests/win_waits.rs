//! Gets that wait for a value or a win, by example; with the helpers for tests of bound wins and of vanished
//! items.

mod bound;
mod vanished;

use latchd_protocol::key::KeyForm;
use latchd_protocol::wait::{Notice, Outcome};

use super::*;

const C: Owner = Owner::from_number(3);
const D: Owner = Owner::from_number(4);

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
        bound_to_owner: true,
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
        bound_to_owner: true,
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
        for owner in [C, D] {
            self.event(Event::Opened(owner));
        }
        self
    }

    fn win(&mut self, owner: Owner, get: Get<'_>) -> Win {
        self.hit(owner, get).win
    }

    fn parks(&mut self, owner: Owner, get: Get<'_>) {
        assert_eq!(self.ask(owner, get), Reply::Waits);
        self.core.check();
    }

    /// The waits that are over, and their outcomes.
    fn notices(&mut self) -> Vec<(Owner, Outcome)> {
        self.core.check();
        let notices = core::iter::from_fn(|| self.core.poll().and_then(Notification::wait_over));
        notices
            .map(|Notice { owner, outcome }| (owner, outcome))
            .collect()
    }

    fn let_pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.core
            .handle(Instant::from_millis(self.now_ms), Event::Due);
        self.core.check();
    }
}

fn bench() -> Bench {
    Bench::new().of_four_getters()
}

/// The same get without its wait, as a connection repeats it after the notice.
fn again(get: Get<'_>) -> Get<'_> {
    Get { wait_ms: 0, ..get }
}

const GRANTED: Outcome = Outcome::Granted;

#[test]
fn store_wakes_all_waiting_gets() {
    let mut bench = bench();
    bench.win(A, bound("k"));
    assert!(!bench.core.has_waits());
    for owner in [C, B, D] {
        bench.parks(owner, patient("k"));
    }
    assert!(bench.core.has_waits());
    assert_eq!(bench.notices(), []);
    bench.set(A, "k", "1");
    let all = [C, B, D].map(|owner| (owner, GRANTED));
    assert_eq!(bench.notices(), all);
    for owner in [C, B, D] {
        let hit = bench.hit(owner, again(patient("k")));
        assert_eq!((hit.win, &*hit.value), (Win::None, &b"1"[..]));
    }
    assert!(!bench.core.has_waits());
    assert_eq!(bench.core.win_waits().table_bytes(), 0);
}

/// Each event that opens a win gives it to the first waiter alone.
#[test]
fn opened_win_goes_to_the_first_waiter() {
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
            let expected = if way == 4 {
                // In that moment, their own time is over as well.
                let late = Outcome::TimedOut;
                vec_of(&[(B, late), (C, late)])
            } else {
                vec_of(&[(B, GRANTED)])
            };
            assert_eq!(bench.notices(), expected, "way {way}");
            if way == 4 {
                continue;
            }
            // A new get is not served before the winner.
            assert_eq!(bench.win(D, vivifying("k")), Win::Sent, "way {way}");
            assert_eq!(bench.win(B, again(patient("k"))), Win::Won, "way {way}");
            assert_eq!(bench.win(B, again(patient("k"))), Win::Sent, "won once");
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
fn win_of_gone_waiter_goes_on() {
    let mut bench = bench();
    bench.win(A, bound("k"));
    let free = Get {
        bound_to_owner: false,
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
        bound_to_owner: false,
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
fn closed_owner_leaves_its_queue() {
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
        Some(Instant::from_millis(10_001))
    );
    bench.let_pass(10_000);
    assert_eq!(bench.notices(), []);
    bench.let_pass(1);
    assert_eq!(bench.notices(), [(B, Outcome::TimedOut)]);
    assert_eq!(bench.win(B, again(patient("k"))), Win::Sent);
    bench.set(A, "k", "1");
    assert_eq!(bench.notices(), []);
    let counters = bench.core.counters();
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
    // A get that cannot recache does not wait either.
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
        "B has not read its notice"
    );
    assert_eq!(bench.notices().len(), 1);
    bench.parks(D, patient("c"));
}

#[test]
fn a_lock_does_not_keep_a_win_from_being_given() {
    let mut bench = bench();
    assert_eq!(bench.win(A, bound("k")), Win::Won);
    assert_eq!(bench.ask(C, lock("k")), Reply::Locked);
    bench.parks(B, patient("k"));
    // A locked item does not expire, and sets no deadline.
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
        Some(Instant::from_millis(95_001))
    );
    // It goes with its lock, and a waiting get makes it anew.
    assert_eq!(bench.ask(C, unlock("k")), Reply::Unlocked);
    assert_eq!(bench.notices(), [(D, GRANTED)]);
    assert_eq!(bench.win(D, again(patient("k"))), Win::Won);
}

#[test]
fn waits_share_the_memory_of_locks() {
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
