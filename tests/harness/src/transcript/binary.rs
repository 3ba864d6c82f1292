//! Binary packets with named fields, so that a transcript shows requests and replies.
//!
//! Written from the packet layout alone (memcached's `protocol_binary.h` for opcodes and statuses,
//! yrmcds `docs/locking.md` for its own) and apart from the core's wire code, which it checks.
//!
//! A field that a packet does not name is 0 or empty. Extras are the fields of `EXTRAS` that are
//! named, in that order, then the bytes of `extras`. Lengths follow from the fields unless
//! `keylen`, `extlen` or `bodylen` say otherwise, which a malformed packet needs.

use std::fmt::Write as _;

use super::parse::pieces;
use super::{Number, Piece, escaped};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

const REQUEST: u8 = 0x80;
const RESPONSE: u8 = 0x81;

/// Extras that have a name, in wire order, with their bytes.
const EXTRAS: [(&str, usize); 5] = [
    ("delta", 8),
    ("initial", 8),
    ("flags", 4),
    ("exptime", 4),
    ("level", 4),
];

/// The names of opcodes, in runs: each from its first number on.
const OPCODES: [(u8, &str); 4] = [
    (
        0x00,
        "get set add replace delete increment decrement quit flush getq noop version getk getkq \
         append prepend stat setq addq replaceq deleteq incrementq decrementq quitq flushq appendq \
         prependq verbosity touch gat gatq",
    ),
    (0x20, "sasl-list sasl-auth sasl-step gatk gatkq"),
    (
        0x40,
        "lock lockq unlock unlockq unlock-all unlock-allq lag lagq lagk lagkq rau rauq",
    ),
    (0x50, "keys"),
];

const STATUSES: [(&str, u16); 12] = [
    ("ok", 0x00),
    ("not-found", 0x01),
    ("exists", 0x02),
    ("too-large", 0x03),
    ("invalid", 0x04),
    ("not-stored", 0x05),
    ("non-numeric", 0x06),
    ("locked", 0x10),
    ("not-locked", 0x11),
    ("auth-error", 0x20),
    ("unknown-command", 0x81),
    ("out-of-memory", 0x82),
];

/// A packet as a transcript writes it: `set key=foo flags=1 value=bar`.
#[derive(Clone, Debug)]
pub struct Packet {
    opcode: u8,
    fields: Vec<(String, Vec<Piece>)>,
}

impl Packet {
    /// Reads a packet: the opcode's name, then fields. A value with blanks is quoted.
    ///
    /// # Errors
    /// Text that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FIELDS: [&str; 14] = [
            "magic", "status", "vbucket", "datatype", "keylen", "extlen", "bodylen", "opaque",
            "cas", "key", "value", "number", "extras", "truncate",
        ];
        let mut words = words(text).into_iter();
        let name = words.next().ok_or("a packet has an opcode".to_owned())?;
        // An unassigned opcode goes by its number: the server's reply to it is part of the
        // protocol.
        let opcode = match name.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16).ok(),
            None => opcodes().find_map(|(known, opcode)| (known == name).then_some(opcode)),
        };
        let opcode = opcode.ok_or(format!("there is no opcode {name}"))?;
        let mut fields = Vec::new();
        for word in words {
            let (field, value) = word
                .split_once('=')
                .ok_or(format!("{word} is not a field: name=value"))?;
            if !FIELDS.contains(&field) && !EXTRAS.iter().any(|(extra, _)| *extra == field) {
                return Err(format!("there is no field {field}"));
            }
            let value = match STATUSES.iter().find(|(known, _)| *known == value) {
                Some((_, status)) if field == "status" => status.to_string(),
                _ => value.to_owned(),
            };
            fields.push((field.to_owned(), pieces(&value)?));
        }
        Ok(Self { opcode, fields })
    }

    /// The bytes of the request.
    ///
    /// # Errors
    /// A field that is no number, or a variable that has no value.
    pub fn request(
        &self,
        value_of: &dyn Fn(&Number) -> Result<u64, String>,
    ) -> Result<Vec<u8>, String> {
        let number = |field: &str| -> Result<Option<u64>, String> {
            self.field(field)
                .map(|pieces| number(pieces, value_of))
                .transpose()
        };
        let mut extras = Vec::new();
        for (name, bytes) in EXTRAS {
            if let Some(value) = number(name)? {
                extras.extend_from_slice(&value.to_be_bytes()[8 - bytes..]);
            }
        }
        extras.extend(self.bytes("extras", value_of)?);
        let key = self.bytes("key", value_of)?;
        let value = self.bytes("value", value_of)?;
        let body = extras.len() + key.len() + value.len();

        let mut packet = Vec::with_capacity(HEADER_BYTES + body);
        let low = |value: u64, bytes: usize| value.to_be_bytes()[8 - bytes..].to_vec();
        packet.extend(low(number("magic")?.unwrap_or(REQUEST.into()), 1));
        packet.push(self.opcode);
        packet.extend(low(number("keylen")?.unwrap_or(key.len() as u64), 2));
        packet.extend(low(number("extlen")?.unwrap_or(extras.len() as u64), 1));
        packet.extend(low(number("datatype")?.unwrap_or(0), 1));
        packet.extend(low(number("vbucket")?.unwrap_or(0), 2));
        packet.extend(low(number("bodylen")?.unwrap_or(body as u64), 4));
        packet.extend(low(number("opaque")?.unwrap_or(0), 4));
        packet.extend(low(number("cas")?.unwrap_or(0), 8));
        packet.extend(extras);
        packet.extend(key);
        packet.extend(value);
        if let Some(bytes) = number("truncate")? {
            packet.truncate(usize::try_from(bytes).map_err(|_| "truncate is too large")?);
        }
        Ok(packet)
    }

    /// Compares a whole response with this packet, field by field; `matches` compares a number and
    /// may bind a variable to it.
    ///
    /// # Errors
    /// The field that differs, as a sentence.
    pub fn compare(
        &self,
        response: &Response,
        matches: &mut NumberMatches<'_>,
    ) -> Result<(), String> {
        let mut check = |field: &str, got: u64| -> Result<(), String> {
            match self.field(field) {
                Some(pieces) => matches(pieces, got).map_err(|why| format!("{field}: {why}")),
                None if got == 0 => Ok(()),
                None => Err(format!("{field}: got {got}, expected none")),
            }
        };
        if response.magic != RESPONSE {
            return Err(format!("magic: got {:#04x}", response.magic));
        }
        if response.opcode != self.opcode {
            return Err(format!("opcode: got {}", opcode_name(response.opcode)));
        }
        check("status", response.status.into())?;
        check("opaque", response.opaque.into())?;
        check("cas", response.cas)?;
        check("datatype", response.datatype.into())?;
        let mut extras = response.extras.as_slice();
        for (name, bytes) in EXTRAS {
            if self.field(name).is_some() {
                let (field, rest) = extras
                    .split_at_checked(bytes)
                    .ok_or(format!("{name}: there are no extras for it"))?;
                check(
                    name,
                    field
                        .iter()
                        .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
                )?;
                extras = rest;
            }
        }
        compare_bytes("extras", self.field("extras"), extras)?;
        compare_bytes("key", self.field("key"), &response.key)?;
        if let Some(pieces) = self.field("number") {
            let bytes = response
                .value
                .as_slice()
                .try_into()
                .map_err(|_| format!("number: got {} bytes", response.value.len()))?;
            return matches(pieces, u64::from_be_bytes(bytes));
        }
        compare_bytes("value", self.field("value"), &response.value)
    }

    fn field(&self, name: &str) -> Option<&[Piece]> {
        self.fields
            .iter()
            .find_map(|(field, pieces)| (field == name).then_some(pieces.as_slice()))
    }

    fn bytes(
        &self,
        field: &str,
        value_of: &dyn Fn(&Number) -> Result<u64, String>,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        for piece in self.field(field).unwrap_or_default() {
            match piece {
                Piece::Literal(literal) => bytes.extend_from_slice(literal),
                Piece::Number(number) => {
                    bytes.extend_from_slice(value_of(number)?.to_string().as_bytes());
                }
                Piece::Word | Piece::Rest => return Err("a request has no wildcards".to_owned()),
            }
        }
        Ok(bytes)
    }
}

/// Compares a number of a response with the expected one; may bind a variable to it. The error says
/// why it differs.
pub type NumberMatches<'a> = dyn FnMut(&[Piece], u64) -> Result<(), String> + 'a;

/// A response, taken apart.
#[derive(Clone, Debug)]
pub struct Response {
    magic: u8,
    opcode: u8,
    datatype: u8,
    status: u16,
    opaque: u32,
    cas: u64,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Response {
    /// Parses the first response of `bytes`, and returns its length; `None` if it is incomplete.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let at = |from: usize, bytes: usize| {
            header[from..from + bytes]
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let size = |from, bytes| usize::try_from(at(from, bytes)).unwrap_or(usize::MAX);
        let end = HEADER_BYTES + size(8, 4);
        let body = bytes.get(HEADER_BYTES..end)?;
        let (extras, body) = body.split_at_checked(size(4, 1)).unwrap_or((body, &[]));
        let (key, value) = body.split_at_checked(size(2, 2)).unwrap_or((body, &[]));
        #[allow(clippy::cast_possible_truncation)] // fields of that many bytes
        let response = Self {
            magic: header[0],
            opcode: header[1],
            datatype: header[5],
            status: at(6, 2) as u16,
            opaque: at(12, 4) as u32,
            cas: at(16, 8),
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
        };
        Some((response, end))
    }

    /// The response as a transcript would write it.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = opcode_name(self.opcode);
        let status = STATUSES
            .iter()
            .find_map(|(name, status)| (*status == self.status).then(|| (*name).to_owned()))
            .unwrap_or_else(|| format!("{:#06x}", self.status));
        let numbers = [("opaque", u64::from(self.opaque)), ("cas", self.cas)];
        let bytes = [
            ("extras", &self.extras),
            ("key", &self.key),
            ("value", &self.value),
        ];
        write!(text, " status={status}").expect("writing to a String cannot fail");
        for (name, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
            write!(text, " {name}={number}").expect("writing to a String cannot fail");
        }
        for (name, bytes) in bytes.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let bytes = escaped(bytes);
            write!(text, " {name}=\"{bytes}\"").expect("writing to a String cannot fail");
        }
        text
    }
}

/// Every opcode that has a name.
fn opcodes() -> impl Iterator<Item = (&'static str, u8)> {
    let runs = OPCODES.into_iter();
    runs.flat_map(|(first, names)| names.split(' ').zip(first..))
}

pub(super) fn opcode_name(opcode: u8) -> String {
    let name = opcodes().find_map(|(name, known)| (known == opcode).then_some(name));
    name.map_or_else(|| format!("{opcode:#04x}"), str::to_owned)
}

/// Reads a number: decimal, `0x` and hexadecimal digits, or a variable.
fn number(
    pieces: &[Piece],
    value_of: &dyn Fn(&Number) -> Result<u64, String>,
) -> Result<u64, String> {
    match pieces {
        [Piece::Number(variable)] => value_of(variable),
        [Piece::Literal(literal)] => literal_number(literal),
        _ => Err("a number is one number or one variable".to_owned()),
    }
}

/// Reads a decimal number, or a hexadecimal one with `0x` before it.
///
/// # Errors
/// Bytes that are not a number.
pub fn literal_number(literal: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(literal);
    text.strip_prefix("0x")
        .map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16))
        .map_err(|_| format!("{text} is not a number"))
}

fn compare_bytes(field: &str, expected: Option<&[Piece]>, got: &[u8]) -> Result<(), String> {
    let expected = match expected {
        None => &[][..],
        Some([Piece::Word | Piece::Rest]) if !got.is_empty() => return Ok(()),
        Some([Piece::Literal(literal)]) => literal,
        Some(_) => return Err(format!("{field}: bytes are literal or {{any}}")),
    };
    if expected == got {
        Ok(())
    } else {
        Err(format!(
            "{field}: got \"{}\", expected \"{}\"",
            escaped(got),
            escaped(expected)
        ))
    }
}

/// Cuts at blanks that do not stand in quotes, and takes the quotes off.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match (c, words.last_mut()) {
            ('"', _) => quoted = !quoted,
            (' ', _) if !quoted => words.push(String::new()),
            (_, Some(word)) => word.push(c),
            (_, None) => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Vec<u8> {
        Packet::parse(text).unwrap().request(&|_| Ok(9)).unwrap()
    }

    #[test]
    fn a_request_is_laid_out_as_the_protocol_says() {
        let set = request("set key=foo flags=1 exptime=2 value=\"a b\" opaque=7 cas={x}");
        let header = [
            0x80, 1, 0, 3, 8, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9,
        ];
        assert_eq!(set[..24], header);
        assert_eq!(&set[24..], b"\0\0\0\x01\0\0\0\x02fooa b");
        assert_eq!(request("noop truncate=5"), [0x80, 0x0a, 0, 0, 0]);
        assert_eq!(
            request("get key=k keylen=9 bodylen=0x100")[..12],
            [0x80, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 0]
        );
    }

    #[test]
    fn a_response_is_compared_field_by_field() {
        let mut bytes = request("get magic=0x81 flags=5 value=hi cas=3");
        let (response, length) = Response::decode(&bytes).unwrap();
        assert_eq!(length, 30);
        assert_eq!(
            response.describe(),
            "get status=ok cas=3 extras=\"\\x00\\x00\\x00\\x05\" value=\"hi\""
        );
        let mut exact = |pieces: &[Piece], got: u64| match pieces {
            [Piece::Literal(text)] if literal_number(text)? == got => Ok(()),
            _ => Err("other".to_owned()),
        };
        let mut compare = |text: &str| Packet::parse(text).unwrap().compare(&response, &mut exact);
        assert!(compare("get flags=5 value=hi cas=3").is_ok());
        for wrong in [
            "get flags=5 value=hi",
            "get flags=4 value=hi cas=3",
            "get value=hi cas=3",
            "get flags=5 value=ho cas=3",
            "get flags=5 value=hi cas=3 key=k",
            "get flags=5 value=hi cas=3 status=not-found",
            "getq flags=5 value=hi cas=3",
        ] {
            assert!(compare(wrong).is_err(), "{wrong}");
        }
        bytes.pop();
        assert!(Response::decode(&bytes).is_none());
    }

    #[test]
    fn an_invalid_packet_is_a_mistake() {
        for text in ["", "nothing", "get keys=k", "get key"] {
            assert!(Packet::parse(text).is_err(), "{text}");
        }
    }
}
