//! A process that believes: it holds locks and computes values through the client library, and
//! prints from when to when it was sure of each.
//!
//! Each line that it prints is a [`Belief`]. It ends with its standard input.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use latchd_client::blocking::Client;
use latchd_client::{ClientOptions, ComputeOptions, LockOptions, Retry};
use latchd_harness::random::Random;
use rustix::time::{ClockId, clock_gettime};

/// The time of a lock that ends with its connection, too. A lock that outlasts its connection may outlast a server that
/// records no times.
const TTL: Duration = Duration::from_millis(900);

/// The ttl of a computed value.
const VALUE_TTL: Duration = Duration::from_secs(1);

/// How many keys there are of each kind.
const KEYS: u64 = 4;

/// How long a call may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// Nanoseconds by the monotonic clock, which all processes of a machine have in common.
#[must_use]
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

/// A fact that a client can be sure of.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum What {
    /// That it holds a lock with a time of its own.
    Leased,
    /// That it holds a lock that ends with its connection.
    Bound,
    /// That it is the one to compute a value.
    Computes,
}

/// A client was sure of a fact from a moment to a later one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Belief {
    /// The fact.
    pub what: What,
    /// Of which key.
    pub key: u64,
    /// Nanoseconds, by [`monotonic`].
    pub from: u64,
    /// The last moment at which it was sure.
    pub until: u64,
}

impl fmt::Display for Belief {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            key,
            from,
            until,
        } = self;
        write!(formatter, "{what:?} {key} {from} {until}")
    }
}

impl Belief {
    /// Reads a line.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let all = [What::Leased, What::Bound, What::Computes];
        let word = words.next()?;
        let what = all.into_iter().find(|what| format!("{what:?}") == word)?;
        let mut number = || words.next()?.parse().ok();
        Some(Self {
            what,
            key: number()?,
            from: number()?,
            until: number()?,
        })
    }
}

/// Believes until the standard input ends.
///
/// # Errors
/// The address is invalid, or the output is closed.
pub fn believe(address: &str, seed: u64) -> io::Result<()> {
    let options = ClientOptions::new();
    let client = Client::new(address, options).map_err(io::Error::other)?;
    let is_over = AtomicBool::new(false);
    let told = Mutex::new(Vec::new());
    let tell = |belief: Belief| told.lock().expect("no panic poisons it").push(belief);
    thread::scope(|scope| {
        for (number, what) in [What::Leased, What::Bound, What::Computes]
            .into_iter()
            .enumerate()
        {
            let mut random = Random::new(seed.wrapping_mul(3) + number as u64);
            let (client, is_over, tell) = (&client, &is_over, &tell);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let key = random.below(KEYS);
                    // Some hold on for longer than the server is down.
                    let most = if random.chance(1, 4) { 900_000 } else { 30_000 };
                    let span = Duration::from_micros(random.below(most));
                    let believed = match what {
                        What::Leased => hold(client, &format!("leased-{key}"), TTL, span),
                        What::Bound => hold(client, &format!("bound-{key}"), Duration::ZERO, span),
                        What::Computes => compute(client, key, span),
                    };
                    match believed {
                        Some((from, until)) => tell(Belief {
                            what,
                            key,
                            from,
                            until,
                        }),
                        None => thread::sleep(Duration::from_millis(1)),
                    }
                }
            });
        }
        let ended = io::stdin().read_to_end(&mut Vec::new());
        is_over.store(true, Ordering::SeqCst);
        ended
    })?;
    let mut out = io::stdout().lock();
    for belief in told.into_inner().expect("no panic poisons it") {
        writeln!(out, "{belief}")?;
    }
    out.flush()
}

fn retry() -> Retry {
    Retry::linear(Duration::from_millis(5))
}

/// Checks that it is held until it is not, or the span is over. Returns the last moment at which it
/// was sure.
fn sure_for(from: u64, span: Duration, is_held: impl Fn() -> bool) -> u64 {
    let end = from + u64::try_from(span.as_nanos()).expect("it is short");
    let mut until = from;
    loop {
        let now = monotonic();
        if now > end || !is_held() {
            return until;
        }
        until = now;
        thread::sleep(Duration::from_micros(100));
    }
}

fn hold(client: &Client, key: &str, survive: Duration, span: Duration) -> Option<(u64, u64)> {
    let options = LockOptions::new()
        .survive(survive)
        .retry(retry())
        .deadline(DEADLINE);
    let lock = client.lock(key, &options).ok()?;
    let from = monotonic();
    let until = sure_for(from, span, || lock.is_held());
    // If it or the server is gone already, nothing needs to be done.
    let _ = lock.release();
    Some((from, until))
}

fn compute(client: &Client, key: u64, span: Duration) -> Option<(u64, u64)> {
    let options = ComputeOptions::new(VALUE_TTL).deadline(DEADLINE);
    let mut computed = None;
    let value = client.compute(format!("value-{key}"), &options, |_| {
        let from = monotonic();
        thread::sleep(span);
        computed = Some((from, monotonic()));
        Ok::<_, io::Error>(b"computed".to_vec())
    });
    value.ok().and(computed)
}
