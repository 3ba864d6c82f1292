//! For how long no other server can serve these items, as `mn H` and `ml … H` promise it: 95 / 105 of the rest of the hold.

use super::*;

const fn ms(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A server with a hold until 5,000 ms, and two connections.
fn held() -> (Server, ConnId, ConnId) {
    let mut server = server_with(|limits| limits.waits = true);
    server.set_hold(Some(ms(5_000)));
    let (alice, bob) = (server.open(NOW), server.open(NOW));
    (server, alice, bob)
}

fn says(server: &mut Server, now: Instant, conn: ConnId, request: &str) -> String {
    server.receive(now, conn, request.as_bytes());
    output(server, conn)
}

#[test]
fn hold_is_shown_until_it_is_over() {
    let (mut server, alice, _) = held();
    for (now, request, reply) in [
        (1_000, "mn H\r\n", "MN H3618\r\n"),
        (1_001, "mn\r\n", "MN\r\n"),
        (1_001, "mn H x\r\n", "MN\r\n"),
        (1_001, "mn H1\r\n", "MN\r\n"),
        (2_000, "ml k F H\r\n", "HD F1 H2713\r\n"),
        // Nothing is granted.
        (2_001, "ml k H\r\n", "LK h1 a0 n0\r\n"),
        (2_500, "ml k T9 O7 H k\r\n", "HD O7 H2261 kk\r\n"),
        (3_000, "ms k 1\r\nx\r\nmu k\r\n", "HD\r\nHD\r\n"),
        (3_000, "ml k v H s\r\n", "VA 1 H1808 s1\r\nx\r\n"),
        (3_000, "ml other q H\r\n", ""),
        (5_000, "ml third H\r\n", "HD H0\r\n"),
        (9_000, "mn H\r\n", "MN H0\r\n"),
    ] {
        assert_eq!(
            says(&mut server, ms(now), alice, request),
            reply,
            "{request}"
        );
        server.sent(alice, reply.len());
    }
}

#[test]
fn late_grant_shows_the_hold_of_its_moment() {
    let (mut server, alice, bob) = held();
    server.receive(ms(1_000), alice, b"ml k\r\n");
    server.receive(ms(1_000), bob, b"ml k w3000 H F\r\n");
    assert_eq!(actions(&mut server), [(alice, Some("HD\r\n".into()))]);
    server.close(ms(3_500), alice);
    let granted = "HD H1356 F2\r\n".into();
    assert_eq!(actions(&mut server), [(bob, Some(granted))]);
}

#[test]
fn sessions_show_the_hold() {
    let (mut server, alice, bob) = held();
    let token = "0123456789abcdef";
    let opened = says(&mut server, ms(1), alice, &format!("mo {token} T9\r\n"));
    assert_eq!(opened, "HD n3 N\r\n");
    server.sent(alice, opened.len());
    let attached = says(&mut server, ms(1_000), alice, "ml k F H\r\n");
    assert_eq!(attached, "HD F1 H3618\r\n");
    server.sent(alice, attached.len());
    let from_afar = says(&mut server, ms(2_000), bob, &format!("ml k H j{token}\r\n"));
    assert_eq!(from_afar, "HD H2713\r\n");
}

#[test]
fn without_hold_the_flag_shows_nothing() {
    let (mut server, alice, _) = held();
    server.set_hold(None);
    let requests = "mn H\r\nml k H F\r\nml k T5 H\r\nms k 1\r\nx\r\nml k T5 v H\r\n";
    let replies = "MN\r\nHD F1\r\nHD\r\nHD\r\nVA 1\r\nx\r\n";
    assert_eq!(says(&mut server, ms(1), alice, requests), replies);
}

#[test]
fn other_commands_have_no_such_flag() {
    let (mut server, alice, _) = held();
    for request in ["mg k H", "ms k 0 H\r\n", "md k H", "mu k H"] {
        let reply = says(&mut server, ms(1), alice, &format!("{request}\r\n"));
        assert_eq!(reply, "CLIENT_ERROR invalid flag\r\n", "{request}");
        server.sent(alice, reply.len());
    }
}
