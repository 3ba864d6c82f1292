//! Sessions, as clients of a server see them.

use latchd_protocol::wire::meta::session::SessionResponse;

use super::*;
use crate::sessions::SessionLimits;

const TOKEN: &str = "0123456789abcdef";

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A server, and the requests of its clients.
struct World {
    server: Server,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self {
            server: server_with(|limits| limits.waits = true),
            now: NOW,
        }
    }

    fn open(&mut self) -> ConnId {
        self.server.open(self.now)
    }

    /// Sends a line; returns everything that is sent then.
    fn ask(&mut self, conn: ConnId, line: &str) -> Vec<(ConnId, Option<String>)> {
        let line = std::format!("{line}\r\n");
        self.server.receive(self.now, conn, line.as_bytes());
        self.server.machine().manager().sessions().check();
        actions(&mut self.server)
    }

    /// The one reply to a line.
    fn said(&mut self, conn: ConnId, line: &str) -> String {
        let said = self.ask(conn, line);
        let [(to, Some(reply))] = &said[..] else {
            panic!("{line}: {said:?}")
        };
        assert_eq!(*to, conn, "{line}");
        reply.trim_end().into()
    }

    fn attach(&mut self, seconds: u32) -> (ConnId, String) {
        let conn = self.open();
        let said = self.said(conn, &std::format!("mo {TOKEN} T{seconds}"));
        (conn, said)
    }

    fn close(&mut self, conn: ConnId) -> Vec<(ConnId, Option<String>)> {
        self.server.close(self.now, conn);
        self.server.machine().manager().sessions().check();
        actions(&mut self.server)
    }

    fn advance(&mut self, ms: u64) -> Vec<(ConnId, Option<String>)> {
        self.now = at(self.now.as_millis() + ms);
        self.server.advance(self.now, wall_clock(self.now));
        self.server.machine().manager().sessions().check();
        actions(&mut self.server)
    }
}

#[test]
fn a_lock_outlives_the_connection_and_ends_with_the_session() {
    let mut world = World::new();
    let (first, said) = world.attach(10);
    let owner = said
        .strip_prefix("HD n")
        .unwrap()
        .strip_suffix(" N")
        .unwrap();
    assert_eq!(world.said(first, "ml k F"), "HD F1");
    let other = world.open();
    assert!(
        world
            .said(other, "ml k")
            .starts_with(&std::format!("LK h{owner} "))
    );
    world.advance(4_000);
    assert_eq!(world.close(first), []);
    assert_eq!(world.advance(6_000), []);
    assert!(world.said(other, "ml k").starts_with("LK"));
    world.advance(1);
    assert_eq!(world.said(other, "ml k"), "HD");
}

#[test]
fn a_session_ends_when_its_time_has_passed_since_it_was_heard() {
    let mut world = World::new();
    let (first, _) = world.attach(10);
    world.said(first, "ml k");
    let other = world.open();
    world.advance(4_000);
    // Any request counts, and not only `mo`.
    world.said(first, "mn");
    world.advance(10_000);
    assert!(world.said(other, "ml k").starts_with("LK"));
    // The attached connection is closed: its client must not believe in the session any more.
    assert_eq!(world.advance(1), [(first, None)]);
    assert_eq!(world.said(other, "ml k"), "HD");
    let (second, said) = world.attach(10);
    assert!(said.ends_with(" N"), "S3: {said}");
    assert_eq!(world.said(second, "mu k"), "NF", "S3");
}

#[test]
fn a_connection_that_loses_its_session_is_closed_first() {
    let mut world = World::new();
    let (first, said) = world.attach(10);
    assert_eq!(world.said(first, "ml k F"), "HD F1");
    let second = world.open();
    let resumed = said.replace(" N", " R");
    let expected = [(first, None), (second, Some(std::format!("{resumed}\r\n")))];
    assert_eq!(
        world.ask(second, &std::format!("mo {TOKEN} T10")),
        expected,
        "S5"
    );
    // The retry of a request whose reply was lost has the same fence.
    assert_eq!(world.said(second, "ml k F"), "HD F1");
    assert_eq!(world.said(second, "mu k"), "HD");
    // The connection that has lost is forgotten.
    assert_eq!(world.ask(first, "ml k"), []);
}

#[test]
fn requests_that_change_nothing_are_refused() {
    let mut world = World::new();
    let (first, _) = world.attach(10);
    let other = std::format!("mo {TOKEN}2 T10");
    assert_eq!(
        world.said(first, &other),
        "CLIENT_ERROR attached to another session"
    );
    let holder = world.open();
    world.said(holder, "ml own");
    assert_eq!(
        world.said(holder, &other),
        "CLIENT_ERROR connection holds locks of its own"
    );
    assert_eq!(
        world.said(holder, &std::format!("{other} x")),
        "CLIENT_ERROR connection holds locks of its own"
    );
    world.said(holder, "mu own");
    assert_eq!(world.said(holder, &std::format!("{other} x")), "NF");
    assert_eq!(world.said(holder, &std::format!("mo {TOKEN}2 T0")), "NF");
    assert_eq!(
        world.said(holder, &std::format!("ml k j{TOKEN}2")),
        "CLIENT_ERROR no such session"
    );
    assert_eq!(
        world.said(holder, "ml k jshort"),
        "CLIENT_ERROR bad token in command line format"
    );
    assert_eq!(
        world.said(holder, &std::format!("ml k w5 j{TOKEN}")),
        "CLIENT_ERROR w is not allowed with j"
    );
    assert_eq!(
        world.said(holder, &std::format!("mg k j{TOKEN}")),
        "CLIENT_ERROR invalid flag"
    );
    let mut none = Server::new(Config::default().with_sessions(SessionLimits {
        sessions_max: 0,
        per_address_max: 0,
    }));
    let conn = none.open(NOW);
    none.receive(NOW, conn, std::format!("{other}\r\n").as_bytes());
    assert_eq!(output(&mut none, conn), "SERVER_ERROR sessions are off\r\n");
}

#[test]
fn a_request_is_executed_as_a_session_without_attaching() {
    let mut world = World::new();
    let (first, _) = world.attach(10);
    let (proxy, other) = (world.open(), world.open());
    assert_eq!(world.said(proxy, &std::format!("ml k F j{TOKEN}")), "HD F1");
    assert!(world.said(proxy, "ml k").starts_with("LK"));
    assert_eq!(world.said(first, "ml k F"), "HD F1");
    world.said(proxy, &std::format!("ms k 1 j{TOKEN} U\r\nv"));
    assert_eq!(world.said(other, "ml k"), "HD");
    world.close(first);
    world.advance(9_000);
    // It counts as heard.
    assert!(
        world
            .said(proxy, &std::format!("mu k j{TOKEN}"))
            .starts_with("NF")
    );
    world.advance(9_000);
    assert_eq!(world.said(proxy, &std::format!("mo {TOKEN} T0")), "HD");
}

#[test]
fn a_client_ends_its_session_from_any_connection() {
    let mut world = World::new();
    let (first, _) = world.attach(10);
    world.said(first, "ml k");
    let other = world.open();
    let end = std::format!("mo {TOKEN} T0");
    let expected = [(first, None), (other, Some("HD\r\n".into()))];
    assert_eq!(world.ask(other, &end), expected);
    assert_eq!(world.said(other, "ml k"), "HD");
    assert_eq!(world.said(other, "mu k"), "HD");
    let (second, _) = world.attach(10);
    world.said(second, "ml k");
    assert_eq!(world.said(second, &end), "HD");
    assert!(
        world.said(second, "ml k").starts_with("HD"),
        "it goes on without a session"
    );
}

#[test]
fn a_place_in_a_queue_survives_until_its_time_is_over() {
    let mut world = World::new();
    let (holder, waiter) = (world.open(), world.open());
    world.said(holder, "ml k");
    let (first, _) = world.attach(10);
    assert_eq!(world.ask(first, "ml k w5000 F"), []);
    assert_eq!(world.ask(waiter, "ml k w5000"), []);
    world.close(first);
    // It keeps its place before the other.
    let (second, _) = world.attach(10);
    assert_eq!(world.ask(second, "ml k w5000 F"), []);
    assert_eq!(
        world.said_all(holder, "mu k"),
        [(holder, "HD"), (second, "HD F2")]
    );
    assert_eq!(
        world.said_all(second, "mu k"),
        [(second, "HD"), (waiter, "HD")]
    );
    // A grant made while it is detached is found by the retry.
    assert_eq!(world.ask(second, "ml k w5000 F"), []);
    world.close(second);
    world.said(waiter, "mu k");
    assert!(world.said(waiter, "ml k").starts_with("LK"));
    let (third, _) = world.attach(10);
    assert_eq!(world.said(third, "ml k w5000 F"), "HD F4");
    // Another request leaves the place.
    world.said(holder, "ml other");
    assert_eq!(world.ask(third, "ml other w5000"), []);
    world.close(third);
    world.said(waiter, "ml free");
    let (fourth, _) = world.attach(10);
    assert_eq!(world.ask(fourth, "ml free w5000"), []);
    world.said(holder, "mu other");
    assert_eq!(world.said(waiter, "ml other"), "HD");
    world.server.machine().check();
}

#[test]
fn a_client_that_waits_is_heard() {
    let mut world = World::new();
    let (holder, other) = (world.open(), world.open());
    world.said(holder, "ml k");
    let (first, _) = world.attach(2);
    world.said(first, "ml mine");
    assert_eq!(world.ask(first, "ml k w60000"), []);
    world.advance(30_000);
    assert!(world.said(other, "ml mine").starts_with("LK"));
    world.close(first);
    world.advance(2_000);
    assert!(world.said(other, "ml mine").starts_with("LK"));
    world.advance(1);
    assert_eq!(world.said(other, "ml mine"), "HD");
    assert_eq!(world.said(holder, "mu k"), "HD");
    assert_eq!(
        world.said(other, "ml k"),
        "HD",
        "Q8: a session that has ended does not wait"
    );
}

/// S8: it is heard until the end of its wait, and not only until the session was due the last time.
#[test]
fn a_client_that_has_waited_was_heard_until_then() {
    let mut world = World::new();
    let (holder, other) = (world.open(), world.open());
    world.said(holder, "ml k");
    let (first, _) = world.attach(2);
    world.said(first, "ml mine");
    assert_eq!(world.ask(first, "ml k w3000"), []);
    world.advance(2_000);
    assert_eq!(world.advance(1_000), []);
    assert_eq!(world.advance(1).len(), 1);
    world.advance(2_000);
    assert!(world.said(other, "ml mine").starts_with("LK"));
    world.advance(1);
    assert_eq!(world.said(other, "ml mine"), "HD");
}

/// V7 and S8: it waits until its connection is closed for input that was not wanted.
#[test]
fn a_waiting_client_that_sends_too_much_was_heard_until_then() {
    let mut world = World::new();
    let (holder, other) = (world.open(), world.open());
    world.said(holder, "ml k");
    let (first, _) = world.attach(2);
    world.said(first, "ml mine");
    assert_eq!(world.ask(first, "ml k w60000"), []);
    let behind = std::vec![b'v'; KEPT_BYTES_MAX];
    world.server.receive(world.now, first, &behind);
    assert!(!world.server.wants_input(first));
    assert_eq!(actions(&mut world.server), []);
    world.advance(30_000);
    world.advance(1_000);
    assert_eq!(world.ask(first, "mn"), [(first, None)]);
    world.advance(2_000);
    assert!(world.said(other, "ml mine").starts_with("LK"));
    world.advance(1);
    assert_eq!(world.said(other, "ml mine"), "HD");
}

#[test]
fn a_bound_win_belongs_to_the_session() {
    let mut world = World::new();
    let (first, _) = world.attach(10);
    assert_eq!(world.said(first, "mg k N30 B"), "HD W");
    world.close(first);
    let other = world.open();
    assert!(world.said(other, "mg k N30").ends_with(" Z"));
    let (second, _) = world.attach(10);
    assert_eq!(world.said(second, "mg k N30 B"), "HD W");
    // It does not wait for itself.
    assert_eq!(world.said(second, "mg k N30 B w5000"), "HD W");
    world.close(second);
    world.advance(10_000);
    assert_eq!(world.said(other, "mg k N30"), "HD Z");
    world.advance(1);
    assert_eq!(world.said(other, "mg k N30"), "HD W");
}

#[test]
fn takers_are_closed_in_turn() {
    let mut world = World::new();
    let (first, said) = world.attach(10);
    let resumed = std::format!("{}\r\n", said.replace(" N", " R"));
    let line = std::format!("mo {TOKEN} T10\r\n");
    let (second, third) = (world.open(), world.open());
    world.server.receive(world.now, second, line.as_bytes());
    world.server.receive(world.now, third, line.as_bytes());
    let said = actions(&mut world.server);
    let answered: Vec<_> = said
        .iter()
        .filter(|(_, said)| said.as_deref() == Some(&resumed))
        .collect();
    assert!(answered.iter().any(|(conn, _)| *conn == third), "{said:?}");
    assert!(
        said.contains(&(first, None)) && said.contains(&(second, None)),
        "{said:?}"
    );
    assert_eq!(world.said(third, "ml k"), "HD");
    world.server.machine().manager().sessions().check();
}

#[test]
fn sessions_are_bounded() {
    let limits = SessionLimits {
        sessions_max: 2,
        per_address_max: 2,
    };
    let mut server = Server::new(Config::default().with_sessions(limits));
    let mut said = |number: u32| {
        let conn = server.open(NOW);
        server.receive(
            NOW,
            conn,
            std::format!("mo {TOKEN}{number} T5\r\n").as_bytes(),
        );
        let said = actions(&mut server);
        said.into_iter()
            .find_map(|(to, said)| said.filter(|_| to == conn))
            .unwrap()
    };
    assert!(said(1).starts_with("HD") && said(2).starts_with("HD"));
    assert_eq!(said(3), "SERVER_ERROR too many sessions\r\n");
    let reply = said(1);
    assert!(matches!(
        SessionResponse::decode(reply.as_bytes()),
        Ok(Some((SessionResponse::Resumed(_), _)))
    ));
}

impl World {
    fn said_all(&mut self, conn: ConnId, line: &str) -> Vec<(ConnId, &'static str)> {
        let said = self.ask(conn, line);
        let said = said.into_iter().map(|(conn, said)| {
            let said = said.expect("nobody is closed");
            (
                conn,
                &*Box::leak(said.trim_end().to_owned().into_boxed_str()),
            )
        });
        said.collect()
    }
}

use std::borrow::ToOwned;
use std::boxed::Box;
