//! Callers of one connection, on a server that the test plays.

use std::thread::{self, JoinHandle};

use async_io::block_on;
use latchd_protocol::key::Key;
use latchd_protocol::wire::meta::Verb;

use super::*;
use crate::tests::{DUE, Played, Side};

/// Two callers of a connection, and a server. The first caller has the connection open.
fn two_callers(reply_timeout: Duration) -> (Played, Share, Share, Side) {
    let played = Played::new();
    let options = ClientOptions::new().reply_timeout(reply_timeout);
    let connector = played.client.first().connector.clone();
    let connection = SharedConnection::new(connector, &options);
    let (first, second) = (connection.share(1), connection.share(1));
    block_on(first.ask(&[], |_, _| {})).unwrap();
    let side = played.accept();
    (played, first, second, side)
}

fn asks_noop(share: Share) -> JoinHandle<Result<(), Error>> {
    thread::spawn(move || block_on(share.ask(&[AnyRequest::Noop], |_, _| {})))
}

fn socket_error(error: &Error) -> io::ErrorKind {
    let ErrorKind::Unreachable(error) = error.kind() else {
        panic!("{error}");
    };
    error.kind()
}

/// A caller has a request served over the next connection.
fn is_served(played: &Played, share: Share) {
    let asked = asks_noop(share);
    let mut side = played.accept();
    assert_eq!(side.hear(1), ["mn"]);
    side.say(b"MN\r\n", 100);
    asked.join().unwrap().unwrap();
}

/// H2.
#[test]
fn calls_after_a_break_use_the_next_connection() {
    let (played, first, second, mut side) = two_callers(DUE);
    let asked = asks_noop(first);
    assert_eq!(side.hear(1), ["mn"]);
    drop(side);
    let error = asked.join().unwrap().unwrap_err();
    assert_eq!(socket_error(&error), io::ErrorKind::UnexpectedEof);
    is_served(&played, second);
}

#[test]
fn open_connection_serves_a_later_caller() {
    let (_played, _first, second, mut side) = two_callers(DUE);
    let asked = asks_noop(second);
    assert_eq!(side.hear(1), ["mn"]);
    side.say(b"MN\r\n", 100);
    asked.join().unwrap().unwrap();
}

/// A full server says so before any request.
#[test]
fn unrequested_reason_reaches_the_caller() {
    let played = Played::new();
    let client = played.client.clone();
    let asked = thread::spawn(move || block_on(client.ping()));
    let mut side = played.accept();
    side.say(b"ERROR Too many open connections\r\n", 100);
    drop(side);
    let error = asked.join().unwrap().unwrap_err();
    assert!(
        error.to_string().ends_with("Too many open connections"),
        "{error}"
    );
}

#[test]
fn unrequested_bytes_end_the_connection() {
    let (played, _first, second, mut side) = two_callers(DUE);
    side.say(b"MN\r\n", 100);
    assert_eq!(side.hear(1), [""], "it is closed");
    is_served(&played, second);
}

#[test]
fn a_request_too_many_leaves_the_connection_to_others() {
    let (_played, first, second, mut side) = two_callers(DUE);
    let requests = vec![AnyRequest::Noop; PENDING_MAX + 1];
    let error = block_on(first.ask(&requests, |_, _| {})).unwrap_err();
    assert_eq!(socket_error(&error), io::ErrorKind::InvalidInput);
    let asked = asks_noop(second);
    assert_eq!(side.hear(1), ["mn"]);
    side.say(b"MN\r\n", 100);
    asked.join().unwrap().unwrap();
}

/// H3. The request fits into no buffer of the system, and the server does not read it.
#[test]
fn a_server_that_reads_nothing_is_left() {
    let (played, first, second, mut side) = two_callers(Duration::from_millis(300));
    let asked = thread::spawn(move || {
        let value = vec![b'x'; 16 << 20];
        let set = AnyRequest::meta(Verb::Set, Key::new(b"k").unwrap(), [], &value);
        block_on(first.ask(&[set], |_, _| {}))
    });
    assert_eq!(side.hear(1), ["ms k 16777216"]);
    let error = asked.join().unwrap().unwrap_err();
    assert_eq!(socket_error(&error), io::ErrorKind::TimedOut);
    is_served(&played, second);
}

#[test]
fn few_calls_of_callers_that_gave_up_are_kept() {
    let mut calls = Calls::new(DUE);
    let mut inboxes = Vec::new();
    for number in 0..10 * PENDING_MAX {
        let (replies, inbox) = unbounded();
        let requests = Session::new().encode(&[AnyRequest::Noop]).unwrap();
        calls.add(Call {
            requests,
            pending: 1,
            replies,
        });
        if number % PENDING_MAX == 0 {
            inboxes.push(inbox);
        }
    }
    assert!(calls.waiting.len() <= PENDING_MAX + inboxes.len());
    let wanted = calls.waiting.iter();
    let wanted = wanted.filter(|call| !call.replies.is_closed()).count();
    assert_eq!(wanted, inboxes.len());
}
