//! Faults that users have reported of clients, with the right behaviour.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use latchd_client::{
    Client, ClientOptions, ComputeError, ComputeOptions, ErrorKind, LockOptions, Loss, TermsError,
};
use smol::{Executor, Timer, block_on, future};

use crate::support::{DUE, Proxy, Started, eventually, holder_process};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn each_survive(server: &Started) -> Vec<LockOptions> {
    let options = LockOptions::new();
    let mut all = vec![
        options.clone(),
        options.clone().with_item(),
        options.clone().survive(secs(1)),
    ];
    if server.name() == "latchd" {
        all.push(options.clone().survive(secs(0)));
        all.push(options.survive(ms(500)));
    }
    all
}

#[test]
fn released_is_not_lost() {
    for server in Started::all() {
        let proxy = Proxy::start(server.address());
        block_on(async {
            let client = Client::connect(&proxy.address()).await.unwrap();
            for options in each_survive(&server) {
                proxy.delay(ms(0));
                let lock = client.lock("k", &options).await.unwrap();
                let lost = lock.lost();
                let watch = smol::spawn(lost.clone());
                Timer::after(ms(100)).await;
                proxy.delay(ms(75));
                lock.release().await.unwrap();
                assert_eq!(watch.await, None);
                assert_eq!(lock.lost().await, None);
                let dropped = client.lock("k", &options).await.unwrap();
                let lost = dropped.lost();
                drop(dropped);
                assert_eq!(lost.await, None);
            }
        });
    }
}

#[test]
fn a_lock_is_not_held_from_the_release_on() {
    for server in Started::all() {
        let proxy = Proxy::start(server.address());
        block_on(async {
            let client = Client::connect(&proxy.address()).await.unwrap();
            let other = Client::connect(&server.address()).await.unwrap();
            for options in each_survive(&server) {
                let lock = client.lock("k", &options).await.unwrap();
                proxy.delay(ms(75));
                let waits = options.clone().deadline(DUE);
                let next = async {
                    let next = other.lock("k", &waits).await.unwrap();
                    assert!(!lock.is_held(), "the next client has it");
                    next.release().await.unwrap();
                };
                let release = async {
                    Timer::after(ms(50)).await;
                    let mut release = Box::pin(lock.release());
                    assert!(future::poll_once(release.as_mut()).await.is_none());
                    assert!(!lock.is_held(), "the release is sent");
                    release.await.unwrap();
                };
                future::zip(next, release).await;
                proxy.delay(ms(0));
            }
        });
    }
}

#[test]
fn a_release_is_repeated_until_the_link_heals() {
    for server in Started::all() {
        let proxy = Proxy::start(server.address());
        block_on(async {
            let timeouts = ClientOptions::new()
                .reply_timeout(ms(300))
                .connect_timeout(ms(300));
            let client = Client::new(&proxy.address(), timeouts).unwrap();
            let other = Client::connect(&server.address()).await.unwrap();
            let lock = client
                .lock("k", &LockOptions::new().survive(secs(30)))
                .await
                .unwrap();
            // The link dies in both directions, and the server's side stays.
            proxy.silence();
            assert!(lock.release().await.unwrap_err().is_unreachable());
            proxy.speak();
            let released = lock.release().await;
            released.unwrap_or_else(|error| assert!(error.is_not_held(), "{error}"));
            let begun = Instant::now();
            let next = other
                .lock("k", &LockOptions::new().deadline(DUE))
                .await
                .unwrap();
            assert!(
                begun.elapsed() < secs(5),
                "it does not wait for the end of the time"
            );
            next.release().await.unwrap();
        });
    }
}

#[test]
fn a_locked_key_without_an_item_is_computed_and_not_stored() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let other = Client::connect(&server.address()).await.unwrap();
        let lock = other.lock("k", &LockOptions::new()).await.unwrap();
        let make = async |_| Ok::<_, Infallible>(b"value".to_vec());
        let value = client
            .compute("k", &ComputeOptions::new(secs(60)), make)
            .await
            .unwrap();
        assert!(value.computed && !value.stored);
        assert_eq!(value.bytes, b"value");
        lock.release().await.unwrap();
        let value = client
            .compute("k", &ComputeOptions::new(secs(60)), make)
            .await
            .unwrap();
        assert!(value.computed && value.stored);
    });
}

#[test]
fn tasks_of_one_process_ask_once() {
    for server in Started::all() {
        let executor = Executor::new();
        let computed = Arc::new(AtomicU32::new(0));
        block_on(executor.run(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let tasks: Vec<_> = (0..3_000)
                .map(|_| {
                    let (client, computed) = (client.clone(), Arc::clone(&computed));
                    executor.spawn(async move {
                        let make = async |_| {
                            computed.fetch_add(1, Ordering::SeqCst);
                            Timer::after(ms(200)).await;
                            Ok::<_, Infallible>(b"value".to_vec())
                        };
                        client
                            .compute("k", &ComputeOptions::new(secs(60)), make)
                            .await
                            .unwrap()
                    })
                })
                .collect();
            Timer::after(ms(100)).await;
            let stats = server.ask("stats\r\n", "END\r\n");
            let count = stats
                .lines()
                .find_map(|line| line.strip_prefix("STAT curr_connections "));
            assert!(count.unwrap().parse::<u32>().unwrap() <= 16, "{count:?}");
            for task in tasks {
                assert_eq!(task.await.bytes, b"value");
            }
        }));
        assert_eq!(computed.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_failure_is_shared_by_the_tasks_of_a_process() {
    for server in Started::all() {
        let executor = Executor::new();
        let tried = Arc::new(AtomicU32::new(0));
        let begun = Instant::now();
        block_on(executor.run(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let tasks: Vec<_> = (0..100)
                .map(|_| {
                    let (client, tried) = (client.clone(), Arc::clone(&tried));
                    executor.spawn(async move {
                        let make = async |_| {
                            tried.fetch_add(1, Ordering::SeqCst);
                            Timer::after(ms(500)).await;
                            Err::<Vec<u8>, _>("no database")
                        };
                        client
                            .compute("k", &ComputeOptions::new(secs(60)), make)
                            .await
                    })
                })
                .collect();
            let mut own = 0;
            for task in tasks {
                match task.await {
                    Err(ComputeError::Compute(_)) => own += 1,
                    Err(ComputeError::Elsewhere) => {}
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(own, 1);
            // The next try may succeed.
            let make = async |_| Ok::<_, Infallible>(b"value".to_vec());
            let value = client
                .compute("k", &ComputeOptions::new(secs(60)), make)
                .await
                .unwrap();
            assert!(value.stored);
        }));
        assert_eq!(tried.load(Ordering::SeqCst), 1);
        assert!(begun.elapsed() < secs(5));
    }
}

#[test]
fn a_value_too_large_is_returned_with_the_refusal() {
    for server in Started::all() {
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            for _ in 0..2 {
                let large = async |_| Ok::<_, Infallible>(vec![b'v'; 2 << 20]);
                let begun = Instant::now();
                let value = client
                    .compute("k", &ComputeOptions::new(secs(60)), large)
                    .await
                    .unwrap();
                assert_eq!(value.bytes.len(), 2 << 20);
                assert!(!value.stored);
                assert!(value.refusal.unwrap().contains("too large"));
                assert!(begun.elapsed() < secs(5), "the win was given back");
            }
        });
    }
}

#[test]
fn a_refused_refresh_changes_nothing() {
    for server in Started::all() {
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            for options in each_survive(&server) {
                let lock = client.lock("k", &options).await.unwrap();
                let refused = lock.refresh(Duration::MAX).await.unwrap_err();
                let kind = refused.kind();
                assert!(
                    matches!(kind, ErrorKind::Terms(TermsError::TtlTooLong)),
                    "{refused}"
                );
                Timer::after(ms(1_500)).await;
                assert!(lock.is_held(), "{options:?}");
                lock.release().await.unwrap();
            }
        });
    }
}

#[test]
fn a_forced_release_is_noticed_within_a_heartbeat() {
    let server = Started::latchd();
    block_on(async {
        let beats = ClientOptions::new().heartbeat(ms(500));
        let client = Client::new(&server.address(), beats).unwrap();
        for options in each_survive(&server) {
            let lock = client.lock("k", &options).await.unwrap();
            let lost = lock.lost();
            let fence = lock.fence().unwrap().number();
            assert_eq!(server.ask(&format!("mu k G{fence}\r\n"), "\r\n"), "HD\r\n");
            let begun = Instant::now();
            assert_eq!(lost.await, Some(Loss::Taken), "{options:?}");
            assert!(begun.elapsed() < ms(1_500), "{:?}", begun.elapsed());
            assert!(!lock.is_held());
            server.ask("flush_all\r\n", "\r\n");
        }
    });
}

#[test]
fn a_forced_release_ends_the_command() {
    let server = Started::latchd();
    for options in [&["--session", "3"][..], &["--ttl", "3"], &[]] {
        let child = holder_process(&server, options)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let locks = || server.ask("stats locks\r\n", "END\r\n");
        let fence = eventually(|| {
            let shown = locks();
            let (_, rest) = shown.split_once("fence=")?;
            rest.split([',', '\r']).next().map(ToOwned::to_owned)
        });
        assert_eq!(server.ask(&format!("mu k G{fence}\r\n"), "\r\n"), "HD\r\n");
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{options:?}: {said}");
        assert!(said.contains("lost the lock of k"), "{said}");
        server.ask("flush_all\r\n", "\r\n");
    }
}

#[test]
fn a_chosen_token_takes_a_held_lock_over() {
    for server in Started::all() {
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let other = Client::connect(&server.address()).await.unwrap();
            let own = LockOptions::new()
                .token(latchd_client::random_token())
                .with_item();
            let before = client.lock("k", &own).await.unwrap();
            let after = other.try_lock("k", &own).await.unwrap();
            assert!(after.is_held());
            assert_eq!(after.fence(), before.fence());
            std::mem::forget(before);
            after.release().await.unwrap();
        });
    }
}
