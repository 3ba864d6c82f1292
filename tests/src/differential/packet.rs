//! Packets of the binary protocol: answers as they are compared, and the marks that tell them
//! apart.

use latchd_protocol::wire::binary::{Opcode, RequestPacket};

use super::reply::{Message, Part, Wire};

/// Opaques from here on are markers'.
pub(super) const MARKER_OPAQUES: u32 = 0x4000_0000;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 24;

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
        noop(opaque)
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

/// A request that is always answered, with its own opaque.
pub(super) fn noop(opaque: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = RequestPacket {
        opaque,
        ..RequestPacket::new(Opcode::Noop)
    };
    packet.encode(&mut bytes).expect("it has no body");
    bytes
}
