//! The status port: its content, the clients that it refuses, and that it delays no others.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::iter;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use latchd_server::{Config, ListenAddress, Server};

use crate::client::{self, TestClient, start};

/// An event that takes this long does not happen.
const PATIENCE: Duration = Duration::from_secs(10);

fn watched(change: impl FnOnce(&mut Config)) -> (Server, SocketAddr) {
    let server = start(|config| {
        config.status = Some(ListenAddress::loopback(0));
        change(config);
    });
    let address = server.status_addresses()[0];
    (server, address)
}

/// Sends this and reads all that comes back.
fn send(address: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// The code and the body of an answer.
pub(crate) fn get(address: SocketAddr, path: &str) -> (String, String) {
    let answer = send(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"),
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().to_owned();
    (code, body.to_owned())
}

#[test]
fn the_status_port_shows_counters_and_holders() {
    let (server, address) = watched(|_| {});
    let mut holder = TestClient::connect(client::address(&server));
    for key in ["job", "<b>"] {
        holder.ask(&format!("set {key} 0 0 1\r\nx"));
        assert_eq!(holder.ask(&format!("lock {key}")), "OK");
    }
    holder.ask("mg nothing");
    assert_eq!(holder.ask("ml leased T3600 S3 MPHJvdyA3Pg=="), "HD");
    let mut waiters: Vec<_> = (0..12)
        .map(|_| {
            let mut waiter = TestClient::connect(client::address(&server));
            waiter.send("ml leased w60000\r\n");
            waiter
        })
        .collect();
    let begun = Instant::now();
    while holder.stat("lock_waiting") != "12" {
        assert!(begun.elapsed() < PATIENCE, "they do not wait");
    }
    let me = holder.socket().local_addr().unwrap();
    std::thread::sleep(Duration::from_millis(300)); // a look is good for 250
    let (code, metrics) = get(address, "/metrics");
    assert_eq!(code, "200");
    for line in [
        "memcached_up 1",
        "memcached_current_items 2",
        "memcached_current_connections 13",
        "memcached_slab_current_items{slab=\"1\"} 2",
        "latchd_lock_waiting 12",
        "memcached_commands_total{command=\"get\",status=\"miss\"} 1",
        "memcached_commands_total{command=\"set\",status=\"hit\"} 2",
        "latchd_locks_held 3",
        "latchd_lock_granted_total 3",
    ] {
        assert!(
            metrics.lines().any(|shown| shown == line),
            "{line}\n{metrics}"
        );
    }
    // The waiters began before the pause.
    assert!(
        metrics.contains("\nlatchd_lock_blocking_seconds 0."),
        "{metrics}"
    );
    let (_, locks) = get(address, "/locks.json");
    assert!(
        locks.starts_with("{\"locks_held\":3,\"lock_holders\":1,")
            && locks.contains("\"locks\":[\n{\"key\":\"leased\""),
        "{locks}"
    );
    let row = format!(
        "{{\"key\":\"job\",\"connection\":2,\"peer\":\"tcp:{me}\",\"metadata\":null,\"fence\":\""
    );
    assert!(locks.contains(&row), "{locks}");
    assert!(
        locks.contains("\"mode\":\"x\",\"holders\":1,\"permits\":1,\"lease_s\":null,\"session\":null,\"waiting\":0"),
        "{locks}"
    );
    let waited = "\"mode\":\"s\",\"holders\":1,\"permits\":3,\"lease_s\":3600,\"session\":null,\"waiting\":12,\"waiters\":[{\"connection\":3,";
    assert!(locks.contains(waited), "{locks}");
    assert!(locks.contains("\"metadata\":\"<row 7>\""), "{locks}");
    let (code, page) = get(address, "/");
    assert_eq!(code, "200");
    let key = "<td class=\"key\" data-name=\"key\"><span>&lt;b&gt;</span></td>";
    assert!(page.contains(key), "{page}");
    let (_, page) = get(address, "/?prefix=%3C");
    assert!(
        page.contains(key) && !page.contains(">job</span>"),
        "{page}"
    );
    let (_, page) = get(address, "/?prefix=lea");
    assert!(
        page.contains(">12 <span class=\"first\">3, 4, 5, …<") && page.contains("&lt;row 7&gt;"),
        "{page}"
    );
    // Waits that have ended are in the histograms.
    assert_eq!(holder.ask("mu leased"), "HD");
    assert_eq!(waiters[0].line(), "HD");
    std::thread::sleep(Duration::from_millis(300)); // a look is good for 250
    let (_, metrics) = get(address, "/metrics");
    let shown = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}\n{metrics}"))
    };
    assert_eq!(shown("latchd_lock_hold_seconds_count "), "1");
    assert_eq!(shown("latchd_lock_wait_seconds_count "), "1");
    assert_ne!(shown("process_resident_memory_bytes "), "0");
    assert_eq!(get(address, "/healthz"), ("200".into(), "ok\n".into()));
    assert_eq!(get(address, "/other").0, "404");
}

#[test]
fn the_status_port_only_reads() {
    let (_server, address) = watched(|config| config.status_hosts = vec!["cache.example".into()]);
    for (request, code) in [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        (
            "GET /locks.json HTTP/1.1\r\nHost: latchd:9150\r\n\r\n",
            "421",
        ),
        ("GET / HTTP/1.1\r\nHost: cache.example:9150\r\n\r\n", "200"),
        // A scraper knows the name of a service.
        ("GET /metrics HTTP/1.1\r\nHost: latchd:9150\r\n\r\n", "200"),
        (
            "GET /healthz HTTP/1.1\r\nHost: latchd.cache.svc\r\n\r\n",
            "200",
        ),
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("flush_all\r\n\r\n", "400"),
        ("GET /metrics HTTP/1.1\nHost: localhost\n\n", "400"),
        (
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost : evil\r\n\r\n",
            "400",
        ),
        ("HEAD /metrics HTTP/1.0\r\n\r\n", "200"),
    ] {
        let answer = send(address, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code} ")),
            "{request}: {answer}"
        );
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(body.is_empty(), request.starts_with("HEAD"), "{body}");
    }
}

#[test]
fn hidden_keys_are_shown_to_no_client() {
    let (server, address) = watched(|config| config.allowed.listing = false);
    let mut holder = TestClient::connect(client::address(&server));
    holder.ask("set secret 0 0 1\r\nx");
    assert_eq!(holder.ask("lock secret"), "OK");
    std::thread::sleep(Duration::from_millis(300)); // a look is good for 250
    let (_, locks) = get(address, "/locks.json");
    assert!(
        locks.contains("\"locks_held\":1") && locks.contains("\"locks\":[]"),
        "{locks}"
    );
    for path in ["/", "/metrics", "/locks.json"] {
        assert!(!get(address, path).1.contains("secret"), "{path}");
    }
}

/// Clients that connect and say nothing are closed, and later clients are served.
#[test]
fn slow_status_clients_delay_no_other() {
    let (server, address) = watched(|_| {});
    let mut silent: Vec<_> = (0..300)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Any number may come: each that sends a request is answered; of the silent ones, the first
    // give way.
    for _ in 0..20 {
        assert_eq!(get(address, "/healthz"), ("200".into(), "ok\n".into()));
        assert_eq!(get(address, "/metrics").0, "200");
        silent.push(TcpStream::connect(address).unwrap());
    }
    let mut cached = TestClient::connect(client::address(&server));
    assert_eq!(cached.ask("mn"), "MN");
    let begun = Instant::now();
    for socket in &mut silent {
        socket.set_read_timeout(Some(2 * PATIENCE)).unwrap();
        let end = socket.read(&mut [0; 1]);
        let is_closed = matches!(&end, Ok(0))
            || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!(is_closed);
    }
    assert!(begun.elapsed() < 2 * PATIENCE);
    assert_eq!(get(address, "/healthz").0, "200");
    let mut endless = TcpStream::connect(address).unwrap();
    endless.set_read_timeout(Some(PATIENCE)).unwrap();
    endless.write_all(&[b'x'; 8 << 10]).unwrap();
    let mut answer = String::new();
    let _ = endless.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn long_lock_lists_are_cut() {
    let (server, address) = watched(|config| config.threads = 2.try_into().unwrap());
    let mut holder = TestClient::connect(client::address(&server));
    for number in 0..10_000 {
        holder.send(format!(
            "set k{number} 0 0 1 noreply\r\nx\r\nlock k{number}\r\n"
        ));
        if number % 100 == 99 {
            for _ in 0..100 {
                assert_eq!(holder.line(), "OK");
            }
        }
    }
    std::thread::sleep(Duration::from_millis(300)); // a look is good for 250
    let begun = Instant::now();
    let (_, locks) = get(address, "/locks.json");
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(
        locks.starts_with("{\"locks_held\":10000,"),
        "{}",
        &locks[..60]
    );
    assert_eq!(locks.matches("\"key\"").count(), 1000);
    assert!(
        locks.contains("\"key\":\"k0\""),
        "the first is the oldest: {locks}"
    );
    assert!(get(address, "/").1.contains("100 of 10\u{202f}000"));
}

/// The numbers of `stats` with this topic.
fn numbers(client: &mut TestClient, topic: &str) -> BTreeMap<String, u64> {
    client.send(format!("stats {topic}\r\n"));
    let lines = iter::from_fn(|| Some(client.line()).filter(|line| line != "END"));
    let number = |line: String| {
        let mut words = line.split(' ').skip(1);
        let name = words.next()?.to_owned();
        Some((name, words.next()?.parse().ok()?))
    };
    lines.map(|line| number(line).expect(topic)).collect()
}

/// Admin pages compute the wasted memory: that of all pages without that of the items.
#[test]
fn wasted_memory_is_part_of_all() {
    let (server, address) = watched(|config| config.threads = 3.try_into().unwrap());
    let mut client = TestClient::connect(client::address(&server));
    let none = BTreeMap::from([("active_slabs".into(), 0), ("total_malloced".into(), 0)]);
    assert_eq!(numbers(&mut client, "slabs"), none, "as memcached");
    let limit: u64 = client.stat("limit_maxbytes").parse().unwrap();
    // The last items are more than the memory holds.
    for (count, value_bytes) in [
        (1, 1),
        (3_000, 10),
        (300, 3_000),
        (60, 100_000),
        (90, 1 << 20),
    ] {
        let value = "v".repeat(value_bytes);
        for number in 0..count {
            let set =
                format!("set {value_bytes}-{number} 0 0 {value_bytes} noreply\r\n{value}\r\n");
            client.send(set);
        }
        let (slabs, items) = (numbers(&mut client, "slabs"), numbers(&mut client, "items"));
        let malloced = slabs["total_malloced"];
        let requested = items["items:1:mem_requested"];
        assert!(
            0 < requested && requested < malloced && malloced <= limit,
            "{slabs:?}"
        );
        assert_eq!(slabs["1:total_chunks"] * slabs["1:chunk_size"], malloced);
        assert_eq!(
            slabs["1:total_pages"] * slabs["1:chunks_per_page"],
            slabs["1:total_chunks"]
        );
        assert_eq!(
            slabs["1:used_chunks"] + slabs["1:free_chunks"],
            slabs["1:total_chunks"]
        );
        assert_eq!(
            (slabs["1:used_chunks"], slabs["active_slabs"]),
            (requested, 1)
        );
    }
    let malloced = numbers(&mut client, "slabs")["total_malloced"];
    std::thread::sleep(Duration::from_millis(300)); // a look is good for 250
    let line = format!("\nmemcached_malloced_bytes {malloced}\n");
    let (_, metrics) = get(address, "/metrics");
    assert!(metrics.contains(&line), "{line}{metrics}");
}
