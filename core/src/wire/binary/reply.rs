//! Replies as packets: the server encodes them, a client decodes them.
//!
//! What quiet means: a quiet get leaves out a miss and nothing else, any other quiet request leaves
//! out success and nothing else. So an error is always sent, a refusal because of a lock too.
//! `LaGQ` and `LaGKQ` are gets that change something: they send the hit and the miss alike.
//!
//! Source: memcached 1.6.45 `proto_bin.c`, `write_bin_response`, `complete_update_bin` and
//! `process_bin_get_or_touch`; yrmcds `docs/locking.md` for the lock commands, and yrmcds 1.1 for
//! the form of Keys.

use alloc::vec::Vec;

use super::header::Status;
use super::lower::stats_topic;
use super::opcode::Verb;
pub use super::packet::{Malformed, Packet, decode};
use super::{Answer, Envelope};
use crate::reply::{Hit, KeysPage, Refusal, Reply};
use crate::stats::Report;

/// Appends what `reply` is to the request of `envelope`: nothing, a packet or several.
pub fn encode(envelope: &Envelope<'_>, reply: &Reply<'_>, out: &mut Vec<u8>) {
    let success = Packet::success(envelope);
    let quiet = envelope.opcode.is_quiet();
    let loud = |packet: Packet<'_>, out: &mut Vec<u8>| {
        if !quiet {
            packet.encode(out);
        }
    };
    match reply {
        Reply::Hit(hit) => encode_hit(envelope, hit, out),
        Reply::Miss => encode_miss(envelope, out),
        Reply::Stored(stored) => loud(
            Packet {
                cas: Some(stored.cas),
                ..success
            },
            out,
        ),
        Reply::Number(number) => {
            let value = &number.value.to_be_bytes();
            loud(
                Packet {
                    cas: Some(number.cas),
                    value,
                    ..success
                },
                out,
            );
        }
        Reply::Deleted | Reply::Locked | Reply::Unlocked | Reply::Ok => loud(success, out),
        Reply::NotStored => error(envelope, not_stored(envelope.opcode.verb()), out),
        Reply::Exists => error(envelope, Status::EXISTS, out),
        Reply::NotFound => error(envelope, Status::NOT_FOUND, out),
        Reply::Keys(page) => encode_keys(envelope, page, out),
        Reply::Stats(report) => encode_stats(envelope, report, out),
        Reply::Refused(refusal) => encode_refusal(envelope, *refusal, out),
    }
}

fn error(envelope: &Envelope<'_>, status: Status, out: &mut Vec<u8>) {
    Answer::error(envelope.opcode.byte(), envelope.opaque, status).encode(out);
}

/// A set whose condition did not hold says which by its verb.
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

fn encode_hit(envelope: &Envelope<'_>, hit: &Hit<'_>, out: &mut Vec<u8>) {
    let opcode = envelope.opcode;
    let extras = &hit.client_flags.to_be_bytes();
    let packet = Packet {
        cas: Some(hit.cas),
        extras,
        ..Packet::success(envelope)
    };
    let key = if opcode.echoes_key() { hit.key } else { b"" };
    let value = if opcode.verb() == Verb::Touch {
        b""
    } else {
        hit.value
    };
    Packet {
        key,
        value,
        ..packet
    }
    .encode(out);
}

fn encode_miss(envelope: &Envelope<'_>, out: &mut Vec<u8>) {
    let opcode = envelope.opcode;
    if opcode.verb() == Verb::LockAndGet {
        // As yrmcds: quiet or not, and without the key.
        error(envelope, Status::NOT_FOUND, out);
    } else if opcode.is_quiet() {
        // What quiet is for.
    } else if opcode.echoes_key() {
        let status = Status::NOT_FOUND;
        Packet {
            status,
            key: envelope.key,
            ..Packet::success(envelope)
        }
        .encode(out);
    } else {
        error(envelope, Status::NOT_FOUND, out);
    }
}

/// One packet a key, and an empty one behind the last page.
fn encode_keys(envelope: &Envelope<'_>, page: &KeysPage<'_>, out: &mut Vec<u8>) {
    let success = Packet::success(envelope);
    for key in &page.keys {
        Packet { key, ..success }.encode(out);
    }
    if page.next.is_none() {
        success.encode(out);
    }
}

/// One packet a line, and an empty one behind the last.
///
/// Source: memcached 1.6.45 `memcached.c`, `append_bin_stats`.
fn encode_stats(envelope: &Envelope<'_>, report: &Report<'_>, out: &mut Vec<u8>) {
    let success = Packet::success(envelope);
    let topic = stats_topic(envelope.key).unwrap_or_default();
    report.each(topic, |name, value| {
        Packet {
            key: name.as_bytes(),
            value: value.as_bytes(),
            ..success
        }
        .encode(out);
    });
    success.encode(out);
}

fn encode_refusal(envelope: &Envelope<'_>, refusal: Refusal, out: &mut Vec<u8>) {
    let verb = envelope.opcode.verb();
    let (status, body) = match refusal {
        Refusal::Locked => (Status::LOCKED, Status::LOCKED.text()),
        Refusal::NotLocked => (Status::NOT_LOCKED, Status::NOT_LOCKED.text()),
        Refusal::NotLockedNotFound => (Status::NOT_FOUND, Status::NOT_FOUND.text()),
        Refusal::TooManyLocks => (Status::OUT_OF_MEMORY, "Too many locks"),
        Refusal::ConnectionClosed => (Status::INTERNAL, "Connection closed"),
        Refusal::TooLarge => (Status::TOO_LARGE, Status::TOO_LARGE.text()),
        Refusal::OutOfMemory if matches!(verb, Verb::Increment | Verb::Decrement) => {
            (Status::OUT_OF_MEMORY, "Out of memory incrementing value")
        }
        Refusal::OutOfMemory => (Status::OUT_OF_MEMORY, "Out of memory allocating item"),
        Refusal::NonNumeric => (Status::NON_NUMERIC, Status::NON_NUMERIC.text()),
    };
    let opcode = envelope.opcode.byte();
    Answer {
        opcode,
        opaque: envelope.opaque,
        status,
        body,
    }
    .encode(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::ScanCursor;
    use crate::item::Cas;
    use crate::key::KeyForm;
    use crate::reply::{Number, Stored, TtlTrace, Win};
    use crate::stats::Stats;
    use crate::wire::binary::Opcode;
    use alloc::vec;

    const OPAQUE: u32 = 0xdead_beef;

    fn cas() -> Cas {
        Cas::new(9).unwrap()
    }

    fn hit() -> Reply<'static> {
        Reply::Hit(Hit {
            key: b"k",
            key_form: KeyForm::Plain,
            value: b"v",
            cas: cas(),
            client_flags: 7,
            ttl: TtlTrace::default(),
            last_access_s: 0,
            fetched: false,
            stale: false,
            win: Win::None,
            unchanged: false,
            locked_by: None,
            memory_bytes: 50,
        })
    }

    fn stored() -> Reply<'static> {
        Reply::Stored(Stored {
            cas: cas(),
            size: 1,
        })
    }

    /// Every packet that is sent for `reply`.
    fn sent(opcode: Opcode, reply: &Reply<'_>, check: impl FnOnce(&[Packet<'_>])) {
        let mut out = Vec::new();
        encode(
            &Envelope {
                opcode,
                opaque: OPAQUE,
                key: b"k",
            },
            reply,
            &mut out,
        );
        let mut packets = Vec::new();
        let mut rest = out.as_slice();
        while let Some((packet, consumed)) = decode(rest, usize::MAX).unwrap() {
            assert_eq!((packet.opcode, packet.opaque), (opcode.byte(), OPAQUE));
            packets.push(packet);
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty(), "bytes behind the last packet");
        check(&packets);
    }

    fn packet(opcode: Opcode) -> Packet<'static> {
        Packet::success(&Envelope {
            opcode,
            opaque: OPAQUE,
            key: b"",
        })
    }

    fn error(opcode: Opcode, status: Status, text: &'static str) -> Packet<'static> {
        Packet {
            status,
            value: text.as_bytes(),
            ..packet(opcode)
        }
    }

    #[test]
    fn a_hit_is_sent_loud_or_quiet() {
        for opcode in [
            Opcode::Get,
            Opcode::GetQ,
            Opcode::Gat,
            Opcode::LaG,
            Opcode::LaGQ,
        ] {
            let expected = Packet {
                cas: Some(cas()),
                extras: b"\0\0\0\x07",
                value: b"v",
                ..packet(opcode)
            };
            sent(opcode, &hit(), |packets| assert_eq!(packets, [expected]));
        }
        for opcode in [
            Opcode::GetK,
            Opcode::GetKQ,
            Opcode::GatKQ,
            Opcode::LaGK,
            Opcode::LaGKQ,
        ] {
            sent(opcode, &hit(), |packets| {
                assert_eq!(
                    (packets[0].key, packets[0].client_flags()),
                    (&b"k"[..], Some(7))
                );
            });
        }
    }

    #[test]
    fn touch_tells_flags_and_version_and_no_value() {
        let expected = Packet {
            cas: Some(cas()),
            extras: b"\0\0\0\x07",
            ..packet(Opcode::Touch)
        };
        sent(Opcode::Touch, &hit(), |packets| {
            assert_eq!(packets, [expected]);
        });
    }

    #[test]
    fn a_miss_is_hidden_by_quiet_gets_only() {
        for opcode in [Opcode::GetQ, Opcode::GetKQ, Opcode::GatQ, Opcode::GatKQ] {
            sent(opcode, &Reply::Miss, |packets| assert_eq!(packets, []));
        }
        for opcode in [
            Opcode::Get,
            Opcode::Touch,
            Opcode::Gat,
            Opcode::LaG,
            Opcode::LaGQ,
            Opcode::LaGKQ,
        ] {
            let expected = error(opcode, Status::NOT_FOUND, "Not found");
            sent(opcode, &Reply::Miss, |packets| {
                assert_eq!(packets, [expected]);
            });
        }
        for opcode in [Opcode::GetK, Opcode::GatK] {
            let expected = Packet {
                status: Status::NOT_FOUND,
                key: b"k",
                ..packet(opcode)
            };
            sent(opcode, &Reply::Miss, |packets| {
                assert_eq!(packets, [expected]);
            });
        }
    }

    #[test]
    fn success_is_hidden_by_quiet_mutations() {
        let number = Reply::Number(Number {
            value: 5,
            cas: cas(),
            ttl: TtlTrace::default(),
        });
        for (loud, quiet, reply) in [
            (Opcode::Set, Opcode::SetQ, stored()),
            (Opcode::RaU, Opcode::RaUQ, stored()),
            (Opcode::Delete, Opcode::DeleteQ, Reply::Deleted),
            (Opcode::Increment, Opcode::IncrementQ, number),
            (Opcode::Flush, Opcode::FlushQ, Reply::Ok),
            (Opcode::Lock, Opcode::LockQ, Reply::Locked),
            (Opcode::UnlockAll, Opcode::UnlockAllQ, Reply::Unlocked),
        ] {
            sent(loud, &reply, |packets| {
                assert_eq!((packets.len(), packets[0].status), (1, Status::SUCCESS));
            });
            sent(quiet, &reply, |packets| assert_eq!(packets, []));
        }
    }

    #[test]
    fn a_mutation_tells_the_new_version() {
        let expected = Packet {
            cas: Some(cas()),
            ..packet(Opcode::Append)
        };
        sent(Opcode::Append, &stored(), |packets| {
            assert_eq!(packets, [expected]);
        });
        let number = Reply::Number(Number {
            value: 258,
            cas: cas(),
            ttl: TtlTrace::default(),
        });
        sent(Opcode::Decrement, &number, |packets| {
            assert_eq!(
                (packets[0].number(), packets[0].cas),
                (Some(258), Some(cas()))
            );
        });
    }

    #[test]
    fn errors_are_sent_loud_or_quiet() {
        for (opcode, reply, status, text) in [
            (
                Opcode::AddQ,
                Reply::NotStored,
                Status::EXISTS,
                "Data exists for key.",
            ),
            (
                Opcode::ReplaceQ,
                Reply::NotStored,
                Status::NOT_FOUND,
                "Not found",
            ),
            (
                Opcode::AppendQ,
                Reply::NotStored,
                Status::NOT_STORED,
                "Not stored.",
            ),
            (
                Opcode::SetQ,
                Reply::Exists,
                Status::EXISTS,
                "Data exists for key.",
            ),
            (
                Opcode::DeleteQ,
                Reply::NotFound,
                Status::NOT_FOUND,
                "Not found",
            ),
            (
                Opcode::LockQ,
                Reply::NotFound,
                Status::NOT_FOUND,
                "Not found",
            ),
        ] {
            let expected = error(opcode, status, text);
            sent(opcode, &reply, |packets| assert_eq!(packets, [expected]));
        }
        for (opcode, refusal, status, text) in [
            (Opcode::SetQ, Refusal::Locked, Status::LOCKED, "Locked"),
            (Opcode::LaGQ, Refusal::Locked, Status::LOCKED, "Locked"),
            (
                Opcode::UnlockQ,
                Refusal::NotLocked,
                Status::NOT_LOCKED,
                "Not locked",
            ),
            (
                Opcode::UnlockQ,
                Refusal::NotLockedNotFound,
                Status::NOT_FOUND,
                "Not found",
            ),
            (
                Opcode::LockQ,
                Refusal::TooManyLocks,
                Status::OUT_OF_MEMORY,
                "Too many locks",
            ),
            (
                Opcode::LockQ,
                Refusal::ConnectionClosed,
                Status::INTERNAL,
                "Connection closed",
            ),
            (
                Opcode::SetQ,
                Refusal::TooLarge,
                Status::TOO_LARGE,
                "Too large.",
            ),
            (
                Opcode::SetQ,
                Refusal::OutOfMemory,
                Status::OUT_OF_MEMORY,
                "Out of memory allocating item",
            ),
            (
                Opcode::IncrementQ,
                Refusal::NonNumeric,
                Status::NON_NUMERIC,
                "Non-numeric server-side value for incr or decr",
            ),
        ] {
            let expected = error(opcode, status, text);
            sent(opcode, &Reply::Refused(refusal), |packets| {
                assert_eq!(packets, [expected]);
            });
        }
    }

    #[test]
    fn keys_end_with_an_empty_packet_behind_the_last_page() {
        let keys: Vec<&[u8]> = vec![b"a", b"b"];
        let first = Reply::Keys(KeysPage {
            keys: keys.clone(),
            next: Some(ScanCursor(3)),
        });
        sent(Opcode::Keys, &first, |packets| {
            let names: Vec<&[u8]> = packets.iter().map(|packet| packet.key).collect();
            assert_eq!(names, keys);
        });
        let last = Reply::Keys(KeysPage {
            keys: vec![b"c"],
            next: None,
        });
        sent(Opcode::Keys, &last, |packets| {
            assert_eq!(packets.len(), 2);
            assert_eq!(packets[0].key, b"c");
            assert_eq!(packets[1], packet(Opcode::Keys));
        });
    }

    #[test]
    fn stats_end_with_an_empty_packet() {
        let mut stats = Stats::default();
        stats.counters.get_hits = 12;
        let mut out = Vec::new();
        let envelope = Envelope {
            opcode: Opcode::Stat,
            opaque: OPAQUE,
            key: b"",
        };
        encode(&envelope, &Reply::Stats(Report::new(&stats)), &mut out);
        let (mut rest, mut seen, mut last) = (out.as_slice(), false, None);
        while let Some((packet, consumed)) = decode(rest, usize::MAX).unwrap() {
            seen |= (packet.key, packet.value) == (&b"get_hits"[..], &b"12"[..]);
            assert!(last != Some(true), "a packet behind the empty one");
            last = Some(packet.key.is_empty());
            rest = &rest[consumed..];
        }
        assert_eq!((seen, last), (true, Some(true)));
    }
}
