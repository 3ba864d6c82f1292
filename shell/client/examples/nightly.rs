//! A job that must run once a night, although many machines try, and although their clocks differ: a lock, and a note
//! under the lock that it ran.
//!
//! `cargo run -p latchd-client --example nightly -- 127.0.0.1:11211`; any memcached will do as the server.

use std::time::Duration;

use latchd_client::{Client, Error, Exptime, Fence, LockOptions, Outcome};
use smol::future;

const RAN: &str = "jobs/nightly/ran";

async fn job(fence: Option<Fence>) {
    // Its writes carry the fence, so that the store can refuse a lower one than it has seen.
    println!("working under grant {fence:?}");
    smol::Timer::after(Duration::from_secs(3)).await;
}

async fn nightly(server: &str) -> Result<(), Error> {
    let client = Client::connect(server).await?;
    let options = LockOptions::new().hold_max(Duration::from_secs(3600));
    let lock = client.try_lock("jobs/nightly", &options).await?;
    if client.get(RAN).await?.is_some() {
        println!("it has run tonight");
        return lock.release().await;
    }
    let work = async {
        job(lock.fence()).await;
        true
    };
    let loss = async {
        eprintln!("stopped: {:?}", lock.lost().await);
        false
    };
    if future::or(work, loss).await {
        // Better in a database: a cache may evict it, and a restart loses it.
        let half_a_day = Exptime::In { seconds: 43_200 };
        if client.set(RAN, "", half_a_day).await? != Outcome::Done {
            eprintln!("the note is refused");
        }
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
