//! Answers that hardly ever come, and moments that hardly ever meet.

use super::*;

const ASK: &str = "mg k v c t\r\n";
const ADD: &str = "ms k 2 ME F1818583411 T5 c\r\nme\r\n";
const RENEW: &str = "ms k 2 C7 F1818583411 T5 c\r\nme\r\n";
/// A connection has locked the key.
const LOCKED: &str = "LK h2 a0 n0\r\n";
const TAKEN: &str = "NS c0\r\n";

fn watched() -> Lease {
    held(Terms::new(Duration::from_secs(3)).unwrap())
}

fn patient(deadline_ms: u64) -> Lease {
    let mut lease = lease(Terms {
        retry: Retry::linear(Duration::from_secs(1)),
        deadline: Some(Duration::from_millis(deadline_ms)),
        ..terms()
    });
    lease.obtain(at(0));
    assert_eq!(step(&mut lease, 0), ADD);
    lease
}

fn reconnect(lease: &mut Lease, ms: u64) {
    assert_eq!(step(lease, ms), "connect");
    lease.connected(at(ms));
}

#[test]
fn nothing_obtained_means_nothing_to_release() {
    let mut lease = lease(Terms {
        own_token: true,
        deadline: Some(Duration::from_millis(1_500)),
        ..terms()
    });
    lease.obtain(at(0));
    assert_eq!(step(&mut lease, 0), ADD);
    say(&mut lease, 0, TAKEN);
    assert_eq!(step(&mut lease, 0), ASK);
    assert_eq!(step(&mut lease, 1_600), "Tell(Failed(NoAnswer))");
    // The question is still unanswered, but it was about another client's item.
    lease.release(at(1_601));
    assert_eq!(step(&mut lease, 1_601), "Tell(NotHeld)");
}

/// C4.
#[test]
fn due_renewal_waits_for_the_question() {
    let mut lease = watched();
    lease.measure(at(990));
    assert_eq!(step(&mut lease, 990), ASK);
    assert_eq!(step(&mut lease, 1_000), "wait 3000");
    say(&mut lease, 1_001, "VA 2 c7 t4\r\nme\r\n");
    assert_eq!(step(&mut lease, 1_001), "Tell(Lasts(4s))");
    assert_eq!(step(&mut lease, 1_001), RENEW);
}

#[test]
fn broken_wait_has_nothing_to_ask() {
    let mut lease = patient(60_000);
    say(&mut lease, 0, TAKEN);
    assert_eq!(step(&mut lease, 0), "wait 1000");
    lease.disconnected(at(500));
    reconnect(&mut lease, 1_000);
    assert_eq!(step(&mut lease, 1_000), ADD);
    say(&mut lease, 1_000, TAKEN);
    assert_eq!(step(&mut lease, 1_000), "wait 2000");
}

/// C3, also if the server has named another holder.
#[test]
fn unanswered_add_is_asked_after() {
    let mut lease = patient(60_000);
    say(&mut lease, 0, TAKEN);
    assert_eq!(step(&mut lease, 1_000), ADD);
    lease.disconnected(at(1_001));
    reconnect(&mut lease, 1_001);
    assert_eq!(step(&mut lease, 1_001), ASK);
}

#[test]
fn a_refresh_that_meets_a_question_is_done_behind_it() {
    let mut lease = held(terms());
    lease.measure(at(100));
    assert_eq!(step(&mut lease, 100), ASK);
    lease.refresh(at(101), Duration::from_secs(3)).unwrap();
    say(&mut lease, 102, "VA 2 c7 t4\r\nme\r\n");
    assert_eq!(step(&mut lease, 102), "Tell(Lasts(4s))");
    assert_eq!(step(&mut lease, 102), RENEW);
}

#[test]
fn interrupted_renewal_follows_the_question() {
    let mut lease = watched();
    assert_eq!(step(&mut lease, 1_000), RENEW);
    lease.measure(at(1_001));
    lease.disconnected(at(1_002));
    reconnect(&mut lease, 1_002);
    assert_eq!(step(&mut lease, 1_002), ASK);
    say(&mut lease, 1_003, MINE);
    assert_eq!(step(&mut lease, 1_003), "Tell(Lasts(4s))");
    assert_eq!(
        step(&mut lease, 1_003),
        "ms k 2 C9 F1818583411 T5 c\r\nme\r\n"
    );
}

#[test]
fn no_add_follows_the_deadline() {
    let mut lease = patient(1_500);
    lease.disconnected(at(1));
    reconnect(&mut lease, 1);
    assert_eq!(step(&mut lease, 1), ASK);
    let mut late = lease.clone();
    say(&mut lease, 1_499, "EN\r\n");
    assert_eq!(step(&mut lease, 1_499), ADD);
    say(&mut late, 1_500, "EN\r\n");
    assert_eq!(step(&mut late, 1_500), "Tell(NotObtained(Deadline))");
}

#[test]
fn a_key_that_a_connection_has_locked_is_renewed_later() {
    let mut lease = held(terms());
    lease.refresh(at(100), Duration::from_secs(3)).unwrap();
    assert_eq!(step(&mut lease, 100), RENEW);
    say(&mut lease, 101, LOCKED);
    assert!(step(&mut lease, 101).starts_with("Tell(Undone("));
    assert_eq!(step(&mut lease, 101), "wait 3000");
    assert!(lease.is_held(at(2_999)));
}

/// A lease with a late answer to its add, so that it is renewed before it is believed.
fn late() -> Lease {
    let mut lease = lease(Terms {
        deadline: Some(Duration::from_secs(60)),
        ..terms()
    });
    lease.obtain(at(0));
    assert_eq!(step(&mut lease, 0), ADD);
    say(&mut lease, 3_000, "HD c7\r\n");
    assert_eq!(step(&mut lease, 3_000), RENEW);
    lease
}

#[test]
fn a_late_obtain_that_cannot_be_renewed_is_not_had() {
    let mut held = late();
    say(&mut held, 3_001, LOCKED);
    assert_eq!(step(&mut held, 3_001), "Tell(NotObtained(Held))");
    let mut refused = late();
    say(&mut refused, 3_001, "SERVER_ERROR out of memory\r\n");
    assert!(step(&mut refused, 3_001).starts_with("Tell(Failed(Refused("));
}

#[test]
fn a_key_that_a_connection_has_locked_is_removed_later() {
    let mut lease = held(terms());
    lease.release(at(100));
    assert_eq!(step(&mut lease, 100), "md k C7\r\n");
    say(&mut lease, 101, LOCKED);
    assert_eq!(step(&mut lease, 101), "wait 201");
    assert_eq!(step(&mut lease, 201), "md k C7\r\n");
    say(&mut lease, 202, "HD\r\n");
    assert_eq!(step(&mut lease, 202), "Tell(Released)");
}

#[test]
fn release_ends_after_two_timeouts() {
    let mut lease = held(terms());
    lease.release(at(100));
    assert_eq!(step(&mut lease, 100), "md k C7\r\n");
    assert_eq!(step(&mut lease, 10_100), "Tell(Failed(NoAnswer))");
    lease.obtain(at(10_101));
    say(&mut lease, 10_102, LOCKED);
    assert!(step(&mut lease, 10_102).starts_with("Tell(Failed("));
}

/// After a second of silence, the server's last answer about a holder does not count.
#[test]
fn an_answer_is_expected_for_less_than_a_second() {
    for (deadline_ms, end) in [
        (1_899, "NotObtained(Deadline)"),
        (1_900, "Failed(NoAnswer)"),
    ] {
        let mut lease = patient(deadline_ms);
        say(&mut lease, 0, TAKEN);
        assert_eq!(step(&mut lease, 1_000), ADD);
        let told = std::format!("Tell({end})");
        assert_eq!(step(&mut lease, deadline_ms + 100), told);
    }
}
