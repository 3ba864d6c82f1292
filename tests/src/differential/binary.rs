//! Random streams of the binary protocol.

use super::Request;
use super::cas::CasBook;
use super::reply::{Message, Part, Wire};
use super::text::Draft;
use crate::generate::Random;

/// Opaques from here on are markers'.
const MARKER_OPAQUES: u32 = 0x4000_0000;

/// Bytes of a header.
const HEADER_BYTES: usize = 24;

/// The opcodes that are sent. Source: memcached 1.6.45 `protocol_binary.h`; yrmcds
/// `docs/locking.md`.
#[allow(missing_docs)] // The names are the protocol's.
pub mod opcode {
    pub const GET: u8 = 0x00;
    pub const SET: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const REPLACE: u8 = 0x03;
    pub const DELETE: u8 = 0x04;
    pub const INCREMENT: u8 = 0x05;
    pub const DECREMENT: u8 = 0x06;
    pub const QUIT: u8 = 0x07;
    pub const FLUSH: u8 = 0x08;
    pub const GETQ: u8 = 0x09;
    pub const NOOP: u8 = 0x0a;
    pub const VERSION: u8 = 0x0b;
    pub const GETK: u8 = 0x0c;
    pub const GETKQ: u8 = 0x0d;
    pub const APPEND: u8 = 0x0e;
    pub const PREPEND: u8 = 0x0f;
    pub const SETQ: u8 = 0x11;
    pub const ADDQ: u8 = 0x12;
    pub const REPLACEQ: u8 = 0x13;
    pub const DELETEQ: u8 = 0x14;
    pub const INCREMENTQ: u8 = 0x15;
    pub const DECREMENTQ: u8 = 0x16;
    pub const QUITQ: u8 = 0x17;
    pub const FLUSHQ: u8 = 0x18;
    pub const APPENDQ: u8 = 0x19;
    pub const PREPENDQ: u8 = 0x1a;
    pub const VERBOSITY: u8 = 0x1b;
    pub const TOUCH: u8 = 0x1c;
    pub const GAT: u8 = 0x1d;
    pub const GATQ: u8 = 0x1e;
    pub const SASL_LIST: u8 = 0x20;
    pub const GATK: u8 = 0x23;
    pub const GATKQ: u8 = 0x24;
    pub const LOCK: u8 = 0x40;
    pub const LOCKQ: u8 = 0x41;
    pub const UNLOCK: u8 = 0x42;
    pub const UNLOCKQ: u8 = 0x43;
    pub const UNLOCK_ALL: u8 = 0x44;
    pub const UNLOCK_ALLQ: u8 = 0x45;
    pub const LAG: u8 = 0x46;
    pub const LAGQ: u8 = 0x47;
    pub const LAGK: u8 = 0x48;
    pub const LAGKQ: u8 = 0x49;
    pub const RAU: u8 = 0x4a;
    pub const RAUQ: u8 = 0x4b;
}
use opcode as op;

/// Binary packets.
#[derive(Clone, Copy, Debug)]
pub struct BinaryWire;

impl Wire for BinaryWire {
    fn parse(&self, bytes: &[u8]) -> Option<(Message, usize)> {
        let header = bytes.get(..HEADER_BYTES)?;
        let body_bytes = usize::try_from(u32_at(header, 8)?).ok()?;
        let cas = u64::from_be_bytes(header.get(16..24)?.try_into().ok()?);
        let body = bytes.get(HEADER_BYTES..HEADER_BYTES + body_bytes)?;
        let message = vec![
            Part::Same(header[..16].to_vec()),
            Part::Cas(cas),
            Part::Same(body.to_vec()),
        ];
        Some((message, HEADER_BYTES + body_bytes))
    }

    fn marker(&self, number: u64) -> Vec<u8> {
        let opaque = MARKER_OPAQUES + u32::try_from(number).expect("not so many requests");
        Packet {
            opaque,
            ..Packet::new(op::NOOP)
        }
        .draft(None)
        .done()
        .bytes(super::Side::Ours)
    }

    fn marked(&self, message: &Message, _last: u64) -> Option<u64> {
        let Some(Part::Same(header)) = message.first() else {
            return None;
        };
        let opaque = u32_at(header, 12)?;
        (opaque >= MARKER_OPAQUES).then(|| u64::from(opaque - MARKER_OPAQUES))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A request packet.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// What is asked for.
    pub opcode: u8,
    /// Comes back with the answer.
    pub opaque: u32,
    /// Between header and key.
    pub extras: Vec<u8>,
    /// Whose.
    pub key: Vec<u8>,
    /// Behind the key.
    pub value: Vec<u8>,
}

impl Packet {
    /// A packet without a body.
    #[must_use]
    pub fn new(opcode: u8) -> Self {
        Self {
            opcode,
            ..Self::default()
        }
    }

    /// The packet as a request, with a version or none.
    #[must_use]
    pub fn draft(&self, cas: Option<super::cas::CasPair>) -> Draft {
        let key = String::from_utf8_lossy(&self.key).into_owned();
        let mut draft = Draft::new((!key.is_empty()).then_some(&key));
        let body_bytes = self.extras.len() + self.key.len() + self.value.len();
        draft.push([0x80, self.opcode]);
        draft.push(
            u16::try_from(self.key.len())
                .expect("a short key")
                .to_be_bytes(),
        );
        draft.push([u8::try_from(self.extras.len()).expect("few"), 0, 0, 0]);
        draft.push(
            u32::try_from(body_bytes)
                .expect("a short body")
                .to_be_bytes(),
        );
        draft.push(self.opaque.to_be_bytes());
        match cas {
            Some(pair) => draft.push_cas(pair, true),
            None => draft.push([0; 8]),
        };
        draft.push(&self.extras).push(&self.key).push(&self.value);
        draft
    }
}

/// A source of requests to memcached.
#[derive(Debug)]
pub struct BinaryStream {
    random: Random,
    probes: u64,
}

impl BinaryStream {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            probes: 0,
        }
    }

    /// The next requests: about `size` of them.
    pub fn batch(&mut self, book: &CasBook, size: usize) -> Vec<Request> {
        let mut batch = Vec::new();
        while batch.len() < size {
            if self.random.chance(1, 25) {
                batch.extend(self.probe());
            } else {
                batch.push(self.request(book));
            }
        }
        batch
    }

    fn key(&mut self) -> Vec<u8> {
        if self.random.chance(1, 3) {
            format!("n{}", self.random.below(8)).into_bytes()
        } else {
            format!("k{}", self.random.below(24)).into_bytes()
        }
    }

    fn number_key(&mut self) -> Vec<u8> {
        format!("n{}", self.random.below(8)).into_bytes()
    }

    fn exptime(&mut self) -> u32 {
        *self
            .random
            .choose(&[0, 0, 0, 100, 1000, 10000, 2_592_000, 1_000_000_000])
    }

    fn value(&mut self, key: &[u8]) -> Vec<u8> {
        if key.starts_with(b"n") {
            return (*self.random.choose(&[
                &b"0"[..],
                b"9",
                b"10",
                b"18446744073709551615",
                b" 7",
            ]))
            .to_vec();
        }
        if self.random.chance(1, 30) {
            return vec![b'z'; 1_000 + usize::try_from(self.random.below(9_000)).unwrap_or(0)];
        }
        (*self
            .random
            .choose(&[&b""[..], b"v", b"hello", b"\x80\x81\r\n\0"]))
        .to_vec()
    }

    fn packet(&mut self, opcodes: &[u8]) -> Packet {
        let opcode = *self.random.choose(opcodes);
        let opaque = u32::try_from(self.random.below(MARKER_OPAQUES.into())).unwrap_or(0);
        Packet {
            opaque,
            ..Packet::new(opcode)
        }
    }

    fn request(&mut self, book: &CasBook) -> Request {
        match self.random.below(100) {
            0..=24 => {
                let mut packet = self.packet(&[op::GET, op::GETQ, op::GETK, op::GETKQ]);
                packet.key = self.key();
                packet.draft(None).done()
            }
            25..=34 => {
                let mut packet = self.packet(&[op::TOUCH, op::GAT, op::GATQ, op::GATK, op::GATKQ]);
                packet.key = self.key();
                packet.extras = self.exptime().to_be_bytes().to_vec();
                packet.draft(None).done()
            }
            35..=59 => {
                const OPCODES: [u8; 8] = [
                    op::SET,
                    op::SET,
                    op::SETQ,
                    op::ADD,
                    op::ADDQ,
                    op::REPLACE,
                    op::REPLACEQ,
                    op::SET,
                ];
                let mut packet = self.packet(&OPCODES);
                packet.key = self.key();
                packet.value = self.value(&packet.key);
                let flags: u32 = *self.random.choose(&[0, 5, 0xdead_beef]);
                packet.extras = [flags.to_be_bytes(), self.exptime().to_be_bytes()].concat();
                self.maybe_versioned(&packet, book)
            }
            60..=69 => {
                let mut packet = self.packet(&[op::APPEND, op::APPENDQ, op::PREPEND, op::PREPENDQ]);
                packet.key = self.key();
                packet.value = (*self.random.choose(&[&b""[..], b"1", b"x"])).to_vec();
                self.maybe_versioned(&packet, book)
            }
            70..=78 => {
                let mut packet = self.packet(&[op::DELETE, op::DELETEQ]);
                packet.key = self.key();
                self.maybe_versioned(&packet, book)
            }
            79..=94 => {
                let mut packet =
                    self.packet(&[op::INCREMENT, op::INCREMENTQ, op::DECREMENT, op::DECREMENTQ]);
                packet.key = if self.random.chance(1, 8) {
                    self.key()
                } else {
                    self.number_key()
                };
                let delta: u64 = *self.random.choose(&[0, 1, 7, 1000, u64::MAX]);
                let initial: u64 = *self.random.choose(&[0, 13, u64::MAX]);
                let exptime: u32 = *self.random.choose(&[0, 100, 1000, u32::MAX]);
                packet.extras = [
                    &delta.to_be_bytes()[..],
                    &initial.to_be_bytes(),
                    &exptime.to_be_bytes(),
                ]
                .concat();
                let request = self.maybe_versioned(&packet, book);
                Request {
                    alone: true,
                    ..request
                }
            }
            95..=97 => self.packet(&[op::NOOP]).draft(None).done(),
            _ => {
                let mut packet = self.packet(&[op::FLUSH, op::FLUSHQ, op::NOOP, op::NOOP]);
                if packet.opcode != op::NOOP && self.random.chance(1, 2) {
                    packet.extras = vec![0; 4];
                }
                packet.draft(None).done()
            }
        }
    }

    fn maybe_versioned(&mut self, packet: &Packet, book: &CasBook) -> Request {
        let key = String::from_utf8_lossy(&packet.key).into_owned();
        let cas = if self.random.chance(1, 3) {
            book.any(&key, &mut self.random)
        } else {
            None
        };
        packet.draft(cas).done()
    }

    /// Bad requests after which the connection goes on, and values that are too large.
    fn probe(&mut self) -> Vec<Request> {
        self.probes += 1;
        let key = format!("p{}", self.probes).into_bytes();
        let set = Packet {
            key: key.clone(),
            value: b"v".to_vec(),
            extras: vec![0; 8],
            ..self.packet(&[op::SET])
        };
        let get = Packet {
            key: key.clone(),
            ..self.packet(&[op::GET])
        };
        let mut packets = vec![set.clone()];
        match self.random.below(8) {
            0 | 1 => packets.push(self.packet(&[0x25, 0x3f, 0x60, 0x7f, 0xff])),
            2 if self.random.chance(1, 20) => {
                packets.push(Packet {
                    value: vec![b'x'; (1 << 20) + 1],
                    ..set
                });
            }
            2 | 3 => packets.push(Packet {
                value: Vec::new(),
                ..set
            }),
            4 => packets.push(Packet {
                key: b"k0".to_vec(),
                ..self.packet(&[op::DELETE])
            }),
            5 => {
                let extras = vec![0xff; 4];
                packets.push(Packet {
                    key: key.clone(),
                    extras,
                    ..self.packet(&[op::TOUCH])
                });
            }
            6 => {
                let extras = [[0; 4], [0xff; 4]].concat();
                packets.push(Packet { extras, ..set });
            }
            _ => packets.push(self.packet(&[op::SASL_LIST])),
        }
        packets.push(get);
        packets
            .into_iter()
            .map(|packet| Request {
                made_up_cas: true,
                ..packet.draft(None).done()
            })
            .collect()
    }
}

/// Requests after which a server may close, each with what it is.
#[must_use]
pub fn last_words() -> Vec<Request> {
    let packets = [
        Packet::new(op::QUIT),
        Packet::new(op::QUITQ),
        // Extras, keys and values where none may be, and none where they must.
        Packet {
            extras: vec![0; 4],
            key: b"k0".to_vec(),
            ..Packet::new(op::GET)
        },
        Packet {
            value: b"v".to_vec(),
            key: b"k0".to_vec(),
            ..Packet::new(op::GET)
        },
        Packet::new(op::GET),
        Packet {
            key: b"k0".to_vec(),
            ..Packet::new(op::SET)
        },
        Packet {
            key: b"k0".to_vec(),
            extras: vec![0; 4],
            ..Packet::new(op::SET)
        },
        Packet {
            extras: vec![0; 8],
            value: b"v".to_vec(),
            ..Packet::new(op::SET)
        },
        Packet {
            key: b"k0".to_vec(),
            extras: vec![0; 8],
            ..Packet::new(op::APPEND)
        },
        Packet {
            key: b"k0".to_vec(),
            extras: vec![0; 4],
            ..Packet::new(op::DELETE)
        },
        Packet {
            key: b"k0".to_vec(),
            ..Packet::new(op::INCREMENT)
        },
        Packet {
            key: b"k0".to_vec(),
            extras: vec![0; 8],
            ..Packet::new(op::INCREMENT)
        },
        Packet {
            key: b"k0".to_vec(),
            ..Packet::new(op::TOUCH)
        },
        Packet {
            key: b"k0".to_vec(),
            ..Packet::new(op::GAT)
        },
        Packet {
            key: b"k0".to_vec(),
            ..Packet::new(op::NOOP)
        },
        Packet {
            value: b"v".to_vec(),
            ..Packet::new(op::NOOP)
        },
        Packet {
            key: b"k0".to_vec(),
            ..Packet::new(op::VERSION)
        },
        Packet {
            key: b"k0".to_vec(),
            ..Packet::new(op::FLUSH)
        },
        Packet {
            key: vec![b'L'; 251],
            ..Packet::new(op::GET)
        },
        Packet {
            key: vec![b'L'; 251],
            extras: vec![0; 8],
            ..Packet::new(op::SET)
        },
        Packet {
            key: b"k0".to_vec(),
            ..Packet::new(op::QUIT)
        },
        Packet {
            key: b"with a key".to_vec(),
            ..Packet::new(0x70)
        },
        Packet {
            extras: vec![0; 4],
            ..Packet::new(op::VERBOSITY)
        },
    ];
    let mut requests: Vec<Request> = packets
        .iter()
        .map(|packet| packet.draft(None).done())
        .collect();
    // A key that is longer than its body; a wrong magic; another data type.
    let mut key_over_body = Packet::new(op::GET)
        .draft(None)
        .done()
        .bytes(super::Side::Ours);
    key_over_body[3] = 9;
    let mut magic = Packet::new(op::NOOP)
        .draft(None)
        .done()
        .bytes(super::Side::Ours);
    magic.extend_from_within(..);
    magic[HEADER_BYTES] = 0x11;
    let mut data_type = Packet::new(op::NOOP)
        .draft(None)
        .done()
        .bytes(super::Side::Ours);
    data_type[5] = 1;
    requests.extend([key_over_body, magic, data_type].map(Request::new));
    for request in &mut requests {
        // Behind it a request that is answered only if the connection goes on.
        let noop = Packet {
            opaque: 77,
            ..Packet::new(op::NOOP)
        }
        .draft(None)
        .done();
        request.pieces.extend(noop.pieces);
        request.key = None;
    }
    requests
}
