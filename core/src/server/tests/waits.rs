//! Connections whose requests wait: who goes on when, and with which answer.

use super::*;

fn waiting_server() -> Server {
    server().with_waits()
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// What `conn` is sent when `bytes` arrive from it, and whether it waits then.
fn says(server: &mut Server, now: Instant, conn: ConnId, bytes: &[u8]) -> (String, bool) {
    let mut out = Output::new();
    let progress = server.receive(now, conn, bytes, &mut out);
    server.machine().check();
    let sent = String::from_utf8(out.into()).expect("these tests speak text");
    (sent, progress == Progress::Waiting)
}

/// Goes on with everybody who can; who was sent what.
fn go_on(server: &mut Server, now: Instant) -> Vec<(ConnId, String)> {
    let mut all = vec![];
    while let Some(conn) = server.next_ready() {
        let (sent, _) = says(server, now, conn, b"");
        all.push((conn, sent));
    }
    all
}

fn answered(conn: ConnId, line: &str) -> (ConnId, String) {
    (conn, String::from(line))
}

#[test]
fn a_request_waits_until_the_lock_is_given_back() {
    let mut server = waiting_server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    assert_eq!(says(&mut server, NOW, a, b"ml k F\r\n").0, "HD F1\r\n");
    let waits = says(&mut server, NOW, b, b"mn\r\nml k w1000 Oid k F\r\nmn\r\n");
    assert_eq!(waits, (String::from("MN\r\n"), true));
    assert_eq!(go_on(&mut server, NOW), []);
    assert_eq!(says(&mut server, NOW, a, b"mu k\r\n").0, "HD\r\n");
    assert_eq!(
        go_on(&mut server, NOW),
        [answered(b, "HD Oid kk F2\r\nMN\r\n")]
    );
    assert_eq!(server.next_deadline(), None);
    assert_eq!(says(&mut server, NOW, a, b"ml k\r\n").0, "LK h2 a0 n0\r\n");
}

#[test]
fn a_wait_ends_on_time() {
    let mut server = waiting_server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    says(&mut server, NOW, a, b"ml k\r\n");
    assert!(says(&mut server, at(5), b, b"ml k w1000 q\r\n").1);
    assert_eq!(server.next_deadline(), Some(at(1005)));
    server.pass(at(1004));
    assert_eq!(go_on(&mut server, at(1004)), []);
    server.pass(at(1005));
    assert_eq!(
        go_on(&mut server, at(1005)),
        [answered(b, "LK h1 a1 n0\r\n")]
    );
    assert_eq!(server.next_deadline(), None);
}

#[test]
fn who_has_not_asked_for_it_is_answered_at_once() {
    let mut server = server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    says(&mut server, NOW, a, b"ml k\r\n");
    assert_eq!(
        says(&mut server, NOW, b, b"ml k w1000\r\n"),
        (String::from("LK h1 a0 n0\r\n"), false)
    );
}

#[test]
fn the_end_of_a_holder_lets_the_first_go_on() {
    let mut server = waiting_server();
    let (a, b, c) = (server.open(NOW), server.open(NOW), server.open(NOW));
    says(&mut server, NOW, a, b"ml k\r\n");
    says(&mut server, NOW, c, b"ml k w1000\r\n");
    says(&mut server, NOW, b, b"ml k w1000\r\n");
    server.close(NOW, a);
    assert_eq!(go_on(&mut server, NOW), [answered(c, "HD\r\n")]);
    // It ends before it hears of it.
    says(&mut server, NOW, c, b"mu k\r\n");
    server.close(NOW, b);
    assert_eq!(go_on(&mut server, NOW), []);
    assert_eq!(says(&mut server, NOW, c, b"ml k\r\n").0, "HD\r\n");
}
