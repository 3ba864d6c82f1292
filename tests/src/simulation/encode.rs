//! Requests as the clients write them, in the three protocols.
//!
//! Text is put together here and not by the crate's own encoders: what those leave out (flags in
//! other orders, options that say what goes without saying, lines that are wrong) is what a server
//! meets.

use latchd_core::arbitrary::Request as Words;
use latchd_core::command::{Guard, OnMissing, SetMode, TtlStep};
use latchd_core::item::Cas;
use latchd_core::time::Exptime;
use latchd_core::wire::binary::extras::EXPTIME_DO_NOT_CREATE;
use latchd_core::wire::binary::{Extras, Opcode, Request};
use latchd_core::wire::limits::LINE_BYTES_MAX;

use super::ask::{Ask, What, Wire};
use super::names::Names;

/// Appends the request to `out`.
pub(super) fn encode(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    match ask.wire {
        Wire::Classic => classic(ask, names, out),
        Wire::Meta => meta(ask, names, out),
        Wire::Binary => binary(ask, names, out),
    }
}

/// Appends a number in decimal digits.
pub(super) fn write_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn write_exptime(out: &mut Vec<u8>, exptime: Exptime) {
    let seconds = exptime.to_wire();
    if seconds < 0 {
        out.push(b'-');
    }
    write_number(out, seconds.unsigned_abs());
}

/// The number behind a `C` or a `cas`, if there is one.
fn guard_number(guard: Guard) -> Option<u64> {
    match guard {
        Guard::None => None,
        Guard::Match(cas) | Guard::MatchElseStale(cas) => Some(cas.number()),
        Guard::Never => Some(0),
    }
}

/// What is counted by, and the number of an item that is made.
fn amounts(ask: &Ask) -> (u64, u64) {
    match ask.request {
        Some(Words::Arithmetic { delta, initial, .. }) => (delta, initial),
        _ => (0, 0),
    }
}

/// The key whose name is the beginning of those to be listed.
fn prefix<'a>(ask: &Ask, names: &'a Names) -> &'a [u8] {
    ask.prefix(names.count())
        .map_or(b"", |key| names.plain(key))
}

fn classic(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    let verb: &[u8] = match ask.what {
        What::Get => match (ask.exptime(), ask.with_cas) {
            (None, false) => b"get",
            (None, true) => b"gets",
            (Some(_), false) => b"gat",
            (Some(_), true) => b"gats",
        },
        What::Touch => b"touch",
        What::Set if ask.is_guarded() => b"cas",
        What::Set | What::BadBody => b"set",
        What::Add => b"add",
        What::Replace => b"replace",
        What::Append => b"append",
        What::Prepend => b"prepend",
        What::Delete => b"delete",
        What::Increment => b"incr",
        What::Decrement => b"decr",
        // The one without a key is unknown.
        What::Lock | What::Unknown => b"lock",
        What::Unlock => b"unlock",
        What::UnlockAll => b"unlock_all",
        What::Flush => b"flush_all",
        What::Keys => b"keys",
        What::Stats => b"stats",
        What::StatsReset => b"stats reset",
        What::Version => b"version",
        What::Quit => b"quit",
        What::Nonsense => {
            out.resize(out.len() + LINE_BYTES_MAX + 1, b'x');
            return;
        }
        What::ReplaceAndUnlock
        | What::MarkStale
        | What::Clear
        | What::ClearAndMarkStale
        | What::LockAndGet
        | What::Debug
        | What::Noop => unreachable!("not in classic text"),
    };
    out.extend_from_slice(verb);
    classic_key(ask, names, out);
    match ask.what {
        What::Touch | What::Flush => {
            // A flush says at times that it is for now.
            let goes_without_saying = ask.what == What::Flush
                && ask.exptime() == Some(Exptime::Never)
                && ask.style & 1 == 0;
            if let Some(exptime) = ask.exptime().filter(|_| !goes_without_saying) {
                out.push(b' ');
                write_exptime(out, exptime);
            }
        }
        What::Increment | What::Decrement => {
            out.push(b' ');
            write_number(out, amounts(ask).0);
        }
        What::Set | What::Add | What::Replace | What::Append | What::Prepend | What::BadBody => {
            out.push(b' ');
            write_number(out, ask.client_flags().into());
            out.push(b' ');
            write_exptime(out, ask.exptime().unwrap_or_default());
            out.push(b' ');
            write_number(out, ask.text.bytes() as u64);
            if let Some(cas) = guard_number(ask.guard()) {
                out.push(b' ');
                write_number(out, cas);
            }
        }
        _ => {}
    }
    if ask.quiet {
        out.extend_from_slice(b" noreply");
    }
    out.extend_from_slice(b"\r\n");
    write_body(ask, out);
}

/// What stands between the verb and the numbers.
fn classic_key(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    match ask.what {
        What::Get => {
            if let Some(exptime) = ask.exptime() {
                out.push(b' ');
                write_exptime(out, exptime);
            }
            for key in &ask.keys[..usize::from(ask.key_count)] {
                out.push(b' ');
                out.extend_from_slice(names.plain(usize::from(*key)));
            }
        }
        What::Keys => {
            let prefix = prefix(ask, names);
            if !prefix.is_empty() {
                out.push(b' ');
                out.extend_from_slice(prefix);
            }
        }
        What::UnlockAll
        | What::Stats
        | What::StatsReset
        | What::Version
        | What::Quit
        | What::Unknown
        | What::Flush => {}
        _ => {
            out.push(b' ');
            out.extend_from_slice(names.plain(ask.key()));
        }
    }
}

/// What stands behind the line of a text request that stores.
fn write_body(ask: &Ask, out: &mut Vec<u8>) {
    if ask.stores() {
        ask.text.write(out);
        out.extend_from_slice(if ask.what == What::BadBody {
            b"??"
        } else {
            b"\r\n"
        });
    }
}

/// The flags of a meta line: those whose place says something in their order, and the others where
/// the style of the request has them.
struct Flags<'a> {
    out: &'a mut Vec<u8>,
    /// Which of the next flags have one of those in order before them, bit by bit.
    style: u8,
    /// Touch, vivify, recache, and where the TTL is to be shown: `t` is `None`.
    in_order: [Option<Option<TtlStep>>; 4],
    next: usize,
}

impl<'a> Flags<'a> {
    fn new(ask: &Ask, out: &'a mut Vec<u8>) -> Self {
        let mut in_order = [None; 4];
        let mut places = in_order.iter_mut();
        let mut put = |flag| *places.next().expect("three steps and one `t`") = Some(flag);
        let shown_after = ask.ttl_after.map(usize::from);
        if shown_after == Some(0) {
            put(None);
        }
        for (taken, step) in ask.steps().iter().enumerate() {
            put(Some(step));
            if shown_after == Some(taken + 1) {
                put(None);
            }
        }
        Self {
            out,
            style: ask.style,
            in_order,
            next: 0,
        }
    }

    /// Writes a flag, and perhaps one of those in order before it.
    fn put(&mut self, letter: u8, token: Option<u64>) {
        if self.style & 1 != 0 {
            self.put_in_order();
        }
        self.style = self.style.rotate_right(1);
        self.out.extend_from_slice(&[b' ', letter]);
        if let Some(token) = token {
            write_number(self.out, token);
        }
    }

    fn put_exptime(&mut self, letter: u8, exptime: Exptime) {
        self.out.extend_from_slice(&[b' ', letter]);
        write_exptime(self.out, exptime);
    }

    fn put_in_order(&mut self) {
        let Some(flag) = self.in_order.get(self.next).copied().flatten() else {
            return;
        };
        self.next += 1;
        match flag {
            None => self.out.extend_from_slice(b" t"),
            Some(TtlStep::Touch(exptime)) => self.put_exptime(b'T', exptime),
            Some(TtlStep::Vivify(exptime)) => self.put_exptime(b'N', exptime),
            Some(TtlStep::Recache(exptime)) => self.put_exptime(b'R', exptime),
        }
    }

    /// Writes those in order that are left.
    fn finish(mut self) {
        for _ in 0..self.in_order.len() {
            self.put_in_order();
        }
    }
}

fn meta(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    let verb: &[u8] = match ask.what {
        What::Get => b"mg ",
        What::Set | What::Add | What::Replace | What::Append | What::Prepend => b"ms ",
        What::Delete | What::MarkStale | What::Clear | What::ClearAndMarkStale => b"md ",
        What::Increment | What::Decrement => b"ma ",
        What::Debug => b"me ",
        What::Noop => return out.extend_from_slice(b"mn\r\n"),
        _ => unreachable!("not in meta text"),
    };
    out.extend_from_slice(verb);
    out.extend_from_slice(if ask.is_in_base64() {
        names.base64(ask.key())
    } else {
        names.plain(ask.key())
    });
    if ask.stores() {
        out.push(b' ');
        write_number(out, ask.text.bytes() as u64);
    }
    if ask.is_in_base64() {
        out.extend_from_slice(b" b");
    }
    if ask.what != What::Debug {
        // Two ways round, so that no flag is always the first.
        let mut flags = Flags::new(ask, out);
        if ask.style & 2 == 0 {
            put_what_is_shown(ask, &mut flags);
            put_what_is_asked(ask, &mut flags);
        } else {
            put_what_is_asked(ask, &mut flags);
            put_what_is_shown(ask, &mut flags);
        }
        flags.finish();
        write_mode(ask, out);
    }
    out.extend_from_slice(b"\r\n");
    write_body(ask, out);
}

fn put_what_is_shown(ask: &Ask, flags: &mut Flags<'_>) {
    for (given, letter) in [
        (ask.with_cas, b'c'),
        (ask.with_key, b'k'),
        (ask.with_value, b'v'),
        (ask.with_client_flags, b'f'),
        (ask.quiet, b'q'),
    ] {
        if given {
            flags.put(letter, None);
        }
    }
    flags.put(b'O', Some(ask.number.into()));
}

fn put_what_is_asked(ask: &Ask, flags: &mut Flags<'_>) {
    // Written at times though it goes without saying.
    let says_all = ask.style & 4 == 0;
    if let Some(cas) = guard_number(ask.guard()).or(ask.known_cas()) {
        flags.put(b'C', Some(cas));
    }
    if let Some(cas) = ask.new_cas() {
        flags.put(b'E', Some(cas));
    }
    if let Some(Words::Get { bump: false, .. }) = ask.request {
        flags.put(b'u', None);
    }
    if ask.client_flags() != 0 || says_all && ask.stores() {
        flags.put(b'F', Some(ask.client_flags().into()));
    }
    if matches!(ask.what, What::Clear | What::ClearAndMarkStale) {
        flags.put(b'x', None);
    }
    if matches!(ask.what, What::MarkStale | What::ClearAndMarkStale)
        || matches!(ask.guard(), Guard::MatchElseStale(_))
    {
        flags.put(b'I', None);
    }
    if ask.counts() {
        let (delta, initial) = amounts(ask);
        if delta != 1 || says_all {
            flags.put(b'D', Some(delta));
        }
        if initial != 0 || says_all {
            flags.put(b'J', Some(initial));
        }
    }
    if ask.stores() || ask.removes() {
        let makes = matches!(
            ask.request,
            Some(Words::Set {
                mode: SetMode::Append {
                    missing: OnMissing::Create
                } | SetMode::Prepend {
                    missing: OnMissing::Create
                },
                ..
            })
        );
        match ask.exptime() {
            Some(exptime) if makes => flags.put_exptime(b'N', exptime),
            // `md I` without `T` leaves the TTL, all others have none then.
            Some(Exptime::Never) if ask.what != What::MarkStale && !says_all => {}
            Some(exptime) => flags.put_exptime(b'T', exptime),
            None => {}
        }
    }
}

fn write_mode(ask: &Ask, out: &mut Vec<u8>) {
    let says_all = ask.style & 4 == 0;
    let mode: &[u8] = match ask.what {
        What::Set if says_all => b" MS",
        What::Add => b" ME",
        What::Replace => b" MR",
        What::Append => b" MA",
        What::Prepend => b" MP",
        What::Increment if says_all => b" MI",
        What::Decrement if says_all => b" M-",
        What::Decrement => b" MD",
        _ => b"",
    };
    out.extend_from_slice(mode);
}

/// Which opcode a binary request has.
pub(super) fn opcode(ask: &Ask) -> Opcode {
    let quiet = ask.quiet;
    let either = |loud, silent| if quiet { silent } else { loud };
    match (ask.what, ask.with_key) {
        (What::Get, false) if ask.exptime().is_some() => either(Opcode::Gat, Opcode::GatQ),
        (What::Get, true) if ask.exptime().is_some() => either(Opcode::GatK, Opcode::GatKQ),
        (What::Get, false) => either(Opcode::Get, Opcode::GetQ),
        (What::Get, true) => either(Opcode::GetK, Opcode::GetKQ),
        (What::Touch, _) => Opcode::Touch,
        (What::Set, _) => either(Opcode::Set, Opcode::SetQ),
        (What::Add, _) => either(Opcode::Add, Opcode::AddQ),
        (What::Replace, _) => either(Opcode::Replace, Opcode::ReplaceQ),
        (What::Append, _) => either(Opcode::Append, Opcode::AppendQ),
        (What::Prepend, _) => either(Opcode::Prepend, Opcode::PrependQ),
        (What::ReplaceAndUnlock, _) => either(Opcode::RaU, Opcode::RaUQ),
        (What::Delete, _) => either(Opcode::Delete, Opcode::DeleteQ),
        (What::Increment, _) => either(Opcode::Increment, Opcode::IncrementQ),
        (What::Decrement, _) => either(Opcode::Decrement, Opcode::DecrementQ),
        (What::Lock, _) => either(Opcode::Lock, Opcode::LockQ),
        (What::LockAndGet, false) => either(Opcode::LaG, Opcode::LaGQ),
        (What::LockAndGet, true) => either(Opcode::LaGK, Opcode::LaGKQ),
        (What::Unlock, _) => either(Opcode::Unlock, Opcode::UnlockQ),
        (What::UnlockAll, _) => either(Opcode::UnlockAll, Opcode::UnlockAllQ),
        (What::Flush, _) => either(Opcode::Flush, Opcode::FlushQ),
        (What::Keys, _) => Opcode::Keys,
        (What::Stats | What::StatsReset, _) => Opcode::Stat,
        (What::Version, _) => Opcode::Version,
        (What::Noop, _) => Opcode::Noop,
        (What::Quit, _) => either(Opcode::Quit, Opcode::QuitQ),
        // Well formed, and unknown to a server without authentication.
        (What::Unknown, _) => Opcode::SaslListMechanisms,
        (
            What::MarkStale
            | What::Clear
            | What::ClearAndMarkStale
            | What::Debug
            | What::BadBody
            | What::Nonsense,
            _,
        ) => unreachable!("not in the binary protocol"),
    }
}

fn binary(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    if ask.what == What::Nonsense {
        out.extend_from_slice(b"get k\r\n");
        return;
    }
    let seconds = |exptime: Option<Exptime>| {
        u32::try_from(exptime.unwrap_or_default().to_wire()).expect("no negative ones in packets")
    };
    let extras = match ask.what {
        What::Touch => Extras::Exptime(seconds(ask.exptime())),
        // A flush says at times that it is for now.
        What::Flush if ask.exptime() == Some(Exptime::Never) && ask.style & 1 == 0 => Extras::None,
        What::Get | What::LockAndGet | What::Flush if ask.exptime().is_some() => {
            Extras::Exptime(seconds(ask.exptime()))
        }
        What::Set | What::Add | What::Replace | What::ReplaceAndUnlock => Extras::Store {
            client_flags: ask.client_flags(),
            exptime: seconds(ask.exptime()),
        },
        What::Increment | What::Decrement => {
            let (delta, initial) = amounts(ask);
            let made = ask.steps().iter().find_map(|step| match step {
                TtlStep::Vivify(exptime) => Some(exptime),
                TtlStep::Touch(_) | TtlStep::Recache(_) => None,
            });
            Extras::Arithmetic {
                delta,
                initial,
                exptime: made.map_or(EXPTIME_DO_NOT_CREATE, |made| seconds(Some(made))),
            }
        }
        _ => Extras::None,
    };
    let key = match ask.what {
        What::UnlockAll
        | What::Flush
        | What::Stats
        | What::Version
        | What::Noop
        | What::Quit
        | What::Unknown => b"",
        What::Keys => prefix(ask, names),
        What::StatsReset => b"reset",
        _ => names.plain(ask.key()),
    };
    let mut value = Vec::new();
    if ask.stores() {
        value.reserve(ask.text.bytes());
        ask.text.write(&mut value);
    }
    Request {
        opaque: ask.number,
        cas: guard_number(ask.guard()).and_then(Cas::new),
        extras,
        key,
        value: &value,
        ..Request::new(opcode(ask))
    }
    .encode(out)
    .expect("nothing in it is too long");
}
