//! memcached's binary protocol, with the lock commands of yrmcds.
//!
//! A packet is a [header] of 24 bytes, then extras, key and value. The server
//! decodes a request (`request.rs`), which [lowers](lower::lower) it to a command and an
//! [`BinaryEnvelope`], with which the reply is [encoded](reply::encode); a client
//! [encodes](request::RequestPacket::encode) requests and [decodes](reply::decode) replies.
//!
//! Every command with its source, and where we differ: docs/PROTOCOL.md, "Binary".

pub mod extras;
pub mod header;
pub mod lower;
pub mod opcode;
mod packet;
pub mod reply;
pub mod request;
mod sasl;
mod topic;

use alloc::vec::Vec;

pub use extras::Extras;
pub use header::{HEADER_BYTES, REQUEST_MAGIC, Status};
pub use opcode::{Opcode, Verb};
pub use request::RequestPacket;

/// The fields of a request that only the wire needs for the reply.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BinaryEnvelope<'a> {
    /// The form of the command.
    pub opcode: Opcode,
    /// The client's own number, returned in every packet of the response.
    pub opaque: u32,
    /// The key of the request: a loud miss of `GetK` and `GatK` repeats it.
    pub key: &'a [u8],
}

/// A response that needs no core: a header and a text.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct StatusPacket {
    /// The opcode of the request, known or not.
    pub opcode: u8,
    /// The opaque of the request.
    pub opaque: u32,
    /// The result.
    pub status: Status,
    /// The text of an error, the version.
    pub body: &'static str,
}

impl StatusPacket {
    /// The request succeeded, and the response has no body.
    #[must_use]
    pub const fn success(opcode: u8, opaque: u32) -> Self {
        Self {
            opcode,
            opaque,
            status: Status::SUCCESS,
            body: "",
        }
    }

    /// The request failed, and the text is that of the status.
    #[must_use]
    pub const fn error(opcode: u8, opaque: u32, status: Status) -> Self {
        Self {
            opcode,
            opaque,
            status,
            body: status.text(),
        }
    }

    /// Appends the packet to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let &Self {
            opcode,
            opaque,
            status,
            body,
        } = self;
        let value = body.as_bytes();
        reply::ResponsePacket {
            opcode,
            status,
            opaque,
            cas: None,
            extras: b"",
            key: b"",
            value,
        }
        .encode(out);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Well-formed requests of every opcode, for the properties of this module.

    use alloc::vec::Vec;

    use quickcheck::{Arbitrary, Gen};

    use super::opcode::{ExtrasShape, Presence};
    use super::{Extras, Opcode, RequestPacket, Verb};
    use crate::item::Cas;
    use crate::key::KEY_BYTES_MAX;

    /// A [`RequestPacket`] that owns its bytes. Not SASL, which is refused before it is decoded.
    #[derive(Clone, Debug)]
    pub(crate) struct AnyRequest {
        opcode: Opcode,
        opaque: u32,
        cas: Option<Cas>,
        extras: Extras,
        key: Vec<u8>,
        value: Vec<u8>,
    }

    impl AnyRequest {
        pub(crate) fn request(&self) -> RequestPacket<'_> {
            let &Self {
                opcode,
                opaque,
                cas,
                extras,
                ref key,
                ref value,
            } = self;
            RequestPacket {
                opcode,
                opaque,
                cas,
                extras,
                key,
                value,
            }
        }
    }

    pub(crate) fn bytes_of(request: &RequestPacket<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        request.encode(&mut out).expect("short enough");
        out
    }

    fn part(gen_: &mut Gen, presence: Presence) -> Vec<u8> {
        match presence {
            Presence::None => Vec::new(),
            Presence::Optional => Vec::arbitrary(gen_),
            Presence::Required => {
                let mut bytes = Vec::arbitrary(gen_);
                bytes.push(u8::arbitrary(gen_));
                bytes
            }
        }
    }

    impl Arbitrary for AnyRequest {
        fn arbitrary(gen_: &mut Gen) -> Self {
            let opcode = loop {
                let &opcode = gen_.choose(Opcode::ALL).expect("there are opcodes");
                let sasl = [Verb::SaslListMechanisms, Verb::SaslAuth, Verb::SaslStep];
                if !sasl.contains(&opcode.verb()) {
                    break opcode;
                }
            };
            let shape = opcode.verb().shape();
            let extras = match shape.extras {
                ExtrasShape::None => Extras::None,
                ExtrasShape::OptionalExptime if bool::arbitrary(gen_) => Extras::None,
                ExtrasShape::OptionalExptime | ExtrasShape::Exptime => {
                    Extras::Exptime(u32::arbitrary(gen_))
                }
                ExtrasShape::Store => Extras::Store {
                    client_flags: u32::arbitrary(gen_),
                    exptime: u32::arbitrary(gen_),
                },
                ExtrasShape::Arithmetic => Extras::Arithmetic {
                    delta: u64::arbitrary(gen_),
                    initial: u64::arbitrary(gen_),
                    exptime: u32::arbitrary(gen_),
                },
                ExtrasShape::Level => Extras::Level(u32::arbitrary(gen_)),
            };
            let mut key = part(gen_, shape.key);
            key.truncate(KEY_BYTES_MAX);
            // Some keys repeat, so that requests concern the same item.
            if !key.is_empty() && bool::arbitrary(gen_) {
                key = b"k".to_vec();
            }
            Self {
                opcode,
                opaque: u32::arbitrary(gen_),
                cas: Cas::new(u64::arbitrary(gen_)),
                extras,
                key,
                value: part(gen_, shape.value),
            }
        }
    }
}
