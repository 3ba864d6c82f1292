//! The load against an obedient server: it cuts its answers, and errs when it should.

use std::io::{self, BufRead, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::innocent::{Beside, Innocent};
use super::workload::{Fill, GetsSets, Locks};
use super::*;
use crate::wire::Dialect;
use crate::wire::item::{DIGITS, Values};

/// How the scripted server errs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Flaw {
    None,
    Misses,
    AnothersValue,
    AnswersTwice,
    Closes,
}

/// A server in threads of its own, which end with their connections.
#[derive(Clone, Debug)]
struct Scripted {
    address: SocketAddr,
    value_bytes: usize,
    /// Answers are sent in pieces of this many bytes.
    piece_bytes: usize,
    flaw: Flaw,
    /// The number of the request that is answered wrongly.
    flaw_at: u64,
    served: Arc<AtomicU64>,
}

impl Scripted {
    fn start(value_bytes: usize, piece_bytes: usize, flaw: Flaw, flaw_at: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = Self {
            address: listener.local_addr().expect("bound"),
            value_bytes,
            piece_bytes,
            flaw,
            flaw_at,
            served: Arc::new(AtomicU64::new(0)),
        };
        let script = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let script = script.clone();
                // A client that goes away in the middle ends the thread, and that is all.
                std::thread::spawn(move || script.serve(&stream));
            }
        });
        server
    }

    /// How many requests it has read.
    fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = io::BufReader::new(stream);
        let mut line = String::new();
        while input.read_line(&mut line)? > 0 {
            let number = self.served.fetch_add(1, Ordering::SeqCst) + 1;
            let flaw = if number == self.flaw_at {
                self.flaw
            } else {
                Flaw::None
            };
            if line.starts_with("set ") {
                input.read_exact(&mut vec![0; self.value_bytes + 2])?;
            }
            let times = match flaw {
                Flaw::Closes => return Ok(()),
                Flaw::AnswersTwice => 2,
                Flaw::None | Flaw::Misses | Flaw::AnothersValue => 1,
            };
            for bytes in self
                .answer(&line, flaw)
                .repeat(times)
                .chunks(self.piece_bytes)
            {
                stream.write_all(bytes)?;
            }
            line.clear();
        }
        Ok(())
    }

    fn answer(&self, line: &str, flaw: Flaw) -> Vec<u8> {
        let (verb, rest) = line.split_once(' ').expect("a verb and a key");
        match verb {
            "get" if flaw == Flaw::Misses => b"END\r\n".to_vec(),
            "get" => {
                let key = rest.trim_end();
                let digits = match flaw {
                    Flaw::AnothersValue => "ffffffff",
                    Flaw::None | Flaw::Misses | Flaw::AnswersTwice | Flaw::Closes => {
                        &key[key.len() - DIGITS..]
                    }
                };
                let header = format!("VALUE {key} 0 {}\r\n{digits}", self.value_bytes);
                let mut answer = header.into_bytes();
                answer.extend(Values::new(self.value_bytes).rest());
                answer.extend(b"\r\nEND\r\n");
                answer
            }
            "set" => b"STORED\r\n".to_vec(),
            _ => b"OK\r\n".to_vec(),
        }
    }
}

fn requests(value_bytes: usize) -> Requests {
    Requests::new(Dialect::Classic, value_bytes, 0)
}

#[test]
fn every_request_of_a_run_is_answered() {
    for piece_bytes in [3, 1_000] {
        let server = Scripted::start(20, piece_bytes, Flaw::None, 0);
        let mut load = Load::open(server.address, 5, 7).expect("it listens");
        let mut meter = Meter::new();
        let mut gets_sets = GetsSets::new(1, 100);
        for _ in 0..2 {
            let stop = Stop::Requests(501);
            load.run(&requests(20), &mut gets_sets, stop, &mut meter)
                .expect("all answers are right");
        }
        assert_eq!((meter.operations, server.served()), (1_002, 1_002));
        assert!(meter.latencies.percentiles().max_us > 0.0);
    }
}

#[test]
fn a_workload_that_ends_ends_the_run() {
    let server = Scripted::start(20, 1_000, Flaw::None, 0);
    let mut load = Load::open(server.address, 3, 4).expect("it listens");
    let mut meter = Meter::new();
    let mut fill = Fill::new(0..100);
    load.run(&requests(20), &mut fill, Stop::AtTheEnd, &mut meter)
        .expect("all are stored");
    assert_eq!((meter.operations, server.served()), (100, 100));
    let mut nothing = Fill::new(0..0);
    load.run(&requests(20), &mut nothing, Stop::AtTheEnd, &mut meter)
        .expect("there is nothing to wait for");
    assert_eq!(meter.operations, 100);
}

#[test]
fn a_run_ends_with_no_request_pending() {
    let server = Scripted::start(20, 1_000, Flaw::None, 0);
    let mut load = Load::open(server.address, 2, 2).expect("it listens");
    let mut meter = Meter::new();
    let mut locks = Locks::new(1, 100, 2);
    let stop = Stop::After(Duration::from_millis(50));
    load.run(&requests(20), &mut locks, stop, &mut meter)
        .expect("all answers are right");
    assert!(meter.operations > 0);
    assert_eq!(meter.operations, server.served());
}

/// Values that no buffer of a socket holds: output that cannot be sent at once is sent later.
#[test]
fn large_requests_are_sent_bit_by_bit() {
    let value_bytes = 3 << 20;
    let server = Scripted::start(value_bytes, 1_000, Flaw::None, 0);
    let mut load = Load::open(server.address, 2, 3).expect("it listens");
    let mut meter = Meter::new();
    let mut fill = Fill::new(0..12);
    let requests = requests(value_bytes);
    load.run(&requests, &mut fill, Stop::AtTheEnd, &mut meter)
        .expect("all are stored");
    assert_eq!((meter.operations, server.served()), (12, 12));
}

#[test]
fn a_wrong_answer_ends_the_run() {
    for (flaw, words) in [
        (Flaw::Misses, "was answered END"),
        (Flaw::AnothersValue, "was answered VALUE"),
        (Flaw::AnswersTwice, "nobody asked for"),
        (Flaw::Closes, "closed the connection"),
    ] {
        let server = Scripted::start(20, 1_000, flaw, 50);
        let mut load = Load::open(server.address, 1, 1).expect("it listens");
        let mut gets = GetsSets::gets(1, 100);
        let stop = Stop::Requests(100);
        let outcome = load.run(&requests(20), &mut gets, stop, &mut Meter::new());
        let error = format!("{:#}", outcome.expect_err("an answer was wrong"));
        assert!(error.contains(words), "{flaw:?}: {error}");
    }
}

#[test]
fn short_connections_are_counted_one_by_one() {
    let server = Scripted::start(20, 9, Flaw::None, 0);
    let mut meter = Meter::new();
    let mut gets = GetsSets::gets(1, 100);
    let (requests, stop) = (requests(20), Stop::Requests(600));
    churn::run(server.address, 7, &requests, &mut gets, stop, &mut meter)
        .expect("all answers are right");
    assert_eq!((meter.operations, server.served()), (600, 600));

    let server = Scripted::start(20, 1_000, Flaw::Misses, 30);
    churn::run(server.address, 7, &requests, &mut gets, stop, &mut meter)
        .expect_err("an answer was wrong");
}

#[test]
fn an_innocent_client_is_served_beside_the_load() {
    let server = Scripted::start(innocent::VALUE_BYTES, 1_000, Flaw::None, 0);
    let mut innocent = Innocent::new(server.address).expect("it listens");
    let before = server.served();
    let mut meter = Meter::new();
    let mut beside = Beside {
        innocent: &mut innocent,
        load: GetsSets::new(1, 100),
        until: Instant::now() + Duration::from_secs(60),
    };
    let requests = requests(innocent::VALUE_BYTES);
    let stop = Stop::Requests(20_000);
    Load::open(server.address, 1, 16)
        .expect("it listens")
        .run(&requests, &mut beside, stop, &mut meter)
        .expect("all answers are right");
    innocent.settle().expect("answered");
    assert_eq!(meter.operations, 20_000);
    let both = server.served() - before;
    assert!(both >= meter.operations + 2, "both were served: {both}");
    assert!(innocent.sets.percentiles().max_us > 0.0);
    assert!(innocent.gets.percentiles().max_us > 0.0);
    assert_eq!(innocent.misses, 0);
}

/// A server that serves one connection as long as it asks would keep the load for ever.
#[test]
fn an_innocent_client_stops_in_time() {
    let server = Scripted::start(innocent::VALUE_BYTES, 1_000, Flaw::None, 0);
    let mut innocent = Innocent::new(server.address).expect("it listens");
    let end = Instant::now() + Duration::from_millis(20);
    while Instant::now() < end + Duration::from_millis(20) {
        innocent.turn_until(end).expect("answered");
    }
    let heard = server.served();
    for _ in 0..1_000 {
        innocent.turn_until(end).expect("nothing is under way");
    }
    assert!(Instant::now() > end + innocent::INTERVAL);
    assert_eq!(server.served(), heard, "it asked after its end");
    innocent.turn().expect("sent");
    innocent.settle().expect("answered");
    assert_eq!(server.served(), heard + 1);
}
