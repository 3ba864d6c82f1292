//! Packets through a connection and a core, and back.

use alloc::vec;
use alloc::vec::Vec;

use latchd_protocol::connection::{Connection, Progress, WireLimits};
use latchd_protocol::output::Output;
use latchd_protocol::wire::binary::reply::{self, ResponsePacket};
use latchd_protocol::wire::binary::{Extras, HEADER_BYTES, Opcode, RequestPacket, Status};

use crate::engine::{Config, Core, Event};
use crate::server::At;
use crate::{Instant, Limits, Owner};

const VALUE_BYTES_MAX: usize = 100;
const STORE: Extras = Extras::Store {
    client_flags: 7,
    exptime: 0,
};

/// One core and two clients, of any protocol.
struct Bench {
    core: Core,
    clients: [Client; 2],
}

/// A client's end of the wire.
struct Client {
    connection: Connection,
    /// Bytes that have arrived and are not consumed.
    input: Vec<u8>,
    closed: bool,
}

fn bytes_of(request: &RequestPacket<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(&mut out).expect("short enough");
    out
}

const A: usize = 0;
const B: usize = 1;

impl Bench {
    fn new() -> Self {
        let mut limits = Limits::new(1 << 20, VALUE_BYTES_MAX);
        limits.scan_items_max = 3;
        let mut core = Core::new(Config::new(limits, 1_700_000_000));
        let clients = [A, B].map(|number| {
            let conn = Owner::from_number(number as u64);
            core.handle(Instant::default(), Event::Opened(conn));
            let connection = Connection::new(WireLimits::new(VALUE_BYTES_MAX));
            Client {
                connection,
                input: Vec::new(),
                closed: false,
            }
        });
        Self { core, clients }
    }

    /// The bytes that `client` receives after it has sent `bytes`.
    fn send(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        let conn = Owner::from_number(client as u64);
        let Client {
            connection,
            input,
            closed,
        } = &mut self.clients[client];
        input.extend_from_slice(bytes);
        let mut out = Output::new();
        let mut at = At::new(&mut self.core, Instant::default(), conn);
        let (consumed, progress) = connection.drive(input, &mut at, &mut out, usize::MAX);
        input.drain(..consumed);
        match progress {
            Progress::NeedsInput { at_least } => {
                assert!(at_least > input.len(), "waits for what is there");
                assert!(
                    at_least <= HEADER_BYTES + 8 + 250 + VALUE_BYTES_MAX,
                    "gathers too much"
                );
            }
            Progress::OutputFull | Progress::Yielded | Progress::Waiting => {
                panic!("there is no bound here, and nothing waits")
            }
            Progress::Close => {
                *closed = true;
                self.core.handle(Instant::default(), Event::Closed(conn));
            }
        }
        self.core.check();
        out.into()
    }

    /// All packets that `client` receives for these requests.
    fn ask(&mut self, client: usize, requests: &[RequestPacket<'_>]) -> Vec<Owned> {
        let bytes: Vec<u8> = requests.iter().flat_map(bytes_of).collect();
        packets(&self.send(client, &bytes))
    }
}

/// A [`ResponsePacket`] that owns its bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Owned {
    opcode: u8,
    status: Status,
    opaque: u32,
    has_cas: bool,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

fn packets(mut bytes: &[u8]) -> Vec<Owned> {
    let mut packets = Vec::new();
    while let Some((packet, consumed)) = reply::decode(bytes, usize::MAX).unwrap() {
        let ResponsePacket {
            opcode,
            status,
            opaque,
            cas,
            extras,
            key,
            value,
        } = packet;
        packets.push(Owned {
            opcode,
            status,
            opaque,
            has_cas: cas.is_some(),
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
        });
        bytes = &bytes[consumed..];
    }
    assert!(bytes.is_empty(), "half a packet was sent");
    packets
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> RequestPacket<'a> {
    RequestPacket {
        extras: STORE,
        key,
        value,
        ..RequestPacket::new(Opcode::Set)
    }
}

fn of(opcode: Opcode, key: &[u8]) -> RequestPacket<'_> {
    RequestPacket {
        key,
        ..RequestPacket::new(opcode)
    }
}

fn statuses(packets: &[Owned]) -> Vec<(u8, u16)> {
    packets
        .iter()
        .map(|packet| (packet.opcode, packet.status.number()))
        .collect()
}

#[test]
fn a_noop_tells_that_the_quiet_ones_before_it_are_done() {
    let quiet = |opcode, opaque| RequestPacket {
        opaque,
        extras: STORE,
        ..of(opcode, b"k")
    };
    let sent = Bench::new().ask(
        A,
        &[
            quiet(Opcode::SetQ, 1),
            RequestPacket {
                opaque: 2,
                ..of(Opcode::GetQ, b"missing")
            },
            RequestPacket {
                opaque: 3,
                ..of(Opcode::GetKQ, b"k")
            },
            quiet(Opcode::AddQ, 4),
            RequestPacket {
                opaque: 5,
                ..of(Opcode::DeleteQ, b"missing")
            },
            RequestPacket {
                opaque: 6,
                ..RequestPacket::new(Opcode::Noop)
            },
        ],
    );
    let opaques: Vec<u32> = sent.iter().map(|packet| packet.opaque).collect();
    assert_eq!(opaques, [3, 4, 5, 6]);
    assert_eq!(
        statuses(&sent),
        [(0x0d, 0), (0x12, 2), (0x14, 1), (0x0a, 0)]
    );
    assert_eq!((&sent[0].key[..], sent[0].has_cas), (&b"k"[..], true));
}

#[test]
fn a_lock_of_one_protocol_is_seen_in_the_other() {
    let mut bench = Bench::new();
    bench.ask(A, &[set(b"k", b"v"), of(Opcode::Lock, b"k")]);
    assert_eq!(bench.send(B, b"set k 0 0 1\r\nx\r\nlock k\r\nget k\r\n"), {
        b"LOCKED\r\nLOCKED\r\nVALUE k 7 1\r\nv\r\nEND\r\n"
    });
    assert_eq!(
        statuses(&bench.ask(A, &[of(Opcode::Unlock, b"k")])),
        [(0x42, 0)]
    );
    assert_eq!(bench.send(B, b"lock k\r\n"), b"OK\r\n");
    let sent = bench.ask(
        A,
        &[
            RequestPacket {
                opcode: Opcode::SetQ,
                ..set(b"k", b"x")
            },
            of(Opcode::LockQ, b"k"),
            of(Opcode::LaGQ, b"k"),
            of(Opcode::UnlockQ, b"k"),
            RequestPacket {
                opcode: Opcode::RaUQ,
                ..set(b"k", b"x")
            },
        ],
    );
    assert_eq!(
        statuses(&sent),
        [
            (0x11, 0x10),
            (0x41, 0x10),
            (0x47, 0x10),
            (0x43, 0x11),
            (0x4b, 0x11)
        ]
    );
}

#[test]
fn the_end_of_a_connection_frees_its_locks() {
    let mut bench = Bench::new();
    bench.ask(
        A,
        &[
            set(b"k", b"v"),
            of(Opcode::LockQ, b"k"),
            RequestPacket::new(Opcode::QuitQ),
        ],
    );
    assert!(bench.clients[A].closed);
    assert_eq!(
        statuses(&bench.ask(B, &[of(Opcode::Lock, b"k")])),
        [(0x40, 0)]
    );
}

#[test]
fn a_listing_goes_over_its_pages_and_ends_once() {
    let mut bench = Bench::new();
    let keys: Vec<Vec<u8>> = (0..20).map(|number| vec![b'k', b'a' + number]).collect();
    for key in &keys {
        bench.ask(A, &[set(key, b"v")]);
    }
    bench.ask(A, &[set(b"other", b"v")]);
    let sent = bench.ask(
        A,
        &[
            RequestPacket {
                opaque: 1,
                ..of(Opcode::Keys, b"k")
            },
            RequestPacket {
                opaque: 2,
                ..of(Opcode::Keys, b"none")
            },
            RequestPacket {
                opaque: 3,
                ..RequestPacket::new(Opcode::Noop)
            },
        ],
    );
    let (first, rest) = sent.split_at(keys.len());
    let mut listed: Vec<Vec<u8>> = first.iter().map(|packet| packet.key.clone()).collect();
    listed.sort_unstable();
    assert_eq!(listed, keys);
    assert!(first.iter().all(|packet| packet.opaque == 1));
    let ends: Vec<(u32, usize)> = rest
        .iter()
        .map(|packet| (packet.opaque, packet.key.len()))
        .collect();
    assert_eq!(ends, [(1, 0), (2, 0), (3, 0)]);
}

#[test]
fn oversized_set_removes_unlocked_old_value() {
    let large = [b'v'; VALUE_BYTES_MAX + 1];
    let mut bench = Bench::new();
    bench.ask(
        A,
        &[
            set(b"held", b"v"),
            of(Opcode::Lock, b"held"),
            set(b"free", b"v"),
        ],
    );
    let sent = bench.ask(
        B,
        &[
            set(b"free", &large),
            RequestPacket {
                opcode: Opcode::SetQ,
                ..set(b"held", &large)
            },
            of(Opcode::Get, b"free"),
            of(Opcode::Get, b"held"),
        ],
    );
    assert_eq!(
        statuses(&sent),
        [(0x01, 3), (0x11, 3), (0x00, 1), (0x00, 0)]
    );
}

#[test]
fn other_values_over_the_limit_leave_the_item_alone() {
    let large = [b'v'; VALUE_BYTES_MAX + 1];
    let append = RequestPacket {
        value: &large,
        ..of(Opcode::AppendQ, b"k")
    };
    let sent = Bench::new().ask(
        A,
        &[
            set(b"k", b"v"),
            RequestPacket {
                opcode: Opcode::Add,
                ..set(b"k", &large)
            },
            RequestPacket {
                opcode: Opcode::Replace,
                ..set(b"k", &large)
            },
            append,
            of(Opcode::Get, b"k"),
        ],
    );
    assert_eq!(
        statuses(&sent),
        [(0x01, 0), (0x02, 3), (0x03, 3), (0x19, 3), (0x00, 0)]
    );
    assert_eq!(sent[4].value, b"v");
}

#[test]
fn an_unknown_opcode_is_skipped_whole() {
    let mut unknown = bytes_of(&RequestPacket {
        opaque: 1,
        ..set(b"key", b"value")
    });
    unknown[1] = 0x60;
    let mut bench = Bench::new();
    let noop = bytes_of(&RequestPacket {
        opaque: 2,
        ..RequestPacket::new(Opcode::Noop)
    });
    let sent = packets(&bench.send(A, &[unknown, noop].concat()));
    assert_eq!(statuses(&sent), [(0x60, 0x81), (0x0a, 0)]);
    assert_eq!((sent[0].opaque, sent[1].opaque), (1, 2));
}

#[test]
fn a_malformed_packet_is_answered_and_closes() {
    let noop = RequestPacket::new(Opcode::Noop);
    let get_with_extras = RequestPacket {
        extras: Extras::Level(0),
        ..of(Opcode::Get, b"k")
    };
    let mut bench = Bench::new();
    let sent = bench.ask(A, &[noop, get_with_extras, noop]);
    assert_eq!(statuses(&sent), [(0x0a, 0), (0x00, 4)]);
    assert!(bench.clients[A].closed);
}

#[test]
fn a_wrong_magic_in_mid_stream_closes_without_a_word() {
    let mut bench = Bench::new();
    let mut bytes = bytes_of(&RequestPacket::new(Opcode::Noop));
    bytes.extend_from_slice(b"get k\r\n");
    assert_eq!(statuses(&packets(&bench.send(A, &bytes))), [(0x0a, 0)]);
    assert!(bench.clients[A].closed);
}

#[test]
fn refused_gigabyte_is_skipped_not_collected() {
    let body_bytes: u32 = 1 << 30;
    for request in [of(Opcode::Append, b"k"), set(b"k", b"")] {
        let mut bench = Bench::new();
        bench.ask(A, &[set(b"k", b"v")]);
        let mut head = bytes_of(&request);
        head[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        let mut left = HEADER_BYTES + body_bytes as usize - head.len();
        let piece = vec![b'v'; 1 << 20];
        assert_eq!(bench.send(A, &head), b"");
        // A set removes the old value as soon as the parts before the new value are read.
        let is_gone = u16::from(request.opcode == Opcode::Set);
        let sent = bench.ask(B, &[of(Opcode::Get, b"k")]);
        assert_eq!(statuses(&sent), [(0x00, is_gone)]);
        while left > piece.len() {
            assert_eq!(bench.send(A, &piece), b"");
            assert!(bench.clients[A].input.is_empty());
            left -= piece.len();
        }
        let noop = bytes_of(&RequestPacket::new(Opcode::Noop));
        let mut rest = vec![b'v'; left];
        rest.extend_from_slice(&noop);
        let expected = [(request.opcode.byte(), 3), (0x0a, 0)];
        assert_eq!(statuses(&packets(&bench.send(A, &rest))), expected);
    }
}

#[test]
fn quit_answers_earlier_requests() {
    let mut bench = Bench::new();
    let sent = bench.ask(A, &[set(b"k", b"v"), RequestPacket::new(Opcode::Quit)]);
    assert_eq!(statuses(&sent), [(0x01, 0), (0x07, 0)]);
    assert!(bench.clients[A].closed);
}
