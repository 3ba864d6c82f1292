//! Requests as packets: the server decodes them, a client encodes them.
//!
//! - R1: The header shows every fault of a packet, before its body arrives. A body that is not needed is
//!   skipped, never collected.
//! - R2: A decoded [`RequestPacket`] has the extras of its opcode, and a legal key where it needs one.
//!
//! The checks, their order and their results are those of memcached 1.6.45 `proto_bin.c`,
//! `dispatch_bin_command`. Where we differ: docs/PROTOCOL.md, "Binary".

use alloc::vec::Vec;

use super::extras::Extras;
use super::header::{BODY_BYTES_MAX, HEADER_BYTES, RequestHeader, Status, WrongMagic};
use super::lower::lower;
use super::opcode::{Opcode, Verb};
use super::topic::stats_topic;
use super::{BinaryEnvelope, StatusPacket, sasl};
use crate::command::{Command, ItemCommand};
use crate::item::Cas;
use crate::key::{KEY_BYTES_MAX, Key};
use crate::stats::{StatsTopic, Unstored};
use crate::wire::Envelope;
use crate::wire::authenticate::Unauthenticated;
use crate::wire::chosen_limits::WireLimits;
use crate::wire::local::LocalResponse;
use crate::wire::step::{Cursor, Operation, Step};

/// One packet of a client, which is one request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RequestPacket<'a> {
    /// The command, and the form of the response.
    pub opcode: Opcode,
    /// The client's own number, returned in every packet of the response.
    pub opaque: u32,
    /// The version that the item must have; `None` for any.
    pub cas: Option<Cas>,
    /// The numbers in front of the key.
    pub extras: Extras,
    /// The item's key; for [`Opcode::Stat`] the topic, for [`Opcode::Keys`] the prefix. At most
    /// [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The value to store. At most [`BODY_BYTES_MAX`] less the parts before it.
    pub value: &'a [u8],
}

/// Decodes the packet at the start of `input`. `cursor` selects its step, and is advanced.
///
/// The connection [closes](Operation::Close) in three cases: the first byte is not that of a request, the lengths
/// contradict each other or the opcode, or the body is over [`BODY_BYTES_MAX`]. The start of the next request
/// is unknown then.
/// [`BODY_BYTES_MAX`]: nobody knows then where the next request begins.
///
/// An unauthenticated client may do little but authenticate ([`sasl`]).
#[must_use]
pub(crate) fn decode<'a>(
    input: &'a [u8],
    limits: &WireLimits,
    cursor: &mut Cursor,
    unauthenticated: &mut Option<Unauthenticated>,
) -> Step<'a> {
    let header = match RequestHeader::decode(input) {
        Ok(Some(header)) => header,
        Ok(None) => {
            return Operation::Incomplete {
                at_least: HEADER_BYTES,
            }
            .consuming(0);
        }
        // memcached closes without a reply if the first byte is not that of a packet.
        Err(WrongMagic) => {
            return Operation::Close {
                response: LocalResponse::Nothing,
            }
            .consuming(0);
        }
    };
    let refusal =
        |status| LocalResponse::Packet(StatusPacket::error(header.opcode, header.opaque, status));
    let close = |status| {
        Operation::Close {
            response: refusal(status),
        }
        .consuming(0)
    };

    let Some(value_bytes) = header.value_bytes() else {
        return close(Status::UNKNOWN_COMMAND);
    };
    let body_bytes = header.body_bytes as usize;
    let extras_bytes = usize::from(header.extras_bytes);
    let key_bytes = usize::from(header.key_bytes);
    if body_bytes > BODY_BYTES_MAX {
        return close(Status::INVALID);
    }
    if unauthenticated.is_some() && !sasl::precedes_authentication(header.opcode) {
        return close(Status::AUTH_FAILURE);
    }
    if key_bytes > KEY_BYTES_MAX {
        return close(Status::INVALID);
    }
    let packet_bytes = HEADER_BYTES + body_bytes;
    let unread = |status| {
        Operation::Send {
            response: refusal(status),
            unstored: None,
        }
        .consuming(packet_bytes)
    };
    let Some(opcode) = Opcode::from_byte(header.opcode) else {
        return unread(Status::UNKNOWN_COMMAND);
    };
    let verb = opcode.verb();
    if !verb.shape().allows(extras_bytes, key_bytes, value_bytes) {
        return close(Status::INVALID);
    }
    if sasl::is_sasl(verb) {
        if limits.allowed.admission.is_by_sasl() {
            return sasl::decode(verb, &header, input, unauthenticated);
        }
        // A server without authentication does not know these, as in memcached, if they are well formed.
        return unread(Status::UNKNOWN_COMMAND);
    }
    if (verb == Verb::Flush && !limits.allowed.flush_all)
        || (verb == Verb::Keys && !limits.allowed.listing)
    {
        return unread(Status::AUTH_FAILURE);
    }
    let too_large = value_bytes > limits.value_bytes_max;
    if too_large && verb != Verb::Set {
        return Operation::Send {
            response: refusal(Status::TOO_LARGE),
            unstored: Some(Unstored::TooLarge),
        }
        .consuming(packet_bytes);
    }

    // Of a Set that is too large, only the parts before the value are collected.
    let gathered = if too_large {
        packet_bytes - value_bytes
    } else {
        packet_bytes
    };
    let Some(packet) = input.get(..gathered) else {
        return Operation::Incomplete { at_least: gathered }.consuming(0);
    };
    let Some(request) = RequestPacket::from_packet(opcode, &header, packet) else {
        return close(Status::INVALID);
    };
    if verb == Verb::Stat
        && !limits.allowed.listing
        && stats_topic(request.key).is_some_and(StatsTopic::tells_keys)
    {
        return unread(Status::AUTH_FAILURE);
    }
    if let (true, Some(key)) = (too_large, Key::new(request.key)) {
        return Operation::Execute {
            command: Command::Item(ItemCommand::SetTooLarge { key }),
            envelope: Envelope::Binary(request.envelope()),
        }
        .consuming(packet_bytes);
    }
    // A well-formed request always has a step; a malformed one closes.
    lower(&request, packet_bytes, cursor).unwrap_or(close(Status::INVALID))
}

/// The length of the packet at the start of `input`; all of `input` if that is not known.
pub(crate) fn packet_bytes(input: &[u8]) -> usize {
    match RequestHeader::decode(input) {
        Ok(Some(header)) => HEADER_BYTES + header.body_bytes as usize,
        Ok(None) | Err(WrongMagic) => input.len(),
    }
}

/// The response to the packet at the start of `input` if there is no memory for it.
pub(crate) fn out_of_memory(input: &[u8]) -> LocalResponse<'static> {
    match RequestHeader::decode(input) {
        Ok(Some(header)) => {
            let status = Status::OUT_OF_MEMORY;
            LocalResponse::Packet(StatusPacket::error(header.opcode, header.opaque, status))
        }
        Ok(None) | Err(WrongMagic) => LocalResponse::Nothing,
    }
}

/// Splits a packet behind its header: extras, key, value.
fn split(packet: &[u8], extras_bytes: usize, key_bytes: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let body = packet.get(HEADER_BYTES..)?;
    let (extras, rest) = body.split_at_checked(extras_bytes)?;
    let (key, value) = rest.split_at_checked(key_bytes)?;
    Some((extras, key, value))
}

/// A part of a [`RequestPacket`] is longer than its length field allows, or than any server accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooLong;

impl<'a> RequestPacket<'a> {
    /// A request with only an opcode; the caller sets the other fields.
    #[must_use]
    pub const fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            opaque: 0,
            cas: None,
            extras: Extras::None,
            key: b"",
            value: b"",
        }
    }

    /// The request of a packet with this header; `None` if its extras are not those of the opcode.
    fn from_packet(opcode: Opcode, header: &RequestHeader, packet: &'a [u8]) -> Option<Self> {
        let extras_bytes = usize::from(header.extras_bytes);
        let (extras, key, value) = split(packet, extras_bytes, usize::from(header.key_bytes))?;
        Some(Self {
            opcode,
            opaque: header.opaque,
            cas: Cas::new(header.cas),
            extras: Extras::decode(opcode.verb().shape().extras, extras)?,
            key,
            value,
        })
    }

    /// The form of its reply.
    #[must_use]
    pub const fn envelope(&self) -> BinaryEnvelope<'a> {
        BinaryEnvelope {
            opcode: self.opcode,
            opaque: self.opaque,
            key: self.key,
        }
    }

    /// Appends the packet to `out`.
    ///
    /// The server judges whether extras, key and value fit the opcode.
    ///
    /// # Errors
    /// [`TooLong`] if the key is over [`KEY_BYTES_MAX`] or the body over [`BODY_BYTES_MAX`];
    /// nothing is appended.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let extras_bytes = self.extras.bytes();
        let (key_bytes, body_bytes) = lengths(extras_bytes, self.key.len(), self.value.len())?;
        RequestHeader {
            opcode: self.opcode.byte(),
            key_bytes,
            extras_bytes,
            body_bytes,
            opaque: self.opaque,
            cas: self.cas.map_or(0, Cas::number),
        }
        .encode(out);
        self.extras.encode(out);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        Ok(())
    }
}

/// The lengths of the key and of the body, as in the header.
fn lengths(extras_bytes: u8, key_bytes: usize, value_bytes: usize) -> Result<(u16, u32), TooLong> {
    let body_bytes = usize::from(extras_bytes) + key_bytes + value_bytes;
    if key_bytes > KEY_BYTES_MAX || body_bytes > BODY_BYTES_MAX {
        return Err(TooLong);
    }
    let key_bytes = u16::try_from(key_bytes).map_err(|_| TooLong)?;
    let body_bytes = u32::try_from(body_bytes).map_err(|_| TooLong)?;
    Ok((key_bytes, body_bytes))
}

#[cfg(test)]
mod tests;
