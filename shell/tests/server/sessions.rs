//! Sessions over real sockets, with one thread and with several.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::waiting::{Client, ENDS, LONG, servers};
use crate::client::{TestClient, address, start};

const TOKEN: &str = "0123456789abcdef-";

/// A client that is attached to the session `number`, for `seconds`.
fn attached(address: SocketAddr, number: u32, seconds: u32) -> (Client, String) {
    let mut client = TestClient::connect(address);
    let said = client.ask(&format!("mo {TOKEN}{number} T{seconds}"));
    (client, said)
}

#[test]
fn locks_of_a_session_outlive_every_end_of_a_connection() {
    for server in servers() {
        let address = address(&server);
        for (number, (name, end)) in (0..).zip(ENDS) {
            let (mut client, said) = attached(address, number, 60);
            let fence = client.ask(&format!("ml {name} F"));
            assert!(fence.starts_with("HD F"), "{name}: {said}, {fence}");
            end(client);
            let (mut client, again) = attached(address, number, 60);
            assert_eq!(again, said.replace(" N", " R"), "{name}");
            assert_eq!(client.ask(&format!("ml {name} F")), fence, "{name}");
            // A session of its own has the lock of nobody else.
            let (mut other, _) = attached(address, 100 + number, 60);
            assert!(other.ask(&format!("ml {name}")).starts_with("LK"));
            assert_eq!(client.ask(&format!("mo {TOKEN}{number} T0")), "HD");
            assert_eq!(other.ask(&format!("ml {name}")), "HD", "{name}");
        }
    }
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

/// A refusal changes nothing, so another connection can take over as before.
#[test]
fn session_is_taken_over_after_a_refusal() {
    for server in servers() {
        let address = address(&server);
        let (mut first, _) = attached(address, 1, 60);
        let refused = first.ask(&format!("mo {TOKEN}2 T60"));
        assert_eq!(refused, "CLIENT_ERROR attached to another session");
        assert_eq!(first.stat("sessions_attached"), "1");
        let (_second, said) = attached(address, 1, 60);
        assert!(said.ends_with(" R"), "{said}");
        assert_eq!(first.rest(), b"");
    }
}

#[test]
fn a_place_in_a_queue_is_found_again_on_any_thread() {
    for server in servers() {
        let address = address(&server);
        let mut holder = TestClient::connect(address);
        assert_eq!(holder.ask("ml k"), "HD");
        let (mut first, _) = attached(address, 1, 60);
        first.send(format!("ml k {LONG} F\r\n"));
        while holder.stat("lock_waiting") != "1" {}
        let mut behind = TestClient::connect(address);
        behind.send(format!("ml k {LONG}\r\n"));
        while holder.stat("lock_waiting") != "2" {}
        // The new connection takes over from one that waits.
        let (mut second, said) = attached(address, 1, 60);
        assert!(said.ends_with(" R"), "{said}");
        assert_eq!(first.rest(), b"");
        second.send(format!("ml k {LONG} F\r\n"));
        assert_eq!(holder.ask("mu k"), "HD");
        assert!(second.line().starts_with("HD F"));
        assert_eq!(second.ask("mu k"), "HD");
        assert_eq!(behind.line(), "HD");
    }
}

#[test]
fn a_request_in_a_session_needs_no_connection_of_its_own() {
    for server in servers() {
        let address = address(&server);
        let (mut client, _) = attached(address, 1, 60);
        let mut proxy = TestClient::connect(address);
        for key in ["a", "b", "c", "d"] {
            let fence = proxy.ask(&format!("ml {key} F j{TOKEN}1"));
            assert_eq!(client.ask(&format!("ml {key} F")), fence);
        }
        assert!(proxy.ask("ml a").starts_with("LK"));
        assert_eq!(client.ask(&format!("mu a j{TOKEN}1")), "HD");
        assert_eq!(proxy.ask("ml a"), "HD");
        assert_eq!(
            proxy.ask(&format!("mu b j{TOKEN}2")),
            "CLIENT_ERROR no such session"
        );
        let (mut other, _) = attached(address, 2, 60);
        let refused = "CLIENT_ERROR attached to another session";
        assert_eq!(other.ask(&format!("mu b j{TOKEN}1")), refused);
        assert_eq!(other.ask(&format!("mo {TOKEN}1 T0")), refused);
        assert_eq!(other.ask("ml b").get(..2), Some("LK"));
        // The end of the session by a third connection closes the attached one.
        assert_eq!(
            TestClient::connect(address).ask(&format!("mo {TOKEN}1 T0")),
            "HD"
        );
        assert_eq!(client.rest(), b"");
        assert_eq!(other.ask("ml b"), "HD");
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
