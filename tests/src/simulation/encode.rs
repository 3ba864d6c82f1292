//! Requests as the clients send them: those of the core as every layer writes them, and those that
//! only a wire has.

use latchd_harness::wording::{Protocol, classic, meta, packet};
use latchd_protocol::command::Command;
use latchd_protocol::key::Key;
use latchd_protocol::wire::binary::{Opcode, RequestPacket};
use latchd_protocol::wire::limits::LINE_BYTES_MAX;

use super::ask::{Ask, What};
use super::names::Names;
use super::workload::intent::written;

/// Appends the request to `out`, and notes the opcode if it is a packet. `value` is room for a
/// value.
pub(super) fn encode(ask: &mut Ask, names: &Names, value: &mut Vec<u8>, out: &mut Vec<u8>) {
    let Some(command) = written(ask, 0, names, value) else {
        return match ask.protocol {
            Protocol::Classic | Protocol::Meta => line_of_a_wire_only(ask, names, value, out),
            Protocol::Binary => packet_of_a_wire_only(ask, out),
        };
    };
    match ask.protocol {
        Protocol::Classic => {
            let more = 1..ask.key_count;
            let more: Vec<Key<'_>> = more.map(|place| names.key(ask.key(place))).collect();
            classic(&command, &more, &ask.style, out);
        }
        Protocol::Meta => match &command {
            Command::Item(command) => meta(command, &ask.style, out),
            Command::Global(_) => unreachable!("not in meta text"),
        },
        Protocol::Binary => {
            let packet = packet(&command, &ask.style).expect("no negative exptimes in packets");
            put_packet(ask, packet, out);
        }
    }
}

fn line_of_a_wire_only(ask: &Ask, names: &Names, value: &mut Vec<u8>, out: &mut Vec<u8>) {
    out.extend_from_slice(match ask.what {
        What::Version => b"version\r\n",
        What::Noop => b"mn\r\n",
        // The one without a key is unknown.
        What::Unknown => b"lock\r\n",
        What::Quit => b"quit\r\n",
        What::BadBody => {
            value.clear();
            ask.text.write(value);
            let key = names.plain(ask.key(0));
            let length = value.len().to_string();
            let line = [b"set ", key, b" 0 0 ", length.as_bytes(), b"\r\n"];
            return out.extend(line.into_iter().chain([&value[..], b"??"]).flatten());
        }
        What::Nonsense => return out.resize(out.len() + LINE_BYTES_MAX + 1, b'x'),
        _ => unreachable!("there is a command for it"),
    });
}

fn packet_of_a_wire_only(ask: &mut Ask, out: &mut Vec<u8>) {
    let opcode = match (ask.what, ask.style.quiet) {
        (What::Version, _) => Opcode::Version,
        (What::Noop, _) => Opcode::Noop,
        (What::Quit, false) => Opcode::Quit,
        (What::Quit, true) => Opcode::QuitQ,
        // Well formed, and unknown to a server without authentication.
        (What::Unknown, _) => Opcode::SaslListMechanisms,
        (What::Nonsense, _) => return out.extend_from_slice(b"get k\r\n"),
        _ => unreachable!("there is a command for it"),
    };
    put_packet(ask, RequestPacket::new(opcode), out);
}

fn put_packet(ask: &mut Ask, packet: RequestPacket<'_>, out: &mut Vec<u8>) {
    ask.opcode = Some(packet.opcode);
    let packet = RequestPacket {
        opaque: ask.number,
        ..packet
    };
    packet.encode(out).expect("nothing in it is too long");
}
