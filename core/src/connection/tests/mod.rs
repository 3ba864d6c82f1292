//! Conversations, byte for byte: what a client sends and what it is answered, with the real core.
//! Each is held once with all bytes at once and once byte by byte.

extern crate std;

mod classic_text;
mod dumps;
mod meta_text;
mod values;
mod waits;

use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::command::{Command, GlobalCommand};
use crate::engine::{Config, Core, Event};
use crate::limits::MemoryRefused;
use crate::stats::{Report, Stats, StatsLine};
use crate::wire::{Allowed, Claim, VERSION};
use crate::{ConnId, Instant, Limits};

const VALUE_BYTES_MAX: usize = 1 << 10;

/// A core, and clients that each have a connection.
struct Bench {
    core: Core,
    clients: Vec<Client>,
    byte_by_byte: bool,
}

struct Client {
    conn: ConnId,
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
                let conn = ConnId::from_number(number);
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
            let mut core = self.core.at(Instant::default(), *conn);
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

/// Holds a conversation of one client, and checks each answer.
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
        size_of::<Connection>() <= 64,
        "{} bytes",
        size_of::<Connection>()
    );
    assert!(!core::mem::needs_drop::<Connection>());
}

/// What a connection of these limits answers, and whether it goes on.
fn answered(limits: WireLimits, input: &[u8]) -> (String, bool) {
    let (answer, goes_on) = answer(limits, input);
    (String::from_utf8_lossy(&answer).into_owned(), goes_on)
}

/// The same, byte for byte.
fn answer(limits: WireLimits, input: &[u8]) -> (Vec<u8>, bool) {
    struct Friend;
    impl Execute for Friend {
        fn execute(&mut self, _: &Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
            answer(&Reply::Ok);
        }
        fn admits(&mut self, claim: Option<Claim<'_>>) -> bool {
            claim.is_some_and(|who| (who.name, who.password) == (b"fred", b"pass"))
        }
    }
    let mut out = Output::new();
    let (_, progress) = Connection::new(limits).drive(input, &mut Friend, &mut out, usize::MAX);
    (Vec::from(out), progress != Progress::Close)
}

fn allowing(change: impl Fn(&mut Allowed)) -> WireLimits {
    let mut limits = WireLimits::new(VALUE_BYTES_MAX);
    change(&mut limits.allowed);
    limits
}

#[test]
fn what_is_not_allowed_is_said_and_not_done() {
    let limits = allowing(|allowed| (allowed.flush_all, allowed.listing) = (false, false));
    for (asked, refused) in [
        ("flush_all", "CLIENT_ERROR flush_all not allowed\r\n"),
        ("flush_all noreply", ""),
        ("keys a", "CLIENT_ERROR keys not allowed\r\n"),
        ("stats locks", "CLIENT_ERROR stats locks not allowed\r\n"),
        ("stats detail", "CLIENT_ERROR stats detail not allowed\r\n"),
        (
            "stats cachedump 1 1",
            "CLIENT_ERROR stats cachedump not allowed\r\n",
        ),
        ("lru_crawler metadump all", "ERROR metadump not allowed\r\n"),
        ("lru_crawler mgdump all", "ERROR key dump not allowed\r\n"),
    ] {
        let asked = format!("{asked}\r\n");
        assert_eq!(answered(limits, asked.as_bytes()), (refused.into(), true));
    }
    for (opcode, key) in [
        (0x08, ""),
        (0x18, ""),
        (0x50, ""),
        (0x10, "locks"),
        (0x10, "detail on"),
    ] {
        let mut packet = std::vec![0; 24];
        (packet[0], packet[1]) = (0x80, opcode);
        // So short a key is its own length, and that of the body.
        let key_bytes = u8::try_from(key.len()).unwrap();
        (packet[3], packet[11]) = (key_bytes, key_bytes);
        packet.extend_from_slice(key.as_bytes());
        let (answer, goes_on) = answered(limits, &packet);
        assert!(answer.ends_with("Auth failure.") && goes_on, "{answer}");
    }
}

#[test]
fn a_client_ends_the_server_only_where_that_is_allowed() {
    let refused = ("SERVER_ERROR: shutdown not enabled\r\n".into(), true);
    assert_eq!(answered(allowing(|_| {}), b"shutdown\r\n"), refused);
    let limits = allowing(|allowed| allowed.shutdown = true);
    assert_eq!(answered(limits, b"shutdown\r\n"), (String::new(), false));
    assert_eq!(
        answered(limits, b"shutdown graceful\r\n"),
        (String::new(), false)
    );
    assert_eq!(
        answered(limits, b"shutdown now\r\n"),
        ("CLIENT_ERROR invalid shutdown mode\r\n".into(), true)
    );
}

#[test]
fn certificates_are_read_anew_where_there_are_any() {
    let asked = b"refresh_certs\r\nrefresh_certs noreply\r\nmn\r\n";
    let refused = "Error TLS not enabled\r\nMN\r\n";
    assert_eq!(answered(allowing(|_| {}), asked), (refused.into(), true));
}

#[test]
fn one_protocol_may_be_all_that_is_spoken() {
    let version = [&[0x80, 0x0b][..], &[0; 22]].concat();
    let text = allowing(|allowed| allowed.protocols = Protocols::Text);
    assert_eq!(answered(text, b"mn\r\n"), ("MN\r\n".into(), true));
    assert_eq!(answered(text, &version), (String::new(), true));
    let binary = allowing(|allowed| allowed.protocols = Protocols::Binary);
    assert!(answered(binary, &version).0.ends_with(VERSION));
    // No packet begins like this.
    let line = b"mn and more than there is in a header\r\n";
    assert_eq!(answered(binary, line), (String::new(), false));
}

#[test]
fn a_stranger_is_told_nothing_and_a_friend_everything() {
    let limits = allowing(|allowed| allowed.admission = Admission::ByPassword);
    let wrong = "set k 0 0 6\r\nfred x\r\n";
    let (answer, goes_on) = answered(limits, format!("get k\r\n{wrong}mn aa\r\n").as_bytes());
    assert_eq!(
        answer,
        "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\n\
         CLIENT_ERROR unauthenticated\r\n"
    );
    assert!(goes_on);
    let (answer, _) = answered(limits, b"set k 0 0 9\r\nfred pass\r\nmn\r\nflush_all\r\n");
    assert_eq!(answer, "STORED\r\nMN\r\nOK\r\n");
    let (answer, goes_on) = answered(limits, wrong.repeat(20).as_bytes());
    assert_eq!((answer.lines().count(), goes_on), (8, false));
}

/// A packet of the binary protocol without extras.
fn packet(opcode: u8, key: &str, value: &str) -> Vec<u8> {
    let mut packet = Vec::new();
    binary::header::RequestHeader {
        opcode,
        key_bytes: u16::try_from(key.len()).unwrap(),
        extras_bytes: 0,
        body_bytes: u32::try_from(key.len() + value.len()).unwrap(),
        opaque: 0,
        cas: 0,
    }
    .encode(&mut packet);
    packet.extend_from_slice(key.as_bytes());
    packet.extend_from_slice(value.as_bytes());
    packet
}

/// The statuses of the answers to these packets, and whether the connection goes on.
fn statuses(limits: WireLimits, packets: &[Vec<u8>]) -> (Vec<u16>, bool) {
    let (mut statuses, mut goes_on) = (Vec::new(), true);
    for count in 1..=packets.len() {
        let (answer, is_open) = answer(limits, &packets[..count].concat());
        // Each answer says how long it is: the last header is found by walking over all of them.
        let mut bytes = &answer[..];
        let mut last = None;
        while let Some(status) = bytes.get(6..8) {
            last = Some(u16::from(status[0]) << 8 | u16::from(status[1]));
            let body = usize::from(bytes[10]) << 8 | usize::from(bytes[11]);
            bytes = &bytes[24 + body..];
        }
        statuses.extend(last);
        goes_on = is_open;
        if !is_open {
            break;
        }
    }
    (statuses, goes_on)
}

#[test]
fn sasl_lets_a_friend_in_and_nobody_else() {
    let [list, auth, step, version, noop] = [0x20, 0x21, 0x22, 0x0b, 0x0a];
    let limits = allowing(|allowed| allowed.admission = Admission::BySasl);
    let begin_with = |token| packet(auth, "PLAIN", token);
    let go_on_with = |token| packet(step, "PLAIN", token);
    let said = |packets: &[Vec<u8>]| statuses(limits, packets);
    let bare = |opcode| packet(opcode, "", "");
    let (mechanisms, _) = answered(limits, &bare(list));
    assert!(mechanisms.ends_with("PLAIN"), "{mechanisms}");
    let friend = begin_with("\0fred\0pass");
    assert_eq!(
        said(&[bare(version), friend.clone(), bare(noop)]),
        (vec![0, 0, 0], true)
    );
    assert!(answered(limits, &friend).0.ends_with("Authenticated"));
    // A stranger who asks for anything else is closed, also for what nobody knows.
    for opcode in [noop, 0x00, 0x01, 0x07, 0x08, 0x10, 0x50, 0x7f] {
        assert_eq!(said(&[bare(opcode)]), (vec![0x20], false));
    }
    // What is wrong is said, and eight times.
    for token in ["", "fred", "\0fred\0pass", "\0\0"] {
        let (answers, goes_on) = said(&[go_on_with(token)]);
        assert_eq!((answers, goes_on), (vec![0x20], true), "it has not begun");
    }
    for token in ["fred", "\0fred\0pas", "ann\0fred\0pass", "\0\0"] {
        assert_eq!(said(&[begin_with(token)]), (vec![0x20], true), "{token}");
    }
    let other = packet(auth, "CRAM-MD5", "\0fred\0pass");
    assert_eq!(said(&[other]), (vec![0x20], true));
    let (answers, goes_on) = said(&vec![begin_with("\0fred\0x"); 20]);
    assert_eq!((answers.len(), goes_on), (8, false));
    // In two steps, the second right behind the first.
    let second = go_on_with("\0fred\0pass");
    assert_eq!(
        said(&[begin_with(""), second.clone(), bare(noop)]),
        (vec![0x21, 0, 0], true)
    );
    assert_eq!(
        said(&[begin_with(""), friend.clone(), second]),
        (vec![0x21, 0, 0x20], true)
    );
    // Who begins anew is a stranger until that has succeeded.
    assert_eq!(
        said(&[friend, begin_with("\0fred\0x"), bare(noop)]),
        (vec![0, 0x20, 0x20], false)
    );
    let line = b"version\r\nand more than a header has\r\n";
    assert_eq!(answered(limits, line), (String::new(), false));
}

#[test]
fn both_protocols_may_ask_who_somebody_is() {
    let limits = allowing(|allowed| allowed.admission = Admission::Either);
    assert_eq!(
        answered(limits, b"version\r\nset k 0 0 9\r\nfred pass\r\nmn\r\n").0,
        "CLIENT_ERROR unauthenticated\r\nSTORED\r\nMN\r\n"
    );
    assert_eq!(
        statuses(limits, &[packet(0x0a, "", "")]),
        (vec![0x20], false)
    );
    let friend = packet(0x21, "PLAIN", "\0fred\0pass");
    assert_eq!(
        statuses(limits, &[friend, packet(0x0a, "", "")]),
        (vec![0, 0], true)
    );
}

#[test]
fn an_announced_value_is_waited_for_and_not_reserved() {
    let mut connection = Connection::new(WireLimits::default());
    let mut key_buffer = KeyBuffer::new();
    let line = b"set a 0 0 1048576\r\n";
    let Step::Incomplete { at_least } = connection.next(line, &mut key_buffer) else {
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
    let lines = vec![StatsLine {
        name: "pid".into(),
        value: "17".into(),
    }];
    let report = Report {
        stats: &stats,
        lines: &lines,
    };
    let shown = |topic| {
        let mut out = Output::new();
        let envelope = Envelope::Classic(classic::ClassicEnvelope::Stats(topic));
        let mut connection = Connection::new(WireLimits::default());
        connection.reply(&envelope, &Reply::Stats(report), &mut out);
        String::from_utf8(out.into()).unwrap()
    };
    let general = shown(crate::stats::StatsTopic::General);
    assert!(general.starts_with("STAT pid 17\r\n"), "{general}");
    assert!(general.contains("STAT cmd_set 3\r\n"), "{general}");
    assert!(general.contains("STAT curr_items 2\r\n"), "{general}");
    assert!(general.ends_with("\r\nEND\r\n"), "{general}");
    let slabs = shown(crate::stats::StatsTopic::Slabs);
    for name in ["1:cmd_set 3", "1:cas_hits 0", "1:cas_badval 0"] {
        assert!(slabs.contains(&format!("STAT {name}\r\n")), "{slabs}");
    }
    assert!(shown(crate::stats::StatsTopic::Items).contains("STAT items:1:number 2\r\n"));
}

#[test]
fn quit_and_browsers_end_the_connection_without_a_word() {
    for line in ["quit\r\n", "quit now\r\n", "GET / HTTP/1.1\r\n"] {
        let mut bench = Bench::new(1, false);
        assert_eq!(bench.send(0, line.as_bytes()), b"");
        assert!(!bench.clients[0].open, "{line:?}");
    }
    check(&[("HTTP/1.1\r\n", "ERROR\r\n")]);
}

#[test]
fn a_line_has_2048_bytes_unless_it_gets_many_keys() {
    for byte_by_byte in [false, true] {
        let mut bench = Bench::new(1, byte_by_byte);
        let mut line = vec![b'x'; 2048];
        line.push(b'\n');
        assert_eq!(bench.send(0, &line), b"ERROR\r\n");
        assert!(bench.clients[0].open);

        line.insert(0, b'x');
        assert_eq!(bench.send(0, &line), b"CLIENT_ERROR line too long\r\n");
        assert!(!bench.clients[0].open);
    }
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
    line.resize(crate::wire::limits::GET_LINE_BYTES_MAX + 1, b'k');
    let mut key_buffer = KeyBuffer::new();
    let Step::Close { response } = connection.next(&line, &mut key_buffer) else {
        panic!("nothing else is left to do")
    };
    assert_eq!(response, LocalResponse::Line("CLIENT_ERROR line too long"));
}

#[test]
fn a_bad_key_among_many_is_told_before_any_is_read() {
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
        let mut core = bench.core.at(Instant::default(), *conn);
        let (consumed, progress) = connection.drive(line, &mut core, &mut out, 1);
        assert_eq!((consumed, progress), (consumed_then, Progress::OutputFull));
        assert_eq!(Vec::from(out), answer);
    }
}

#[test]
fn a_line_is_searched_once_however_slowly_it_comes() {
    let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
    let line = b"get aaaaaaaaaaaaaaaaaaaa";
    for arrived in 1..=line.len() {
        let Step::Incomplete { at_least } =
            connection.next(&line[..arrived], &mut KeyBuffer::new())
        else {
            panic!("the line has no end")
        };
        assert_eq!(at_least, arrived + 1);
        assert_eq!(connection.scanned as usize, arrived);
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

/// Requests, whole and broken, in any order.
#[derive(Clone, Debug)]
struct Script(Vec<u8>);

impl Arbitrary for Script {
    fn arbitrary(g: &mut Gen) -> Self {
        const PIECES: &[&[u8]] = &[
            b"get a\r\n",
            b"get a b  c\r\n",
            b"gets a ab\r\n",
            b"gat 100 a b\r\n",
            b"gats -1 a\r\n",
            b"set a 0 0 3\r\nabc\r\n",
            b"set b 7 0 0\r\n\r\n",
            b"set a 0 0 1 noreply\r\n5\r\n",
            b"add c 1 10 2\r\n10\r\n",
            b"append a 0 0 1\r\nx\r\n",
            b"cas a 0 0 1 3\r\ny\r\n",
            b"set a 0 0 3\r\nabcdef\r\n",
            b"set a x 0 5\r\nmn\r\n!\r\n",
            b"set a 0 0 5000\r\n",
            b"delete a\r\n",
            b"delete a 5\r\n",
            b"incr c 7\r\n",
            b"decr c 5\r\n",
            b"touch a 9\r\n",
            b"lock a\r\n",
            b"unlock a\r\n",
            b"unlock_all\r\n",
            b"keys\r\n",
            b"keys a\r\n",
            b"flush_all\r\n",
            b"stats items\r\n",
            b"version\r\n",
            b"mn\r\n",
            b"mg a v t c k\r\n",
            b"mg b v N30 R20 t q O1\r\n",
            b"mg YQ== b k v\r\n",
            b"ms a 2 T30 c s\r\nhi\r\n",
            b"ms c 1 MA N0 I\r\nx\r\n",
            b"ms a 2 y\r\nhi\r\n",
            b"md a I T5\r\n",
            b"md a x\r\n",
            b"ma c N0 J5 v\r\n",
            b"ma c MD t k q\r\n",
            b"me a\r\n",
            b"me YQ== b\r\n",
            b"\r\n",
            b"foo\r\n",
            b"get ",
            b"set a 0 0 ",
            b"10\r\n",
            b"\n",
            b"abcdefghij",
            b" ",
            b"\x80",
            b"quit\r\n",
        ];
        let mut bytes = Vec::new();
        for _ in 0..usize::arbitrary(g) % 30 {
            if u8::arbitrary(g) % 16 == 0 {
                bytes.extend(Vec::<u8>::arbitrary(g));
            } else {
                bytes.extend_from_slice(g.choose(PIECES).unwrap());
            }
        }
        Self(bytes)
    }

    fn shrink(&self) -> std::boxed::Box<dyn Iterator<Item = Self>> {
        std::boxed::Box::new(self.0.shrink().map(Self))
    }
}

#[test]
fn a_client_is_told_in_its_own_protocol_that_there_is_no_memory() {
    let told = |bytes: &[u8]| {
        let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
        let mut key_buffer = KeyBuffer::new();
        connection.next(bytes, &mut key_buffer);
        let mut out = Output::new();
        connection.out_of_memory(bytes).encode(&mut out);
        Vec::from(out)
    };
    assert_eq!(told(b""), b"");
    assert_eq!(
        told(b"set k 0 0 100\r\nabc"),
        b"SERVER_ERROR out of memory reading request\r\n"
    );
    let mut set = [0; 30];
    (set[0], set[1], set[3], set[4], set[11]) = (0x80, 0x01, 1, 8, 100);
    set[15] = 42;
    let packet = told(&set);
    assert_eq!(packet[..2], [0x81, 0x01]);
    assert_eq!(packet[6..8], [0x00, 0x82], "out of memory");
    assert_eq!(packet[12..16], [0, 0, 0, 42], "its opaque");
    assert_eq!(told(&set[..10]), b"", "nobody knows what it asks");
}

/// An executor that lets a connection take so many steps at a time.
struct Impatient<E> {
    executor: E,
    steps_left: usize,
}

impl<E: Execute> Execute for Impatient<E> {
    fn execute(&mut self, command: &Command<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        self.executor.execute(command, answer);
    }

    fn limit_memory(&mut self, bytes: usize) -> Result<(), MemoryRefused> {
        self.executor.limit_memory(bytes)
    }

    fn goes_on(&mut self) -> bool {
        self.steps_left = self.steps_left.saturating_sub(1);
        self.steps_left > 0
    }
}

/// What a new server answers to `bytes` that come in pieces of the given lengths, with the output
/// bounded to `out_bytes_max` at a time, and `steps_max` steps taken at a time.
fn converse(bytes: &[u8], pieces: &[u8], out_bytes_max: usize, steps_max: usize) -> Vec<u8> {
    let mut bench = Bench::new(1, false);
    let Client {
        conn,
        connection,
        input,
        ..
    } = &mut bench.clients[0];
    let (mut all, mut rest) = (Vec::new(), bytes);
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        let piece = pieces
            .next()
            .map_or(rest.len(), |piece| usize::from(*piece) + 1);
        let (arrived, later) = rest.split_at(piece.min(rest.len()));
        input.extend_from_slice(arrived);
        rest = later;
        loop {
            let mut out = Output::new();
            let mut core = Impatient {
                executor: bench.core.at(Instant::default(), *conn),
                steps_left: steps_max,
            };
            let (consumed, progress) = connection.drive(input, &mut core, &mut out, out_bytes_max);
            input.drain(..consumed);
            all.append(&mut Vec::from(out));
            match progress {
                Progress::NeedsInput { at_least } => {
                    assert!(at_least > input.len(), "waits for what has arrived");
                    break;
                }
                Progress::OutputFull => {}
                Progress::Yielded => assert_eq!(core.steps_left, 0, "it yields unasked"),
                Progress::Waiting => panic!("nothing waits here"),
                Progress::Close => return all,
            }
        }
    }
    all
}

quickcheck! {
    /// However the network cuts the bytes, and however small the output, the answers are the same.
    fn cuts_do_not_matter(script: Script, pieces: Vec<u8>) -> bool {
        let whole = converse(&script.0, &[], usize::MAX, usize::MAX);
        converse(&script.0, &pieces, usize::MAX, usize::MAX) == whole
            && converse(&script.0, &[0], 1, usize::MAX) == whole
    }

    /// W4: wherever the executor makes it yield, the answers are the same.
    fn yielding_does_not_matter(script: Script, pieces: Vec<u8>, steps_max: u8) -> bool {
        let whole = converse(&script.0, &[], usize::MAX, usize::MAX);
        converse(&script.0, &[], usize::MAX, 1) == whole
            && converse(&script.0, &pieces, 7, usize::from(steps_max)) == whole
    }

    /// No bytes panic, and every step but a request of several parts makes progress.
    fn any_bytes_are_dealt_with(bytes: Vec<u8>) -> bool {
        let mut connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
        let mut key_buffer = KeyBuffer::new();
        let mut rest = &bytes[..];
        let mut idle = 0;
        loop {
            let consumed = match connection.next(rest, &mut key_buffer) {
                Step::Incomplete { at_least } => return at_least > rest.len(),
                Step::Close { .. } | Step::ShutDown => return true,
                Step::Watch { consumed, .. } => consumed,
                Step::Execute { consumed, command, envelope } => {
                    if let Command::Global(GlobalCommand::Keys(_)) = command {
                        connection.reply(&envelope, &Reply::Ok, &mut Output::new());
                    }
                    consumed
                }
                Step::Send { consumed, .. }
                | Step::Skip { consumed }
                | Step::ReadCertificates { consumed, .. }
                | Step::LimitMemory { consumed, .. }
                | Step::Authenticate { consumed, .. } => {
                    assert!(consumed > 0);
                    consumed
                }
            };
            idle = if consumed == 0 { idle + 1 } else { 0 };
            assert!(idle <= bytes.len(), "no progress");
            rest = &rest[consumed..];
        }
    }
}
