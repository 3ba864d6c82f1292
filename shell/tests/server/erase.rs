//! `--secure-erase`, seen from outside: once a large value is dead, in any way, nothing of it is
//! left in the memory of the process.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::time::{Duration, Instant};

use crate::client::TestClient;
use crate::process::Running;

/// The longest time until the items are swept.
const DUE: Duration = Duration::from_secs(20);

/// The length of a value: it has pages of its own, and takes several reads to arrive.
const VALUE_BYTES: usize = 100_000;

/// Overwrites the bytes in a worker's buffers, which hold 64 KiB, and allocates nothing.
const FILLER: &[u8] = b"mg none q\r\n";
const FILLERS: usize = 30_000;

/// A server with one worker and little memory.
struct Small(Running);

impl Small {
    fn start(flags: &[&str]) -> Self {
        let small = ["-l", "127.0.0.1:0", "-t", "1", "-m", "16"];
        Self(Running::start(&[&small, flags].concat()))
    }

    fn client(&self) -> TestClient {
        TestClient::connect(self.0.address())
    }

    /// How often these bytes occur in the writable memory of the process.
    fn count(&self, bytes: &[u8]) -> usize {
        let proc = format!("/proc/{}", self.0.child.id());
        let maps = fs::read_to_string(format!("{proc}/maps")).unwrap();
        let mut memory = File::open(format!("{proc}/mem")).unwrap();
        let mut count = 0;
        for line in maps.lines() {
            let mut words = line.split_ascii_whitespace();
            let (range, rights) = (words.next().unwrap(), words.next().unwrap());
            if !rights.starts_with("rw") {
                continue;
            }
            let (from, to) = range.split_once('-').unwrap();
            let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16).unwrap());
            let mut part = vec![0; usize::try_from(to - from).unwrap()];
            memory.seek(SeekFrom::Start(from)).unwrap();
            // A mapping may have been removed since.
            if memory.read_exact(&mut part).is_ok() {
                count += part
                    .windows(bytes.len())
                    .filter(|window| *window == bytes)
                    .count();
            }
        }
        count
    }

    /// Whether nothing is left of a value, now or soon.
    fn forgets(&self, secret: &Secret) {
        let begun = Instant::now();
        loop {
            // Other requests overwrite the bytes in the buffers.
            let mut other = self.client();
            other.send(FILLER.repeat(FILLERS));
            assert_eq!(other.ask("mn"), "MN");
            let left = self.count(secret.piece().as_bytes());
            if left == 0 {
                return;
            }
            assert!(begun.elapsed() < DUE, "{}: {left} are left", secret.0);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A value that can be found in memory, named for its fate.
struct Secret(&'static str);

impl Secret {
    /// The repeated part of it.
    fn piece(&self) -> String {
        format!("the-secret-that-is-{}/", self.0)
    }

    fn value(&self, bytes: usize) -> Vec<u8> {
        let piece = self.piece();
        piece.bytes().cycle().take(bytes).collect()
    }
}

trait Set {
    fn set(&mut self, key: &str, value: &[u8]) -> String;
}

impl Set for TestClient {
    fn set(&mut self, key: &str, value: &[u8]) -> String {
        self.send(format!("set {key} 0 0 {}\r\n", value.len()));
        self.send(value);
        self.send("\r\n");
        self.line()
    }
}

/// Stores a value, and sees that it is there to be found.
fn put(running: &Small, secret: &Secret) -> TestClient {
    let mut one = running.client();
    assert_eq!(one.set("k", &secret.value(VALUE_BYTES)), "STORED");
    let pieces = VALUE_BYTES / secret.piece().len();
    assert!(running.count(secret.piece().as_bytes()) >= pieces);
    one
}

/// Stores other values until this one is evicted; no client reads it meanwhile, or it would stay.
///
/// A key that comes again goes into the main queue at once. That evicts nothing until new items
/// have filled the memory eight times (`FILLS_A_TURN` in the core's store): the memory holds
/// 160 of these at most.
fn crowd_out(one: &mut TestClient) {
    for number in 0..3_000 {
        let _ = one.set(&format!("other{number}"), &vec![b'.'; VALUE_BYTES]);
    }
    assert_eq!(one.ask("mg k"), "EN");
}

#[test]
fn a_dead_large_value_is_erased() {
    let running = Small::start(&["--secure-erase"]);

    let deleted = Secret("deleted");
    assert_eq!(put(&running, &deleted).ask("delete k"), "DELETED");
    running.forgets(&deleted);

    let replaced = Secret("replaced");
    assert_eq!(put(&running, &replaced).ask("set k 0 0 1\r\nx"), "STORED");
    running.forgets(&replaced);

    let longer = Secret("extended");
    let mut one = put(&running, &longer);
    assert_eq!(one.ask("append k 0 0 4\r\nmore"), "STORED");
    assert_eq!(one.ask("delete k"), "DELETED");
    running.forgets(&longer);

    let read = Secret("read");
    let mut one = put(&running, &read);
    one.send("get k\r\n");
    assert_eq!(one.line(), format!("VALUE k 0 {VALUE_BYTES}"));
    assert_eq!(one.bytes(VALUE_BYTES), read.value(VALUE_BYTES));
    assert_eq!((one.line(), one.line()), (String::new(), "END".into()));
    assert_eq!(one.ask("delete k"), "DELETED");
    running.forgets(&read);

    let flushed = Secret("flushed");
    assert_eq!(put(&running, &flushed).ask("flush_all"), "OK");
    running.forgets(&flushed);

    let expired = Secret("expired");
    assert_eq!(put(&running, &expired).ask("touch k 1"), "TOUCHED");
    running.forgets(&expired);

    let evicted = Secret("evicted");
    let mut one = put(&running, &evicted);
    crowd_out(&mut one);
    running.forgets(&evicted);

    let shrunk = Secret("shrunk");
    let mut one = put(&running, &shrunk);
    assert_eq!(one.ask("cache_memlimit 8"), "OK");
    crowd_out(&mut one);
    running.forgets(&shrunk);
}

/// A value that arrives in pieces is collected in a growing buffer.
#[test]
fn an_unfinished_large_value_is_erased() {
    let running = Small::start(&["--secure-erase"]);
    let unfinished = Secret("unfinished");
    let mut one = running.client();
    let value = unfinished.value(VALUE_BYTES);
    one.send(format!("set k 0 0 {VALUE_BYTES}\r\n"));
    for piece in value[..VALUE_BYTES / 2].chunks(10_000) {
        one.send(piece);
        std::thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    while running.count(unfinished.piece().as_bytes()) < 100 {
        assert!(begun.elapsed() < DUE, "it does not arrive");
    }
    drop(one);
    running.forgets(&unfinished);
}

/// The control: a value without pages of its own is found.
#[test]
fn without_the_flag_it_is_left() {
    let running = Small::start(&[]);
    let secret = Secret("kept");
    let mut one = running.client();
    assert_eq!(one.set("k", &secret.value(20_000)), "STORED");
    assert_eq!(one.ask("set k 0 0 1\r\nx"), "STORED");
    assert!(running.count(secret.piece().as_bytes()) > 100);
}
