//! The client waits for a lock in the server's queue, over connections that the process shares.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use latchd_client::{
    Client, ClientOptions, ErrorKind, Exptime, Feature, LockOptions, Loss, NotObtained, Retry,
};

use crate::support::{DUE, Proxy, Started, eventually, holder_process};
use smol::{Executor, block_on, future};

const ZERO: Duration = Duration::ZERO;

/// Pauses far longer than the test: a waiter must not be served by its own retries.
fn patient() -> LockOptions {
    LockOptions::new()
        .retry(Retry::linear(Duration::from_secs(3600)))
        .deadline(DUE)
}

fn client(server: &Started) -> Client {
    Client::new(&server.address(), ClientOptions::new()).unwrap()
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
    let executor = Executor::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    block_on(executor.run(async {
        let holder = client(&server).lock("k", &patient()).await.unwrap();
        let mut tasks = Vec::new();
        for index in 0..WAITERS {
            // Each is a process of its own, as the server sees it.
            let (client, order) = (client(&server), Arc::clone(&order));
            tasks.push(executor.spawn(async move {
                // A client that comes again is behind all the others.
                for place in [index, WAITERS] {
                    // Locks that end with their connection, in a session and with an item wait in one queue.
                    let options = match index % 3 {
                        0 => patient().survive(ZERO),
                        1 => patient(),
                        _ => patient().with_item(),
                    };
                    let lock = client.lock("k", &options).await.unwrap();
                    order.lock().unwrap().push((place, lock.fence()));
                    lock.release().await.unwrap();
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
    assert!(order.is_sorted_by(|one, other| one.1 < other.1), "fences");
}

/// T1 of the client's `turns`: a process with many tasks does not starve the others.
#[test]
fn tasks_of_one_process_share_a_place_in_the_queue() {
    const TASKS: usize = 200;
    let server = Started::latchd();
    let executor = Executor::new();
    block_on(executor.run(async {
        let holder = client(&server).lock("k", &patient()).await.unwrap();
        let (many, one) = (client(&server), client(&server));
        let entered = Arc::new(Mutex::new(0));
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (many, entered) = (many.clone(), Arc::clone(&entered));
                executor.spawn(async move {
                    let lock = many.lock("k", &patient()).await.unwrap();
                    *entered.lock().unwrap() += 1;
                    lock.release().await.unwrap();
                })
            })
            .collect();
        let address = server.address();
        smol::unblock(move || await_waiting(&address, 1)).await;
        let other = executor.spawn(async move { one.lock("k", &patient()).await.unwrap() });
        let address = server.address();
        smol::unblock(move || await_waiting(&address, 2)).await;
        holder.release().await.unwrap();
        let other = other.await;
        let before = *entered.lock().unwrap();
        assert!(
            before <= 3,
            "{before} tasks of the other process came first"
        );
        let stats = server.ask("stats\r\n", "END\r\n");
        let count = stats
            .lines()
            .find_map(|line| line.strip_prefix("STAT curr_connections "));
        assert!(count.unwrap().parse::<u32>().unwrap() <= 16, "{count:?}");
        other.release().await.unwrap();
        for task in tasks {
            task.await;
        }
    }));
}

#[test]
fn waits_have_a_bound_in_the_process() {
    let server = Started::latchd();
    let executor = Executor::new();
    block_on(executor.run(async {
        let holder = client(&server);
        let options = ClientOptions::new().waits_max(2);
        let waiter = Client::new(&server.address(), options).unwrap();
        let mut held = Vec::new();
        for key in ["a", "b", "c"] {
            held.push(holder.lock(key, &patient()).await.unwrap());
        }
        let waits: Vec<_> = ["a", "b", "c"]
            .map(|key| {
                let waiter = waiter.clone();
                executor.spawn(async move { waiter.lock(key, &patient()).await.unwrap() })
            })
            .into();
        let address = server.address();
        let two_wait = move || {
            eventually(|| {
                let mut socket = TcpStream::connect(&address).unwrap();
                socket.write_all(b"stats locks\r\n").unwrap();
                let lines = BufReader::new(socket).lines().map(Result::unwrap);
                let lines = lines.take_while(|line| line != "END");
                let count = lines.filter(|line| line.contains(",waiting=1,")).count();
                (count == 2).then_some(())
            });
        };
        smol::unblock(two_wait).await;
        for lock in held {
            lock.release().await.unwrap();
        }
        for wait in waits {
            wait.await.release().await.unwrap();
        }
    }));
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
        // At the end of its deadline.
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
        let client = client(&server);
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
        let refused = client.try_lock("k", &patient()).await.unwrap_err();
        assert!(refused.is_not_obtained());
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
        let options = patient().survive(ZERO);
        let breaks = async {
            for _ in 0..3 {
                let address = server.address();
                smol::unblock(move || await_waiting(&address, 1)).await;
                proxy.cut();
                // It queues again over the next connection.
                smol::Timer::after(Duration::from_millis(150)).await;
            }
            holder.release().await.unwrap();
        };
        let (lock, ()) = future::zip(through.lock("k", &options), breaks).await;
        lock.unwrap().release().await.unwrap();
    });
}

#[test]
fn fences_rise_over_a_restart() {
    let server = Started::latchd();
    block_on(async {
        let client = client(&server);
        let lock = client.lock("k", &patient().survive(ZERO)).await.unwrap();
        let before = lock.fence().unwrap();
        assert_eq!(
            server.ask("mg k\r\n", "\r\n"),
            "EN\r\n",
            "no item is needed"
        );
        assert_eq!(server.ask("set k 0 0 1\r\nx\r\n", "\r\n"), "LOCKED\r\n");
        let restart = server.successor();
        drop(server);
        assert_eq!(lock.lost().await, Some(Loss::Disconnected));
        let server = restart();
        let lock = client.lock("k", &patient()).await.unwrap();
        assert!(lock.fence().unwrap() > before);
        lock.set("kept", Exptime::Never).await.unwrap();
        lock.release().await.unwrap();
        // An item with a value stays as it is.
        let version = server.ask("mg k c\r\n", "\r\n");
        let lock = client.lock("k", &patient()).await.unwrap();
        lock.release().await.unwrap();
        assert_eq!(server.ask("mg k c\r\n", "\r\n"), version);
        assert_eq!(server.ask("mg k v\r\n", "kept\r\n"), "VA 4\r\nkept\r\n");
    });
}

#[test]
fn a_waiter_of_a_killed_holder_is_served_at_once() {
    let server = Started::latchd();
    let mut child = holder_process(&server, &[]).spawn().unwrap();
    eventually(|| {
        server
            .ask("ml k\r\n", "\r\n")
            .starts_with("LK")
            .then_some(())
    });
    block_on(async {
        let client = client(&server);
        let options = patient();
        let waits = client.lock("k", &options);
        let kill = async {
            let address = server.address();
            smol::unblock(move || await_waiting(&address, 1)).await;
            let killed = Instant::now();
            child.kill().unwrap();
            killed
        };
        let (lock, killed) = future::zip(waits, kill).await;
        let took = killed.elapsed();
        println!("{took:?} after the death of the holder");
        assert!(took < Duration::from_millis(500), "{took:?}");
        lock.unwrap().release().await.unwrap();
    });
    child.wait().unwrap();
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
            program.is_some() || std::env::var_os("TEST_REQUIRE_PEERS").is_none(),
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
fn yrmcds_is_not_locked_by_this_client() {
    let Some(server) = Yrmcds::start() else {
        return;
    };
    block_on(async {
        let address = format!("127.0.0.1:{}", server.port);
        let client = Client::connect(&address).await.unwrap();
        let refused = client.lock("k", &patient()).await.unwrap_err();
        let kind = refused.kind();
        assert!(
            matches!(kind, ErrorKind::Unsupported(Feature::Locks)),
            "{refused}"
        );
    });
}
