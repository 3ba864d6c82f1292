//! Replies of the meta text protocol: from an outcome to a line, and back.
//!
//! A line is a code of two letters and the fields that the request's flags select, in the request's order. The
//! flags `W`, `X` and `Z`, which no request selects, come last. The flags are read again from the request, so a
//! response needs no memory.
//!
//! Source: memcached 1.6.45 `proto_parser.c`, `process_m*_cmd`, and `proto_text.c`,
//! `process_meta_command`. `LK`, for an item that another connection holds, is latchd's own.

use alloc::vec::Vec;

use super::key::{put_key, shown_form};
use super::{MetaEnvelope, Verb};
use crate::command::TTL_STEPS_MAX;
use crate::fence::Fence;
use crate::key::KeyForm;
use crate::output::Output;
use crate::reply::{
    Granted, Hit, LockInfo, Number, Refusal, Reply, Stored, TtlSeconds, TtlTrace, Win,
};
use crate::uri;
use crate::value::Value;
use crate::wire::Malformed;
use crate::wire::scan::{Tokens, reply_line_bytes, u32_from, without_line_end};
use crate::wire::status_line::{self, MISMATCH, put_line, put_number};

/// Appends the line for `reply`, and its value, if any, to `out`.
pub fn encode(envelope: &MetaEnvelope<'_>, reply: &Reply<'_>, out: &mut Output) {
    match (envelope.verb, reply) {
        (Verb::Get, Reply::Hit(hit)) => return encode_hit(envelope, hit, None, out),
        (Verb::Lock, Reply::Granted(granted)) => {
            return encode_granted(envelope, granted, None, out);
        }
        _ => {}
    }
    let out = out.copied();
    match (envelope.verb, reply) {
        (Verb::Get, Reply::Miss)
        | (Verb::Set, Reply::Stored(_))
        | (Verb::Delete, Reply::Deleted)
        | (Verb::Arithmetic, Reply::Number(_))
        | (Verb::Unlock, Reply::Unlocked)
            if envelope.quiet => {}
        (Verb::Get, Reply::Miss) => encode_code(*b"EN", envelope, out),
        (Verb::Set, Reply::Stored(Stored { cas, size })) => {
            encode_set(*b"HD", cas.number(), *size, envelope, out);
        }
        (Verb::Set, Reply::NotStored) => encode_set(*b"NS", 0, envelope.value_bytes, envelope, out),
        (Verb::Set, Reply::Exists) => encode_set(*b"EX", 0, envelope.value_bytes, envelope, out),
        (Verb::Set, Reply::NotFound) => encode_set(*b"NF", 0, envelope.value_bytes, envelope, out),
        (Verb::Delete, Reply::Deleted) | (Verb::Unlock, Reply::Unlocked) => {
            encode_code(*b"HD", envelope, out);
        }
        (Verb::Delete | Verb::Arithmetic | Verb::Lock | Verb::Unlock, Reply::NotFound) => {
            encode_code(*b"NF", envelope, out);
        }
        (Verb::Arithmetic, Reply::Number(number)) => encode_number(envelope, number, out),
        (Verb::Debug, Reply::Hit(hit)) => encode_debug(envelope, hit, out),
        (Verb::Debug, Reply::Miss) => put_line(out, "EN"),
        (Verb::Lock, Reply::Contended(lock)) => {
            encode_contended(envelope, Some(lock), lock.waiting, false, out);
        }
        (Verb::Lock, Reply::WouldDeadlock(lock)) => {
            encode_contended(envelope, Some(lock), lock.waiting, true, out);
        }
        (Verb::Lock, Reply::Withheld { waiting }) => {
            encode_contended(envelope, None, *waiting, false, out);
        }
        // No reply yet.
        (Verb::Lock | Verb::Get, Reply::Waits) => {}
        // `U` without the lock: the grant that it relies on is over.
        (Verb::Set, Reply::Refused(Refusal::NotLocked)) => {
            encode_set(*b"EX", 0, envelope.value_bytes, envelope, out);
        }
        (Verb::Delete | Verb::Arithmetic | Verb::Unlock, Reply::Exists)
        | (Verb::Delete | Verb::Arithmetic, Reply::Refused(Refusal::NotLocked)) => {
            encode_code(*b"EX", envelope, out);
        }
        (_, Reply::Refused(Refusal::Locked)) => encode_code(*b"LK", envelope, out),
        (Verb::Arithmetic | Verb::Delete, Reply::Refused(Refusal::OutOfMemory)) => {
            put_line(out, status_line::OUT_OF_MEMORY);
        }
        (_, Reply::Refused(refusal)) => put_line(out, status_line::refusal(*refusal)),
        (_, Reply::KeyOf(partition)) => status_line::put_key_of(partition, out),
        _ => put_line(out, MISMATCH),
    }
}

/// A code, and the fields for every verb: opaque and key.
fn encode_code(code: [u8; 2], envelope: &MetaEnvelope<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&code);
    for word in Tokens::new(envelope.flags) {
        put_reflected(word, envelope, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a flag that is returned as it was sent; nothing for any other.
fn put_reflected(word: &[u8], envelope: &MetaEnvelope<'_>, out: &mut Vec<u8>) {
    match word.first() {
        Some(b'O') => put_opaque(word, out),
        Some(b'k') => put_key_flag(envelope.key.as_bytes(), envelope.key_form, out),
        _ => {}
    }
}

fn encode_set(
    code: [u8; 2],
    cas: u64,
    size: usize,
    envelope: &MetaEnvelope<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&code);
    for word in Tokens::new(envelope.flags) {
        match word.first() {
            Some(b'c') => put_flag(b'c', cas, out),
            Some(b's') => put_flag(b's', size, out),
            _ => put_reflected(word, envelope, out),
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn encode_number(envelope: &MetaEnvelope<'_>, number: &Number, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number.value).as_bytes();
    put_head(envelope.with_value, digits.len(), out);
    let mut ttl = TtlWalk::new(number.ttl);
    for word in Tokens::new(envelope.flags) {
        match word.first() {
            Some(b'c') => put_flag(b'c', number.cas.number(), out),
            Some(b't') => put_ttl(ttl.now(), out),
            Some(b'T' | b'N') => ttl.step(),
            _ => put_reflected(word, envelope, out),
        }
    }
    out.extend_from_slice(b"\r\n");
    if envelope.with_value {
        out.extend_from_slice(digits);
        out.extend_from_slice(b"\r\n");
    }
}

/// The fields of a grant that flags of its request show.
#[derive(Clone, Copy)]
struct Grant {
    fence: Fence,
    /// `None` shows nothing.
    hold_ms: Option<u64>,
}

/// A lock that was granted, with the item if there is one. Without an item, `v` shows nothing. `H` shows the hold, if
/// there is one.
pub(crate) fn encode_granted(
    envelope: &MetaEnvelope<'_>,
    granted: &Granted<'_>,
    hold_ms: Option<u64>,
    out: &mut Output,
) {
    let fence = granted.fence;
    match &granted.item {
        // It brings nothing new unless the value is requested.
        _ if envelope.quiet && !envelope.with_value => {}
        Some(hit) => encode_hit(envelope, hit, Some(Grant { fence, hold_ms }), out),
        None if envelope.quiet => {}
        None => {
            let out = out.copied();
            out.extend_from_slice(b"HD");
            for word in Tokens::new(envelope.flags) {
                match word.first() {
                    Some(b'F') => put_flag(b'F', fence.number(), out),
                    Some(b'H') => put_hold(hold_ms, out),
                    _ => put_reflected(word, envelope, out),
                }
            }
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The holder of the requested lock, for how long it has held, and the number of waiters; also whether the
/// refusal is because waiting `would_deadlock`. A withheld lock has no holder: both numbers are 0. The flag `m` shows
/// the metadata as in a URL, if there is some.
fn encode_contended(
    envelope: &MetaEnvelope<'_>,
    lock: Option<&LockInfo<'_>>,
    waiting: usize,
    would_deadlock: bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"LK");
    put_flag(b'h', lock.map_or(0, |lock| lock.holder.number()), out);
    put_flag(b'a', lock.map_or(0, |lock| lock.held_s), out);
    put_flag(b'n', waiting, out);
    if would_deadlock {
        out.extend_from_slice(b" d");
    }
    for word in Tokens::new(envelope.flags) {
        match (word.first(), lock.and_then(|lock| lock.metadata)) {
            (Some(b'm'), Some(metadata)) => {
                out.extend_from_slice(b" m");
                uri::put(metadata, out);
            }
            _ => put_reflected(word, envelope, out),
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn encode_hit(envelope: &MetaEnvelope<'_>, hit: &Hit<'_>, grant: Option<Grant>, out: &mut Output) {
    // A client that knows this version (`C`) has the value.
    let with_value = envelope.with_value && !hit.unchanged;
    // One allocation for the whole response: a head line without key, opaque and fence is at most 120 bytes.
    let shown = if with_value {
        hit.value
    } else {
        Value::default()
    };
    out.reserve(128, shown);
    put_hit_line(envelope, hit, grant, with_value, out.copied());
    if with_value {
        out.push_value(hit.value);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the line of a hit, line end included; with the `grant` of its lock, if it was acquired.
fn put_hit_line(
    envelope: &MetaEnvelope<'_>,
    hit: &Hit<'_>,
    grant: Option<Grant>,
    with_value: bool,
    out: &mut Vec<u8>,
) {
    put_head(with_value, hit.value.len(), out);
    if !envelope.flags.is_empty() {
        put_fields(envelope, hit, grant, out);
    }
    if hit.win == Win::Sent {
        out.extend_from_slice(b" Z");
    }
    if hit.stale {
        out.extend_from_slice(b" X");
    }
    if hit.win == Win::Won {
        out.extend_from_slice(b" W");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the fields that the flags of a request show.
fn put_fields(envelope: &MetaEnvelope<'_>, hit: &Hit<'_>, grant: Option<Grant>, out: &mut Vec<u8>) {
    let mut ttl = TtlWalk::new(hit.ttl);
    for word in Tokens::new(envelope.flags) {
        match word.first() {
            Some(b'T' | b'N' | b'R') => ttl.step(),
            Some(b'F') => {
                if let Some(grant) = grant {
                    put_flag(b'F', grant.fence.number(), out);
                }
            }
            Some(b'H') => {
                if let Some(grant) = grant {
                    put_hold(grant.hold_ms, out);
                }
            }
            Some(b's') => put_flag(b's', hit.value.len(), out),
            Some(b't') => put_ttl(ttl.now(), out),
            Some(b'c') => put_flag(b'c', hit.cas.number(), out),
            Some(b'f') => put_flag(b'f', hit.client_flags, out),
            Some(b'l') => put_flag(b'l', hit.last_access_s, out),
            Some(b'h') => put_flag(b'h', u8::from(hit.fetched), out),
            Some(b'O') => put_opaque(word, out),
            Some(b'k') => {
                let form = shown_form(hit.key, hit.key_form, envelope.key_form);
                put_key_flag(hit.key, form, out);
            }
            _ => {}
        }
    }
}

/// `cls` is the slab class in memcached; there is one here.
fn encode_debug(envelope: &MetaEnvelope<'_>, hit: &Hit<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ME ");
    let form = shown_form(hit.key, hit.key_form, envelope.key_form);
    put_key(hit.key, form, out);
    out.extend_from_slice(b" exp=");
    put_ttl_number(hit.ttl.after(TTL_STEPS_MAX), out);
    out.extend_from_slice(b" la=");
    put_number(out, hit.last_access_s);
    out.extend_from_slice(b" cas=");
    put_number(out, hit.cas.number());
    out.extend_from_slice(if hit.fetched {
        b" fetch=yes"
    } else {
        b" fetch=no"
    });
    out.extend_from_slice(b" cls=1 size=");
    put_number(out, hit.memory_bytes);
    if let Some(lock) = &hit.lock {
        out.extend_from_slice(b" lock=");
        put_number(out, lock.holder.number());
        out.extend_from_slice(b" fence=");
        put_number(out, lock.fence.number());
        out.extend_from_slice(b" held=");
        put_number(out, lock.held_s);
        out.extend_from_slice(b" waiting=");
        put_number(out, lock.waiting);
        out.extend_from_slice(if lock.is_shared {
            b" mode=s"
        } else {
            b" mode=x"
        });
        if let Some(metadata) = lock.metadata {
            out.extend_from_slice(b" metadata=");
            uri::put(metadata, out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The TTL at each place of a request: it changes with the flags that change it.
struct TtlWalk {
    trace: TtlTrace,
    steps: usize,
}

impl TtlWalk {
    const fn new(trace: TtlTrace) -> Self {
        Self { trace, steps: 0 }
    }

    const fn step(&mut self) {
        self.steps += 1;
    }

    fn now(&self) -> TtlSeconds {
        self.trace.after(self.steps)
    }
}

#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "each command calls it, and a call costs as much as it does"
)]
fn put_head(with_value: bool, value_bytes: usize, out: &mut Vec<u8>) {
    if with_value {
        out.extend_from_slice(b"VA ");
        put_number(out, value_bytes);
    } else {
        out.extend_from_slice(b"HD");
    }
}

fn put_flag(letter: u8, number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b' ', letter]);
    put_number(out, number);
}

fn put_hold(hold_ms: Option<u64>, out: &mut Vec<u8>) {
    if let Some(hold_ms) = hold_ms {
        put_flag(b'H', hold_ms, out);
    }
}

/// Appends `MN`, with the hold if there is one.
pub(crate) fn encode_noop(hold_ms: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"MN");
    put_hold(hold_ms, out);
    out.extend_from_slice(b"\r\n");
}

fn put_ttl(ttl: TtlSeconds, out: &mut Vec<u8>) {
    out.extend_from_slice(b" t");
    put_ttl_number(ttl, out);
}

fn put_ttl_number(ttl: TtlSeconds, out: &mut Vec<u8>) {
    match ttl {
        Some(seconds) => put_number(out, seconds),
        None => out.extend_from_slice(b"-1"),
    }
}

fn put_opaque(word: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(word);
}

fn put_key_flag(key: &[u8], form: KeyForm, out: &mut Vec<u8>) {
    out.extend_from_slice(b" k");
    put_key(key, form, out);
    if form == KeyForm::Binary {
        out.extend_from_slice(b" b");
    }
}

/// A server's response to a meta command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetaResponse<'a> {
    /// The outcome of the request. The other fields depend on its flags.
    pub code: Code,
    /// The words behind the code: a letter and a token each, in the order of the request. For [`Code::Debug`],
    /// the key and `name=value` pairs.
    pub flags: &'a [u8],
    /// The value, with [`Code::Value`]; empty otherwise.
    pub value: &'a [u8],
}

/// The two letters at the start of a meta response.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Code {
    /// `HD`: success.
    Done,
    /// `VA`: success, and a value follows.
    Value,
    /// `EN`: there is no such item to read.
    Miss,
    /// `NF`: there is no such item to change.
    NotFound,
    /// `NS`: the mode did not allow it.
    NotStored,
    /// `EX`: the item has another version.
    Exists,
    /// `LK`: a connection holds the key's lock; another one, or for `ml` any.
    Locked,
    /// `ME`: everything about an item.
    Debug,
    /// `MN`: all earlier requests were answered.
    Noop,
}

impl Code {
    const fn from_word(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"HD" => Self::Done,
            b"VA" => Self::Value,
            b"EN" => Self::Miss,
            b"NF" => Self::NotFound,
            b"NS" => Self::NotStored,
            b"EX" => Self::Exists,
            b"LK" => Self::Locked,
            b"ME" => Self::Debug,
            b"MN" => Self::Noop,
            _ => return None,
        })
    }
}

impl<'a> MetaResponse<'a> {
    /// Reads one response from the front of `input`, and returns it with its length; `None` if it is not
    /// complete.
    ///
    /// # Errors
    /// [`Malformed`] if it is not a response to a meta command. It may be an error line of the classic
    /// protocol, which [`ClassicResponse`](crate::wire::classic::reply::ClassicResponse) reads.
    pub fn decode(input: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some(line_bytes) = reply_line_bytes(input)? else {
            return Ok(None);
        };
        let (line, body) = input.split_at_checked(line_bytes).ok_or(Malformed)?;
        let mut words = Tokens::new(without_line_end(line));
        let code = words.next().and_then(Code::from_word).ok_or(Malformed)?;
        if code != Code::Value {
            return Ok(Some((
                Self {
                    code,
                    flags: words.rest(),
                    value: &[],
                },
                line_bytes,
            )));
        }
        let value_bytes = words.next().and_then(u32_from).ok_or(Malformed)?;
        let value_bytes = usize::try_from(value_bytes).map_err(|_| Malformed)?;
        let body_bytes = value_bytes.checked_add(2).ok_or(Malformed)?;
        let Some(body) = body.get(..body_bytes) else {
            return Ok(None);
        };
        let value = body.strip_suffix(b"\r\n").ok_or(Malformed)?;
        Ok(Some((
            Self {
                code,
                flags: words.rest(),
                value,
            },
            line_bytes + body_bytes,
        )))
    }

    /// The token of the flag with this letter: empty for a bare letter, `None` if it is not there.
    #[must_use]
    pub fn flag(&self, letter: u8) -> Option<&'a [u8]> {
        Tokens::new(self.flags).find_map(|word| match word.split_first() {
            Some((first, token)) if *first == letter => Some(token),
            _ => None,
        })
    }
}
