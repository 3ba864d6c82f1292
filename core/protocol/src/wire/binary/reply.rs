//! Replies as packets: the server encodes them, a client decodes them.
//!
//! A quiet get leaves out a miss and nothing else. Any other quiet request leaves out success and nothing else.
//! So an error is always sent, and so is a refusal because of a lock. `LaGQ` and `LaGKQ` are gets that change
//! something: they send the hit and the miss alike.
//!
//! Source: memcached 1.6.45 `proto_bin.c`, `write_bin_response`, `complete_update_bin` and
//! `process_bin_get_or_touch`; yrmcds `docs/locking.md` for the lock commands, and yrmcds 1.1 for
//! the form of Keys.

use alloc::format;
use alloc::vec::Vec;

use super::header::{HEADER_BYTES, Status};
use super::opcode::Verb;
pub use super::packet::{MalformedPacket, ResponsePacket, decode};
use super::topic::stats_topic;
use super::{BinaryEnvelope, StatusPacket};
use crate::output::Output;
use crate::reply::{Hit, KeysPage, Refusal, Reply};
use crate::stats::{Report, StatsTopic};
use crate::value::Value;
use crate::wire::status_line::put_line;

/// Appends the packets for `reply` to the request of `envelope`: none, one or several.
pub fn encode(envelope: &BinaryEnvelope<'_>, reply: &Reply<'_>, out: &mut Output) {
    if let Reply::Hit(hit) = reply {
        return encode_hit(envelope, hit, out);
    }
    let out = out.copied();
    let success = ResponsePacket::success(envelope);
    let quiet = envelope.opcode.is_quiet();
    let loud = |packet: ResponsePacket<'_>, out: &mut Vec<u8>| {
        if !quiet {
            packet.encode(out);
        }
    };
    match reply {
        Reply::Hit(_) => {}
        Reply::Miss => encode_miss(envelope, out),
        Reply::Stored(stored) => loud(
            ResponsePacket {
                cas: Some(stored.cas),
                ..success
            },
            out,
        ),
        Reply::Number(number) => {
            let value = &number.value.to_be_bytes();
            loud(
                ResponsePacket {
                    cas: Some(number.cas),
                    value,
                    ..success
                },
                out,
            );
        }
        Reply::Deleted | Reply::Locked | Reply::Unlocked | Reply::Ok => loud(success, out),
        // No packet has a command with these replies.
        Reply::Granted(_)
        | Reply::Contended(_)
        | Reply::WouldDeadlock(_)
        | Reply::Withheld { .. }
        | Reply::Waits => {
            error(envelope, Status::INTERNAL, out);
        }
        Reply::NotStored => error(envelope, not_stored(envelope.opcode.verb()), out),
        Reply::Exists => error(envelope, Status::EXISTS, out),
        Reply::NotFound => error(envelope, Status::NOT_FOUND, out),
        Reply::Keys(page) => encode_keys(envelope, page, out),
        Reply::Stats(report) => encode_stats(envelope, report, out),
        Reply::Refused(refused) => refusal(envelope, Some(*refused)).encode(out),
        Reply::KeyOf(partition) => encode_key_of(envelope, partition, out),
    }
}

#[cold]
fn encode_key_of(envelope: &BinaryEnvelope<'_>, partition: &str, out: &mut Vec<u8>) {
    let text = format!("key of {partition}");
    ResponsePacket {
        status: Status::KEY_OF_ANOTHER,
        value: text.as_bytes(),
        ..ResponsePacket::success(envelope)
    }
    .encode(out);
}

fn error(envelope: &BinaryEnvelope<'_>, status: Status, out: &mut Vec<u8>) {
    StatusPacket::error(envelope.opcode.byte(), envelope.opaque, status).encode(out);
}

/// The status of a set with a condition that did not hold: it depends on the verb.
///
/// Source: memcached 1.6.45 `proto_bin.c`, `complete_update_bin`.
const fn not_stored(verb: Verb) -> Status {
    match verb {
        Verb::Add => Status::EXISTS,
        Verb::Replace | Verb::ReplaceAndUnlock => Status::NOT_FOUND,
        Verb::Get
        | Verb::Set
        | Verb::Delete
        | Verb::Increment
        | Verb::Decrement
        | Verb::Quit
        | Verb::Flush
        | Verb::Noop
        | Verb::Version
        | Verb::Append
        | Verb::Prepend
        | Verb::Stat
        | Verb::Verbosity
        | Verb::Touch
        | Verb::Gat
        | Verb::SaslListMechanisms
        | Verb::SaslAuth
        | Verb::SaslStep
        | Verb::Lock
        | Verb::Unlock
        | Verb::UnlockAll
        | Verb::LockAndGet
        | Verb::Keys => Status::NOT_STORED,
    }
}

fn encode_hit(envelope: &BinaryEnvelope<'_>, hit: &Hit<'_>, out: &mut Output) {
    let opcode = envelope.opcode;
    let extras = &hit.client_flags.to_be_bytes();
    let packet = ResponsePacket {
        cas: Some(hit.cas),
        extras,
        ..ResponsePacket::success(envelope)
    };
    let key = if opcode.echoes_key() { hit.key } else { b"" };
    // Touch shows that the item is there, and its version.
    let value = if opcode.verb() == Verb::Touch {
        Value::default()
    } else {
        hit.value
    };
    let packet = ResponsePacket {
        key,
        value: value.as_bytes(),
        ..packet
    };
    out.reserve(HEADER_BYTES + extras.len() + key.len(), value);
    if packet.encode_head(out.copied()) {
        out.push_value(value);
    }
}

fn encode_miss(envelope: &BinaryEnvelope<'_>, out: &mut Vec<u8>) {
    let opcode = envelope.opcode;
    if opcode.verb() == Verb::LockAndGet {
        // As yrmcds: quiet or not, and without the key.
        error(envelope, Status::NOT_FOUND, out);
    } else if opcode.is_quiet() {
        // The purpose of quiet.
    } else if opcode.echoes_key() {
        let status = Status::NOT_FOUND;
        ResponsePacket {
            status,
            key: envelope.key,
            ..ResponsePacket::success(envelope)
        }
        .encode(out);
    } else {
        error(envelope, Status::NOT_FOUND, out);
    }
}

/// One packet per key, and an empty one behind the last page.
fn encode_keys(envelope: &BinaryEnvelope<'_>, page: &KeysPage<'_>, out: &mut Vec<u8>) {
    let success = ResponsePacket::success(envelope);
    for item in &page.items {
        ResponsePacket {
            key: item.key,
            ..success
        }
        .encode(out);
    }
    if page.next.is_none() {
        success.encode(out);
    }
}

/// One packet per line, and an empty one behind the last.
///
/// Source: memcached 1.6.45 `memcached.c`, `append_bin_stats`.
fn encode_stats(envelope: &BinaryEnvelope<'_>, report: &Report<'_>, out: &mut Vec<u8>) {
    let success = ResponsePacket::success(envelope);
    let topic = stats_topic(envelope.key).unwrap_or_default();
    if let StatsTopic::Detail(_) = topic {
        // One packet per page, with the same text as for text clients.
        let mut text = Vec::new();
        report.each(topic, |prefix, counts| {
            text.extend_from_slice(b"PREFIX ");
            text.extend_from_slice(prefix.as_bytes());
            text.push(b' ');
            put_line(&mut text, counts);
        });
        if report.next.is_none() {
            put_line(&mut text, "END");
        }
        ResponsePacket {
            key: b"detailed",
            value: &text,
            ..success
        }
        .encode(out);
        if report.next.is_none() {
            success.encode(out);
        }
        return;
    }
    report.each(topic, |name, value| {
        ResponsePacket {
            key: name.as_bytes(),
            value: value.as_bytes(),
            ..success
        }
        .encode(out);
    });
    if report.next.is_none() {
        success.encode(out);
    }
}

/// The packet for a refusal; for `None`, a reply that does not fit the request.
pub(crate) fn refusal(envelope: &BinaryEnvelope<'_>, refusal: Option<Refusal>) -> StatusPacket {
    let verb = envelope.opcode.verb();
    let of = |status: Status| (status, status.text());
    let (status, body) = match refusal {
        None => of(Status::INTERNAL),
        Some(Refusal::Locked) => of(Status::LOCKED),
        Some(Refusal::NotLocked) => of(Status::NOT_LOCKED),
        Some(Refusal::NotLockedNotFound) => of(Status::NOT_FOUND),
        Some(Refusal::TooManyLocks) => (Status::OUT_OF_MEMORY, "Too many locks"),
        Some(Refusal::ConnectionClosed) => (Status::INTERNAL, "Connection closed"),
        Some(Refusal::TooLarge) => of(Status::TOO_LARGE),
        Some(Refusal::OutOfMemory) if matches!(verb, Verb::Increment | Verb::Decrement) => {
            (Status::OUT_OF_MEMORY, "Out of memory incrementing value")
        }
        Some(Refusal::OutOfMemory) => (Status::OUT_OF_MEMORY, "Out of memory allocating item"),
        Some(Refusal::NonNumeric) => of(Status::NON_NUMERIC),
        Some(Refusal::Unrecorded) => (Status::INTERNAL, "Cannot record the time on disk"),
    };
    StatusPacket {
        opcode: envelope.opcode.byte(),
        opaque: envelope.opaque,
        status,
        body,
    }
}

#[cfg(test)]
mod tests;
