//! Conversations of a client with the real core that no transcript can play: small limits, other executors, bounds of the
//! output, waits. `tests/transcripts/` has all others.

extern crate std;

mod access;
mod cluster;
mod cuts;
mod dumps;
mod packets;
mod refuse;
mod waits;

use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use latchd_protocol::command::{Command, GlobalCommand};
use latchd_protocol::connection::{Connection, Progress};
use latchd_protocol::execute::Execute;
use latchd_protocol::output::Output;
use latchd_protocol::reply::{MemoryRefused, Reply};
use latchd_protocol::stats::{Report, Stats, StatsLine};
use latchd_protocol::wire::{
    Admission, Allowed, BINARY_MAGIC, Claim, Envelope, KeyBuffer, LocalResponse, Operation,
    Protocols, Step, VERSION, WireLimits, binary, classic,
};

use crate::engine::{Config, Core, Event, Notification};
use crate::server::At;
use crate::{Instant, Limits, Owner};

const VALUE_BYTES_MAX: usize = 1 << 10;

/// A core, and clients with a connection each.
struct Bench {
    core: Core,
    clients: Vec<Client>,
    byte_by_byte: bool,
}

struct Client {
    conn: Owner,
    connection: Connection,
    input: Vec<u8>,
    open: bool,
}

impl Bench {
    fn new(clients: u64, byte_by_byte: bool) -> Self {
        let mut limits = Limits::new(8 << 20, VALUE_BYTES_MAX);
        limits.scan_items_max = 2;
        let mut core = Core::new(Config::new(limits, 1_700_000_000));
        let clients = (1..=clients)
            .map(|number| {
                let conn = Owner::from_number(number);
                core.handle(Instant::default(), Event::Opened(conn));
                Client {
                    conn,
                    connection: Connection::new(WireLimits::new(VALUE_BYTES_MAX)),
                    input: Vec::new(),
                    open: true,
                }
            })
            .collect();
        Self {
            core,
            clients,
            byte_by_byte,
        }
    }

    fn send(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        self.send_in_pieces(
            client,
            bytes,
            if self.byte_by_byte {
                1
            } else {
                bytes.len().max(1)
            },
        )
    }

    fn send_in_pieces(&mut self, client: usize, bytes: &[u8], piece: usize) -> Vec<u8> {
        let Client {
            conn,
            connection,
            input,
            open,
        } = &mut self.clients[client];
        let mut out = Output::new();
        for piece in bytes.chunks(piece) {
            if !*open {
                break;
            }
            input.extend_from_slice(piece);
            let mut core = At::new(&mut self.core, Instant::default(), *conn);
            let (consumed, progress) = connection.drive(input, &mut core, &mut out, usize::MAX);
            input.drain(..consumed);
            match progress {
                Progress::NeedsInput { at_least } => assert!(at_least > input.len()),
                Progress::OutputFull | Progress::Yielded => panic!("there is no bound to reach"),
                Progress::Waiting => panic!("nothing waits here"),
                Progress::Close => *open = false,
            }
        }
        out.into()
    }
}

/// Plays the conversation of one client, and checks each reply.
fn check(lines: &[(&str, &str)]) {
    for byte_by_byte in [false, true] {
        let mut bench = Bench::new(1, byte_by_byte);
        for (request, answer) in lines {
            let answered = bench.send(0, request.as_bytes());
            assert_eq!(
                String::from_utf8_lossy(&answered),
                *answer,
                "to {request:?}"
            );
            assert!(
                bench.clients[0].input.is_empty(),
                "bytes are left over from {request:?}"
            );
        }
    }
}

const BAD_LINE: &str = "CLIENT_ERROR bad command line format\r\n";

#[test]
fn a_connection_is_small_and_owns_nothing() {
    assert!(
        size_of::<Connection>() <= 96,
        "{} bytes",
        size_of::<Connection>()
    );
    assert!(!core::mem::needs_drop::<Connection>());
}

#[test]
fn an_announced_value_is_waited_for_and_not_reserved() {
    let mut connection = Connection::new(WireLimits::default());
    let mut key_buffer = KeyBuffer::new();
    let line = b"set a 0 0 1048576\r\n";
    let Step {
        operation: Operation::Incomplete { at_least },
        ..
    } = connection.next(line, &mut key_buffer)
    else {
        panic!("the value has not arrived")
    };
    assert_eq!(at_least, line.len() + 1_048_576 + 2);
    assert!(
        !core::mem::needs_drop::<Connection>(),
        "nothing that could hold it"
    );
}

#[test]
fn statistics_are_lines_and_the_transport_adds_its_own() {
    let mut stats = Stats::default();
    stats.counters.cmd_set = 3;
    stats.gauges.curr_items = 2;
    stats.gauges.held_bytes = 1;
    let lines = vec![StatsLine {
        name: "pid".into(),
        value: "17".into(),
    }];
    let report = Report {
        stats: &stats,
        lines: &lines,
        next: None,
    };
    let shown = |topic| {
        let mut out = Output::new();
        let envelope = Envelope::Classic(classic::ClassicEnvelope::Stats(topic));
        let mut connection = Connection::new(WireLimits::default());
        connection.reply(&envelope, &Reply::Stats(report), &mut out);
        String::from_utf8(out.into()).unwrap()
    };
    let general = shown(latchd_protocol::stats::StatsTopic::General);
    assert!(general.starts_with("STAT pid 17\r\n"), "{general}");
    assert!(general.contains("STAT cmd_set 3\r\n"), "{general}");
    assert!(general.contains("STAT curr_items 2\r\n"), "{general}");
    assert!(general.ends_with("\r\nEND\r\n"), "{general}");
    let slabs = shown(latchd_protocol::stats::StatsTopic::Slabs);
    for name in ["1:cmd_set 3", "1:cas_hits 0", "1:cas_badval 0"] {
        assert!(slabs.contains(&format!("STAT {name}\r\n")), "{slabs}");
    }
    assert!(shown(latchd_protocol::stats::StatsTopic::Items).contains("STAT items:1:number 2\r\n"));
}

#[test]
fn a_get_of_10_000_long_keys_is_answered() {
    let mut bench = Bench::new(1, false);
    let key = |number: usize| format!("{number:0250}");
    let set = format!("set {} 0 0 1\r\nx\r\n", key(9_999));
    assert_eq!(bench.send(0, set.as_bytes()), b"STORED\r\n");
    let mut line = String::from("get");
    for number in 0..10_000 {
        line.push(' ');
        line.push_str(&key(number));
    }
    line.push_str("\r\n");
    let answer = format!("VALUE {} 0 1\r\nx\r\nEND\r\n", key(9_999));
    assert_eq!(
        bench.send_in_pieces(0, line.as_bytes(), 16_384),
        answer.as_bytes()
    );
}

#[test]
fn a_get_without_an_end_closes() {
    let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
    let mut line = b"get ".to_vec();
    line.resize(latchd_protocol::wire::limits::GET_LINE_BYTES_MAX + 1, b'k');
    let mut key_buffer = KeyBuffer::new();
    let Step {
        operation: Operation::Close { response },
        ..
    } = connection.next(&line, &mut key_buffer)
    else {
        panic!("nothing else is left to do")
    };
    assert_eq!(response, LocalResponse::Line("CLIENT_ERROR line too long"));
}

#[test]
fn bad_key_fails_the_whole_get() {
    let mut bench = Bench::new(1, false);
    let line = format!("gat 0 a {}\r\n", "k".repeat(251));
    assert_eq!(bench.send(0, line.as_bytes()), BAD_LINE.as_bytes());
    assert!(
        String::from_utf8(bench.send(0, b"stats\r\n"))
            .unwrap()
            .contains("cmd_touch 0\r\n")
    );
}

#[test]
fn output_is_bounded_between_the_keys_of_a_get() {
    let mut bench = Bench::new(1, false);
    bench.send(0, b"set a 0 0 3\r\nabc\r\n");
    let line = b"get a a a\r\n";
    let Client {
        conn, connection, ..
    } = &mut bench.clients[0];
    for (answer, consumed_then) in [
        (&b"VALUE a 0 3\r\nabc\r\n"[..], 0),
        (b"VALUE a 0 3\r\nabc\r\n", 0),
        (b"VALUE a 0 3\r\nabc\r\nEND\r\n", line.len()),
    ] {
        let mut out = Output::new();
        let mut core = At::new(&mut bench.core, Instant::default(), *conn);
        let (consumed, progress) = connection.drive(line, &mut core, &mut out, 1);
        assert_eq!((consumed, progress), (consumed_then, Progress::OutputFull));
        assert_eq!(Vec::from(out), answer);
    }
}

#[test]
fn keys_are_listed_page_by_page() {
    for byte_by_byte in [false, true] {
        let mut bench = Bench::new(1, byte_by_byte);
        for key in ["a1", "a2", "a3", "a4", "a5", "b1"] {
            bench.send(0, format!("set {key} 0 0 1\r\nx\r\n").as_bytes());
        }
        let listed = String::from_utf8(bench.send(0, b"keys\r\nmn\r\n")).unwrap();
        let (keys, end) = listed.split_at(6 * "VALUE a1\r\n".len());
        let mut keys: Vec<&str> = keys.split_terminator("\r\n").collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "VALUE a1", "VALUE a2", "VALUE a3", "VALUE a4", "VALUE a5", "VALUE b1"
            ]
        );
        assert_eq!(end, "END\r\nMN\r\n");
        assert_eq!(bench.send(0, b"keys b\r\n"), b"VALUE b1\r\nEND\r\n");
        assert_eq!(bench.send(0, b"keys c\r\n"), b"END\r\n");
    }
}

#[test]
fn the_first_byte_tells_the_protocol() {
    let mut noop = [0; 24];
    (noop[0], noop[1]) = (BINARY_MAGIC, 0x0a);
    for byte_by_byte in [false, true] {
        let mut bench = Bench::new(2, byte_by_byte);
        assert!(bench.send(0, &noop).starts_with(&[0x81, 0x0a]));
        assert_eq!(bench.send(1, b"mn\r\n"), b"MN\r\n");
        assert_eq!(
            bench.send(1, b"\x80\r\nmn\r\n"),
            format!("{BAD_LINE}MN\r\n").as_bytes()
        );
    }
}

#[test]
fn out_of_memory_fits_the_protocol() {
    let reply_to = |bytes: &[u8]| {
        let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
        let mut key_buffer = KeyBuffer::new();
        connection.next(bytes, &mut key_buffer);
        let mut out = Output::new();
        connection.out_of_memory(bytes).encode(&mut out);
        Vec::from(out)
    };
    assert_eq!(reply_to(b""), b"");
    assert_eq!(
        reply_to(b"set k 0 0 100\r\nabc"),
        b"SERVER_ERROR out of memory reading request\r\n"
    );
    let mut set = [0; 30];
    (set[0], set[1], set[3], set[4], set[11]) = (0x80, 0x01, 1, 8, 100);
    set[15] = 42;
    let packet = reply_to(&set);
    assert_eq!(packet[..2], [0x81, 0x01]);
    assert_eq!(packet[6..8], [0x00, 0x82], "out of memory");
    assert_eq!(packet[12..16], [0, 0, 0, 42], "its opaque");
    assert_eq!(reply_to(&set[..10]), b"", "nobody knows what it asks");
}
