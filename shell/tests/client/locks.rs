//! The client's locks on real sockets, against latchd, and against memcached as far as it has them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use latchd_client::{
    BoundOptions, Client, ClientOptions, ComputeError, ComputeOptions, Error, ErrorKind, Exptime,
    KeyError, LockOptions, Losers, Loss, Mark, NotObtained, OnDisconnect, Retry, Token,
    random_token,
};

use crate::support::{DUE, Proxy, Started, eventually};
use smol::{Executor, Timer, block_on, future};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs a test against every available server.
fn on_each<F: Future<Output = ()>>(test: impl Fn(Client, Arc<Started>) -> F) {
    for server in Started::all() {
        let server = Arc::new(server);
        println!("against {}", server.name());
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            test(client, Arc::clone(&server)).await;
        });
    }
}

/// Whether it has failed, and as expected.
fn is<T>(result: Result<T, Error>, like: impl Fn(&ErrorKind) -> bool) -> bool {
    result.is_err_and(|error| like(error.kind()))
}

fn patient() -> LockOptions {
    LockOptions::new()
        .retry(Retry::exponential(ms(1), ms(50)).with_jitter())
        .deadline(DUE)
}

#[test]
fn a_lease_has_one_holder_until_release() {
    on_each(async |client, server| {
        let options = LockOptions::new().metadata("build 7");
        let lock = client.obtain("k", secs(10), &options).await.unwrap();
        assert!(lock.is_held());
        assert_eq!((lock.key(), lock.metadata()), (&b"k"[..], &b"build 7"[..]));
        assert_eq!(lock.token().as_bytes().len(), 22);
        let stored = server.ask("mg k v\r\n", "build 7\r\n");
        let token = String::from_utf8(lock.token().as_bytes().to_vec()).unwrap();
        assert_eq!(stored, format!("VA 30\r\n{token} build 7\r\n"));

        let ttl = lock.server_ttl().await.unwrap();
        assert!(ttl >= secs(10) && ttl <= secs(12), "{ttl:?}");
        let other = client.obtain("k", secs(10), &LockOptions::new()).await;
        assert!(is(other, |kind| matches!(
            kind,
            ErrorKind::NotObtained(NotObtained::Held)
        )));

        lock.refresh(secs(60)).await.unwrap();
        assert!(lock.remaining() > secs(55));
        assert!(lock.server_ttl().await.unwrap() >= secs(60));
        let number = lock.number();
        lock.release().await.unwrap();
        assert_eq!(server.ask("mg k v\r\n", "\r\n"), "EN\r\n");

        let next = client.obtain("k", secs(10), &options).await.unwrap();
        assert!(next.number() > number);
        next.release().await.unwrap();
    });
}

#[test]
fn a_lost_lock_is_neither_renewed_nor_released() {
    on_each(async |client, server| {
        let options = LockOptions::new().without_watchdog();
        let lock = client.obtain("k", secs(10), &options).await.unwrap();
        // An operator ends it, and another takes the lock.
        server.end_lease("k");
        let other = client.obtain("k", secs(10), &options).await.unwrap();
        assert!(lock.refresh(secs(10)).await.unwrap_err().is_not_held());
        assert_eq!(lock.lost().await, Loss::Taken);
        assert!(!lock.is_held());
        assert!(lock.release().await.unwrap_err().is_not_held());
        assert!(other.is_held());
        assert!(other.server_ttl().await.is_ok());
        other.release().await.unwrap();
    });
}

#[test]
fn only_the_whole_token_takes_over() {
    on_each(async |client, _| {
        let own = |token: &str| {
            LockOptions::new()
                .without_watchdog()
                .token(Token::new(token.as_bytes()).unwrap())
        };
        let before = client.obtain("k", secs(10), &own("abc")).await.unwrap();
        let prefix = client.obtain("k", secs(10), &own("ab")).await;
        assert!(prefix.unwrap_err().is_not_obtained());
        let after = client.obtain("k", secs(30), &own("abc")).await.unwrap();
        assert!(after.server_ttl().await.unwrap() >= secs(30));
        after.release().await.unwrap();
        assert!(before.release().await.unwrap_err().is_not_held());
    });
}

#[test]
fn many_are_had_all_or_none() {
    on_each(async |client, server| {
        let options = LockOptions::new();
        let b = client.obtain("b", secs(10), &options).await.unwrap();
        let all = client
            .obtain_many(["c", "a", "b"], secs(10), &options)
            .await;
        assert!(all.unwrap_err().is_not_obtained());
        for key in ["a", "c"] {
            assert_eq!(server.ask(&format!("mg {key}\r\n"), "\r\n"), "EN\r\n");
        }
        b.release().await.unwrap();
        let all = client
            .obtain_many(["c", "a", "b"], secs(10), &options)
            .await
            .unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(all.numbers().len(), 3);
        all.refresh(secs(20)).await.unwrap();
        all.release().await.unwrap();
        let twice = client.obtain_many(["a", "a"], secs(10), &options).await;
        assert!(is(twice, |kind| matches!(kind, ErrorKind::Terms(_))));
    });
}

#[test]
fn the_watchdog_renews_up_to_the_cap() {
    on_each(async |client, server| {
        // On a busy machine a renewal may be a second late.
        let options = LockOptions::new().hold_max(ms(8_500));
        let lock = client.obtain("k", secs(3), &options).await.unwrap();
        Timer::after(secs(7)).await;
        assert!(lock.is_held());
        assert!(server.ask("mg k\r\n", "\r\n").starts_with("HD"));
        assert_eq!(lock.lost().await, Loss::HeldTooLong);
        assert!(!lock.is_held());
        drop(lock);
    });
}

/// A caller that waits for an answer has the connection in use: the renewal does not wait for it.
#[test]
fn a_lease_is_renewed_while_a_caller_stands_still() {
    on_each(async |client, _| {
        let options = LockOptions::new();
        // Over one connection, so that the second caller has that of the first.
        let one = ClientOptions::new().connections(1);
        let client = Client::new(client.address(), one).unwrap();
        let lock = client.obtain("k", secs(3), &options).await.unwrap();
        let again = patient();
        let waits = client.obtain("k", secs(3), &again);
        let mut waits = std::pin::pin!(waits);
        assert!(future::poll_once(waits.as_mut()).await.is_none());
        thread::sleep(ms(4_000));
        assert!(lock.is_held());
        lock.release().await.unwrap();
        waits.await.unwrap().release().await.unwrap();
    });
}

#[test]
fn renewals_stop_at_the_cap() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let options = || LockOptions::new();
        for (key, options) in [
            ("a", options().without_watchdog().hold_max(ms(1_500))),
            ("b", options().hold_max(ms(1_500)).without_watchdog()),
        ] {
            let lock = client.obtain(key, secs(1), &options).await.unwrap();
            assert_eq!(
                lock.lost().await,
                Loss::Expired,
                "its renewals have stopped"
            );
            let lock = client.obtain("capped", secs(30), &options).await.unwrap();
            lock.refresh(secs(30)).await.unwrap();
            assert!(lock.remaining() <= ms(1_500));
            assert_eq!(lock.lost().await, Loss::HeldTooLong);
            lock.release().await.unwrap();
        }
    });
}

#[test]
fn an_exit_right_after_a_drop_gives_back() {
    const ADDRESS: &str = "LATCHD_TEST_ADDRESS";
    // An exit code that only this process can end with, after it has dropped.
    const HAS_DROPPED: i32 = 9;
    if let Ok(address) = std::env::var(ADDRESS) {
        // The process that the other half of this test has started.
        block_on(async {
            let client = Client::connect(&address).await.unwrap();
            let options = LockOptions::new();
            drop(client.obtain("held", secs(30), &options).await.unwrap());
            let hang = async |_| -> Result<Vec<u8>, Infallible> { std::future::pending().await };
            let options = ComputeOptions::new();
            let dropped = client.get_or_compute("won", secs(30), secs(0), &options, hang);
            future::or(async { drop(dropped.await) }, async {
                Timer::after(ms(200)).await;
            })
            .await;
        });
        std::process::exit(HAS_DROPPED);
    }
    for server in Started::all() {
        println!("against {}", server.name());
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "locks::an_exit_right_after_a_drop_gives_back"])
            .env(ADDRESS, server.address())
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(HAS_DROPPED));
        for key in ["held", "won"] {
            assert_eq!(
                server.ask(&format!("mg {key}\r\n"), "\r\n"),
                "EN\r\n",
                "{key}"
            );
        }
    }
}

#[test]
fn without_a_watchdog_it_ends_by_our_own_clock() {
    on_each(async |client, server| {
        let options = LockOptions::new().without_watchdog();
        let obtained = Instant::now();
        let lock = client.obtain("k", secs(1), &options).await.unwrap();
        assert_eq!(lock.lost().await, Loss::Expired);
        let took = obtained.elapsed();
        assert!(took >= ms(950) && took < secs(3), "{took:?}");
        // The server expires it later than we do.
        assert!(server.ask("mg k\r\n", "\r\n").starts_with("HD"));
        let refreshed = lock.refresh(secs(1)).await;
        assert!(is(refreshed, |kind| matches!(
            kind,
            ErrorKind::NotHeld(Some(Loss::Expired))
        )));
        // It is still there with our version, so it can be released.
        lock.release().await.unwrap();
        assert_eq!(server.ask("mg k\r\n", "\r\n"), "EN\r\n");
    });
}

#[test]
fn dropping_a_lock_releases_it() {
    on_each(async |client, server| {
        let lock = client
            .obtain("k", secs(30), &LockOptions::new())
            .await
            .unwrap();
        drop(lock);
        eventually(|| (server.ask("mg k\r\n", "\r\n") == "EN\r\n").then_some(()));

        // A cancelled obtain leaves nothing behind, at any stage.
        let held = client
            .obtain("k", secs(30), &LockOptions::new())
            .await
            .unwrap();
        for wait_ms in [0, 1, 20] {
            let options = patient();
            let obtain = async {
                let lock = client.obtain("k", secs(30), &options).await;
                unreachable!("it is held, and not {lock:?}");
            };
            future::or(obtain, async {
                Timer::after(ms(wait_ms)).await;
            })
            .await;
        }
        held.release().await.unwrap();
        let lock = client.obtain("k", secs(30), &patient()).await.unwrap();
        lock.release().await.unwrap();
    });
}

#[test]
fn a_restart_of_the_server_is_noticed_at_once() {
    for server in Started::all() {
        println!("against {}", server.name());
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let loses = LockOptions::new().on_disconnect(OnDisconnect::Lost);
            let lock = client.obtain("k", secs(30), &loses).await.unwrap();
            let options = LockOptions::new();
            let asking = client.obtain("asking", secs(30), &options).await.unwrap();
            let restart = server.successor();
            let stopped = Instant::now();
            drop(server);
            assert_eq!(lock.lost().await, Loss::Disconnected);
            assert!(stopped.elapsed() < secs(5));
            eventually(|| (!asking.is_held()).then_some(()));
            assert!(
                asking.remaining() > secs(20),
                "it is in doubt, and not lost"
            );
            let refused = client.obtain("other", secs(1), &LockOptions::new()).await;
            assert!(refused.unwrap_err().is_unreachable());

            // The server has forgotten the lock, and says so.
            let server = restart();
            assert_eq!(asking.lost().await, Loss::Taken);
            let lock = client
                .obtain("k", secs(30), &LockOptions::new())
                .await
                .unwrap();
            lock.release().await.unwrap();
            drop(server);
        });
    }
}

#[test]
fn a_lease_survives_a_broken_connection() {
    on_each(async |_, server| {
        let proxy = Proxy::start(server.address());
        let client = Client::connect(&proxy.address()).await.unwrap();
        let options = LockOptions::new();
        let lock = client.obtain("k", secs(30), &options).await.unwrap();
        for _ in 0..3 {
            proxy.cut();
            lock.refresh(secs(30)).await.unwrap();
            assert!(lock.is_held());
        }
        proxy.cut();
        // Not even if it is released at that moment.
        lock.release().await.unwrap();
        let lock = client.obtain("k", secs(30), &options).await.unwrap();
        lock.release().await.unwrap();
    });
}

#[test]
fn nothing_is_held_while_another_key_is_waited_for() {
    on_each(async |client, _| {
        let options = LockOptions::new();
        let last = client.obtain("z", secs(30), &options).await.unwrap();
        let both = client.clone();
        let waits = async { both.obtain_many(["a", "z"], secs(30), &patient()).await };
        let first = async {
            Timer::after(ms(100)).await;
            // Between two of their tries it is free.
            let first = client.obtain("a", secs(30), &patient()).await.unwrap();
            last.release().await.unwrap();
            Timer::after(ms(100)).await;
            first.release().await.unwrap();
        };
        let (both, ()) = future::zip(waits, first).await;
        both.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_custom_retry_strategy_is_used() {
    on_each(async |client, _| {
        let held = client.obtain("k", secs(30), &LockOptions::new()).await;
        let held = held.unwrap();
        let asked = AtomicU32::new(0);
        let waits = (0..3).map(|wait| {
            asked.fetch_add(1, Ordering::SeqCst);
            ms(wait)
        });
        let options = LockOptions::new().deadline(secs(20));
        let obtained = client.obtain_with(["k"], secs(30), &options, waits).await;
        assert!(obtained.unwrap_err().is_not_obtained());
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        let options = LockOptions::new().deadline(ms(100));
        let begun = Instant::now();
        let waits = std::iter::repeat(secs(60));
        let obtained = client.obtain_with(["k"], secs(30), &options, waits).await;
        assert!(is(obtained, |kind| matches!(
            kind,
            ErrorKind::NotObtained(NotObtained::Deadline)
        )));
        assert!(begun.elapsed() < secs(5));
        held.release().await.unwrap();
    });
}

#[test]
fn a_detached_lock_is_regained_by_token() {
    on_each(async |client, _| {
        let token = random_token();
        let options = LockOptions::new().token(token.clone());
        let lock = client.obtain("k", secs(30), &options).await.unwrap();
        let number = lock.number();
        assert_eq!(lock.detach().await.unwrap(), token);
        let other = client.obtain("k", secs(30), &LockOptions::new()).await;
        assert!(other.unwrap_err().is_not_obtained(), "it is there still");
        let again = client.obtain("k", secs(30), &options).await.unwrap();
        assert!(again.number() > number);
        again.release().await.unwrap();
    });
}

#[test]
fn a_release_that_failed_can_be_tried_again() {
    for server in Started::all() {
        let proxy = Proxy::start(server.address());
        block_on(async {
            let options = ClientOptions::new().reply_timeout(ms(200));
            let client = Client::new(&proxy.address(), options).unwrap();
            let options = LockOptions::new();
            let lock = client.obtain("k", secs(30), &options).await.unwrap();
            proxy.silence();
            assert!(lock.try_release().await.unwrap_err().is_unreachable());
            proxy.speak();
            let released = lock.try_release().await;
            released.unwrap_or_else(|error| assert!(error.is_not_held(), "{error}"));
            let next = client.obtain("k", secs(30), &patient()).await.unwrap();
            drop(lock);
            assert!(next.server_ttl().await.unwrap() > secs(25));
            next.refresh_with(secs(60), [ms(10), ms(10)]).await.unwrap();
            next.release().await.unwrap();
        });
    }
}

#[test]
fn the_ttl_of_several_is_the_least() {
    on_each(async |client, server| {
        let options = LockOptions::new();
        let keys = ["a", "b"];
        let both = client.obtain_many(keys, secs(100), &options).await.unwrap();
        // Another client shortens one of them.
        server.ask("mg b T20\r\n", "\r\n");
        assert!(both.server_ttl().await.unwrap() <= secs(20));
        both.release().await.unwrap();
    });
}

/// How many connections a server has.
fn connections(server: &Started) -> u64 {
    let stats = server.ask("stats\r\n", "END\r\n");
    let name = "STAT curr_connections ";
    let line = stats.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().parse().unwrap()
}

#[test]
fn a_thousand_leases_share_a_few_connections() {
    on_each(async |other, server| {
        let proxy = Proxy::start(server.address());
        // A server may count a connection only after its first bytes.
        assert!(other.get("k").await.unwrap().is_none());
        // memcached counts its listening sockets as well.
        let before = connections(&server);
        let options = ClientOptions::new().connections(3);
        let client = Client::new(&proxy.address(), options).unwrap();
        let options = LockOptions::new();
        let mut locks = Vec::new();
        for key in 0..1_000 {
            let key = format!("k{key}");
            locks.push(client.obtain(key, secs(6), &options).await.unwrap());
        }
        assert_eq!(connections(&server) - before, 3);
        // All are renewed, and all survive that their connections break at once.
        Timer::after(secs(3)).await;
        proxy.cut();
        Timer::after(secs(6)).await;
        for lock in &locks {
            assert!(lock.is_held(), "{:?}, {lock:?}", lock.lost().await);
        }
        assert_eq!(connections(&server) - before, 3);
        for lock in locks {
            lock.release().await.unwrap();
        }
    });
}

#[test]
fn each_lock_gets_its_own_replies() {
    on_each(async |_, server| {
        let options = ClientOptions::new().connections(1);
        let client = Client::new(&server.address(), options).unwrap();
        let executor = Executor::new();
        let tasks: Vec<_> = (0..64)
            .map(|task: usize| {
                let client = client.clone();
                executor.spawn(async move {
                    for turn in 0..20 {
                        // Two keys each; the neighbour has one of them as well.
                        let keys = [format!("k{task}"), format!("k{}", (task + 1) % 64)];
                        let lock = client.obtain_many(keys, secs(30), &patient()).await;
                        let lock = lock.unwrap_or_else(|error| panic!("{task}, {turn}: {error}"));
                        assert_eq!(lock.numbers().len(), 2);
                        lock.server_ttl().await.unwrap();
                        lock.release().await.unwrap();
                    }
                })
            })
            .collect();
        executor
            .run(async {
                for task in tasks {
                    task.await;
                }
            })
            .await;
    });
}

#[test]
fn who_waits_for_a_lock_waits_through_a_restart() {
    for server in Started::all() {
        println!("against {}", server.name());
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let held = client
                .obtain("k", secs(30), &LockOptions::new())
                .await
                .unwrap();
            let is_latchd = matches!(server, Started::Latchd(..));
            let bound = if is_latchd {
                Some(client.lock("b", &bound_patient()).await.unwrap())
            } else {
                None
            };
            let options = patient().deadline(secs(20));
            let waits = async { client.obtain("k", secs(30), &options).await };
            let waits_bound = async {
                if is_latchd {
                    let options = bound_patient().deadline(secs(20));
                    client.lock("b", &options).await.map(Some)
                } else {
                    Ok(None)
                }
            };
            let restart = server.successor();
            let restarts = async {
                Timer::after(Duration::from_millis(300)).await;
                drop(server);
                Timer::after(Duration::from_millis(500)).await;
                restart()
            };
            let ((lock, lock_bound), server) =
                future::zip(future::zip(waits, waits_bound), restarts).await;
            // The former holder knows that it is over.
            assert_eq!(held.lost().await, Loss::Taken);
            if let Some(bound) = bound {
                assert_eq!(bound.lost().await, Loss::Disconnected);
            }
            lock.unwrap().release().await.unwrap();
            if let Some(bound) = lock_bound.unwrap() {
                bound.release().await.unwrap();
            }
            drop(server);
        });
    }
}

/// Runs a hundred tasks that each do `turn` once, and checks that no two do it at a time.
fn contend<F: Future<Output = ()> + Send>(turn: impl Fn(Arc<Inside>) -> F) {
    let executor = Executor::new();
    let inside = Arc::new(Inside::default());
    let started = Instant::now();
    let tasks: Vec<_> = (0..100)
        .map(|_| executor.spawn(turn(Arc::clone(&inside))))
        .collect();
    block_on(executor.run(async {
        for task in tasks {
            task.await;
        }
    }));
    assert_eq!(inside.turns.load(Ordering::SeqCst), 100);
    println!("100 contenders took {:.1?}", started.elapsed());
}

#[derive(Default)]
struct Inside {
    now: AtomicU32,
    turns: AtomicU32,
    number: AtomicU64,
}

impl Inside {
    /// The work that the lock protects. The numbers of the grants rise from turn to turn.
    async fn work(&self, number: u64) {
        assert_eq!(self.now.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
        assert!(self.number.swap(number, Ordering::SeqCst) < number);
        Timer::after(ms(1)).await;
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_lease_serves_a_hundred_contenders() {
    for server in Started::all() {
        println!("against {}", server.name());
        let client = block_on(Client::connect(&server.address())).unwrap();
        contend(|inside| {
            let client = client.clone();
            async move {
                let lock = client.obtain("k", secs(30), &patient()).await.unwrap();
                inside.work(lock.number()).await;
                lock.release().await.unwrap();
            }
        });
    }
}

fn bound_patient() -> BoundOptions {
    BoundOptions::new()
        .retry(Retry::exponential(ms(1), ms(50)).with_jitter())
        .deadline(DUE)
        .create(Exptime::In { seconds: 60 })
        .mark(Mark::Number)
}

#[test]
fn a_bound_lock_serves_a_hundred_contenders() {
    let server = Started::latchd();
    let client = block_on(Client::connect(&server.address())).unwrap();
    contend(|inside| {
        let client = client.clone();
        async move {
            let lock = client.lock("k", &bound_patient()).await.unwrap();
            inside.work(lock.number().unwrap()).await;
            lock.release().await.unwrap();
        }
    });
}

#[test]
fn a_bound_lock_reads_and_replaces() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let missing = client.lock("k", &BoundOptions::new().existing()).await;
        assert!(is(missing, |kind| matches!(
            kind,
            ErrorKind::NotObtained(NotObtained::NoItem)
        )));
        server.ask("set k 0 0 1\r\n5\r\n", "\r\n");
        let (lock, value) = client
            .lock_and_get("k", &BoundOptions::new())
            .await
            .unwrap();
        assert_eq!(value, b"5");
        assert_eq!(server.ask("set k 0 0 1\r\n9\r\n", "\r\n"), "LOCKED\r\n");
        let held = client.lock("k", &BoundOptions::new()).await;
        assert!(is(held, |kind| matches!(
            kind,
            ErrorKind::NotObtained(NotObtained::Held)
        )));
        lock.set("6", Exptime::Never).await.unwrap();
        assert_eq!(lock.get().await.unwrap(), b"6");
        lock.replace_and_unlock("7", Exptime::Never).await.unwrap();
        assert_eq!(server.ask("set k 0 0 1\r\n8\r\n", "\r\n"), "STORED\r\n");

        // A key may be any bytes, and needs no item.
        let blank = client.lock("a b\n", &BoundOptions::new()).await.unwrap();
        blank.set("v", Exptime::Never).await.unwrap();
        assert_eq!(blank.get().await.unwrap(), b"v");
        assert!(blank.fence().is_some());
        blank.release().await.unwrap();
    });
}

#[test]
fn leased_and_bound_locks_exclude_each_other() {
    let server = Started::latchd();
    let new = || Client::new(&server.address(), ClientOptions::new()).unwrap();
    let (leaser, binder) = (new(), new());
    block_on(async {
        let once = LockOptions::new();
        let lease = || leaser.obtain("k", secs(2), &once);
        let ours = lease().await.unwrap();
        let note = Mark::Note(b"note"[..].into(), Exptime::Never);
        for options in [
            BoundOptions::new(),
            BoundOptions::new().existing(),
            BoundOptions::new().shared(),
            BoundOptions::new().mark(note),
        ] {
            let refused = binder.lock("k", &options).await.unwrap_err();
            assert!(refused.is_not_obtained(), "{refused}");
            ours.refresh(secs(2)).await.unwrap();
        }
        assert!(ours.is_held());
        let freed = async {
            // The bound one has sent its request, and looks again.
            Timer::after(ms(50)).await;
            ours.release().await
        };
        let options = bound_patient();
        let (bound, freed) = future::zip(binder.lock("k", &options), freed).await;
        freed.unwrap();
        let bound = bound.unwrap();
        assert!(lease().await.unwrap_err().is_not_obtained());
        let short = leaser.obtain("k", ms(100), &once).await;
        assert!(short.unwrap_err().is_not_obtained());
        bound.release().await.unwrap();
        lease().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_bound_lock_ends_with_guard_or_server() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let lock = client.lock("k", &bound_patient()).await.unwrap();
        drop(lock);
        let lock = client.lock("k", &bound_patient()).await.unwrap();
        assert!(lock.is_held());
        drop(server);
        assert_eq!(lock.lost().await, Loss::Disconnected);
        assert!(!lock.is_held());
        assert!(lock.release().await.unwrap_err().is_not_held());
    });
}

#[test]
fn memcached_refuses_a_bound_lock() {
    let Some(server) = Started::memcached() else {
        return;
    };
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let refused = client.lock("k", &BoundOptions::new()).await;
        assert!(is(
            refused,
            |kind| matches!(kind, ErrorKind::Refused(words) if &**words == "ERROR")
        ));
    });
}

#[test]
fn a_value_is_computed_once() {
    on_each(async |client, _| {
        let computed = Arc::new(AtomicU32::new(0));
        let executor = Executor::new();
        let readers: Vec<_> = (0..50)
            .map(|_| {
                let (client, computed) = (client.clone(), Arc::clone(&computed));
                executor.spawn(async move {
                    let compute = async |old: Option<Vec<u8>>| {
                        assert_eq!(old, None);
                        computed.fetch_add(1, Ordering::SeqCst);
                        Timer::after(ms(100)).await;
                        Ok::<_, Infallible>(b"value".to_vec())
                    };
                    let options = ComputeOptions::new();
                    let value = client
                        .get_or_compute("k", secs(60), secs(5), &options, compute)
                        .await
                        .unwrap();
                    assert_eq!(value.bytes, b"value");
                    assert!(value.stored && !value.stale);
                    value.computed
                })
            })
            .collect();
        executor
            .run(async {
                let mut winners = 0;
                for reader in readers {
                    winners += u32::from(reader.await);
                }
                assert_eq!(winners, 1);
            })
            .await;
        assert_eq!(computed.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_failed_compute_releases_the_win() {
    on_each(async |client, server| {
        let options = ComputeOptions::new();
        let fail = async |_| Err::<Vec<u8>, _>("no database");
        let failed = client
            .get_or_compute("k", secs(60), secs(5), &options, fail)
            .await;
        assert!(matches!(failed, Err(ComputeError::Compute("no database"))));
        assert_eq!(server.ask("mg k v\r\n", "\r\n"), "EN\r\n");

        let hang = async |_| -> Result<Vec<u8>, Infallible> { std::future::pending().await };
        let dropped = client.get_or_compute("k", secs(60), secs(5), &options, hang);
        future::or(async { drop(dropped.await) }, async {
            Timer::after(ms(100)).await;
        })
        .await;
        let compute = async |_| Ok::<_, Infallible>(b"new".to_vec());
        let value = client
            .get_or_compute("k", secs(60), secs(5), &options, compute)
            .await
            .unwrap();
        assert!(value.computed);
    });
}

#[test]
fn the_stale_is_taken_or_waited_out() {
    on_each(async |client, server| {
        server.ask("set k 0 60 3\r\nold\r\n", "\r\n");
        server.ask("md k I\r\n", "\r\n");
        // Another client has the win.
        assert!(server.ask("mg k\r\n", "\r\n").contains('W'));
        let never = async |_| -> Result<Vec<u8>, Infallible> { unreachable!("no win") };
        let take = ComputeOptions::new().losers(Losers::TakeStale);
        let value = client
            .get_or_compute("k", secs(60), secs(0), &take, never)
            .await
            .unwrap();
        assert_eq!((value.bytes, value.stale), (b"old".to_vec(), true));
        let wait = ComputeOptions::new().deadline(ms(100));
        let waited = client
            .get_or_compute("k", secs(60), secs(0), &wait, never)
            .await;
        let Err(ComputeError::Client(error)) = waited else {
            panic!("{waited:?}");
        };
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    });
}

#[test]
fn impossible_options_are_refused_locally() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let options = LockOptions::new();
        let short = client.obtain("k", ms(9), &options).await;
        assert!(is(short, |kind| matches!(kind, ErrorKind::Terms(_))));
        let long = client.obtain("k", secs(30 * 24 * 3600), &options).await;
        assert!(is(long, |kind| matches!(kind, ErrorKind::Terms(_))));
        let key = client.obtain([b'k'; 251], secs(1), &options).await;
        assert!(is(key, |kind| matches!(
            kind,
            ErrorKind::Key(KeyError::Length)
        )));
        let big = options.metadata(vec![b'm'; 1 << 20]);
        let metadata = client.obtain("k", secs(1), &big).await;
        assert!(is(metadata, |kind| matches!(kind, ErrorKind::Token(_))));
        let nobody = Client::connect("127.0.0.1:1").await;
        assert!(nobody.unwrap_err().is_unreachable());
        let nonsense = Client::connect("host:port").await;
        assert!(is(nonsense, |kind| matches!(kind, ErrorKind::Address(_))));
        // In base64 it is longer than a key may be.
        let odd = client
            .obtain([b' '; 187], secs(1), &LockOptions::new())
            .await;
        assert!(is(odd, |kind| matches!(
            kind,
            ErrorKind::Key(KeyError::EncodedLength)
        )));
        let odd = client
            .obtain([b' '; 186], secs(1), &LockOptions::new())
            .await
            .unwrap();
        odd.release().await.unwrap();
        // A key that cannot stand on a line is written in base64.
        let odd = client
            .obtain("a b\n", secs(1), &LockOptions::new())
            .await
            .unwrap();
        odd.release().await.unwrap();
    });
}
