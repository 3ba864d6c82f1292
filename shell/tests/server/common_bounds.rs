//! No client, log or command delays the other clients: the attacks of `abuse`, one thread at a time
//! and small enough for a test.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use latchd_server::UnixSocket;

use crate::client::{TestClient, address, start};
use rustix::net::sockopt::set_socket_linger;

/// How many items a `keys` without a match looks at.
const ITEMS: usize = 20_000;

/// How many of those are sent at once: minutes of work, in many times the bytes of one read.
const REQUESTS: usize = 60_000;

/// The limit for an immediate answer, far below those minutes, on a busy machine.
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

/// A client with far more requests than fit into a turn; its turn has begun.
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
fn a_reset_frees_locks_despite_pending_requests() {
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
    // A busy machine may send so slowly that each piece is one turn; then once more.
    let mut length = 1_000_000;
    for _ in 0..100 {
        client.send("append big 0 0 1 noreply\r\nx\r\n".repeat(300));
        client.send("mg big s\r\nget none\r\n".repeat(300));
        length += 300;
        for _ in 0..300 {
            assert_eq!(client.line(), format!("HD s{length}"));
            assert_eq!(client.line(), "END");
        }
        if client.stat("conn_yields") != "0" {
            return;
        }
    }
    panic!("all of it was one turn, each time");
}

/// One thread reads the long requests of a crowd in turn, and other clients in between.
#[test]
fn long_requests_of_a_crowd_arrive_whole() {
    const BYTES: usize = 300_000;
    let server = start(|config| config.threads = NonZeroUsize::MIN);
    let address = address(&server);
    let mut innocent = TestClient::connect(address);
    let mut crowd: Vec<_> = (0..40).map(|_| TestClient::connect(address)).collect();
    for piece in 0..3 {
        for (number, client) in (0_u8..).zip(&mut crowd) {
            if piece == 0 {
                client.send(format!("set big{number} 0 0 {BYTES}\r\n"));
            }
            client.send([b'a' + piece + number % 20].repeat(BYTES / 3));
        }
        assert_eq!(innocent.ask("mn"), "MN");
    }
    for (number, client) in (0_u8..).zip(&mut crowd) {
        client.send(format!("\r\nget big{number}\r\n"));
        assert_eq!(client.line(), "STORED");
        assert_eq!(client.line(), format!("VALUE big{number} 0 {BYTES}"));
        let value = client.bytes(BYTES);
        let pieces = value.chunks(BYTES / 3).zip(b'a' + number % 20..);
        for (piece, byte) in pieces {
            assert!(piece.iter().all(|it| *it == byte), "{number}");
        }
        assert_eq!(
            (client.line(), client.line()),
            (String::new(), "END".into())
        );
    }
}

const MIB: usize = 1 << 20;

#[test]
fn unfinished_requests_have_one_common_bound() {
    let server = start(|config| {
        config.threads = NonZeroUsize::new(2).unwrap();
        config.unfinished_bytes_max = Some(4 * MIB);
    });
    let address = address(&server);
    let mut innocent = TestClient::connect(address);
    let mut small = TestClient::connect(address);
    small.send("set small 0 0 10\r\nhalf");
    let mut unfinished = Vec::new();
    for length in (500_000..).step_by(50_000).take(10) {
        let mut client = TestClient::connect(address);
        client.send(format!("set x 0 0 1000000\r\n{}", "v".repeat(length)));
        unfinished.push(client);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while innocent.stat("read_buf_oom") == "0" {
        assert!(Instant::now() < deadline, "no client was closed");
    }
    // The client that had most when there was too much is closed, and no client that had less than
    // another.
    let closed = (0..10)
        .rev()
        .find(|number| {
            let mut client = unfinished[*number].socket().try_clone().unwrap();
            client
                .set_read_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            let mut answer = [0; 100];
            let said = client.read(&mut answer).map(|read| answer[..read].to_vec());
            said.is_ok_and(|said| said == b"SERVER_ERROR out of memory reading request\r\n")
        })
        .unwrap();
    assert!(closed > 3, "{closed} was not the worst");
    // It may send the rest, and meets no reset: otherwise the unread line would be lost.
    unfinished[closed].send("v".repeat(2 * MIB));
    let socket = unfinished[closed].socket();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(socket.read(&mut [0; 100]).unwrap(), 0);
    small.send("-whole\r\n");
    assert_eq!(small.line(), "STORED");
    assert_eq!(innocent.stat("response_obj_oom"), "0");
}

/// The client reads `answers` answers with a value of 1 MB.
fn assert_whole(client: &mut TestClient<UnixStream>, key: &str, answers: usize) {
    for _ in 0..answers {
        assert_eq!(client.line(), format!("VALUE {key} 0 1000000"));
        assert_eq!(client.bytes(1_000_002).len(), 1_000_002);
        assert_eq!(client.line(), "END");
    }
}

#[test]
fn unread_replies_have_one_common_bound() {
    let path = std::env::temp_dir().join(format!("latchd-steady-{}", std::process::id()));
    let server = start(|config| {
        config.threads = NonZeroUsize::new(2).unwrap();
        config.unsent_bytes_max = Some(4 * MIB);
        // The kernel takes less off the server's hands than on TCP.
        config.unix_socket = Some(UnixSocket {
            path: path.clone(),
            mode: 0o700,
        });
    });
    let mut innocent = TestClient::connect(address(&server));
    for number in 0..10 {
        let value = "v".repeat(1_000_000);
        innocent.send(format!("set big{number} 0 0 1000000\r\n{value}\r\n"));
        assert_eq!(innocent.line(), "STORED");
    }
    let mut deaf: Vec<_> = (0..10).map(|_| TestClient::connect_unix(&path)).collect();
    // A value that all of them get is counted once.
    for client in &mut deaf {
        client.send("get big0\r\n".repeat(3));
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while innocent.stat("response_obj_count") != "10" {
        assert!(Instant::now() < deadline, "not all of them are answered");
    }
    let bytes: usize = innocent.stat("response_obj_bytes").parse().unwrap();
    assert!((1_000_000..3_000_000).contains(&bytes), "{bytes}");
    assert_eq!(innocent.stat("response_obj_oom"), "0");
    for client in &mut deaf {
        assert_whole(client, "big0", 3);
    }
    for (number, client) in deaf.iter_mut().enumerate() {
        client.send(format!("get big{number}\r\n").repeat(3));
    }
    while innocent.stat("response_obj_oom") == "0" {
        assert!(Instant::now() < deadline, "no client was closed");
    }
    assert_eq!(innocent.ask("mn"), "MN");
    // A client that was not closed is answered in full, however late it reads.
    let sockets = deaf.into_iter().map(TestClient::into_socket).enumerate();
    let whole = sockets.filter(|(number, socket)| {
        let mut socket = socket;
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut all = Vec::new();
        let _ = socket.read_to_end(&mut all);
        all.len() == 3 * (1_000_000 + format!("VALUE big{number} 0 1000000\r\n\r\nEND\r\n").len())
    });
    let whole = whole.count();
    assert!((2..10).contains(&whole), "{whole} were answered in full");
}

#[test]
fn incomplete_requests_do_not_prevent_idle_timeout() {
    let server = start(|config| config.idle_timeout = Some(Duration::from_secs(1)));
    let mut dripping = TestClient::connect(address(&server));
    dripping
        .socket()
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let begun = Instant::now();
    // A set that is too large is read past, which is no request either.
    dripping.send("set k 0 0 2000000\r\n");
    loop {
        assert!(
            begun.elapsed() < Duration::from_secs(6),
            "it lives for ever"
        );
        // It may be closed already; the read shows that.
        let _ = dripping.socket().write(b"x");
        match dripping.socket().read(&mut [0; 10]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
            Ok(_) => panic!("it was answered"),
        }
    }
}
