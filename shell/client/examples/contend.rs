//! How evenly clients that want one lock are served: obtain, hold, release, over and over.
//!
//! `cargo run --release -p latchd-client --example contend -- 127.0.0.1:11211 [CONTENDERS [SECONDS [HOLD_MS]]]`
//!
//! Each contender is a client of its own, and asks again as soon as it has released. The output shows how often the
//! most and the least served contender obtained the lock, and the mean.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use latchd_client::{Client, ClientOptions, Error, LockOptions, Retry};
use smol::Timer;

const SURVIVE: Duration = Duration::from_secs(10);

/// Obtains and releases until `end`; returns how often.
async fn contend(server: &str, hold: Duration, end: Instant) -> Result<u64, Error> {
    let client = Client::new(server, ClientOptions::new())?;
    let retry = Retry::exponential(Duration::from_millis(5), Duration::from_millis(500));
    let mut count = 0;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let options = LockOptions::new()
            .survive(SURVIVE)
            .retry(retry.with_jitter())
            .deadline(left);
        match client.lock("contend", &options).await {
            Ok(lock) => {
                count += 1;
                Timer::after(hold).await;
                lock.release().await?;
            }
            Err(error) if error.is_not_obtained() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn number(place: usize, default: u64) -> u64 {
    env::args()
        .nth(place)
        .map_or(default, |text| text.parse().expect("a number is wanted"))
}

fn main() {
    let server = env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:11211".into());
    let (contenders, seconds, hold_ms) = (number(2, 20), number(3, 30), number(4, 5));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut counts: Vec<u64> = thread::scope(|scope| {
        let contend = || smol::block_on(contend(&server, Duration::from_millis(hold_ms), end));
        let threads: Vec<_> = (0..contenders).map(|_| scope.spawn(contend)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"))
            .map(|count| count.unwrap_or_else(|error| panic!("{error}")))
            .collect()
    });
    counts.sort_unstable();
    let mean = counts.iter().sum::<u64>() / contenders.max(1);
    println!(
        "{contenders} contenders, {seconds} s, held {hold_ms} ms: most {}, least {}, mean {mean}",
        counts.last().copied().unwrap_or_default(),
        counts.first().copied().unwrap_or_default(),
    );
}
