//! Users of one connection, on a server that the test plays.

use std::thread;

use async_channel::unbounded;
use async_io::block_on;
use latchd_client_core::{Flags, PENDING_MAX};
use latchd_protocol::key::Key;
use latchd_protocol::wire::meta::Verb;

use super::*;
use crate::link::Link;
use crate::tests::{DUE, Played, Side};

/// Two users of a connection, and a server. The first user has the connection open.
fn two_users() -> (Played, Hub, Link, Link, Side) {
    let played = Played::new();
    let hub = Hub::new(played.client.first().connector().clone());
    let (mut first, second) = (Link::new(hub.clone(), 1), Link::new(hub.clone(), 1));
    block_on(first.connect()).unwrap();
    let side = played.accept();
    (played, hub, first, second, side)
}

/// Waits until this user, which has no attempt of its own, is told the end of a connection.
fn end_of(link: &mut Link) -> Arc<io::Error> {
    loop {
        let HubNews { event, .. } = block_on(link.event());
        if let HubEvent::Gone(cause) = event {
            return cause;
        }
    }
}

/// A user has a request served over the next connection.
fn is_served(played: &Played, mut link: Link) {
    let asked = thread::spawn(move || block_on(link.ask(&[AnyRequest::Noop], DUE, |_, _| {})));
    let mut side = played.accept();
    assert_eq!(side.hear(1), ["mn"]);
    side.say(b"MN\r\n", 100);
    asked.join().unwrap().unwrap();
}

fn meta(verb: Verb, value: &[u8]) -> AnyRequest<'_> {
    let (key, flags) = (Key::new(b"k").unwrap(), Flags::new(&[]).unwrap());
    AnyRequest::Meta {
        verb,
        key,
        flags,
        value,
    }
}

/// H2: both users have news of the first connection that they have not read.
#[test]
fn news_of_earlier_connections_are_ignored() {
    let (played, hub, first, second, side) = two_users();
    let mut third = Link::new(hub, 1);
    drop(side);
    assert_eq!(end_of(&mut third).kind(), io::ErrorKind::UnexpectedEof);
    drop(first);
    is_served(&played, second);
}

/// The news that it was opened is older than the request.
#[test]
fn open_connection_serves_a_later_user() {
    let (_played, _hub, _first, mut second, mut side) = two_users();
    let asked = thread::spawn(move || block_on(second.ask(&[AnyRequest::Noop], DUE, |_, _| {})));
    assert_eq!(side.hear(1), ["mn"]);
    side.say(b"MN\r\n", 100);
    asked.join().unwrap().unwrap();
}

#[test]
fn a_closing_servers_reason_reaches_users() {
    let (_played, _hub, mut first, mut second, mut side) = two_users();
    side.say(b"ERROR Too many open connections\r\n", 100);
    drop(side);
    for user in [&mut first, &mut second] {
        let cause = end_of(user);
        assert_eq!(cause.to_string(), "ERROR Too many open connections");
    }
    assert!(last_words(b"\x15\x03\x01\0\x02").is_some());
    assert!(last_words(b"VA 2\r\nhi\r\n").is_none());
}

#[test]
fn a_request_too_many_leaves_the_connection_to_others() {
    let (played, hub, mut first, second, _side) = two_users();
    let requests = vec![AnyRequest::Noop; PENDING_MAX + 1];
    let error = block_on(first.ask(&requests, DUE, |_, _| {})).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    drop(first);
    assert!(hub.want().1, "it is open for the other user");
    drop((second, played));
}

/// The request fits into no buffer of the system, and the server does not read it.
#[test]
fn a_server_that_reads_nothing_is_left() {
    let (played, hub, mut first, second, mut side) = two_users();
    let asked = thread::spawn(move || {
        let value = vec![b'x'; 16 << 20];
        block_on(first.ask(&[meta(Verb::Set, &value)], DUE, |_, _| {}))
    });
    assert_eq!(side.hear(1), ["ms k 16777216"]);
    hub.break_off(hub.want().0);
    let error = asked.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    is_served(&played, second);
}

#[test]
fn unrequested_bytes_wait_within_their_bound() {
    let (asker, answers) = unbounded();
    let mut state = HubState::new();
    let mut input = [&b"SERVER_ERROR "[..], &[b'x'; 100], b"\r\n"].concat();
    input.resize(UNASKED_BYTES_MAX, b'x');
    assert!(state.hand_on(1, &mut input).is_ok());
    input.push(b'x');
    let error = state.hand_on(1, &mut input).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    // The first request makes them a reply.
    for _ in 0..2 {
        let request = meta(Verb::Get, &[]);
        state.session.send(&request, &mut state.output).unwrap();
        state.askers.push_back(asker.clone());
    }
    input.truncate(115);
    input.extend_from_slice(b"VA 5000\r\n");
    input.resize(UNASKED_BYTES_MAX + 200, b'x');
    assert!(
        state.hand_on(1, &mut input).is_ok(),
        "a reply may be longer"
    );
    assert_eq!(input.len(), UNASKED_BYTES_MAX + 85);
    let HubNews { attempt, event } = answers.try_recv().unwrap();
    assert!(matches!(event, HubEvent::Answer(bytes) if attempt == 1 && bytes.len() == 115));
    assert!(answers.is_empty());
}
