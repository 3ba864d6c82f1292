//! A number that many clients change by a rule of their own, under a connection-bound lock. A client that
//! dies during the change leaves the old number, and the next client gets the lock.
//!
//! `cargo run -p latchd-client --example counter -- 127.0.0.1:11211`; the server must be a latchd.

use std::time::Duration;

use latchd_client::{BoundOptions, Client, Error, Exptime, Retry};

async fn double(server: &str) -> Result<u64, Error> {
    let client = Client::connect(server).await?;
    let options = BoundOptions::new()
        .retry(Retry::linear(Duration::from_millis(20)))
        .deadline(Duration::from_secs(5))
        .create(Exptime::In { seconds: 60 });
    let (lock, value) = client.lock_and_get("counter", &options).await?;
    let number: u64 = str::from_utf8(&value)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let doubled = number.wrapping_mul(2).max(1);
    lock.replace_and_unlock(doubled.to_string(), Exptime::Never)
        .await?;
    Ok(doubled)
}

fn main() {
    let server = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:11211".into());
    match smol::block_on(double(&server)) {
        Ok(number) => println!("{number}"),
        Err(error) => eprintln!("{error}"),
    }
}
