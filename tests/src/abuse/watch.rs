//! Measures the effect of an attack on clients that have no part in it.
//!
//! - Each innocent client requests one value every millisecond. The time to the answer counts.
//!   While one answer is late, the requests due meanwhile count as late too. Otherwise a stall of a
//!   second would be one sample in a thousand.
//! - Every ten milliseconds a new client connects and sends a request.
//! - One client of a second, idle server does the same as an innocent one. No attack reaches that server, so its
//!   delays are those of the machine.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::Client;

/// How many innocent clients there are: one a thread of the server, since clients are spread evenly.
const INNOCENTS: usize = 4;
/// How often each asks.
const PERIOD: Duration = Duration::from_millis(1);
/// The interval between new connections.
const FRESH_PERIOD: Duration = Duration::from_millis(10);
/// How long all is quiet before the attack, so that every client has been served once.
const LEAD: Duration = Duration::from_millis(200);
/// How long the innocent go on after the attack: its aftermath shows then.
const TRAIL: Duration = Duration::from_millis(300);

/// The delays of the innocent clients.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The longest that an innocent client waited.
    pub worst: Duration,
    /// The delay that one in a hundred of its requests reached or exceeded.
    pub p99: Duration,
    /// The longest that a new client waited from connecting to the first answer.
    pub fresh_worst: Duration,
    /// The longest that the client of the idle server waited: a delay of the machine.
    pub idle_worst: Duration,
    /// How many of the new clients were refused.
    pub refused: usize,
    /// Observations that no innocent client should make: its connection closed, an answer that
    /// makes no sense.
    pub wrongs: Vec<String>,
}

/// Lets the innocent clients work while `attack` runs against the server at `address`. An idle server is at `idle`.
///
/// # Errors
/// An innocent client cannot connect, or the attack returns an error.
pub fn watch<R>(
    address: SocketAddr,
    idle: SocketAddr,
    attack: impl FnOnce() -> io::Result<R>,
) -> io::Result<(Seen, R)> {
    let mut innocents = Client::connect_many(address, INNOCENTS)?;
    let mut of_idle = Client::connect(idle)?;
    for innocent in innocents.iter_mut().chain([&mut of_idle]) {
        innocent.send("set innocent 0 0 1\r\nx\r\n")?;
        innocent.line()?;
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking: Vec<_> = innocents
            .into_iter()
            .map(|innocent| scope.spawn(|| ask_on(innocent, &is_over)))
            .collect();
        let of_idle = scope.spawn(|| ask_on(of_idle, &is_over));
        let fresh = scope.spawn(|| connect_on(address, &is_over));
        thread::sleep(LEAD);
        let outcome = attack();
        thread::sleep(TRAIL);
        is_over.store(true, Ordering::Relaxed);
        let mut seen = fresh.join().expect("it does not panic");
        let mut waits_us = Vec::new();
        for innocent in asking {
            let (waits, wrong) = innocent.join().expect("it does not panic");
            waits_us.extend(waits);
            seen.wrongs.extend(wrong);
        }
        let (idle_waits_us, wrong) = of_idle.join().expect("it does not panic");
        seen.idle_worst = micros(idle_waits_us.into_iter().max().unwrap_or(0));
        seen.wrongs
            .extend(wrong.map(|wrong| format!("the idle server: {wrong}")));
        waits_us.sort_unstable();
        seen.worst = micros(waits_us.last().copied().unwrap_or(0));
        let p99 = waits_us.len().saturating_sub(waits_us.len() / 100 + 1);
        seen.p99 = micros(waits_us.get(p99).copied().unwrap_or(0));
        outcome.map(|outcome| (seen, outcome))
    })
}

fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Sends requests until all is over. Returns the time of each answer in microseconds, and the first
/// violation.
fn ask_on(mut innocent: Client, is_over: &AtomicBool) -> (Vec<u64>, Option<String>) {
    let period_us = u64::try_from(PERIOD.as_micros()).unwrap_or(u64::MAX);
    let mut waits_us = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let answer = innocent
            .send("get innocent\r\n")
            .and_then(|()| innocent.read_until("END"));
        let us = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
        waits_us.push(us);
        // The requests that were due while this one waited.
        let mut missed_us = us;
        while missed_us > 2 * period_us {
            missed_us -= period_us;
            waits_us.push(missed_us);
        }
        if let Err(error) = answer {
            return (waits_us, Some(format!("an innocent client: {error}")));
        }
        thread::sleep(PERIOD);
    }
    (waits_us, None)
}

/// Connects until all is over.
fn connect_on(address: SocketAddr, is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !is_over.load(Ordering::Relaxed) {
        let started = Instant::now();
        match Client::connect(address).and_then(|mut fresh| fresh.ask("mn")) {
            Ok(answer) if answer == "MN" => {}
            Ok(answer) if answer.starts_with("ERROR Too many open") => seen.refused += 1,
            Ok(answer) => seen.wrongs.push(format!("a new client read {answer:?}")),
            // The server said so, and our request behind its end has met a reset.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset
                        | io::ErrorKind::BrokenPipe
                        | io::ErrorKind::UnexpectedEof
                ) =>
            {
                seen.refused += 1;
            }
            Err(error) => {
                seen.wrongs.push(format!("a new client: {error}"));
                return seen;
            }
        }
        seen.fresh_worst = seen.fresh_worst.max(started.elapsed());
        thread::sleep(FRESH_PERIOD);
    }
    seen
}
