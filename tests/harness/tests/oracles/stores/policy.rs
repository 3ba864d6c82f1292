//! What a log evicts is what the policy says (N10).
//!
//! `LATCHD_SEED` says where the random numbers start.

use latchd_core::store::KeyHasher;
use latchd_harness::stores::{Numbered, Placed, Setting};

use self::habits::{Habits, Often, Outcome};
use self::run::play;
use crate::number_from;

mod habits;
mod run;

fn played<H: KeyHasher>(habits: &Habits, hasher: H) -> Outcome {
    let seed = number_from("LATCHD_SEED", 1);
    let outcome = play(seed, habits, hasher);
    let Outcome {
        choices,
        hypotheses_most,
        back,
    } = outcome;
    println!("{habits:?}\n  {choices:?}, {back} came again, {hypotheses_most} hypotheses at most");
    outcome
}

/// How many items are stored in a long run.
const LONG: usize = 20_000;

/// So many are asked for while a hundred are stored.
const ASKED: [u64; 3] = [0, 20, 100];

#[test]
fn a_log_evicts_what_the_policy_says() {
    for asked_of_100 in [0, 5, 20, 50, 100] {
        for of_1000 in [0, 10] {
            let habits = Habits {
                items: LONG,
                locked: Often {
                    of_1000,
                    at_once: 1,
                },
                ..Habits::TINY
            }
            .asked(asked_of_100);
            let choices = played(&habits, Numbered).choices;
            assert!(choices.unasked > 1_000, "{choices:?}");
            assert!(
                asked_of_100 == 0 || choices.promoted > 0 && choices.from_main > 0,
                "{choices:?}"
            );
            assert!(asked_of_100 < 50 || choices.again > 0, "{choices:?}");
            assert_eq!(choices.passed > 20, of_1000 > 0, "{choices:?}");
        }
    }
}

#[test]
fn a_log_knows_what_it_has_just_given_up() {
    for asked_of_100 in [0, 5, 20] {
        for back_of_100 in [1, 5] {
            let habits = Habits {
                items: LONG,
                back_of_100,
                ..Habits::SMALL
            }
            .asked(asked_of_100);
            let choices = played(&habits, Numbered).choices;
            assert!(choices.known > 100 && choices.from_main > 0, "{choices:?}");
        }
    }
}

/// Whatever of the last thousand comes again is known if nothing has gone since that chooses the same of 512 places.
#[test]
fn a_log_forgets_what_went_when_another_leaves_its_mark_there() {
    for asked_of_100 in ASKED {
        let habits = Habits {
            back_of_100: 20,
            back_among: 1_000,
            back_and_gone_of_100: 50,
            setting: Setting {
                places: Placed::PLACES,
                ..Habits::SMALL.setting
            },
            ..Habits::SMALL
        }
        .asked(asked_of_100);
        let Outcome { choices, back, .. } = played(&habits, Placed);
        assert!(choices.known > 300, "{choices:?}");
        assert!(back - choices.known > 300, "{back} came again: {choices:?}");
    }
}

#[test]
fn a_log_pins_what_is_locked() {
    let mut pinned_whole = 0;
    for asked_of_100 in ASKED {
        let habits = Habits {
            locked: Often {
                of_1000: 10,
                at_once: 12,
            },
            locked_max: 200,
            unlocked_of_1000: 100,
            ..Habits::TINY
        }
        .asked(asked_of_100);
        let choices = played(&habits, Numbered).choices;
        assert!(choices.passed > 50, "{choices:?}");
        pinned_whole += choices.pinned_whole;
        assert!(choices.slack_pinned > 10, "{choices:?}");
    }
    assert!(pinned_whole > 0);
}

#[test]
fn a_log_empties_what_is_slack_before_anything_is_given_up() {
    for asked_of_100 in ASKED {
        for (of, of_1000, at_once) in [
            (Habits::TINY, 150, 1),
            (Habits::TINY, 25, 4),
            (Habits::SMALL, 10, 20),
        ] {
            let habits = Habits {
                deleted: Often { of_1000, at_once },
                ..of
            }
            .asked(asked_of_100);
            let choices = played(&habits, Numbered).choices;
            assert!(choices.slack > 20 && choices.carried > 200, "{choices:?}");
        }
    }
}

#[test]
fn a_log_takes_out_what_has_expired_before_anything_is_given_up() {
    let (mut much, mut in_drain) = (0, 0);
    for asked_of_100 in ASKED {
        for (expiring_of_100, ticks_max) in [(2, 800), (20, 800), (50, 300)] {
            let habits = Habits {
                expiring_of_100,
                ticks_max,
                ..Habits::TINY
            }
            .asked(asked_of_100);
            let choices = played(&habits, Numbered).choices;
            assert!(choices.expired_in_sweep > 20, "{choices:?}");
            much += choices.swept - choices.swept_for_little;
            in_drain += choices.expired_in_drain;
        }
    }
    assert!(much > 100 && in_drain > 10, "{much}, {in_drain}");
}

#[test]
fn a_log_weighs_long_records_and_large_values() {
    for asked_of_100 in ASKED {
        for large_of_1000 in [0, 20] {
            let habits = Habits {
                longer_of_100: 50,
                ..Habits::TINY
            }
            .large(large_of_1000)
            .asked(asked_of_100);
            let choices = played(&habits, Numbered).choices;
            assert_eq!(choices.large > 50, large_of_1000 > 0, "{choices:?}");
        }
    }
}

#[test]
fn a_log_is_crawled() {
    let (mut in_sweep, mut slack) = (0, 0);
    for asked_of_100 in ASKED {
        for (expiring_of_100, deleted, locked) in [(20, 0, 0), (0, 40, 0), (20, 40, 20)] {
            let habits = Habits {
                crawled_of_1000: 50,
                expiring_of_100,
                ticks_max: 800,
                deleted: Often {
                    of_1000: deleted,
                    at_once: 8,
                },
                locked: Often {
                    of_1000: locked,
                    at_once: 6,
                },
                unlocked_of_1000: 5 * locked,
                ..Habits::TINY
            }
            .asked(asked_of_100);
            let choices = played(&habits, Numbered).choices;
            in_sweep += choices.expired_in_sweep;
            slack += choices.slack_in_crawl;
        }
    }
    assert!(in_sweep > 1_000 && slack > 40, "{in_sweep}, {slack}");
}

/// Little memory, since nothing is seen until it is full again: until then the log may have come anywhere.
#[test]
fn a_log_is_flushed() {
    for asked_of_100 in [0, 20] {
        for (expiring_of_100, deleted, large_of_1000) in [(0, 0, 0), (10, 60, 20)] {
            let habits = Habits {
                items: 6_000,
                memory_bytes: 24 << 10,
                flushed_of_1000: 3,
                expiring_of_100,
                ticks_max: 300,
                deleted: Often {
                    of_1000: deleted,
                    at_once: 7,
                },
                ..Habits::TINY
            }
            .large(large_of_1000)
            .asked(asked_of_100);
            let choices = played(&habits, Numbered).choices;
            assert!(choices.flushed > 2, "{choices:?}");
        }
    }
}

#[test]
fn a_log_writes_anew_what_no_longer_fits_in_its_place() {
    let (mut in_hand, mut sooner) = (0, 0);
    for asked_of_100 in ASKED {
        for (locked, expiring_of_100) in [(0, 0), (20, 0), (20, 10)] {
            let habits = Habits {
                replaced: Often {
                    of_1000: 60,
                    at_once: 1,
                },
                retimed: Often {
                    of_1000: 5 * expiring_of_100,
                    at_once: 1,
                },
                locked: Often {
                    of_1000: locked,
                    at_once: 1,
                },
                unlocked_of_1000: 2 * locked,
                expiring_of_100,
                ticks_max: 800,
                longer_of_100: 50,
                ..Habits::TINY
            }
            .asked(asked_of_100);
            let choices = played(&habits, Numbered).choices;
            assert!(choices.replaced > 100, "{choices:?}");
            assert_eq!(choices.sooner > 0, expiring_of_100 > 0, "{choices:?}");
            in_hand += choices.in_hand;
            sooner += choices.sooner;
        }
    }
    assert!(in_hand > 20 && sooner > 20, "{in_hand}, {sooner}");
}

/// Where large values take what is free, somebody has to wait, and no segment is free for what is locked once in a while.
#[test]
fn a_log_does_all_of_it_at_once() {
    for asked_of_100 in ASKED {
        let habits = Habits {
            locked: Often {
                of_1000: 10,
                at_once: 8,
            },
            unlocked_of_1000: 80,
            deleted: Often {
                of_1000: 15,
                at_once: 3,
            },
            replaced: Often {
                of_1000: 15,
                at_once: 2,
            },
            retimed: Often {
                of_1000: 20,
                at_once: 1,
            },
            expiring_of_100: 10,
            ticks_max: 800,
            longer_of_100: 30,
            ..Habits::TINY
        }
        .large(20)
        .asked(asked_of_100);
        let choices = played(&habits, Numbered).choices;
        assert!(choices.slack > 20 && choices.replaced > 50, "{choices:?}");
    }
}

/// Where large values take what is free and nearly everything is hit, not all that was hit stays in either queue; and once in a
/// while no segment is free for what is locked.
#[test]
fn a_log_makes_room_while_somebody_waits_for_it() {
    let mut crowded = 0;
    for (asked_of_100, locked_max) in [(300, 200), (1_000, 100), (2_000, 100)] {
        let habits = Habits {
            locked: Often {
                of_1000: 60,
                at_once: 3,
            },
            locked_max,
            unlocked_of_1000: 150,
            ..Habits::TINY
        }
        .large(20)
        .asked(asked_of_100);
        crowded += played(&habits, Numbered).choices.crowded;
    }
    assert!(crowded > 0);
}
