//! Many clients want one lease while the network and the server do their worst: at no moment do two of them
//! believe that they hold it.
//!
//! It runs for a few seconds; `LATCHD_STRESS_SECS=600 cargo test --release -p latchd --test believers` is
//! the long run.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use latchd::client::{Client, ClientOptions, Lock, LockOptions, Retry};
use smol::block_on;
use support::{Proxy, Started};

const CLIENTS: usize = 6;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn span() -> Duration {
    let secs = std::env::var("LATCHD_STRESS_SECS").ok();
    Duration::from_secs(secs.map_or(4, |secs| secs.parse().unwrap()))
}

/// Numbers that look like chance, and are the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What the clients hold, for whoever looks.
struct Holders {
    held: Vec<Mutex<Option<Arc<Lock>>>>,
    is_over: AtomicBool,
    grants: AtomicU64,
    looks: AtomicU64,
    /// Looks at which somebody believed.
    seen: AtomicU64,
}

impl Holders {
    fn get(&self, client: usize) -> Option<Arc<Lock>> {
        self.held[client].lock().unwrap().clone()
    }

    /// Obtains, holds for a while, and gives back, over and over.
    fn contend(&self, client: usize, address: &str) {
        let options = ClientOptions::new()
            .connect_timeout(ms(500))
            .reply_timeout(ms(300));
        let latchd = Client::new(address, options).unwrap();
        let mut chance = Chance(client as u64);
        while !self.is_over.load(Ordering::SeqCst) {
            let options = LockOptions::new()
                .retry(Retry::linear(ms(10)).with_jitter())
                .deadline(ms(2_000));
            let Ok(lock) = block_on(latchd.obtain("k", ms(1_000), &options)) else {
                thread::sleep(ms(5));
                continue;
            };
            self.grants.fetch_add(1, Ordering::SeqCst);
            let lock = Arc::new(lock);
            *self.held[client].lock().unwrap() = Some(Arc::clone(&lock));
            thread::sleep(ms(chance.below(300)));
            if chance.below(4) > 0 {
                // Whether it was ours to the end is not the question here.
                let _ = block_on(lock.try_release());
            }
            *self.held[client].lock().unwrap() = None;
        }
    }

    /// Looks whether two believe: one of them before and after the other.
    fn look(&self) {
        for one in 0..CLIENTS {
            self.looks.fetch_add(1, Ordering::SeqCst);
            let Some(first) = self.get(one).filter(|lock| lock.is_held()) else {
                continue;
            };
            self.seen.fetch_add(1, Ordering::SeqCst);
            for other in (0..CLIENTS).filter(|other| *other != one) {
                let Some(second) = self.get(other) else {
                    continue;
                };
                let both = second.is_held() && first.is_held();
                assert!(!both, "{first:?} and {second:?} at once");
            }
        }
    }
}

/// Lets them contend while `harm` is done, again and again, with a number that looks like chance.
fn stress(name: &str, addresses: &[String], mut harm: impl FnMut(&mut Chance)) {
    let holders = Holders {
        held: (0..CLIENTS).map(|_| Mutex::new(None)).collect(),
        is_over: AtomicBool::new(false),
        grants: AtomicU64::new(0),
        looks: AtomicU64::new(0),
        seen: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        for (client, address) in addresses.iter().enumerate() {
            let holders = &holders;
            scope.spawn(move || holders.contend(client, address));
        }
        let looks = scope.spawn(|| {
            while !holders.is_over.load(Ordering::SeqCst) {
                holders.look();
                thread::sleep(Duration::from_micros(50));
            }
        });
        let (begun, mut chance) = (Instant::now(), Chance(1));
        while begun.elapsed() < span() && !looks.is_finished() {
            harm(&mut chance);
        }
        holders.is_over.store(true, Ordering::SeqCst);
        looks.join().unwrap();
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    println!(
        "{name}: {} grants, {} looks, at {} of them somebody believed",
        count(&holders.grants),
        count(&holders.looks),
        count(&holders.seen)
    );
    assert!(count(&holders.grants) > 5 && count(&holders.seen) > 100);
}

#[test]
fn no_two_believe_through_a_network_that_delays_cuts_and_stalls() {
    for server in Started::all() {
        let proxies: Vec<Proxy> = (0..CLIENTS)
            .map(|_| Proxy::start(server.address()))
            .collect();
        let addresses: Vec<String> = proxies.iter().map(Proxy::address).collect();
        stress(server.name(), &addresses, |chance| {
            let index = usize::try_from(chance.below(CLIENTS as u64)).unwrap();
            let proxy = &proxies[index];
            match chance.below(6) {
                0 => proxy.cut(),
                1 => proxy.silence(),
                2 => proxy.delay(ms(chance.below(400))),
                3 => proxy.delay(ms(0)),
                _ => proxy.speak(),
            }
            thread::sleep(ms(chance.below(60)));
        });
        for proxy in proxies {
            proxy.speak();
        }
    }
}

#[test]
fn no_two_believe_through_restarts_of_the_server() {
    for server in Started::all() {
        let addresses = vec![server.address(); CLIENTS];
        let name = server.name();
        let mut running = Some(server);
        stress(name, &addresses, |chance| {
            thread::sleep(ms(500 + chance.below(1_000)));
            let restart = running.as_ref().unwrap().successor();
            running = None;
            thread::sleep(ms(chance.below(100)));
            running = Some(restart());
        });
    }
}
