//! Sessions over real sockets, with one thread and with several.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::waiting::{Client, LONG, servers};
use crate::client::{TestClient, address, start};

const TOKEN: &str = "0123456789abcdef-";

/// A client that is attached to the session `number`, for `seconds`.
fn attached(address: SocketAddr, number: u32, seconds: u32) -> (Client, String) {
    let mut client = TestClient::connect(address);
    let said = client.ask(&format!("mo {TOKEN}{number} T{seconds}"));
    (client, said)
}

#[test]
fn a_session_ends_on_time_and_closes_its_connection() {
    for server in servers() {
        let address = address(&server);
        let (mut client, _) = attached(address, 1, 1);
        let mut waiter = TestClient::connect(address);
        let sent = Instant::now();
        assert_eq!(client.ask("ml k"), "HD");
        assert_eq!(waiter.ask(&format!("ml k {LONG}")), "HD");
        assert!(
            sent.elapsed() >= Duration::from_secs(1),
            "S2: {:?}",
            sent.elapsed()
        );
        assert_eq!(client.rest(), b"", "it is closed");
        let (_, said) = attached(address, 1, 60);
        assert!(said.ends_with(" N"), "S3: {said}");
        assert_eq!(waiter.stat("sessions_expired"), "1");
        let mut other = TestClient::connect(address);
        assert_eq!(other.ask(&format!("mo {TOKEN}1 T0")), "HD");
        assert_eq!(other.stat("sessions_ended"), "1");
    }
}

#[test]
fn connections_that_take_over_from_each_other_in_a_loop_are_all_answered() {
    for server in servers() {
        let address = address(&server);
        let clients: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(move || {
                    for _ in 0..50 {
                        let (_client, said) = attached(address, 7, 60);
                        // Another one may take over before the answer is there: then it is closed.
                        assert!(said.is_empty() || said.starts_with("HD n"), "{said}");
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        let (mut last, said) = attached(address, 7, 60);
        assert!(said.ends_with(" R"), "{said}");
        assert_eq!(last.ask("ml k"), "HD");
        let mut other = TestClient::connect(address);
        assert!(other.ask("ml k").starts_with("LK"));
        assert_eq!(other.stat("sessions"), "1");
    }
}

#[test]
fn sessions_are_shown_and_bounded() {
    let server = start(|config| {
        config.sessions.sessions_max = 3;
        config.sessions.per_address_max = 2;
    });
    let address = address(&server);
    let (first, _) = attached(address, 1, 30);
    let (mut second, said) = attached(address, 2, 60);
    let (_, refused) = attached(address, 3, 60);
    assert_eq!(refused, "SERVER_ERROR too many sessions");
    drop(first);
    while second.stat("sessions_attached") != "1" {}
    second.send("stats sessions\r\n");
    let mut lines = Vec::new();
    while let line = second.line()
        && line != "END"
    {
        lines.push(line);
    }
    let owner = said
        .strip_prefix("HD n")
        .and_then(|said| said.strip_suffix(" N"))
        .unwrap();
    assert_eq!(lines.len(), 8, "{lines:?}");
    assert!(
        lines[0].ends_with(":conn 0") && lines[1].ends_with(":secs 30"),
        "{lines:?}"
    );
    assert!(
        lines[4].starts_with(&format!("STAT {owner}:conn ")),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| !line.contains(TOKEN)), "S7");
    let mut third = TestClient::connect(address);
    assert_eq!(third.ask(&format!("mo {TOKEN}9 T5 x")), "NF");
    for (name, count) in [
        ("sessions", "2"),
        ("sessions_opened", "2"),
        ("sessions_resumed", "0"),
        ("sessions_ended", "0"),
        ("session_misses", "1"),
        ("session_refusals", "1"),
    ] {
        assert_eq!(third.stat(name), count, "{name}");
    }
    second.send("stats reset\r\n");
    assert_eq!(second.line(), "RESET");
    assert_eq!(second.stat("sessions_opened"), "0");
    assert_eq!(second.stat("sessions"), "2");
}
