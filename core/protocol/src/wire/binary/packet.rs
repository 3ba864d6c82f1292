//! The packets of a server, independent of their contents.
//!
//! Source: memcached 1.6.45 `protocol_binary.h`.

use alloc::vec::Vec;

use super::header::{HEADER_BYTES, ResponseHeader, Status, WrongMagic};
use super::{BinaryEnvelope, StatusPacket};
use crate::item::Cas;

/// One packet of a server. A response is one packet, none (quiet), or several (Keys, Stat).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ResponsePacket<'a> {
    /// The opcode of the request. It can be any byte, since a server also answers unknown opcodes.
    pub opcode: u8,
    /// The result. If the request failed, `value` is the text of the error.
    pub status: Status,
    /// The opaque of the request.
    pub opaque: u32,
    /// The item's version, if there is one.
    pub cas: Option<Cas>,
    /// In front of the key: the client flags of a hit. At most 255 bytes.
    pub extras: &'a [u8],
    /// The key of a hit, the name of a counter. At most 65,535 bytes.
    pub key: &'a [u8],
    /// The value of a hit, a number, the text of an error.
    pub value: &'a [u8],
}

/// Why bytes are not a valid reply, or one that is too large.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MalformedPacket {
    /// The first byte is not that of a reply.
    WrongMagic,
    /// Extras and key are longer than the body they are in.
    Lengths,
    /// The body is over the bound of the caller.
    TooLarge,
}

impl From<WrongMagic> for MalformedPacket {
    fn from(WrongMagic: WrongMagic) -> Self {
        Self::WrongMagic
    }
}

/// Decodes the reply at the start of `input`: the packet and its length, or `None` if it is not all there. A
/// body over `body_bytes_max` is not collected.
///
/// # Errors
/// [`MalformedPacket`], after which the start of the next reply is unknown.
pub fn decode(
    input: &[u8],
    body_bytes_max: usize,
) -> Result<Option<(ResponsePacket<'_>, usize)>, MalformedPacket> {
    let Some(header) = ResponseHeader::decode(input)? else {
        return Ok(None);
    };
    if header.value_bytes().is_none() {
        return Err(MalformedPacket::Lengths);
    }
    let body_bytes = header.body_bytes as usize;
    if body_bytes > body_bytes_max {
        return Err(MalformedPacket::TooLarge);
    }
    let consumed = HEADER_BYTES + body_bytes;
    let parts = input
        .get(HEADER_BYTES..consumed)
        .and_then(|body| body.split_at_checked(usize::from(header.extras_bytes)))
        .and_then(|(extras, rest)| {
            let (key, value) = rest.split_at_checked(usize::from(header.key_bytes))?;
            Some((extras, key, value))
        });
    let Some((extras, key, value)) = parts else {
        return Ok(None);
    };
    let packet = ResponsePacket {
        opcode: header.opcode,
        status: header.status,
        opaque: header.opaque,
        cas: Cas::new(header.cas),
        extras,
        key,
        value,
    };
    Ok(Some((packet, consumed)))
}

impl<'a> ResponsePacket<'a> {
    /// An empty success reply to the request of `envelope`.
    pub(super) const fn success(envelope: &BinaryEnvelope<'a>) -> Self {
        Self {
            opcode: envelope.opcode.byte(),
            status: Status::SUCCESS,
            opaque: envelope.opaque,
            cas: None,
            extras: b"",
            key: b"",
            value: b"",
        }
    }

    /// The client flags of a hit; `None` if there are none in this packet.
    #[must_use]
    pub fn client_flags(&self) -> Option<u32> {
        self.extras.try_into().ok().map(u32::from_be_bytes)
    }

    /// The number of an Increment or Decrement; `None` if there is none in this packet.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }

    /// Appends the packet to `out`. A packet that is too long for its own length fields, which no value limit
    /// allows, is sent as [`Status::TOO_LARGE`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.encode_head(out) {
            out.extend_from_slice(self.value);
        }
    }

    /// Appends everything before the value, which must follow. Returns whether it must: instead of a packet
    /// that is too long, a refusal was appended.
    pub(super) fn encode_head(&self, out: &mut Vec<u8>) -> bool {
        let body_bytes = self.extras.len() + self.key.len() + self.value.len();
        let (Ok(key_bytes), Ok(extras_bytes), Ok(body_bytes)) = (
            u16::try_from(self.key.len()),
            u8::try_from(self.extras.len()),
            u32::try_from(body_bytes),
        ) else {
            StatusPacket::error(self.opcode, self.opaque, Status::TOO_LARGE).encode(out);
            return false;
        };
        let &Self {
            opcode,
            status,
            opaque,
            cas,
            ..
        } = self;
        let cas = cas.map_or(0, Cas::number);
        ResponseHeader {
            opcode,
            key_bytes,
            extras_bytes,
            status,
            body_bytes,
            opaque,
            cas,
        }
        .encode(out);
        out.extend_from_slice(self.extras);
        out.extend_from_slice(self.key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::binary::Opcode;
    use alloc::vec;
    use quickcheck::quickcheck;

    fn packet(opcode: Opcode) -> ResponsePacket<'static> {
        ResponsePacket::success(&BinaryEnvelope {
            opcode,
            opaque: 7,
            key: b"",
        })
    }

    #[test]
    fn client_refuses_invalid_replies() {
        assert_eq!(decode(b"VALUE", 10), Err(MalformedPacket::WrongMagic));
        let mut out = Vec::new();
        ResponsePacket {
            value: b"0123456789a",
            ..packet(Opcode::Get)
        }
        .encode(&mut out);
        assert_eq!(decode(&out, 10), Err(MalformedPacket::TooLarge));
        assert!(decode(&out, 11).unwrap().is_some());
        out.clear();
        ResponseHeader {
            opcode: 0,
            key_bytes: 2,
            extras_bytes: 0,
            status: Status::SUCCESS,
            body_bytes: 1,
            opaque: 0,
            cas: 0,
        }
        .encode(&mut out);
        assert_eq!(decode(&out, 10), Err(MalformedPacket::Lengths));
    }

    quickcheck! {
        /// `decode(encode(x)) == x`, and every cut of it is incomplete.
        fn a_reply_comes_back(opcode: u8, numbers: (u16, u32, u64), extras: Vec<u8>, key: Vec<u8>, value: Vec<u8>) -> bool {
            let (status, opaque, cas) = numbers;
            let packet = ResponsePacket {
                opcode,
                status: Status::from_number(status),
                opaque,
                cas: Cas::new(cas),
                extras: &extras,
                key: &key,
                value: &value,
            };
            let mut out = Vec::new();
            packet.encode(&mut out);
            decode(&out, usize::MAX) == Ok(Some((packet, out.len())))
                && (0..out.len()).all(|cut| decode(&out[..cut], usize::MAX) == Ok(None))
        }

        /// Any bytes are a packet, incomplete or an error, and never a panic.
        fn arbitrary_bytes_are_judged(behind: Vec<u8>) -> bool {
            let mut input = vec![0x81];
            input.extend_from_slice(&behind);
            match decode(&input, 64) {
                Ok(Some((packet, consumed))) => consumed <= input.len() && packet.value.len() <= 64,
                Ok(None) => input.len() < HEADER_BYTES + 64,
                Err(malformed) => malformed != MalformedPacket::WrongMagic,
            }
        }
    }
}
