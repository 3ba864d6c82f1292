//! Connections with waiting requests: when each continues, and its reply.

use super::*;

fn waiting_server() -> Server {
    server_with(|limits| limits.waits = true)
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// The output for `conn` after `bytes` have arrived from it, and whether it waits then.
fn says(server: &mut Server, now: Instant, conn: ConnId, bytes: &[u8]) -> (String, bool) {
    let sent = answers_at(server, now, conn, bytes);
    (sent, server.progress(conn) == Progress::Waiting)
}

/// The output for all connections after bytes from `conn`, which end waits of others.
fn tells(server: &mut Server, conn: ConnId, bytes: &[u8]) -> Vec<(ConnId, String)> {
    server.receive(NOW, conn, bytes);
    sends(server)
}

fn sends(server: &mut Server) -> Vec<(ConnId, String)> {
    let all = actions(server).into_iter();
    all.filter_map(|(conn, sent)| Some((conn, sent?))).collect()
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
    assert_eq!(
        tells(&mut server, a, b"mu k\r\n"),
        [answered(a, "HD\r\n"), answered(b, "HD Oid kk F2\r\nMN\r\n")]
    );
    assert_eq!(server.machine().next_deadline(), None);
    assert_eq!(says(&mut server, NOW, a, b"ml k\r\n").0, "LK h2 a0 n0\r\n");
}

#[test]
fn a_wait_ends_on_time() {
    let mut server = waiting_server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    says(&mut server, NOW, a, b"ml k\r\n");
    assert!(says(&mut server, at(5), b, b"ml k w1000 q\r\n").1);
    assert_eq!(deadline(&mut server), Some(at(250)), "that of a tick");
    server.advance(at(1005), wall_clock(at(1005)));
    assert_eq!(sends(&mut server), []);
    assert_eq!(deadline(&mut server), Some(at(1006)));
    server.advance(at(1006), wall_clock(at(1006)));
    assert_eq!(sends(&mut server), [answered(b, "LK h1 a1 n0\r\n")]);
    assert_eq!(deadline(&mut server), Some(at(1255)));
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
    assert_eq!(sends(&mut server), [answered(c, "HD\r\n")]);
    // It closes before its notice.
    server.receive(NOW, c, b"mu k\r\n");
    server.close(NOW, b);
    assert_eq!(sends(&mut server), [answered(c, "HD\r\n")]);
    assert_eq!(says(&mut server, NOW, c, b"ml k\r\n").0, "HD\r\n");
}

#[test]
fn what_a_waiting_client_sends_is_kept_up_to_a_bound() {
    let mut server = waiting_server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    says(&mut server, NOW, a, b"ml k\r\n");
    assert!(says(&mut server, NOW, b, b"ml k w1000\r\n").1);
    assert!(says(&mut server, NOW, b, b"mn\r\nset x 0 0 3\r\na").1);
    assert_eq!(server.kept_bytes(b), 12 + 4 + 13 + 1);
    assert_eq!(
        tells(&mut server, a, b"quit\r\n"),
        [answered(b, "HD\r\nMN\r\n")]
    );
    assert_eq!(says(&mut server, NOW, b, b"bc\r\n").0, "STORED\r\n");

    // A waiting client that sends more is not read. If the transport reads it all the same, the client loses its place.
    let (c, d) = (server.open(NOW), server.open(NOW));
    let line = b"ml k w1000\r\n";
    for conn in [c, d] {
        assert!(says(&mut server, NOW, conn, line).1);
    }
    let much = vec![b'x'; KEPT_BYTES_MAX - line.len() - 1];
    assert!(says(&mut server, NOW, c, &much).1);
    assert!(server.wants_input(c));
    assert!(says(&mut server, NOW, c, b"xx").1);
    assert!(!server.wants_input(c));
    server.receive(NOW, c, b"x");
    assert_eq!(server.progress(c), Progress::Close);
    assert_eq!(
        tells(&mut server, b, b"mu k\r\n"),
        [answered(b, "HD\r\n"), answered(d, "HD\r\n")]
    );
    assert_eq!(server.machine().waits().len(), 0);
}

/// A transport that has stopped reading a waiting connection gets the action to read again.
#[test]
fn who_waits_no_more_is_read_again() {
    let mut server = waiting_server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    says(&mut server, NOW, a, b"ml k\r\n");
    let mut much = b"ml k w1000 q\r\n".to_vec();
    much.extend(b"mg k q\r\n".repeat(KEPT_BYTES_MAX / 8));
    assert!(says(&mut server, NOW, b, &much).1);
    assert!(!server.wants_input(b));
    server.close(NOW, a);
    let all: Vec<Action> = core::iter::from_fn(|| action(&mut server)).collect();
    assert!(
        matches!(all[..], [Action::Read(conn)] if conn == b),
        "{all:?}"
    );
}

/// A lock that was granted while its connection's output was full is held at once, and the reply follows when the output has
/// space.
#[test]
fn a_full_output_holds_nobody_up() {
    let mut server = waiting_server();
    let (a, b, c) = (server.open(NOW), server.open(NOW), server.open(NOW));
    server.set_unsent_bytes_max(b, 4);
    says(&mut server, NOW, a, b"set k 0 0 5\r\nhello\r\n");
    says(&mut server, NOW, a, b"ml k\r\n");
    server.receive(NOW, b, b"mn\r\nml k v w1000\r\nmu k\r\n");
    assert_eq!(output(&mut server, b), "MN\r\n");
    assert_eq!(server.progress(b), Progress::OutputFull);
    server.sent(b, 4);
    assert_eq!(output(&mut server, b), "");
    assert_eq!(server.progress(b), Progress::Waiting);
    assert!(says(&mut server, NOW, c, b"ml k w1000\r\n").1);
    server.receive(NOW, a, b"mu k\r\n");
    let mut handed_out = vec![];
    while let Action::Send(conn, out) = server.poll() {
        server.unsent(conn, out.len());
        handed_out.push((conn, String::from_utf8(out.into()).unwrap()));
    }
    let expected = [answered(a, "HD\r\n"), answered(b, "VA 5\r\nhello\r\n")];
    assert_eq!(handed_out, expected);
    assert_eq!(server.progress(b), Progress::OutputFull);
    server.sent(b, 13);
    assert_eq!(
        sends(&mut server),
        [answered(b, "HD\r\n"), answered(c, "HD\r\n")]
    );
}

#[test]
fn a_lease_ends_on_time_for_who_waits() {
    let mut server = waiting_server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    says(&mut server, NOW, a, b"ml k T0.25\r\n");
    let deadline = |server: &Server| server.machine().next_deadline();
    assert_eq!(deadline(&server), None, "nobody waits for it");
    assert!(says(&mut server, at(100), b, b"ml k w1000 T0.1 F\r\n").1);
    assert_eq!(deadline(&server), Some(at(251)));
    server.advance(at(250), wall_clock(at(250)));
    assert_eq!(sends(&mut server), []);
    server.advance(at(251), wall_clock(at(251)));
    assert_eq!(deadline(&server), None);
    assert_eq!(sends(&mut server), [answered(b, "HD F2\r\n")]);
    assert_eq!(
        says(&mut server, at(351), a, b"ml k\r\n").0,
        "LK h2 a0 n0\r\n"
    );
    assert_eq!(says(&mut server, at(352), a, b"ml k F\r\n").0, "HD F3\r\n");
}

/// Calls the server at the times that it names until something is sent; returns when, and what.
fn sent_at(server: &mut Server) -> (Instant, Vec<(ConnId, String)>) {
    loop {
        let now = deadline(server).expect("something is due");
        server.advance(now, wall_clock(now));
        let sent = sends(server);
        if !sent.is_empty() {
            return (now, sent);
        }
    }
}

/// The item of the key that a get waits for is removed with the lease of its lock, which the next tick sees. Nothing happens
/// meanwhile.
#[test]
fn an_idle_server_ticks_for_waiters() {
    let mut server = waiting_server();
    let (a, b) = (server.open(NOW), server.open(NOW));
    says(&mut server, NOW, a, b"mg k v N1\r\nml k T3\r\n");
    assert!(says(&mut server, NOW, b, b"mg k v w10000\r\n").1);
    let (now, sent) = sent_at(&mut server);
    assert_eq!(sent, [answered(b, "EN\r\n")]);
    assert!((3_001..=3_251).contains(&now.as_millis()), "{now:?}");
}

/// A request that has waited for its output is executed late. A get waits for an item that it removes.
#[test]
fn a_late_request_is_followed_by_a_tick() {
    let mut server = waiting_server();
    let a = server.open(NOW);
    server.set_unsent_bytes_max(a, 1);
    server.receive(NOW, a, b"mn\r\nset k 0 1 1\r\nx\r\n");
    let first = output(&mut server, a);
    for ms in [250, 500, 750] {
        server.advance(at(ms), wall_clock(at(ms)));
    }
    assert_eq!(deadline(&mut server), None);
    server.sent(a, first.len());
    assert_eq!(output(&mut server, a), "STORED\r\n");
    assert_eq!(deadline(&mut server), Some(at(1_000)));
}

/// A connection whose wait has ended may end waits of others, in the same turn of the transport.
#[test]
fn one_hand_over_brings_about_the_next() {
    let mut server = waiting_server();
    let all: Vec<ConnId> = (0..5).map(|_| server.open(NOW)).collect();
    says(&mut server, NOW, all[0], b"ml k\r\n");
    for conn in &all[1..] {
        assert!(says(&mut server, NOW, *conn, b"ml k w1000\r\nmu k\r\n").1);
    }
    let mut replies = vec![answered(all[0], "OK\r\n")];
    replies.extend(all[1..].iter().map(|conn| answered(*conn, "HD\r\nHD\r\n")));
    assert_eq!(tells(&mut server, all[0], b"unlock_all\r\n"), replies);
}

/// The replies to two clients that request the same locks and continue as soon as possible. Their bytes come in pieces of this
/// length, and their outputs have this bound.
fn conversation(piece: usize, unsent_bytes_max: usize) -> [String; 2] {
    // A client that ends the wait of the other sends nothing after that: the network decides which comes first.
    const SCRIPT: [(usize, &[u8]); 8] = [
        (0, b"ml k T60 F\r\nml j w10 v\r\nset j 0 0 2\r\nhi\r\n"),
        (1, b"mn\r\nml k w10 k F v\r\nml j w10 F s v\r\nget j\r\n"),
        (0, b"get j\r\nmu k\r\n"),
        (0, b"ml k w10 F O1\r\nmu j O2\r\n"),
        (1, b"mu j q\r\nnonsense\r\nset k 0 0 3\r\nhey\r\n"),
        (0, b"ml k w10 v\r\nmn\r\n"),
        (1, b"mu k\r\n"),
        (1, b"mn\r\n"),
    ];
    let mut server = waiting_server().with_unsent_bytes_max(unsent_bytes_max);
    let conns = [server.open(NOW), server.open(NOW)];
    let mut replies = [String::new(), String::new()];
    for (who, script) in SCRIPT {
        for bytes in script.chunks(piece) {
            server.receive(NOW, conns[who], bytes);
            for (conn, sent) in sends(&mut server) {
                let who = conns.iter().position(|it| *it == conn).unwrap();
                replies[who].push_str(&sent);
            }
        }
    }
    replies
}

/// V1, for deferred replies.
#[test]
fn cuts_do_not_matter_to_who_waits() {
    let whole = conversation(usize::MAX, usize::MAX);
    let all = [
        concat!(
            "HD F1\r\nHD\r\nSTORED\r\nVALUE j 0 2\r\nhi\r\nEND\r\nHD\r\n",
            "LK h2 a0 n0 d O1\r\nHD O2\r\nVA 3\r\nhey\r\nMN\r\n"
        ),
        concat!(
            "MN\r\nHD kk F3\r\nVA 2 F4 s2\r\nhi\r\nVALUE j 0 2\r\nhi\r\nEND\r\n",
            "ERROR\r\nSTORED\r\nHD\r\nMN\r\n"
        ),
    ];
    assert_eq!(whole, all);
    for (piece, unsent_bytes_max) in [(1, usize::MAX), (1, 1), (7, 5), (usize::MAX, 1)] {
        assert_eq!(conversation(piece, unsent_bytes_max), whole);
    }
}
