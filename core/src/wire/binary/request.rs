//! Requests as packets: the server decodes them, a client encodes them.
//!
//! - R1: what is wrong with a packet is told from its header, before anything of its body has
//!   arrived; a body that nobody is to look at is skipped, never gathered.
//! - R2: a decoded [`Request`] has the extras of its opcode, and a legal key where it needs one.
//!
//! The checks, their order and what follows from each are those of memcached 1.6.45 `proto_bin.c`,
//! `dispatch_bin_command`. Where we differ: docs/PROTOCOL.md, "Binary".

use alloc::vec::Vec;

use super::extras::Extras;
use super::header::{BODY_BYTES_MAX, HEADER_BYTES, RequestHeader, Status, WrongMagic};
use super::opcode::{Opcode, Verb};
use super::{Answer, Envelope};
use crate::item::Cas;
use crate::key::{KEY_BYTES_MAX, Key};

/// One packet of a client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Request<'a> {
    /// What is asked.
    pub opcode: Opcode,
    /// Comes back in every reply.
    pub opaque: u32,
    /// Which version of the item the client must have seen; `None` for any.
    pub cas: Option<Cas>,
    /// What stands in front of the key.
    pub extras: Extras,
    /// Which item; for [`Opcode::Stat`] which topic, for [`Opcode::Keys`] which prefix. At most
    /// [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// What is to be stored. At most [`BODY_BYTES_MAX`] less what stands before it.
    pub value: &'a [u8],
}

/// What the start of the input is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decoded<'a> {
    /// Less than a packet.
    Incomplete {
        /// Bytes of input before which calling again is of no use.
        at_least: usize,
    },
    /// A whole packet.
    Request {
        /// What it asks.
        request: Request<'a>,
        /// Its bytes.
        consumed: usize,
    },
    /// A packet that is answered unread. The next one can be found.
    Refused {
        /// What to send.
        answer: Answer,
        /// Bytes of input that are done with.
        consumed: usize,
        /// Bytes behind those that nobody is to look at; they need not have arrived.
        skip: usize,
    },
    /// A Set whose value is over the limit: the old value is to go.
    SetTooLarge {
        /// Whose.
        key: Key<'a>,
        /// How to answer.
        envelope: Envelope<'a>,
        /// Bytes of input that are done with.
        consumed: usize,
        /// Bytes behind those that nobody is to look at; they need not have arrived.
        skip: usize,
    },
}

/// The connection is of no more use: send the answer, if there is one, and close.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed {
    /// What to send before.
    pub answer: Option<Answer>,
}

impl From<WrongMagic> for Malformed {
    /// memcached closes without a word when a packet does not begin as one.
    fn from(WrongMagic: WrongMagic) -> Self {
        Self { answer: None }
    }
}

/// Decodes the packet at the start of `input`.
///
/// `value_bytes_max` is [`Limits::value_bytes_max`](crate::Limits::value_bytes_max).
///
/// # Errors
/// [`Malformed`] when the first byte is not that of a request, when the lengths contradict each
/// other or are not those of the opcode, and when the body is over [`BODY_BYTES_MAX`].
pub fn decode(input: &[u8], value_bytes_max: usize) -> Result<Decoded<'_>, Malformed> {
    let Some(header) = RequestHeader::decode(input)? else {
        return Ok(Decoded::Incomplete {
            at_least: HEADER_BYTES,
        });
    };
    let refusal = |status| Answer::error(header.opcode, header.opaque, status);
    let malformed = |status| Malformed {
        answer: Some(refusal(status)),
    };

    let value_bytes = header
        .value_bytes()
        .ok_or_else(|| malformed(Status::UNKNOWN_COMMAND))?;
    let body_bytes = header.body_bytes as usize;
    let extras_bytes = usize::from(header.extras_bytes);
    let key_bytes = usize::from(header.key_bytes);
    if body_bytes > BODY_BYTES_MAX || key_bytes > KEY_BYTES_MAX {
        return Err(malformed(Status::INVALID));
    }
    let unread = |status| Decoded::Refused {
        answer: refusal(status),
        consumed: HEADER_BYTES,
        skip: body_bytes,
    };
    let Some(opcode) = Opcode::from_byte(header.opcode) else {
        return Ok(unread(Status::UNKNOWN_COMMAND));
    };
    let verb = opcode.verb();
    if !verb.shape().allows(extras_bytes, key_bytes, value_bytes) {
        return Err(malformed(Status::INVALID));
    }
    if matches!(
        verb,
        Verb::SaslListMechanisms | Verb::SaslAuth | Verb::SaslStep
    ) {
        // A server without authentication does not know these, memcached says, once they are well
        // formed.
        return Ok(unread(Status::UNKNOWN_COMMAND));
    }
    let too_large = value_bytes > value_bytes_max;
    if too_large && verb != Verb::Set {
        return Ok(unread(Status::TOO_LARGE));
    }

    // Of a Set that is too large, only what stands before the value is gathered.
    let (body_wanted, skip) = if too_large {
        (body_bytes - value_bytes, value_bytes)
    } else {
        (body_bytes, 0)
    };
    let consumed = HEADER_BYTES + body_wanted;
    let packet = input.get(..consumed);
    let Some(parts) = packet.and_then(|packet| split(packet, extras_bytes, key_bytes)) else {
        return Ok(Decoded::Incomplete { at_least: consumed });
    };
    let (extras, key, value) = parts;
    if let (true, Some(key)) = (too_large, Key::new(key)) {
        let envelope = Envelope {
            opcode,
            opaque: header.opaque,
            key: key.as_bytes(),
        };
        return Ok(Decoded::SetTooLarge {
            key,
            envelope,
            consumed,
            skip,
        });
    }
    let extras =
        Extras::decode(verb.shape().extras, extras).ok_or_else(|| malformed(Status::INVALID))?;
    let cas = Cas::new(header.cas);
    let request = Request {
        opcode,
        opaque: header.opaque,
        cas,
        extras,
        key,
        value,
    };
    Ok(Decoded::Request { request, consumed })
}

/// Takes a packet apart behind its header: extras, key, value.
fn split(packet: &[u8], extras_bytes: usize, key_bytes: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let body = packet.get(HEADER_BYTES..)?;
    let (extras, rest) = body.split_at_checked(extras_bytes)?;
    let (key, value) = rest.split_at_checked(key_bytes)?;
    Some((extras, key, value))
}

/// A part of a [`Request`] is longer than its length field can say, or than any server takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooLong;

impl<'a> Request<'a> {
    /// A request without anything but its opcode; the other fields are for the caller to set.
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

    /// How this request is to be answered.
    #[must_use]
    pub const fn envelope(&self) -> Envelope<'a> {
        Envelope {
            opcode: self.opcode,
            opaque: self.opaque,
            key: self.key,
        }
    }

    /// Appends the packet to `out`.
    ///
    /// Whether extras, key and value are those of the opcode is for the server to judge.
    ///
    /// # Errors
    /// [`TooLong`] if the key is over [`KEY_BYTES_MAX`] or the body over [`BODY_BYTES_MAX`];
    /// nothing is appended.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let extras_bytes = self.extras.bytes();
        let body_bytes = usize::from(extras_bytes) + self.key.len() + self.value.len();
        if self.key.len() > KEY_BYTES_MAX || body_bytes > BODY_BYTES_MAX {
            return Err(TooLong);
        }
        RequestHeader {
            opcode: self.opcode.byte(),
            key_bytes: u16::try_from(self.key.len()).map_err(|_| TooLong)?,
            extras_bytes,
            body_bytes: u32::try_from(body_bytes).map_err(|_| TooLong)?,
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

#[cfg(test)]
mod tests;
