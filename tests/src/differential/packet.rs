//! Packets of the binary protocol: requests as they are written, answers as they are compared.

use super::Side;
use super::cas::CasPair;
use super::reply::{Message, Part, Wire};
use super::request_builder::RequestBuilder;

/// Opaques from here on are markers'.
pub(super) const MARKER_OPAQUES: u32 = 0x4000_0000;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 24;

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
            ..Packet::new(opcode::NOOP)
        }
        .builder(None)
        .done()
        .bytes(Side::Ours)
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
    pub fn builder(&self, cas: Option<CasPair>) -> RequestBuilder {
        let key = String::from_utf8_lossy(&self.key).into_owned();
        let mut builder = RequestBuilder::new((!key.is_empty()).then_some(&key));
        let body_bytes = self.extras.len() + self.key.len() + self.value.len();
        builder.push([0x80, self.opcode]);
        builder.push(
            u16::try_from(self.key.len())
                .expect("a short key")
                .to_be_bytes(),
        );
        builder.push([u8::try_from(self.extras.len()).expect("few"), 0, 0, 0]);
        builder.push(
            u32::try_from(body_bytes)
                .expect("a short body")
                .to_be_bytes(),
        );
        builder.push(self.opaque.to_be_bytes());
        match cas {
            Some(pair) => builder.push_cas(pair, true),
            None => builder.push([0; 8]),
        };
        builder.push(&self.extras).push(&self.key).push(&self.value);
        builder
    }
}
