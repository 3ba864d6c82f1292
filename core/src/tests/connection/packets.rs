//! Packets of the binary protocol that transcripts do not play: pages of two items, and a body of a gigabyte.

use latchd_protocol::wire::binary::reply::{self, ResponsePacket};
use latchd_protocol::wire::binary::{Extras, HEADER_BYTES, Opcode, RequestPacket};

use super::*;

fn of(opcode: Opcode, key: &[u8]) -> RequestPacket<'_> {
    RequestPacket {
        key,
        ..RequestPacket::new(opcode)
    }
}

fn set(key: &[u8]) -> Vec<u8> {
    bytes_of(&RequestPacket {
        extras: Extras::Store {
            client_flags: 0,
            exptime: 0,
        },
        value: b"v",
        ..of(Opcode::Set, key)
    })
}

fn bytes_of(request: &RequestPacket<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes).expect("short enough");
    bytes
}

fn packets(mut bytes: &[u8]) -> Vec<ResponsePacket<'_>> {
    let mut packets = Vec::new();
    while let Some((packet, consumed)) = reply::decode(bytes, usize::MAX).unwrap() {
        packets.push(packet);
        bytes = &bytes[consumed..];
    }
    assert!(bytes.is_empty(), "half a packet was sent");
    packets
}

fn statuses(bytes: &[u8]) -> Vec<(u8, u16)> {
    let packets = packets(bytes);
    let status = |packet: &ResponsePacket<'_>| (packet.opcode, packet.status.number());
    packets.iter().map(status).collect()
}

#[test]
fn a_listing_goes_over_its_pages_and_ends_once() {
    let mut bench = Bench::new(1, false);
    let keys: Vec<Vec<u8>> = (0..20).map(|number| vec![b'k', b'a' + number]).collect();
    for key in keys.iter().map(Vec::as_slice).chain([&b"other"[..]]) {
        bench.send(0, &set(key));
    }
    let keys_of = |opaque, key| {
        bytes_of(&RequestPacket {
            opaque,
            ..of(Opcode::Keys, key)
        })
    };
    let noop = bytes_of(&of(Opcode::Noop, b""));
    let requests = [keys_of(1, &b"k"[..]), keys_of(2, b"none"), noop].concat();
    let sent = bench.send(0, &requests);
    let sent = packets(&sent);
    let (first, rest) = sent.split_at(keys.len());
    let mut listed: Vec<_> = first.iter().map(|packet| packet.key.to_vec()).collect();
    listed.sort_unstable();
    assert_eq!(listed, keys);
    assert!(first.iter().all(|packet| packet.opaque == 1));
    let ends: Vec<_> = rest.iter().map(|end| (end.opaque, end.key.len())).collect();
    assert_eq!(ends, [(1, 0), (2, 0), (0, 0)]);
}

#[test]
fn refused_gigabyte_is_skipped_not_collected() {
    let body_bytes: u32 = 1 << 30;
    for mut head in [bytes_of(&of(Opcode::Append, b"k")), set(b"k")] {
        let opcode = head[1];
        let is_set = opcode == Opcode::Set.byte();
        // Without its value.
        head.truncate(HEADER_BYTES + usize::from(is_set) * 8 + 1);
        head[8..12].copy_from_slice(&body_bytes.to_be_bytes());
        let mut bench = Bench::new(2, false);
        bench.send(0, &set(b"k"));
        let mut left = HEADER_BYTES + body_bytes as usize - head.len();
        let piece = vec![b'v'; 1 << 20];
        assert_eq!(bench.send(0, &head), b"");
        // A set removes the old value as soon as the parts before the new value are read.
        let sent = bench.send(1, &bytes_of(&of(Opcode::Get, b"k")));
        assert_eq!(statuses(&sent), [(0x00, u16::from(is_set))]);
        while left > piece.len() {
            assert_eq!(bench.send(0, &piece), b"");
            assert!(bench.clients[0].input.is_empty());
            left -= piece.len();
        }
        let noop = bytes_of(&of(Opcode::Noop, b""));
        let rest = [vec![b'v'; left], noop].concat();
        let sent = bench.send(0, &rest);
        assert_eq!(statuses(&sent), [(opcode, 3), (0x0a, 0)]);
    }
}
