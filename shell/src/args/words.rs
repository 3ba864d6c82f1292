//! The words of a command line or of a line in a file: flags, their values, and operands.
//!
//! - getopt(3) takes flags after operands too, and everything after `--` is an operand. memcached ignores operands.
//! - memcached reads numbers by atoi(3), which skips blanks, so charts written for it contain words such as
//!   `"-m 64"`. Blanks around a value are skipped here and in [`Setting`](super::setting::Setting).
//! - A path in a separate word keeps its blanks, because they may be part of the name.
//! - A value of blanks alone stays as it is. It is refused and does not consume the next word.
//!
//! Source: memcached 1.6.45 `memcached.c`, `main`.

use std::ffi::{OsStr, OsString};
use std::iter::Peekable;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Arg, Command};

use super::setting::{is_setting, takes_value, trimmed};

/// A part of a command line.
#[derive(Debug)]
pub(super) enum Part<'a> {
    /// A flag, and its value if there is one.
    Flag(&'a Arg, Option<OsString>),
    /// A word that is neither a flag nor a value.
    Operand(OsString),
    /// A flag that does not exist, or that is no setting, such as `--help`. The parser decides.
    Other(OsString),
}

/// Splits words into their parts.
pub(super) fn parts(flags: &Command, words: impl IntoIterator<Item = OsString>) -> Vec<Part<'_>> {
    let mut words = words.into_iter().peekable();
    let mut parts = Vec::new();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => parts.extend(words.by_ref().map(Part::Operand)),
            [b'-', b'-', ..] => parts.push(long(flags, word, &mut words)),
            [b'-', letters @ ..] if !letters.is_empty() => {
                parts.extend(short(flags, letters, &mut words));
            }
            _ => parts.push(Part::Operand(word)),
        }
    }
    parts
}

/// Reads `--name`, `--name=value` or `--name value`.
fn long<'a>(
    flags: &'a Command,
    word: OsString,
    next: &mut Peekable<impl Iterator<Item = OsString>>,
) -> Part<'a> {
    let mut halves = word.as_bytes()[2..].splitn(2, |byte| *byte == b'=');
    let name = halves.next().unwrap_or_default();
    let is_it = |long: &str| long.as_bytes() == name;
    let Some(arg) = find(flags, |arg| arg.get_long().is_some_and(is_it)) else {
        return Part::Other(word);
    };
    let joined = halves.next().map(|value| OsStr::from_bytes(value).into());
    Part::Flag(arg, joined.or_else(|| separate(arg, next)))
}

/// Reads the letters of `-v`, `-vv`, `-m64`, `-m 64` in one word, or `-m` before its value.
fn short<'a>(
    flags: &'a Command,
    letters: &[u8],
    next: &mut Peekable<impl Iterator<Item = OsString>>,
) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    for (index, letter) in letters.iter().enumerate() {
        let letter = char::from(*letter);
        let Some(arg) = find(flags, |arg| arg.get_short() == Some(letter)) else {
            let rest = [b"-", &letters[index..]].concat();
            parts.push(Part::Other(OsString::from_vec(rest)));
            break;
        };
        let behind = &letters[index + 1..];
        if takes_value(arg) && !behind.is_empty() {
            let value = trimmed(behind);
            // clap's `-m=64`. `=` alone is a value.
            let value = match value.strip_prefix(b"=") {
                Some(value) if !value.is_empty() => value,
                Some(_) | None => value,
            };
            parts.push(Part::Flag(arg, Some(OsStr::from_bytes(value).into())));
            break;
        }
        parts.push(Part::Flag(arg, separate(arg, next)));
    }
    parts
}

/// The next word, if it is the value of a flag. A word that looks like a flag is not, so a missing value is an error.
fn separate(arg: &Arg, next: &mut Peekable<impl Iterator<Item = OsString>>) -> Option<OsString> {
    let is_value = |word: &OsString| match word.as_bytes() {
        [b'-', digit, ..] => arg.is_allow_negative_numbers_set() && digit.is_ascii_digit(),
        _ => true,
    };
    next.next_if(|word| takes_value(arg) && is_value(word))
}

/// A setting of the server.
fn find(flags: &Command, is_it: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    let mut known = flags.get_arguments();
    known.find(|arg| is_setting(arg) && is_it(arg))
}
