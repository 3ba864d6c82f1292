//! A server that binds wins and has waits for them, and how it is recognized.

use super::*;

const WON: &str = "VA 0 c7 W\r\n\r\n";
const BUSY: &str = "VA 0 c7 Z\r\n\r\n";
const NOT_KNOWN: &str = "CLIENT_ERROR invalid flag\r\n";

#[test]
fn a_win_is_asked_for_that_ends_with_the_connection() {
    let mut read = on_latchd(terms());
    let (sent, news) = play(&mut read, 0, WON);
    assert_eq!(sent, "mg k v c N30 R5 B\r\n");
    assert_eq!(news, Some(RecomputeNews::Compute { old: None }));
    assert_eq!(read.words, WinSupport::Binds);
    read.computed(at(9), b"new");
    let (sent, news) = play(&mut read, 9, "HD\r\n");
    assert_eq!(sent, "ms k 3 C7 T60\r\nnew\r\n");
    assert_eq!(news, Some(RecomputeNews::Stored));
}

#[test]
fn readers_wait_on_the_server() {
    let mut read = on_latchd(terms());
    exchange(&mut read, 10, BUSY);
    let (sent, news) = play(&mut read, 10, "VA 2 c8\r\nhi\r\n");
    assert_eq!(sent, "mg k v c N30 R5 B w140\r\n");
    assert_eq!(news, Some(found(b"hi", false)));

    // Its winner has died.
    let mut heir = on_latchd(terms());
    exchange(&mut heir, 0, BUSY);
    let (_, news) = play(&mut heir, 0, WON);
    assert_eq!(news, Some(RecomputeNews::Compute { old: None }));
}

#[test]
fn valid_value_needs_no_wait() {
    let mut read = on_latchd(terms());
    let (sent, news) = play(&mut read, 0, "VA 2 c7 Z\r\nhi\r\n");
    assert_eq!(sent, "mg k v c N30 R5 B\r\n");
    assert_eq!(news, Some(found(b"hi", false)));
}

#[test]
fn vain_wait_times_out_short_one_retries() {
    let mut late = on_latchd(terms());
    exchange(&mut late, 0, BUSY);
    assert!(matches!(late.poll(at(0)), Action::Send(_)));
    let until = Some(at(250));
    assert_eq!(late.poll(at(1)), Action::Wait { until });
    let mut late = on_latchd(terms());
    exchange(&mut late, 0, BUSY);
    let mut session = Session::new();
    let Action::Send(request) = late.poll(at(0)) else {
        panic!("it waits");
    };
    session.send(&request, &mut Vec::new()).unwrap();
    let received = session.receive(BUSY.as_bytes()).unwrap().unwrap();
    late.reply(at(150), &received.answer);
    assert_eq!(late.poll(at(150)), Action::Tell(RecomputeNews::TimedOut));
    assert!(late.is_idle());

    let mut early = on_latchd(terms());
    exchange(&mut early, 0, BUSY);
    assert_eq!(play(&mut early, 0, BUSY).1, None);
    let until = Some(at(100));
    assert_eq!(early.poll(at(1)), Action::Wait { until });
    let (sent, _) = play(&mut early, 100, WON);
    assert_eq!(sent, "mg k v c N30 R5 B w50\r\n");
}

#[test]
fn wait_lasts_as_long_as_the_tries() {
    let few = RecomputeTerms {
        retry: Retry::linear(Duration::from_millis(20)).limited(3),
        ..terms()
    };
    let mut read = on_latchd(few);
    exchange(&mut read, 0, BUSY);
    let (sent, _) = play(&mut read, 0, WON);
    assert_eq!(sent, "mg k v c N30 R5 B w60\r\n");
}

#[test]
fn unknown_flags_fall_back_to_memcacheds() {
    let mut read = on_latchd(terms());
    exchange(&mut read, 0, NOT_KNOWN);
    assert_eq!(read.words, WinSupport::Plain);
    let (sent, _) = play(&mut read, 0, BUSY);
    assert_eq!(sent, "mg k v c N30 R5\r\n");
    let (sent, _) = play(&mut read, 100, "VA 2 c8\r\nhi\r\n");
    assert_eq!(sent, "mg k v c N30 R5\r\n", "it is polled");
    // Another connection may be to another server.
    read.disconnected(at(200));
    read.connected(at(200));
    read.read(at(200));
    let sent = exchange(&mut read, 200, "ERROR\r\n");
    assert_eq!(sent, "mg k v c N30 R5 B\r\n");
    let (sent, news) = play(&mut read, 200, "ERROR\r\n");
    assert_eq!(sent, "mg k v c N30 R5\r\n");
    let refused = RecomputeNews::Failed(Failure::Refused("ERROR".into()));
    assert_eq!(news, Some(refused));
}

#[test]
fn refused_binding_makes_the_read_poll() {
    let full = "SERVER_ERROR too many locks\r\n";
    let mut read = on_latchd(terms());
    exchange(&mut read, 0, full);
    let (sent, _) = play(&mut read, 0, BUSY);
    assert_eq!(sent, "mg k v c N30 R5\r\n");
    let (sent, news) = play(
        &mut read,
        100,
        "SERVER_ERROR out of memory storing object\r\n",
    );
    assert_eq!(sent, "mg k v c N30 R5\r\n");
    assert!(matches!(news, Some(RecomputeNews::Failed(_))));
    read.read(at(100));
    let sent = exchange(&mut read, 100, BUSY);
    assert_eq!(sent, "mg k v c N30 R5 B\r\n", "the next one asks again");
    // The limit of waiters is reached.
    exchange(&mut read, 100, full);
    let (sent, _) = play(&mut read, 100, BUSY);
    assert_eq!(sent, "mg k v c N30 R5\r\n");
}

/// Closing the connection leaves the queue, and gives back a win that was granted at that moment.
#[test]
fn a_wait_that_is_broken_off_closes_its_connection() {
    let mut read = on_latchd(terms());
    exchange(&mut read, 0, BUSY);
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    read.abandon(at(5));
    assert_eq!(read.poll(at(5)), Action::Disconnect);
    read.disconnected(at(5));
    assert_eq!(read.poll(at(5)), Action::Tell(RecomputeNews::GaveBack));
    assert!(read.is_idle());

    // The same for a read after its server has gone silent.
    let mut read = on_latchd(terms());
    exchange(&mut read, 0, BUSY);
    assert!(matches!(read.poll(at(0)), Action::Send(_)));
    assert_eq!(read.poll(at(250)), Action::Tell(RecomputeNews::TimedOut));
    assert_eq!(read.poll(at(250)), Action::Disconnect);
}

#[test]
fn disconnected_bound_win_is_not_returned() {
    let mut read = on_latchd(terms());
    play(&mut read, 0, WON);
    read.disconnected(at(1));
    read.give_back(at(2));
    assert_eq!(read.poll(at(2)), Action::Tell(RecomputeNews::GaveBack));
    assert!(read.is_idle());

    // The same for a win whose return was under way.
    let mut read = on_latchd(terms());
    play(&mut read, 0, WON);
    read.give_back(at(2));
    assert!(matches!(read.poll(at(2)), Action::Send(_)));
    read.disconnected(at(3));
    assert_eq!(read.poll(at(3)), Action::Tell(RecomputeNews::GaveBack));
}

#[test]
fn lost_win_still_stores_if_first() {
    let mut read = on_latchd(terms());
    play(&mut read, 0, WON);
    read.disconnected(at(1));
    read.computed(at(2_000), b"new");
    assert!(matches!(read.poll(at(2_000)), Action::Connect { .. }));
    read.connected(at(2_000));
    let up = "STAT uptime 9\r\nEND\r\n";
    assert_eq!(exchange(&mut read, 2_000, up), "stats\r\n");
    let (sent, news) = play(&mut read, 2_000, "HD\r\n");
    assert_eq!(sent, "ms k 3 C7 T60\r\nnew\r\n");
    assert_eq!(news, Some(RecomputeNews::Stored));
}
