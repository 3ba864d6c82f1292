//! Bound wins and gets that wait, on real sockets: the order and the time of notices, and that
//! every waiter is served.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::address;
use crate::client::waiting::{Client, LONG, servers};

/// A client that has the win of `key`, bound to it.
fn winner(address: SocketAddr, key: &str) -> Client {
    let mut winner = Client::connect(address);
    assert_eq!(winner.ask(&format!("mg {key} N60 B")), "HD W");
    winner
}

/// Returns when `stats` shows this.
fn await_stat(address: SocketAddr, name: &str, count: usize) {
    let mut observer = Client::connect(address);
    let began = Instant::now();
    while observer.stat(name) != count.to_string() {
        assert!(began.elapsed() < Duration::from_secs(20), "{name} {count}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The answer to a get with `v`: its line, and its value if there is one.
fn value(client: &mut Client) -> String {
    let line = client.line();
    if line.starts_with("VA") {
        format!("{line} {}", client.line())
    } else {
        line
    }
}

#[test]
fn one_store_answers_a_thousand_waiters() {
    const WAITERS: usize = 1_000;
    for server in servers() {
        let address = address(&server);
        let mut winner = winner(address, "k");
        let mut waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let mut waiter = Client::connect(address);
                waiter.send(format!("mn\r\nmg k N60 B v {LONG}\r\nmn\r\n"));
                assert_eq!(waiter.line(), "MN");
                waiter
            })
            .collect();
        await_stat(address, "get_waiting", WAITERS);
        winner.send("ms k 1\r\nx\r\n");
        assert_eq!(winner.line(), "HD");
        for waiter in &mut waiters {
            assert_eq!(value(waiter), "VA 1 x");
            assert_eq!(waiter.line(), "MN");
        }
        assert_eq!(winner.stat("get_waiting"), "0");
        assert_eq!(winner.stat("wins_bound"), "0");
    }
}

/// Winners die one after the other, and so do many waiters: each time, one of the remaining waiters
/// gets the win, until one of them stores.
#[test]
fn every_remaining_win_waiter_is_served() {
    const WAITERS: usize = 200;
    for server in servers() {
        let address = address(&server);
        let winner = winner(address, "k");
        let waiters: Vec<_> = (0..WAITERS)
            .map(|index| {
                let mut waiter = Client::connect(address);
                // A quarter waits for less than the test takes.
                let wait = if index % 4 == 0 { "w30" } else { LONG };
                waiter.send(format!("mg k N60 B v {wait}\r\n"));
                (index, waiter)
            })
            .collect();
        await_stat(address, "get_waits", WAITERS);
        let (dying, living): (Vec<_>, Vec<_>) =
            waiters.into_iter().partition(|(index, _)| index % 4 == 1);
        let killer = thread::spawn(move || {
            drop(winner);
            drop(dying);
        });
        let threads: Vec<_> = living
            .into_iter()
            .map(|(index, mut waiter)| {
                thread::spawn(move || match value(&mut waiter).as_str() {
                    // The last stores; the others die with the win.
                    "VA 0 W " if index == WAITERS - 1 => {
                        waiter.send("ms k 1\r\nx\r\n");
                        assert_eq!(waiter.line(), "HD");
                        "stored"
                    }
                    "VA 0 W " => "won",
                    "VA 0 Z " if index % 4 == 0 => "gave up",
                    "VA 1 x" => "found",
                    other => panic!("{index}: {other}"),
                })
            })
            .collect();
        killer.join().unwrap();
        let ends: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(ends.iter().filter(|end| **end == "stored").count(), 1);
        let kinds: BTreeSet<_> = ends.into_iter().collect();
        assert!(kinds.contains("won"), "{kinds:?}");
        let mut observer = Client::connect(address);
        assert_eq!(observer.stat("get_waiting"), "0");
        await_stat(address, "wins_bound", 0);
        assert_eq!(observer.ask("mg k N60 B"), "HD");
    }
}

#[test]
fn waits_and_items_end_on_time_while_idle() {
    for server in servers() {
        let address = address(&server);
        let mut winner = winner(address, "k");
        let mut waiter = Client::connect(address);
        let began = Instant::now();
        assert_eq!(waiter.ask("mg k N60 w50 Oab"), "HD Oab Z");
        assert!(began.elapsed() >= Duration::from_millis(50), "too early");
        // The item goes, and is made anew.
        assert_eq!(winner.ask("mg k T1"), "HD Z");
        assert_eq!(
            waiter
                .ask(&format!("mg k N60 {LONG} c t"))
                .rsplit(' ')
                .next(),
            Some("W")
        );
        drop(winner);
        assert_eq!(waiter.ask("mg k"), "HD Z");
    }
}
