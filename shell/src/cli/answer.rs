//! Reads replies and finds their end.
//!
//! Most replies show their own length. [`Answer`] holds the part that only the request tells.
//!
//! - R1: A value is read by the length before it, independently of its bytes.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`; yrmcds 1.1 `docs/locking.md` (`keys`).

use super::connection::{Broken, Connection};
use super::screen::Screen;
use crate::exit;

/// How the reply to a request ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// A line, or a line and a value. A line that begins a list (`VALUE`, `STAT`) is followed by the whole list.
    Line,
    /// As [`Line`](Self::Line), for items: `END` alone means that none was found.
    Items,
    /// Names of keys: lines up to `END` that begin with `VALUE` but have no value.
    Names,
    /// Lines up to `END` or `EN`: a dump.
    Dump,
    /// Possibly none, because the request is quiet. A `version` request follows, and its reply, which is not shown,
    /// marks the end.
    Quiet,
    /// `OK`, then lines without end.
    Endless,
    /// The server closes the connection, or replies why not.
    Close,
}

/// The request behind a [quiet](Answer::Quiet) request.
pub(super) const BARRIER: &[u8] = b"version\r\n";

/// The result of a reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Success.
    Done,
    /// Not found, not stored, other version, or locked.
    No,
    /// `ERROR`, `CLIENT_ERROR` or `SERVER_ERROR`, with the rest of the line.
    Refused(String),
}

impl Verdict {
    /// The exit code.
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => exit::NO,
            Self::Refused(_) => exit::USAGE,
        }
    }
}

/// The kind of a line.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Line {
    /// An entry of a list.
    Entry,
    /// An entry of a list, followed by a value of this many bytes.
    EntryWithValue(u64),
    /// The whole reply, followed by a value of this many bytes.
    Value(u64),
    /// The end of a list.
    End,
    /// The whole reply, or the error that ends a list.
    Whole(Verdict),
}

/// Reads a whole reply from the connection and shows it.
pub(super) fn show(
    connection: &mut Connection,
    answer: Answer,
    screen: &mut Screen,
) -> Result<Verdict, Broken> {
    let mut entries = 0_u64;
    // The verdict of the reply to a quiet request, if there is one.
    let mut verdict = Verdict::Done;
    let mut in_list = false;
    loop {
        let is_endless = answer == Answer::Endless && entries > 0;
        let line = match connection.line(is_endless) {
            Ok(line) => line,
            Err(Broken::Closed) if answer == Answer::Close => return Ok(Verdict::Done),
            Err(broken) => return Err(broken),
        };
        let kind = kind(answer, &line);
        if answer == Answer::Quiet && line.starts_with(b"VERSION ") {
            return Ok(verdict);
        }
        if matches!(kind, Line::Whole(Verdict::Refused(_))) {
            screen.refusal(&line)?;
        } else {
            screen.line(&line)?;
        }
        match kind {
            Line::EntryWithValue(bytes) | Line::Value(bytes) => screen.value(bytes, connection)?,
            Line::Entry | Line::End | Line::Whole(_) => {}
        }
        if answer == Answer::Quiet {
            if let Line::Whole(latest) = kind {
                verdict = latest;
            }
            continue;
        }
        match kind {
            Line::Entry | Line::EntryWithValue(_) => {
                in_list = true;
                entries += 1;
            }
            Line::End if answer == Answer::Items && entries == 0 => return Ok(Verdict::No),
            Line::End | Line::Value(_) => return Ok(Verdict::Done),
            Line::Whole(verdict) if answer == Answer::Endless && verdict == Verdict::Done => {
                entries += 1;
                screen.flush()?;
            }
            Line::Whole(verdict) if !in_list || verdict != Verdict::Done => return Ok(verdict),
            // An unknown entry of a newer server's list.
            Line::Whole(_) => {}
        }
        if is_endless {
            screen.flush()?;
        }
    }
}

/// The kind of a line in this reply.
fn kind(answer: Answer, line: &[u8]) -> Line {
    let line = line.trim_ascii_end();
    let mut words = line.split(|byte| *byte == b' ');
    let code = words.next().unwrap_or_default();
    let is_list = matches!(answer, Answer::Names | Answer::Dump);
    match code {
        b"VALUE" | b"CONFIG" if !is_list => {
            words.nth(2).and_then(number).map_or(Line::Entry, |bytes| {
                // Two bytes for the line end behind the value.
                Line::EntryWithValue(bytes.saturating_add(2))
            })
        }
        b"VA" if !is_list => words
            .next()
            .and_then(number)
            .map_or(Line::Whole(Verdict::Done), |bytes| {
                Line::Value(bytes.saturating_add(2))
            }),
        b"END" => Line::End,
        b"EN" if answer == Answer::Dump => Line::End,
        b"VALUE" | b"STAT" | b"ITEM" | b"PREFIX" => Line::Entry,
        b"NOT_STORED" | b"NOT_FOUND" | b"EXISTS" | b"LOCKED" | b"NS" | b"NF" | b"EX" | b"EN"
        | b"LK" => Line::Whole(Verdict::No),
        code if is_error(code) => {
            Line::Whole(Verdict::Refused(String::from_utf8_lossy(line).into_owned()))
        }
        // latchd replies `OK` before a dump begins.
        _ if answer == Answer::Dump => Line::Entry,
        _ => Line::Whole(Verdict::Done),
    }
}

/// memcached also has `SERVER_ERROR:`, and replies of its crawler that begin with `BUSY`.
fn is_error(code: &[u8]) -> bool {
    let code = code.strip_suffix(b":").unwrap_or(code);
    matches!(
        code,
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" | b"BUSY" | b"BADCLASS" | b"NOSPARE"
    )
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_line_depends_on_the_request() {
        let refused = |words: &str| Line::Whole(Verdict::Refused(words.into()));
        for (answer, line, expected) in [
            (Answer::Items, "VALUE k 0 5\r\n", Line::EntryWithValue(7)),
            (Answer::Items, "VALUE k 0 5 17\r\n", Line::EntryWithValue(7)),
            (Answer::Names, "VALUE k\r\n", Line::Entry),
            (Answer::Names, "VALUE k 0 5\r\n", Line::Entry),
            (Answer::Line, "VA 2 W\r\n", Line::Value(4)),
            (
                Answer::Line,
                "CONFIG cluster 0 42\r\n",
                Line::EntryWithValue(44),
            ),
            (Answer::Line, "EN\r\n", Line::Whole(Verdict::No)),
            (Answer::Dump, "EN\r\n", Line::End),
            (Answer::Dump, "OK\r\n", Line::Entry),
            (Answer::Dump, "key=a exp=-1 \n", Line::Entry),
            (Answer::Line, "17\r\n", Line::Whole(Verdict::Done)),
            (Answer::Line, "RESET\r\n", Line::Whole(Verdict::Done)),
            (Answer::Line, "ERROR\r\n", refused("ERROR")),
            (
                Answer::Line,
                "SERVER_ERROR: shutdown not enabled\r\n",
                refused("SERVER_ERROR: shutdown not enabled"),
            ),
        ] {
            assert_eq!(kind(answer, line.as_bytes()), expected, "{line}");
        }
    }
}
