//! Many clients contend for one lock while the network and the server do their worst: at no moment
//! do two of them believe that they hold it.
//!
//! - B1: this holds for a lock that survives, on latchd and on memcached; through restarts on memcached.
//! - B2: this holds for a lock that ends with its connection as long as no connection breaks. After a break, the client
//!   knows of it within its heartbeat and its reply timeout. A lock that survives outlasts a restart of a latchd without
//!   `--state` for at most its time.
//! - B3: the fences of a key rise in all cases. A change in the right of a grant that is over is refused.
//! - B5: no lock that survives is lost while its session lives, though the network is cut for up to twice its time.
//!
//! Each of the five runs takes a few seconds a server; `TEST_STRESS_SECS` says how many.
//! `TEST_MEMCACHED` is a memcached to test besides the one on PATH. docs/CLIENT.md has the
//! long run.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use latchd_client::{
    Client, ClientOptions, Error, Exptime, Fence, Lock, LockOptions, Loss, Outcome, Retry,
};

use crate::support::{Proxy, Started, eventually};
use smol::block_on;

const CLIENTS: usize = 6;

/// How often a lock is confirmed, and how long an answer may take.
const HEARTBEAT: Duration = ms(200);
const REPLY_TIMEOUT: Duration = ms(300);

/// How long two clients with broken connections may believe (B2); the rest is for a machine that
/// does other things too.
const BOTH_MAX: Duration = ms(500 + 2_000);

/// The time of a session.
const SESSION: Duration = ms(1_000);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How many times as long they contend while too few cases were met.
const SPANS_MAX: u32 = 5;

fn span() -> Duration {
    let secs = std::env::var("TEST_STRESS_SECS").ok();
    Duration::from_secs(secs.map_or(4, |secs| secs.parse().unwrap()))
}

/// Pseudo-random numbers, the same in each run.
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

/// A counter, with its name.
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A lock that its client has lost.
#[derive(Clone, Copy, Debug)]
struct Lost {
    client: usize,
    /// Of the grant.
    number: u64,
    loss: Loss,
    /// When it was found, a few milliseconds after it at most.
    at: Instant,
}

/// The locks that the clients hold, for the observer.
#[derive(Default)]
struct Holders {
    held: [Mutex<Option<Arc<Lock>>>; CLIENTS],
    is_over: AtomicBool,
    /// Whether they change the item, too.
    changes: bool,
    /// How long two may believe at most.
    both_max: Duration,
    grants: Count,
    losses: Count,
    /// The lost locks.
    lost: Mutex<Vec<Lost>>,
    looks: Count,
    /// Observations in which a client believed.
    seen: Count,
    /// Times that two did, and the longest of them, in microseconds.
    both: Count,
    both_us_max: AtomicU64,
    /// The highest fence of the key.
    highest: AtomicU64,
    /// Changes in the right of a grant that were made, and that came too late.
    made: Count,
    refused: Count,
}

impl Holders {
    /// The clients that change the item in the right of their grants.
    fn of_changes() -> Self {
        Self {
            changes: true,
            ..Self::default()
        }
    }

    /// Whether enough cases were met.
    fn is_enough(&self) -> bool {
        let has_grants = self.grants.get() > 5 && self.seen.get() > 100;
        let has_changes = self.made.get() > 5 && self.refused.get() > 5;
        has_grants && (has_changes || !self.changes)
    }

    fn get(&self, client: usize) -> Option<Arc<Lock>> {
        self.held[client].lock().unwrap().clone()
    }

    fn show(&self, client: usize, lock: Arc<Lock>) {
        self.grants.add();
        *self.held[client].lock().unwrap() = Some(lock);
    }

    /// Counts a loss while the lock is held.
    fn count_loss(&self, lock: &Lock) {
        if !lock.is_held() {
            self.losses.add();
        }
    }

    fn hide(&self, client: usize) {
        *self.held[client].lock().unwrap() = None;
    }

    /// Repeats `turn`.
    fn contend(&self, client: usize, address: &str, turn: Turn) {
        let options = ClientOptions::new()
            .connect_timeout(ms(500))
            .reply_timeout(REPLY_TIMEOUT)
            .heartbeat(HEARTBEAT);
        let latchd = Client::new(address, options).unwrap();
        let mut chance = Chance(client as u64);
        while !self.is_over.load(Ordering::SeqCst) {
            if turn(self, client, &latchd, &mut chance).is_err() {
                thread::sleep(ms(5));
            }
        }
    }

    /// Checks whether two believe: one of them is read before and after the other.
    fn look(&self) {
        for one in 0..CLIENTS {
            self.looks.add();
            let Some(first) = self.get(one).filter(|lock| lock.is_held()) else {
                continue;
            };
            self.seen.add();
            for other in (0..CLIENTS).filter(|other| *other != one) {
                let Some(second) = self.get(other) else {
                    continue;
                };
                if second.is_held() && first.is_held() {
                    self.see_both(&first, &second);
                }
            }
        }
    }

    fn see_both(&self, first: &Lock, second: &Lock) {
        let begun = Instant::now();
        while second.is_held() && first.is_held() {
            let lasts = begun.elapsed();
            assert!(lasts < self.both_max, "{first:?} and {second:?} at once");
            thread::sleep(Duration::from_micros(50));
        }
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap();
        assert!(!self.both_max.is_zero(), "{first:?} and {second:?} at once");
        self.both.add();
        self.both_us_max.fetch_max(us, Ordering::SeqCst);
    }

    /// Changes the item in the right of a grant, and checks whether that was in force (B3).
    fn change(&self, client: &Client, number: u64, is_over: bool) {
        let is_over = is_over || self.highest.load(Ordering::SeqCst) > number;
        let value = number.to_string();
        match block_on(
            client
                .in_grant(Fence::new(number).unwrap())
                .set("k", value, Exptime::Never),
        ) {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Done);
                assert!(!is_over, "{number} was over, and changed something");
                self.made.add();
            }
            Err(error) if error.is_not_held() => self.refused.add(),
            // The outcome is unknown.
            Err(_) => {}
        }
    }
}

/// One round of a client.
type Turn = fn(&Holders, usize, &Client, &mut Chance) -> Result<(), Error>;

fn options(survive: Duration) -> LockOptions {
    LockOptions::new()
        .survive(survive)
        .retry(Retry::linear(ms(10)).with_jitter())
        .deadline(ms(2_000))
}

/// Takes a lock that survives, holds it for a while, and releases it or not; on any server.
fn hold(
    holders: &Holders,
    place: usize,
    client: &Client,
    chance: &mut Chance,
) -> Result<(), Error> {
    let lock = Arc::new(block_on(client.lock("k", &options(SESSION)))?);
    holders.show(place, lock.clone());
    thread::sleep(ms(chance.below(300)));
    holders.count_loss(&lock);
    if chance.below(4) > 0 {
        // Whether it was ours to the end does not matter here.
        let _ = block_on(lock.release());
    }
    holders.hide(place);
    Ok(())
}

/// Takes a lock that ends with its connection, changes the item under it, and releases it or not. Then tries to change it
/// once more.
fn bind(
    holders: &Holders,
    place: usize,
    client: &Client,
    chance: &mut Chance,
) -> Result<(), Error> {
    change_under(Duration::ZERO, 100, holders, place, client, chance)
}

/// As [`bind`], with a lock that survives. One in four is held for longer than its time.
fn bind_in_session(
    holders: &Holders,
    place: usize,
    client: &Client,
    chance: &mut Chance,
) -> Result<(), Error> {
    let held_ms = if chance.below(4) == 0 { 2_500 } else { 100 };
    change_under(SESSION, held_ms, holders, place, client, chance)
}

fn change_under(
    survive: Duration,
    held_ms: u64,
    holders: &Holders,
    place: usize,
    client: &Client,
    chance: &mut Chance,
) -> Result<(), Error> {
    let before = holders.highest.load(Ordering::SeqCst);
    let lock = Arc::new(block_on(client.lock("k", &options(survive)))?);
    let number = lock.fence().unwrap().number();
    assert!(number > before, "{number} comes after {before}");
    holders.highest.fetch_max(number, Ordering::SeqCst);
    holders.show(place, lock.clone());
    holders.change(client, number, false);
    let (mut at, held_ms) = (Instant::now(), chance.below(held_ms));
    let until = at + ms(held_ms);
    while at < until && lock.is_held() {
        thread::sleep(ms(10).min(until - at));
        at = Instant::now();
    }
    holders.count_loss(&lock);
    if !lock.is_held() {
        let lost = Lost {
            client: place,
            number,
            loss: block_on(lock.lost()).unwrap(),
            at,
        };
        holders.lost.lock().unwrap().push(lost);
    }
    holders.hide(place);
    let is_over = chance.below(4) > 0 && block_on(lock.release()).is_ok();
    // The observer has it for a moment still.
    let mut shared = Err(lock);
    while let Err(lock) = shared {
        thread::yield_now();
        shared = Arc::try_unwrap(lock);
    }
    drop(shared);
    holders.change(client, number, is_over);
    Ok(())
}

/// The harm done to the clients and to their server.
#[derive(Default)]
struct Harm {
    cuts: Count,
    stalls: Count,
    delays: Count,
    restarts: Count,
}

impl Harm {
    /// Does something to one of the connections; breaks it only if it `may_break` it.
    fn network(&self, proxies: &[Proxy], may_break: bool, chance: &mut Chance) {
        let place = usize::try_from(chance.below(CLIENTS as u64)).unwrap();
        let proxy = &proxies[place];
        match chance.below(9) {
            0 if may_break => {
                proxy.cut();
                self.cuts.add();
            }
            1 if may_break => {
                proxy.cut_behind();
                self.cuts.add();
            }
            2 => {
                proxy.silence();
                self.stalls.add();
            }
            3 => {
                proxy.delay(ms(chance.below(400)));
                self.delays.add();
            }
            4 => proxy.delay(ms(0)),
            _ => proxy.speak(),
        }
        thread::sleep(ms(chance.below(60)));
    }

    fn restart(&self, server: &mut Option<Started>, chance: &mut Chance) {
        let restart = server.as_ref().unwrap().successor();
        *server = None;
        thread::sleep(ms(chance.below(100)));
        *server = Some(restart());
        self.restarts.add();
    }
}

/// Lets them contend while harm is done, again and again, with a pseudo-random number.
fn stress(
    name: &str,
    addresses: &[String],
    turn: Turn,
    holders: &Holders,
    mut harm: impl FnMut(&Harm, &mut Chance),
) {
    let done = Harm::default();
    thread::scope(|scope| {
        for (client, address) in addresses.iter().enumerate() {
            scope.spawn(move || holders.contend(client, address, turn));
        }
        let looks = scope.spawn(|| {
            while !holders.is_over.load(Ordering::SeqCst) {
                holders.look();
                thread::sleep(Duration::from_micros(50));
            }
        });
        let (begun, mut chance) = (Instant::now(), Chance(1));
        // Two leases that no client could release take most of a short span.
        let is_over = || {
            let spans = if holders.is_enough() { 1 } else { SPANS_MAX };
            begun.elapsed() >= span() * spans
        };
        while !is_over() && !looks.is_finished() {
            harm(&done, &mut chance);
        }
        holders.is_over.store(true, Ordering::SeqCst);
        looks.join().unwrap();
    });
    println!(
        "{name}: {} grants, {} of them lost; {} cuts, {} stalls, {} delays, {} restarts; {} looks, somebody believed at \
         {}; two did {} times, for at most {} us; {} changes made, {} refused",
        holders.grants.get(),
        holders.losses.get(),
        done.cuts.get(),
        done.stalls.get(),
        done.delays.get(),
        done.restarts.get(),
        holders.looks.get(),
        holders.seen.get(),
        holders.both.get(),
        holders.both_us_max.load(Ordering::SeqCst),
        holders.made.get(),
        holders.refused.get(),
    );
    assert!(holders.is_enough());
}

/// A way to the server for each client.
fn proxies(server: &Started) -> (Vec<Proxy>, Vec<String>) {
    let proxies = (0..CLIENTS).map(|_| Proxy::start(server.address()));
    let proxies: Vec<Proxy> = proxies.collect();
    let addresses = proxies.iter().map(Proxy::address).collect();
    (proxies, addresses)
}

fn speak_all(proxies: &[Proxy]) {
    for proxy in proxies {
        proxy.delay(ms(0));
        proxy.speak();
    }
}

#[test]
fn a_lock_that_survives_excludes_over_a_bad_network() {
    for server in Started::every() {
        let (proxies, addresses) = proxies(&server);
        let name = format!("survives, network, {} {}", server.name(), server.version());
        let holders = Holders::default();
        stress(&name, &addresses, hold, &holders, |harm, chance| {
            harm.network(&proxies, true, chance);
        });
        speak_all(&proxies);
    }
}

#[test]
fn a_lock_that_survives_excludes_through_restarts() {
    for server in Started::every() {
        let addresses = vec![server.address(); CLIENTS];
        let name = format!("survives, restarts, {} {}", server.name(), server.version());
        let mut running = Some(server);
        // B2: a latchd without `--state` grants at once.
        let both_max = if name.contains("latchd") {
            SESSION + BOTH_MAX
        } else {
            ms(0)
        };
        let holders = Holders {
            both_max,
            ..Holders::default()
        };
        stress(&name, &addresses, hold, &holders, |harm, chance| {
            thread::sleep(ms(500 + chance.below(1_000)));
            harm.restart(&mut running, chance);
        });
    }
}

#[test]
fn a_lock_of_a_connection_excludes_over_a_bad_network() {
    let server = Started::latchd();
    let (proxies, addresses) = proxies(&server);
    let name = "of a connection, network, latchd";
    let holders = Holders::of_changes();
    stress(name, &addresses, bind, &holders, |harm, chance| {
        harm.network(&proxies, false, chance);
    });
    speak_all(&proxies);
}

/// The word of the server: the session of each grant, and how each session has ended.
#[derive(Default)]
struct Told {
    sessions: HashMap<u64, u64>,
    ends: HashMap<u64, String>,
}

impl Told {
    /// Watches a server until it closes.
    fn watch(server: &Started) -> Arc<Mutex<Self>> {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.write_all(b"watch locks\r\n").unwrap();
        let mut lines = BufReader::new(socket).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "OK");
        let told = Arc::new(Mutex::new(Self::default()));
        let noted = Arc::clone(&told);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                noted.lock().unwrap().note(&line);
            }
        });
        told
    }

    fn note(&mut self, line: &str) {
        let words = line.split(' ').filter_map(|word| word.split_once('='));
        let words: HashMap<_, _> = words.collect();
        let number = |name| words.get(name).and_then(|word| word.parse().ok());
        let Some(session) = number("session") else {
            return;
        };
        match (words.get("event"), number("fence"), words.get("status")) {
            (Some(&event @ ("end" | "expire")), ..) => {
                self.ends.insert(session, event.to_owned());
            }
            (_, Some(fence), Some(&"granted")) => {
                self.sessions.insert(fence, session);
            }
            _ => {}
        }
    }

    /// Whether a lock was lost in the right: the time of its session was over, by the server's clock or, a little before, by
    /// its client's, which then ends it. `None` if the session lives so far.
    fn allows(&self, lost: Lost) -> Option<bool> {
        let end = self.ends.get(self.sessions.get(&lost.number)?)?;
        Some(end == "expire" || lost.loss == Loss::Expired)
    }
}

/// The outages of one way to the server, each from its beginning to its end.
type Outages = Vec<(Instant, Instant)>;

/// Cuts ways for 0 to 2 times of a session each: in the midst of requests, or by silence.
fn cut_ways(harm: &Harm, proxies: &[Proxy], outages: &mut [Outages; CLIENTS], chance: &mut Chance) {
    for (proxy, outages) in proxies.iter().zip(outages) {
        let now = Instant::now();
        if outages.last().is_some_and(|(_, until)| now < *until) {
            continue;
        }
        proxy.speak();
        if chance.below(40) == 0 {
            let span_ms = chance.below(2 * u64::try_from(SESSION.as_millis()).unwrap());
            outages.push((now, now + ms(span_ms)));
            proxy.silence();
            match chance.below(3) {
                0 => proxy.cut(),
                1 => proxy.cut_behind(),
                _ => {}
            }
            harm.cuts.add();
        }
    }
    thread::sleep(ms(chance.below(60)));
}

#[test]
fn a_session_excludes_over_a_bad_network() {
    let server = Started::latchd();
    let told = Told::watch(&server);
    let (proxies, addresses) = proxies(&server);
    let name = "session, network, latchd";
    let holders = Holders::of_changes();
    let mut outages: [Outages; CLIENTS] = Default::default();
    stress(
        name,
        &addresses,
        bind_in_session,
        &holders,
        |harm, chance| cut_ways(harm, &proxies, &mut outages, chance),
    );
    speak_all(&proxies);
    let lost = holders.lost.lock().unwrap();
    for &lost in &*lost {
        let is_allowed = eventually(|| told.lock().unwrap().allows(lost));
        assert!(is_allowed, "B5: {lost:?} while its session lived");
        // Its way was cut within the last time of the session.
        let is_of_it =
            |(from, until): &(Instant, Instant)| *from <= lost.at && lost.at <= *until + SESSION;
        let is_cut = outages[lost.client].iter().any(is_of_it);
        assert!(is_cut, "B5: {lost:?} over a way that was there");
    }
    let by_server = lost.iter().filter(|lost| lost.loss != Loss::Expired);
    println!(
        "{name}: of {} lost locks, the server told of {}",
        lost.len(),
        by_server.count()
    );
}

#[test]
fn writes_under_a_broken_lock_are_refused() {
    let server = Started::latchd();
    let (proxies, addresses) = proxies(&server);
    let mut running = Some(server);
    let name = "of a connection, breaks and restarts, latchd";
    let holders = Holders {
        both_max: BOTH_MAX,
        ..Holders::of_changes()
    };
    stress(name, &addresses, bind, &holders, |harm, chance| {
        if chance.below(40) == 0 {
            harm.restart(&mut running, chance);
        } else {
            harm.network(&proxies, true, chance);
        }
    });
    speak_all(&proxies);
}
