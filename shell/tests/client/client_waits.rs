//! The client waits for a lock that is bound to a connection: on a latchd in the server's queue,
//! elsewhere by retries.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, thread};

use latchd_client::{
    BoundLock, BoundOptions, Client, ErrorKind, Exptime, LockOptions, Loss, Mark, NotObtained,
    Retry,
};

use crate::support::{DUE, Proxy, Started, eventually};
use smol::{Executor, block_on, future};

/// Pauses far longer than the test: a waiter must not be served by its own retries.
fn patient() -> BoundOptions {
    BoundOptions::new()
        .retry(Retry::linear(Duration::from_secs(3600)))
        .deadline(DUE)
        .create(Exptime::In { seconds: 5 })
}

/// Returns when `count` clients wait for `k`.
fn await_waiting(address: &str, count: usize) {
    let wanted = format!(",waiting={count},");
    eventually(|| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(b"stats locks\r\n").unwrap();
        let lines = BufReader::new(socket).lines().map(Result::unwrap);
        let found = lines
            .take_while(|line| line != "END")
            .any(|line| line.contains(&wanted));
        found.then_some(())
    });
}

#[test]
fn waiters_are_served_in_order() {
    const WAITERS: usize = 20;
    let server = Started::latchd();
    let lease = LockOptions::new()
        .retry(Retry::linear(Duration::from_secs(3600)))
        .deadline(DUE);
    let executor = Executor::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    block_on(executor.run(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let holder = client.obtain("k", DUE, &lease).await.unwrap();
        let mut tasks = Vec::new();
        for index in 0..WAITERS {
            let (client, order, lease) = (client.clone(), Arc::clone(&order), lease.clone());
            tasks.push(executor.spawn(async move {
                // A client that comes again is behind all the others.
                for place in [index, WAITERS] {
                    // Leased and bound locks wait in one queue.
                    if index % 2 == 0 {
                        let lock = client.lock("k", &patient()).await.unwrap();
                        order.lock().unwrap().push((place, lock.number()));
                        lock.release().await.unwrap();
                    } else {
                        let lock = client.obtain("k", DUE, &lease).await.unwrap();
                        order.lock().unwrap().push((place, None));
                        lock.release().await.unwrap();
                    }
                }
            }));
            let address = server.address();
            smol::unblock(move || await_waiting(&address, index + 1)).await;
        }
        holder.release().await.unwrap();
        for task in tasks {
            task.await;
        }
    }));
    let order = order.lock().unwrap();
    let first: Vec<_> = order.iter().map(|(index, _)| *index).collect();
    assert_eq!(first[..WAITERS], (0..WAITERS).collect::<Vec<_>>());
    assert!(first[WAITERS..].iter().all(|index| *index == WAITERS));
    let numbers = order.iter().filter_map(|(_, number)| *number);
    assert!(numbers.is_sorted_by(|one, other| one < other), "numbers");
}

#[test]
fn commands_run_in_the_order_in_which_they_came() {
    const WAITERS: usize = 5;
    let server = Started::latchd();
    let file = std::env::temp_dir().join(format!("latchd-order-{}", std::process::id()));
    let _ = fs::remove_file(&file);
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let holder = client.lock("k", &patient()).await.unwrap();
        let mut children = Vec::new();
        for index in 0..WAITERS {
            let script = format!("echo {index} $LATCHD_LOCK_NUMBER >> {}", file.display());
            let child = Command::new(env!("CARGO_BIN_EXE_latchd"))
                .args(["lock", "--server", &server.address(), "k", "--"])
                .args(["sh", "-c", &script])
                .spawn()
                .unwrap();
            children.push(child);
            await_waiting(&server.address(), index + 1);
        }
        holder.release().await.unwrap();
        for mut child in children {
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
    });
    let said = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let lines: Vec<Vec<u64>> = said
        .lines()
        .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
        .collect();
    let order: Vec<_> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(order, (0..WAITERS as u64).collect::<Vec<_>>());
    assert!(lines.is_sorted_by(|one, other| one[1] < other[1]), "{said}");
}

#[test]
fn a_cancelled_wait_leaves_the_queue() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let holder = client.lock("k", &patient()).await.unwrap();
        // Dropped where it waits.
        let waits = async {
            let lock = client.lock("k", &patient()).await;
            unreachable!("it is held, and not {lock:?}");
        };
        let address = server.address();
        future::or(waits, smol::unblock(move || await_waiting(&address, 1))).await;
        await_waiting(&server.address(), 0);
        // Killed.
        let mut child = Command::new(env!("CARGO_BIN_EXE_latchd"))
            .args(["lock", "--server", &server.address(), "k", "--", "true"])
            .spawn()
            .unwrap();
        await_waiting(&server.address(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        await_waiting(&server.address(), 0);
        // At the end of its deadline; and over the same connection there is no more than one lock after that.
        let short = patient().deadline(Duration::from_millis(100));
        let late = client.lock("k", &short).await.unwrap_err();
        assert!(
            matches!(late.kind(), ErrorKind::NotObtained(NotObtained::Deadline)),
            "{late}"
        );
        await_waiting(&server.address(), 0);
        holder.release().await.unwrap();
        let next = client.lock("k", &short).await.unwrap();
        next.release().await.unwrap();
    });
}

#[test]
fn a_client_without_wait_returns_at_once() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let holder = client.lock("k", &patient()).await.unwrap();
        let retry = Retry::linear(Duration::from_millis(50));
        for options in [
            patient().retry(Retry::none()),
            patient().retry(retry.limited(0)),
            patient().retry(retry.limited(3)),
        ] {
            let refused = client.lock("k", &options).await.unwrap_err();
            assert!(
                matches!(refused.kind(), ErrorKind::NotObtained(NotObtained::Held)),
                "{refused}"
            );
        }
        holder.release().await.unwrap();
    });
}

#[test]
fn a_connection_that_breaks_is_waited_through() {
    let server = Started::latchd();
    let proxy = Proxy::start(server.address());
    block_on(async {
        let direct = Client::connect(&server.address()).await.unwrap();
        let holder = direct.lock("k", &patient()).await.unwrap();
        let through = Client::connect(&proxy.address()).await.unwrap();
        let options = patient();
        let breaks = async {
            for _ in 0..3 {
                let address = server.address();
                smol::unblock(move || await_waiting(&address, 1)).await;
                proxy.cut();
                let address = server.address();
                smol::unblock(move || await_waiting(&address, 0)).await;
            }
            holder.release().await.unwrap();
        };
        let (lock, ()) = future::zip(through.lock("k", &options), breaks).await;
        lock.unwrap().release().await.unwrap();
    });
}

#[test]
fn fence_numbers_rise_over_a_restart() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let lock = client.lock("k", &patient()).await.unwrap();
        let before = lock.number().unwrap();
        assert_eq!(
            server.ask("mg k\r\n", "\r\n"),
            "EN\r\n",
            "no item is needed"
        );
        assert_eq!(server.ask("set k 0 0 1\r\nx\r\n", "\r\n"), "LOCKED\r\n");
        assert_eq!(lock.get().await.unwrap(), b"");
        let restart = server.successor();
        drop(server);
        assert_eq!(lock.lost().await, Loss::Disconnected);
        let server = restart();
        let lock = client
            .lock("k", &patient().mark(Mark::Number))
            .await
            .unwrap();
        assert!(lock.number().unwrap() > before);
        lock.set("kept", Exptime::Never).await.unwrap();
        lock.release().await.unwrap();
        assert_eq!(server.ask("mg k v\r\n", "kept\r\n"), "VA 4\r\nkept\r\n");
        // An item with a value of another client stays as it is.
        let version = server.ask("mg k c\r\n", "\r\n");
        let lock = client
            .lock("k", &patient().mark(Mark::Number))
            .await
            .unwrap();
        lock.release().await.unwrap();
        assert_eq!(server.ask("mg k c\r\n", "\r\n"), version);
    });
}

#[test]
fn a_note_lives_as_long_as_the_lock() {
    let server = Started::latchd();
    block_on(async {
        let client = Client::connect(&server.address()).await.unwrap();
        let exptime = Exptime::In { seconds: 5 };
        let noted = patient().mark(Mark::Note(b"build 7"[..].into(), exptime));
        let lock = client.lock("k", &noted).await.unwrap();
        assert_eq!(
            server.ask("mg k v\r\n", "build 7\r\n"),
            "VA 7\r\nbuild 7\r\n"
        );
        // Another client empties the cache: the item that the lock had made is gone, and the lock
        // is not.
        lock.check().await.unwrap();
        server.ask("flush_all\r\n", "\r\n");
        assert!(
            client
                .lock("k", &patient().retry(Retry::none()))
                .await
                .is_err()
        );
        lock.release().await.unwrap();
        let lock = client.lock("k", &noted).await.unwrap();
        lock.release().await.unwrap();
        assert_eq!(server.ask("mg k\r\n", "\r\n"), "EN\r\n");
    });
}

/// A server of a few lines that has `lock` and no `ml`, and counts how often it was asked for that.
fn without_ml() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                let mut output = socket.try_clone().unwrap();
                for line in BufReader::new(socket).lines().map_while(Result::ok) {
                    let answer = if line.starts_with("ml ") {
                        count.fetch_add(1, Ordering::SeqCst);
                        "ERROR\r\n"
                    } else {
                        "OK\r\n"
                    };
                    if output.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

#[test]
fn a_server_without_ml_is_detected_once() {
    let (address, asked) = without_ml();
    let client = block_on(Client::connect(&address.to_string())).unwrap();
    // A release returns before the connection is back in the pool, which may be too late for the
    // next lock.
    eventually(|| {
        let before = asked.load(Ordering::SeqCst);
        block_on(async {
            let lock = client.lock("k", &patient()).await.unwrap();
            assert_eq!(lock.number(), None);
            lock.release().await.unwrap();
        });
        (before > 0 && asked.load(Ordering::SeqCst) == before).then_some(())
    });
}

/// A yrmcds in a folder of its own, which is stopped when the value is dropped.
struct Yrmcds {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Yrmcds {
    /// `None` if there is no such program here.
    fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path)
            .chain([PathBuf::from("/usr/sbin")])
            .map(|folder| folder.join("yrmcdsd"))
            .find(|program| program.is_file());
        assert!(
            program.is_some() || std::env::var_os("LATCHD_REQUIRE_PEERS").is_none(),
            "there is no yrmcdsd on PATH"
        );
        let free = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        let (port, repl_port) = (free(), free());
        let folder = std::env::temp_dir().join(format!("latchd-yrmcds-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let config = folder.join("yrmcds.conf");
        let text = format!(
            "port = {port}\nrepl_port = {repl_port}\ntemp_dir = {:?}\nbuckets = 10000\nworkers = 2\n\
             max_data_size = 1M\nmemory_limit = 64M\nlog.threshold = error\n",
            folder.display().to_string()
        );
        fs::write(&config, text).unwrap();
        let child = Command::new(program?)
            .arg("-f")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok());
        Some(Self {
            child,
            folder,
            port,
        })
    }
}

impl Drop for Yrmcds {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn without_server_waits_the_client_retries() {
    let Some(server) = Yrmcds::start() else {
        return;
    };
    block_on(async {
        let address = format!("127.0.0.1:{}", server.port);
        let client = Client::connect(&address).await.unwrap();
        let options = patient().retry(Retry::linear(Duration::from_millis(10)));
        let holder: BoundLock = client.lock("k", &options).await.unwrap();
        assert_eq!(holder.number(), None);
        let refused = client
            .lock("k", &options.clone().retry(Retry::none()))
            .await;
        assert!(refused.unwrap_err().is_not_obtained());
        let other = async { client.lock("k", &options).await };
        let release = async {
            smol::Timer::after(Duration::from_millis(50)).await;
            holder.release().await.unwrap();
        };
        let (other, ()) = future::zip(other, release).await;
        other.unwrap().release().await.unwrap();
    });
}

#[test]
fn servers_without_bound_locks_are_reported() {
    for server in Started::all() {
        block_on(async {
            let client = Client::connect(&server.address()).await.unwrap();
            let lock = client.lock("k", &patient()).await;
            if server.name() == "latchd" {
                lock.unwrap().release().await.unwrap();
            } else {
                let refused = lock.unwrap_err();
                assert!(
                    matches!(refused.kind(), ErrorKind::Refused(words) if &**words == "ERROR"),
                    "{refused}"
                );
            }
        });
    }
}
