//! Locks on real sockets, against latchd and memcached.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use latchd_client::{
    Client, ClientOptions, ComputeError, ComputeOptions, Detached, Error, ErrorKind, Exptime,
    Feature, LockOptions, Losers, Loss, NotObtained, Retry, TermsError, Token,
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

fn options() -> LockOptions {
    LockOptions::new()
}

fn patient() -> LockOptions {
    options()
        .retry(Retry::exponential(ms(1), ms(50)).with_jitter())
        .deadline(DUE)
}

async fn lock_and_release(client: &Client, key: &str, options: &LockOptions) {
    let lock = client.lock(key, options).await.unwrap();
    lock.release().await.unwrap();
}

/// Whether a key is free for another client.
async fn is_free(client: &Client, key: &str) -> bool {
    client.lock_state(key).await.unwrap().is_none()
}

#[test]
fn a_lock_has_one_holder_until_release() {
    on_each(async |client, server| {
        let other = Client::connect(&server.address()).await.unwrap();
        let lock = client
            .lock("k", &options().metadata("build-7"))
            .await
            .unwrap();
        assert!(lock.is_held());
        assert_eq!((lock.key(), lock.metadata()), (&b"k"[..], &b"build-7"[..]));
        let left = lock.remaining().unwrap();
        assert!(left > secs(8) && left <= secs(10), "{left:?}");
        let is_latchd = server.name() == "latchd";
        assert_eq!(lock.fence().is_some(), is_latchd);
        for client in [&client, &other] {
            let refused = client.try_lock("k", &options()).await.unwrap_err();
            assert!(refused.is_not_obtained(), "{refused}");
            assert!(refused.holder().is_some());
        }
        lock.check().await.unwrap();
        lock.refresh(secs(10)).await.unwrap();
        let ttl = lock.server_ttl().await.unwrap().unwrap();
        assert!(ttl > secs(8) && ttl <= secs(12), "{ttl:?}");
        let before = lock.fence();
        lock.release().await.unwrap();
        assert!(!lock.is_held() && is_free(&other, "k").await);
        assert!(lock.release().await.unwrap_err().is_not_held());

        let next = other.lock("k", &options()).await.unwrap();
        assert!(next.fence() > before || !is_latchd);
        next.release().await.unwrap();
    });
}

#[test]
fn a_lock_is_shown_to_others() {
    on_each(async |client, server| {
        assert!(is_free(&client, "k").await);
        let lock = client
            .lock("k", &options().metadata("build-7").with_item())
            .await
            .unwrap();
        let state = client.lock_state("k").await.unwrap().unwrap();
        assert_eq!(state.token.as_deref(), Some(lock.token().as_bytes()));
        assert_eq!(state.metadata.as_deref(), Some(&b"build-7"[..]));
        assert_eq!(state.fence, lock.fence());
        assert!(state.left.is_some());
        assert_eq!(state.holder.is_some(), server.name() == "latchd");
        lock.release().await.unwrap();
        let named = client.lock("k", &options()).await.unwrap();
        let state = client.lock_state("k").await.unwrap().unwrap();
        let metadata = String::from_utf8(state.metadata.unwrap().into_vec()).unwrap();
        let process = format!(":{}", std::process::id());
        assert!(
            metadata.starts_with("client-") && metadata.ends_with(&process),
            "{metadata}"
        );
        named.release().await.unwrap();
        server.ask("set k 0 0 1\r\n5\r\n", "\r\n");
        assert!(is_free(&client, "k").await, "a value is no lock");
    });
}

#[test]
fn a_lost_lock_is_neither_renewed_nor_released() {
    on_each(async |client, server| {
        let other = Client::connect(&server.address()).await.unwrap();
        let lock = client
            .lock("k", &options().manual().with_item())
            .await
            .unwrap();
        let lost = lock.lost();
        // An operator ends it, and another client takes the lock.
        server.end_lease("k");
        let next = other
            .lock("k", &options().manual().with_item())
            .await
            .unwrap();
        assert!(lock.check().await.unwrap_err().is_not_held());
        assert_eq!(lost.clone().await, Some(Loss::Taken));
        assert_eq!(lost.await, Some(Loss::Taken));
        assert!(!lock.is_held());
        assert!(lock.release().await.unwrap_err().is_not_held());
        assert!(next.is_held());
        next.check().await.unwrap();
        next.release().await.unwrap();
    });
}

#[test]
fn only_the_whole_token_takes_over() {
    on_each(async |client, server| {
        let other = Client::connect(&server.address()).await.unwrap();
        let own = |token: &str| options().token(Token::new(token.as_bytes()).unwrap());
        let before = client.lock("k", &own("abc").manual()).await.unwrap();
        let prefix = other.try_lock("k", &own("ab")).await;
        assert!(prefix.unwrap_err().is_not_obtained());
        let fence = before.fence();
        let after = other.try_lock("k", &own("abc").manual()).await.unwrap();
        assert_eq!(after.fence(), fence, "it is the same lock");
        after.check().await.unwrap();
        after.release().await.unwrap();
        assert!(before.release().await.unwrap_err().is_not_held());
    });
}

#[test]
fn many_are_had_all_or_none() {
    on_each(async |client, server| {
        let other = Client::connect(&server.address()).await.unwrap();
        let b = other.lock("b", &options()).await.unwrap();
        let all = client.try_lock_many(["c", "a", "b"], &options()).await;
        assert!(all.unwrap_err().is_not_obtained());
        for key in ["a", "c"] {
            let free = other.lock(key, &patient()).await.unwrap();
            free.release().await.unwrap();
        }
        b.release().await.unwrap();
        let all = client.lock_many(["c", "a", "b"], &options()).await.unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        let fences = if server.name() == "latchd" { 3 } else { 0 };
        assert_eq!(all.fences().count(), fences);
        all.refresh(secs(20)).await.unwrap();
        all.release().await.unwrap();
        let twice = client.lock_many(["a", "a"], &options()).await;
        assert!(is(twice, |kind| matches!(
            kind,
            ErrorKind::Terms(TermsError::Keys)
        )));
    });
}

#[test]
fn nothing_is_held_while_another_key_is_waited_for() {
    on_each(async |client, server| {
        let other = Client::connect(&server.address()).await.unwrap();
        let last = other.lock("z", &options()).await.unwrap();
        let waits = async { client.lock_many(["a", "z"], &patient()).await };
        let first = async {
            Timer::after(ms(100)).await;
            let first = other.lock("a", &patient()).await.unwrap();
            last.release().await.unwrap();
            Timer::after(ms(100)).await;
            first.release().await.unwrap();
        };
        let (both, ()) = future::zip(waits, first).await;
        both.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_lock_is_renewed_up_to_its_longest_hold() {
    on_each(async |client, _| {
        // On a busy machine a renewal may be three seconds late.
        let options = options().survive(secs(5)).hold_max(ms(7_500));
        let lock = client.lock("k", &options).await.unwrap();
        Timer::after(secs(6)).await;
        assert!(lock.is_held() && !is_free(&client, "k").await);
        assert_eq!(lock.lost().await, Some(Loss::HeldTooLong));
        assert!(!lock.is_held());
        lock_and_release(&client, "k", &patient()).await;
    });
}

/// A caller that waits for an answer has the connection in use: the renewal does not wait for it.
#[test]
fn a_lock_is_renewed_while_a_caller_stands_still() {
    on_each(async |client, _| {
        let options = options().survive(secs(3));
        let lock = client.lock("k", &options).await.unwrap();
        let waits = client.lock("k", &options);
        let mut waits = std::pin::pin!(waits);
        assert!(future::poll_once(waits.as_mut()).await.is_none());
        thread::sleep(ms(4_000));
        assert!(lock.is_held());
        lock.release().await.unwrap();
        waits.await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_manual_lock_ends_by_our_own_clock() {
    on_each(async |client, server| {
        let options = options().manual().survive(secs(1)).with_item();
        let obtained = Instant::now();
        let lock = client.lock("k", &options).await.unwrap();
        let lost = lock.lost();
        assert_eq!(lost.await, Some(Loss::Expired));
        let took = obtained.elapsed();
        assert!(took >= ms(950) && took < secs(3), "{took:?}");
        let refreshed = lock.refresh(secs(1)).await;
        assert!(is(refreshed, |kind| matches!(kind, ErrorKind::NotHeld(_))));
        // The client releases it behind the loss.
        eventually(|| (server.ask("mg k\r\n", "\r\n") == "EN\r\n").then_some(()));
        let lock = client.lock("k", &options).await.unwrap();
        lock.refresh(secs(60)).await.unwrap();
        Timer::after(secs(2)).await;
        assert!(lock.is_held());
        lock.release().await.unwrap();
    });
}

#[test]
fn an_exit_right_after_a_drop_gives_back() {
    const ADDRESS: &str = "TEST_ADDRESS";
    // An exit code that only this process can end with, after it has dropped.
    const HAS_DROPPED: i32 = 9;
    if let Ok(address) = std::env::var(ADDRESS) {
        // The process that the other half of this test has started.
        block_on(async {
            let client = Client::connect(&address).await.unwrap();
            let options = options().survive(secs(30)).with_item();
            drop(client.lock("held", &options).await.unwrap());
            let hang = async |_| -> Result<Vec<u8>, Infallible> { std::future::pending().await };
            let options = ComputeOptions::new(secs(30));
            let dropped = client.compute("won", &options, hang);
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
fn dropping_a_lock_releases_it() {
    on_each(async |client, server| {
        let other = Client::connect(&server.address()).await.unwrap();
        let long = patient().survive(secs(30));
        for options in [long.clone(), long.clone().with_item()] {
            drop(client.lock("k", &options).await.unwrap());
            lock_and_release(&other, "k", &options).await;

            // A dropped call leaves nothing behind, at any stage.
            let held = other.lock("k", &options).await.unwrap();
            for wait_ms in [0, 1, 20] {
                let obtain = async {
                    let lock = client.lock("k", &options).await;
                    unreachable!("it is held, and not {lock:?}");
                };
                future::or(obtain, async {
                    Timer::after(ms(wait_ms)).await;
                })
                .await;
            }
            held.release().await.unwrap();
            let lock = other.lock("k", &options).await.unwrap();
            lock.release().await.unwrap();
            for polls in 0..6 {
                let mut obtain = Box::pin(client.lock("k", &options));
                for _ in 0..polls {
                    if future::poll_once(obtain.as_mut()).await.is_some() {
                        break;
                    }
                    Timer::after(ms(1)).await;
                }
                drop(obtain);
                lock_and_release(&other, "k", &options).await;
            }
        }
    });
}

#[test]
fn a_restart_of_the_server_is_noticed_at_once() {
    for server in Started::all() {
        println!("against {}", server.name());
        let is_latchd = server.name() == "latchd";
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let short = options().survive(secs(0));
            let short = if is_latchd {
                Some(client.lock("short", &short).await.unwrap())
            } else {
                assert!(is(client.lock("short", &short).await, |kind| matches!(
                    kind,
                    ErrorKind::Unsupported(Feature::ShortLocks)
                )));
                None
            };
            let long = client
                .lock("k", &options().survive(secs(30)))
                .await
                .unwrap();
            let restart = server.successor();
            let stopped = Instant::now();
            drop(server);
            if let Some(short) = short {
                assert_eq!(short.lost().await, Some(Loss::Disconnected));
                assert!(stopped.elapsed() < secs(5) && !short.is_held());
                assert!(short.release().await.unwrap_err().is_not_held());
            } else {
                eventually(|| (!long.is_held()).then_some(()));
            }
            assert!(long.remaining().unwrap() > secs(20), "it is not lost");
            let fresh = Client::new(client.address(), ClientOptions::new()).unwrap();
            let refused = fresh.lock("other", &options()).await;
            assert!(refused.unwrap_err().is_unreachable());

            // The server has forgotten the lock, and says so.
            let server = restart();
            assert_eq!(long.lost().await, Some(Loss::Taken));
            let lock = client.lock("k", &options()).await.unwrap();
            lock.release().await.unwrap();
            drop(server);
        });
    }
}

#[test]
fn a_lock_survives_a_broken_connection() {
    on_each(async |_, server| {
        let proxy = Proxy::start(server.address());
        let client = Client::connect(&proxy.address()).await.unwrap();
        let lock = client.lock("k", &options()).await.unwrap();
        for _ in 0..3 {
            proxy.cut();
            lock.check().await.unwrap();
            assert!(lock.is_held());
        }
        proxy.cut();
        // Not even if it is released at that moment.
        lock.release().await.unwrap();
        let lock = client.lock("k", &options()).await.unwrap();
        lock.release().await.unwrap();
    });
}

#[test]
fn a_strategy_of_ones_own_is_used() {
    on_each(async |client, server| {
        let other = Client::connect(&server.address()).await.unwrap();
        let held = other.lock("k", &options()).await.unwrap();
        let three = options().retry_with([ms(0), ms(1), ms(2)]);
        assert!(
            client
                .lock("k", &three)
                .await
                .unwrap_err()
                .is_not_obtained()
        );
        let begun = Instant::now();
        let rare = std::iter::repeat(secs(60));
        let rare = options().retry_with(rare).deadline(ms(100));
        assert!(is(client.lock("k", &rare).await, |kind| matches!(
            kind,
            ErrorKind::NotObtained(NotObtained::Deadline)
        )));
        assert!(begun.elapsed() < secs(5));
        // A limit bounds a wait in a queue as well.
        let begun = Instant::now();
        let limited = options().retry(Retry::linear(ms(50)).limited(3));
        assert!(is(client.lock("k", &limited).await, |kind| matches!(
            kind,
            ErrorKind::NotObtained(NotObtained::Held)
        )));
        assert!(begun.elapsed() >= ms(100) && begun.elapsed() < secs(5));
        let none = options().retry(Retry::none());
        assert!(client.lock("k", &none).await.unwrap_err().is_not_obtained());
        held.release().await.unwrap();
    });
}

#[test]
fn a_lock_is_left_behind_and_gone_on_with() {
    on_each(async |client, server| {
        let other = Client::connect(&server.address()).await.unwrap();
        let token = latchd_client::random_token();
        let lock = client.lock("k", &options().token(token)).await.unwrap();
        let fence = lock.fence();
        let detached = lock.detach().await.unwrap().to_string();
        assert!(
            other
                .try_lock("k", &options())
                .await
                .unwrap_err()
                .is_not_obtained()
        );
        let detached: Detached = detached.parse().unwrap();
        let again = other.attach(&detached).await.unwrap();
        assert_eq!((again.fence(), again.key()), (fence, &b"k"[..]));
        again.check().await.unwrap();
        again.release().await.unwrap();
        assert!(client.attach(&detached).await.unwrap_err().is_not_held());
        lock_and_release(&client, "k", &options()).await;
    });
}

#[test]
fn a_lock_that_shares_its_session_is_not_left_behind() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        for options in [options(), options().survive(secs(0))] {
            let lock = client.lock("k", &options).await.unwrap();
            assert!(is(lock.detach().await, |kind| matches!(
                kind,
                ErrorKind::Terms(TermsError::Detached)
            )));
        }
        lock_and_release(&client, "k", &patient()).await;
    });
}

#[test]
fn a_release_that_failed_can_be_tried_again() {
    for server in Started::all() {
        let proxy = Proxy::start(server.address());
        block_on(async {
            let timeouts = ClientOptions::new().reply_timeout(ms(200));
            let client = Client::new(&proxy.address(), timeouts).unwrap();
            let long = options().survive(secs(30));
            let lock = client.lock("k", &long).await.unwrap();
            proxy.silence();
            assert!(lock.release().await.unwrap_err().is_unreachable());
            proxy.speak();
            let released = lock.release().await;
            released.unwrap_or_else(|error| assert!(error.is_not_held(), "{error}"));
            let next = client
                .lock("k", &patient().survive(secs(30)))
                .await
                .unwrap();
            drop(lock);
            next.check().await.unwrap();
            next.release().await.unwrap();
        });
    }
}

/// How many connections a server has.
fn connections(server: &Started) -> u64 {
    let stats = server.ask("stats\r\n", "END\r\n");
    let name = "STAT curr_connections ";
    let line = stats.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().parse().unwrap()
}

/// The descriptors that this process has open to this port.
fn descriptors(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    let remote = format!(":{port:04X} 01");
    table.lines().filter(|line| line.contains(&remote)).count()
}

#[test]
fn ten_thousand_locks_share_a_few_connections() {
    on_each(async |other, server| {
        let client = Client::connect(&server.address()).await.unwrap();
        let executor = Executor::new();
        let before = connections(&server);
        let (client, options) = (Arc::new(client), Arc::new(options().survive(secs(30))));
        let tasks: Vec<_> = (0..10_000)
            .map(|key| {
                let (client, options) = (Arc::clone(&client), Arc::clone(&options));
                executor.spawn(async move { client.lock(format!("k{key}"), &options).await })
            })
            .collect();
        let mut locks = Vec::new();
        executor
            .run(async {
                for task in tasks {
                    locks.push(task.await.unwrap());
                }
            })
            .await;
        assert!(
            connections(&server) - before <= 3,
            "{}",
            connections(&server)
        );
        assert!(descriptors(server.port()) <= 16);
        assert!(locks.iter().all(latchd_client::Lock::is_held));
        for key in ["k0", "k9999"] {
            assert!(
                other
                    .try_lock(key, &options)
                    .await
                    .unwrap_err()
                    .is_not_obtained()
            );
        }
        for lock in locks {
            lock.release().await.unwrap();
        }
    });
}

#[test]
fn each_lock_gets_its_own_replies() {
    on_each(async |client, _| {
        let executor = Executor::new();
        let tasks: Vec<_> = (0..64)
            .map(|task: usize| {
                let client = client.clone();
                executor.spawn(async move {
                    for turn in 0..10 {
                        // Two keys each; the neighbour has one of them as well.
                        let keys = [format!("k{task}"), format!("k{}", (task + 1) % 64)];
                        let lock = client.lock_many(keys, &patient()).await;
                        let lock = lock.unwrap_or_else(|error| panic!("{task}, {turn}: {error}"));
                        assert_eq!(lock.keys().count(), 2);
                        lock.check().await.unwrap();
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
fn a_waiter_waits_through_a_restart() {
    for server in Started::all() {
        println!("against {}", server.name());
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let other = Client::connect(&server.address()).await.unwrap();
            let held = other.lock("k", &options()).await.unwrap();
            let options = patient().deadline(secs(20));
            let restart = server.successor();
            let restarts = async {
                Timer::after(ms(300)).await;
                drop(server);
                Timer::after(ms(500)).await;
                restart()
            };
            let (lock, server) = future::zip(client.lock("k", &options), restarts).await;
            // The former holder knows that it is over.
            assert_eq!(held.lost().await, Some(Loss::Taken));
            lock.unwrap().release().await.unwrap();
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
    async fn work(&self, number: Option<u64>) {
        assert_eq!(self.now.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
        if let Some(number) = number {
            assert!(self.number.swap(number, Ordering::SeqCst) < number);
        }
        Timer::after(ms(1)).await;
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_lock_serves_a_hundred_contenders() {
    for server in Started::all() {
        println!("against {}", server.name());
        let is_latchd = server.name() == "latchd";
        let clients =
            [(); 4].map(|()| Client::new(&server.address(), ClientOptions::new()).unwrap());
        let spans: &[_] = if is_latchd {
            &[secs(10), secs(0), ms(900)]
        } else {
            &[secs(10)]
        };
        for survive in spans {
            let next = AtomicU32::new(0);
            contend(|inside| {
                let place = next.fetch_add(1, Ordering::SeqCst) as usize % clients.len();
                let client = clients[place].clone();
                async move {
                    let lock = client
                        .lock("k", &patient().survive(*survive))
                        .await
                        .unwrap();
                    inside
                        .work(lock.fence().map(latchd_client::Fence::number))
                        .await;
                    lock.release().await.unwrap();
                }
            });
        }
    }
}

#[test]
fn the_holder_reads_and_writes_the_item() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let lock = client.lock("k", &options()).await.unwrap();
        assert_eq!(lock.get().await.unwrap(), None);
        lock.set("6", Exptime::Never).await.unwrap();
        assert_eq!(server.ask("set k 0 0 1\r\n9\r\n", "\r\n"), "LOCKED\r\n");
        assert_eq!(lock.get().await.unwrap().unwrap(), b"6");
        lock.release_with("7", Exptime::Never).await.unwrap();
        assert!(!lock.is_held());
        assert_eq!(lock.lost().await, None);
        assert!(
            lock.set("8", Exptime::Never)
                .await
                .unwrap_err()
                .is_not_held()
        );
        assert_eq!(
            server.ask("get k\r\n", "END\r\n"),
            "VALUE k 0 1\r\n7\r\nEND\r\n"
        );
        assert_eq!(server.ask("set k 0 0 1\r\n8\r\n", "\r\n"), "STORED\r\n");

        // A key may be any bytes, and needs no item.
        let blank = client.lock("a b\n", &options()).await.unwrap();
        blank.set("v", Exptime::Never).await.unwrap();
        assert_eq!(blank.get().await.unwrap().unwrap(), b"v");
        assert!(blank.fence().is_some());
        blank.release().await.unwrap();
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
                    let options = ComputeOptions::new(secs(60)).early(secs(5));
                    let value = client.compute("k", &options, compute).await.unwrap();
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
        let options = ComputeOptions::new(secs(60)).early(secs(5));
        let fail = async |_| Err::<Vec<u8>, _>("no database");
        let failed = client.compute("k", &options, fail).await;
        assert!(matches!(failed, Err(ComputeError::Compute("no database"))));
        assert_eq!(server.ask("mg k v\r\n", "\r\n"), "EN\r\n");

        let hang = async |_| -> Result<Vec<u8>, Infallible> { std::future::pending().await };
        let dropped = client.compute("k", &options, hang);
        future::or(async { drop(dropped.await) }, async {
            Timer::after(ms(100)).await;
        })
        .await;
        let compute = async |_| Ok::<_, Infallible>(b"new".to_vec());
        let value = client.compute("k", &options, compute).await.unwrap();
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
        let take = ComputeOptions::new(secs(60)).losers(Losers::TakeStale);
        let value = client.compute("k", &take, never).await.unwrap();
        assert_eq!((value.bytes, value.stale), (b"old".to_vec(), true));
        let wait = ComputeOptions::new(secs(60)).deadline(ms(100));
        let waited = client.compute("k", &wait, never).await;
        let Err(ComputeError::Client(error)) = waited else {
            panic!("{waited:?}");
        };
        assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
    });
}

#[test]
fn short_locks_end_by_time_or_with_their_connection() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    block_on(async {
        let other = Client::connect(&server.address()).await.unwrap();
        let client = Client::connect(&proxy.address()).await.unwrap();
        let short = options().survive(ms(900));
        let lock = client.lock("k", &short).await.unwrap();
        Timer::after(ms(2_000)).await;
        assert!(lock.is_held(), "it is renewed");
        proxy.cut();
        assert_eq!(lock.lost().await, Some(Loss::Disconnected));
        lock_and_release(&other, "k", &patient()).await;
        let manual = client.lock("k", &short.clone().manual()).await.unwrap();
        assert_eq!(manual.lost().await, Some(Loss::Expired));
        lock_and_release(&other, "k", &patient()).await;
        let stalled = client.lock("k", &short).await.unwrap();
        proxy.silence();
        assert_eq!(stalled.lost().await, Some(Loss::Expired));
        lock_and_release(&other, "k", &patient()).await;
        proxy.speak();
    });
}

#[test]
fn impossible_options_are_refused() {
    on_each(async |client, server| {
        let terms = |result, error| {
            is(
                result,
                |kind| matches!(kind, ErrorKind::Terms(shown) if *shown == error),
            )
        };
        let try_with = async |options: LockOptions| client.try_lock("k", &options).await;
        assert!(terms(
            try_with(options().hold_max(secs(0))).await,
            TermsError::HoldMax
        ));
        assert!(terms(
            try_with(options().manual().survive(secs(0))).await,
            TermsError::Manual
        ));
        assert!(terms(
            try_with(options().survive(secs(30 * 24 * 3_600))).await,
            TermsError::TtlTooLong
        ));
        assert!(terms(
            try_with(options().metadata(vec![b'm'; 251])).await,
            TermsError::Metadata
        ));
        if server.name() == "latchd" {
            assert!(terms(
                try_with(options().survive(ms(9))).await,
                TermsError::TtlTooShort
            ));
            assert!(terms(
                try_with(options().survive(secs(3_601))).await,
                TermsError::TtlTooLong
            ));
            assert!(terms(
                try_with(options().inheritable()).await,
                TermsError::Inherited
            ));
            assert!(terms(
                try_with(options().shared().with_item()).await,
                TermsError::SharedItem
            ));
        } else {
            let unsupported = |result, feature| {
                is(
                    result,
                    |kind| matches!(kind, ErrorKind::Unsupported(shown) if *shown == feature),
                )
            };
            assert!(unsupported(
                try_with(options().survive(ms(999))).await,
                Feature::ShortLocks
            ));
            assert!(unsupported(
                try_with(options().shared()).await,
                Feature::SharedLocks
            ));
        }
        let key = client.lock([b'k'; 251], &options()).await;
        assert!(is(key, |kind| matches!(
            kind,
            ErrorKind::Terms(TermsError::Key)
        )));
        let nobody = Client::connect("127.0.0.1:1").await;
        assert!(nobody.unwrap_err().is_unreachable());
        let nonsense = Client::connect("host:port").await;
        assert!(is(nonsense, |kind| matches!(kind, ErrorKind::Address(_))));
        // In base64 it is longer than a key may be.
        let odd = client.lock([b' '; 187], &options()).await;
        assert!(is(odd, |kind| matches!(
            kind,
            ErrorKind::Terms(TermsError::EncodedKey)
        )));
        let odd = client.lock([b' '; 186], &options()).await.unwrap();
        odd.release().await.unwrap();
        let early = ComputeOptions::new(secs(10)).early(secs(60));
        let never = async |_| -> Result<Vec<u8>, Infallible> { unreachable!("no win") };
        let computed = client.compute("k", &early, never).await;
        let Err(ComputeError::Client(error)) = computed else {
            panic!("{computed:?}")
        };
        assert!(matches!(error.kind(), ErrorKind::Terms(TermsError::Early)));
    });
}
