//! Requests of the two text protocols: where a line ends, and which protocol's it is.
//!
//! Both may come on one connection. A line is a meta command if its first word is one of theirs,
//! and classic otherwise.
//!
//! Source: memcached 1.6.45 `proto_text.c`, `try_read_command_ascii`.

use super::chosen_limits::WireLimits;
use super::classic;
use super::limits::LINE_BYTES_MAX;
use super::line::Line;
use super::meta::{self, KeyBuffer, Verb};
use super::status_line::BAD_FORMAT;
use super::step::{Cursor, Step};

/// memcached reads no command from fewer bytes than this, the line end included.
const LINE_BYTES_MIN: usize = 4;

/// The step of a line's request.
///
/// `cursor` says which step of it is wanted, and is moved on. `key_buffer` takes the key if it is
/// written in base64.
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
        if word == b"mn" {
            return line.respond("MN");
        }
    }
    classic::request::decode(line, limits, cursor)
}

/// How long the line at the front of `input` may be, in bytes before its line end.
pub(crate) fn line_bytes_max(input: &[u8], limits: &WireLimits) -> usize {
    if input.len() > LINE_BYTES_MAX && classic::request::is_get(input) {
        limits.get_line_bytes_max.max(LINE_BYTES_MAX)
    } else {
        LINE_BYTES_MAX
    }
}
