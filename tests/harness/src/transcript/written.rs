//! Requests as a transcript writes them: lines that a person can paste into `nc`, and packets by
//! their fields. The format is that of `tests/transcripts/README.md`.

use std::fmt::Write as _;

use latchd_protocol::wire::binary::{Extras, RequestPacket};

use super::binary::opcode_name;
use super::escaped;

/// From how many bytes on a line of one letter is written as a repeat.
const REPEATED_MIN: usize = 100;

/// The request as text, one line each, without the line ends.
#[must_use]
pub fn lines(request: &[u8]) -> Vec<String> {
    let text = request.strip_suffix(b"\r\n").unwrap_or(request);
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(line(&rest[..end]));
        rest = &rest[end + 2..];
    }
    lines.push(line(rest));
    lines
}

fn line(bytes: &[u8]) -> String {
    match bytes.first() {
        Some(letter) if bytes.len() >= REPEATED_MIN && bytes.iter().all(|byte| byte == letter) => {
            format!("{{{}*{}}}", bytes.len(), escaped(&[*letter]))
        }
        Some(_) | None => escaped(bytes),
    }
}

/// A packet by its fields.
#[must_use]
pub fn packet(request: &RequestPacket<'_>) -> String {
    let RequestPacket {
        opcode,
        opaque,
        cas,
        extras,
        key,
        value,
    } = *request;
    let mut text = opcode_name(opcode.byte());
    let mut field = |name: &str, value: &dyn std::fmt::Display| {
        write!(text, " {name}={value}").expect("writing to a String cannot fail");
    };
    match extras {
        Extras::None => {}
        Extras::Exptime(exptime) => field("exptime", &exptime),
        Extras::Store {
            client_flags,
            exptime,
        } => {
            field("flags", &client_flags);
            field("exptime", &exptime);
        }
        Extras::Arithmetic {
            delta,
            initial,
            exptime,
        } => {
            field("delta", &delta);
            field("initial", &initial);
            field("exptime", &exptime);
        }
        Extras::Level(level) => field("level", &level),
    }
    for (name, bytes) in [("key", key), ("value", value)] {
        if !bytes.is_empty() {
            field(name, &quoted(bytes));
        }
    }
    if let Some(cas) = cas {
        field("cas", &cas.number());
    }
    if opaque != 0 {
        field("opaque", &opaque);
    }
    text
}

/// In quotes, if it has blanks.
fn quoted(bytes: &[u8]) -> String {
    let text = escaped(bytes);
    if text.contains(' ') {
        format!("\"{text}\"")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::binary::Packet;
    use super::*;
    use latchd_protocol::item::Cas;
    use latchd_protocol::wire::binary::Opcode;

    #[test]
    fn a_request_is_written_in_lines() {
        assert_eq!(lines(b"get a\r\n"), ["get a"]);
        assert_eq!(lines(b"append a 0 0 0\r\n\r\n"), ["append a 0 0 0", ""]);
        let large = [&b"set a 0 0 100\r\n"[..], &[b'x'; 100], b"\r\n"].concat();
        assert_eq!(lines(&large), ["set a 0 0 100", "{100*x}"]);
    }

    #[test]
    fn a_written_packet_is_read_unchanged() {
        let request = RequestPacket {
            cas: Cas::new(7),
            opaque: 9,
            extras: Extras::Store {
                client_flags: 1,
                exptime: 2,
            },
            key: b"a",
            value: b"7 ",
            ..RequestPacket::new(Opcode::RaU)
        };
        let text = packet(&request);
        assert_eq!(
            text,
            "rau flags=1 exptime=2 key=a value=\"7 \" cas=7 opaque=9"
        );
        let read = Packet::parse(&text).unwrap();
        let read = read.request(&|_| Err(String::new())).unwrap();
        let mut bytes = Vec::new();
        request.encode(&mut bytes).unwrap();
        assert_eq!(read, bytes);
    }
}
