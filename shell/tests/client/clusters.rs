//! Servers that say for how long they are the only ones, or that they are not primary. They are scripts of a line each.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use latchd_client::{Client, ClientOptions, ErrorKind, Exptime, LockOptions, Loss, Outcome};
use smol::block_on;

use crate::support::{Started, eventually};

/// A server that answers each line by a script; `None` is no answer.
struct Script {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Script {
    /// `answer` gets the number of earlier lines that were the same, and the line.
    fn start(answer: impl Fn(usize, &str) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (answer, all) = (Arc::new(answer), Arc::clone(&heard));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (answer, heard) = (Arc::clone(&answer), Arc::clone(&all));
                thread::spawn(move || converse(client, &heard, &*answer));
            }
        });
        Self { address, heard }
    }

    /// How often it was asked this.
    fn heard(&self, line: &str) -> usize {
        count(&self.heard.lock().unwrap(), line)
    }

    fn client(&self) -> Client {
        Client::new(&self.address.to_string(), ClientOptions::new()).unwrap()
    }
}

fn count(heard: &[String], line: &str) -> usize {
    heard.iter().filter(|before| *before == line).count()
}

fn converse(
    client: TcpStream,
    heard: &Mutex<Vec<String>>,
    answer: &dyn Fn(usize, &str) -> Option<String>,
) {
    let mut to_client = client.try_clone().unwrap();
    for line in BufReader::new(client).lines().map_while(Result::ok) {
        let before = {
            let mut heard = heard.lock().unwrap();
            heard.push(line.clone());
            count(&heard, &line) - 1
        };
        if let Some(answer) = answer(before, &line) {
            let _ = to_client.write_all(answer.as_bytes());
        }
    }
}

const NOT_PRIMARY: &str = "SERVER_ERROR not primary\r\n";

/// The answers of a latchd to the questions about sessions, and a grant with this hold.
fn latchd(line: &str, hold_ms: u32) -> Option<String> {
    match line.split(' ').next()? {
        "mo" if line.ends_with(" x") => Some("NF\r\n".into()),
        "mo" => Some("HD n9 N\r\n".into()),
        "mn" if line == "mn" => Some("MN\r\n".into()),
        "ml" => Some(format!("HD F7 H{hold_ms}\r\n")),
        "mu" => Some("HD\r\n".into()),
        _ => None,
    }
}

/// The options of a lock that ends with its connection, and of one that outlasts it.
fn both() -> [LockOptions; 2] {
    [
        LockOptions::new().survive(Duration::ZERO),
        LockOptions::new(),
    ]
}

#[test]
fn paused_server_costs_the_lock() {
    for (renewals, options) in [0, 3].into_iter().zip(both()) {
        // It is paused after it has granted the lock and answered so many questions.
        let server = Script::start(move |before, line| match line {
            "mn H" if before < renewals => Some("MN H300\r\n".into()),
            "mn H" => None,
            _ => latchd(line, 300),
        });
        let client = server.client();
        let lock = block_on(client.lock("k", &options)).unwrap();
        assert_eq!(lock.fence().unwrap().number(), 7);
        assert!(lock.remaining().unwrap() <= Duration::from_millis(300));
        assert_eq!(block_on(lock.lost()), Some(Loss::Unconfirmed));
        assert!(!lock.is_held());
        assert!(server.heard("mn H") > renewals, "it has asked");
        assert!(block_on(lock.release()).unwrap_err().is_not_held());
    }
}

#[test]
fn one_question_keeps_all_locks() {
    for options in both() {
        let server = Script::start(|_, line| match line {
            "mn H" => Some("MN H600\r\n".into()),
            _ => latchd(line, 600),
        });
        let client = server.client();
        let locks: Vec<_> = (0..50)
            .map(|key| block_on(client.lock(format!("k{key}"), &options)).unwrap())
            .collect();
        let before = server.heard("mn H");
        // Longer than any one hold.
        eventually(|| (server.heard("mn H") >= before + 5).then_some(()));
        assert!(server.heard("mn H") < before + 10, "one question for all");
        assert!(locks.iter().all(latchd_client::Lock::is_held));
    }
}

#[test]
fn plain_server_is_not_asked_for_its_hold() {
    let server = Script::start(|_, line| match line.split(' ').next() {
        Some("ml") => Some("HD F7\r\n".into()),
        _ => latchd(line, 0),
    });
    let client = server.client();
    let lock = block_on(client.lock("k", &LockOptions::new())).unwrap();
    block_on(lock.check()).unwrap();
    assert_eq!(server.heard("mn H"), 0);
    assert!(lock.remaining().unwrap() > Duration::from_secs(8));
}

#[test]
fn suspended_server_is_told_apart() {
    let server = Script::start(|_, _| Some(NOT_PRIMARY.into()));
    let client = server.client();
    let error = block_on(client.lock("k", &LockOptions::new())).unwrap_err();
    assert!(
        error.is_not_primary() && !error.is_not_obtained(),
        "{error}"
    );
    assert!(block_on(client.ping()).unwrap_err().is_not_primary());
    assert!(block_on(client.get("k")).unwrap_err().is_not_primary());
    let up = Started::latchd();
    let up = Client::new(&up.address(), ClientOptions::new()).unwrap();
    block_on(up.ping()).unwrap();
}

fn lock(servers: &[String], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchd"));
    command
        .args(["lock", "--server", &servers.join(",")])
        .args(arguments)
        .args(["k", "--", "sh", "-c", "echo held"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// The address of a standby: bound, and not listening.
fn standby() -> (rustix::fd::OwnedFd, String) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap();
    (bound, address.to_string())
}

#[test]
fn lock_takes_the_server_that_serves() {
    let (_bound, refuses) = standby();
    let suspended = Script::start(|_, _| Some(NOT_PRIMARY.into()));
    let server = Started::latchd();
    let list = [refuses, suspended.address.to_string(), server.address()];
    for way in [&[][..], &["-n"], &["--ttl", "5"], &["--session", "5"]] {
        let output = lock(&list, way).output().unwrap();
        assert_eq!(said(&output), "held\n", "{way:?}");
        assert!(output.status.success(), "{way:?}");
    }
}

#[test]
fn without_server_the_list_is_tried_until_the_time_is_over() {
    let suspended = Script::start(|_, _| Some(NOT_PRIMARY.into()));
    let (_bound, refuses) = standby();
    let list = [suspended.address.to_string(), refuses];
    let once = lock(&list, &[]).output().unwrap();
    assert_eq!(once.status.code(), Some(125));
    assert!(said(&once).contains(&list[1]), "{}", said(&once));
    let before = suspended.heard.lock().unwrap().len();
    let waits = lock(&list, &["-w", "1"]).output().unwrap();
    assert_eq!(waits.status.code(), Some(125));
    let asked = suspended.heard.lock().unwrap().len() - before;
    assert!(asked > 1, "it was tried again");
}

#[test]
fn waiting_lock_moves_to_the_next_server() {
    // Another client holds the lock, and then the server is suspended.
    let suspended = Script::start(|_, line| match line {
        line if line.starts_with("ml k F H f w") => None,
        line if line.starts_with("ml k") => Some("LK h9 a0 n0\r\n".into()),
        _ => Some(NOT_PRIMARY.into()),
    });
    let server = Started::latchd();
    let list = [suspended.address.to_string(), server.address()];
    let output = lock(&list, &[]).output().unwrap();
    assert_eq!(said(&output), "held\n");
    assert!(suspended.heard("mn") > 0);
}

#[test]
fn lists_are_checked() {
    let many = vec!["127.0.0.1:1".to_string(); 17];
    for (list, why) in [
        (&many[..], "at most 16"),
        (&["127.0.0.1:1".into(), String::new()], "empty"),
        (&["127.0.0.1:1".into(), "a:b".into()], "not a port"),
    ] {
        let output = lock(list, &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    let mut cli = Command::new(env!("CARGO_BIN_EXE_latchd"));
    let output = cli
        .args(["cli", "-s", "a:1,b:1", "version"])
        .output()
        .unwrap();
    assert!(said(&output).contains("one address"), "{}", said(&output));
}

#[test]
fn silent_server_is_left_after_the_timeout() {
    // A server that accepts and says nothing, before one that serves.
    let silent = Script::start(|_, _| None);
    let server = Started::latchd();
    let list = [silent.address.to_string(), server.address()];
    let output = lock(&list, &["--timeout", "0.3"]).output().unwrap();
    assert_eq!(said(&output), "held\n");
}

/// A configuration endpoint, and the addresses that it shows for these names, of weights 1, 2 and so on.
fn endpoint(names: &'static [&'static str]) -> (Script, Arc<Mutex<Vec<SocketAddr>>>) {
    let addresses = Arc::new(Mutex::new(Vec::new()));
    let shown = Arc::clone(&addresses);
    let script = Script::start(move |_, line| {
        if line == "stats cluster" {
            let ring = names.iter().zip(1..);
            let lines = ring.map(|(name, weight)| format!("STAT ring:{name} {weight}\r\n"));
            return Some(lines.collect::<String>() + "END\r\n");
        }
        assert_eq!(line, "config get cluster");
        let shown: std::sync::MutexGuard<'_, Vec<SocketAddr>> = shown.lock().unwrap();
        let servers: Vec<_> = names
            .iter()
            .zip(&*shown)
            .map(|(name, address)| {
                let (host, _) = name.split_once(':').unwrap();
                format!("{host}|{}|{}", address.ip(), address.port())
            })
            .collect();
        let text = format!("7\n{}\n", servers.join(" "));
        Some(format!(
            "CONFIG cluster 0 {}\r\n{text}\r\nEND\r\n",
            text.len()
        ))
    });
    (script, addresses)
}

fn address(server: &Started) -> SocketAddr {
    server.address().parse().unwrap()
}

#[test]
fn ring_follows_the_addresses() {
    let (a, b, standby) = (Started::latchd(), Started::latchd(), Started::latchd());
    let (endpoint, addresses) = endpoint(&["cache-a:11211", "cache-b:11211"]);
    *addresses.lock().unwrap() = vec![address(&a), address(&b)];
    let (_bound, refuses) = self::standby();
    // The first endpoint refuses connections, as a standby does.
    let endpoints = [refuses, endpoint.address.to_string()];
    let cluster = block_on(Client::discover(&endpoints, &ClientOptions::new())).unwrap();
    // The names and weights decide the ring, not the addresses.
    let weighted = [("cache-a:11211", 1), ("cache-b:11211", 2)];
    let named = Client::ring(weighted, &ClientOptions::new()).unwrap();
    let mut of_b = None;
    for key in (0..100).map(|number| format!("k{number}")) {
        assert_eq!(cluster.server(&key).address(), named.server(&key).address());
        let stored = block_on(cluster.set(&key, "1", Exptime::Never));
        assert_eq!(stored.unwrap(), Outcome::Done);
        if cluster.server(&key).address() == "cache-b:11211" {
            of_b = Some(key);
        }
    }
    let of_b = of_b.expect("some key is of the second server");
    assert_eq!(b.ask(&format!("mg {of_b}\r\n"), "\r\n"), "HD\r\n");
    assert_eq!(endpoint.heard("config get cluster"), 1);
    // The second partition has another primary.
    addresses.lock().unwrap()[1] = address(&standby);
    drop(b);
    let set = || block_on(cluster.set(&of_b, "2", Exptime::Never));
    assert_eq!(eventually(|| set().ok()), Outcome::Done);
    assert_eq!(
        standby.ask(&format!("mg {of_b} v\r\n"), "2\r\n"),
        "VA 1\r\n2\r\n"
    );
}

#[test]
fn suspended_server_is_left_for_its_successor() {
    let suspended = Script::start(|_, _| Some(NOT_PRIMARY.into()));
    let primary = Started::latchd();
    let (endpoint, addresses) = endpoint(&["cache-a:11211"]);
    *addresses.lock().unwrap() = vec![suspended.address];
    let endpoints = [endpoint.address.to_string()];
    let cluster = block_on(Client::discover(&endpoints, &ClientOptions::new())).unwrap();
    let server = cluster.server("k");
    assert!(block_on(server.ping()).unwrap_err().is_not_primary());
    let refused = block_on(server.lock("k", &LockOptions::new())).unwrap_err();
    assert!(refused.is_not_primary());
    addresses.lock().unwrap()[0] = address(&primary);
    eventually(|| block_on(server.ping()).ok());
    let lock = eventually(|| block_on(server.lock("k", &LockOptions::new())).ok());
    assert!(lock.is_held());
}

#[test]
fn cluster_is_needed_to_discover() {
    let alone = Started::latchd();
    let options = ClientOptions::new();
    let refused = block_on(Client::discover([alone.address()], &options)).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Refused(words) if &**words == "ERROR"));
    let none: [&str; 0] = [];
    let none = block_on(Client::discover(none, &options)).unwrap_err();
    assert!(matches!(none.kind(), ErrorKind::Address(_)));
    let wild = Script::start(|_, _| Some("CONFIG cluster 0 5\r\n1\nab\n\r\nEND\r\n".into()));
    let wild = block_on(Client::discover([wild.address.to_string()], &options)).unwrap_err();
    assert!(wild.to_string().contains("malformed"), "{wild}");
}
