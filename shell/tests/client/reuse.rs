//! Connections that one call has to itself: a later call uses them again.

use latchd_client::{BoundOptions, Client, ClientOptions, Exptime};
use smol::block_on;

use crate::support::{Proxy, Started, eventually};

/// How many connections a client keeps at most without a use.
const IDLE_MAX: u64 = 64;

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

#[test]
fn unused_connections_are_kept_up_to_a_bound() {
    let server = Started::latchd();
    let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
    let options = BoundOptions::new().create(Exptime::Never);
    block_on(async {
        for _ in 0..3 {
            let lock = client.lock("k", &options).await.unwrap();
            await_connections(&server, 1);
            let refused = client.lock("k", &options).await.unwrap_err();
            assert!(refused.is_not_obtained(), "{refused}");
            await_connections(&server, 2);
            lock.release().await.unwrap();
            // The next round begins with one connection: the other one is closed.
            drop(client.lock("other", &options).await.unwrap());
            await_connections(&server, 1);
        }
        let mut locks = Vec::new();
        for key in 0..IDLE_MAX + 2 {
            locks.push(client.lock(format!("k{key}"), &options).await.unwrap());
        }
        await_connections(&server, IDLE_MAX + 2);
        for lock in locks {
            lock.release().await.unwrap();
        }
        await_connections(&server, IDLE_MAX);
    });
}

#[test]
fn broken_connections_are_not_used_again() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    let client = Client::new(&proxy.address(), ClientOptions::new()).unwrap();
    let options = BoundOptions::new().create(Exptime::Never);
    block_on(async {
        for _ in 0..3 {
            let lock = client.lock("k", &options).await.unwrap();
            await_connections(&server, 1);
            lock.release().await.unwrap();
            proxy.cut();
            await_connections(&server, 0);
        }
    });
}
