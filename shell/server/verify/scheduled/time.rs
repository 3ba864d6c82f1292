//! When the time limit of a wait has passed, the clock thread notifies the waiting client (G3, K2). It ticks and sweeps at
//! their intervals (K1).

use std::sync::Arc;
use std::time::Duration;

use latchd_protocol::wait::Outcome;
use shuttle::future::block_on;
use shuttle::sync::mpsc::channel;
use shuttle::thread;

use super::{Answer, Client, Seen, in_many_orders, server};
use crate::clients::mailbox::Message;
use crate::sync::atomic::Ordering;
use crate::sync::channel::bounded;
use crate::sync::stand_in::{begin_time, is_anybody_asleep, let_time_pass};
use crate::time_keeper::{TICK, keep_time};

/// After the deadline, and before the first tick: only a thread that knows the deadline ends the wait.
const LATER_MS: u64 = 150;

/// Two clients wait for a lock that a third holds, and the second has the shorter limit. Meanwhile the clock
/// thread starts and falls asleep.
fn gives_up(seen: &Arc<Seen>) {
    let (shared, [name, _]) = server(2, |_| ());
    let (stop, stopped) = bounded(1);
    let mut one = Client::new(&shared, 1, 0);
    assert_eq!(one.lock(&name), Answer::Granted);
    let clock = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || block_on(keep_time(&shared, &stopped)))
    };
    let (tell_asked, asked) = channel();
    let waiters = [(2, 0, 100), (3, 1, 50)].map(|(number, worker, ms)| {
        let mut client = Client::new(&shared, number, worker);
        let (name, tell_asked) = (name.clone(), tell_asked.clone());
        thread::spawn(move || {
            assert_eq!(client.wait(&name, ms), Answer::Waits);
            tell_asked.send(()).unwrap();
            assert_eq!(client.hear(), Outcome::TimedOut);
            let mut client = client.at(LATER_MS);
            assert_eq!(client.lock(&name), Answer::Contended);
            client
        })
    });
    for _ in &waiters {
        seen.note(if is_anybody_asleep() {
            "the clock sleeps already"
        } else {
            "the clock has not looked yet"
        });
        asked.recv().unwrap();
    }
    let_time_pass(Duration::from_millis(LATER_MS));
    let waiters = waiters.map(|waiter| waiter.join().unwrap());
    for waiter in waiters {
        assert_eq!(waiter.outcomes(), [], "it is notified once");
        waiter.close();
    }
    let ticked_ms = shared.ticked_ms.load(Ordering::Relaxed);
    assert_eq!(ticked_ms, 0, "a deadline is no tick");
    drop(stop);
    clock.join().unwrap();
}

#[test]
fn wait_ends_before_the_next_tick() {
    in_many_orders(
        &["the clock sleeps already", "the clock has not looked yet"],
        gives_up,
    );
}

/// The workers sweep once a second, if anything may be due for that: idle clients, or sockets of closed ones.
fn sweeps(_: &Arc<Seen>) {
    for (idle_s, lingering, sweeps) in [(None, 0, false), (Some(60), 0, true), (None, 1, true)] {
        begin_time();
        let (shared, _) = server(1, |config| {
            config.idle_timeout = idle_s.map(Duration::from_secs);
        });
        shared.lingering.store(lingering, Ordering::Relaxed);
        let (stop, stopped) = bounded(1);
        let clock = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || block_on(keep_time(&shared, &stopped)))
        };
        for ticks in 1..=7 {
            while !is_anybody_asleep() {
                thread::yield_now();
            }
            let messages = shared.mailbox(0).take();
            let is_sweep = matches!(messages[..], [Message::Sweep]);
            assert!(is_sweep || messages.is_empty());
            assert_eq!(is_sweep, sweeps && ticks == 6, "{ticks}");
            let_time_pass(ticks * TICK);
        }
        drop(stop);
        clock.join().unwrap();
    }
}

#[test]
fn workers_sweep_once_a_second() {
    in_many_orders(&[], sweeps);
}

/// Without a command the clock ticks every two seconds, and at its usual interval while something has a deadline.
fn idles(_: &Arc<Seen>) {
    for (waits, ticks_ms) in [
        (
            false,
            [(200, 200), (400, 200), (2_199, 200), (2_200, 2_200)],
        ),
        (true, [(200, 200), (400, 400), (600, 600), (800, 800)]),
    ] {
        begin_time();
        let (shared, [name, _]) = server(1, |_| ());
        let mut clients = [1, 2].map(|number| Client::new(&shared, number, 0));
        if waits {
            assert_eq!(clients[0].lock(&name), Answer::Granted);
            assert_eq!(clients[1].wait(&name, 60_000), Answer::Waits);
        }
        let (stop, stopped) = bounded(1);
        let clock = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || block_on(keep_time(&shared, &stopped)))
        };
        let sleeps = || {
            while !is_anybody_asleep() {
                thread::yield_now();
            }
        };
        for (at_ms, ticked_ms) in ticks_ms {
            sleeps();
            let_time_pass(Duration::from_millis(at_ms));
            sleeps();
            assert_eq!(
                shared.ticked_ms.load(Ordering::Relaxed),
                ticked_ms,
                "{at_ms}"
            );
        }
        drop(stop);
        clock.join().unwrap();
        clients.into_iter().rev().for_each(Client::close);
    }
}

#[test]
fn idle_clock_ticks_seldom() {
    in_many_orders(&[], idles);
}
