//! The 24 bytes in front of every packet, and the status in those of a reply.
//!
//! Numbers are big-endian. A header has the length of its packet, so a packet can be skipped without being
//! understood.
//!
//! Source: memcached 1.6.45 `protocol_binary.h`; the texts of errors are those of `proto_bin.c`,
//! `write_bin_error`, and of yrmcds 1.1 for the lock statuses.

use alloc::vec::Vec;

/// The length of a header, of a request or a response, in bytes.
pub const HEADER_BYTES: usize = 24;

/// The first byte of a request; see [`BINARY_MAGIC`](crate::wire::BINARY_MAGIC).
pub const REQUEST_MAGIC: u8 = 0x80;

/// The first byte of a response, so that a reader of the wrong side of a wire notices at once.
pub const RESPONSE_MAGIC: u8 = 0x81;

/// The longest body of a request that is read, or skipped. A longer one is malformed.
///
/// Source: memcached 1.6.45 `memcached.h`, `ITEM_SIZE_MAX_UPPER_LIMIT`.
pub const BODY_BYTES_MAX: usize = 1 << 30;

/// The result of a request, as a number on the wire. A client may meet numbers without a name here.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Status(u16);

impl Status {
    /// The request was granted; a get that was found, too.
    pub const SUCCESS: Self = Self(0x0000);
    /// There is no such item, or no such statistics.
    pub const NOT_FOUND: Self = Self(0x0001);
    /// There is such an item already, or it has another version.
    pub const EXISTS: Self = Self(0x0002);
    /// The value is over `value_bytes_max`.
    pub const TOO_LARGE: Self = Self(0x0003);
    /// The packet's parts are not those of its opcode.
    pub const INVALID: Self = Self(0x0004);
    /// There is no item to append to, or not enough memory.
    pub const NOT_STORED: Self = Self(0x0005);
    /// The item's value is not a decimal number below 2^64.
    pub const NON_NUMERIC: Self = Self(0x0006);
    /// The key belongs to a partition of another server.
    ///
    /// Source: memcached's wiki, `BinaryProtocolRevamped`: "The vbucket belongs to another server".
    pub const KEY_OF_ANOTHER: Self = Self(0x0007);
    /// A connection holds the item's lock.
    pub const LOCKED: Self = Self(0x0010);
    /// The connection does not hold the item's lock.
    pub const NOT_LOCKED: Self = Self(0x0011);
    /// The operator does not allow it, or the client is unauthenticated.
    pub const AUTH_FAILURE: Self = Self(0x0020);
    /// The client must continue its authentication.
    pub const AUTH_CONTINUE: Self = Self(0x0021);
    /// The opcode is not known, or the lengths contradict each other.
    pub const UNKNOWN_COMMAND: Self = Self(0x0081);
    /// There is not enough memory, for an item or for a lock.
    pub const OUT_OF_MEMORY: Self = Self(0x0082);
    /// The server contradicts itself. memcached does not use it; later servers of this protocol
    /// call 0x0084 "internal error".
    pub const INTERNAL: Self = Self(0x0084);
    /// The server does not serve its partition at present.
    ///
    /// Source: memcached's wiki, `BinaryProtocolRevamped`: "Temporary failure".
    pub const NOT_PRIMARY: Self = Self(0x0086);

    /// The status that has this number on the wire, named here or not.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        Self(number)
    }

    /// The number in bytes 6 and 7 of a response.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The body of an error with this status, if the error has no text of its own. Empty for success and for
    /// statuses without a name here.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NOT_FOUND => "Not found",
            Self::EXISTS => "Data exists for key.",
            Self::TOO_LARGE => "Too large.",
            Self::INVALID => "Invalid arguments",
            Self::NOT_STORED => "Not stored.",
            Self::NON_NUMERIC => "Non-numeric server-side value for incr or decr",
            Self::KEY_OF_ANOTHER => "key of another partition",
            Self::NOT_PRIMARY => "not primary",
            Self::LOCKED => "Locked",
            Self::NOT_LOCKED => "Not locked",
            Self::AUTH_FAILURE => "Auth failure.",
            Self::UNKNOWN_COMMAND => "Unknown command",
            Self::OUT_OF_MEMORY => "Out of memory",
            Self::INTERNAL => "Internal error",
            Self(_) => "",
        }
    }
}

/// The header of a request. As in memcached, its data type and its reserved field are ignored; a client writes
/// 0.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RequestHeader {
    /// Byte 1. Any value: [`Opcode`](super::Opcode) decides whether it is a command.
    pub opcode: u8,
    /// Bytes 2 and 3: the length of the key.
    pub key_bytes: u16,
    /// Byte 4: the length of the extras, between header and key.
    pub extras_bytes: u8,
    /// Bytes 8 to 11: the length of extras, key and value together.
    pub body_bytes: u32,
    /// Bytes 12 to 15: the client's own number, returned in every response.
    pub opaque: u32,
    /// Bytes 16 to 23: the version that the item must have; 0 means any.
    pub cas: u64,
}

/// The header of a response. Its fields have the places of those of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ResponseHeader {
    /// The opcode of the request, known or not.
    pub opcode: u8,
    /// The length of the key: 0 unless the opcode asks for the key, or lists.
    pub key_bytes: u16,
    /// The length of the extras: 4 for a hit, which are its client flags.
    pub extras_bytes: u8,
    /// Bytes 6 and 7, which are reserved in a request.
    pub status: Status,
    /// The length of extras, key and value together.
    pub body_bytes: u32,
    /// The opaque of the request, by which a client matches responses to requests.
    pub opaque: u32,
    /// The item's version; 0 if there is none.
    pub cas: u64,
}

/// The first byte is not that of such a packet, so the start of the next packet is unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrongMagic;

/// The fields of both headers, by position.
struct Fields {
    magic: u8,
    opcode: u8,
    key_bytes: u16,
    extras_bytes: u8,
    /// The status of a reply; reserved in a request.
    number: u16,
    body_bytes: u32,
    opaque: u32,
    cas: u64,
}

impl Fields {
    /// Takes a header apart; `None` if `input` is too short.
    fn decode(input: &[u8]) -> Option<Self> {
        let (&[magic, opcode], rest) = input.split_first_chunk()?;
        let (key_bytes, rest) = rest.split_first_chunk()?;
        let (&[extras_bytes, _data_type], rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (body_bytes, rest) = rest.split_first_chunk()?;
        let (opaque, rest) = rest.split_first_chunk()?;
        let (cas, _) = rest.split_first_chunk()?;
        Some(Self {
            magic,
            opcode,
            key_bytes: u16::from_be_bytes(*key_bytes),
            extras_bytes,
            number: u16::from_be_bytes(*number),
            body_bytes: u32::from_be_bytes(*body_bytes),
            opaque: u32::from_be_bytes(*opaque),
            cas: u64::from_be_bytes(*cas),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        const RAW_BYTES: u8 = 0;
        out.extend_from_slice(&[self.magic, self.opcode]);
        out.extend_from_slice(&self.key_bytes.to_be_bytes());
        out.extend_from_slice(&[self.extras_bytes, RAW_BYTES]);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(&self.body_bytes.to_be_bytes());
        out.extend_from_slice(&self.opaque.to_be_bytes());
        out.extend_from_slice(&self.cas.to_be_bytes());
    }
}

impl RequestHeader {
    /// Reads the header at the start of `input`; `None` if it is not all there.
    ///
    /// # Errors
    /// [`WrongMagic`] as soon as the first byte is there.
    pub fn decode(input: &[u8]) -> Result<Option<Self>, WrongMagic> {
        check_magic(input, REQUEST_MAGIC)?;
        Ok(Fields::decode(input).map(|fields| Self {
            opcode: fields.opcode,
            key_bytes: fields.key_bytes,
            extras_bytes: fields.extras_bytes,
            body_bytes: fields.body_bytes,
            opaque: fields.opaque,
            cas: fields.cas,
        }))
    }

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let &Self {
            opcode,
            key_bytes,
            extras_bytes,
            body_bytes,
            opaque,
            cas,
        } = self;
        let (magic, number) = (REQUEST_MAGIC, 0);
        Fields {
            magic,
            opcode,
            key_bytes,
            extras_bytes,
            number,
            body_bytes,
            opaque,
            cas,
        }
        .encode(out);
    }

    /// Bytes of the value; `None` if extras and key alone are longer than the body.
    #[must_use]
    pub fn value_bytes(&self) -> Option<usize> {
        value_bytes(self.body_bytes, self.extras_bytes, self.key_bytes)
    }
}

impl ResponseHeader {
    /// Reads the header at the start of `input`; `None` if it is not all there.
    ///
    /// # Errors
    /// [`WrongMagic`] as soon as the first byte is there.
    pub fn decode(input: &[u8]) -> Result<Option<Self>, WrongMagic> {
        check_magic(input, RESPONSE_MAGIC)?;
        Ok(Fields::decode(input).map(|fields| Self {
            opcode: fields.opcode,
            key_bytes: fields.key_bytes,
            extras_bytes: fields.extras_bytes,
            status: Status(fields.number),
            body_bytes: fields.body_bytes,
            opaque: fields.opaque,
            cas: fields.cas,
        }))
    }

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let &Self {
            opcode,
            key_bytes,
            extras_bytes,
            status,
            body_bytes,
            opaque,
            cas,
        } = self;
        let (magic, number) = (RESPONSE_MAGIC, status.0);
        Fields {
            magic,
            opcode,
            key_bytes,
            extras_bytes,
            number,
            body_bytes,
            opaque,
            cas,
        }
        .encode(out);
    }

    /// Bytes of the value; `None` if extras and key alone are longer than the body.
    #[must_use]
    pub fn value_bytes(&self) -> Option<usize> {
        value_bytes(self.body_bytes, self.extras_bytes, self.key_bytes)
    }
}

fn check_magic(input: &[u8], magic: u8) -> Result<(), WrongMagic> {
    match input.first() {
        Some(&first) if first != magic => Err(WrongMagic),
        Some(_) | None => Ok(()),
    }
}

fn value_bytes(body_bytes: u32, extras_bytes: u8, key_bytes: u16) -> Option<usize> {
    let before = u32::from(extras_bytes) + u32::from(key_bytes);
    body_bytes.checked_sub(before).map(|bytes| bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    #[test]
    fn a_header_is_laid_out_as_memcached_does() {
        let mut out = Vec::new();
        RequestHeader {
            opcode: 0x01,
            key_bytes: 5,
            extras_bytes: 8,
            body_bytes: 18,
            opaque: 0xdead_beef,
            cas: 1,
        }
        .encode(&mut out);
        assert_eq!(
            out,
            b"\x80\x01\x00\x05\x08\x00\x00\x00\x00\x00\x00\x12\xde\xad\xbe\xef\0\0\0\0\0\0\0\x01"
        );
    }

    #[test]
    fn the_first_byte_decides_alone() {
        assert_eq!(RequestHeader::decode(b""), Ok(None));
        assert_eq!(RequestHeader::decode(b"\x80"), Ok(None));
        assert_eq!(RequestHeader::decode(b"\x81"), Err(WrongMagic));
        assert_eq!(ResponseHeader::decode(b"\x80"), Err(WrongMagic));
    }

    quickcheck! {
        fn a_request_header_comes_back(opcode: u8, lengths: (u16, u8, u32), opaque: u32, cas: u64) -> bool {
            let (key_bytes, extras_bytes, body_bytes) = lengths;
            let header =
                RequestHeader { opcode, key_bytes, extras_bytes, body_bytes, opaque, cas };
            let mut out = Vec::new();
            header.encode(&mut out);
            let short = out.get(..HEADER_BYTES - 1).map(RequestHeader::decode);
            out.len() == HEADER_BYTES
                && RequestHeader::decode(&out) == Ok(Some(header))
                && short == Some(Ok(None))
        }

        fn a_reply_header_comes_back(opcode: u8, lengths: (u16, u8, u32), status: u16, opaque: u32, cas: u64) -> bool {
            let (key_bytes, extras_bytes, body_bytes) = lengths;
            let status = Status::from_number(status);
            let header =
                ResponseHeader { opcode, key_bytes, extras_bytes, status, body_bytes, opaque, cas };
            let mut out = Vec::new();
            header.encode(&mut out);
            out.len() == HEADER_BYTES && ResponseHeader::decode(&out) == Ok(Some(header))
        }
    }
}
