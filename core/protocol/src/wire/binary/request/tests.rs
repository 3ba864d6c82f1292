//! The decoding of packets, and that each encoded request reads back.

use super::*;
use crate::command::ItemCommand;
use crate::wire::binary::testing::{AnyRequest, bytes_of};
use quickcheck::quickcheck;

const LIMIT: usize = 100;

/// The first step of `input`.
fn step(input: &[u8], value_bytes_max: usize) -> Step<'_> {
    let limits = WireLimits::new(value_bytes_max);
    decode(input, &limits, &mut Cursor::Start, &mut None)
}

/// The one request that is the last and has no reply.
const QUIT_Q: u8 = Opcode::QuitQ.byte();

const SILENT: Step<'static> = Operation::Close {
    response: LocalResponse::Nothing,
}
.consuming(0);

#[test]
fn a_wrong_first_byte_closes_without_a_word() {
    for first in (0..=u8::MAX).filter(|byte| *byte != 0x80) {
        assert_eq!(step(&[first], LIMIT), SILENT);
    }
}

#[test]
fn oversized_set_skips_its_value() {
    let value = [b'v'; LIMIT + 1];
    let extras = Extras::Store {
        client_flags: 0,
        exptime: 0,
    };
    let request = RequestPacket {
        extras,
        key: b"k",
        value: &value,
        ..RequestPacket::new(Opcode::SetQ)
    };
    let packet = bytes_of(&request);
    let before_value = HEADER_BYTES + 8 + 1;
    for cut in HEADER_BYTES..before_value {
        assert_eq!(
            step(&packet[..cut], LIMIT),
            Operation::Incomplete {
                at_least: before_value
            }
            .consuming(0)
        );
    }
    let expected = Operation::Execute {
        command: Command::Item(ItemCommand::SetTooLarge {
            key: Key::new(b"k").unwrap(),
        }),
        envelope: Envelope::Binary(request.envelope()),
    }
    .consuming(packet.len());
    assert_eq!(step(&packet[..before_value], LIMIT), expected);
    assert_eq!(step(&packet, LIMIT), expected);
}

quickcheck! {
    /// `decode(encode(x)) == x`, with any bytes behind it.
    fn a_request_comes_back(any: AnyRequest, behind: Vec<u8>) -> bool {
        let request = any.request();
        let mut input = bytes_of(&request);
        let packet_bytes = input.len();
        let header = RequestHeader::decode(&input).unwrap().unwrap();
        assert_eq!(RequestPacket::from_packet(request.opcode, &header, &input), Some(request));
        input.extend_from_slice(&behind);
        Some(step(&input, usize::MAX)) == lower(&request, packet_bytes, &mut Cursor::Start)
    }

    /// A packet that is cut short shows how many bytes are missing, and nothing else.
    fn a_request_cut_short_is_incomplete(any: AnyRequest) -> bool {
        let packet = bytes_of(&any.request());
        (0..packet.len()).all(|cut| {
            let at_least = if cut < HEADER_BYTES { HEADER_BYTES } else { packet.len() };
            step(&packet[..cut], usize::MAX) == Operation::Incomplete { at_least }.consuming(0)
        })
    }

    /// Any packet: no panic, progress, and never more than a header and the limit collected.
    fn arbitrary_bytes_are_bounded(opcode: u8, lengths: (u16, u8, u32), behind: Vec<u8>) -> bool {
        let (key_bytes, extras_bytes, body_bytes) = lengths;
        let header = RequestHeader {
            opcode,
            key_bytes: key_bytes % 300,
            extras_bytes: extras_bytes % 24,
            body_bytes: if body_bytes % 4 == 0 { body_bytes } else { body_bytes % 400 },
            opaque: 7,
            cas: 0,
        };
        let mut input = Vec::new();
        header.encode(&mut input);
        input.extend_from_slice(&behind);
        let body_bytes = RequestHeader::decode(&input).unwrap().unwrap().body_bytes;
        let Step { consumed, operation } = step(&input, LIMIT);
        match operation {
            Operation::Incomplete { at_least } => {
                input.len() < at_least && at_least <= HEADER_BYTES + 20 + KEY_BYTES_MAX + LIMIT
            }
            // A listing stays in the input, so all of it is there.
            Operation::Execute { .. } if consumed == 0 => {
                HEADER_BYTES + body_bytes as usize <= input.len()
            }
            Operation::Execute { .. } | Operation::Send { .. } => {
                consumed == HEADER_BYTES + body_bytes as usize
            }
            Operation::Skip
            | Operation::ExecuteAs { .. }
            | Operation::Session { .. }
            | Operation::Authenticate { .. }
            | Operation::Watch { .. }
            | Operation::Hold
            | Operation::Cluster
            | Operation::ReadCertificates { .. }
            | Operation::LimitMemory { .. }
            | Operation::ShutDown => false,
            Operation::Close { response } => {
                response != LocalResponse::Nothing || opcode == QUIT_Q
            }
        }
    }

    /// Only a wrong first byte gets no reply.
    fn arbitrary_bytes_are_answered(input: Vec<u8>) -> bool {
        let mut behind_magic = alloc::vec![0x80];
        behind_magic.extend_from_slice(&input);
        let first_is_magic = input.first().is_none_or(|first| *first == 0x80);
        let quits = behind_magic.get(1) == Some(&QUIT_Q);
        (step(&input, LIMIT) == SILENT) != first_is_magic
            && (step(&behind_magic, LIMIT) != SILENT || quits)
    }
}

/// Nothing is written of a request that no server accepts.
#[test]
fn a_request_with_too_long_a_key_is_not_written() {
    let key = [b'k'; 251];
    let mut out = Vec::new();
    let request = |key| RequestPacket {
        opcode: Opcode::Get,
        extras: Extras::None,
        key,
        value: b"",
        opaque: 0,
        cas: None,
    };
    assert_eq!(request(&key).encode(&mut out), Err(TooLong));
    assert!(out.is_empty());
    assert_eq!(request(&key[1..]).encode(&mut out), Ok(()));
    assert_eq!(out.len(), HEADER_BYTES + 250);
}

#[test]
fn longest_body_is_written() {
    assert_eq!(BODY_BYTES_MAX, 1 << 30);
    assert_eq!(lengths(8, 2, (1 << 30) - 10), Ok((2, 1 << 30)));
    assert_eq!(lengths(8, 2, (1 << 30) - 9), Err(TooLong));
    assert_eq!(lengths(0, 1, 1 << 32), Err(TooLong));
}
