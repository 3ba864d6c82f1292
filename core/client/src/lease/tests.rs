//! A lease against a server of a few lines, every message by hand.

extern crate std;

use alloc::string::String;
use alloc::vec::Vec;

mod place;
mod rare;

use super::*;
use crate::{Retry, Session};

const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn terms() -> Terms {
    Terms {
        watchdog: false,
        ..Terms::new(Duration::from_secs(3)).unwrap()
    }
}

fn lease(terms: Terms) -> Lease {
    let value = TokenValue::new(Token::new(b"me").unwrap(), b"").unwrap();
    let mut lease = Lease::new(Key::new(b"k").unwrap(), value, terms).unwrap();
    lease.connected(at(0));
    lease
}

/// Its next action, as text: the bytes it sends, or the action's name.
fn step(lease: &mut Lease, ms: u64) -> String {
    match lease.poll(at(ms)) {
        Action::Send(request) => {
            let mut out = Vec::new();
            Session::new().send(&request, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        }
        Action::Wait { until: Some(until) } => {
            assert!(until > at(ms), "it waits for the past");
            std::format!("wait {}", until.as_millis())
        }
        Action::Connect { .. } => String::from("connect"),
        other @ (Action::Disconnect | Action::Tell(_) | Action::Wait { .. }) => {
            std::format!("{other:?}")
        }
    }
}

/// The server says this at that moment.
fn say(lease: &mut Lease, ms: u64, bytes: &str) {
    // A session needs no matching request: all requests of a lease are meta ones.
    let mut session = Session::new();
    session
        .send(&lease.request(Query::Ask), &mut Vec::new())
        .unwrap();
    let received = session.receive(bytes.as_bytes()).unwrap().unwrap();
    assert_eq!(received.consumed, bytes.len());
    lease.reply(at(ms), &received.answer);
}

fn held(terms: Terms) -> Lease {
    let mut lease = lease(terms);
    lease.obtain(at(0));
    assert_eq!(step(&mut lease, 0), "ms k 2 ME F1818583411 T5 c\r\nme\r\n");
    say(&mut lease, 10, "HD c7\r\n");
    assert_eq!(step(&mut lease, 10), "Tell(Obtained)");
    lease
}

const MINE: &str = "VA 2 c9 t4\r\nme\r\n";
const OTHERS: &str = "VA 3 c9 t4\r\nmee\r\n";

#[test]
fn lease_lasts_a_ttl_from_the_request() {
    let lease = held(terms());
    assert!(lease.is_held(at(2_999)));
    assert!(!lease.is_held(at(3_000)));
    assert_eq!(lease.deadline(), Some(at(3_000)));
    assert_eq!(lease.number(), Cas::new(7));
}

#[test]
fn late_answer_is_renewed_before_belief() {
    let mut lease = lease(Terms {
        deadline: Some(Duration::from_secs(60)),
        ..terms()
    });
    lease.obtain(at(0));
    step(&mut lease, 0);
    say(&mut lease, 3_000, "HD c7\r\n");
    assert!(!lease.is_held(at(3_000)));
    assert_eq!(
        step(&mut lease, 3_000),
        "ms k 2 C7 F1818583411 T5 c\r\nme\r\n"
    );
    say(&mut lease, 3_001, "HD c8\r\n");
    assert_eq!(step(&mut lease, 3_001), "Tell(Obtained)");
    assert!(lease.is_held(at(5_999)) && !lease.is_held(at(6_000)));
}

#[test]
fn held_lease_is_retried_by_strategy() {
    let mut lease = lease(Terms {
        retry: Retry::linear(Duration::from_secs(1)),
        deadline: Some(Duration::from_millis(1_500)),
        ..terms()
    });
    lease.obtain(at(0));
    let add = "ms k 2 ME F1818583411 T5 c\r\nme\r\n";
    assert_eq!(step(&mut lease, 0), add);
    say(&mut lease, 0, "NS c0\r\n");
    assert_eq!(step(&mut lease, 0), "wait 1000");
    assert_eq!(step(&mut lease, 1_000), add);
    say(&mut lease, 1_000, "NS c0\r\n");
    assert_eq!(step(&mut lease, 1_000), "wait 1500");
    // The last try is at the deadline, even if the timer is late.
    assert_eq!(step(&mut lease, 1_503), add);
    say(&mut lease, 1_504, "NS c0\r\n");
    assert_eq!(step(&mut lease, 1_504), "Tell(NotObtained(Deadline))");

    // The next obtain has all its tries again.
    lease.obtain(at(5_000));
    assert_eq!(step(&mut lease, 5_000), add);
    say(&mut lease, 5_000, "NS c0\r\n");
    assert_eq!(step(&mut lease, 5_000), "wait 6000");
}

#[test]
fn without_a_strategy_one_refusal_is_final() {
    let mut lease = lease(terms());
    lease.obtain(at(0));
    step(&mut lease, 0);
    say(&mut lease, 0, "NS c0\r\n");
    assert_eq!(step(&mut lease, 0), "Tell(NotObtained(Held))");
    assert_eq!((lease.goal, lease.turn), (LeaseGoal::None, Turn::Rest));
}

#[test]
fn a_lost_answer_to_an_add_is_asked_after() {
    for (answer, next) in [
        (MINE, "ms k 2 C9 F1818583411 T5 c\r\nme\r\n"),
        ("EN\r\n", "ms k 2 ME F1818583411 T5 c\r\nme\r\n"),
        (OTHERS, "Tell(NotObtained(Held))"),
    ] {
        let mut lease = lease(terms());
        lease.obtain(at(0));
        step(&mut lease, 0);
        lease.disconnected(at(5));
        assert_eq!(step(&mut lease, 5), "connect");
        lease.connected(at(6));
        assert_eq!(step(&mut lease, 6), "mg k v c t\r\n");
        say(&mut lease, 7, answer);
        assert!(!lease.is_held(at(7)));
        assert_eq!(step(&mut lease, 7), next);
    }
}

#[test]
fn own_token_takes_over_its_item() {
    let own = Terms {
        own_token: true,
        ..terms()
    };
    let mut mine = lease(own.clone());
    mine.obtain(at(0));
    step(&mut mine, 0);
    say(&mut mine, 0, "NS c0\r\n");
    assert_eq!(step(&mut mine, 0), "mg k v c t\r\n");
    say(&mut mine, 0, MINE);
    assert_eq!(step(&mut mine, 0), "ms k 2 C9 F1818583411 T5 c\r\nme\r\n");
    say(&mut mine, 0, "HD c10\r\n");
    assert_eq!(step(&mut mine, 0), "Tell(Obtained)");

    let mut others = lease(own);
    others.obtain(at(0));
    step(&mut others, 0);
    say(&mut others, 0, "NS c0\r\n");
    step(&mut others, 0);
    say(&mut others, 0, OTHERS);
    assert_eq!(step(&mut others, 0), "Tell(NotObtained(Held))");
}

#[test]
fn a_refresh_counts_from_when_it_was_sent() {
    let mut lease = held(terms());
    lease.refresh(at(1_000), Duration::from_secs(10)).unwrap();
    assert_eq!(
        step(&mut lease, 1_000),
        "ms k 2 C7 F1818583411 T12 c\r\nme\r\n"
    );
    say(&mut lease, 1_900, "HD c8\r\n");
    assert_eq!(step(&mut lease, 1_900), "Tell(Refreshed)");
    assert!(lease.is_held(at(10_999)) && !lease.is_held(at(11_000)));
    assert_eq!(lease.number(), Cas::new(7));
}

#[test]
fn a_refresh_for_less_is_believed_from_its_sending_on() {
    let mut lease = held(
        Terms {
            ttl: Duration::from_secs(60),
            ..terms()
        }
        .with_first_ttl(),
    );
    lease.refresh(at(1_000), Duration::from_secs(1)).unwrap();
    assert_eq!(
        step(&mut lease, 1_000),
        "ms k 2 C7 F1818583411 T3 c\r\nme\r\n"
    );
    assert!(lease.is_held(at(1_999)) && !lease.is_held(at(2_000)));
    assert_eq!(step(&mut lease, 2_000), "Tell(Lost(Expired))");
    // The answer comes, and it brings nothing back.
    say(&mut lease, 2_001, "HD c8\r\n");
    assert!(!lease.is_held(at(2_001)));
}

#[test]
fn unnoticed_end_is_reported_on_call() {
    let asks: [fn(&mut Lease); 2] = [
        |lease| lease.refresh(at(9_000), Duration::from_secs(1)).unwrap(),
        |lease| lease.measure(at(9_000)),
    ];
    for ask in asks {
        let mut lease = held(terms());
        ask(&mut lease);
        assert_eq!(step(&mut lease, 9_000), "Tell(Lost(Expired))");
        assert!(step(&mut lease, 9_000).starts_with("Wait"));
        ask(&mut lease);
        assert_eq!(step(&mut lease, 9_000), "Tell(NotHeld)");
    }
}

impl Terms {
    /// `held` spells out the add of a 3 s lease.
    fn with_first_ttl(mut self) -> Self {
        self.ttl = Duration::from_secs(3);
        self
    }
}

#[test]
fn refresh_during_a_renewal_is_resent() {
    let mut lease = held(Terms {
        watchdog: true,
        ..terms()
    });
    assert_eq!(
        step(&mut lease, 1_000),
        "ms k 2 C7 F1818583411 T5 c\r\nme\r\n"
    );
    lease.refresh(at(1_001), Duration::from_secs(60)).unwrap();
    say(&mut lease, 1_002, "HD c8\r\n");
    // The answer was for 3 s, and must not be taken for 60.
    assert!(!lease.is_held(at(4_000)));
    assert_eq!(
        step(&mut lease, 1_002),
        "ms k 2 C8 F1818583411 T62 c\r\nme\r\n"
    );
    say(&mut lease, 1_003, "HD c9\r\n");
    assert_eq!(step(&mut lease, 1_003), "Tell(Refreshed)");
}

#[test]
fn refresh_of_a_lost_lease_loses_it() {
    for (refusal, question) in [("EX c0\r\n", OTHERS), ("NF c0\r\n", "EN\r\n")] {
        let mut lease = held(terms());
        lease.refresh(at(100), Duration::from_secs(3)).unwrap();
        step(&mut lease, 100);
        say(&mut lease, 101, refusal);
        assert_eq!(step(&mut lease, 101), "mg k v c t\r\n");
        say(&mut lease, 102, question);
        assert_eq!(step(&mut lease, 102), "Tell(Lost(Taken))");
        assert!(!lease.is_held(at(102)));
        lease.release(at(103));
        assert_eq!(step(&mut lease, 103), "Tell(NotHeld)");
    }
}

#[test]
fn refresh_without_server_memory_is_reported() {
    let mut lease = held(terms());
    lease.refresh(at(100), Duration::from_secs(3)).unwrap();
    step(&mut lease, 100);
    say(&mut lease, 101, "SERVER_ERROR out of memory\r\n");
    assert!(step(&mut lease, 101).starts_with("Tell(Undone(Refused("));
    assert_eq!(step(&mut lease, 101), "mg k v c t\r\n");
    say(&mut lease, 102, "EN\r\n");
    assert_eq!(step(&mut lease, 102), "Tell(Lost(Taken))");
}

#[test]
fn refresh_needs_a_lease_and_valid_ttl() {
    let mut lease = lease(terms());
    lease.refresh(at(0), Duration::from_secs(3)).unwrap();
    assert_eq!(step(&mut lease, 0), "Tell(NotHeld)");
    assert_eq!(
        lease.refresh(at(0), Duration::from_millis(999)),
        Err(TermsError::TtlTooShort)
    );
}

#[test]
fn a_release_removes_only_the_version_that_is_ours() {
    for (answer, news) in [("HD\r\n", "Tell(Released)"), ("NF\r\n", "Tell(NotHeld)")] {
        let mut lease = held(terms());
        lease.release(at(100));
        assert!(!lease.is_held(at(100)));
        assert_eq!(step(&mut lease, 100), "md k C7\r\n");
        say(&mut lease, 101, answer);
        assert_eq!(step(&mut lease, 101), news);
        assert_eq!((lease.goal, lease.turn), (LeaseGoal::None, Turn::Rest));
    }
    let mut lease = held(terms());
    lease.release(at(100));
    step(&mut lease, 100);
    say(&mut lease, 101, "EX\r\n");
    assert_eq!(step(&mut lease, 101), "mg k v c t\r\n");
    say(&mut lease, 102, OTHERS);
    assert_eq!(step(&mut lease, 102), "Tell(NotHeld)");
}

#[test]
fn a_lost_answer_to_a_release_is_asked_after() {
    for (answer, next) in [
        (MINE, "md k C9\r\n"),
        ("EN\r\n", "Tell(Released)"),
        (OTHERS, "Tell(Released)"),
    ] {
        let mut lease = held(terms());
        lease.release(at(100));
        step(&mut lease, 100);
        lease.disconnected(at(101));
        assert_eq!(step(&mut lease, 101), "connect");
        lease.connected(at(102));
        assert_eq!(step(&mut lease, 102), "mg k v c t\r\n");
        say(&mut lease, 103, answer);
        assert_eq!(step(&mut lease, 103), next);
    }
}

#[test]
fn unanswered_release_ends() {
    let mut lease = held(terms());
    lease.release(at(0));
    step(&mut lease, 0);
    assert_eq!(step(&mut lease, 5_000), "Disconnect");
    lease.disconnected(at(5_000));
    assert_eq!(step(&mut lease, 5_000), "connect");
    lease.disconnected(at(5_001));
    assert_eq!(step(&mut lease, 5_001), "Tell(Failed(Disconnected))");
}

#[test]
fn abandoned_obtain_releases_its_item() {
    let mut lease = lease(terms());
    lease.obtain(at(0));
    step(&mut lease, 0);
    lease.release(at(1));
    say(&mut lease, 2, "HD c7\r\n");
    assert!(!lease.is_held(at(2)));
    assert_eq!(step(&mut lease, 2), "md k C7\r\n");
    say(&mut lease, 3, "HD\r\n");
    assert_eq!(step(&mut lease, 3), "Tell(Released)");
}

#[test]
fn late_grant_can_be_released() {
    let mut lease = lease(terms());
    lease.obtain(at(0));
    step(&mut lease, 0);
    assert_eq!(step(&mut lease, 3_100), "Tell(Failed(NoAnswer))");
    lease.release(at(3_100));
    say(&mut lease, 3_200, "HD c7\r\n");
    assert_eq!(step(&mut lease, 3_200), "md k C7\r\n");
    say(&mut lease, 3_201, "HD\r\n");
    assert_eq!(step(&mut lease, 3_201), "Tell(Released)");
}

#[test]
fn the_watchdog_renews_at_a_third_and_stops_at_its_cap() {
    let mut lease = held(Terms {
        watchdog: true,
        hold_max: Some(Duration::from_millis(3_490)),
        ..terms()
    });
    assert_eq!(step(&mut lease, 10), "wait 1000");
    assert_eq!(
        step(&mut lease, 1_000),
        "ms k 2 C7 F1818583411 T5 c\r\nme\r\n"
    );
    say(&mut lease, 1_001, "HD c8\r\n");
    assert_eq!(step(&mut lease, 1_001), "wait 2000");
    assert_eq!(
        step(&mut lease, 2_000),
        "ms k 2 C8 F1818583411 T5 c\r\nme\r\n"
    );
    say(&mut lease, 2_001, "HD c9\r\n");
    assert!(lease.is_held(at(3_499)));
    assert_eq!(step(&mut lease, 3_500), "Tell(Lost(HeldTooLong))");
    // It may still be released early.
    lease.release(at(3_501));
    assert_eq!(step(&mut lease, 3_501), "md k C9\r\n");
}

#[test]
fn a_disconnect_loses_it_or_is_asked_after() {
    let mut lost = held(Terms {
        on_disconnect: OnDisconnect::Lost,
        ..terms()
    });
    lost.disconnected(at(100));
    assert_eq!(step(&mut lost, 100), "Tell(Lost(Disconnected))");

    let mut asks = held(terms());
    asks.disconnected(at(100));
    // The server may have restarted, so it is not held; but it is not lost either.
    assert!(!asks.is_held(at(100)) && asks.is_in_doubt());
    assert_eq!(asks.deadline(), Some(at(3_000)));
    assert_eq!(step(&mut asks, 100), "connect");
    asks.disconnected(at(101));
    assert_eq!(step(&mut asks, 101), "wait 201");
    assert_eq!(step(&mut asks, 201), "connect");
    asks.connected(at(202));
    assert_eq!(step(&mut asks, 202), "mg k v c t\r\n");
    assert!(!asks.is_held(at(202)));
    say(&mut asks, 203, MINE);
    assert!(asks.is_held(at(203)));
    assert_eq!(step(&mut asks, 203), "ms k 2 C9 F1818583411 T5 c\r\nme\r\n");
    say(&mut asks, 204, "HD c10\r\n");
    assert!(asks.is_held(at(3_202)));

    let mut forgotten = held(terms());
    forgotten.disconnected(at(100));
    assert_eq!(step(&mut forgotten, 100), "connect");
    forgotten.connected(at(2_000));
    assert_eq!(step(&mut forgotten, 2_000), "mg k v c t\r\n");
    say(&mut forgotten, 2_001, "EN\r\n");
    assert_eq!(step(&mut forgotten, 2_001), "Tell(Lost(Taken))");

    let mut unreachable = held(terms());
    unreachable.disconnected(at(100));
    assert_eq!(step(&mut unreachable, 100), "connect");
    assert_eq!(step(&mut unreachable, 3_000), "Tell(Lost(Expired))");
}

#[test]
fn in_doubt_it_is_asked_again_also_without_a_watchdog() {
    let mut lease = held(terms());
    lease.disconnected(at(100));
    lease.connected(at(100));
    assert_eq!(step(&mut lease, 100), "mg k v c t\r\n");
    say(&mut lease, 101, "SERVER_ERROR busy\r\n");
    assert_eq!(step(&mut lease, 101), "wait 401");
    assert_eq!(step(&mut lease, 401), "mg k v c t\r\n");
}

#[test]
fn waiter_survives_a_server_restart() {
    let terms = || Terms {
        retry: Retry::linear(Duration::from_millis(100)),
        deadline: Some(Duration::from_millis(500)),
        ..terms()
    };
    let waiting = || {
        let mut lease = lease(terms());
        lease.obtain(at(0));
        step(&mut lease, 0);
        say(&mut lease, 0, "NS c0\r\n");
        lease.disconnected(at(10));
        assert_eq!(step(&mut lease, 100), "connect");
        lease.disconnected(at(100));
        assert_eq!(step(&mut lease, 100), "wait 200");
        assert_eq!(step(&mut lease, 200), "connect");
        lease
    };
    let mut back = waiting();
    back.connected(at(210));
    assert_eq!(step(&mut back, 210), "ms k 2 ME F1818583411 T5 c\r\nme\r\n");
    say(&mut back, 211, "HD c1\r\n");
    assert_eq!(step(&mut back, 211), "Tell(Obtained)");

    let mut gone = waiting();
    assert_eq!(step(&mut gone, 600), "Tell(Failed(Disconnected))");
}

#[test]
fn silent_server_is_not_another_holder() {
    let terms = || Terms {
        retry: Retry::linear(Duration::from_millis(100)),
        deadline: Some(Duration::from_millis(250)),
        ..terms()
    };
    let mut silent = lease(terms());
    silent.obtain(at(0));
    step(&mut silent, 0);
    assert_eq!(step(&mut silent, 1), "wait 350");
    assert_eq!(step(&mut silent, 350), "Tell(Failed(NoAnswer))");

    let mut held = lease(terms());
    held.obtain(at(0));
    step(&mut held, 0);
    say(&mut held, 0, "NS c0\r\n");
    // The last try is under way.
    step(&mut held, 250);
    assert_eq!(step(&mut held, 350), "Tell(NotObtained(Deadline))");

    let value = TokenValue::new(Token::new(b"me").unwrap(), b"").unwrap();
    let mut unreachable = Lease::new(Key::new(b"k").unwrap(), value, terms()).unwrap();
    unreachable.obtain(at(0));
    let until = Some(at(350));
    assert_eq!(unreachable.poll(at(0)), Action::Connect { until });
    assert_eq!(step(&mut unreachable, 350), "Tell(Failed(NoAnswer))");
}

#[test]
fn a_cap_holds_with_and_without_a_watchdog() {
    for watchdog in [true, false] {
        let mut lease = held(Terms {
            watchdog,
            hold_max: Some(Duration::from_secs(2)),
            ..terms()
        });
        assert_eq!(lease.deadline(), Some(at(2_010)));
        assert_eq!(step(&mut lease, 2_010), "Tell(Lost(HeldTooLong))");
    }
}

#[test]
fn new_connection_uses_no_old_version() {
    for (theirs, then) in [
        (MINE, "md k C9\r\n"),
        // A server that has restarted gave our version to the next holder.
        ("VA 3 c7 t4\r\nmee\r\n", "Tell(NotHeld)"),
        ("EN\r\n", "Tell(NotHeld)"),
    ] {
        let mut lease = held(Terms {
            on_disconnect: OnDisconnect::Lost,
            ..terms()
        });
        lease.disconnected(at(100));
        assert_eq!(step(&mut lease, 100), "Tell(Lost(Disconnected))");
        lease.release(at(200));
        assert_eq!(step(&mut lease, 200), "connect");
        lease.connected(at(200));
        assert_eq!(step(&mut lease, 200), "mg k v c t\r\n");
        say(&mut lease, 201, theirs);
        assert_eq!(step(&mut lease, 201), then);
    }
}

#[test]
fn renewal_waits_for_the_new_connections_answer() {
    let mut lease = held(Terms {
        watchdog: true,
        ..terms()
    });
    lease.disconnected(at(100));
    assert_eq!(step(&mut lease, 100), "connect");
    lease.connected(at(100));
    assert_eq!(step(&mut lease, 100), "mg k v c t\r\n");
    say(&mut lease, 101, "SERVER_ERROR busy\r\n");
    assert_eq!(step(&mut lease, 101), "wait 401");
    assert_eq!(step(&mut lease, 401), "mg k v c t\r\n");
    say(&mut lease, 402, MINE);
    assert_eq!(
        step(&mut lease, 402),
        "ms k 2 C9 F1818583411 T5 c\r\nme\r\n"
    );
}

#[test]
fn the_server_can_be_asked_how_long_it_lasts() {
    let mut lease = held(terms());
    lease.measure(at(100));
    assert_eq!(step(&mut lease, 100), "mg k v c t\r\n");
    say(&mut lease, 101, MINE);
    assert_eq!(step(&mut lease, 101), "Tell(Lasts(4s))");
    lease.measure(at(102));
    step(&mut lease, 102);
    say(&mut lease, 103, "EN\r\n");
    assert_eq!(step(&mut lease, 103), "Tell(Lost(Taken))");
}

#[test]
fn refusal_is_a_failure_not_a_lock() {
    let mut lease = lease(terms());
    lease.obtain(at(0));
    step(&mut lease, 0);
    say(
        &mut lease,
        0,
        "SERVER_ERROR out of memory storing object\r\n",
    );
    assert!(step(&mut lease, 0).starts_with("Tell(Failed(Refused("));
}
