//! A connection-bound lock on a server that knows `ml`, and the discovery that a server does not.

use super::*;

fn patient() -> BoundTerms {
    BoundTerms {
        retry: Retry::linear(Duration::from_millis(100)),
        missing: MissingItem::Create(Exptime::In { seconds: 5 }),
        ..BoundTerms::default()
    }
}

fn until(ms: u64) -> BoundTerms {
    BoundTerms {
        deadline: Some(Duration::from_millis(ms)),
        ..patient()
    }
}

const HELD: &str = "LK h7 a0 n0\r\n";

#[test]
fn a_free_lock_is_had_with_its_fence_and_leaves_nothing() {
    let mut bound = asked(patient());
    assert_eq!(
        play(&mut bound, 0, &["HD F77\r\n"]),
        ["ml k F H f", "Obtained"]
    );
    assert_eq!(bound.number(), Some(77));
    assert_eq!(bound.words(), LockSupport::Waits);
    bound.release();
    assert_eq!(play(&mut bound, 1, &["HD\r\n"]), ["mu k", "Released"]);
    assert!(bound.is_idle());
}

#[test]
fn a_number_costs_no_request_of_its_own() {
    let mut bound = asked(BoundTerms {
        mark: Mark::Number,
        ..patient()
    });
    assert_eq!(
        play(&mut bound, 0, &["HD F77\r\n"]),
        ["ml k F H f", "Obtained"]
    );
    assert_eq!(bound.number(), Some(77));
}

#[test]
fn an_item_that_must_be_there_is_asked_for() {
    let mut bound = asked(BoundTerms::default());
    assert_eq!(
        play(&mut bound, 0, &["NF\r\n"]),
        ["ml k F H f x", "NotObtained(NoItem)"]
    );
    // It can be lost during the wait.
    let mut waits = asked(BoundTerms {
        missing: MissingItem::Refuse,
        ..until(500)
    });
    assert_eq!(
        play(&mut waits, 0, &[HELD, "NF\r\n"]),
        ["ml k F H f x", "ml k F H f x w500", "NotObtained(NoItem)"]
    );
}

#[test]
fn held_lock_is_awaited_until_the_deadline() {
    let mut bound = asked(until(500));
    assert_eq!(play(&mut bound, 0, &[]), ["ml k F H f"]);
    bound.reply(at(20), &locked());
    assert_eq!(play(&mut bound, 20, &[]), ["ml k F H f w480"]);
    // Nothing is sent meanwhile, and nothing is broken.
    assert_eq!(play(&mut bound, 499, &[]), [""; 0]);
    let mut late = bound.clone();
    bound.reply(at(499), &granted());
    assert_eq!(play(&mut bound, 499, &[]), ["Obtained"]);
    late.reply(at(500), &locked());
    assert_eq!(play(&mut late, 500, &[]), ["NotObtained(Deadline)"]);
}

fn locked() -> AnyResponse<'static> {
    answer(b"LK h7 a3 n2\r\n")
}

fn granted() -> AnyResponse<'static> {
    answer(b"HD F78\r\n")
}

#[test]
fn endless_wait_is_an_hour_each() {
    let mut bound = asked(patient());
    assert_eq!(
        play(&mut bound, 0, &[HELD]),
        ["ml k F H f", "ml k F H f w3600000"]
    );
    let hour = 3_600_000;
    assert_eq!(play(&mut bound, hour + 4_999, &[]), [""; 0]);
    let mut silent = bound.clone();
    bound.reply(at(hour), &locked());
    assert_eq!(play(&mut bound, hour, &[]), ["ml k F H f w3600000"]);
    // The wait is over, and so is the time for an answer: the peer does not answer.
    assert_eq!(play(&mut silent, hour + 5_000, &[]), ["disconnect"]);
}

#[test]
fn obtain_without_wait_asks_once() {
    let mut bound = asked(BoundTerms {
        retry: Retry::none(),
        ..until(500)
    });
    assert_eq!(
        play(&mut bound, 0, &[HELD]),
        ["ml k F H f", "NotObtained(Held)"]
    );
    let mut none_left = asked(BoundTerms {
        retry: Retry::linear(Duration::from_millis(100)).limited(0),
        ..patient()
    });
    assert_eq!(
        play(&mut none_left, 0, &[HELD]),
        ["ml k F H f", "NotObtained(Held)"]
    );
}

#[test]
fn wait_lasts_as_long_as_the_tries() {
    let terms = BoundTerms {
        retry: Retry::linear(Duration::from_millis(100)).limited(3),
        ..patient()
    };
    let mut bound = asked(terms.clone());
    assert_eq!(
        play(&mut bound, 0, &[HELD]),
        ["ml k F H f", "ml k F H f w300"]
    );
    bound.reply(at(301), &locked());
    assert_eq!(play(&mut bound, 301, &[]), ["NotObtained(Held)"]);
    // A server without waits is asked as often as the strategy says, however long that takes.
    let mut polled = asked(terms.clone());
    let answers = [HELD, "CLIENT_ERROR invalid flag\r\n"];
    assert_eq!(play(&mut polled, 0, &answers).len(), 2);
    assert_eq!(play(&mut polled, 350, &[HELD]), ["ml k F H f"]);
    // The deadline ends the obtain.
    let mut short = asked(BoundTerms {
        deadline: Some(Duration::from_millis(200)),
        ..terms
    });
    assert_eq!(
        play(&mut short, 0, &[HELD]),
        ["ml k F H f", "ml k F H f w200"]
    );
    short.reply(at(201), &locked());
    assert_eq!(play(&mut short, 201, &[]), ["NotObtained(Deadline)"]);
}

#[test]
fn a_wait_that_would_be_a_deadlock_is_told_at_once() {
    let mut bound = asked(until(500));
    assert_eq!(
        play(&mut bound, 0, &[HELD, "LK h7 a3 n2 d\r\n"]),
        ["ml k F H f", "ml k F H f w500", "NotObtained(Deadlock)"]
    );
    assert!(bound.is_idle());
}

#[test]
fn a_server_without_ml_is_asked_in_the_words_it_knows() {
    let line = "CLIENT_ERROR bad command line format\r\n";
    for (unknown, asks) in [
        (&["ERROR\r\n"][..], &["ml k F H f x"][..]),
        (&[line, line], &["ml k F H f x", "ml k F f x"]),
    ] {
        let mut bound = asked(BoundTerms::default());
        assert_eq!(
            play(&mut bound, 0, &[unknown, &["OK\r\n"]].concat()),
            [asks, &["lock k", "Obtained"]].concat()
        );
        assert_eq!(bound.number(), None);
        assert_eq!(bound.words(), LockSupport::Classic);
        bound.release();
        assert_eq!(play(&mut bound, 1, &["OK\r\n"]), ["unlock k", "Released"]);
    }
    // A server that has neither, with its own errors.
    let mut memcached = asked(patient());
    assert_eq!(
        play(&mut memcached, 0, &["ERROR\r\n", "ERROR\r\n"]),
        ["ml k F H f", "lock k", "Failed(Refused(\"ERROR\"))"]
    );
}

#[test]
fn it_is_found_out_once_a_connection() {
    let mut bound = asked(patient());
    assert_eq!(
        play(&mut bound, 0, &["ERROR\r\n", "LOCKED\r\n"]),
        ["ml k F H f", "lock k"]
    );
    assert_eq!(
        play(&mut bound, 100, &["LOCKED\r\n"]),
        ["lock k"],
        "by polling, and without asking again"
    );
    bound.disconnected(at(150));
    assert!(matches!(bound.poll(at(250)), Action::Connect { .. }));
    bound.connected(at(250));
    assert_eq!(
        play(&mut bound, 250, &["HD F9\r\n"]),
        ["ml k F H f", "Obtained"]
    );
}

#[test]
fn an_error_that_is_an_answer_is_told() {
    for words in [
        "ERROR Too many open connections",
        "SERVER_ERROR too many locks",
    ] {
        let mut bound = asked(patient());
        let answer = std::format!("{words}\r\n");
        assert_eq!(
            play(&mut bound, 0, &[&answer]),
            [
                "ml k F H f".into(),
                std::format!("Failed(Refused(\"{words}\"))")
            ]
        );
    }
    let mut nonsense = asked(patient());
    assert_eq!(
        play(&mut nonsense, 0, &["HD\r\n"]),
        ["ml k F H f", "Failed(Unexpected)"]
    );
}

#[test]
fn a_server_that_knows_no_wait_is_polled() {
    let mut bound = asked(patient());
    assert_eq!(
        play(&mut bound, 0, &[HELD, "CLIENT_ERROR invalid flag\r\n"]),
        ["ml k F H f", "ml k F H f w3600000"]
    );
    assert_eq!(play(&mut bound, 99, &[]), [""; 0]);
    assert_eq!(play(&mut bound, 100, &[HELD]), ["ml k F H f"]);
    assert_eq!(
        play(&mut bound, 200, &["HD F5\r\n"]),
        ["ml k F H f", "Obtained"]
    );
    assert_eq!(bound.words(), LockSupport::Asks);

    // A server that accepts the flag and does not wait.
    let mut hasty = asked(patient());
    assert_eq!(
        play(&mut hasty, 0, &[HELD, HELD]),
        ["ml k F H f", "ml k F H f w3600000"]
    );
    assert_eq!(play(&mut hasty, 100, &[HELD]), ["ml k F H f"]);
    assert_eq!(play(&mut hasty, 199, &[]), [""; 0]);
}

/// Another server may serve: that is no try in vain.
#[test]
fn wait_at_a_former_primary_fails() {
    let mut bound = asked(patient());
    assert_eq!(
        play(&mut bound, 0, &[HELD, "SERVER_ERROR not primary\r\n"]),
        [
            "ml k F H f",
            "ml k F H f w3600000",
            "Failed(Refused(\"SERVER_ERROR not primary\"))"
        ]
    );
}

#[test]
fn full_queue_is_polled() {
    let mut bound = asked(patient());
    assert_eq!(
        play(&mut bound, 0, &[HELD, "SERVER_ERROR too many locks\r\n"]),
        ["ml k F H f", "ml k F H f w3600000"]
    );
    assert_eq!(play(&mut bound, 99, &[]), [""; 0]);
    assert_eq!(
        play(&mut bound, 100, &[HELD, "HD F5\r\n"]),
        ["ml k F H f", "ml k F H f w3600000", "Obtained"]
    );
}

#[test]
fn a_wait_that_ends_a_moment_early_has_its_last_try() {
    let mut bound = asked(until(500));
    play(&mut bound, 0, &[HELD]);
    bound.reply(at(499), &locked());
    assert_eq!(play(&mut bound, 499, &[]), [""; 0]);
    assert_eq!(
        play(&mut bound, 500, &["HD F5\r\n"]),
        ["ml k F H f", "Obtained"]
    );
}

#[test]
fn waiter_queues_again_after_a_restart() {
    let mut bound = asked(until(1_000));
    assert_eq!(
        play(&mut bound, 0, &[HELD]),
        ["ml k F H f", "ml k F H f w1000"]
    );
    bound.disconnected(at(300));
    assert_eq!(play(&mut bound, 399, &[]), [""; 0]);
    assert!(matches!(bound.poll(at(400)), Action::Connect { .. }));
    let mut gone = bound.clone();
    bound.connected(at(450));
    assert_eq!(
        play(&mut bound, 450, &[HELD]),
        ["ml k F H f", "ml k F H f w550"]
    );
    bound.reply(at(600), &granted());
    assert_eq!(play(&mut bound, 600, &[]), ["Obtained"]);
    assert_eq!(play(&mut gone, 1_100, &[]), ["Failed(Disconnected)"]);
}

#[test]
fn unnamed_holder_is_a_failure() {
    let mut broken = asked(until(500));
    play(&mut broken, 0, &[]);
    broken.disconnected(at(1));
    assert_eq!(play(&mut broken, 1, &[]), ["Failed(Disconnected)"]);

    let mut silent = asked(until(500));
    play(&mut silent, 0, &[]);
    assert_eq!(
        play(&mut silent, 600, &[]),
        ["Failed(NoAnswer)", "disconnect"]
    );
    // It has named the holder, and is late with the end of the wait: it may still grant the lock to this
    // connection.
    let mut late = asked(until(500));
    play(&mut late, 0, &[HELD]);
    assert_eq!(play(&mut late, 599, &[]), [""; 0]);
    assert_eq!(
        play(&mut late, 600, &[]),
        ["NotObtained(Deadline)", "disconnect"]
    );
}

#[test]
fn an_answer_is_late_only_after_the_wait() {
    let mut bound = asked(until(60_000));
    play(&mut bound, 0, &[HELD]);
    assert_eq!(play(&mut bound, 59_999, &[]), [""; 0]);
    assert!(matches!(
        bound.poll(at(59_999)),
        Action::Wait { until: Some(end) } if end == at(60_100)
    ));
}

fn noted() -> BoundTerms {
    BoundTerms {
        mark: Mark::Note(b"build 7"[..].into(), Exptime::In { seconds: 5 }),
        ..patient()
    }
}

#[test]
fn note_item_is_removed_with_the_lock() {
    const NOTE: &str = "ms k 7 T5 F1819239275 c build 7";
    // There is no item, or one of a holder that has died.
    for there in ["HD F3\r\n", "HD F3 f1819239275\r\n"] {
        let mut bound = asked(noted());
        assert_eq!(
            play(&mut bound, 0, &[there, "HD c9\r\n"]),
            ["ml k F H f", NOTE, "Obtained"]
        );
        assert_eq!(bound.number(), Some(3), "and not the version");
        bound.release();
        assert_eq!(play(&mut bound, 1, &["HD\r\n"]), ["md k U", "Released"]);
    }
    let mut somebodys = asked(noted());
    assert_eq!(
        play(&mut somebodys, 0, &["HD F3 f0\r\n", "HD\r\n"]),
        ["ml k F H f", "mu k", "NotObtained(HasValue)"]
    );
}

#[test]
fn a_note_that_is_gone_is_no_lock_that_is_gone() {
    let mut bound = asked(noted());
    play(&mut bound, 0, &["HD F3\r\n", "HD c9\r\n"]);
    bound.release();
    assert_eq!(
        play(&mut bound, 1, &["NF\r\n", "HD\r\n"]),
        ["md k U", "mu k", "Released"]
    );
    for (noted_or_not, words) in [(noted(), "md k U"), (patient(), "mu k")] {
        let mut taken = asked(noted_or_not);
        play(&mut taken, 0, &["HD F3\r\n", "HD c9\r\n"]);
        assert!(taken.is_held());
        taken.release();
        let not_ours = if words == "mu k" { "NF\r\n" } else { "EX\r\n" };
        assert_eq!(play(&mut taken, 1, &[not_ours]), [words, "NotHeld"]);
    }
}

#[test]
fn reads_and_writes_work_without_an_item() {
    let mut bound = asked(patient());
    play(&mut bound, 0, &["HD F3\r\n"]);
    bound.read();
    let read = play(&mut bound, 1, &["END\r\n"]);
    assert_eq!(
        read,
        [
            "gets k",
            "Read(Item { value: [], cas: None, client_flags: 1819239275 })"
        ]
    );
    bound.replace_and_unlock(b"new", 0, Exptime::Never);
    assert_eq!(
        play(&mut bound, 2, &["STORED\r\n", "HD\r\n"]),
        ["set k 0 0 3 new", "mu k", "Released"]
    );
    // If the item must exist, a missing one was removed by another client.
    let mut refuses = asked(BoundTerms::default());
    play(&mut refuses, 0, &["HD F3\r\n"]);
    refuses.read();
    assert!(play(&mut refuses, 1, &["END\r\n"])[1].starts_with("Undone"));
}

#[test]
fn overwritten_note_outlives_the_lock() {
    let mut bound = asked(noted());
    play(&mut bound, 0, &["HD F3\r\n", "HD c9\r\n"]);
    bound.write(b"new", 0, Exptime::Never);
    assert_eq!(
        play(&mut bound, 1, &["STORED\r\n"]),
        ["set k 0 0 3 new", "Written"]
    );
    bound.release();
    assert_eq!(play(&mut bound, 2, &["HD\r\n"]), ["mu k", "Released"]);
}

#[test]
fn the_end_of_the_connection_is_the_end_of_the_keys_lock() {
    let mut bound = asked(patient());
    play(&mut bound, 0, &["HD F3\r\n"]);
    bound.disconnected(at(1));
    assert_eq!(play(&mut bound, 1, &[]), ["Lost(Disconnected)"]);
}

/// B6.
#[test]
fn a_leased_item_is_left_alone_until_it_is_gone() {
    const LEASED: &str = "HD F7 f1818583411\r\n";
    let mut bound = asked(patient());
    assert_eq!(
        play(&mut bound, 0, &[LEASED, "HD\r\n"]),
        ["ml k F H f", "mu k"]
    );
    assert_eq!(play(&mut bound, 100, &["HD f1818583411\r\n"]), ["mg k f"]);
    // Another client's connection-bound lock may be held next, and after it a lease again.
    assert_eq!(
        play(&mut bound, 200, &["EN\r\n", HELD, LEASED, "HD\r\n"]),
        ["mg k f", "ml k F H f", "ml k F H f w3600000", "mu k"]
    );
    // An item of another kind is no obstacle.
    assert_eq!(
        play(&mut bound, 300, &["HD f0\r\n", "HD F9 f0\r\n"]),
        ["mg k f", "ml k F H f", "Obtained"]
    );
    assert_eq!(bound.fence().map(Fence::number), Some(9));
    for terms in [
        BoundTerms::default(),
        BoundTerms {
            mark: Mark::Note(b"note"[..].into(), Exptime::Never),
            ..BoundTerms::default()
        },
    ] {
        let mut once = asked(terms);
        let done = play(&mut once, 0, &[LEASED, "HD\r\n"]);
        assert_eq!(done, ["ml k F H f x", "mu k", "NotObtained(Held)"]);
    }
}

#[test]
fn a_key_with_blanks_is_locked_by_ml_alone() {
    let any_key = || {
        let mut bound = Bound::new(Key::new(b"a b").unwrap(), patient());
        bound.connected(at(0));
        bound.obtain(at(0));
        bound
    };
    let mut bound = any_key();
    assert_eq!(
        play(&mut bound, 0, &["HD F7\r\n"]),
        ["ml YSBi b F H f", "Obtained"]
    );
    bound.write(b"v", 3, Exptime::Never);
    bound.read();
    assert_eq!(
        play(&mut bound, 1, &["HD\r\n", "VA 1 c9 f3\r\nv\r\n"]),
        [
            "ms YSBi 1 b F3 T0 v",
            "Written",
            "mg YSBi b v c f",
            "Read(Item { value: [118], cas: Some(Cas(9)), client_flags: 3 })"
        ]
    );
    let mut elsewhere = any_key();
    assert_eq!(
        play(&mut elsewhere, 0, &["ERROR\r\n"]),
        ["ml YSBi b F H f", "Failed(Unsupported(AnyKeys))"]
    );
}
