//! Answers of the text protocols, split into the parts that are compared.

use std::fmt;

use latchd_harness::transcript::Dialect;

/// A piece of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Part {
    /// Bytes that are to be the same.
    Same(Vec<u8>),
    /// A version.
    Cas(u64),
    /// A TTL in seconds; -1 is none.
    Ttl(i64),
    /// Seconds since the last access.
    Age(i64),
    /// The bytes of the item, and its slab class: each server's own business.
    Size(Vec<u8>),
}

/// One answer: a line with the data behind it, or a packet.
pub type Message = Vec<Part>;

/// A protocol as far as answers must be understood to tell them apart.
pub trait Wire {
    /// The first answer in `bytes`, and its length; `None` if it is not whole.
    fn parse(&self, bytes: &[u8]) -> Option<(Message, usize)>;

    /// A request with a known answer that carries a number.
    fn marker(&self, number: u64) -> Vec<u8>;

    /// The number, if the answer is one to a marker. A protocol without numbers gives `last`, the
    /// one before plus one.
    fn marked(&self, message: &Message, last: u64) -> Option<u64>;
}

/// Classic and meta text.
#[derive(Clone, Copy, Debug)]
pub struct TextWire {
    /// The dialect of the peer: yrmcds has no meta commands.
    pub dialect: Dialect,
}

impl Wire for TextWire {
    fn parse(&self, bytes: &[u8]) -> Option<(Message, usize)> {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let line = &bytes[..end];
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let mut parts = Vec::new();
        let mut data_bytes = None;
        match words.as_slice() {
            [b"VALUE", key, flags, length, rest @ ..] => {
                data_bytes = number(length);
                parts.push(Part::Same(
                    [b"VALUE ", *key, b" ", flags, b" ", length].concat(),
                ));
                parts.extend(rest.iter().map(|word| {
                    number(word).map_or(Part::Same(word.to_vec()), |cas| {
                        Part::Cas(cas.cast_unsigned())
                    })
                }));
            }
            [b"VA", length, tokens @ ..] => {
                data_bytes = number(length);
                parts.push(Part::Same([b"VA ", *length].concat()));
                parts.extend(tokens.iter().map(|token| meta_token(token)));
            }
            [
                code @ (b"HD" | b"EN" | b"NF" | b"NS" | b"EX" | b"LK"),
                tokens @ ..,
            ] => {
                parts.push(Part::Same(code.to_vec()));
                parts.extend(tokens.iter().map(|token| meta_token(token)));
            }
            [b"ME", key, fields @ ..] => {
                parts.push(Part::Same([b"ME ", *key].concat()));
                parts.extend(fields.iter().map(|field| debug_field(field)));
            }
            _ => parts.push(Part::Same(line.to_vec())),
        }
        let mut length = end + 2;
        if let Some(data_bytes) = data_bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
            let data = bytes.get(length..length + data_bytes + 2)?;
            parts.push(Part::Same(data.to_vec()));
            length += data.len();
        }
        Some((parts, length))
    }

    fn marker(&self, number: u64) -> Vec<u8> {
        match self.dialect {
            // A miss that shows an opaque of our own, in every version.
            Dialect::Latchd | Dialect::Memcached1645 | Dialect::Memcached1618 => {
                format!("md ! O@{number}\r\n").into_bytes()
            }
            Dialect::Yrmcds => b"version\r\n".to_vec(),
        }
    }

    fn marked(&self, message: &Message, last: u64) -> Option<u64> {
        match self.dialect {
            Dialect::Latchd | Dialect::Memcached1645 | Dialect::Memcached1618 => {
                match message.as_slice() {
                    [Part::Same(code), Part::Same(opaque)] if code == b"NF" => {
                        number(opaque.strip_prefix(b"O@")?).map(i64::cast_unsigned)
                    }
                    _ => None,
                }
            }
            Dialect::Yrmcds => match message.as_slice() {
                [Part::Same(line)] if line.starts_with(b"VERSION ") => Some(last),
                _ => None,
            },
        }
    }
}

fn meta_token(token: &[u8]) -> Part {
    let rest = token.get(1..).unwrap_or_default();
    match (token.first(), number(rest)) {
        (Some(b't'), Some(ttl)) => Part::Ttl(ttl),
        (Some(b'l'), Some(age)) => Part::Age(age),
        (Some(b'c'), Some(cas)) => Part::Cas(cas.cast_unsigned()),
        _ => Part::Same(token.to_vec()),
    }
}

fn debug_field(field: &[u8]) -> Part {
    let Some(equals) = field.iter().position(|byte| *byte == b'=') else {
        return Part::Same(field.to_vec());
    };
    let (name, value) = field.split_at(equals + 1);
    match (name, number(value)) {
        (b"exp=", Some(ttl)) => Part::Ttl(ttl),
        (b"la=", Some(age)) => Part::Age(age),
        (b"cas=", Some(cas)) => Part::Cas(cas.cast_unsigned()),
        (b"cls=" | b"size=", _) => Part::Size(field.to_vec()),
        _ => Part::Same(field.to_vec()),
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(digits).ok()?;
    text.parse::<i64>()
        .ok()
        .or_else(|| text.parse::<u64>().ok().map(u64::cast_signed))
}

/// An answer, for a person to read.
#[must_use]
pub fn shown(messages: &[Message]) -> String {
    let lines: Vec<String> = messages
        .iter()
        .map(|message| {
            message
                .iter()
                .map(Part::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    lines.join(" | ")
}

/// The most bytes of a long part that are shown.
const SHOWN_BYTES_MAX: usize = 200;

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(bytes) | Self::Size(bytes) => {
                let cut = bytes.get(..SHOWN_BYTES_MAX).unwrap_or(bytes);
                cut.escape_ascii().fmt(formatter)
            }
            Self::Cas(cas) => write!(formatter, "c{cas}"),
            Self::Ttl(ttl) => write!(formatter, "t{ttl}"),
            Self::Age(age) => write!(formatter, "l{age}"),
        }
    }
}
