//! A lock that ends by time as well, against a server that knows `ml`.

use super::*;
use crate::{Feature, LeaseTerms};

fn leased(lease: LeaseTerms, retry: Retry) -> Bound {
    let mut bound = Bound::new(
        Key::new(b"k").unwrap(),
        BoundTerms {
            retry,
            deadline: Some(Duration::from_secs(10)),
            missing: MissingItem::Create(Exptime::Never),
            heartbeat: None,
            lease: Some(lease),
            ..BoundTerms::default()
        },
    );
    bound.connected(at(0));
    bound.obtain(at(0));
    bound
}

fn quarter() -> LeaseTerms {
    LeaseTerms {
        ttl: Duration::from_millis(250),
        watchdog: true,
        hold_max: None,
    }
}

/// A lock obtained at 0, as grant 7.
fn held(lease: LeaseTerms) -> Bound {
    let mut bound = leased(lease, Retry::none());
    assert_eq!(
        play(&mut bound, 0, &["HD F7\r\n"]),
        ["ml k F H T0.263 s", "Obtained"]
    );
    assert_eq!((bound.number(), bound.deadline()), (Some(7), Some(at(250))));
    bound
}

#[test]
fn it_is_renewed_at_a_third_and_given_back() {
    let mut bound = held(quarter());
    assert!(play(&mut bound, 82, &[]).is_empty());
    assert_eq!(play(&mut bound, 83, &["HD F7\r\n"]), ["ml k F H T0.263"]);
    assert_eq!(bound.deadline(), Some(at(333)));
    bound.release();
    assert_eq!(play(&mut bound, 90, &["HD\r\n"]), ["mu k", "Released"]);
    assert_eq!(bound.deadline(), None);
}

#[test]
fn missed_renewal_loses_lock_and_connection() {
    let mut bound = held(LeaseTerms {
        watchdog: false,
        ..quarter()
    });
    let Action::Wait { until } = bound.poll(at(249)) else {
        panic!("it is held still")
    };
    assert_eq!(until, Some(at(250)));
    assert_eq!(play(&mut bound, 250, &[]), ["Lost(Expired)", "disconnect"]);
    // A silent server: the belief ends before the silence is noticed.
    let mut bound = held(quarter());
    assert_eq!(play(&mut bound, 83, &[]), ["ml k F H T0.263"]);
    assert_eq!(play(&mut bound, 250, &[]), ["Lost(Expired)", "disconnect"]);
}

#[test]
fn another_number_or_another_holder_is_a_loss() {
    for answer in ["HD F8\r\n", "LK h2 a0 n0\r\n", "NF\r\n"] {
        let mut bound = held(quarter());
        assert_eq!(
            play(&mut bound, 83, &[answer]),
            ["ml k F H T0.263", "Lost(Taken)", "disconnect"],
            "{answer}"
        );
    }
}

#[test]
fn a_refresh_has_a_new_ttl_and_a_hold_has_an_end() {
    let mut bound = held(LeaseTerms {
        watchdog: false,
        hold_max: Some(Duration::from_millis(700)),
        ..quarter()
    });
    bound.refresh(Duration::from_millis(600));
    assert_eq!(
        play(&mut bound, 50, &["HD F7\r\n"]),
        ["ml k F H T0.616", "Refreshed"]
    );
    assert_eq!(bound.deadline(), Some(at(650)));
    bound.refresh(Duration::from_millis(600));
    assert_eq!(
        play(&mut bound, 200, &["SERVER_ERROR busy\r\n"]),
        ["ml k F H T0.616", "Undone(Refused(\"SERVER_ERROR busy\"))"]
    );
    bound.refresh(Duration::from_millis(600));
    play(&mut bound, 300, &["HD F7\r\n"]);
    assert_eq!(bound.deadline(), Some(at(700)));
    assert_eq!(
        play(&mut bound, 700, &[]),
        ["Lost(HeldTooLong)", "disconnect"]
    );
}

#[test]
fn waited_lock_is_renewed_before_belief() {
    let mut bound = leased(quarter(), Retry::linear(Duration::from_millis(10)));
    assert_eq!(
        play(&mut bound, 0, &["LK h2 a0 n0\r\n"]),
        ["ml k F H T0.263 s", "ml k F H T0.263 s w10000"]
    );
    // It was granted at some moment since.
    bound.reply(at(5_000), &answer(b"HD F7\r\n"));
    assert_eq!(
        play(&mut bound, 5_000, &["HD F9\r\n"]),
        ["ml k F H T0.263", "Obtained"]
    );
    assert_eq!(
        (bound.number(), bound.deadline()),
        (Some(9), Some(at(5_250)))
    );
}

#[test]
fn key_with_an_item_counts_as_held() {
    let mut bound = leased(quarter(), Retry::linear(Duration::from_millis(100)));
    assert_eq!(
        play(&mut bound, 0, &["HD F7 s20\r\n", "HD\r\n"]),
        ["ml k F H T0.263 s", "mu k"]
    );
    // The item is looked up before the next try, and so is a queue that other clients have made since.
    let shown = "ME k exp=5 la=0 cas=7 fetch=no cls=1 size=90";
    let free = std::format!("{shown}\r\n");
    let locked = std::format!("{shown} lock=2 fence=9 held=0 waiting=0 mode=x\r\n");
    assert_eq!(play(&mut bound, 100, &[&free]), ["me k"]);
    assert_eq!(
        play(
            &mut bound,
            200,
            &[&locked, "LK h2 a0 n0\r\n", "HD F8 s20\r\n", "HD\r\n"]
        ),
        [
            "me k",
            "ml k F H T0.263 s",
            "ml k F H T0.263 s w9800",
            "mu k"
        ]
    );
    assert_eq!(
        play(&mut bound, 300, &["EN\r\n", "HD F8\r\n"]),
        ["me k", "ml k F H T0.263 s", "Obtained"]
    );
    let mut once = leased(quarter(), Retry::none());
    assert_eq!(
        play(&mut once, 0, &["HD F7 s20\r\n", "HD\r\n"]),
        ["ml k F H T0.263 s", "mu k", "NotObtained(Held)"]
    );
}

#[test]
fn a_server_without_ml_has_no_such_locks() {
    for answer in ["ERROR\r\n", "CLIENT_ERROR bad command line format\r\n"] {
        let mut bound = leased(quarter(), Retry::none());
        let failed = std::format!("Failed(Unsupported({:?}))", Feature::ShortLeases);
        let asked = play(&mut bound, 0, &[answer; 2]);
        assert_eq!(asked.first().unwrap(), "ml k F H T0.263 s");
        assert_eq!(asked.last(), Some(&failed));
        // Another lock learns that on the same connection: nothing is sent.
        bound.knows(LockSupport::Classic);
        bound.obtain(at(1));
        assert_eq!(play(&mut bound, 1, &[]), [failed]);
        assert!(bound.is_idle());
    }
}
