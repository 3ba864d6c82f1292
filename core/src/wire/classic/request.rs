//! Requests of the classic text protocol: from a line to a command, and back.
//!
//! `noreply` is what the last word of a line says, if the line has as many words as its command
//! needs; it hides every answer, errors too. What stands between the words a command needs and the
//! last one is not looked at, as in memcached 1.6.45; only `delete` is strict, as in 1.6.18.
//!
//! Source: memcached 1.6.45 `proto_parser.c` (`process_request`, `process_update_cmd_start`) and
//! `proto_text.c`; 1.6.18 `proto_text.c`, `process_delete_command`.

mod encode;

pub use encode::{Inexpressible, encode};

use super::Envelope;
use crate::command::{
    Arithmetic, Command, Delete, Direction, Get, Guard, OnMissing, Set, SetMode, TtlStep, TtlSteps,
};
use crate::item::Cas;
use crate::key::Key;
use crate::stats::StatsTopic;
use crate::time::Exptime;
use crate::wire::limits::{ANNOUNCED_BYTES_MAX, TOKENS_MAX, WireLimits};
use crate::wire::scan::{
    Tokens, i32_from, loose_i64_from, loose_u32_from, split_token, text_key, u64_from,
};
use crate::wire::status_line::{BAD_CHUNK, BAD_DELTA, BAD_EXPTIME, BAD_FORMAT, ERROR, TOO_LARGE};
use crate::wire::{Answer, Decoded, Envelope as AnyEnvelope};

/// Reads a request: `line` without its line end, and what has arrived behind it.
#[must_use]
pub fn decode<'a>(line: &'a [u8], body: &'a [u8], limits: &WireLimits) -> Decoded<'a> {
    let verb_bytes = line
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(line.len());
    let Some((verb, rest)) = line.split_at_checked(verb_bytes) else {
        return Decoded::line(ERROR);
    };
    match verb {
        b"get" | b"gets" | b"gat" | b"gats" => decode_get(line, verb, rest),
        b"set" => decode_store(StoreVerb::Set, rest, body, limits),
        b"add" => decode_store(StoreVerb::Add, rest, body, limits),
        b"replace" => decode_store(StoreVerb::Replace, rest, body, limits),
        b"append" => decode_store(StoreVerb::Append, rest, body, limits),
        b"prepend" => decode_store(StoreVerb::Prepend, rest, body, limits),
        b"cas" => decode_store(StoreVerb::Cas, rest, body, limits),
        b"delete" => decode_delete(rest),
        b"incr" => decode_arithmetic(Direction::Increment, rest),
        b"decr" => decode_arithmetic(Direction::Decrement, rest),
        b"touch" => decode_touch(rest),
        b"lock" => decode_lock(rest, |key| Command::Lock { key }),
        b"unlock" => decode_lock(rest, |key| Command::Unlock { key }),
        b"unlock_all" => change(Command::UnlockAll, false),
        b"keys" => Decoded::Listing {
            prefix: split_token(rest).map_or(&[], |(word, _)| word),
        },
        b"stats" => decode_stats(rest),
        b"version" => Decoded::Answer {
            answer: Answer::Version,
            body_bytes: 0,
        },
        b"quit" => Decoded::Close {
            answer: Answer::Nothing,
        },
        b"watch" => Decoded::line("CLIENT_ERROR watch commands not allowed"),
        _ => decode_rare(line),
    }
}

/// Goes on with a line of several keys at `next`, which [`Decoded::Several`] gave.
#[must_use]
pub fn resume(line: &[u8], next: usize) -> Decoded<'_> {
    let nothing = Decoded::Answer {
        answer: Answer::Nothing,
        body_bytes: 0,
    };
    let Some((verb, rest)) = split_token(line) else {
        return nothing;
    };
    let Some((with_cas, steps, _)) = get_options(verb, rest) else {
        return nothing;
    };
    let Some((key, rest)) = line.get(next..).and_then(split_token) else {
        return nothing;
    };
    let Some(key) = text_key(key) else {
        return nothing;
    };
    get(line, key, with_cas, steps, rest)
}

/// Whether `line`, which may not be whole, is one that
/// [`get_line_bytes_max`](WireLimits::get_line_bytes_max) bounds.
pub(crate) fn is_get(line: &[u8]) -> bool {
    [&b"get "[..], b"gets ", b"gat ", b"gats "]
        .iter()
        .any(|verb| line.starts_with(verb))
}

fn decode_get<'a>(line: &'a [u8], verb: &[u8], rest: &'a [u8]) -> Decoded<'a> {
    let touches = verb.starts_with(b"ga");
    let Some((with_cas, steps, rest)) = get_options(verb, rest) else {
        // `gat` and `gats` without a key are malformed before their exptime is looked at.
        let words = Tokens::new(rest).take(2).count();
        return Decoded::line(if touches && words == 2 {
            BAD_EXPTIME
        } else {
            BAD_FORMAT
        });
    };
    let Some((key, rest)) = split_token(rest) else {
        return Decoded::line(BAD_FORMAT);
    };
    let Some(key) = text_key(key) else {
        return Decoded::line(BAD_FORMAT);
    };
    if Tokens::new(rest).any(|key| text_key(key).is_none()) {
        return Decoded::line(BAD_FORMAT);
    }
    get(line, key, with_cas, steps, rest)
}

/// What a verb says of all its keys, and the keys.
fn get_options<'a>(verb: &[u8], rest: &'a [u8]) -> Option<(bool, TtlSteps, &'a [u8])> {
    let with_cas = verb.ends_with(b"s");
    if !verb.starts_with(b"ga") {
        return Some((with_cas, TtlSteps::NONE, rest));
    }
    let (exptime, rest) = split_token(rest)?;
    Some((
        with_cas,
        TtlSteps::one(TtlStep::Touch(exptime_from(exptime)?)),
        rest,
    ))
}

fn get<'a>(line: &[u8], key: Key<'a>, with_cas: bool, steps: TtlSteps, rest: &[u8]) -> Decoded<'a> {
    let last = rest.iter().all(|byte| *byte == b' ');
    let command = Command::Get(Get {
        steps,
        ..Get::new(key)
    });
    let envelope = AnyEnvelope::Classic(Envelope::Get { with_cas, last });
    if last {
        Decoded::Request {
            command,
            envelope,
            body_bytes: 0,
        }
    } else {
        Decoded::Several {
            command,
            envelope,
            next: line.len().saturating_sub(rest.len()),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum StoreVerb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

fn decode_store<'a>(
    verb: StoreVerb,
    rest: &'a [u8],
    body: &'a [u8],
    limits: &WireLimits,
) -> Decoded<'a> {
    let mut words = Tokens::new(rest);
    let (Some(key), Some(client_flags), Some(exptime), Some(announced)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Decoded::line(BAD_FORMAT);
    };
    let Some(value_bytes) = announced_bytes_from(announced) else {
        return Decoded::line(BAD_FORMAT);
    };
    let noreply = noreply(words.rest(), 5);
    let body_bytes = value_bytes + 2;
    let refuse = |line| Decoded::Answer {
        answer: Answer::line_unless(noreply, line),
        body_bytes,
    };

    let (Some(key), Some(client_flags), Some(exptime)) = (
        text_key(key),
        loose_u32_from(client_flags),
        loose_i64_from(exptime),
    ) else {
        return refuse(BAD_FORMAT);
    };
    let guard = if verb == StoreVerb::Cas {
        let Some(cas) = words.next().and_then(u64_from) else {
            return refuse(BAD_FORMAT);
        };
        Cas::new(cas).map_or(Guard::Never, Guard::Match)
    } else {
        Guard::None
    };
    let envelope = AnyEnvelope::Classic(Envelope::Change { noreply });
    if value_bytes > limits.value_bytes_max {
        return if verb == StoreVerb::Set {
            Decoded::Request {
                command: Command::SetTooLarge { key },
                envelope,
                body_bytes,
            }
        } else {
            refuse(TOO_LARGE)
        };
    }
    let Some(body) = body.get(..body_bytes) else {
        return Decoded::NeedsBody { body_bytes };
    };
    let Some(value) = body.strip_suffix(b"\r\n") else {
        return refuse(BAD_CHUNK);
    };
    let mode = match verb {
        StoreVerb::Set | StoreVerb::Cas => SetMode::Set,
        StoreVerb::Add => SetMode::Add,
        StoreVerb::Replace => SetMode::Replace,
        StoreVerb::Append => SetMode::Append {
            missing: OnMissing::Refuse,
        },
        StoreVerb::Prepend => SetMode::Prepend {
            missing: OnMissing::Refuse,
        },
    };
    let exptime = Exptime::from_wire(exptime);
    let command = Command::Set(Set {
        client_flags,
        exptime,
        mode,
        guard,
        ..Set::new(key, value)
    });
    Decoded::Request {
        command,
        envelope,
        body_bytes,
    }
}

/// The length of a value as a request announces it.
pub(crate) fn announced_bytes_from(token: &[u8]) -> Option<usize> {
    let bytes = u32::try_from(i32_from(token)?).ok()?;
    if bytes > ANNOUNCED_BYTES_MAX {
        None
    } else {
        usize::try_from(bytes).ok()
    }
}

fn decode_delete(rest: &[u8]) -> Decoded<'_> {
    let mut words = Tokens::new(rest);
    let Some(key) = words.next() else {
        return Decoded::line(BAD_FORMAT);
    };
    let noreply = noreply(words.rest(), 2);
    // Long ago a number here was a delay; clients that still send the 0 are let through.
    let valid = match (words.next(), words.next(), words.next()) {
        (_, _, Some(_)) => return Decoded::line(ERROR),
        (None, _, None) => true,
        (Some(word), None, None) => word == b"0" || noreply,
        (Some(word), Some(_), None) => word == b"0" && noreply,
    };
    if !valid {
        const USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
        return Decoded::line_unless(noreply, USAGE);
    }
    let Some(key) = text_key(key) else {
        return Decoded::line_unless(noreply, BAD_FORMAT);
    };
    change(Command::Delete(Delete::new(key)), noreply)
}

fn decode_arithmetic(direction: Direction, rest: &[u8]) -> Decoded<'_> {
    let Some((key, rest)) = split_token(rest) else {
        return Decoded::line(BAD_FORMAT);
    };
    let Some((delta, _)) = split_token(rest) else {
        return Decoded::line(BAD_FORMAT);
    };
    let noreply = noreply(rest, 2);
    let Some(key) = text_key(key) else {
        return Decoded::line_unless(noreply, BAD_FORMAT);
    };
    let Some(delta) = u64_from(delta) else {
        return Decoded::line_unless(noreply, BAD_DELTA);
    };
    Decoded::Request {
        command: Command::Arithmetic(Arithmetic::new(key, direction, delta)),
        envelope: AnyEnvelope::Classic(Envelope::Arithmetic { noreply }),
        body_bytes: 0,
    }
}

fn decode_touch(rest: &[u8]) -> Decoded<'_> {
    let Some((key, rest)) = split_token(rest) else {
        return Decoded::line(BAD_FORMAT);
    };
    let Some((exptime, _)) = split_token(rest) else {
        return Decoded::line(BAD_FORMAT);
    };
    let noreply = noreply(rest, 2);
    let Some(key) = text_key(key) else {
        return Decoded::line_unless(noreply, BAD_FORMAT);
    };
    let Some(exptime) = exptime_from(exptime) else {
        return Decoded::line_unless(noreply, BAD_EXPTIME);
    };
    let steps = TtlSteps::one(TtlStep::Touch(exptime));
    Decoded::Request {
        command: Command::Get(Get {
            steps,
            ..Get::new(key)
        }),
        envelope: AnyEnvelope::Classic(Envelope::Touch { noreply }),
        body_bytes: 0,
    }
}

/// One key and nothing else, or it is `ERROR`: a lock that nobody answers is of no use.
fn decode_lock<'a>(rest: &'a [u8], command: impl Fn(Key<'a>) -> Command<'a>) -> Decoded<'a> {
    let mut words = Tokens::new(rest);
    let (Some(key), None) = (words.next(), words.next()) else {
        return Decoded::line(ERROR);
    };
    let Some(key) = text_key(key) else {
        return Decoded::line(BAD_FORMAT);
    };
    change(command(key), false)
}

fn decode_stats(rest: &[u8]) -> Decoded<'_> {
    let request = |command, envelope| Decoded::Request {
        command,
        envelope: AnyEnvelope::Classic(envelope),
        body_bytes: 0,
    };
    let on = |topic| request(Command::Stats(topic), Envelope::Stats(topic));
    let Some((word, _)) = split_token(rest) else {
        return on(StatsTopic::General);
    };
    // memcached compares only as many bytes as the word has, so that `stats r` resets.
    if b"reset".starts_with(word) {
        return request(Command::StatsReset, Envelope::StatsReset);
    }
    if b"detail".starts_with(word) {
        return Decoded::line("CLIENT_ERROR stats detail not allowed");
    }
    if b"settings".starts_with(word) {
        return on(StatsTopic::Settings);
    }
    if b"cachedump".starts_with(word) {
        return Decoded::line("CLIENT_ERROR stats cachedump not allowed");
    }
    if b"conns".starts_with(word) {
        return on(StatsTopic::Conns);
    }
    match word {
        b"items" => on(StatsTopic::Items),
        b"slabs" => on(StatsTopic::Slabs),
        b"sizes" => on(StatsTopic::Sizes),
        _ => Decoded::line(ERROR),
    }
}

/// Commands that memcached looks for by the first word wherever it stands, so that a blank before
/// it does no harm; and everything unknown.
fn decode_rare(line: &[u8]) -> Decoded<'_> {
    let mut words = Tokens::new(line).take(TOKENS_MAX);
    let Some(verb) = words.next() else {
        return Decoded::line(ERROR);
    };
    let argument = words.next();
    let (last, count) = match (
        argument,
        words.by_ref().fold((None, 2), |(_, n), w| (Some(w), n + 1)),
    ) {
        (None, _) => (verb, 1),
        (Some(argument), (None, _)) => (argument, 2),
        (Some(_), (Some(last), count)) => (last, count),
    };
    let noreply = last == NOREPLY;
    match verb {
        b"flush_all" => {
            let at = match argument {
                Some(exptime) if count > 1 + usize::from(noreply) => exptime_from(exptime),
                Some(_) | None => Some(Exptime::Never),
            };
            match at {
                Some(at) => change(Command::FlushAll { at }, noreply),
                None => Decoded::line_unless(noreply, BAD_EXPTIME),
            }
        }
        b"verbosity" => {
            let level = argument.and_then(crate::wire::scan::u32_from);
            Decoded::line_unless(noreply, if level.is_some() { "OK" } else { BAD_FORMAT })
        }
        b"shutdown" => Decoded::line_unless(noreply, "SERVER_ERROR: shutdown not enabled"),
        // A browser: what follows are header lines, each of which would be one more error.
        _ if count > 1 && last.starts_with(b"HTTP/") => Decoded::Close {
            answer: Answer::Nothing,
        },
        _ => Decoded::line_unless(noreply, ERROR),
    }
}

fn change(command: Command<'_>, noreply: bool) -> Decoded<'_> {
    let envelope = AnyEnvelope::Classic(Envelope::Change { noreply });
    Decoded::Request {
        command,
        envelope,
        body_bytes: 0,
    }
}

fn exptime_from(token: &[u8]) -> Option<Exptime> {
    i32_from(token).map(|seconds| Exptime::from_wire(i64::from(seconds)))
}

const NOREPLY: &[u8] = b"noreply";

/// Whether the last word of a line is `noreply`; `taken` of its words stand before `rest`.
fn noreply(rest: &[u8], taken: usize) -> bool {
    Tokens::new(rest)
        .take(TOKENS_MAX.saturating_sub(taken))
        .last()
        == Some(NOREPLY)
}
