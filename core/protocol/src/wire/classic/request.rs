//! Requests of the classic text protocol: from a line to a command, and back.
//!
//! `noreply` counts if it is the last word of a line with enough words for its command. It hides every
//! response, errors too. As in memcached 1.6.45, words between the required ones and the last one are ignored;
//! only `delete` is strict, as in 1.6.18.
//!
//! Source: memcached 1.6.45 `proto_parser.c` (`process_request`, `process_update_cmd_start`) and
//! `proto_text.c`; 1.6.18 `proto_text.c`, `process_delete_command`.

mod encode;
mod tuning;

pub use encode::{Inexpressible, encode, encode_cluster};

use super::{ClassicEnvelope, dump};
use crate::command::{
    Arithmetic, Command, Delete, Direction, Get, GlobalCommand, Guard, ItemCommand, OnMissing,
    ScanCursor, Set, SetMode, TtlStep, TtlSteps,
};
use crate::item::Cas;
use crate::key::Key;
use crate::stats::{StatsTopic, Unstored};
use crate::time::Exptime;
use crate::watch::{Topics, Watched};
use crate::wire::Envelope;
use crate::wire::allowed::Allowed;
use crate::wire::chosen_limits::WireLimits;
use crate::wire::limits::TOKENS_MAX;
use crate::wire::line::Line;
use crate::wire::local::LocalResponse;
use crate::wire::scan::{
    Tokens, announced_bytes_from, i32_from, loose_i64_from, loose_u32_from, split_key, split_token,
    u32_from, u64_from,
};
use crate::wire::status_line::{BAD_DELTA, BAD_EXPTIME, BAD_FORMAT, ERROR};
use crate::wire::step::{Cursor, Operation, Step};

/// Reads the request of a line. `cursor` selects its step, and is advanced.
#[must_use]
pub fn decode<'a>(line: Line<'a>, limits: &WireLimits, cursor: &mut Cursor) -> Step<'a> {
    let text = line.text;
    let verb_bytes = text
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(text.len());
    let Some((verb, rest)) = text.split_at_checked(verb_bytes) else {
        return line.respond(ERROR);
    };
    match verb {
        b"get" | b"gets" | b"gat" | b"gats" => decode_get(verb, rest, line, cursor),
        b"set" => decode_store(StoreVerb::Set, rest, line, limits),
        b"add" => decode_store(StoreVerb::Add, rest, line, limits),
        b"replace" => decode_store(StoreVerb::Replace, rest, line, limits),
        b"append" => decode_store(StoreVerb::Append, rest, line, limits),
        b"prepend" => decode_store(StoreVerb::Prepend, rest, line, limits),
        b"cas" => decode_store(StoreVerb::Cas, rest, line, limits),
        b"delete" => decode_delete(rest, line),
        b"incr" => decode_arithmetic(Direction::Increment, rest, line),
        b"decr" => decode_arithmetic(Direction::Decrement, rest, line),
        b"touch" => decode_touch(rest, line),
        b"lock" => decode_lock(rest, line, |key| ItemCommand::Lock { key }),
        b"unlock" => decode_lock(rest, line, |key| ItemCommand::Unlock { key }),
        b"unlock_all" => change(GlobalCommand::UnlockAll, false, line),
        b"keys" => {
            if !limits.allowed.listing {
                return line.respond("CLIENT_ERROR keys not allowed");
            }
            let prefix = split_token(rest).map_or(&[][..], |(word, _)| word);
            cursor.list(
                prefix,
                |_| Envelope::Classic(ClassicEnvelope::Keys),
                line.bytes,
            )
        }
        b"stats" => decode_stats(rest, line, limits.allowed, cursor),
        b"version" => line.respond_past(0, LocalResponse::Version),
        b"quit" => Operation::Close {
            response: LocalResponse::Farewell,
        }
        .consuming(0),
        b"watch" => decode_watch(rest, line, limits.allowed),
        _ => decode_rare(line, limits, cursor),
    }
}

/// Whether [`get_line_bytes_max`](WireLimits::get_line_bytes_max) bounds `line`, which may be incomplete.
pub(crate) fn is_get(line: &[u8]) -> bool {
    [&b"get "[..], b"gets ", b"gat ", b"gats "]
        .iter()
        .any(|verb| line.starts_with(verb))
}

fn decode_get<'a>(verb: &[u8], rest: &'a [u8], line: Line<'a>, cursor: &mut Cursor) -> Step<'a> {
    let touches = verb.starts_with(b"ga");
    let Some((with_cas, steps, keys)) = get_options(verb, rest) else {
        // `gat` and `gats` without a key are malformed, with any exptime.
        let words = Tokens::new(rest).take(2).count();
        return line.respond(if touches && words == 2 {
            BAD_EXPTIME
        } else {
            BAD_FORMAT
        });
    };
    let (keys, is_first) = match *cursor {
        Cursor::Key(at) => (line.text.get(at as usize..).unwrap_or_default(), false),
        Cursor::Start | Cursor::Page { .. } | Cursor::End => (keys, true),
    };
    let Some((key, others)) = split_key(keys) else {
        return line.respond(BAD_FORMAT);
    };
    // All keys are checked before the first is read (W2), and not again for the others.
    if is_first && Tokens::new(others).any(|key| Key::new(key).is_none()) {
        return line.respond(BAD_FORMAT);
    }
    let last = others.iter().all(|byte| *byte == b' ');
    let consumed = if last {
        *cursor = Cursor::Start;
        line.bytes
    } else {
        // A longer line than 32 bits can count is refused before it is read.
        let at = line.text.len() - others.len();
        *cursor = Cursor::Key(u32::try_from(at).unwrap_or(u32::MAX));
        0
    };
    let command = Command::from(Get {
        steps,
        ..Get::new(key)
    });
    Operation::Execute {
        command,
        envelope: Envelope::Classic(ClassicEnvelope::Get { with_cas, last }),
    }
    .consuming(consumed)
}

/// The options of a verb for all its keys, and the keys.
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
    line: Line<'a>,
    limits: &WireLimits,
) -> Step<'a> {
    let mut words = Tokens::new(rest);
    let (Some(key), Some(client_flags), Some(exptime), Some(announced)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return line.respond(BAD_FORMAT);
    };
    let Some(value_bytes) = announced_bytes_from(announced) else {
        return line.respond(BAD_FORMAT);
    };
    let noreply = noreply(words.rest(), 5);
    let body_bytes = value_bytes + 2;
    let refuse = |text| line.respond_past(body_bytes, LocalResponse::line_unless(noreply, text));

    let (Some(key), Some(client_flags), Some(exptime)) = (
        Key::new(key),
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
    let envelope = Envelope::Classic(ClassicEnvelope::Change { noreply });
    if value_bytes > limits.value_bytes_max {
        return if verb == StoreVerb::Set {
            Operation::Execute {
                command: Command::Item(ItemCommand::SetTooLarge { key }),
                envelope,
            }
            .consuming(line.bytes + body_bytes)
        } else {
            line.respond_unstored(body_bytes, noreply, Unstored::TooLarge)
        };
    }
    let Some(body) = line.behind.get(..body_bytes) else {
        return line.await_body(body_bytes);
    };
    let Some(value) = body.strip_suffix(b"\r\n") else {
        return line.respond_unstored(body_bytes, noreply, Unstored::BadChunk);
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
    let command = Command::from(Set {
        client_flags,
        exptime,
        mode,
        guard,
        ..Set::new(key, value)
    });
    Operation::Execute { command, envelope }.consuming(line.bytes + body_bytes)
}

fn decode_delete<'a>(rest: &'a [u8], line: Line<'a>) -> Step<'a> {
    let mut words = Tokens::new(rest);
    let Some(key) = words.next() else {
        return line.respond(BAD_FORMAT);
    };
    let noreply = noreply(words.rest(), 2);
    // In old versions a number here was a delay. Clients that still send 0 are accepted.
    let valid = match (words.next(), words.next(), words.next()) {
        (_, _, Some(_)) => return line.respond(ERROR),
        (None, _, None) => true,
        (Some(word), None, None) => word == b"0" || noreply,
        (Some(word), Some(_), None) => word == b"0" && noreply,
    };
    if !valid {
        const USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
        return line.respond_unless(noreply, USAGE);
    }
    let Some(key) = Key::new(key) else {
        return line.respond_unless(noreply, BAD_FORMAT);
    };
    change(Delete::new(key), noreply, line)
}

fn decode_arithmetic<'a>(direction: Direction, rest: &'a [u8], line: Line<'a>) -> Step<'a> {
    let Some((key, rest)) = split_token(rest) else {
        return line.respond(BAD_FORMAT);
    };
    let Some((delta, _)) = split_token(rest) else {
        return line.respond(BAD_FORMAT);
    };
    let noreply = noreply(rest, 2);
    let Some(key) = Key::new(key) else {
        return line.respond_unless(noreply, BAD_FORMAT);
    };
    let Some(delta) = u64_from(delta) else {
        return line.respond_unless(noreply, BAD_DELTA);
    };
    let command = Command::from(Arithmetic::new(key, direction, delta));
    line.execute(
        command,
        Envelope::Classic(ClassicEnvelope::Arithmetic { noreply }),
    )
}

fn decode_touch<'a>(rest: &'a [u8], line: Line<'a>) -> Step<'a> {
    let Some((key, rest)) = split_token(rest) else {
        return line.respond(BAD_FORMAT);
    };
    let Some((exptime, _)) = split_token(rest) else {
        return line.respond(BAD_FORMAT);
    };
    let noreply = noreply(rest, 2);
    let Some(key) = Key::new(key) else {
        return line.respond_unless(noreply, BAD_FORMAT);
    };
    let Some(exptime) = exptime_from(exptime) else {
        return line.respond_unless(noreply, BAD_EXPTIME);
    };
    let steps = TtlSteps::one(TtlStep::Touch(exptime));
    let command = Command::from(Get {
        steps,
        ..Get::new(key)
    });
    line.execute(
        command,
        Envelope::Classic(ClassicEnvelope::Touch { noreply }),
    )
}

/// One key and nothing else, or it is `ERROR`: a lock without a reply is of no use.
fn decode_lock<'a>(
    rest: &'a [u8],
    line: Line<'a>,
    command: impl Fn(Key<'a>) -> ItemCommand<'a>,
) -> Step<'a> {
    let mut words = Tokens::new(rest);
    let (Some(key), None) = (words.next(), words.next()) else {
        return line.respond(ERROR);
    };
    let Some(key) = Key::new(key) else {
        return line.respond(BAD_FORMAT);
    };
    change(command(key), false, line)
}

fn decode_stats<'a>(
    rest: &'a [u8],
    line: Line<'a>,
    allowed: Allowed,
    cursor: &mut Cursor,
) -> Step<'a> {
    let request =
        |command, envelope| line.execute(Command::Global(command), Envelope::Classic(envelope));
    let on = |topic| request(GlobalCommand::Stats(topic), ClassicEnvelope::Stats(topic));
    let pages = |topic: fn(ScanCursor) -> StatsTopic, cursor: &mut Cursor| {
        let envelope = |at| Envelope::Classic(ClassicEnvelope::Stats(topic(at)));
        cursor.stats(topic, envelope, line.bytes)
    };
    let Some((word, behind)) = split_token(rest) else {
        return on(StatsTopic::General);
    };
    // memcached compares only as many bytes as the argument has, so that `stats r` resets.
    if b"reset".starts_with(word) {
        return request(GlobalCommand::StatsReset, ClassicEnvelope::StatsReset);
    }
    if b"detail".starts_with(word) {
        return match split_token(behind).and_then(|(what, _)| detail_from(what)) {
            _ if !allowed.listing => line.respond("CLIENT_ERROR stats detail not allowed"),
            Some(StatsTopic::Detail(_)) => pages(StatsTopic::Detail, cursor),
            Some(topic) => on(topic),
            None => line.respond("CLIENT_ERROR usage: stats detail on|off|dump"),
        };
    }
    if b"settings".starts_with(word) {
        return on(StatsTopic::Settings);
    }
    if b"cachedump".starts_with(word) {
        return dump::decode_cachedump(behind, line, allowed, cursor);
    }
    if b"conns".starts_with(word) {
        return pages(StatsTopic::Conns, cursor);
    }
    match word {
        b"items" => on(StatsTopic::Items),
        b"slabs" => on(StatsTopic::Slabs),
        b"sizes" => on(StatsTopic::Sizes),
        b"extstore" => on(StatsTopic::Extstore),
        b"cluster" => on(StatsTopic::Cluster),
        b"sessions" => pages(StatsTopic::Sessions, cursor),
        b"locks" if !allowed.listing => line.respond("CLIENT_ERROR stats locks not allowed"),
        b"locks" => pages(StatsTopic::Locks, cursor),
        _ => line.respond(ERROR),
    }
}

fn decode_watch<'a>(rest: &'a [u8], line: Line<'a>, allowed: Allowed) -> Step<'a> {
    if !allowed.watching {
        return line.respond(Watched::No.line());
    }
    match Topics::from_words(Tokens::new(rest)) {
        Some(topics) if topics.tell_keys() && !allowed.listing => line.respond(Watched::No.line()),
        Some(topics) => Operation::Watch { topics }.consuming(line.bytes),
        None => line.respond(ERROR),
    }
}

/// As with topics, the beginning of a name is enough.
fn detail_from(word: &[u8]) -> Option<StatsTopic> {
    if b"on".starts_with(word) {
        Some(StatsTopic::DetailOn)
    } else if b"off".starts_with(word) {
        Some(StatsTopic::DetailOff)
    } else if b"dump".starts_with(word) {
        Some(StatsTopic::Detail(ScanCursor::default()))
    } else {
        None
    }
}

/// Commands that memcached finds by the first word after any blanks, and all unknown commands.
fn decode_rare<'a>(line: Line<'a>, limits: &WireLimits, cursor: &mut Cursor) -> Step<'a> {
    let mut words = Tokens::new(line.text).take(TOKENS_MAX);
    let Some(verb) = words.next() else {
        return line.respond(ERROR);
    };
    let argument = words.next();
    // The last word, which may be `noreply`, and the number of words.
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
        b"flush_all" if !limits.allowed.flush_all => {
            line.respond_unless(noreply, "CLIENT_ERROR flush_all not allowed")
        }
        b"flush_all" => {
            let at = match argument {
                Some(exptime) if count > 1 + usize::from(noreply) => exptime_from(exptime),
                Some(_) | None => Some(Exptime::Never),
            };
            match at {
                Some(at) => change(GlobalCommand::FlushAll { at }, noreply, line),
                None => line.respond_unless(noreply, BAD_EXPTIME),
            }
        }
        b"verbosity" => {
            let level = argument.and_then(u32_from);
            line.respond_unless(noreply, if level.is_some() { "OK" } else { BAD_FORMAT })
        }
        b"lru_crawler" if count == 3 => {
            let what = argument.unwrap_or_default();
            dump::decode(what, last, line, limits.allowed, cursor)
                .unwrap_or_else(|| line.respond_unless(noreply, tuning::answer(line.text)))
        }
        b"lru_crawler" | b"slabs" | b"lru" => {
            line.respond_unless(noreply, tuning::answer(line.text))
        }
        b"config" if line.text == CLUSTER => Operation::Cluster.consuming(line.bytes),
        b"cache_memlimit" => tuning::memory_limit(argument, noreply, line),
        b"refresh_certs" => Operation::ReadCertificates { noreply }.consuming(line.bytes),
        b"shutdown" if !limits.allowed.shutdown => {
            line.respond_unless(noreply, "SERVER_ERROR: shutdown not enabled")
        }
        b"shutdown" => match (argument, count) {
            // Every shutdown is graceful here.
            (None, _) | (Some(b"graceful"), 2) => Operation::ShutDown.consuming(0),
            (Some(_), _) => line.respond("CLIENT_ERROR invalid shutdown mode"),
        },
        // A browser: header lines would follow, each of which would be one more error.
        _ if count > 1 && last.starts_with(b"HTTP/") => Operation::Close {
            response: LocalResponse::Nothing,
        }
        .consuming(0),
        _ => line.respond_unless(noreply, ERROR),
    }
}

fn change<'a>(command: impl Into<Command<'a>>, noreply: bool, line: Line<'a>) -> Step<'a> {
    line.execute(
        command.into(),
        Envelope::Classic(ClassicEnvelope::Change { noreply }),
    )
}

fn exptime_from(token: &[u8]) -> Option<Exptime> {
    i32_from(token).map(|seconds| Exptime::from_wire(i64::from(seconds)))
}

const NOREPLY: &[u8] = b"noreply";

/// The request for the servers of the cluster.
pub(crate) const CLUSTER: &[u8] = b"config get cluster";

/// Whether the last word of a line is `noreply`; `taken` of its words are before `rest`.
fn noreply(rest: &[u8], taken: usize) -> bool {
    Tokens::new(rest)
        .take(TOKENS_MAX.saturating_sub(taken))
        .last()
        == Some(NOREPLY)
}
