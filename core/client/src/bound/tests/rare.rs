//! Answers that hardly ever come, and moments that hardly ever meet.

use core::num::NonZero;

use latchd_protocol::command::Mode;

use super::*;
use crate::LeaseTerms;

const HELD: &str = "LK h7 a0 n0\r\n";

fn made() -> BoundTerms {
    BoundTerms {
        missing: MissingItem::Create(Exptime::Never),
        ..BoundTerms::default()
    }
}

fn patient(pause_ms: u64, deadline_ms: u64) -> BoundTerms {
    BoundTerms {
        retry: Retry::linear(Duration::from_millis(pause_ms)),
        deadline: Some(Duration::from_millis(deadline_ms)),
        ..made()
    }
}

fn leased() -> BoundTerms {
    BoundTerms {
        heartbeat: None,
        lease: Some(LeaseTerms {
            ttl: Duration::from_millis(250),
            watchdog: true,
            hold_max: None,
        }),
        ..patient(10, 10_000)
    }
}

fn say(bound: &mut Bound, ms: u64, line: &'static [u8]) {
    bound.reply(at(ms), &answer(line));
}

#[test]
fn held_lock_is_not_requested_again() {
    let mut bound = bound(BoundTerms::default());
    play(&mut bound, 0, &["OK\r\n"]);
    bound.obtain(at(1));
    assert_eq!(play(&mut bound, 1, &[]), [""; 0]);
    assert!(bound.is_held());
}

#[test]
fn only_a_holder_wakes_for_heartbeats() {
    let mut bound = bound(BoundTerms::default());
    play(&mut bound, 0, &["OK\r\n"]);
    let until = Some(at(5_000));
    assert_eq!(bound.poll(at(1)), Action::Wait { until });
    bound.release();
    play(&mut bound, 2, &["OK\r\n"]);
    assert_eq!(bound.poll(at(3)), Action::Wait { until: None });
}

/// After a second of silence, the server's last answer about a holder does not count.
#[test]
fn an_answer_is_expected_for_less_than_a_second() {
    for (deadline_ms, end) in [
        (1_899, "NotObtained(Deadline)"),
        (1_900, "Failed(NoAnswer)"),
    ] {
        let mut bound = bound(patient(1_000, deadline_ms));
        assert_eq!(play(&mut bound, 0, &["LOCKED\r\n"]), ["lock k"]);
        assert_eq!(play(&mut bound, 1_000, &[]), ["lock k"]);
        assert_eq!(
            play(&mut bound, deadline_ms + 100, &[]).first().unwrap(),
            end
        );
    }
}

#[test]
fn a_mark_without_a_version_is_none() {
    for answer in ["HD c0\r\n", "HD\r\n", "NS c9\r\n"] {
        let mut bound = bound(BoundTerms {
            mark: Mark::Number,
            ..BoundTerms::default()
        });
        let done = play(&mut bound, 0, &["OK\r\n", answer]);
        assert_eq!(done[..2], ["lock k", "ms k 0 MA c"]);
        assert!(done[2].starts_with("Failed("), "{answer:?}: {done:?}");
    }
}

#[test]
fn shared_lock_refuses_writes() {
    let mode = Mode::Shared {
        among: NonZero::new(4),
    };
    let mut shared = asked(BoundTerms { mode, ..made() });
    assert_eq!(
        play(&mut shared, 0, &["HD F7\r\n"]),
        ["ml k F H f S4", "Obtained"]
    );
    shared.write(b"new", 0, Exptime::Never);
    let done = play(&mut shared, 1, &["LOCKED\r\n"]);
    assert_eq!(done[0], "set k 0 0 3 new");
    assert!(done[1].starts_with("Undone(Refused("), "{done:?}");
    assert!(shared.is_held());
    let mut own = asked(made());
    play(&mut own, 0, &["HD F7\r\n"]);
    own.write(b"new", 0, Exptime::Never);
    assert_eq!(
        play(&mut own, 1, &["LOCKED\r\n"]),
        ["set k 0 0 3 new", "Lost(Taken)"]
    );
}

#[test]
fn a_value_is_written_with_its_exptime() {
    let mut bound = bound(BoundTerms::default());
    play(&mut bound, 0, &["OK\r\n"]);
    bound.write(b"new", 5, Exptime::In { seconds: 60 });
    assert_eq!(
        play(&mut bound, 1, &["STORED\r\n"]),
        ["set k 5 60 3 new", "Written"]
    );
}

#[test]
fn no_grant_has_the_number_0() {
    let mut bound = asked(made());
    let done = play(&mut bound, 0, &["HD F0\r\n"]);
    assert!(done[1].starts_with("Failed("), "{done:?}");
    // Nor has a renewal of a lock that was granted after a wait.
    let mut waited = asked(leased());
    play(&mut waited, 0, &[HELD]);
    say(&mut waited, 5_000, b"HD F7\r\n");
    let done = play(&mut waited, 5_000, &["HD F0\r\n"]);
    assert_eq!(done[0], "ml k F H T0.263");
    assert!(done[1].starts_with("Failed("), "{done:?}");
}

#[test]
fn lost_grant_is_requested_again() {
    let mut bound = asked(leased());
    play(&mut bound, 0, &[HELD]);
    say(&mut bound, 5_000, b"HD F7\r\n");
    assert_eq!(play(&mut bound, 5_000, &[HELD]), ["ml k F H T0.263"]);
    assert_eq!(
        play(&mut bound, 5_010, &["HD F9\r\n"]),
        ["ml k F H T0.263 s", "Obtained"]
    );
}

/// E3, after a wait.
#[test]
fn granted_lock_with_item_is_released() {
    let mut bound = asked(leased());
    play(&mut bound, 0, &[HELD]);
    say(&mut bound, 5_000, b"HD F7 s20\r\n");
    assert_eq!(play(&mut bound, 5_000, &["HD\r\n"]), ["mu k"]);
    assert_eq!(play(&mut bound, 5_010, &[]), ["me k"]);
}

#[test]
fn refused_renewal_retries_after_a_tenth() {
    let mut bound = asked(leased());
    play(&mut bound, 0, &["HD F7\r\n"]);
    assert_eq!(
        play(&mut bound, 83, &["SERVER_ERROR busy\r\n"]),
        ["ml k F H T0.263"]
    );
    assert_eq!(play(&mut bound, 107, &[]), [""; 0]);
    assert_eq!(play(&mut bound, 108, &["HD F7\r\n"]), ["ml k F H T0.263"]);
    assert_eq!(bound.deadline(), Some(at(358)));
}

#[test]
fn a_wait_may_end_ten_milliseconds_early() {
    for (ms, words) in [(489, LockSupport::Asks), (490, LockSupport::Waits)] {
        let mut bound = asked(patient(100, 500));
        assert_eq!(
            play(&mut bound, 0, &[HELD]),
            ["ml k F H f", "ml k F H f w500"]
        );
        say(&mut bound, ms, HELD.as_bytes());
        assert_eq!(bound.words(), words, "{ms}");
    }
}

#[test]
fn an_answer_to_a_wait_that_is_none_is_a_failure() {
    let mut bound = asked(patient(100, 500));
    play(&mut bound, 0, &[HELD]);
    bound.reply(at(1), &AnyResponse::Silent);
    let done = play(&mut bound, 1, &[]);
    assert!(done[0].starts_with("Failed("), "{done:?}");
}
