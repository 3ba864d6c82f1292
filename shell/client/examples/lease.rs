//! A nightly job that must run only once, although many machines try: a leased lock.
//!
//! `cargo run -p latchd-client --example lease -- 127.0.0.1:11211`; any memcached will do as the server.

use std::time::Duration;

use latchd_client::{Client, Error, LockOptions, Retry};
use smol::future;

async fn job(number: u64) {
    // Its writes carry the number, so that the store can refuse a lower one than it has seen.
    println!("working under grant {number}");
    smol::Timer::after(Duration::from_secs(3)).await;
}

async fn nightly(server: &str) -> Result<(), Error> {
    let client = Client::connect(server).await?;
    let options = LockOptions::new()
        .retry(Retry::exponential(Duration::from_millis(50), Duration::from_secs(1)).with_jitter())
        .deadline(Duration::from_secs(5))
        .metadata(format!("pid {}", std::process::id()))
        .hold_max(Duration::from_secs(3600));
    let lock = client
        .obtain("jobs/nightly", Duration::from_secs(10), &options)
        .await?;
    let work = async {
        job(lock.number()).await;
        true
    };
    let loss = async {
        eprintln!("stopped: {}", lock.lost().await);
        false
    };
    if future::or(work, loss).await {
        lock.release().await?;
    }
    Ok(())
}

fn main() {
    let server = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:11211".into());
    match smol::block_on(nightly(&server)) {
        Ok(()) => println!("done"),
        Err(error) if error.is_not_obtained() => println!("another machine runs it: {error}"),
        Err(error) => eprintln!("{error}"),
    }
}
