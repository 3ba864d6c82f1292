//! Locks and wins in sessions, over networks that break: on a latchd, which alone has sessions.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use latchd_client::{Client, ComputeOptions, Exptime, Lock, LockOptions, Loss, Retry};

use crate::support::{DUE, Proxy, Started, eventually};
use smol::{block_on, future};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn in_session(ttl: Duration) -> LockOptions {
    LockOptions::new().survive(ttl)
}

/// Pauses far longer than the test: a waiter must not be served by its own retries.
fn patient() -> LockOptions {
    LockOptions::new()
        .retry(Retry::linear(secs(3600)))
        .deadline(DUE)
}

fn connect(address: &str) -> Client {
    block_on(Client::connect(address)).unwrap()
}

fn is_free(client: &Client) -> bool {
    match block_on(client.try_lock("k", &LockOptions::new())) {
        Ok(lock) => block_on(lock.release()).is_ok(),
        Err(error) => {
            assert!(error.is_not_obtained(), "{error}");
            false
        }
    }
}

/// Returns when a client waits for `k`.
fn await_waiting(address: &str) {
    eventually(|| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(b"stats locks\r\n").unwrap();
        let lines = BufReader::new(socket).lines().map(Result::unwrap);
        let found = lines
            .take_while(|line| line != "END")
            .any(|line| line.contains(",waiting=1,"));
        found.then_some(())
    });
}

/// A proxy that records its clients' bytes, among them a token. Its threads end with the process.
struct Tap {
    address: String,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn start(server: String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&server).unwrap();
                let (mut down, mut to_client) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut down, &mut to_client);
                    let _ = to_client.shutdown(std::net::Shutdown::Both);
                });
                let (mut up, mut to_server, heard) = (client, server, Arc::clone(&heard));
                thread::spawn(move || {
                    let mut chunk = [0; 4096];
                    while let Ok(length @ 1..) = up.read(&mut chunk) {
                        heard.lock().unwrap().extend_from_slice(&chunk[..length]);
                        if to_server.write_all(&chunk[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = to_server.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Self { address, said }
    }

    fn said(&self) -> String {
        String::from_utf8(self.said.lock().unwrap().clone()).unwrap()
    }
}

/// A connection of another program.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn connect(server: &Started) -> Self {
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(DUE)).unwrap();
        Self(BufReader::new(socket))
    }

    fn ask(&mut self, request: &str) -> String {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().into()
    }
}

#[test]
fn a_lock_in_a_session_survives_breaks() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    let (client, other) = (connect(&proxy.address()), connect(&server.address()));
    let lock = block_on(client.lock("k", &in_session(secs(3)))).unwrap();
    let number = lock.fence().unwrap();
    // A close, and a NAT that forgets: the client notices that at its next sign of life.
    for harm in [Proxy::cut, Proxy::cut_behind, Proxy::cut] {
        harm(&proxy);
        assert!(lock.is_held(), "the session lives");
        proxy.speak();
        block_on(lock.check()).unwrap();
        assert!(!is_free(&other));
        block_on(lock.set("value", Exptime::Never)).unwrap();
        assert_eq!(block_on(lock.get()).unwrap().unwrap(), b"value");
    }
    assert_eq!((lock.is_held(), lock.fence()), (true, Some(number)));
    // A connection that breaks before the release does not break that.
    proxy.cut();
    block_on(lock.release()).unwrap();
    assert!(is_free(&other));
    // A lock that is dropped is free without a delay.
    let lock = block_on(client.lock("k", &in_session(secs(3600)))).unwrap();
    assert!(lock.fence().unwrap() > number);
    drop(lock);
    eventually(|| is_free(&other).then_some(()));
}

#[test]
fn a_wait_in_a_session_survives_a_break() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    let (client, other) = (connect(&proxy.address()), connect(&server.address()));
    let held = block_on(other.lock("k", &patient())).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let lock = block_on(client.lock("k", &patient().survive(secs(3)))).unwrap();
            block_on(lock.release()).unwrap();
        });
        await_waiting(&server.address());
        proxy.cut();
        // It queues again over the next connection.
        await_waiting(&server.address());
        block_on(held.release()).unwrap();
        waiter.join().unwrap();
    });
    // A wait that is given up leaves the queue.
    let held = block_on(other.lock("k", &patient())).unwrap();
    let options = patient().survive(secs(3600));
    let wait = client.lock("k", &options);
    let is_queued = smol::unblock({
        let address = server.address();
        move || await_waiting(&address)
    });
    let given_up = block_on(future::or(async { Some(wait.await) }, async {
        is_queued.await;
        None
    }));
    assert!(given_up.is_none(), "it waits");
    block_on(held.release()).unwrap();
    eventually(|| is_free(&other).then_some(()));
}

#[test]
fn another_client_with_the_token_takes_over() {
    let server = Started::latchd();
    let tap = Tap::start(server.address());
    let client = connect(&tap.address);
    let lock = block_on(client.lock("k", &in_session(secs(30)))).unwrap();
    let said = tap.said();
    // The first one asks what the server is.
    let (_, token) = said.rsplit_once("mo ").unwrap();
    let (token, _) = token.split_once(' ').unwrap();
    assert_eq!(
        token.len(),
        40,
        "128 random bits, and the number of the session"
    );
    let mut thief = Raw::connect(&server);
    assert!(thief.ask(&format!("mo {token} T30\r\n")).ends_with(" R"));
    let fence = format!("HD F{}", lock.fence().unwrap().number());
    // The client takes the session back, and the lock was never free.
    let shown = thief.ask("ml k F\r\n");
    assert!(shown == fence || shown.is_empty(), "{shown}");
    block_on(lock.check()).unwrap();
    assert_eq!(thief.ask(""), "", "it is closed");
    assert!(lock.is_held());
    // If the other client ends the session, everything is lost.
    let mut thief = Raw::connect(&server);
    assert_eq!(thief.ask(&format!("mo {token} T0\r\n")), "HD");
    assert_eq!(block_on(lock.lost()), Some(Loss::Taken));
    assert!(!lock.is_held());
    let error = block_on(lock.release()).unwrap_err();
    assert!(error.is_not_held(), "{error}");
}

#[test]
fn a_session_that_has_ended_is_lost() {
    // The server has restarted, and knows no session.
    let server = Started::latchd();
    let client = connect(&server.address());
    let lock = block_on(client.lock("k", &in_session(secs(30)))).unwrap();
    let restart = server.successor();
    drop(server);
    let server = restart();
    assert_eq!(block_on(lock.lost()), Some(Loss::Taken));
    // The server cannot be reached for longer than the time: the holder knows before the next one gets the lock.
    let proxy = Proxy::start(server.address());
    let (client, other) = (connect(&proxy.address()), connect(&server.address()));
    let lock = block_on(client.lock("k", &in_session(secs(1)))).unwrap();
    let number = lock.fence().unwrap();
    proxy.silence();
    let next = block_on(other.lock("k", &patient())).unwrap();
    assert!(!lock.is_held(), "S4: it believes longer than the server");
    assert!(next.fence().unwrap() > number);
    assert_eq!(block_on(lock.lost()), Some(Loss::Expired));
    proxy.speak();
    let error = block_on(lock.release()).unwrap_err();
    assert!(error.is_not_held(), "{error}");
    block_on(next.release()).unwrap();
}

#[test]
fn a_win_in_a_session_survives_a_break() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    let (client, other) = (connect(&proxy.address()), connect(&server.address()));
    let options = ComputeOptions::new(secs(60)).session(secs(3)).deadline(DUE);
    let computed = AtomicU32::new(0);
    let read = |client: &Client, harm: &dyn Fn()| {
        let value = block_on(client.compute("k", &options, async |_| {
            computed.fetch_add(1, Ordering::SeqCst);
            harm();
            Ok::<_, Infallible>(b"value".to_vec())
        }));
        value.unwrap()
    };
    let waits = || {
        eventually(|| {
            let answer = server.ask("stats\r\n", "END\r\n");
            answer.contains("STAT get_waiting 1\r\n").then_some(())
        });
    };
    thread::scope(|scope| {
        let value = read(&client, &|| {
            proxy.cut();
            scope.spawn(|| {
                let value = read(&other, &|| {});
                assert_eq!((&*value.bytes, value.computed), (&b"value"[..], false));
            });
            waits();
        });
        assert!(value.computed && value.stored);
    });
    assert_eq!(computed.load(Ordering::SeqCst), 1);
    // The session stays with its connection: this is a hit.
    assert!(!read(&client, &|| {}).computed);
}

/// A running `latchd lock` with these options, whose command has said that it runs.
struct Program(Child);

impl Program {
    fn start(address: &str, options: &[&str], script: &str) -> Self {
        let script = format!("echo held; {script}");
        let mut child = Command::new(env!("CARGO_BIN_EXE_latchd"))
            .args(["lock", "--server", address])
            .args(options)
            .args(["k", "--", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        let stdout = child.stdout.as_mut().unwrap();
        stdout.read_exact(&mut said).unwrap();
        Self(child)
    }

    fn end(self) -> (Option<i32>, String) {
        let output = self.0.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    }
}

/// Seconds for which the network is cut under `latchd lock --session 30`; 20 by hand.
fn cut_for() -> Duration {
    let asked = std::env::var("LATCHD_CUT_SECS").ok();
    secs(asked.map_or(1, |asked| asked.parse().unwrap()))
}

#[test]
fn latchd_lock_keeps_a_session_through_a_cut() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    let other = connect(&server.address());
    let mut program = Program::start(&proxy.address(), &["--session", "30"], "read line; exit 7");
    // The connections are closed, and new ones get no answer for a while.
    proxy.silence();
    proxy.cut();
    let begun = Instant::now();
    while begun.elapsed() < cut_for() {
        assert!(!is_free(&other));
        assert!(program.0.try_wait().unwrap().is_none(), "the command runs");
        thread::sleep(Duration::from_millis(50));
    }
    proxy.speak();
    assert!(!is_free(&other));
    program.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    let (code, said) = program.end();
    assert_eq!((code, &*said), (Some(7), ""));
    assert!(is_free(&other));
    // A cut that is longer than the time: the command ends before another client gets the lock.
    let program = Program::start(&proxy.address(), &["--session", "1"], "exec sleep 100");
    proxy.silence();
    let (code, said) = program.end();
    assert_eq!(code, Some(125));
    assert!(said.contains("lost the lock of k"), "{said}");
    proxy.speak();
    // If the server has ended the session, too.
    let program = Program::start(&server.address(), &["--session", "30"], "exec sleep 100");
    let restart = server.successor();
    drop(server);
    let _server = restart();
    let (code, said) = program.end();
    assert_eq!(code, Some(125));
    assert!(said.contains("lost the lock of k"), "{said}");
}

#[test]
fn options_that_exclude_a_session_are_refused() {
    for options in [
        &["--session", "5", "--ttl", "5"][..],
        &["--session", "5", "--inherit"],
        &["--session", "0"],
        &["--session", "3601"],
        &["--session", "1.5"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_latchd"))
            .arg("lock")
            .args(options)
            .args(["k", "--", "true"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("--session"), "{said}");
    }
}

#[test]
fn locks_of_one_client_share_a_session() {
    let server = Started::latchd();
    let tap = Tap::start(server.address());
    let client = connect(&tap.address);
    let options = in_session(secs(5));
    let locks: Vec<Lock> = (0..3)
        .map(|key| block_on(client.lock(format!("k{key}"), &options)).unwrap())
        .collect();
    assert_eq!(tap.said().matches(" T5\r\n").count(), 1, "{}", tap.said());
    // A second lock of a key is another task's.
    let again = block_on(client.try_lock("k0", &options)).unwrap_err();
    assert!(again.is_not_obtained(), "{again}");
    for lock in locks {
        block_on(lock.release()).unwrap();
    }
}
