//! Replies of the classic text protocol: from an outcome to its text, and back.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`; yrmcds 1.1 `docs/locking.md`.

use alloc::vec::Vec;

use super::{ClassicEnvelope, dump};
use crate::item::Cas;
use crate::key::KeyForm;
use crate::output::Output;
use crate::reply::{KeysPage, Refusal, Reply};
use crate::stats::StatsTopic;
use crate::wire::Malformed;
use crate::wire::cluster::TEXT_BYTES_MAX;
use crate::wire::meta::{listed_form, put_key};
use crate::wire::scan::{Tokens, reply_line_bytes, u32_from, u64_from, without_line_end};
use crate::wire::status_line::{self, MISMATCH, put_line, put_number};

/// One response on the wire. A get has several: values, and [`End`].
///
/// [`End`]: ClassicResponse::End
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClassicResponse<'a> {
    /// `VALUE` with a length, and the value: an item that a get found.
    Value {
        /// A get of several keys leaves out missing ones, so each value names its key.
        key: &'a [u8],
        /// The client's own number, stored with the value.
        client_flags: u32,
        /// Any bytes: its length is on the line before it.
        value: &'a [u8],
        /// The item's version, for `gets` and `gats`.
        cas: Option<Cas>,
    },
    /// `VALUE` without a length: a key of a listing.
    Key {
        /// The key as it is written on the line.
        word: &'a [u8],
        /// Binary: `word` is in base64, with `b` behind it.
        key_form: KeyForm,
    },
    /// `STAT`: a line of `stats`.
    Stat {
        /// The name of the statistic, one word.
        name: &'a [u8],
        /// The first word behind the name.
        value: &'a [u8],
    },
    /// `CONFIG cluster` with a length, and the servers of the cluster
    /// ([`ClusterConfig`](crate::wire::cluster::ClusterConfig)); [`End`] follows.
    ///
    /// [`End`]: ClassicResponse::End
    Cluster(&'a [u8]),
    /// `END`: no more values, keys or statistics follow.
    End,
    /// `STORED`: the item has this value now, or begins or ends with it.
    Stored,
    /// `NOT_STORED`: there was an item for an add, or none for the others.
    NotStored,
    /// `EXISTS`: the item's version is not the one in the request.
    Exists,
    /// `NOT_FOUND`: there is no item to change, delete, lock or compare with.
    NotFound,
    /// `DELETED`: the item is removed.
    Deleted,
    /// `TOUCHED`: the item has its new exptime.
    Touched,
    /// `OK`: a lock was acquired or released, a flush took effect.
    Ok,
    /// `LOCKED`: a connection holds the item's lock.
    Locked,
    /// `RESET`: the counters are back at 0.
    Reset,
    /// Digits and nothing else: the result of `incr` and `decr`.
    Number(u64),
    /// `VERSION`, and the rest of the line.
    Version(&'a [u8]),
    /// `ERROR`: the command is unknown, or has no such form. With a message, the server refuses this client
    /// altogether.
    Error(&'a [u8]),
    /// `CLIENT_ERROR`: the request is at fault, for the given reason.
    ClientError(&'a [u8]),
    /// `SERVER_ERROR`: the server is at fault, for the given reason.
    ServerError(&'a [u8]),
}

impl<'a> ClassicResponse<'a> {
    /// Appends the response's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Value {
                key,
                client_flags,
                value,
                cas,
            } => {
                put_value_line(key, client_flags, value.len(), cas, out);
                out.extend_from_slice(value);
            }
            Self::Key { word, key_form } => {
                put(out, b"VALUE ", word);
                out.extend_from_slice(dump::mark(key_form).as_bytes());
            }
            Self::Stat { name, value } => {
                put(out, b"STAT ", name);
                put(out, b" ", value);
            }
            Self::Cluster(text) => {
                out.extend_from_slice(b"CONFIG cluster 0 ");
                put_number(out, text.len());
                put(out, b"\r\n", text);
            }
            Self::End => out.extend_from_slice(b"END"),
            Self::Stored => out.extend_from_slice(b"STORED"),
            Self::NotStored => out.extend_from_slice(b"NOT_STORED"),
            Self::Exists => out.extend_from_slice(b"EXISTS"),
            Self::NotFound => out.extend_from_slice(b"NOT_FOUND"),
            Self::Deleted => out.extend_from_slice(b"DELETED"),
            Self::Touched => out.extend_from_slice(b"TOUCHED"),
            Self::Ok => out.extend_from_slice(b"OK"),
            Self::Locked => out.extend_from_slice(b"LOCKED"),
            Self::Reset => out.extend_from_slice(b"RESET"),
            Self::Number(number) => put_number(out, number),
            Self::Version(version) => put(out, b"VERSION ", version),
            Self::Error(b"") => out.extend_from_slice(b"ERROR"),
            Self::Error(reason) => put(out, b"ERROR ", reason),
            Self::ClientError(reason) => put(out, b"CLIENT_ERROR ", reason),
            Self::ServerError(reason) => put(out, b"SERVER_ERROR ", reason),
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Reads one response from the front of `input`, and returns it with its length; `None` if it is not
    /// complete.
    ///
    /// # Errors
    /// [`Malformed`] if no server sends this; the connection is of no use then.
    pub fn decode(input: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(line_bytes) = reply_line_bytes(input)? else {
            return Ok(None);
        };
        let (line, body) = input.split_at_checked(line_bytes).ok_or(Malformed)?;
        let line = without_line_end(line);
        let mut words = Tokens::new(line);
        let verb = words.next().ok_or(Malformed)?;
        let response = match verb {
            b"VALUE" => return Self::decode_value(words, body, line_bytes),
            b"CONFIG" => return Self::decode_cluster(words, body, line_bytes),
            b"STAT" => {
                let name = words.next().ok_or(Malformed)?;
                Self::Stat {
                    name,
                    value: words.next().unwrap_or_default(),
                }
            }
            b"END" => Self::End,
            b"STORED" => Self::Stored,
            b"NOT_STORED" => Self::NotStored,
            b"EXISTS" => Self::Exists,
            b"NOT_FOUND" => Self::NotFound,
            b"DELETED" => Self::Deleted,
            b"TOUCHED" => Self::Touched,
            b"OK" => Self::Ok,
            b"LOCKED" => Self::Locked,
            b"RESET" => Self::Reset,
            b"VERSION" => Self::Version(behind_blank(words.rest())),
            b"ERROR" => Self::Error(behind_blank(words.rest())),
            b"CLIENT_ERROR" => Self::ClientError(behind_blank(words.rest())),
            // memcached's answer to `shutdown` has a colon.
            b"SERVER_ERROR" | b"SERVER_ERROR:" => Self::ServerError(behind_blank(words.rest())),
            number => Self::Number(u64_from(number).ok_or(Malformed)?),
        };
        Ok(Some((response, line_bytes)))
    }

    fn decode_cluster(
        mut words: Tokens<'a>,
        body: &'a [u8],
        line_bytes: usize,
    ) -> Result<Option<(Self, usize)>, Malformed> {
        let (Some(b"cluster"), Some(_), Some(bytes)) = (words.next(), words.next(), words.next())
        else {
            return Err(Malformed);
        };
        let bytes = u32_from(bytes).filter(|bytes| *bytes as usize <= TEXT_BYTES_MAX);
        let read = block(body, bytes.ok_or(Malformed)?)?;
        Ok(read.map(|(text, body_bytes)| (Self::Cluster(text), line_bytes + body_bytes)))
    }

    fn decode_value(
        mut words: Tokens<'a>,
        body: &'a [u8],
        line_bytes: usize,
    ) -> Result<Option<(Self, usize)>, Malformed> {
        let key = words.next().ok_or(Malformed)?;
        let key_of = |key_form| {
            Ok(Some((
                Self::Key {
                    word: key,
                    key_form,
                },
                line_bytes,
            )))
        };
        let Some(client_flags) = words.next() else {
            return key_of(KeyForm::Plain);
        };
        // No number, so this is not the line of an item.
        if client_flags == b"b" {
            return key_of(KeyForm::Binary);
        }
        let client_flags = u32_from(client_flags).ok_or(Malformed)?;
        let value_bytes = words.next().and_then(u32_from).ok_or(Malformed)?;
        let cas = words.next().and_then(u64_from).and_then(Cas::new);
        let Some((value, body_bytes)) = block(body, value_bytes)? else {
            return Ok(None);
        };
        Ok(Some((
            Self::Value {
                key,
                client_flags,
                value,
                cas,
            },
            line_bytes + body_bytes,
        )))
    }
}

/// The first `bytes` bytes of `body`, and their length with the line end behind them; `None` if it is not complete.
fn block(body: &[u8], bytes: u32) -> Result<Option<(&[u8], usize)>, Malformed> {
    let bytes = usize::try_from(bytes).map_err(|_| Malformed)?;
    let body_bytes = bytes.checked_add(2).ok_or(Malformed)?;
    let Some(body) = body.get(..body_bytes) else {
        return Ok(None);
    };
    let value = body.strip_suffix(b"\r\n").ok_or(Malformed)?;
    Ok(Some((value, body_bytes)))
}

fn behind_blank(text: &[u8]) -> &[u8] {
    text.strip_prefix(b" ").unwrap_or(text)
}

fn put(out: &mut Vec<u8>, before: &[u8], text: &[u8]) {
    out.extend_from_slice(before);
    out.extend_from_slice(text);
}

/// Appends the text for `reply` to `out`.
pub fn encode(envelope: ClassicEnvelope, reply: &Reply<'_>, out: &mut Output) {
    match envelope {
        ClassicEnvelope::Get { with_cas, last } => encode_get(with_cas, last, reply, out),
        ClassicEnvelope::Touch { noreply: true }
        | ClassicEnvelope::Change { noreply: true }
        | ClassicEnvelope::Arithmetic { noreply: true } => {}
        ClassicEnvelope::Touch { noreply: false } => encode_touch(reply, out.copied()),
        ClassicEnvelope::Change { noreply: false } => encode_word(reply, out.copied()),
        ClassicEnvelope::Arithmetic { noreply: false } => encode_arithmetic(reply, out.copied()),
        ClassicEnvelope::Keys => encode_keys(reply, out.copied()),
        ClassicEnvelope::Dump(dump) => {
            if let Reply::Keys(page) = reply {
                dump.encode(page, out.copied());
            } else {
                encode_word(reply, out.copied());
            }
        }
        ClassicEnvelope::Stats(topic) => encode_stats(topic, reply, out.copied()),
        ClassicEnvelope::StatsReset => encode_reset(reply, out.copied()),
    }
}

fn encode_get(with_cas: bool, last: bool, reply: &Reply<'_>, out: &mut Output) {
    if let Reply::Hit(hit) = reply {
        let cas = with_cas.then_some(hit.cas);
        // One allocation for all of it: without key and value it is at most 67 bytes, including three numbers.
        out.reserve(hit.key.len() + 72, hit.value);
        put_value_line(
            hit.key,
            hit.client_flags,
            hit.value.len(),
            cas,
            out.copied(),
        );
        out.push_value(hit.value);
        out.extend_from_slice(b"\r\n");
    } else if *reply != Reply::Miss {
        return encode_word(reply, out.copied());
    }
    if last {
        out.extend_from_slice(b"END\r\n");
    }
}

/// Appends the line before a value, line end included.
fn put_value_line(
    key: &[u8],
    client_flags: u32,
    value_bytes: usize,
    cas: Option<Cas>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    put_number(out, client_flags);
    out.push(b' ');
    put_number(out, value_bytes);
    if let Some(cas) = cas {
        out.push(b' ');
        put_number(out, cas.number());
    }
    out.extend_from_slice(b"\r\n");
}

fn encode_touch(reply: &Reply<'_>, out: &mut Vec<u8>) {
    if let Reply::Hit(_) = reply {
        ClassicResponse::Touched.encode(out);
    } else if let Reply::Miss = reply {
        ClassicResponse::NotFound.encode(out);
    } else {
        encode_word(reply, out);
    }
}

fn encode_arithmetic(reply: &Reply<'_>, out: &mut Vec<u8>) {
    if let Reply::Refused(Refusal::OutOfMemory) = reply {
        put_line(out, status_line::OUT_OF_MEMORY);
    } else {
        encode_word(reply, out);
    }
}

fn encode_keys(reply: &Reply<'_>, out: &mut Vec<u8>) {
    let Reply::Keys(KeysPage { items, next }) = reply else {
        return encode_word(reply, out);
    };
    for item in items {
        let key_form = listed_form(item.key);
        out.extend_from_slice(b"VALUE ");
        put_key(item.key, key_form, out);
        put_line(out, dump::mark(key_form));
    }
    if next.is_none() {
        ClassicResponse::End.encode(out);
    }
}

fn encode_stats(topic: StatsTopic, reply: &Reply<'_>, out: &mut Vec<u8>) {
    let Reply::Stats(report) = reply else {
        return encode_word(reply, out);
    };
    match topic {
        StatsTopic::DetailOn | StatsTopic::DetailOff => return ClassicResponse::Ok.encode(out),
        StatsTopic::Detail(_) => report.each(topic, |prefix, counts| {
            put(out, b"PREFIX ", prefix.as_bytes());
            put(out, b" ", counts.as_bytes());
            put_line(out, "");
        }),
        StatsTopic::General
        | StatsTopic::Settings
        | StatsTopic::Items
        | StatsTopic::Slabs
        | StatsTopic::Sizes
        | StatsTopic::Extstore
        | StatsTopic::Cluster
        | StatsTopic::Conns(_)
        | StatsTopic::Sessions(_)
        | StatsTopic::Locks(_) => report.each(topic, |name, value| {
            ClassicResponse::Stat {
                name: name.as_bytes(),
                value: value.as_bytes(),
            }
            .encode(out);
        }),
    }
    if report.next.is_none() {
        ClassicResponse::End.encode(out);
    }
}

fn encode_reset(reply: &Reply<'_>, out: &mut Vec<u8>) {
    if let Reply::Ok = reply {
        ClassicResponse::Reset.encode(out);
    } else {
        encode_word(reply, out);
    }
}

/// The text for an outcome that is the same for all commands.
fn encode_word(reply: &Reply<'_>, out: &mut Vec<u8>) {
    match reply {
        Reply::Stored(_) => ClassicResponse::Stored.encode(out),
        Reply::NotStored => ClassicResponse::NotStored.encode(out),
        Reply::Exists => ClassicResponse::Exists.encode(out),
        Reply::NotFound => ClassicResponse::NotFound.encode(out),
        Reply::Deleted => ClassicResponse::Deleted.encode(out),
        Reply::Number(number) => ClassicResponse::Number(number.value).encode(out),
        Reply::Locked | Reply::Unlocked | Reply::Ok => ClassicResponse::Ok.encode(out),
        Reply::Refused(refusal) => put_line(out, status_line::refusal(*refusal)),
        Reply::KeyOf(partition) => status_line::put_key_of(partition, out),
        Reply::Hit(_)
        | Reply::Miss
        | Reply::Keys(_)
        | Reply::Stats(_)
        | Reply::Granted(_)
        | Reply::Contended(_)
        | Reply::WouldDeadlock(_)
        | Reply::Withheld { .. }
        | Reply::Waits => put_line(out, MISMATCH),
    }
}
