//! A lock on a server that shows for how long it is the only one. Replies arrive later than they are sent.

use super::*;
use crate::SessionTerms;

const HELD: &str = "LK h7 a0 n0\r\n";

fn terms() -> BoundTerms {
    BoundTerms {
        retry: Retry::linear(Duration::from_millis(100)),
        missing: MissingItem::Create(Exptime::Never),
        ..BoundTerms::default()
    }
}

/// A lock requested at 0 and granted 300 ms later as grant 7, by a server that was alone for 3,000 ms more.
fn held() -> Bound {
    let mut bound = asked(terms());
    assert_eq!(play(&mut bound, 0, &[]), ["ml k F H f"]);
    bound.reply(at(300), &answer(b"HD F7 H3000\r\n"));
    assert_eq!(play(&mut bound, 300, &[]), ["Obtained"]);
    bound
}

/// J1: A reply that was long on its way does not make the belief longer.
#[test]
fn hold_counts_from_the_sending() {
    let mut bound = held();
    assert_eq!(bound.deadline(), Some(at(3_000)));
    assert_eq!(play(&mut bound, 1_000, &[]), ["mn H"]);
    bound.reply(at(2_500), &answer(b"MN H3100\r\n"));
    assert_eq!(bound.deadline(), Some(at(4_100)));
}

#[test]
fn belief_ends_with_the_hold() {
    let mut bound = held();
    assert_eq!(play(&mut bound, 1_000, &[]), ["mn H"]);
    let Action::Wait { until } = bound.poll(at(2_999)) else {
        panic!("it is held still")
    };
    assert_eq!(until, Some(at(3_000)));
    assert!(bound.is_held());
    let lost = ["Lost(Unconfirmed)", "disconnect"];
    assert_eq!(play(&mut bound, 3_000, &[]), lost);
    assert!(!bound.is_held());
}

#[test]
fn holder_asks_once_a_second() {
    let mut bound = held();
    assert_eq!(play(&mut bound, 999, &[]), [""; 0]);
    for second in 1..20 {
        let now = second * 1_000;
        assert_eq!(play(&mut bound, now, &["MN H3000\r\n"]), ["mn H"]);
        assert_eq!(bound.deadline(), Some(at(now + 3_000)));
        assert_eq!(play(&mut bound, now + 999, &[]), [""; 0]);
    }
    // A job does not delay the question, and a check asks it as well.
    bound.read();
    bound.check();
    assert_eq!(
        play(
            &mut bound,
            20_000,
            &["MN H3000\r\n", "END\r\n", "MN H2900\r\n"]
        ),
        [
            "mn H",
            "gets k",
            "Read(Item { value: [], cas: None, client_flags: 1819239275 })",
            "mn H",
            "Checked"
        ]
    );
    assert_eq!(bound.deadline(), Some(at(23_000)), "the later one counts");
}

#[test]
fn short_hold_is_asked_for_sooner() {
    let mut bound = asked(terms());
    assert_eq!(play(&mut bound, 0, &["HD F7 H600\r\n"])[1], "Obtained");
    assert_eq!(play(&mut bound, 199, &[]), [""; 0]);
    assert_eq!(play(&mut bound, 200, &["MN H0\r\n"]), ["mn H"]);
    assert_eq!(bound.deadline(), Some(at(600)));
    assert_eq!(play(&mut bound, 249, &[]), [""; 0], "not as fast as it can");
    assert_eq!(play(&mut bound, 250, &["MN H590\r\n"]), ["mn H"]);
    assert_eq!(bound.deadline(), Some(at(840)));
}

#[test]
fn refusal_does_not_renew() {
    let mut bound = held();
    let refused = "SERVER_ERROR not primary\r\n";
    assert_eq!(play(&mut bound, 1_000, &[refused]), ["mn H"]);
    assert_eq!(bound.deadline(), Some(at(3_000)));
    assert_eq!(play(&mut bound, 1_050, &["MN\r\n"]), ["mn H"]);
    assert_eq!(play(&mut bound, 3_000, &[])[0], "Lost(Unconfirmed)");
}

/// J2: The hold that came with the grant counts from before the wait.
#[test]
fn long_wait_is_confirmed_first() {
    let mut bound = asked(terms());
    let done = play(&mut bound, 0, &[HELD]);
    assert_eq!(done, ["ml k F H f", "ml k F H f w3600000"]);
    bound.reply(at(5_000), &answer(b"HD F7 H3000\r\n"));
    assert!(!bound.is_held());
    assert_eq!(
        play(&mut bound, 5_000, &["MN H2900\r\n"]),
        ["mn H", "Obtained"]
    );
    assert_eq!(bound.deadline(), Some(at(7_900)));
}

#[test]
fn lock_without_hold_is_not_believed() {
    for (answer, failure) in [
        ("MN H0\r\n", "Failed(NoAnswer)"),
        ("MN\r\n", "Failed(NoAnswer)"),
        (
            "SERVER_ERROR not primary\r\n",
            "Failed(Refused(\"SERVER_ERROR not primary\"))",
        ),
    ] {
        let mut bound = asked(terms());
        let done = play(&mut bound, 0, &["HD F7 H0\r\n", answer]);
        assert_eq!(done, ["ml k F H f", "mn H", failure, "disconnect"]);
    }
}

#[test]
fn server_without_hold_is_believed_as_before() {
    let mut bound = asked(terms());
    assert_eq!(
        play(&mut bound, 0, &["HD F7\r\n"]),
        ["ml k F H f", "Obtained"]
    );
    assert_eq!(bound.deadline(), None);
    assert_eq!(play(&mut bound, 5_000, &["MN\r\n"]), ["mn"]);
}

#[test]
fn unknown_flag_is_left_out() {
    let refused = "CLIENT_ERROR invalid flag\r\n";
    let mut bound = asked(terms());
    assert_eq!(
        play(&mut bound, 0, &[refused, HELD, "HD F7\r\n"]),
        ["ml k F H f", "ml k F f", "ml k F f w3600000", "Obtained"]
    );
    assert_eq!(bound.words(), LockSupport::Waits);
    // Another lock knows only that this connection has `ml`.
    let mut next = asked(terms());
    next.knows(LockSupport::Waits);
    assert_eq!(
        play(&mut next, 0, &[refused, "HD F8\r\n"]),
        ["ml k F H f", "ml k F f", "Obtained"]
    );
}

#[test]
fn session_is_believed_no_longer_than_the_hold() {
    let session = SessionTerms::new([7; 16], Duration::from_secs(30)).unwrap();
    let mut bound = asked(BoundTerms {
        session: Some(session),
        ..terms()
    });
    let done = play(&mut bound, 0, &["HD n9 N\r\n", "HD F7 H3000\r\n"]);
    assert_eq!(done.last().unwrap(), "Obtained");
    assert_eq!(bound.deadline(), Some(at(3_000)));
    assert_eq!(play(&mut bound, 1_000, &["MN H3000\r\n"]), ["mn H"]);
    // The connection breaks: the belief goes on, and the next one confirms the grant and the hold.
    bound.disconnected(at(1_500));
    assert_eq!(play(&mut bound, 1_500, &[]), ["connect"]);
    bound.connected(at(1_500));
    assert_eq!(bound.deadline(), Some(at(4_000)));
    let done = play(&mut bound, 1_600, &["HD n9 R\r\n", "HD F7 H2800\r\n"]);
    assert_eq!(done[1], "ml k F H");
    assert_eq!(bound.deadline(), Some(at(4_400)));
    bound.disconnected(at(4_000));
    assert_eq!(play(&mut bound, 4_399, &[]), ["connect"]);
    assert_eq!(play(&mut bound, 4_400, &[])[0], "Lost(Unconfirmed)");
}
