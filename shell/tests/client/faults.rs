//! The client when the server or the network fails: every call ends in time, and its error says as
//! much as the client knows.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use latchd_client::{Client, ClientOptions, ComputeOptions, Error, LockOptions, Retry};

use crate::support::{DUE, Proxy, Started};
use smol::{Timer, block_on, future};

const TTL: Duration = Duration::from_secs(30);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn options(deadline_ms: u64) -> LockOptions {
    LockOptions::new()
        .retry(Retry::linear(ms(50)))
        .deadline(ms(deadline_ms))
}

/// The result of a call, and how long it took.
async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    (call.await, begun.elapsed())
}

/// The call has ended at its deadline of 300 ms, and not after some other time of its own.
fn assert_in_time(took: Duration) {
    assert!(took >= ms(250) && took < ms(1_500), "{took:?}");
}

fn assert_unreachable(error: &Error, address: &str) {
    assert!(
        !error.is_not_obtained(),
        "the server has not said so: {error}"
    );
    assert!(error.to_string().contains(address), "{error}");
}

#[test]
fn a_hanging_server_is_not_a_holder() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    block_on(async {
        let client = Client::connect(&proxy.address()).await.unwrap();
        proxy.silence();
        for options in [options(300), options(300).survive(ms(0))] {
            let (locked, took) = timed(client.lock("k", &options)).await;
            assert_unreachable(&locked.unwrap_err(), &proxy.address());
            assert_in_time(took);
        }

        let options = ComputeOptions::new(TTL).deadline(ms(300));
        let (value, took) =
            timed(client.compute("k", &options, async |_| Ok::<_, Infallible>(Vec::new()))).await;
        assert!(value.unwrap_err().to_string().contains(&proxy.address()));
        assert_in_time(took);
    });
}

#[test]
fn waiting_past_the_deadline_fails_as_held() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let held = client.lock("k", &LockOptions::new()).await.unwrap();
        let options = options(300);
        let (other, took) = timed(client.lock("k", &options)).await;
        let error = other.unwrap_err();
        assert!(error.is_not_obtained(), "{error}");
        assert!(error.to_string().contains(&server.address()), "{error}");
        assert_in_time(took);
        held.release().await.unwrap();
    });
}

/// An address that does not accept a connection, and does not refuse it either.
fn black_hole() -> (TcpListener, Vec<std::net::TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // No process accepts, so the queue of connections fills up.
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, ms(200)) {
        waiting.push(stream);
    }
    (listener, waiting)
}

#[test]
fn a_deadline_bounds_connecting_as_well() {
    block_on(async {
        let (hole, _waiting) = black_hole();
        let address = hole.local_addr().unwrap().to_string();
        let nowhere = Client::new(&address, ClientOptions::new()).unwrap();
        let options = options(300);
        let (locked, took) = timed(nowhere.lock("k", &options)).await;
        assert_unreachable(&locked.unwrap_err(), &address);
        assert_in_time(took);
        // Without a deadline the client's own bounds hold.
        let hasty = ClientOptions::new().connect_timeout(ms(300));
        let hasty = Client::new(&address, hasty).unwrap();
        let (bound, took) = timed(hasty.lock("k", &LockOptions::new())).await;
        assert_unreachable(&bound.unwrap_err(), &address);
        assert_in_time(took);
    });
}

#[test]
fn a_lock_lost_meanwhile_is_not_held() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    block_on(async {
        let timeouts = ClientOptions::new().reply_timeout(ms(300));
        let client = Client::new(&proxy.address(), timeouts).unwrap();
        let options = LockOptions::new().survive(ms(0));
        let lock = client.lock("k", &options).await.unwrap();
        // The server sees its end, and we do not.
        proxy.cut_behind();
        let direct = Client::connect(&server.address()).await.unwrap();
        let other = direct
            .lock("k", &options.clone().deadline(DUE))
            .await
            .unwrap();
        other.release().await.unwrap();
        assert!(lock.release().await.unwrap_err().is_not_held());
    });
}

#[test]
fn a_dropped_read_does_not_delay_others() {
    for server in Started::all() {
        let proxy = Proxy::start(server.address());
        block_on(async {
            let client = Client::connect(&proxy.address()).await.unwrap();
            proxy.delay(ms(100));
            let options = ComputeOptions::new(TTL);
            let read = client.compute("k", &options, async |_| {
                unreachable!("it is dropped before it knows that it has won");
            });
            let read = async {
                let value: Result<_, latchd_client::ComputeError<Infallible>> = read.await;
                drop(value);
            };
            // It has been sent, and the answer is under way.
            future::or(read, async {
                Timer::after(ms(150)).await;
            })
            .await;
            let direct = Client::connect(&server.address()).await.unwrap();
            let (value, took) = timed(direct.compute("k", &options, async |_| {
                Ok::<_, Infallible>(b"new".to_vec())
            }))
            .await;
            assert!(value.unwrap().computed);
            assert!(took < Duration::from_secs(3), "{}: {took:?}", server.name());
        });
    }
}

#[test]
fn a_server_that_is_full_says_so() {
    // The first client has one connection for its question, and one for its lock.
    let server = Started::latchd_with(0, |config| config.connections_max = 2);
    block_on(async {
        let first = Client::new(&server.address(), ClientOptions::new()).unwrap();
        let lock = first.lock("k", &LockOptions::new()).await.unwrap();
        let second = Client::connect(&server.address()).await.unwrap();
        let error = second.lock("k", &LockOptions::new()).await.unwrap_err();
        let said = error.to_string();
        assert!(said.contains("Too many open connections"), "{said}");
        lock.release().await.unwrap();
    });
}

#[test]
fn reconnects_to_a_closing_server_are_paced() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepted = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            drop(socket);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    block_on(async {
        let client = Client::new(&address, ClientOptions::new()).unwrap();
        let obtained = client.lock("k", &options(1_000)).await;
        assert_unreachable(&obtained.unwrap_err(), &address);
    });
    let accepted = accepted.load(Ordering::SeqCst);
    assert!((1..=15).contains(&accepted), "{accepted} connections");
}

#[test]
fn a_lookup_that_fails_names_the_host() {
    let error = block_on(Client::connect("no-such-host.invalid:11211")).unwrap_err();
    assert!(
        error.to_string().contains("no-such-host.invalid:11211"),
        "{error}"
    );
    let error = block_on(Client::connect("127.0.0.1:1")).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}
