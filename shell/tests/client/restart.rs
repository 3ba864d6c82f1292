//! A server that restarts has forgotten every item, and its versions begin anew: a version that a
//! client knew before means nothing any more, or another item.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::time::Duration;

use latchd_client::{Client, ComputeOptions, LockOptions};

use crate::support::{Proxy, Started};
use smol::channel::bounded;
use smol::{block_on, future};

/// Longer than any test takes.
const TTL: Duration = Duration::from_secs(60);

/// Runs a test with a way to start a server on a port, 0 for a free one, once for each kind of
/// server there is. The first item of each start has the same version: for a latchd this takes one
/// thread; the shards of several depend on chance.
fn on_each_kind<F: Future<Output = ()>>(test: impl Fn(fn(u16) -> Started) -> F) {
    block_on(test(|port| {
        Started::latchd_with(port, |config| config.threads = NonZeroUsize::MIN)
    }));
    if Started::memcached().is_some() {
        block_on(test(|port| match port {
            0 => Started::memcached().unwrap(),
            port => Started::memcached_at(port).unwrap(),
        }));
    }
}

#[test]
fn a_late_release_spares_the_next_holder() {
    on_each_kind(async |start| {
        let server = start(0);
        let (port, name) = (server.port(), server.name());
        let proxy = Proxy::start(server.address());
        let first = Client::connect(&proxy.address()).await.unwrap();
        let options = LockOptions::new().survive(TTL);
        let late = first.lock("k", &options).await.unwrap();
        // Its client does not reach the server until the next holder has the lock.
        proxy.silence();
        proxy.cut();
        drop(server);
        let server = start(port);
        let second = Client::connect(&server.address()).await.unwrap();
        let next = second.lock("k", &options).await.unwrap();
        proxy.speak();
        let released = late.release().await;
        assert!(next.check().await.is_ok(), "{name}: it was taken away");
        assert!(released.unwrap_err().is_not_held(), "{name}");
        let third = second.try_lock("k", &options).await;
        assert!(third.unwrap_err().is_not_obtained(), "{name}");
        next.release().await.unwrap();
    });
}

#[test]
fn a_late_value_does_not_replace_the_heirs() {
    on_each_kind(async |start| {
        let server = start(0);
        let (port, name) = (server.port(), server.name());
        let client = Client::connect(&server.address()).await.unwrap();
        let options = ComputeOptions::new(TTL);
        let (begun, has_begun) = bounded(1);
        let (finish, may_finish) = bounded::<()>(1);
        let late = client.compute("k", &options, async |_| {
            begun.send(()).await.unwrap();
            may_finish.recv().await.unwrap();
            Ok::<_, Infallible>(b"late".to_vec())
        });
        let restart = async {
            has_begun.recv().await.unwrap();
            drop(server);
            let server = start(port);
            let other = Client::connect(&server.address()).await.unwrap();
            let next = other.compute("k", &options, async |_| {
                // The first one stores, or does not, while this one computes.
                finish.send(()).await.unwrap();
                smol::Timer::after(Duration::from_millis(300)).await;
                Ok::<_, Infallible>(b"next".to_vec())
            });
            (next.await.unwrap(), server)
        };
        let (late, (next, server)) = future::zip(late, restart).await;
        let late = late.unwrap();
        assert!(late.computed && !late.stored, "{name}: {late:?}");
        assert!(next.computed && next.stored, "{name}: {next:?}");
        assert!(server.ask("mg k v\r\n", "next\r\n").starts_with("VA 4"));
    });
}

#[test]
fn a_winner_stores_over_a_new_connection() {
    on_each_kind(async |start| {
        let server = start(0);
        // A server that has just started looks like one that has just restarted.
        smol::Timer::after(Duration::from_secs(4)).await;
        let proxy = Proxy::start(server.address());
        let client = Client::connect(&proxy.address()).await.unwrap();
        let options = ComputeOptions::new(TTL);
        let value = client.compute("k", &options, async |_| {
            proxy.cut();
            Ok::<_, Infallible>(b"new".to_vec())
        });
        let value = value.await.unwrap();
        assert!(value.computed && value.stored, "{value:?}");
        assert!(server.ask("mg k v\r\n", "new\r\n").starts_with("VA 3"));
    });
}
