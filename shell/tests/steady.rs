//! No client, log or command holds the others up: what the attacks of `abuse` do, one thread at a
//! time and small enough for a test.

#![allow(clippy::unwrap_used)]

mod client;

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use client::{TestClient, address, start};
use rustix::net::sockopt::set_socket_linger;

/// How many items a `keys` without a match looks at.
const ITEMS: usize = 20_000;

/// How many of those are sent at once: minutes of work, in many times what is read at once.
const REQUESTS: usize = 60_000;

/// What is nothing beside those minutes, on a machine that does other things too.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Stores many items.
fn fill(client: &mut TestClient<TcpStream>) {
    for chunk in 0..ITEMS / 1_000 {
        let sets: Vec<_> = (0..1_000)
            .map(|item| format!("set k{chunk}-{item} 0 0 1 noreply\r\nx\r\n"))
            .collect();
        client.send(sets.concat());
    }
    assert_eq!(client.ask("mn"), "MN");
}

/// A client that asks for much more than fits into a turn, and whose turn has begun.
fn attacker(address: SocketAddr) -> TestClient<TcpStream> {
    let mut attacker = TestClient::connect(address);
    attacker.send("keys zz\r\n".repeat(REQUESTS));
    assert_eq!(attacker.line(), "END");
    attacker
}

/// How many answers have come that have not been read.
fn answers(client: TestClient<TcpStream>) -> usize {
    let mut socket = client.into_socket();
    socket.set_nonblocking(true).unwrap();
    let mut bytes = vec![0; REQUESTS * 8];
    socket.read(&mut bytes).map_or(0, |read| read / 5)
}

#[test]
fn much_work_in_few_bytes_gives_way_to_others() {
    let server = start(|_| {});
    let address = address(&server);
    let mut innocent = TestClient::connect(address);
    fill(&mut innocent);
    let attacker = attacker(address);
    for _ in 0..5 {
        assert_eq!(innocent.ask("mn"), "MN");
        assert_eq!(TestClient::connect(address).ask("mn"), "MN");
    }
    assert!(answers(attacker) < REQUESTS / 2, "the attacker was first");
}

#[test]
fn a_server_ends_while_a_client_asks_for_much() {
    let server = start(|_| {});
    fill(&mut TestClient::connect(address(&server)));
    let _attacker = attacker(address(&server));
    let asked = Instant::now();
    server.shutdown();
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
}

#[test]
fn a_reset_frees_locks_whatever_is_still_to_be_done() {
    let server = start(|_| {});
    let address = address(&server);
    let mut waiter = TestClient::connect(address);
    fill(&mut waiter);
    let mut holder = TestClient::connect(address);
    assert_eq!(holder.ask("lock k0-0"), "OK");
    holder.send("keys zz\r\n".repeat(REQUESTS));
    assert_eq!(holder.line(), "END");
    assert_eq!(waiter.ask("lock k0-0"), "LOCKED");
    let socket = holder.into_socket();
    set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    drop(socket);
    let died = Instant::now();
    while waiter.ask("lock k0-0") == "LOCKED" {
        assert!(died.elapsed() < AT_ONCE, "the lock has outlived its client");
    }
}

/// Half of a conversation may come in one piece: a turn that ends in the middle changes nothing.
#[test]
fn answers_are_in_order_however_many_turns_they_take() {
    let server = start(|config| config.value_bytes_max = 1 << 20);
    let mut client = TestClient::connect(address(&server));
    client.send(format!(
        "set big 0 0 1000000\r\n{}\r\n",
        "v".repeat(1_000_000)
    ));
    assert_eq!(client.line(), "STORED");
    client.send("append big 0 0 1 noreply\r\nx\r\n".repeat(2_000));
    client.send("mg big s\r\nget none\r\n".repeat(1_000));
    for _ in 0..1_000 {
        assert_eq!(client.line(), "HD s1002000");
        assert_eq!(client.line(), "END");
    }
    let yields: u64 = client.stat("conn_yields").parse().unwrap();
    assert!(yields > 0, "all of it was one turn");
}
