//! Random streams of the binary protocol.

use super::cas::CasBook;
use super::packet::{HEADER_BYTES, MARKER_OPAQUES, Packet, opcode as op};
use super::{PairedRequest, Side};
use crate::generate::Random;

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
    pub fn batch(&mut self, book: &CasBook, size: usize) -> Vec<PairedRequest> {
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

    fn request(&mut self, book: &CasBook) -> PairedRequest {
        match self.random.below(100) {
            0..=24 => {
                let mut packet = self.packet(&[op::GET, op::GETQ, op::GETK, op::GETKQ]);
                packet.key = self.key();
                packet.builder(None).done()
            }
            25..=34 => {
                let mut packet = self.packet(&[op::TOUCH, op::GAT, op::GATQ, op::GATK, op::GATKQ]);
                packet.key = self.key();
                packet.extras = self.exptime().to_be_bytes().to_vec();
                packet.builder(None).done()
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
                PairedRequest {
                    alone: true,
                    ..request
                }
            }
            95..=97 => self.packet(&[op::NOOP]).builder(None).done(),
            _ => {
                let mut packet = self.packet(&[op::FLUSH, op::FLUSHQ, op::NOOP, op::NOOP]);
                if packet.opcode != op::NOOP && self.random.chance(1, 2) {
                    packet.extras = vec![0; 4];
                }
                packet.builder(None).done()
            }
        }
    }

    fn maybe_versioned(&mut self, packet: &Packet, book: &CasBook) -> PairedRequest {
        let key = String::from_utf8_lossy(&packet.key).into_owned();
        let cas = if self.random.chance(1, 3) {
            book.any(&key, &mut self.random)
        } else {
            None
        };
        packet.builder(cas).done()
    }

    /// Bad requests after which the connection goes on, and values that are too large.
    fn probe(&mut self) -> Vec<PairedRequest> {
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
            .map(|packet| PairedRequest {
                made_up_cas: true,
                ..packet.builder(None).done()
            })
            .collect()
    }
}

/// Requests after which a server may close, each with what it is.
#[must_use]
pub fn last_words() -> Vec<PairedRequest> {
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
    let mut requests: Vec<PairedRequest> = packets
        .iter()
        .map(|packet| packet.builder(None).done())
        .collect();
    // A key that is longer than its body; a wrong magic; another data type.
    let mut key_over_body = Packet::new(op::GET).builder(None).done().bytes(Side::Ours);
    key_over_body[3] = 9;
    let mut magic = Packet::new(op::NOOP).builder(None).done().bytes(Side::Ours);
    magic.extend_from_within(..);
    magic[HEADER_BYTES] = 0x11;
    let mut data_type = Packet::new(op::NOOP).builder(None).done().bytes(Side::Ours);
    data_type[5] = 1;
    requests.extend([key_over_body, magic, data_type].map(PairedRequest::new));
    for request in &mut requests {
        // Behind it a request that is answered only if the connection goes on.
        let noop = Packet {
            opaque: 77,
            ..Packet::new(op::NOOP)
        }
        .builder(None)
        .done();
        request.pieces.extend(noop.pieces);
        request.key = None;
    }
    requests
}
