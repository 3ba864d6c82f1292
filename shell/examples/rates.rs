//! What a leased lock costs: obtain and release beside two requests on a bare socket, and how that grows
//! with the tasks that do it.
//!
//! `cargo run --release -p latchd --example rates -- 127.0.0.1:11211`

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use latchd::client::{Client, ClientOptions, LockOptions};
use smol::Executor;

const TTL: Duration = Duration::from_secs(30);
const PAIRS: usize = 5_000;

/// Obtains and releases on a bare socket, as a lease does. Source: docs of `latchd_core::client::Lease`.
fn raw(server: &str) -> std::io::Result<Duration> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    let mut answers = BufReader::new(socket.try_clone()?);
    let mut ask = |request: &str| {
        socket.write_all(request.as_bytes())?;
        let mut line = String::new();
        answers.read_line(&mut line).map(|_| line)
    };
    let begun = Instant::now();
    for _ in 0..PAIRS {
        let line = ask("ms raw 22 ME T32 c\r\n0123456789012345678901\r\n")?;
        let cas = line.trim().trim_start_matches("HD c").to_owned();
        ask(&format!("md raw C{cas}\r\n"))?;
    }
    Ok(begun.elapsed())
}

/// Obtains and releases in so many tasks at a time; each has a key of its own.
fn leased(client: &Client, tasks: usize) -> Duration {
    let executor = Executor::new();
    let each = PAIRS / tasks;
    let begun = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (client, key) = (client.clone(), format!("rate{task}"));
            executor.spawn(async move {
                let options = LockOptions::new();
                for _ in 0..each {
                    client.obtain(&key, TTL, &options).await?.release().await?;
                }
                Ok::<(), latchd::client::Error>(())
            })
        })
        .collect();
    smol::block_on(executor.run(async {
        for task in tasks {
            if let Err(error) = task.await {
                eprintln!("{error}");
            }
        }
    }));
    begun.elapsed()
}

fn main() -> std::io::Result<()> {
    let server = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:11211".into());
    let client = Client::new(&server, ClientOptions::new()).expect("an address");
    let micros = |span: Duration, pairs: usize| {
        let micros = u32::try_from(span.as_micros() / pairs as u128).unwrap_or(u32::MAX);
        f64::from(micros)
    };
    for _ in 0..3 {
        let two = micros(raw(&server)?, PAIRS);
        let one = micros(leased(&client, 1), PAIRS);
        println!(
            "two requests {two} us, obtain and release {one} us: {:.2}",
            one / two
        );
    }
    for tasks in [1, 8, 64] {
        let took = leased(&client, tasks).as_secs_f64();
        let pairs = u32::try_from(PAIRS / tasks * tasks).unwrap_or(u32::MAX);
        println!("{tasks} tasks: {:.0} a second", f64::from(pairs) / took);
    }
    Ok(())
}
