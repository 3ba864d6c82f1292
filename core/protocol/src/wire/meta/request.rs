//! Requests of the meta text protocol: from a line to a command, and back.
//!
//! A line is read once, and all its errors are known before its command is handed out, so an error has no side
//! effect. If there are several errors, those of the flags come first (see `options`), then the mode, the
//! length of the value, the length of the opaque.
//!
//! Source: memcached 1.6.45 `proto_parser.c`, `process_m*_cmd`; `ml` and `mu` are latchd's own. Where we differ: docs/PROTOCOL.md,
//! "Meta text".

use alloc::vec::Vec;

use super::key::{listed_form, put_key};
use super::options::{BadLine, BareFlags, Options, flag_bit};
use super::{Flag, KeyBuffer, MetaEnvelope, Verb};
use crate::command::{
    Acquire, Arithmetic, Command, Delete, Direction, Get, Guard, ItemCommand, LockMetadata,
    OnMissing, Release, ReleaseOf, Removal, Set, SetMode, Wait,
};
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::stats::Unstored;
use crate::time::Exptime;
use crate::wire::Envelope;
use crate::wire::chosen_limits::WireLimits;
use crate::wire::limits::TOKENS_MAX;
use crate::wire::line::Line;
use crate::wire::local::LocalResponse;
use crate::wire::scan::{Tokens, announced_bytes_from, split_token};
use crate::wire::status_line::{BAD_FORMAT, put_line, put_number};
use crate::wire::step::{Operation, Step};

const LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long";
const WAIT_IN_SESSION: &str = "CLIENT_ERROR w is not allowed with j";
const TWO_GRANTS: &str = "CLIENT_ERROR F is not allowed with G";
const BAD_ARITHMETIC: &str = "CLIENT_ERROR invalid or duplicate flag";

impl Verb {
    /// The verb with this name; `None` if it is not a meta command about a key.
    #[must_use]
    pub const fn from_word(word: &[u8]) -> Option<Self> {
        match word {
            b"mg" => Some(Self::Get),
            b"ms" => Some(Self::Set),
            b"md" => Some(Self::Delete),
            b"ma" => Some(Self::Arithmetic),
            b"me" => Some(Self::Debug),
            b"ml" => Some(Self::Lock),
            b"mu" => Some(Self::Unlock),
            _ => None,
        }
    }

    const fn word(self) -> &'static [u8] {
        match self {
            Self::Get => b"mg",
            Self::Set => b"ms",
            Self::Delete => b"md",
            Self::Arithmetic => b"ma",
            Self::Debug => b"me",
            Self::Lock => b"ml",
            Self::Unlock => b"mu",
        }
    }
}

/// Reads the request of a line, with `rest` behind its `verb`. `key_buffer` takes a binary key.
#[must_use]
pub fn decode<'a>(
    verb: Verb,
    rest: &'a [u8],
    line: Line<'a>,
    limits: &WireLimits,
    key_buffer: &'a mut KeyBuffer,
) -> Step<'a> {
    let Some((word, flags)) = split_token(rest) else {
        return line.respond(BAD_FORMAT);
    };
    if verb == Verb::Debug {
        return decode_debug(word, flags, line, key_buffer);
    }
    let Some(key) = Key::new(word) else {
        return refuse_long_key(verb, flags, line);
    };
    match verb {
        Verb::Get => match BareFlags::read(flags) {
            Some(bare) => decode_bare_get(key, bare, flags, line),
            None => decode_get(key, flags, line, limits, key_buffer),
        },
        Verb::Set => decode_set(key, flags, line, limits, key_buffer),
        Verb::Delete => decode_delete(key, flags, line, key_buffer),
        Verb::Arithmetic => decode_arithmetic(key, flags, line, key_buffer),
        Verb::Debug | Verb::Lock | Verb::Unlock => {
            decode_of_lock(verb, key, flags, line, limits, key_buffer)
        }
    }
}

/// The error of a line with a key that is too long: a word that cannot be a flag comes before it.
#[cold]
fn refuse_long_key<'a>(verb: Verb, text: &'a [u8], line: Line<'a>) -> Step<'a> {
    let (text, taken, body_bytes) = match verb {
        Verb::Set => match announced(text) {
            Some((value_bytes, text)) => (text, 3, value_bytes + 2),
            None => return line.respond(BAD_FORMAT),
        },
        Verb::Get | Verb::Delete | Verb::Arithmetic | Verb::Debug | Verb::Lock | Verb::Unlock => {
            (text, 2, 0)
        }
    };
    if !can_be_flags(text, taken) {
        return line.respond(BAD_FORMAT);
    }
    if verb == Verb::Arithmetic {
        return line.respond(BAD_ARITHMETIC);
    }
    line.respond_past(body_bytes, LocalResponse::Line(BAD_FORMAT))
}

/// Whether each word of `text`, behind `taken` others, begins as a flag may.
fn can_be_flags(text: &[u8], taken: usize) -> bool {
    let mut words = Tokens::new(text).take(TOKENS_MAX - taken);
    words.all(|word| word.first().copied().and_then(flag_bit).is_some())
}

/// The length of the value that a set announces, and the flags behind it.
#[inline]
fn announced(text: &[u8]) -> Option<(usize, &[u8])> {
    let (announced, flags) = split_token(text)?;
    Some((announced_bytes_from(announced)?, flags))
}

fn bad_line<'a>(bad: &BadLine, line: Line<'a>, body_bytes: usize) -> Step<'a> {
    match bad {
        BadLine::Words => line.respond(BAD_FORMAT),
        BadLine::Flags(text) => line.respond_past(body_bytes, LocalResponse::Line(text)),
    }
}

/// A get that only shows fields.
#[inline]
fn decode_bare_get<'a>(key: Key<'a>, bare: BareFlags, text: &'a [u8], line: Line<'a>) -> Step<'a> {
    let command = Command::from(Get {
        bump: bare.bump,
        recaches: true,
        ..Get::new(key)
    });
    line.execute(command, bare.envelope(key, text))
}

fn decode_get<'a>(
    key: Key<'a>,
    text: &'a [u8],
    line: Line<'a>,
    limits: &WireLimits,
    key_buffer: &'a mut KeyBuffer,
) -> Step<'a> {
    let mut flags = Options::new(Verb::Get, key);
    if let Err(bad) = flags.read(text, 2, key_buffer) {
        return bad_line(&bad, line, 0);
    }
    if flags.long_opaque {
        return line.respond(LONG_OPAQUE);
    }
    let command = Command::from(Get {
        key: flags.key,
        key_form: flags.key_form,
        steps: flags.steps,
        bump: flags.bump,
        known_cas: flags.cas.and_then(Cas::new),
        new_cas: flags.new_cas,
        recaches: true,
        lock: false,
        bound_to_owner: flags.bound_to_owner,
        wait_ms: if limits.waits { flags.wait_ms } else { 0 },
    });
    line.execute(command, flags.envelope(text, 0))
}

fn decode_set<'a>(
    key: Key<'a>,
    rest: &'a [u8],
    line: Line<'a>,
    limits: &WireLimits,
    key_buffer: &'a mut KeyBuffer,
) -> Step<'a> {
    let Some((value_bytes, text)) = announced(rest) else {
        return line.respond(BAD_FORMAT);
    };
    let body_bytes = value_bytes + 2;
    let refuse = |text| line.respond_past(body_bytes, LocalResponse::Line(text));
    let mut flags = Options::new(Verb::Set, key);
    if let Err(bad) = flags.read(text, 3, key_buffer) {
        return bad_line(&bad, line, body_bytes);
    }
    let Some((mode, exptime)) = set_mode(&flags) else {
        return refuse("CLIENT_ERROR invalid mode for ms M token");
    };
    let guard = match mode {
        // `C` makes all of these a compare-and-swap.
        SetMode::Set | SetMode::Replace => match flags.guard() {
            Guard::Match(cas) if flags.invalidate => Guard::MatchElseStale(cas),
            guard @ (Guard::None | Guard::Match(_) | Guard::MatchElseStale(_) | Guard::Never) => {
                guard
            }
        },
        SetMode::Add => Guard::None,
        SetMode::Append { .. } | SetMode::Prepend { .. } => flags.guard_unless_zero(),
    };
    // With a version to compare, an item is implied; and a miss is then `NF`, not `NS`.
    let mode = if mode == SetMode::Replace && guard != Guard::None {
        SetMode::Set
    } else {
        mode
    };
    let envelope = flags.envelope(text, value_bytes);
    // Before the value has arrived: it is skipped, and the old value of the key must not remain.
    if value_bytes > limits.value_bytes_max {
        // Under a grant or in a session, nothing changes unless that is in force, which is unknown here.
        if flags.fence.is_some() || flags.unlocks || flags.session.is_some() {
            return line.respond_unstored(body_bytes, false, Unstored::TooLarge);
        }
        let command = Command::Item(ItemCommand::SetTooLarge { key: flags.key });
        return Operation::Execute { command, envelope }.consuming(line.bytes + body_bytes);
    }
    if flags.long_opaque {
        return refuse(LONG_OPAQUE);
    }
    let Some(body) = line.behind.get(..body_bytes) else {
        return line.await_body(body_bytes);
    };
    let Some(value) = body.strip_suffix(b"\r\n") else {
        return line.respond_unstored(body_bytes, false, Unstored::BadChunk);
    };
    let command = Command::from(Set {
        key: flags.key,
        key_form: flags.key_form,
        value: value.into(),
        client_flags: flags.client_flags,
        exptime,
        mode,
        guard,
        new_cas: flags.new_cas,
        fence: flags.fence,
        lock: flags.lock_after(),
    });
    line.execute_in(flags.session, body_bytes, command, envelope)
}

/// The mode of `ms`, and its exptime: an append that may create takes that of `N`.
fn set_mode(flags: &Options<'_>) -> Option<(SetMode, Exptime)> {
    let (missing, extended) = match flags.vivify {
        Some(exptime) => (OnMissing::Create, exptime),
        None => (OnMissing::Refuse, flags.exptime()),
    };
    Some(match flags.mode {
        None | Some(b'S') => (SetMode::Set, flags.exptime()),
        Some(b'E') => (SetMode::Add, flags.exptime()),
        Some(b'R') => (SetMode::Replace, flags.exptime()),
        Some(b'A') => (SetMode::Append { missing }, extended),
        Some(b'P') => (SetMode::Prepend { missing }, extended),
        Some(_) => return None,
    })
}

fn decode_delete<'a>(
    key: Key<'a>,
    text: &'a [u8],
    line: Line<'a>,
    key_buffer: &'a mut KeyBuffer,
) -> Step<'a> {
    let mut flags = Options::new(Verb::Delete, key);
    if let Err(bad) = flags.read(text, 2, key_buffer) {
        return bad_line(&bad, line, 0);
    }
    if flags.long_opaque {
        return line.respond(LONG_OPAQUE);
    }
    let (exptime, client_flags) = (flags.exptime(), flags.client_flags);
    let command = Command::from(Delete {
        key: flags.key,
        key_form: flags.key_form,
        guard: flags.guard(),
        removal: match (flags.clear, flags.invalidate) {
            (false, false) => Removal::Remove,
            (false, true) => Removal::MarkStale {
                exptime: flags.touch,
            },
            (true, false) => Removal::Clear {
                exptime,
                client_flags,
            },
            (true, true) => Removal::ClearAndMarkStale {
                exptime,
                client_flags,
            },
        },
        new_cas: flags.new_cas,
        fence: flags.fence,
        lock: flags.lock_after(),
    });
    line.execute_in(flags.session, 0, command, flags.envelope(text, 0))
}

fn decode_arithmetic<'a>(
    key: Key<'a>,
    text: &'a [u8],
    line: Line<'a>,
    key_buffer: &'a mut KeyBuffer,
) -> Step<'a> {
    let mut flags = Options::new(Verb::Arithmetic, key);
    match flags.read(text, 2, key_buffer) {
        Ok(()) => {}
        Err(BadLine::Words) => return line.respond(BAD_FORMAT),
        // For any error in the flags: memcached has only this message.
        Err(BadLine::Flags(_)) => return line.respond(BAD_ARITHMETIC),
    }
    let direction = match flags.mode {
        None | Some(b'I' | b'+') => Direction::Increment,
        Some(b'D' | b'-') => Direction::Decrement,
        Some(_) => return line.respond("CLIENT_ERROR invalid mode for ma M token"),
    };
    if flags.long_opaque {
        return line.respond(LONG_OPAQUE);
    }
    let command = Command::from(Arithmetic {
        key: flags.key,
        key_form: flags.key_form,
        direction,
        delta: flags.delta,
        initial: flags.initial,
        steps: flags.steps,
        guard: flags.guard_unless_zero(),
        new_cas: flags.new_cas,
        fence: flags.fence,
        lock: flags.lock_after(),
    });
    line.execute_in(flags.session, 0, command, flags.envelope(text, 0))
}

/// `ml` and `mu`.
fn decode_of_lock<'a>(
    verb: Verb,
    key: Key<'a>,
    text: &'a [u8],
    line: Line<'a>,
    limits: &WireLimits,
    key_buffer: &'a mut KeyBuffer,
) -> Step<'a> {
    let mut flags = Options::new(verb, key);
    if let Err(bad) = flags.read(text, 2, key_buffer) {
        return bad_line(&bad, line, 0);
    }
    if flags.long_opaque {
        return line.respond(LONG_OPAQUE);
    }
    // A wait would delay the other clients of a shared connection.
    if flags.session.is_some() && flags.wait_ms > 0 {
        return line.respond(WAIT_IN_SESSION);
    }
    let command = if verb == Verb::Lock {
        ItemCommand::Acquire(Acquire {
            key: flags.key,
            mode: flags.lock_mode,
            lease: flags.lease,
            metadata: metadata_in(text),
            needs_item: flags.clear,
            reads_item: flags.reads_item,
            wait: match flags.wait_ms {
                0 => Wait::No,
                _ if !limits.waits => Wait::No,
                ms => Wait::UpTo { ms },
            },
        })
    } else {
        let of = match (flags.own_fence, flags.fence) {
            (None, None) => ReleaseOf::Own,
            (Some(fence), None) => ReleaseOf::OwnGrant(fence),
            (None, Some(fence)) => ReleaseOf::Grant(fence),
            (Some(_), Some(_)) => return line.respond(TWO_GRANTS),
        };
        let key = flags.key;
        ItemCommand::Release(Release { key, of })
    };
    let envelope = flags.envelope(text, 0);
    if flags.shows_hold {
        return Operation::ExecuteAs {
            token: flags.session,
            command: command.into(),
            envelope,
        }
        .consuming(line.bytes);
    }
    line.execute_in(flags.session, 0, command.into(), envelope)
}

/// The metadata of the lock in the flags of a legal `ml`.
fn metadata_in(text: &[u8]) -> Option<LockMetadata<'_>> {
    let mut words = Tokens::new(text);
    let base64 = words.find_map(|word| word.strip_prefix(b"M"))?;
    LockMetadata::from_base64(base64)
}

/// `me` has one flag, `b`, and it must be the first; the others are ignored.
fn decode_debug<'a>(
    key: &'a [u8],
    text: &'a [u8],
    line: Line<'a>,
    key_buffer: &'a mut KeyBuffer,
) -> Step<'a> {
    let binary = Tokens::new(text).next() == Some(b"b");
    if !can_be_flags(text, 2) {
        return line.respond(BAD_FORMAT);
    }
    let (plain, key_form) = (
        Key::new(key),
        if binary {
            KeyForm::Binary
        } else {
            KeyForm::Plain
        },
    );
    let key = match key_form {
        KeyForm::Plain => plain,
        KeyForm::Binary => plain.and_then(|_| key_buffer.decode(key)),
    };
    let Some(key) = key else {
        return line.respond(BAD_FORMAT);
    };
    let envelope = Envelope::Meta(MetaEnvelope {
        verb: Verb::Debug,
        key,
        key_form,
        flags: &[],
        quiet: false,
        with_value: false,
        value_bytes: 0,
    });
    let command = Command::from(Get {
        bump: false,
        key_form,
        ..Get::new(key)
    });
    line.execute(command, envelope)
}

/// A meta command, written by a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetaRequest<'a> {
    /// The command.
    pub verb: Verb,
    /// The key of the item. It is written in base64 if `b` is among the flags. If it could not stand on a line,
    /// `b` is added.
    pub key: Key<'a>,
    /// The options, and the fields to show, in this order; each letter once.
    pub flags: &'a [Flag<'a>],
    /// The value for `ms`; the other verbs have none.
    pub value: &'a [u8],
}

impl MetaRequest<'_> {
    /// Appends the request's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let Self {
            verb,
            key,
            flags,
            value,
        } = *self;
        let says_binary = flags.contains(&Flag::BinaryKey);
        let key_form = if says_binary {
            KeyForm::Binary
        } else {
            listed_form(key.as_bytes())
        };
        out.extend_from_slice(verb.word());
        out.push(b' ');
        put_key(key.as_bytes(), key_form, out);
        if verb == Verb::Set {
            out.push(b' ');
            put_number(out, value.len());
        }
        if key_form == KeyForm::Binary && !says_binary {
            Flag::BinaryKey.encode(out);
        }
        for flag in flags {
            flag.encode(out);
        }
        out.extend_from_slice(b"\r\n");
        if verb == Verb::Set {
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends `mn H`. Its response shows the hold as well.
pub fn encode_hold(out: &mut Vec<u8>) {
    put_line(out, "mn H");
}

/// Appends `mn`. Its response `MN` shows a client that all earlier requests were answered.
pub fn encode_noop(out: &mut Vec<u8>) {
    put_line(out, "mn");
}
