//! The cost of a lock: lock and release, compared with two requests on a bare socket; of a session and of a
//! connection, by one task and by 64 at a time.
//!
//! `cargo run --release -p latchd-client --example rates -- 127.0.0.1:11211`
//!
//! The second argument selects the kind, `survives` or `connection`; without it, both run. memcached has only the first. The comparison uses as many threads as tasks, each with a bare socket. The output is the median of
//! several rounds, in which both take turns.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use latchd_client::{Client, ClientOptions, Error, LockOptions, blocking};
use smol::Executor;

const PAIRS: usize = 6_400;
const ROUNDS: usize = 9;

/// The kind of lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Survives,
    Connection,
}

impl Kind {
    fn options(self) -> LockOptions {
        match self {
            Self::Survives => LockOptions::new(),
            Self::Connection => LockOptions::new().survive(Duration::ZERO),
        }
    }
}

/// The two requests of a lock on a bare socket.
fn requests(is_latchd: bool, key: &str, answer: &str) -> (String, String) {
    let number = answer.trim().get(4..).unwrap_or_default();
    if is_latchd {
        (format!("ml {key} F\r\n"), format!("mu {key} F{number}\r\n"))
    } else {
        let add = format!("ms {key} 22 ME T32 c\r\n0123456789012345678901\r\n");
        (add, format!("md {key} C{number}\r\n"))
    }
}

/// Locks and releases `pairs` times on a bare socket.
fn raw(server: &str, key: &str, pairs: usize) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    let mut answers = BufReader::new(socket.try_clone()?);
    let mut ask = |request: &str| {
        socket.write_all(request.as_bytes())?;
        let mut line = String::new();
        answers.read_line(&mut line)?;
        Ok::<_, std::io::Error>(line)
    };
    let is_latchd = ask("ml 0 F\r\n")?.starts_with("HD") && ask("mu 0\r\n")?.starts_with("HD");
    for _ in 0..pairs {
        let answer = ask(&requests(is_latchd, key, "").0)?;
        let released = ask(&requests(is_latchd, key, &answer).1)?;
        if !released.starts_with("HD") {
            return Err(std::io::Error::other(released));
        }
    }
    Ok(())
}

/// The time that so many threads take for [`PAIRS`] in all, each with a key of its own.
fn raws(server: &str, threads: usize) -> std::io::Result<Duration> {
    let begun = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || raw(server, &format!("raw{thread}"), PAIRS / threads))
            })
            .collect();
        for thread in threads {
            thread.join().expect("it does not panic")?;
        }
        Ok(begun.elapsed())
    })
}

/// The time that so many tasks take for [`PAIRS`] in all, each with a key of its own.
fn locks(client: &Client, kind: Kind, tasks: usize) -> Result<Duration, Error> {
    let executor = Executor::new();
    let begun = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (client, key, pairs) = (client.clone(), format!("rate{task}"), PAIRS / tasks);
            let options = kind.options();
            executor.spawn(async move {
                for _ in 0..pairs {
                    client.lock(&key, &options).await?.release().await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    smol::block_on(executor.run(async {
        for task in tasks {
            task.await?;
        }
        Ok(begun.elapsed())
    }))
}

/// The time that a thread takes for [`PAIRS`] without futures.
fn calls(client: &blocking::Client, kind: Kind) -> Result<Duration, Error> {
    let begun = Instant::now();
    let options = kind.options();
    for _ in 0..PAIRS {
        client.lock("rate", &options)?.release()?;
    }
    Ok(begun.elapsed())
}

/// Microseconds for a pair, in the median round.
fn middle(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    let middle = took.get(took.len() / 2).copied().unwrap_or_default();
    let pairs = u32::try_from(PAIRS).unwrap_or(u32::MAX);
    middle.as_secs_f64() * 1e6 / f64::from(pairs)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1);
    let server = server.unwrap_or_else(|| "127.0.0.1:11211".into());
    let client = Client::new(&server, ClientOptions::new())?;
    let waiting = blocking::Client::new(&server, ClientOptions::new())?;
    let kinds: &[Kind] = match std::env::args().nth(2).as_deref() {
        Some("survives") => &[Kind::Survives],
        Some("connection") => &[Kind::Connection],
        _ => &[Kind::Survives, Kind::Connection],
    };
    for &kind in kinds {
        for at_a_time in [1, 64] {
            let (mut bare, mut ours, mut blocked) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                bare.push(raws(&server, at_a_time)?);
                ours.push(locks(&client, kind, at_a_time)?);
                if at_a_time == 1 {
                    blocked.push(calls(&waiting, kind)?);
                }
            }
            let (bare, ours) = (middle(bare), middle(ours));
            println!(
                "{kind:?}, {at_a_time} at a time: two requests {bare:.1} us, lock and release {ours:.1} us: {:.2}",
                ours / bare
            );
            if at_a_time == 1 {
                let blocked = middle(blocked);
                println!(
                    "{kind:?}, without futures: lock and release {blocked:.1} us: {:.2}",
                    blocked / bare
                );
            }
        }
    }
    Ok(())
}
