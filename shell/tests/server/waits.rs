//! Waiting for a lock on real sockets: the order and the time of grants, and that every waiter is
//! served.
//!
//! `cargo test --release -p latchd --test server waits:: -- --ignored --nocapture` measures how fair it is and how long
//! a hand-over takes; no test asserts a time.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
fn locks_are_handed_over_in_order() {
    for server in servers() {
        let address = address(&server);
        let mut holder = holder(address, "k");
        let mut waiters: Vec<_> = (0..20).map(|before| waiter(address, "k", before)).collect();
        assert_eq!(Client::connect(address).ask("ml k"), "LK h2 a0 n20");
        assert_eq!(holder.ask("mu k"), "HD");
        for index in 0..waiters.len() {
            assert_eq!(waiters[index].line(), "HD");
            for later in &mut waiters[index + 1..] {
                assert!(is_silent(later), "two have it");
            }
            assert_eq!(waiters[index].ask("mu k"), "HD");
        }
        assert_eq!(holder.ask("ml k"), "HD");
    }
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
fn a_client_that_does_not_read_can_wait() {
    for server in servers() {
        let address = address(&server);
        let mut holder = holder(address, "k");
        let value = "v".repeat(1_000_000);
        holder.send(format!("set big 0 0 1000000\r\n{value}\r\n"));
        assert_eq!(holder.line(), "STORED");
        let mut waiter = Client::connect(address);
        // More than sockets take, then the wait, which begins when all that has been taken.
        waiter.send(format!("{}ml k {LONG}\r\nmn\r\n", "get big\r\n".repeat(8)));
        let read = |waiter: &mut Client| {
            assert_eq!(waiter.line(), "VALUE big 0 1000000");
            assert_eq!(waiter.bytes(1_000_002).len(), 1_000_002);
            assert_eq!(waiter.line(), "END");
        };
        (0..8).for_each(|_| read(&mut waiter));
        await_waiting(address, "k", 1);
        assert_eq!(holder.ask("mu k"), "HD");
        assert_eq!(waiter.line(), "HD");
        assert_eq!(waiter.line(), "MN");
    }
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

/// The percentiles of the measured spans.
fn percentiles(mut spans: Vec<Duration>) -> String {
    spans.sort();
    let at = |per_mille: usize| spans[(spans.len() - 1) * per_mille / 1000];
    let (p50, p99, p999, most) = (at(500), at(990), at(999), at(1000));
    format!("p50 {p50:.1?} p99 {p99:.1?} p99.9 {p999:.1?} most {most:.1?}")
}

/// Contenders for one key hold it for 5 ms each, for 20 s: how often each had it, and how long it
/// was free.
#[test]
#[ignore = "measures, and takes 20 s"]
fn fairness_and_hand_over() {
    const CONTENDERS: usize = 200;
    const HOLDS: Duration = Duration::from_millis(5);
    for server in servers() {
        let address = address(&server);
        let ends = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let threads: Vec<_> = (0..CONTENDERS)
            .map(|_| {
                let ends = Arc::clone(&ends);
                thread::spawn(move || {
                    let mut client = Client::connect(address);
                    let mut held = Vec::new();
                    while !ends.load(Ordering::Relaxed) {
                        assert_eq!(client.ask(&format!("ml k {LONG}")), "HD");
                        let from = began.elapsed();
                        thread::sleep(HOLDS);
                        let until = began.elapsed();
                        assert_eq!(client.ask("mu k"), "HD");
                        held.push((from, until));
                    }
                    held
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(20));
        ends.store(true, Ordering::Relaxed);
        let held: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        let counts = held.iter().map(Vec::len);
        let (least, most) = (counts.clone().min().unwrap(), counts.max().unwrap());
        let mut all: Vec<_> = held.into_iter().flatten().collect();
        all.sort();
        let gaps = all.windows(2).map(|pair| {
            let gap = pair[1].0.checked_sub(pair[0].1);
            gap.expect("two had it at once")
        });
        println!(
            "{CONTENDERS} contenders, {HOLDS:?}: {} grants, each {least} to {most}; hand-over {}",
            all.len(),
            percentiles(gaps.collect())
        );
    }
}

/// Many clients wait for one key, and each releases it at once: how long it takes from one to the
/// next. With one thread, where requests come in the order in which they are sent.
#[test]
#[ignore = "measures"]
fn hand_over_with_many_waiting() {
    const ROUNDS: usize = 20_000;
    let server = start(|config| config.threads = NonZeroUsize::MIN);
    let address = address(&server);
    for waiting in [1, 100, 800] {
        let mut clients: Vec<_> = (0..=waiting).map(|_| Client::connect(address)).collect();
        for (before, client) in clients.iter_mut().enumerate() {
            client.send(format!("ml k {LONG}\r\n"));
            await_waiting(address, "k", before);
        }
        let took = (0..ROUNDS).map(|round| {
            let count = clients.len();
            let client = &mut clients[round % count];
            if round == 0 {
                assert_eq!(client.line(), "HD");
            }
            let began = Instant::now();
            client.socket().write_all(b"mu k\r\n").unwrap();
            let mut answer = [0; 4];
            let next = clients[(round + 1) % count].socket();
            next.read_exact(&mut answer).unwrap();
            let took = began.elapsed();
            assert_eq!(&answer, b"HD\r\n");
            let client = &mut clients[round % count];
            assert_eq!(client.line(), "HD");
            client.send(format!("ml k {LONG}\r\n"));
            took
        });
        println!(
            "{waiting} waiting: hand-over {}",
            percentiles(took.collect())
        );
    }
}

#[test]
fn sharers_delay_only_exclusive_requests() {
    for server in servers() {
        let address = address(&server);
        let one_who_shares = |key: &str| {
            let mut sharer = Client::connect(address);
            assert_eq!(sharer.ask(&format!("ml {key} S")), "HD");
            sharer
        };
        let mut sharers: Vec<_> = (0..20).map(|_| one_who_shares("k")).collect();
        let mut alone = waiter(address, "k", 0);
        let mut behind: Vec<_> = (1..6)
            .map(|before| {
                let mut waiter = Client::connect(address);
                waiter.send(format!("ml k S3 {LONG}\r\n"));
                await_waiting(address, "k", before + 1);
                waiter
            })
            .collect();
        while let Some(sharer) = sharers.pop() {
            assert!(is_silent(&mut alone), "it is shared, and had alone");
            drop(sharer);
        }
        assert_eq!(alone.line(), "HD");
        for waiter in &mut behind {
            assert!(is_silent(waiter), "two have it");
        }
        drop(alone);
        // Three together, and one more for each of them that goes.
        for waiter in &mut behind[..3] {
            assert_eq!(waiter.line(), "HD");
        }
        assert!(is_silent(&mut behind[3]) && is_silent(&mut behind[4]));
        assert_eq!(behind[1].ask("mu k"), "HD");
        assert_eq!(behind[3].line(), "HD");
        assert!(is_silent(&mut behind[4]), "four share a lock for three");
    }
}

#[test]
fn a_deadlock_through_a_sharer_is_found() {
    for server in servers() {
        let address = address(&server);
        // Whichever shards the keys are in.
        for number in 0..8 {
            let (one, two) = (format!("one{number}"), format!("two{number}"));
            let mut clients: Vec<_> = (0..3).map(|_| Client::connect(address)).collect();
            assert_eq!(clients[0].ask(&format!("ml {one} S")), "HD");
            assert_eq!(clients[1].ask(&format!("ml {one} S")), "HD");
            assert_eq!(clients[2].ask(&format!("ml {two}")), "HD");
            clients[1].send(format!("ml {two} {LONG}\r\n"));
            await_waiting(address, &two, 1);
            let refused = clients[2].ask(&format!("ml {one} {LONG}"));
            assert!(
                refused.starts_with("LK ") && refused.ends_with(" d"),
                "{refused}"
            );
            // As one of two it needs only the end of the first of the others.
            clients[2].send(format!("ml {one} S2 {LONG}\r\n"));
            await_waiting(address, &one, 1);
            assert_eq!(clients[0].ask(&format!("mu {one}")), "HD");
            assert_eq!(clients[2].line(), "HD");
            assert_eq!(clients[2].ask(&format!("mu {two}")), "HD");
            assert_eq!(clients[1].line(), "HD");
        }
    }
}
