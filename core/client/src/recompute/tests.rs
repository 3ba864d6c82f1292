//! A reader against a server of a few lines, every message by hand.

extern crate std;

use alloc::string::String;
use alloc::vec::Vec;

mod in_session;
mod rare;
mod waiting;

use super::*;
use crate::terms::TermsError;
use crate::{Retry, Session};
use core::time::Duration;
use latchd_protocol::Owner;
use latchd_protocol::wire::meta::session::SessionResponse;

const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn terms() -> RecomputeTerms {
    RecomputeTerms {
        retry: Retry::linear(Duration::from_millis(100)),
        deadline: Some(Duration::from_millis(150)),
        ..RecomputeTerms::new(Duration::from_secs(60), Duration::from_secs(5))
    }
}

fn reading(terms: RecomputeTerms) -> Recompute {
    let mut read = on_latchd(terms);
    // As memcached, which is known already.
    read.words = WinSupport::Plain;
    read
}

/// The same over a connection to an unknown server.
fn on_latchd(terms: RecomputeTerms) -> Recompute {
    let mut read = Recompute::new(Key::new(b"k").unwrap(), terms);
    read.connected(at(0));
    read.read(at(0));
    read
}

/// Answers its next request, and returns that.
fn exchange(machine: &mut Recompute, ms: u64, answer: &str) -> String {
    let Action::Send(request) = machine.poll(at(ms)) else {
        panic!("nothing is sent at {ms}");
    };
    let mut session = Session::new();
    let mut out = Vec::new();
    session.send(&request, &mut out).unwrap();
    let mut rest = answer.as_bytes();
    while let Some(received) = session.receive(rest).unwrap() {
        machine.reply(at(ms), &received.answer);
        rest = &rest[received.consumed..];
    }
    String::from_utf8(out).unwrap()
}

/// As [`exchange`], with the news that follows.
fn play(machine: &mut Recompute, ms: u64, answer: &str) -> (String, Option<RecomputeNews>) {
    let sent = exchange(machine, ms, answer);
    let news = match machine.poll(at(ms)) {
        Action::Tell(news) => Some(news),
        Action::Wait { .. } | Action::Send(_) | Action::Connect { .. } | Action::Disconnect => None,
    };
    (sent, news)
}

fn found(value: &[u8], stale: bool) -> RecomputeNews {
    RecomputeNews::Found {
        value: value.into(),
        stale,
    }
}

#[test]
fn stored_value_is_found() {
    let (sent, news) = play(&mut reading(terms()), 0, "VA 2 c7\r\nhi\r\n");
    assert_eq!(sent, "mg k v c N30 R5\r\n");
    assert_eq!(news, Some(found(b"hi", false)));
}

#[test]
fn the_winner_stores_with_the_version_it_won() {
    for (answer, end) in [
        ("HD\r\n", RecomputeNews::Stored),
        ("EX\r\n", RecomputeNews::Superseded),
        ("NF\r\n", RecomputeNews::Superseded),
    ] {
        let mut read = reading(terms());
        let (_, news) = play(&mut read, 0, "VA 0 c7 W\r\n\r\n");
        assert_eq!(news, Some(RecomputeNews::Compute { old: None }));
        read.computed(at(9), b"new");
        let (sent, news) = play(&mut read, 9, answer);
        assert_eq!(sent, "ms k 3 C7 T60\r\nnew\r\n");
        assert_eq!(news, Some(end));
    }
}

#[test]
fn a_win_that_comes_to_nothing_is_given_back() {
    for (answer, given_back) in [
        ("VA 0 c7 W\r\n\r\n", "md k C7\r\n"),
        ("VA 2 c7 W\r\nhi\r\n", "md k C7 I\r\n"),
        ("VA 0 c7 X W\r\n\r\n", "md k C7 I\r\n"),
    ] {
        let mut read = reading(terms());
        play(&mut read, 0, answer);
        read.give_back(at(9));
        let (sent, news) = play(&mut read, 9, "HD\r\n");
        assert_eq!(
            (sent.as_str(), news),
            (given_back, Some(RecomputeNews::GaveBack))
        );
    }
}

#[test]
fn losers_wait_and_time_out() {
    let mut read = reading(terms());
    assert_eq!(play(&mut read, 0, "VA 0 c7 Z\r\n\r\n").1, None);
    assert_eq!(play(&mut read, 100, "VA 0 c7 Z\r\n\r\n").1, None);
    assert_eq!(
        play(&mut read, 150, "VA 0 c7 Z\r\n\r\n").1,
        Some(RecomputeNews::TimedOut)
    );
    let mut lucky = reading(terms());
    play(&mut lucky, 0, "VA 0 c7 Z\r\n\r\n");
    assert_eq!(
        play(&mut lucky, 100, "VA 2 c8\r\nhi\r\n").1,
        Some(found(b"hi", false))
    );
}

#[test]
fn stale_values_are_only_for_takers() {
    assert_eq!(
        play(&mut reading(terms()), 0, "VA 2 c7 Z\r\nhi\r\n").1,
        Some(found(b"hi", false))
    );
    let stale = "VA 2 c7 Z X\r\nhi\r\n";
    assert_eq!(play(&mut reading(terms()), 0, stale).1, None);
    let takes = RecomputeTerms {
        losers: Losers::TakeStale,
        ..terms()
    };
    assert_eq!(
        play(&mut reading(takes), 0, stale).1,
        Some(found(b"hi", true))
    );
}

#[test]
fn a_broken_connection_is_worth_one_more_try() {
    let mut read = reading(terms());
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    read.disconnected(at(1));
    assert!(matches!(read.poll(at(1)), Action::Connect { .. }));
    read.connected(at(1));
    assert!(matches!(read.poll(at(1)), Action::Send(_)));
    read.disconnected(at(2));
    assert_eq!(
        read.poll(at(2)),
        Action::Tell(RecomputeNews::Failed(Failure::Disconnected))
    );
}

/// A winner that lost its connection while it computed, and that has a new one.
fn winner_on_a_new_connection() -> Recompute {
    let mut read = reading(terms());
    play(&mut read, 0, "VA 0 c7 W\r\n\r\n");
    read.disconnected(at(1_000));
    read
}

#[test]
fn version_survives_reconnect_without_restart() {
    let says = |uptime_s: u64| {
        std::format!("STAT pid 9\r\nSTAT uptime {uptime_s}\r\nSTAT time 1\r\nEND\r\n")
    };
    // It won 2 s ago, and a server may overstate its uptime by 3 s; two clocks drift.
    for (uptime_s, is_same_run) in [(6, true), (5, false), (2, false)] {
        let mut read = winner_on_a_new_connection();
        read.computed(at(2_000), b"new");
        assert!(matches!(read.poll(at(2_000)), Action::Connect { .. }));
        read.connected(at(2_000));
        assert_eq!(exchange(&mut read, 2_000, &says(uptime_s)), "stats\r\n");
        if is_same_run {
            let (sent, news) = play(&mut read, 2_000, "HD\r\n");
            assert_eq!(sent, "ms k 3 C7 T60\r\nnew\r\n");
            assert_eq!(news, Some(RecomputeNews::Stored));
        } else {
            let superseded = Action::Tell(RecomputeNews::Superseded);
            assert_eq!(read.poll(at(2_000)), superseded, "{uptime_s}");
        }
    }
}

#[test]
fn unknown_uptime_counts_as_restart() {
    for answer in ["END\r\n", "ERROR\r\n", "STAT uptime x\r\nEND\r\n"] {
        let mut read = winner_on_a_new_connection();
        read.give_back(at(2_000));
        assert!(matches!(read.poll(at(2_000)), Action::Connect { .. }));
        read.connected(at(2_000));
        let (_, news) = play(&mut read, 2_000, answer);
        assert_eq!(news, Some(RecomputeNews::GaveBack), "{answer}");
    }
}

#[test]
fn unanswered_store_is_not_repeated_blindly() {
    let mut read = reading(terms());
    play(&mut read, 0, "VA 0 c7 W\r\n\r\n");
    read.computed(at(0), b"new");
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    read.disconnected(at(0));
    assert!(matches!(read.poll(at(0)), Action::Connect { .. }));
    read.connected(at(0));
    // All of it has happened within a millisecond.
    let young = "STAT uptime 3\r\nEND\r\n";
    let (sent, news) = play(&mut read, 0, young);
    assert_eq!(
        (sent.as_str(), news),
        ("stats\r\n", Some(RecomputeNews::Superseded))
    );
}

#[test]
fn abandoned_read_gives_its_win_back() {
    for (answer, given_back) in [
        ("VA 0 c7 W\r\n\r\n", Some("md k C7\r\n")),
        ("VA 2 c7 W X\r\nhi\r\n", Some("md k C7 I\r\n")),
        ("VA 2 c7\r\nhi\r\n", None),
        ("VA 0 c7 Z\r\n\r\n", None),
    ] {
        let mut read = reading(terms());
        let Action::Send(request) = read.poll(at(0)) else {
            panic!("it reads");
        };
        let mut session = Session::new();
        session.send(&request, &mut Vec::new()).unwrap();
        read.abandon(at(1));
        assert!(!read.is_idle());
        let received = session.receive(answer.as_bytes()).unwrap().unwrap();
        read.reply(at(2), &received.answer);
        if let Some(given_back) = given_back {
            assert_eq!(exchange(&mut read, 2, "HD\r\n"), given_back);
        }
        assert_eq!(read.poll(at(2)), Action::Tell(RecomputeNews::GaveBack));
        assert!(read.is_idle());
    }
}

#[test]
fn deadline_always_ends_a_read() {
    let mut silent = reading(terms());
    assert!(matches!(silent.poll(at(0)), Action::Send(_)));
    let until = Some(at(250));
    assert_eq!(silent.poll(at(1)), Action::Wait { until });
    let failed = Action::Tell(RecomputeNews::Failed(Failure::NoAnswer));
    assert_eq!(silent.poll(at(250)), failed);
    // Its answer may be a win yet.
    assert!(!silent.is_idle());

    let mut unreachable = Recompute::new(Key::new(b"k").unwrap(), terms());
    unreachable.read(at(0));
    assert_eq!(unreachable.poll(at(0)), Action::Connect { until });
    let failed = Action::Tell(RecomputeNews::Failed(Failure::NoAnswer));
    assert_eq!(unreachable.poll(at(250)), failed);
    assert!(unreachable.is_idle());
}

#[test]
fn a_ttl_that_servers_cannot_measure_is_refused() {
    let terms = |ttl_ms| {
        let terms = RecomputeTerms::new(Duration::from_millis(ttl_ms), Duration::ZERO);
        terms.check().map(|()| terms.ttl)
    };
    assert_eq!(terms(0), Ok(Duration::ZERO));
    assert_eq!(terms(999), Err(TermsError::TtlTooShort));
    assert_eq!(terms(u64::MAX), Err(TermsError::TtlTooLong));
}
