//! A lock in a session, against a server of a few lines. `believers.rs` has a real one.

use super::*;
use crate::SessionTerms;

const OPEN: &str = "mo 0708090a0b0c0d0e0f1011121314151600000000 T30";
const RESUME: &str = "mo 0708090a0b0c0d0e0f1011121314151600000000 T30 x";
const END: &str = "mo 0708090a0b0c0d0e0f1011121314151600000000 T0";

fn session(ttl: Duration) -> SessionTerms {
    SessionTerms::new(
        core::array::from_fn(|place| 7 + u8::try_from(place).unwrap()),
        ttl,
    )
    .unwrap()
}

fn terms() -> BoundTerms {
    BoundTerms {
        missing: MissingItem::Create(Exptime::Never),
        session: Some(session(Duration::from_secs(30))),
        ..BoundTerms::default()
    }
}

/// A lock obtained at 0, as grant 7 of session 9.
fn held(terms: BoundTerms) -> Bound {
    let mut bound = asked(terms);
    let done = play(&mut bound, 0, &["HD n9 N\r\n", "HD F7\r\n"]);
    assert_eq!(done.last().unwrap(), "Obtained");
    bound
}

/// Breaks its connection, and opens another one as soon as it wants that.
fn break_at(bound: &mut Bound, ms: u64) {
    bound.disconnected(at(ms));
    assert_eq!(play(bound, ms, &[]), ["connect"]);
    bound.connected(at(ms));
}

#[test]
fn a_session_is_opened_pinged_and_ended() {
    let mut bound = asked(terms());
    assert_eq!(
        play(&mut bound, 5, &["HD n9 N\r\n", "HD F7\r\n"]),
        [OPEN, "ml k F H f", "Obtained"]
    );
    // T is 30 s, less 1% and 10 ms, from the moment at which the request was sent.
    assert_eq!(bound.deadline(), Some(at(29_695)));
    assert_eq!(play(&mut bound, 10_004, &[]), [""; 0]);
    assert_eq!(play(&mut bound, 10_005, &[]), [RESUME]);
    let answer = AnyResponse::Session(SessionResponse::Resumed(Owner::of_session(9)));
    bound.reply(at(12_000), &answer);
    assert_eq!(bound.deadline(), Some(at(39_695)));
    // A check is a sign of life of the session.
    bound.check();
    assert_eq!(
        play(&mut bound, 13_000, &["HD n9 R\r\n"]),
        [RESUME, "Checked"]
    );
    bound.release();
    assert_eq!(
        play(&mut bound, 14_000, &["HD\r\n", "HD\r\n"]),
        ["mu k", "Released", END, "SessionEnded"]
    );
    assert!(bound.is_idle() && bound.link == Link::Up);
    // The next session has another token (H6).
    bound.obtain(at(15_000));
    let next = OPEN.replace("00000000 ", "00000001 ");
    assert_eq!(play(&mut bound, 15_000, &[]), [next]);
}

#[test]
fn a_resumed_session_has_the_same_grant() {
    let mut bound = held(terms());
    break_at(&mut bound, 20_000);
    assert!(bound.is_held(), "the session has time");
    assert_eq!(
        play(&mut bound, 20_000, &["HD n9 R\r\n", "HD F7\r\n"]),
        [RESUME, "ml k F H"]
    );
    assert_eq!(
        (bound.is_held(), bound.deadline()),
        (true, Some(at(49_690)))
    );
    for (answers, lost) in [
        // The grant was ended, and this is another one: it ends with the session.
        (
            &["HD n9 R\r\n", "HD F8\r\n", "HD\r\n"][..],
            &[RESUME, "ml k F H", "Lost(Taken)", END, "SessionEnded"][..],
        ),
        (
            &["HD n9 R\r\n", "LK\r\n", "HD\r\n"],
            &[RESUME, "ml k F H", "Lost(Taken)", END, "SessionEnded"],
        ),
        (
            &["NF\r\n"],
            &[RESUME, "Lost(Taken)", "SessionEnded", "disconnect"],
        ),
        // Somebody else has opened a session with the token.
        (
            &["HD n10 R\r\n"],
            &[RESUME, "Lost(Taken)", "SessionEnded", "disconnect"],
        ),
    ] {
        let mut bound = held(terms());
        break_at(&mut bound, 20_000);
        assert_eq!(play(&mut bound, 20_000, answers), lost);
        assert!(!bound.is_held() && bound.deadline().is_none());
    }
}

#[test]
fn an_unreachable_session_is_lost_in_time() {
    let mut bound = held(terms());
    bound.disconnected(at(20_000));
    let (mut ms, mut tries) = (20_000, 0);
    while ms < 29_690 {
        match bound.poll(at(ms)) {
            Action::Connect { until } => {
                assert_eq!(until, Some(at(29_690)));
                bound.disconnected(at(ms));
                tries += 1;
            }
            Action::Wait { until } => ms = until.unwrap().as_millis(),
            other @ (Action::Disconnect | Action::Send(_) | Action::Tell(_)) => {
                panic!("{other:?}")
            }
        }
    }
    // 0, 100, 200, 400, 800 and 1,000 ms, each less a half at most.
    assert!((10..25).contains(&tries), "{tries} tries");
    assert_eq!(
        bound.poll(at(29_690)),
        Action::Tell(BoundNews::Lost(Loss::Expired))
    );
    // The client goes on to end the session, until the server has done that, which heard it until the break at most.
    assert_eq!(play(&mut bound, 49_999, &[]), ["connect"]);
    assert!(!bound.is_idle());
    assert_eq!(play(&mut bound, 50_000, &[]), ["SessionEnded"]);
    assert!(bound.is_idle());
}

#[test]
fn a_silent_connection_is_replaced_in_time() {
    let mut bound = held(BoundTerms {
        session: Some(session(Duration::from_secs(3))),
        ..terms()
    });
    assert_eq!(bound.deadline(), Some(at(2_960)));
    assert_eq!(play(&mut bound, 1_000, &[]).len(), 1);
    assert_eq!(play(&mut bound, 1_999, &[]), [""; 0]);
    assert_eq!(play(&mut bound, 2_000, &[]), ["disconnect"]);
    break_at(&mut bound, 2_000);
    let done = play(&mut bound, 2_100, &["HD n9 R\r\n", "HD F7\r\n"]);
    assert_eq!((done.len(), bound.deadline()), (2, Some(at(5_060))));
}

#[test]
fn a_lost_reply_is_asked_for_again() {
    // To `ml`.
    let mut bound = asked(terms());
    assert_eq!(play(&mut bound, 0, &["HD n9 N\r\n"]), [OPEN, "ml k F H f"]);
    break_at(&mut bound, 2_000);
    assert_eq!(
        play(&mut bound, 2_000, &["HD n9 R\r\n", "HD F7\r\n"]),
        [OPEN, "ml k F H f", "Obtained"]
    );
    // To `mu`, which was executed, or not.
    for answer in ["NF\r\n", "HD\r\n"] {
        let mut bound = held(terms());
        bound.release();
        assert_eq!(play(&mut bound, 2_000, &[]), ["mu k"]);
        break_at(&mut bound, 3_000);
        assert_eq!(
            play(&mut bound, 3_000, &["HD n9 R\r\n", answer, "HD\r\n"]),
            [RESUME, "mu k", "Released", END, "SessionEnded"]
        );
    }
    // To a write and to a check: the lock comes first.
    let mut bound = held(terms());
    bound.replace_and_unlock(b"new", 0, Exptime::Never);
    assert_eq!(play(&mut bound, 2_000, &[]), ["set k 0 0 3 new"]);
    break_at(&mut bound, 3_000);
    assert_eq!(
        play(
            &mut bound,
            3_000,
            &["HD n9 R\r\n", "HD F7\r\n", "STORED\r\n", "HD\r\n", "HD\r\n"]
        ),
        [
            RESUME,
            "ml k F H",
            "set k 0 0 3 new",
            "mu k",
            "Released",
            END,
            "SessionEnded"
        ]
    );
    // Without a lost reply, a lock that is not there was not held.
    let mut bound = held(terms());
    bound.release();
    assert_eq!(
        play(&mut bound, 2_000, &["NF\r\n", "HD\r\n"]),
        ["mu k", "NotHeld", END, "SessionEnded"]
    );
}

#[test]
fn a_long_wait_is_confirmed_before_it_is_believed() {
    let mut bound = asked(BoundTerms {
        deadline: Some(Duration::from_secs(100)),
        retry: Retry::linear(Duration::from_secs(1)),
        ..terms()
    });
    let done = play(&mut bound, 0, &["HD n9 N\r\n", "LK\r\n"]);
    assert_eq!(done, [OPEN, "ml k F H f", "ml k F H f w100000"]);
    bound.reply(at(60_000), &answer(b"HD F7\r\n"));
    assert!(!bound.is_held());
    assert_eq!(
        play(&mut bound, 60_000, &["HD n9 R\r\n", "HD F7\r\n"]),
        [OPEN, "ml k F H f", "Obtained"]
    );
    assert_eq!(bound.deadline(), Some(at(89_690)));
    // A wait goes on over the next connection, however long that takes.
    let mut bound = asked(BoundTerms {
        deadline: Some(Duration::from_secs(100)),
        retry: Retry::linear(Duration::from_secs(1)),
        ..terms()
    });
    play(&mut bound, 0, &["HD n9 N\r\n", "LK\r\n"]);
    break_at(&mut bound, 50_000);
    bound.disconnected(at(50_000));
    assert_eq!(play(&mut bound, 50_200, &[]), ["connect"]);
    bound.connected(at(90_000));
    let done = play(&mut bound, 90_000, &["HD n10 N\r\n", "LK\r\n"]);
    assert_eq!(done, [OPEN, "ml k F H f", "ml k F H f w10000"]);
}

#[test]
fn an_abandoned_lock_ends_with_its_session() {
    // Held and quiet: over the same connection.
    let mut bound = held(terms());
    bound.abandon();
    assert_eq!(play(&mut bound, 1, &["HD\r\n"]), [END, "SessionEnded"]);
    assert!(bound.is_idle());
    // Waiting: over another connection, since this one hears nothing.
    let mut bound = asked(BoundTerms {
        deadline: Some(Duration::from_secs(100)),
        retry: Retry::linear(Duration::from_secs(1)),
        ..terms()
    });
    play(&mut bound, 0, &["HD n9 N\r\n", "LK\r\n"]);
    bound.abandon();
    assert_eq!(play(&mut bound, 2_000, &[]), ["disconnect"]);
    break_at(&mut bound, 2_000);
    assert_eq!(play(&mut bound, 2_000, &["HD\r\n"]), [END, "SessionEnded"]);
    // A deadline does the same.
    let mut bound = asked(BoundTerms {
        deadline: Some(Duration::from_secs(100)),
        retry: Retry::linear(Duration::from_secs(1)),
        ..terms()
    });
    play(&mut bound, 0, &["HD n9 N\r\n", "LK\r\n"]);
    assert_eq!(
        play(&mut bound, 100_100, &[]),
        ["NotObtained(Deadline)", "disconnect"]
    );
    break_at(&mut bound, 100_100);
    assert_eq!(
        play(&mut bound, 100_100, &["HD\r\n"]),
        [END, "SessionEnded"]
    );
    // Before it has begun, there is nothing to end.
    let mut bound = asked(terms());
    bound.abandon();
    assert!(bound.is_idle());
}

#[test]
fn servers_without_sessions_are_refused() {
    let mut memcached = asked(terms());
    assert_eq!(
        play(&mut memcached, 0, &["ERROR\r\n"]),
        [OPEN, "Failed(Unsupported(Sessions))", "SessionEnded"]
    );
    assert!(memcached.is_idle());
    let mut full = asked(terms());
    assert_eq!(
        play(
            &mut full,
            0,
            &["SERVER_ERROR too many sessions\r\n", "NF\r\n"]
        ),
        [
            OPEN,
            "Failed(Refused(\"SERVER_ERROR too many sessions\"))",
            END,
            "SessionEnded"
        ]
    );
    // A holder that is refused tries again, as long as the session has time.
    let mut bound = held(terms());
    assert_eq!(
        play(&mut bound, 10_000, &["SERVER_ERROR busy\r\n"]),
        [RESUME, "disconnect"]
    );
    assert!(bound.is_held());
    break_at(&mut bound, 10_000);
    let done = play(&mut bound, 10_000, &["HD n9 R\r\n", "HD F7\r\n"]);
    assert_eq!(done, [RESUME, "ml k F H"]);
    // An unreachable one fails as without a session.
    let mut nowhere = Bound::new(Key::new(b"k").unwrap(), terms());
    nowhere.obtain(at(0));
    assert_eq!(play(&mut nowhere, 0, &[]), ["connect"]);
    nowhere.disconnected(at(0));
    assert_eq!(play(&mut nowhere, 0, &[]), ["Failed(Disconnected)"]);
    assert!(nowhere.is_idle());
}

#[test]
fn two_clients_with_one_token_take_turns_slowly() {
    let mut bound = held(terms());
    let (mut ms, mut turns) = (5_000, 0);
    while ms < 15_000 {
        // The other client takes over at once.
        bound.disconnected(at(ms));
        while let Action::Wait { until } = bound.poll(at(ms)) {
            ms = until.unwrap().as_millis();
        }
        bound.connected(at(ms));
        let done = play(&mut bound, ms, &["HD n9 R\r\n", "HD F7\r\n"]);
        assert_eq!(done, [RESUME, "ml k F H"]);
        turns += 1;
    }
    assert!((10..30).contains(&turns), "{turns} in 10 s");
    assert!(bound.is_held());
}

#[test]
fn a_session_has_a_time_and_a_secret() {
    let new = |ms| SessionTerms::new([0xab; 16], Duration::from_millis(ms));
    for ms in [0, 999, 3_600_001, u64::MAX] {
        assert_eq!(new(ms), Err(crate::TermsError::SessionTime));
    }
    for (ms, seconds) in [(1_000, 1), (1_001, 2), (3_600_000, 3_600)] {
        let terms = new(ms).unwrap();
        let shown = std::format!("{terms:?}");
        assert_eq!(
            shown,
            std::format!("SessionTerms {{ seconds: {seconds}, .. }}")
        );
        let bound = Bound::new(
            Key::new(b"k").unwrap(),
            BoundTerms {
                session: Some(terms),
                ..BoundTerms::default()
            },
        );
        assert!(!std::format!("{bound:?}").contains("abab"));
    }
}
