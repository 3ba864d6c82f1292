//! Connections of locks: a later lock uses them again.

use std::time::Duration;

use latchd_client::{Client, ClientOptions, LockOptions};
use smol::{block_on, future};

use crate::support::{Proxy, Started, eventually};

/// The connections that a client keeps at most for waits, without a use.
const IDLE_MAX: u64 = 8;

/// Waits until the server has so many connections besides the one that asks. It may count a closed one for a moment.
fn await_connections(server: &Started, count: u64) {
    eventually(|| {
        let stats = server.ask("stats\r\n", "END\r\n");
        let name = "STAT curr_connections ";
        let line = stats.lines().find_map(|line| line.strip_prefix(name));
        let counted: u64 = line.unwrap().parse().unwrap();
        (counted == count + 1).then_some(())
    });
}

/// Those that a client has anyway: for cache calls, and for the locks that are free.
const ALWAYS: u64 = 2;

#[test]
fn unused_connections_are_kept_up_to_a_bound() {
    let server = Started::latchd();
    let options = LockOptions::new().survive(Duration::ZERO);
    block_on(async {
        let other = Client::new(&server.address(), ClientOptions::new()).unwrap();
        let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
        let mut held = Vec::new();
        for key in 0..IDLE_MAX + 2 {
            held.push(other.lock(format!("k{key}"), &options).await.unwrap());
        }
        await_connections(&server, ALWAYS);
        let mut waits: Vec<_> = (0..IDLE_MAX + 2)
            .map(|key| {
                let (client, options) = (client.clone(), options.clone());
                smol::spawn(async move { client.lock(format!("k{key}"), &options).await.unwrap() })
            })
            .collect();
        await_connections(&server, 2 * ALWAYS + IDLE_MAX + 2);
        for lock in held {
            lock.release().await.unwrap();
        }
        let mut locks = Vec::new();
        for wait in waits.drain(..) {
            locks.push(wait.await);
        }
        // Each stays on the connection over which it was waited for.
        await_connections(&server, 2 * ALWAYS + IDLE_MAX + 2);
        for lock in locks {
            lock.release().await.unwrap();
        }
        await_connections(&server, 2 * ALWAYS + IDLE_MAX);
        // The next waits need no new ones.
        for _ in 0..3 {
            let held = other.lock("k", &options).await.unwrap();
            let release = async {
                smol::Timer::after(Duration::from_millis(20)).await;
                held.release().await.unwrap();
            };
            let (lock, ()) = future::zip(client.lock("k", &options), release).await;
            lock.unwrap().release().await.unwrap();
            await_connections(&server, 2 * ALWAYS + IDLE_MAX);
        }
    });
}

#[test]
fn broken_connections_are_not_used_again() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    let client = Client::new(&proxy.address(), ClientOptions::new()).unwrap();
    let options = LockOptions::new().survive(Duration::ZERO);
    block_on(async {
        for turn in 0..3 {
            let lock = client.lock("k", &options).await.unwrap();
            await_connections(&server, if turn == 0 { ALWAYS } else { 1 });
            lock.release().await.unwrap();
            proxy.cut();
            await_connections(&server, 0);
        }
    });
}
