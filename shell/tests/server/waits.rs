//! Waiting for a lock on real sockets: that every waiter is served, and at its time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::waiting::{Client, LONG, servers};
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
