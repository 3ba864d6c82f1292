//! Requests of the two text protocols: finds the end of a line, and its protocol.
//!
//! Both may come on one connection. A line is a meta command if its first word is a meta verb, and classic
//! otherwise.
//!
//! Source: memcached 1.6.45 `proto_text.c`, `try_read_command_ascii`.

use super::chosen_limits::WireLimits;
use super::classic;
use super::limits::LINE_BYTES_MAX;
use super::line::Line;
use super::meta::{self, KeyBuffer, Verb};
use super::scan::Tokens;
use super::status_line::BAD_FORMAT;
use super::step::{Cursor, Operation, Step};

/// memcached reads no command from fewer bytes than this, the line end included.
const LINE_BYTES_MIN: usize = 4;

/// The step of a line's request.
///
/// `cursor` selects the step, and is advanced. `key_buffer` takes a key that is written in base64.
pub(crate) fn decode<'a>(
    line: Line<'a>,
    limits: &WireLimits,
    cursor: &mut Cursor,
    key_buffer: &'a mut KeyBuffer,
) -> Step<'a> {
    if line.bytes < LINE_BYTES_MIN {
        return line.respond(BAD_FORMAT);
    }
    if let Some((word, rest)) = line.text.split_at_checked(2)
        && matches!(rest.first(), None | Some(b' '))
    {
        if let Some(verb) = Verb::from_word(word) {
            return meta::request::decode(verb, rest, line, limits, key_buffer);
        }
        match word {
            b"mn" if Tokens::new(rest).eq([b"H"]) => {
                let consumed = line.bytes;
                return Operation::Hold.consuming(consumed);
            }
            b"mn" => return line.respond("MN"),
            b"mo" => return meta::session::decode(rest, line),
            _ => {}
        }
    }
    classic::request::decode(line, limits, cursor)
}

/// The longest allowed line at the front of `input`, in bytes before its line end.
#[cold]
pub(crate) fn line_bytes_max(input: &[u8], limits: &WireLimits) -> usize {
    if classic::request::is_get(input) {
        limits.get_line_bytes_max.max(LINE_BYTES_MAX)
    } else {
        LINE_BYTES_MAX
    }
}
