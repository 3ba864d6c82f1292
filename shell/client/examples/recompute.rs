//! A page that takes a second to make. Fifty readers ask for it at once, and it is made once.
//!
//! `cargo run -p latchd-client --example recompute -- 127.0.0.1:11211`; any memcached will do as the server.

use std::convert::Infallible;
use std::time::Duration;

use latchd_client::{Client, ComputeError, ComputeOptions};

async fn page(client: &Client) -> Result<Vec<u8>, ComputeError<Infallible>> {
    let ttl = Duration::from_secs(60);
    // Ten seconds before it expires, one reader makes it anew while the others continue to read.
    let early = Duration::from_secs(10);
    let make = async |_old: Option<Vec<u8>>| {
        println!("making the page");
        smol::Timer::after(Duration::from_secs(1)).await;
        Ok(b"<h1>hello</h1>".to_vec())
    };
    let options = ComputeOptions::new(ttl).early(early);
    let value = client.compute("page", &options, make).await?;
    Ok(value.bytes)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:11211".into());
    let executor = smol::LocalExecutor::new();
    smol::block_on(executor.run(async {
        let client = Client::connect(&server).await?;
        let readers: Vec<_> = (0..50)
            .map(|_| {
                executor.spawn({
                    let client = client.clone();
                    async move { page(&client).await }
                })
            })
            .collect();
        for reader in readers {
            assert_eq!(reader.await?, b"<h1>hello</h1>");
        }
        Ok(())
    }))
}
