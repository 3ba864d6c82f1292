//! Random streams of the binary protocol.

use latchd_harness::random::Random;
use latchd_harness::transcript::binary::Packet;
use latchd_protocol::wire::binary::{Extras, Opcode, RequestPacket};

use super::cas::CasBook;
use super::packet::{MARKER_OPAQUES, noop};
use super::text::long_or_short;
use super::{PairedRequest, Side};

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
            self.number_key()
        } else {
            long_or_short('k', self.random.below(24)).into_bytes()
        }
    }

    fn number_key(&mut self) -> Vec<u8> {
        long_or_short('n', self.random.below(8)).into_bytes()
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

    fn packet(&mut self, opcodes: &[Opcode]) -> RequestPacket<'static> {
        let opcode = *self.random.choose(opcodes);
        let opaque = u32::try_from(self.random.below(MARKER_OPAQUES.into())).unwrap_or(0);
        RequestPacket {
            opaque,
            ..RequestPacket::new(opcode)
        }
    }

    fn request(&mut self, book: &CasBook) -> PairedRequest {
        use Opcode as O;
        match self.random.below(100) {
            0..=24 => {
                let packet = self.packet(&[O::Get, O::GetQ, O::GetK, O::GetKQ]);
                let key = &self.key()[..];
                PairedRequest::packet(&RequestPacket { key, ..packet }, None)
            }
            25..=34 => {
                let packet = self.packet(&[O::Touch, O::Gat, O::GatQ, O::GatK, O::GatKQ]);
                let packet = RequestPacket {
                    key: &self.key(),
                    extras: Extras::Exptime(self.exptime()),
                    ..packet
                };
                PairedRequest::packet(&packet, None)
            }
            35..=59 => {
                const OPCODES: [O; 8] = [
                    O::Set,
                    O::Set,
                    O::SetQ,
                    O::Add,
                    O::AddQ,
                    O::Replace,
                    O::ReplaceQ,
                    O::Set,
                ];
                let packet = self.packet(&OPCODES);
                let key = self.key();
                let packet = RequestPacket {
                    key: &key,
                    value: &self.value(&key),
                    extras: Extras::Store {
                        client_flags: *self.random.choose(&[0, 5, 0xdead_beef]),
                        exptime: self.exptime(),
                    },
                    ..packet
                };
                self.maybe_versioned(&packet, book)
            }
            60..=69 => {
                let packet = self.packet(&[O::Append, O::AppendQ, O::Prepend, O::PrependQ]);
                let packet = RequestPacket {
                    key: &self.key(),
                    value: self.random.choose::<&[u8]>(&[b"", b"1", b"x"]),
                    ..packet
                };
                self.maybe_versioned(&packet, book)
            }
            70..=78 => {
                let packet = self.packet(&[O::Delete, O::DeleteQ]);
                let key = &self.key()[..];
                self.maybe_versioned(&RequestPacket { key, ..packet }, book)
            }
            79..=94 => {
                let opcodes = [O::Increment, O::IncrementQ, O::Decrement, O::DecrementQ];
                let packet = self.packet(&opcodes);
                let key = if self.random.chance(1, 8) {
                    self.key()
                } else {
                    self.number_key()
                };
                let packet = RequestPacket {
                    key: &key,
                    extras: Extras::Arithmetic {
                        delta: *self.random.choose(&[0, 1, 7, 1000, u64::MAX]),
                        initial: *self.random.choose(&[0, 13, u64::MAX]),
                        exptime: *self.random.choose(&[0, 100, 1000, u32::MAX]),
                    },
                    ..packet
                };
                PairedRequest {
                    alone: true,
                    ..self.maybe_versioned(&packet, book)
                }
            }
            95..=97 => PairedRequest::packet(&self.packet(&[O::Noop]), None),
            _ => {
                let mut packet = self.packet(&[O::Flush, O::FlushQ, O::Noop, O::Noop]);
                if packet.opcode != O::Noop && self.random.chance(1, 2) {
                    packet.extras = Extras::Exptime(0);
                }
                PairedRequest::packet(&packet, None)
            }
        }
    }

    fn maybe_versioned(&mut self, packet: &RequestPacket<'_>, book: &CasBook) -> PairedRequest {
        let key = String::from_utf8_lossy(packet.key).into_owned();
        let cas = if self.random.chance(1, 3) {
            book.any(&key, &mut self.random)
        } else {
            None
        };
        PairedRequest::packet(packet, cas)
    }

    /// Bad requests after which the connection goes on, and values that are too large.
    fn probe(&mut self) -> Vec<PairedRequest> {
        const UNKNOWN: [&str; 5] = ["0x25", "0x3f", "0x60", "0x7f", "0xff"];
        self.probes += 1;
        let key = format!("p{}", self.probes);
        let set = format!("set flags=0 exptime=0 key={key}");
        let bad = match self.random.below(8) {
            0 | 1 => (*self.random.choose(&UNKNOWN)).to_owned(),
            2 if self.random.chance(1, 20) => format!("{set} value={{1048577*x}}"),
            2 | 3 => set.clone(),
            4 => "delete key=k0".to_owned(),
            5 => format!("touch exptime=0xffffffff key={key}"),
            6 => format!("set flags=0 exptime=0xffffffff key={key} value=v"),
            _ => "sasl-list".to_owned(),
        };
        let packets = [format!("{set} value=v"), bad, format!("get key={key}")];
        packets
            .map(|packet| {
                let opaque = self.random.below(MARKER_OPAQUES.into());
                PairedRequest {
                    key: Some(key.clone()),
                    made_up_cas: true,
                    ..written(&format!("{packet} opaque={opaque}"))
                }
            })
            .to_vec()
    }
}

/// A packet as a transcript writes it, which may be one that no encoder makes.
fn written(text: &str) -> PairedRequest {
    let packet = Packet::parse(text).expect("a transcript may say it");
    let no_variables = |_: &_| Err("there are no variables".to_owned());
    PairedRequest::new(packet.request(&no_variables).expect("it has none"))
}

/// Requests after which a server may close.
const LAST_WORDS: [&str; 24] = [
    "quit",
    "quitq",
    // Extras, keys and values where none may be, and none where they must.
    "get exptime=0 key=k0",
    "get key=k0 value=v",
    "get",
    "set key=k0",
    "set exptime=0 key=k0",
    "set flags=0 exptime=0 value=v",
    "append flags=0 exptime=0 key=k0",
    "delete exptime=0 key=k0",
    "increment key=k0",
    "increment delta=0 key=k0",
    "touch key=k0",
    "gat key=k0",
    "noop key=k0",
    "noop value=v",
    "version key=k0",
    "flush key=k0",
    "get key={251*L}",
    "set flags=0 exptime=0 key={251*L}",
    "quit key=k0",
    "0x70 key=\"with a key\"",
    "verbosity level=0",
    // A key that is longer than its body.
    "get keylen=9",
];

/// Each of them, and behind it a request that is answered only if the connection goes on.
#[must_use]
pub fn last_words() -> Vec<PairedRequest> {
    let mut requests = LAST_WORDS.map(written).to_vec();
    // A wrong magic, behind a request that is right; another data type.
    let mut magic = written("noop");
    magic.push(written("noop magic=0x11").bytes(Side::Ours));
    requests.extend([magic, written("noop datatype=1")]);
    for request in &mut requests {
        request.push(noop(77));
    }
    requests
}
