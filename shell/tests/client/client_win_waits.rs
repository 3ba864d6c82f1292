//! A value that another client computes: on a latchd the client waits for it, elsewhere it retries;
//! and winners that die.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use latchd_client::{Client, ClientOptions, ComputeError, ComputeOptions, ErrorKind, Retry, Value};

use crate::support::{DUE, Proxy, Started, eventually};
use smol::{Executor, Timer, block_on, future};

const TTL: Duration = Duration::from_secs(60);

/// Pauses far longer than the test: a waiter must not be served by its own retries.
fn patient() -> ComputeOptions {
    ComputeOptions::new(TTL)
        .retry(Retry::linear(Duration::from_secs(3600)))
        .claim(Duration::from_secs(600))
        .deadline(DUE)
}

/// Reads `k`, or computes `value`.
async fn read_as(client: &Client, value: &str, options: &ComputeOptions) -> Value {
    let compute = async |_| Ok::<_, Infallible>(value.as_bytes().to_vec());
    client.compute("k", options, compute).await.unwrap()
}

/// Wins `k` and computes for ever.
async fn hang(client: &Client) -> Result<Value, ComputeError<Infallible>> {
    let compute = async |_| std::future::pending().await;
    client.compute("k", &patient(), compute).await
}

/// Returns when `count` gets wait.
async fn await_waiting(server: &Started, count: usize) {
    await_stat(server, "get_waiting", count).await;
}

async fn await_stat(server: &Started, name: &'static str, count: usize) {
    shows(server.address(), name, count).await;
}

/// Returns when `stats` of a server shows this.
async fn shows(address: String, name: &'static str, count: usize) {
    let wanted = format!("STAT {name} {count}");
    smol::unblock(move || {
        eventually(|| {
            let mut socket = TcpStream::connect(&address).unwrap();
            socket.write_all(b"stats\r\n").unwrap();
            let mut lines = BufReader::new(socket).lines().map(Result::unwrap);
            let found = lines.find(|line| *line == wanted || line == "END");
            (found? == wanted).then_some(())
        });
    })
    .await;
}

#[test]
fn waiting_reads_are_served_without_retries() {
    const READERS: usize = 100;
    let server = Started::latchd();
    let computed = Arc::new(AtomicU32::new(0));
    let executor = Executor::new();
    block_on(executor.run(async {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                // Each is a process of its own, as the server sees it.
                let client = Client::new(&server.address(), ClientOptions::new()).unwrap();
                let computed = Arc::clone(&computed);
                let address = server.address();
                executor.spawn(async move {
                    let compute = async |_| {
                        computed.fetch_add(1, Ordering::SeqCst);
                        shows(address, "get_waiting", READERS - 1).await;
                        Ok::<_, Infallible>(b"value".to_vec())
                    };
                    client.compute("k", &patient(), compute).await.unwrap()
                })
            })
            .collect();
        for reader in readers {
            assert_eq!(reader.await.bytes, b"value");
        }
    }));
    assert_eq!(computed.load(Ordering::SeqCst), 1);
}

#[test]
fn the_first_waiter_computes_for_a_dead_winner() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    block_on(async {
        let doomed = Client::connect(&proxy.address()).await.unwrap();
        let client = Client::connect(&server.address()).await.unwrap();
        let options = patient();
        let dies = async {
            await_stat(&server, "wins_bound", 1).await;
            let heir = read_as(&client, "heir", &options);
            let kills = async {
                await_waiting(&server, 1).await;
                proxy.cut();
                std::future::pending().await
            };
            future::or(heir, kills).await
        };
        let winner = async {
            let _ = hang(&doomed).await;
            unreachable!("it computes for ever");
        };
        let value = future::or(dies, winner).await;
        assert!(value.computed && value.stored);
        assert_eq!(value.bytes, b"heir");
    });
}

/// The value of a winner with a broken connection is as good as its heir's: the first one stores.
#[test]
fn a_reconnected_winner_stores_unless_too_late() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    block_on(async {
        let client = Client::connect(&proxy.address()).await.unwrap();
        // A server that seems to have been up for a while: R5.
        Timer::after(Duration::from_secs(4)).await;
        let compute = async |_| {
            proxy.cut();
            await_stat(&server, "win_reopened", 1).await;
            Ok::<_, Infallible>(b"mine".to_vec())
        };
        let value = client.compute("k", &patient(), compute).await.unwrap();
        assert!(value.stored);
        assert_eq!(server.ask("mg k v\r\n", "mine\r\n"), "VA 4\r\nmine\r\n");
    });
}

#[test]
fn a_dropped_waiting_read_leaves_nothing() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        assert_eq!(server.ask("mg k N600\r\n", "\r\n"), "HD W\r\n");
        let options = patient();
        let waits = async {
            let value = read_as(&client, "never", &options).await;
            unreachable!("{value:?}");
        };
        future::or(waits, await_waiting(&server, 1)).await;
        await_waiting(&server, 0).await;
        // The client still works.
        server.ask("set k 0 0 3\r\nnew\r\n", "\r\n");
        let value = read_as(&client, "never", &options).await;
        assert_eq!((&*value.bytes, value.computed), (&b"new"[..], false));
    });
}

#[test]
fn a_wait_has_its_deadline_on_each_server() {
    for server in Started::all() {
        println!("against {}", server.name());
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            assert_eq!(server.ask("mg k N600\r\n", "\r\n"), "HD W\r\n");
            let short = Duration::from_millis(300);
            let options = ComputeOptions::new(TTL).deadline(short);
            let compute = async |_| -> Result<Vec<u8>, Infallible> { unreachable!("no win") };
            let began = Instant::now();
            let late = client.compute("k", &options, compute).await;
            let Err(ComputeError::Client(error)) = late else {
                panic!("{late:?}");
            };
            assert!(matches!(error.kind(), ErrorKind::TimedOut), "{error}");
            // The client's clock counts whole milliseconds, and this one does not.
            assert!(began.elapsed() + Duration::from_millis(1) >= short);
            // A value that is stored then is found, with any commands that the connection has
            // learnt.
            server.ask("set k 0 0 3\r\nnew\r\n", "\r\n");
            let found = read_as(&client, "never", &options).await;
            assert_eq!(found.bytes, b"new");
        });
    }
}

/// memcached knows neither word; the client finds that out once a connection.
#[test]
fn reads_retry_on_servers_without_waits() {
    for server in Started::all() {
        println!("against {}", server.name());
        let executor = Executor::new();
        block_on(executor.run(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let options = ComputeOptions::new(TTL);
            for round in 0..3 {
                server.ask("flush_all\r\n", "\r\n");
                let readers: Vec<_> = (0..20)
                    .map(|_| {
                        let client = Client::new(client.address(), ClientOptions::new()).unwrap();
                        let options = options.clone();
                        executor.spawn(async move {
                            let compute = async |_| {
                                Timer::after(Duration::from_millis(50)).await;
                                Ok::<_, Infallible>(format!("value {round}").into_bytes())
                            };
                            client.compute("k", &options, compute).await.unwrap()
                        })
                    })
                    .collect();
                let mut computed = 0;
                for reader in readers {
                    let value = reader.await;
                    assert_eq!(value.bytes, format!("value {round}").into_bytes());
                    computed += usize::from(value.computed);
                }
                assert_eq!(computed, 1);
            }
        }));
    }
}
