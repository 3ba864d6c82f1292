//! The packets for each reply.

use super::*;
use crate::stats::Stats;
use crate::wire::binary::Opcode;

const OPAQUE: u32 = 0xdead_beef;

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
fn numbers_of_a_response_have_their_length() {
    let hit = ResponsePacket {
        extras: b"\0\0\0\x07",
        ..packet(Opcode::Get)
    };
    assert_eq!((hit.client_flags(), hit.number()), (Some(7), None));
    let value = &258_u64.to_be_bytes();
    let counted = ResponsePacket {
        value,
        ..packet(Opcode::Decrement)
    };
    assert_eq!(
        (counted.client_flags(), counted.number()),
        (None, Some(258))
    );
}

#[test]
fn stats_end_with_an_empty_packet() {
    let mut stats = Stats::default();
    stats.counters.get_hits = 12;
    let report = Reply::Stats(Report::new(&stats));
    sent(Opcode::Stat, &report, |packets| {
        let (last, others) = packets.split_last().expect("there are packets");
        assert_eq!(*last, packet(Opcode::Stat));
        assert!(others.iter().all(|packet| !packet.key.is_empty()));
        let is_it = |packet: &&ResponsePacket<'_>| packet.key == b"get_hits";
        let line = others.iter().find(is_it).expect("it is counted");
        assert_eq!(line.value, b"12");
    });
}
