//! A client may die in any way: its locks are free at once, and another client gets them.
//!
//! Each way to die is tried many times on real sockets, with one worker thread and with four. A
//! second client asks for the lock in a loop, and the time from the death to its `OK` is measured
//! and printed: median and worst. At the median it is at most 50 ms.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use latchd_server::UnixSocket;

use crate::client::{TestClient, address, start};
use rustix::net::sockopt::set_socket_linger;

/// How often each way to die is tried.
const TRIALS: usize = 30;

/// The limit of the median.
const MEDIAN_MAX: Duration = Duration::from_millis(50);

/// The limit of every trial, on a busy machine.
const WORST_MAX: Duration = Duration::from_secs(2);

/// Lets a client that holds a lock die, and measures until another one has it.
fn measure(threads: usize, name: &str, die: impl Fn(TestClient<TcpStream>)) {
    let server = start(|config| config.threads = NonZeroUsize::new(threads).unwrap());
    let address = address(&server);
    let took = (0..TRIALS).map(|_| {
        let holder = holder(address);
        let mut waiter = TestClient::connect(address);
        assert_eq!(waiter.ask("lock k"), "LOCKED");
        let died = Instant::now();
        die(holder);
        obtain(&mut waiter, died)
    });
    judge(&format!("{name}, {threads} threads"), took.collect());
}

/// A client that holds the lock of `k`.
fn holder(address: SocketAddr) -> TestClient<TcpStream> {
    let mut holder = TestClient::connect(address);
    holder.send("set k 0 0 1\r\nx\r\n");
    assert_eq!(holder.line(), "STORED");
    assert_eq!(holder.ask("lock k"), "OK");
    holder
}

/// Requests until it has the lock, and releases it. Returns how long it took.
fn obtain<S: std::io::Read + std::io::Write>(
    waiter: &mut TestClient<S>,
    died: Instant,
) -> Duration {
    loop {
        let answer = waiter.ask("lock k");
        let took = died.elapsed();
        match answer.as_str() {
            "OK" => {
                assert_eq!(waiter.ask("unlock k"), "OK");
                return took;
            }
            "LOCKED" => assert!(took < WORST_MAX, "the lock has outlived its client"),
            answer => panic!("{answer}"),
        }
    }
}

fn judge(name: &str, mut took: Vec<Duration>) {
    took.sort();
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "{name:40} median {median:>10.1?}  worst {worst:>10.1?}  of {}",
        took.len()
    );
    assert!(median <= MEDIAN_MAX, "{name}: {median:?} at the median");
}

fn measure_all(name: &str, die: impl Fn(TestClient<TcpStream>)) {
    for threads in [1, 4] {
        measure(threads, name, &die);
    }
}

#[test]
fn quit() {
    measure_all("quit", |mut holder| {
        holder.send("quit\r\n");
        std::mem::forget(holder); // It stays open on this side: only the request counts.
    });
}

#[test]
fn close() {
    measure_all("close", drop);
}

#[test]
fn half_close() {
    measure_all("half-close", |mut holder| {
        holder.socket().shutdown(Shutdown::Write).unwrap();
        std::mem::forget(holder);
    });
}

#[test]
fn reset() {
    measure_all("reset", |holder| {
        let socket = holder.into_socket();
        set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
        drop(socket);
    });
}

#[test]
fn reset_while_answers_wait_to_be_sent() {
    measure_all("reset, answers unread", |mut holder| {
        holder.send(format!("set big 0 0 500000\r\n{}\r\n", "v".repeat(500_000)));
        assert_eq!(holder.line(), "STORED");
        holder.send("mg big v\r\n".repeat(40));
        let socket = holder.into_socket();
        set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
        drop(socket);
    });
}

#[test]
fn half_a_request_and_close() {
    measure_all("close in mid-request", |mut holder| {
        holder.send("set k 0 0 100\r\nabc");
        drop(holder);
    });
}

#[test]
fn an_error_that_closes() {
    measure_all("line too long", |mut holder| {
        holder.send("x".repeat(5_000));
        std::mem::forget(holder);
    });
}

#[test]
fn kill_of_the_process() {
    measure_all("kill -9", |holder| {
        // The child has the socket as its standard input, and no other process has it open.
        let socket = OwnedFd::from(holder.into_socket());
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::from(socket))
            .spawn()
            .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn close_of_a_unix_socket() {
    for threads in [1, 4] {
        let name = format!("latchd-death-{}-{threads}", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(name);
        let _server = start(|config| {
            config.threads = NonZeroUsize::new(threads).unwrap();
            config.unix_socket = Some(UnixSocket {
                path: path.clone(),
                mode: 0o700,
            });
        });
        let took = (0..TRIALS).map(|_| {
            let mut holder = TestClient::connect_unix(&path);
            holder.send("set k 0 0 1\r\nx\r\n");
            assert_eq!(holder.line(), "STORED");
            assert_eq!(holder.ask("lock k"), "OK");
            let mut waiter = TestClient::connect_unix(&path);
            let died = Instant::now();
            drop(holder);
            obtain(&mut waiter, died)
        });
        judge(
            &format!("close of a Unix socket, {threads} threads"),
            took.collect(),
        );
    }
}

#[test]
fn idle_timeout() {
    let server = start(|config| config.idle_timeout = Some(Duration::from_secs(1)));
    let address = address(&server);
    let mut holder = holder(address);
    let mut leased = TestClient::connect(address);
    assert_eq!(leased.ask("ml leased T0.5"), "HD");
    let mut silent = TestClient::connect(address);
    assert_eq!(silent.ask("mn"), "MN");
    let mut waiter = TestClient::connect(address);
    while waiter.stat("idle_kicks") != "2" {
        assert_eq!(waiter.ask("lock k"), "LOCKED", "a holder was closed");
        std::thread::sleep(Duration::from_millis(20));
    }
    for closed in [&mut silent, &mut leased] {
        assert_eq!(closed.line(), "", "it holds nothing, and is open");
    }
    assert_eq!(holder.ask("unlock k"), "OK");
    assert_eq!(waiter.ask("lock k"), "OK");
    assert_eq!(holder.line(), "", "it holds nothing any more, and is open");
}

#[test]
fn at_the_connection_limit() {
    for reject in [true, false] {
        let server = start(|config| {
            config.connections_max = 2;
            config.reject_past_limit = reject;
        });
        let address = address(&server);
        let mut waiter = TestClient::connect(address);
        assert_eq!(waiter.ask("mn"), "MN");
        let took = (0..TRIALS).map(|_| {
            // Refused until the server has seen the last holder's end.
            let mut holder = loop {
                let mut holder = TestClient::connect(address);
                holder.send("set k 0 0 1\r\nx\r\n");
                if holder.line() == "STORED" {
                    break holder;
                }
            };
            assert_eq!(holder.ask("lock k"), "OK");
            let queued = (!reject).then(|| TestClient::connect(address));
            let died = Instant::now();
            drop(holder);
            let took = obtain(&mut waiter, died);
            if let Some(mut queued) = queued {
                assert_eq!(queued.ask("mn"), "MN", "a waiting client is accepted");
            }
            took
        });
        let name = if reject {
            "close at the limit, refusing"
        } else {
            "close at the limit, waiting"
        };
        judge(name, took.collect());
    }
}

/// The time until the kernel probes the peer of the server's end of a connection. From
/// `/proc/net/tcp`; its columns are in the kernel's `Documentation/networking/proc_net_tcp.rst`.
fn asked_in(server: SocketAddr, client: SocketAddr) -> Duration {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let (local, remote) = (
        format!(":{:04X}", server.port()),
        format!(":{:04X}", client.port()),
    );
    let row: Vec<_> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|row| row[1].ends_with(&local) && row[2].ends_with(&remote))
        .unwrap();
    let (timer, when) = row[5].split_once(':').unwrap();
    assert_eq!(timer, "02", "keepalive, and nothing else, is due");
    // In hundredths of a second.
    Duration::from_millis(10 * u64::from_str_radix(when, 16).unwrap())
}

/// The attacks `vanish` of the program `abuse` measure the whole time after a cut link.
#[test]
fn a_silent_holder_is_probed_soon() {
    let server = start(|config| config.dead_peer = Duration::from_secs(8));
    let address = address(&server);
    let mut client = TestClient::connect(address);
    client.send("set k 0 0 1\r\nx\r\n");
    assert_eq!(client.line(), "STORED");
    let ours = client.socket().local_addr().unwrap();
    // Until our acknowledgement has come, the timer for that is shown.
    std::thread::sleep(Duration::from_millis(300));
    let without = asked_in(address, ours);
    assert!(without > Duration::from_secs(8), "{without:?}");
    assert_eq!(client.ask("lock k"), "OK");
    std::thread::sleep(Duration::from_millis(300));
    let with = asked_in(address, ours);
    assert!(with <= Duration::from_secs(2), "{with:?}");
}
