//! A number that many clients change by a rule of their own, under a lock that ends with its connection. A client that
//! dies during the change leaves the old number, and the next client gets the lock at once.
//!
//! `cargo run -p latchd-client --example counter -- 127.0.0.1:11211`; the server must be a latchd.

use std::time::Duration;

use latchd_client::{Client, Error, Exptime, LockOptions};

async fn double(server: &str) -> Result<u64, Error> {
    let client = Client::connect(server).await?;
    let options = LockOptions::new()
        .survive(Duration::ZERO)
        .deadline(Duration::from_secs(5));
    let lock = client.lock("counter", &options).await?;
    let value = lock.get().await?.unwrap_or_default();
    let number: u64 = str::from_utf8(&value)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let doubled = number.wrapping_mul(2).max(1);
    lock.release_with(doubled.to_string(), Exptime::Never)
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
