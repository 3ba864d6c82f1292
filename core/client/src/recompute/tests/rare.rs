//! Moments that hardly ever meet.

use latchd_protocol::wire::meta::{Flag, Verb};

use super::*;
use crate::session::AnyRequest;

const BUSY: &str = "VA 0 c7 Z\r\n\r\n";
const WON: &str = "VA 0 c7 W\r\n\r\n";

/// Three tries with 100 ms between them, and more time than they take.
fn thrice() -> RecomputeTerms {
    RecomputeTerms {
        retry: Retry::linear(Duration::from_millis(100)).limited(3),
        deadline: None,
        ..terms()
    }
}

/// Answers the request that was sent before.
fn answer(read: &mut Recompute, ms: u64, bytes: &str) {
    let mut session = Session::new();
    let key = Key::new(b"k").unwrap();
    let read_it = AnyRequest::meta(Verb::Get, key, [Flag::Value], &[]);
    session.send(&read_it, &mut Vec::new()).unwrap();
    let received = session.receive(bytes.as_bytes()).unwrap().unwrap();
    read.reply(at(ms), &received.answer);
}

#[test]
fn computing_client_does_not_read() {
    let mut read = reading(terms());
    play(&mut read, 0, WON);
    read.read(at(1));
    assert_eq!(read.poll(at(1)), Action::Wait { until: None });
    read.computed(at(2), b"new");
    assert_eq!(play(&mut read, 2, "HD\r\n").1, Some(RecomputeNews::Stored));
}

/// After a second of silence, the server's last answer about a computing client does not count.
#[test]
fn an_answer_is_expected_for_less_than_a_second() {
    let failed = RecomputeNews::Failed(Failure::NoAnswer);
    for (deadline_ms, end) in [(1_899, RecomputeNews::TimedOut), (1_900, failed)] {
        let mut read = reading(RecomputeTerms {
            retry: Retry::linear(Duration::from_secs(1)),
            deadline: Some(Duration::from_millis(deadline_ms)),
            ..terms()
        });
        exchange(&mut read, 0, BUSY);
        assert!(matches!(read.poll(at(1_000)), Action::Send(_)));
        assert_eq!(read.poll(at(deadline_ms + 100)), Action::Tell(end));
    }
}

/// R7 is of bound wins only.
#[test]
fn interrupted_give_back_is_repeated() {
    let mut read = reading(terms());
    play(&mut read, 0, WON);
    read.give_back(at(9));
    assert!(matches!(read.poll(at(9)), Action::Send(_)));
    read.disconnected(at(10));
    assert_eq!(read.poll(at(10)), Action::Connect { until: None });
}

#[test]
fn wait_lasts_as_long_as_all_tries() {
    let mut read = on_latchd(thrice());
    exchange(&mut read, 0, BUSY);
    // The request was to wait, and did.
    let mut early = read.clone();
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    answer(&mut read, 300, BUSY);
    assert_eq!(read.poll(at(300)), Action::Tell(RecomputeNews::TimedOut));
    // The request was to wait, and did not: that was a try.
    assert!(matches!(early.poll(at(0)), Action::Send(_)));
    answer(&mut early, 299, BUSY);
    assert!(matches!(early.poll(at(299)), Action::Wait { .. }));
    // There is no time left to wait when it answers at last.
    let mut slow = on_latchd(thrice());
    assert!(matches!(slow.poll(at(0)), Action::Send(_)));
    answer(&mut slow, 300, BUSY);
    assert_eq!(slow.poll(at(300)), Action::Tell(RecomputeNews::TimedOut));
}

#[test]
fn without_waits_all_tries_are_made() {
    let mut read = reading(thrice());
    exchange(&mut read, 0, BUSY);
    exchange(&mut read, 100, BUSY);
    exchange(&mut read, 350, BUSY);
    let until = Some(at(450));
    assert_eq!(read.poll(at(350)), Action::Wait { until });
    assert_eq!(play(&mut read, 450, BUSY).1, Some(RecomputeNews::TimedOut));
}
