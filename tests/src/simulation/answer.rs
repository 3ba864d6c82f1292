//! The bytes of a reply on its client's wire (N1).
//!
//! The bytes are put together here, not by the core's encoders. Only the frame of a packet is the core's.
//!
//! Source: docs/PROTOCOL.md.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use latchd_harness::alphabet::{SmallArithmetic, SmallDelete, SmallGet, SmallRequest, SmallSet};
use latchd_harness::wording::{Protocol, meta};
use latchd_protocol::command::{Command, TTL_STEPS_MAX};
use latchd_protocol::item::Cas;
use latchd_protocol::key::KeyForm;
use latchd_protocol::reply::{Hit, LockInfo, Refusal, Reply, Win};
use latchd_protocol::stats::StatsTopic;
use latchd_protocol::wire::VERSION;
use latchd_protocol::wire::binary::reply::ResponsePacket;
use latchd_protocol::wire::binary::{Opcode, Status};

use super::ask::{Ask, What};

/// So that a line reads as one.
macro_rules! put {
    ($out:expr, $($words:tt)*) => {
        write!($out, $($words)*).expect("a vector takes it")
    };
}

impl Ask {
    /// Appends the bytes of `reply` to its command at `place`; `written` is the command's text for
    /// that key.
    ///
    /// # Errors
    /// No such request has such a reply.
    pub(super) fn answer(
        &self,
        place: usize,
        written: &Command<'_>,
        reply: &Reply<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let is_said = match (self.protocol, written) {
            _ if *reply == Reply::Waits => true,
            (Protocol::Classic, _) => self.style.quiet || self.classic(place, reply, out),
            (Protocol::Meta, Command::Item(command)) => {
                let mut line = Vec::new();
                meta(command, &self.style, &mut line);
                let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(0);
                let answer = Meta {
                    ask: self,
                    key: command.key().as_bytes(),
                    line: &line[..end - 1],
                };
                answer.put(reply, out)
            }
            (Protocol::Meta, Command::Global(_)) => false,
            (Protocol::Binary, _) => self.packets(written, reply, out),
        };
        if is_said {
            return Ok(());
        }
        Err(format!("{self} is not to be answered {reply:?}"))
    }

    /// Appends the reply to a request that the core does not see.
    pub(super) fn answer_local(&self, out: &mut Vec<u8>) {
        let line = match (self.protocol, self.what) {
            (Protocol::Binary, What::Nonsense) => return,
            (Protocol::Binary, What::Version) => {
                return self.success(b"", b"", VERSION.as_bytes(), None, out);
            }
            (Protocol::Binary, What::Noop | What::Quit) => return self.done(out),
            (Protocol::Binary, What::Unknown) => return self.error(Status::UNKNOWN_COMMAND, out),
            (Protocol::Binary, _) => return self.error(Status::TOO_LARGE, out),
            (_, What::Version) => return put!(out, "VERSION {VERSION}\r\n"),
            (_, What::Noop) => "MN",
            (_, What::Quit) => return,
            (_, What::Unknown) => "ERROR",
            (_, What::BadBody) => "CLIENT_ERROR bad data chunk",
            (_, What::Nonsense) => "CLIENT_ERROR line too long",
            // A value over the limit.
            (Protocol::Classic, _) if self.style.quiet => return,
            _ => TOO_LARGE,
        };
        put!(out, "{line}\r\n");
    }

    fn classic(&self, place: usize, reply: &Reply<'_>, out: &mut Vec<u8>) -> bool {
        match (self.what, reply) {
            (What::Get, Reply::Hit(_) | Reply::Miss) => {
                if let Reply::Hit(hit) = reply {
                    put_value(hit, self.style.with_cas, out);
                }
                if place + 1 == self.key_count {
                    put!(out, "END\r\n");
                }
            }
            (What::Touch, Reply::Hit(_)) => put!(out, "TOUCHED\r\n"),
            (What::Touch, Reply::Miss) => put!(out, "NOT_FOUND\r\n"),
            (What::Keys, Reply::Keys(page)) => {
                for item in &page.items {
                    out.extend([b"VALUE ", item.key, b"\r\n"].concat());
                }
                if page.next.is_none() {
                    put!(out, "END\r\n");
                }
            }
            (What::Stats, Reply::Stats(report)) => {
                report.each(StatsTopic::General, |name, value| {
                    put!(out, "STAT {name} {value}\r\n");
                });
                put!(out, "END\r\n");
            }
            (What::StatsReset, Reply::Ok) => put!(out, "RESET\r\n"),
            (What::Increment | What::Decrement, Reply::Refused(Refusal::OutOfMemory)) => {
                put!(out, "{OUT_OF_MEMORY}\r\n");
            }
            (_, Reply::Refused(refusal)) => put!(out, "{}\r\n", refused(*refusal)),
            (_, Reply::Number(number)) => put!(out, "{}\r\n", number.value),
            (_, reply) => {
                let word = match reply {
                    Reply::Stored(_) => "STORED",
                    Reply::NotStored => "NOT_STORED",
                    Reply::Exists => "EXISTS",
                    Reply::NotFound => "NOT_FOUND",
                    Reply::Deleted => "DELETED",
                    Reply::Locked | Reply::Unlocked | Reply::Ok => "OK",
                    _ => return false,
                };
                put!(out, "{word}\r\n");
            }
        }
        true
    }

    fn packets(&self, written: &Command<'_>, reply: &Reply<'_>, out: &mut Vec<u8>) -> bool {
        let with_key = self.style.with_key && matches!(self.what, What::Get | What::LockAndGet);
        match reply {
            Reply::Hit(hit) => {
                let value = &hit.value[..];
                let value = if self.what == What::Touch { b"" } else { value };
                let key = if with_key { hit.key } else { b"" };
                let flags = hit.client_flags.to_be_bytes();
                self.success(&flags, key, value, Some(hit.cas), out);
            }
            Reply::Miss if self.what == What::LockAndGet => self.error(Status::NOT_FOUND, out),
            Reply::Miss if self.style.quiet => {}
            Reply::Miss if with_key => {
                let key = written.key().map_or(&b""[..], |key| key.as_bytes());
                self.packet(Status::NOT_FOUND, (b"", key, b""), None, out);
            }
            Reply::Stored(stored) if !self.style.quiet => {
                self.success(b"", b"", b"", Some(stored.cas), out);
            }
            Reply::Number(number) if !self.style.quiet => {
                let value = number.value.to_be_bytes();
                self.success(b"", b"", &value, Some(number.cas), out);
            }
            Reply::Stored(_) | Reply::Number(_) => {}
            Reply::Deleted | Reply::Locked | Reply::Unlocked | Reply::Ok => self.done(out),
            Reply::NotStored => self.error(
                match self.what {
                    What::Add => Status::EXISTS,
                    What::Replace | What::ReplaceAndUnlock => Status::NOT_FOUND,
                    _ => Status::NOT_STORED,
                },
                out,
            ),
            Reply::Exists => self.error(Status::EXISTS, out),
            Reply::Miss | Reply::NotFound => self.error(Status::NOT_FOUND, out),
            Reply::Keys(page) => {
                for item in &page.items {
                    self.success(b"", item.key, b"", None, out);
                }
                if page.next.is_none() {
                    self.success(b"", b"", b"", None, out);
                }
            }
            Reply::Stats(report) => {
                report.each(StatsTopic::General, |name, value| {
                    self.success(b"", name.as_bytes(), value.as_bytes(), None, out);
                });
                self.success(b"", b"", b"", None, out);
            }
            Reply::Refused(refusal) => self.refusal(*refusal, out),
            _ => return false,
        }
        true
    }

    fn refusal(&self, refusal: Refusal, out: &mut Vec<u8>) {
        let counts = matches!(self.what, What::Increment | What::Decrement);
        let why: &[u8] = match refusal {
            Refusal::Locked => return self.error(Status::LOCKED, out),
            Refusal::NotLocked => return self.error(Status::NOT_LOCKED, out),
            Refusal::NotLockedNotFound => return self.error(Status::NOT_FOUND, out),
            Refusal::TooLarge => return self.error(Status::TOO_LARGE, out),
            Refusal::NonNumeric => return self.error(Status::NON_NUMERIC, out),
            Refusal::TooManyLocks => b"Too many locks",
            Refusal::OutOfMemory if counts => b"Out of memory incrementing value",
            Refusal::OutOfMemory => b"Out of memory allocating item",
            Refusal::Unrecorded => {
                let why = b"Cannot record the time on disk";
                return self.packet(Status::INTERNAL, (b"", b"", why), None, out);
            }
            Refusal::ConnectionClosed => {
                let why = b"Connection closed";
                return self.packet(Status::INTERNAL, (b"", b"", why), None, out);
            }
        };
        self.packet(Status::OUT_OF_MEMORY, (b"", b"", why), None, out);
    }

    /// It was done, and there is nothing to show.
    fn done(&self, out: &mut Vec<u8>) {
        if !self.style.quiet {
            self.success(b"", b"", b"", None, out);
        }
    }

    fn success(
        &self,
        extras: &[u8],
        key: &[u8],
        value: &[u8],
        cas: Option<Cas>,
        out: &mut Vec<u8>,
    ) {
        self.packet(Status::SUCCESS, (extras, key, value), cas, out);
    }

    fn error(&self, status: Status, out: &mut Vec<u8>) {
        self.packet(status, (b"", b"", status.text().as_bytes()), None, out);
    }

    fn packet(
        &self,
        status: Status,
        (extras, key, value): (&[u8], &[u8], &[u8]),
        cas: Option<Cas>,
        out: &mut Vec<u8>,
    ) {
        let opcode = self.opcode.map_or(0, Opcode::byte);
        let opaque = self.number;
        ResponsePacket {
            opcode,
            status,
            opaque,
            cas,
            extras,
            key,
            value,
        }
        .encode(out);
    }

    /// How its key is written.
    const fn key_form(&self) -> KeyForm {
        match self.request {
            Some(
                SmallRequest::Get(SmallGet { key_form, .. })
                | SmallRequest::Set(SmallSet { key_form, .. })
                | SmallRequest::Delete(SmallDelete { key_form, .. })
                | SmallRequest::Arithmetic(SmallArithmetic { key_form, .. }),
            ) => key_form,
            _ => KeyForm::Plain,
        }
    }
}

const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory";

/// The words of both text protocols for a refusal.
const fn refused(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Locked => "LOCKED",
        Refusal::NotLocked | Refusal::NotLockedNotFound => {
            "CLIENT_ERROR object is not locked or not found"
        }
        Refusal::TooManyLocks => "SERVER_ERROR too many locks",
        Refusal::ConnectionClosed => "SERVER_ERROR connection is closed",
        Refusal::TooLarge => TOO_LARGE,
        Refusal::OutOfMemory => "SERVER_ERROR out of memory storing object",
        Refusal::NonNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value",
        Refusal::Unrecorded => "SERVER_ERROR cannot record the time on disk; see the server's log",
    }
}

/// An item as a classic get shows it.
fn put_value(hit: &Hit<'_>, with_cas: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(hit.key);
    put!(out, " {} {}", hit.client_flags, hit.value.len());
    if with_cas {
        put!(out, " {}", hit.cas.number());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&hit.value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the reply to a refused lock in meta text, without its flags.
fn put_contended(seen: &LockInfo<'_>, is_deadlock: bool, out: &mut Vec<u8>) {
    let (holder, held_s, waiting) = (seen.holder.number(), seen.held_s, seen.waiting);
    let deadlock = if is_deadlock { " d" } else { "" };
    put!(out, "LK h{holder} a{held_s} n{waiting}{deadlock}");
}

/// A request in meta text; the order of its flags is the order in the answer.
struct Meta<'a> {
    ask: &'a Ask,
    key: &'a [u8],
    /// The request without its line end and value.
    line: &'a [u8],
}

/// Parts that an answer may show besides opaque and key.
#[derive(Clone, Copy, Default)]
struct Shown<'a> {
    hit: Option<&'a Hit<'a>>,
    cas: Option<u64>,
    fence: Option<u64>,
    metadata: Option<&'a [u8]>,
    ttl: Option<&'a dyn Fn(usize) -> Option<u32>>,
}

impl Meta<'_> {
    fn put(&self, reply: &Reply<'_>, out: &mut Vec<u8>) -> bool {
        let with_value = self.ask.style.with_value;
        match (self.ask.what, reply) {
            (What::Debug, Reply::Hit(hit)) => put_debug(hit, out),
            (What::Debug, Reply::Miss) => put!(out, "EN\r\n"),
            (
                _,
                Reply::Miss
                | Reply::Stored(_)
                | Reply::Deleted
                | Reply::Number(_)
                | Reply::Unlocked,
            ) if self.ask.style.quiet => {}
            (_, Reply::Granted(granted)) => {
                let hit = granted.item.as_ref();
                if !self.ask.style.quiet || with_value && hit.is_some() {
                    self.put_hit(hit, Some(granted.fence.number()), out);
                }
            }
            (_, Reply::Hit(hit)) => self.put_hit(Some(hit), None, out),
            (_, Reply::Number(number)) => {
                let digits = number.value.to_string();
                let ttl = |steps| number.ttl.after(steps);
                let shown = Shown {
                    cas: Some(number.cas.number()),
                    ttl: Some(&ttl),
                    ..Shown::default()
                };
                self.put_head(with_value.then_some(digits.as_bytes()), shown, out);
            }
            (_, Reply::Contended(seen) | Reply::WouldDeadlock(seen)) => {
                put_contended(seen, matches!(reply, Reply::WouldDeadlock(_)), out);
                let shown = Shown {
                    metadata: seen.metadata,
                    ..Shown::default()
                };
                self.put_flags(shown, out);
                out.extend_from_slice(b"\r\n");
            }
            (_, Reply::Withheld { waiting }) => {
                put!(out, "LK h0 a0 n{waiting}");
                self.put_flags(Shown::default(), out);
                out.extend_from_slice(b"\r\n");
            }
            (
                What::Delete | What::Increment | What::Decrement,
                Reply::Refused(Refusal::OutOfMemory),
            ) => {
                put!(out, "{OUT_OF_MEMORY}\r\n");
            }
            (_, Reply::Refused(refusal))
                if !matches!(refusal, Refusal::Locked | Refusal::NotLocked)
                    || self.ask.what == What::Release && *refusal == Refusal::NotLocked =>
            {
                put!(out, "{}\r\n", refused(*refusal));
            }
            (_, reply) => {
                let (code, cas) = match reply {
                    Reply::Stored(stored) => ("HD", stored.cas.number()),
                    Reply::Deleted | Reply::Unlocked => ("HD", 0),
                    Reply::Miss => ("EN", 0),
                    Reply::NotStored => ("NS", 0),
                    Reply::Exists | Reply::Refused(Refusal::NotLocked) => ("EX", 0),
                    Reply::NotFound => ("NF", 0),
                    Reply::Refused(Refusal::Locked) => ("LK", 0),
                    _ => return false,
                };
                put!(out, "{code}");
                // A set shows a version, with an item or without.
                let stores = matches!(self.ask.request, Some(SmallRequest::Set(_)));
                let cas = (stores && code != "LK").then_some(cas);
                let shown = Shown {
                    cas,
                    ..Shown::default()
                };
                self.put_flags(shown, out);
                out.extend_from_slice(b"\r\n");
            }
        }
        true
    }

    /// An item, and the grant of its lock, of which there may be either alone.
    fn put_hit(&self, hit: Option<&Hit<'_>>, fence: Option<u64>, out: &mut Vec<u8>) {
        let ttl = |steps| hit.and_then(|hit| hit.ttl.after(steps));
        let shown = Shown {
            hit,
            cas: hit.map(|hit| hit.cas.number()),
            fence,
            metadata: None,
            ttl: hit.is_some().then_some(&ttl),
        };
        let value = hit.filter(|hit| self.ask.style.with_value && !hit.unchanged);
        self.put_head(value.map(|hit| &hit.value[..]), shown, out);
    }

    fn put_head(&self, value: Option<&[u8]>, shown: Shown<'_>, out: &mut Vec<u8>) {
        match value {
            Some(value) => put!(out, "VA {}", value.len()),
            None => put!(out, "HD"),
        }
        self.put_flags(shown, out);
        if let Some(hit) = shown.hit {
            let marks = [
                (" Z", hit.win == Win::Sent),
                (" X", hit.stale),
                (" W", hit.win == Win::Won),
            ];
            for (mark, _) in marks.iter().filter(|(_, is_due)| *is_due) {
                put!(out, "{mark}");
            }
        }
        out.extend_from_slice(b"\r\n");
        if let Some(value) = value {
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the parts that the flags of the request show, in their order.
    fn put_flags(&self, shown: Shown<'_>, out: &mut Vec<u8>) {
        let mut steps = 0;
        // Behind the verb and the key; the length in a set is no flag.
        for flag in self.line.split(|byte| *byte == b' ').skip(2) {
            match (flag[0], shown) {
                (b'O', _) => out.extend([b" ", flag].concat()),
                (b'k', Shown { hit: Some(hit), .. }) => put_key(hit.key, hit.key_form, out),
                (b'k', _) => put_key(self.key, self.ask.key_form(), out),
                (b'c', Shown { cas: Some(cas), .. }) => put!(out, " c{cas}"),
                (
                    b'F',
                    Shown {
                        fence: Some(fence), ..
                    },
                ) => put!(out, " F{fence}"),
                (
                    b'm',
                    Shown {
                        metadata: Some(metadata),
                        ..
                    },
                ) => put!(out, " m{}", as_in_url(metadata)),
                (b's', Shown { hit: Some(hit), .. }) => put!(out, " s{}", hit.value.len()),
                (b'f', Shown { hit: Some(hit), .. }) => put!(out, " f{}", hit.client_flags),
                (b't', Shown { ttl: Some(ttl), .. }) => match ttl(steps) {
                    Some(seconds) => put!(out, " t{seconds}"),
                    None => put!(out, " t-1"),
                },
                (b'T' | b'N' | b'R', _) => steps += 1,
                _ => {}
            }
        }
    }
}

fn put_key(key: &[u8], form: KeyForm, out: &mut Vec<u8>) {
    out.extend_from_slice(b" k");
    match form {
        KeyForm::Plain => out.extend_from_slice(key),
        KeyForm::Binary => put!(out, "{} b", STANDARD.encode(key)),
    }
}

fn put_debug(hit: &Hit<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"ME ");
    match hit.key_form {
        KeyForm::Plain => out.extend_from_slice(hit.key),
        KeyForm::Binary => put!(out, "{}", STANDARD.encode(hit.key)),
    }
    match hit.ttl.after(TTL_STEPS_MAX) {
        Some(seconds) => put!(out, " exp={seconds}"),
        None => put!(out, " exp=-1"),
    }
    let fetched = if hit.fetched { "yes" } else { "no" };
    let (accessed, cas, size) = (hit.last_access_s, hit.cas.number(), hit.memory_bytes);
    put!(
        out,
        " la={accessed} cas={cas} fetch={fetched} cls=1 size={size}"
    );
    if let Some(seen) = &hit.lock {
        let (holder, fence) = (seen.holder.number(), seen.fence.number());
        let mode = if seen.is_shared { "s" } else { "x" };
        let (held_s, waiting) = (seen.held_s, seen.waiting);
        put!(
            out,
            " lock={holder} fence={fence} held={held_s} waiting={waiting} mode={mode}"
        );
        if let Some(metadata) = seen.metadata {
            put!(out, " metadata={}", as_in_url(metadata));
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn as_in_url(bytes: &[u8]) -> String {
    let each = bytes.iter().map(|byte| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(*byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    each.collect()
}
