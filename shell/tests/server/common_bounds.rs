//! The bounds that all clients have in common: memory for unfinished requests, and for unread replies.

use std::io::Read;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use latchd_server::UnixSocket;

use crate::client::{TestClient, address, start};

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
    let path = std::env::temp_dir().join(format!("latchd-bounds-{}", std::process::id()));
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
