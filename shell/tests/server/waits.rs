//! Waiting for a lock on real sockets: that every waiter is served, and at its time.

use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::waiting::{Client, ENDS, End, LONG, reset, servers};
use crate::client::{address, start};

/// A client that holds the lock of `key`.
fn holder(address: SocketAddr, key: &str) -> Client {
    let mut holder = Client::connect(address);
    assert_eq!(holder.ask(&format!("ml {key}")), "HD");
    holder
}

/// A client that waits for `key` behind `before` others.
fn waiter(address: SocketAddr, key: &str, before: usize) -> Client {
    let mut waiter = Client::connect(address);
    waiter.send(format!("ml {key} {LONG}\r\n"));
    await_waiting(address, key, before + 1);
    waiter
}

/// Returns when `count` clients wait for `key`.
fn await_waiting(address: SocketAddr, key: &str, count: usize) {
    let mut observer = Client::connect(address);
    let wanted = format!(",waiting={count},");
    let began = Instant::now();
    loop {
        observer.send("stats locks\r\n");
        let mut is_there = false;
        loop {
            let line = observer.line();
            if line == "END" {
                break;
            }
            is_there |= line.starts_with(&format!("STAT {key} ")) && line.contains(&wanted);
        }
        if is_there {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{count} for {key}"
        );
    }
}

/// Whether a client has received nothing by now. It had time: others were answered since.
fn is_silent(client: &mut Client) -> bool {
    let socket = client.socket();
    socket.set_nonblocking(true).unwrap();
    let silent = matches!(socket.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    silent
}

#[test]
fn the_first_waiter_gets_a_dead_holders_lock() {
    const BY_REQUEST: [(&str, End); 2] = [
        ("unlock_all", |mut holder| {
            assert_eq!(holder.ask("unlock_all"), "OK");
            std::mem::forget(holder);
        }),
        ("replace and unlock", |mut holder| {
            holder.send("ms k 1 U\r\nx\r\n");
            assert_eq!(holder.line(), "HD");
            std::mem::forget(holder);
        }),
    ];
    for server in servers() {
        let address = address(&server);
        for (name, end) in ENDS.into_iter().chain(BY_REQUEST) {
            let holder = holder(address, "k");
            let mut waiter = waiter(address, "k", 0);
            end(holder);
            assert_eq!(waiter.line(), "HD", "{name}");
            assert_eq!(waiter.ask("mu k"), "HD", "{name}");
        }
    }
}

#[test]
fn a_dead_waiter_is_dropped() {
    for server in servers() {
        let address = address(&server);
        let mut holder = holder(address, "k");
        let mut waiters: Vec<_> = (0..6).map(|before| waiter(address, "k", before)).collect();
        let last = waiters.pop().unwrap();
        // The first closes, the second closes its side, the third is reset; the others close at once.
        drop(waiters.remove(0));
        waiters[0].socket().shutdown(Shutdown::Write).unwrap();
        reset(waiters.remove(1));
        await_waiting(address, "k", 3);
        drop(waiters);
        assert_eq!(holder.ask("mu k"), "HD");
        let mut last = last;
        assert_eq!(last.line(), "HD");
        assert_eq!(last.ask("mu k"), "HD");
    }
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    for server in servers() {
        let address = address(&server);
        let mut holder = holder(address, "k");
        let mut waiter = Client::connect(address);
        let began = Instant::now();
        assert_eq!(waiter.ask("ml k w50 Oab"), "LK h2 a0 n0 Oab");
        assert!(began.elapsed() >= Duration::from_millis(50), "too early");
        assert_eq!(waiter.ask("ml k w0"), "LK h2 a0 n0");
        assert_eq!(holder.ask("mu k"), "HD");
        assert_eq!(waiter.ask("ml k w50"), "HD");
    }
}

#[test]
fn an_expired_lease_is_handed_over_while_idle() {
    for server in servers() {
        let address = address(&server);
        let mut holder = Client::connect(address);
        let began = Instant::now();
        assert_eq!(holder.ask("ml k T0.1"), "HD");
        let mut waiter = Client::connect(address);
        assert_eq!(waiter.ask(&format!("ml k {LONG} T0.1")), "HD");
        assert!(began.elapsed() >= Duration::from_millis(100), "too early");
        assert_eq!(holder.ask(&format!("ml k {LONG}")), "HD");
        assert!(began.elapsed() >= Duration::from_millis(200), "too early");
        assert_eq!(waiter.ask("mu k"), "NF");
    }
}

#[test]
fn answers_keep_their_order_around_one_that_waits() {
    for server in servers() {
        let address = address(&server);
        let mut holder = holder(address, "k");
        let mut waiter = Client::connect(address);
        waiter.send(format!(
            "set a 0 0 1\r\n1\r\nml k {LONG} F k Oab\r\nget a\r\nmu k q\r\nmn\r\n"
        ));
        assert_eq!(waiter.line(), "STORED");
        await_waiting(address, "k", 1);
        assert!(is_silent(&mut waiter));
        // Requests that come meanwhile wait as well.
        waiter.send("version\r\n");
        assert_eq!(holder.ask("mu k"), "HD");
        let granted = waiter.line();
        assert!(
            granted.starts_with("HD F") && granted.ends_with(" kk Oab"),
            "{granted}"
        );
        let rest = ["VALUE a 0 1", "1", "END", "MN"];
        assert!(rest.into_iter().all(|line| waiter.line() == line));
        assert!(waiter.line().starts_with("VERSION "));
    }
}

#[test]
fn a_circle_is_refused_wherever_its_keys_are() {
    for server in servers() {
        let address = address(&server);
        for round in 0..8 {
            // Each holds one key, and all but the last wait for the next one's.
            let key = |index: usize| format!("k{round}-{}", index % 5);
            let mut clients: Vec<_> = (0..5).map(|index| holder(address, &key(index))).collect();
            for (index, client) in clients.iter_mut().take(4).enumerate() {
                client.send(format!("ml {} {LONG}\r\n", key(index + 1)));
                await_waiting(address, &key(index + 1), 1);
            }
            let last = clients.last_mut().unwrap();
            let refused = last.ask(&format!("ml {} {LONG}", key(5)));
            assert!(
                refused.starts_with("LK h") && refused.ends_with(" d"),
                "{refused}"
            );
            // A waiter that gives way lets all the others go on.
            assert_eq!(last.ask("unlock_all"), "OK");
            for client in clients.iter_mut().take(4).rev() {
                assert_eq!(client.line(), "HD");
                assert_eq!(client.ask("unlock_all"), "OK");
            }
        }
    }
}

#[test]
fn silence_while_waiting_is_not_idleness() {
    let server = start(|config| config.idle_timeout = Some(Duration::from_secs(1)));
    let address = address(&server);
    let mut holder = holder(address, "k");
    let mut waiter = waiter(address, "k", 0);
    for _ in 0..35 {
        thread::sleep(Duration::from_millis(100));
        assert_eq!(holder.ask("mn"), "MN");
    }
    assert_eq!(holder.ask("mu k"), "HD");
    assert_eq!(waiter.line(), "HD");
}

#[test]
fn shutdown_ends_all_waits() {
    for server in servers() {
        let address = address(&server);
        let _holder = holder(address, "k");
        let mut waiters: Vec<_> = (0..5).map(|before| waiter(address, "k", before)).collect();
        server.shutdown();
        for waiter in &mut waiters {
            // A waiter gets the lock of the one before for a moment, or nothing.
            let rest = waiter.rest();
            assert!(matches!(&rest[..], b"" | b"HD\r\n"), "{rest:?}");
        }
    }
}

#[test]
fn every_remaining_lock_waiter_is_served() {
    const WAITERS: usize = 300;
    for server in servers() {
        let address = address(&server);
        let mut holder = holder(address, "k");
        let mut waiters: Vec<_> = (0..WAITERS)
            .map(|index| {
                let mut waiter = Client::connect(address);
                // A third waits for less than the test takes.
                let wait = if index % 3 == 0 { "w20" } else { LONG };
                waiter.send(format!("ml k {wait}\r\n"));
                waiter
            })
            .collect();
        assert!(waiters[0].line().starts_with("LK h2 a0 n"));
        // Another third dies, some of them at the moment of the grant.
        let mut rest = Vec::new();
        let mut dying = Vec::new();
        for (index, waiter) in waiters.into_iter().enumerate() {
            match index % 3 {
                0 if index == 0 => {}
                0 => rest.push((waiter, true)),
                1 => dying.push(waiter),
                _ => rest.push((waiter, false)),
            }
        }
        assert_eq!(holder.ask("mu k"), "HD");
        let killer = thread::spawn(move || drop(dying));
        // The order is not known, since dying clients get it, too: each is served or gets a notice.
        let served = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = rest
            .into_iter()
            .map(|(mut waiter, may_give_up)| {
                let served = Arc::clone(&served);
                thread::spawn(move || match waiter.line().as_str() {
                    "HD" => {
                        served.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(waiter.ask("mu k"), "HD");
                    }
                    line => assert!(may_give_up && line.starts_with("LK h"), "{line}"),
                })
            })
            .collect();
        killer.join().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(served.load(Ordering::Relaxed) >= WAITERS / 3);
        assert_eq!(holder.ask("ml k"), "HD");
        assert_eq!(holder.stat("lock_waiting"), "0");
    }
}
