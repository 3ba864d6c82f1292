//! The packets for each reply.

use super::*;
use crate::command::ScanCursor;
use crate::item::Cas;
use crate::key::KeyForm;
use crate::reply::{Listed, Number, Stored, TtlTrace, Win};
use crate::stats::{Stats, StatsLine};
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
        value: Value::Borrowed(b"v"),
        cas: cas(),
        client_flags: 7,
        ttl: TtlTrace::default(),
        last_access_s: 0,
        fetched: false,
        stale: false,
        win: Win::None,
        unchanged: false,
        lock: None,
        memory_bytes: 50,
    })
}

fn stored() -> Reply<'static> {
    Reply::Stored(Stored {
        cas: cas(),
        size: 1,
    })
}

/// All packets for `reply`.
fn sent(opcode: Opcode, reply: &Reply<'_>, check: impl FnOnce(&[ResponsePacket<'_>])) {
    let mut out = Output::new();
    encode(
        &BinaryEnvelope {
            opcode,
            opaque: OPAQUE,
            key: b"k",
        },
        reply,
        &mut out,
    );
    let out = Vec::from(out);
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

fn packet(opcode: Opcode) -> ResponsePacket<'static> {
    ResponsePacket::success(&BinaryEnvelope {
        opcode,
        opaque: OPAQUE,
        key: b"",
    })
}

fn error(opcode: Opcode, status: Status, text: &'static str) -> ResponsePacket<'static> {
    ResponsePacket {
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
        let expected = ResponsePacket {
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
    let expected = ResponsePacket {
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
        let expected = ResponsePacket {
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
    let expected = ResponsePacket {
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
            Refusal::OutOfMemory,
            Status::OUT_OF_MEMORY,
            "Out of memory incrementing value",
        ),
        (
            Opcode::IncrementQ,
            Refusal::NonNumeric,
            Status::NON_NUMERIC,
            "Non-numeric server-side value for incr or decr",
        ),
        (
            Opcode::SetQ,
            Refusal::Unrecorded,
            Status::INTERNAL,
            "Cannot record the time on disk",
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
    let listed = |key| Listed::new(key, Cas::FIRST);
    let first = Reply::Keys(KeysPage {
        items: keys.iter().copied().map(listed).collect(),
        next: Some(ScanCursor(3)),
    });
    sent(Opcode::Keys, &first, |packets| {
        let names: Vec<&[u8]> = packets.iter().map(|packet| packet.key).collect();
        assert_eq!(names, keys);
    });
    let last = Reply::Keys(KeysPage {
        items: vec![listed(b"c")],
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
    let mut out = Output::new();
    let envelope = BinaryEnvelope {
        opcode: Opcode::Stat,
        opaque: OPAQUE,
        key: b"",
    };
    encode(&envelope, &Reply::Stats(Report::new(&stats)), &mut out);
    let out = Vec::from(out);
    let (mut rest, mut seen, mut last) = (out.as_slice(), false, None);
    while let Some((packet, consumed)) = decode(rest, usize::MAX).unwrap() {
        seen |= (packet.key, packet.value) == (&b"get_hits"[..], &b"12"[..]);
        assert!(last != Some(true), "a packet behind the empty one");
        last = Some(packet.key.is_empty());
        rest = &rest[consumed..];
    }
    assert_eq!((seen, last), (true, Some(true)));
}

/// The counts by prefix come in one packet, with the same text as for text clients.
#[test]
fn counts_by_prefix_are_one_text_in_one_packet() {
    let stats = Stats::default();
    let line = |name: &'static str, value: &str| StatsLine {
        name: name.into(),
        value: value.into(),
    };
    let lines = [
        line("a", "get 2 hit 1 set 1 del 0"),
        line("b", "get 0 hit 0 set 3 del 0"),
    ];
    let report = Report {
        stats: &stats,
        lines: &lines,
        next: None,
    };
    let envelope = BinaryEnvelope {
        opcode: Opcode::Stat,
        opaque: OPAQUE,
        key: b"detail dump",
    };
    let mut out = Output::new();
    encode(&envelope, &Reply::Stats(report), &mut out);
    let out = Vec::from(out);
    let (detail, consumed) = decode(&out, usize::MAX).unwrap().unwrap();
    let expected = ResponsePacket {
        key: b"detailed",
        value: b"PREFIX a get 2 hit 1 set 1 del 0\r\nPREFIX b get 0 hit 0 set 3 del 0\r\nEND\r\n",
        ..packet(Opcode::Stat)
    };
    assert_eq!(detail, expected);
    let behind = decode(&out[consumed..], usize::MAX).unwrap();
    assert_eq!(behind, Some((packet(Opcode::Stat), HEADER_BYTES)));
    assert_eq!(out.len(), consumed + HEADER_BYTES);
}
