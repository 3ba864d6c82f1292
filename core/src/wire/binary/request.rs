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
mod tests {
    use super::*;
    use crate::wire::binary::testing::{AnyRequest, bytes_of};
    use quickcheck::quickcheck;

    const LIMIT: usize = 100;

    fn refused_at_header(input: &[u8]) -> (Status, bool) {
        match decode(input, LIMIT) {
            Ok(Decoded::Refused { answer, .. }) => (answer.status, false),
            Err(Malformed {
                answer: Some(answer),
            }) => (answer.status, true),
            other => panic!("taken: {other:?}"),
        }
    }

    /// A header with nothing behind it.
    fn header(header: RequestHeader) -> Vec<u8> {
        let mut out = Vec::new();
        header.encode(&mut out);
        out
    }

    const GET: RequestHeader = RequestHeader {
        opcode: 0x00,
        key_bytes: 1,
        extras_bytes: 0,
        body_bytes: 1,
        opaque: 7,
        cas: 0,
    };

    #[test]
    fn malformed_packets_are_known_by_their_header_and_close() {
        let closes = |header_: RequestHeader| refused_at_header(&header(header_));
        assert_eq!(
            closes(RequestHeader {
                key_bytes: 10,
                body_bytes: 5,
                ..GET
            }),
            (Status::UNKNOWN_COMMAND, true),
            "key over body"
        );
        assert_eq!(
            closes(RequestHeader {
                extras_bytes: 2,
                body_bytes: 2,
                ..GET
            }),
            (Status::UNKNOWN_COMMAND, true),
            "extras and key over body"
        );
        assert_eq!(
            closes(RequestHeader {
                key_bytes: 251,
                body_bytes: 251,
                ..GET
            }),
            (Status::INVALID, true),
            "long key"
        );
        assert_eq!(
            closes(RequestHeader {
                body_bytes: u32::MAX,
                ..GET
            }),
            (Status::INVALID, true),
            "4 GiB"
        );
        assert_eq!(
            closes(RequestHeader {
                extras_bytes: 4,
                body_bytes: 5,
                ..GET
            }),
            (Status::INVALID, true),
            "extras of get"
        );
        assert_eq!(
            closes(RequestHeader {
                key_bytes: 0,
                body_bytes: 0,
                ..GET
            }),
            (Status::INVALID, true),
            "no key"
        );
        assert_eq!(
            closes(RequestHeader {
                body_bytes: 3,
                ..GET
            }),
            (Status::INVALID, true),
            "value of get"
        );
    }

    #[test]
    fn a_wrong_first_byte_closes_without_a_word() {
        for first in (0..=u8::MAX).filter(|byte| *byte != 0x80) {
            assert_eq!(decode(&[first], LIMIT), Err(Malformed { answer: None }));
        }
    }

    #[test]
    fn unknown_opcodes_are_answered_as_themselves_and_skipped() {
        let input = header(RequestHeader {
            opcode: 0x60,
            body_bytes: 50,
            ..GET
        });
        assert_eq!(
            decode(&input, LIMIT),
            Ok(Decoded::Refused {
                answer: Answer::error(0x60, 7, Status::UNKNOWN_COMMAND),
                consumed: HEADER_BYTES,
                skip: 50
            })
        );
    }

    #[test]
    fn sasl_is_unknown_once_it_is_well_formed() {
        let auth = RequestHeader {
            opcode: 0x21,
            key_bytes: 5,
            body_bytes: 9,
            ..GET
        };
        assert_eq!(
            refused_at_header(&header(auth)),
            (Status::UNKNOWN_COMMAND, false)
        );
        let no_mechanism = RequestHeader {
            key_bytes: 0,
            ..auth
        };
        assert_eq!(
            refused_at_header(&header(no_mechanism)),
            (Status::INVALID, true)
        );
    }

    #[test]
    fn a_value_over_the_limit_is_refused_before_it_arrives() {
        let value = [b'v'; LIMIT + 1];
        let extras = Extras::Store {
            client_flags: 0,
            exptime: 0,
        };
        for (opcode, extras) in [
            (Opcode::Add, extras),
            (Opcode::ReplaceQ, extras),
            (Opcode::Append, Extras::None),
            (Opcode::RaU, extras),
        ] {
            let request = Request {
                extras,
                key: b"k",
                value: &value,
                ..Request::new(opcode)
            };
            let packet = bytes_of(&request);
            assert_eq!(
                decode(&packet[..HEADER_BYTES], LIMIT),
                Ok(Decoded::Refused {
                    answer: Answer::error(opcode.byte(), 0, Status::TOO_LARGE),
                    consumed: HEADER_BYTES,
                    skip: packet.len() - HEADER_BYTES
                })
            );
        }
    }

    #[test]
    fn a_set_over_the_limit_names_its_key_and_skips_its_value() {
        let value = [b'v'; LIMIT + 1];
        let extras = Extras::Store {
            client_flags: 0,
            exptime: 0,
        };
        let request = Request {
            extras,
            key: b"k",
            value: &value,
            ..Request::new(Opcode::SetQ)
        };
        let packet = bytes_of(&request);
        let before_value = HEADER_BYTES + 8 + 1;
        for cut in HEADER_BYTES..before_value {
            assert_eq!(
                decode(&packet[..cut], LIMIT),
                Ok(Decoded::Incomplete {
                    at_least: before_value
                })
            );
        }
        let expected = Decoded::SetTooLarge {
            key: Key::new(b"k").unwrap(),
            envelope: request.envelope(),
            consumed: before_value,
            skip: LIMIT + 1,
        };
        assert_eq!(decode(&packet[..before_value], LIMIT), Ok(expected));
        assert_eq!(decode(&packet, LIMIT), Ok(expected));
    }

    #[test]
    fn a_value_at_the_limit_is_taken() {
        let value = [b'v'; LIMIT];
        let request = Request {
            key: b"k",
            value: &value,
            ..Request::new(Opcode::Append)
        };
        let packet = bytes_of(&request);
        let consumed = packet.len();
        assert_eq!(
            decode(&packet, LIMIT),
            Ok(Decoded::Request { request, consumed })
        );
    }

    quickcheck! {
        /// `decode(encode(x)) == x`, whatever stands behind it.
        fn a_request_comes_back(any: AnyRequest, behind: Vec<u8>) -> bool {
            let request = any.request();
            let mut input = bytes_of(&request);
            let consumed = input.len();
            input.extend_from_slice(&behind);
            decode(&input, usize::MAX) == Ok(Decoded::Request { request, consumed })
        }

        /// A packet that is cut short says how much is missing, and means nothing else.
        fn a_request_cut_short_is_incomplete(any: AnyRequest) -> bool {
            let packet = bytes_of(&any.request());
            (0..packet.len()).all(|cut| {
                let at_least = if cut < HEADER_BYTES { HEADER_BYTES } else { packet.len() };
                decode(&packet[..cut], usize::MAX) == Ok(Decoded::Incomplete { at_least })
            })
        }

        /// Whatever arrives: no panic, progress, and never more than a header and the limit gathered.
        fn arbitrary_bytes_are_bounded(opcode: u8, lengths: (u16, u8, u32), behind: Vec<u8>) -> bool {
            let (key_bytes, extras_bytes, body_bytes) = lengths;
            let mut input = header(RequestHeader {
                opcode,
                key_bytes: key_bytes % 300,
                extras_bytes: extras_bytes % 24,
                body_bytes: if body_bytes % 4 == 0 { body_bytes } else { body_bytes % 400 },
                ..GET
            });
            input.extend_from_slice(&behind);
            match decode(&input, LIMIT) {
                Ok(Decoded::Incomplete { at_least }) => {
                    input.len() < at_least && at_least <= HEADER_BYTES + 20 + KEY_BYTES_MAX + LIMIT
                }
                Ok(Decoded::Request { consumed, .. }
                    | Decoded::Refused { consumed, .. }
                    | Decoded::SetTooLarge { consumed, .. }) => {
                    (HEADER_BYTES..=input.len()).contains(&consumed)
                }
                Err(Malformed { answer }) => answer.is_some(),
            }
        }

        /// Only the first byte can be so wrong that there is nothing to say.
        fn arbitrary_bytes_are_answered(input: Vec<u8>) -> bool {
            let mut behind_magic = alloc::vec![0x80];
            behind_magic.extend_from_slice(&input);
            let silent = Err(Malformed { answer: None });
            let first_is_magic = input.first().is_none_or(|first| *first == 0x80);
            (decode(&input, LIMIT) == silent) != first_is_magic
                && decode(&behind_magic, LIMIT) != silent
        }
    }
}
