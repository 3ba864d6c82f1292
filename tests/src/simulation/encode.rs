//! Requests as the clients write them, in the three protocols.
//!
//! Text is put together here and not by the crate's own encoders: what those leave out (flags in
//! other orders, lines that are wrong) is what a server meets.

use latchd_core::item::Cas;
use latchd_core::wire::binary::extras::EXPTIME_DO_NOT_CREATE;
use latchd_core::wire::binary::{Extras, Opcode, Request};
use latchd_core::wire::limits::LINE_BYTES_MAX;

use super::ask::{Ask, Text, What, Wire, write_number};

/// The names of the keys.
#[derive(Clone, Debug)]
pub(super) struct Names {
    plain: Vec<Vec<u8>>,
    base64: Vec<Vec<u8>>,
}

impl Names {
    /// Every eighth is a long one.
    pub(super) fn new(count: usize) -> Self {
        let plain: Vec<Vec<u8>> = (0..count)
            .map(|number| {
                let length = if number % 8 == 7 { 60 } else { 0 };
                format!("key{number}{:->length$}", "").into_bytes()
            })
            .collect();
        let base64 = plain.iter().map(|name| base64(name)).collect();
        Self { plain, base64 }
    }

    pub(super) fn plain(&self, key: usize) -> &[u8] {
        &self.plain[key]
    }

    pub(super) fn base64(&self, key: usize) -> &[u8] {
        &self.base64[key]
    }

    /// The number of a key.
    pub(super) fn number(&self, name: &[u8]) -> Option<usize> {
        self.plain.iter().position(|known| known == name)
    }
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| {
            bits << 8 | u32::from(three.get(at).copied().unwrap_or(0))
        });
        for place in 0..4 {
            text.push(if place <= three.len() {
                LETTERS[(bits >> (18 - 6 * place) & 63) as usize]
            } else {
                b'='
            });
        }
    }
    text
}

/// Appends the request to `out`.
pub(super) fn encode(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    match ask.wire {
        Wire::Classic => classic(ask, names, out),
        Wire::Meta => meta(ask, names, out),
        Wire::Binary => binary(ask, names, out),
    }
}

fn put_exptime(out: &mut Vec<u8>, exptime: i32) {
    if exptime < 0 {
        out.push(b'-');
    }
    write_number(out, exptime.unsigned_abs().into());
}

fn classic(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    let verb: &[u8] = match ask.what {
        What::Get => match (ask.exptime, ask.with_cas) {
            (None, false) => b"get",
            (None, true) => b"gets",
            (Some(_), false) => b"gat",
            (Some(_), true) => b"gats",
        },
        What::Touch => b"touch",
        What::Set if ask.guard != 0 => b"cas",
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
    match ask.what {
        What::Get => {
            if let Some(exptime) = ask.exptime {
                out.push(b' ');
                put_exptime(out, exptime);
            }
            for key in &ask.keys[..usize::from(ask.key_count)] {
                out.push(b' ');
                out.extend_from_slice(names.plain(usize::from(*key)));
            }
        }
        What::UnlockAll
        | What::Keys
        | What::Stats
        | What::Version
        | What::Quit
        | What::Unknown
        | What::Flush => {}
        _ => {
            out.push(b' ');
            out.extend_from_slice(names.plain(ask.key()));
        }
    }
    match ask.what {
        What::Touch | What::Flush => {
            if let Some(exptime) = ask.exptime {
                out.push(b' ');
                put_exptime(out, exptime);
            }
        }
        What::Increment | What::Decrement => {
            out.push(b' ');
            write_number(out, ask.delta.into());
        }
        What::Set | What::Add | What::Replace | What::Append | What::Prepend | What::BadBody => {
            out.extend_from_slice(b" 0 ");
            put_exptime(out, ask.exptime.unwrap_or(0));
            out.push(b' ');
            write_number(out, ask.text.bytes() as u64);
            if ask.guard != 0 {
                out.push(b' ');
                write_number(out, ask.guard);
            }
        }
        _ => {}
    }
    if ask.quiet {
        out.extend_from_slice(b" noreply");
    }
    out.extend_from_slice(b"\r\n");
    put_body(ask, out);
}

/// What stands behind the line of a text request that stores.
fn put_body(ask: &Ask, out: &mut Vec<u8>) {
    match ask.what {
        What::Set | What::Add | What::Replace | What::Append | What::Prepend => {
            ask.text.write(out);
            out.extend_from_slice(b"\r\n");
        }
        What::BadBody => {
            ask.text.write(out);
            out.extend_from_slice(b"??");
        }
        _ => {}
    }
}

fn meta(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    let verb: &[u8] = match ask.what {
        What::Get | What::Touch => b"mg ",
        What::Set | What::Add | What::Replace | What::Append | What::Prepend => b"ms ",
        What::Delete | What::MarkStale | What::Clear | What::ClearAndMarkStale => b"md ",
        What::Increment | What::Decrement => b"ma ",
        What::Debug => b"me ",
        What::Noop => return out.extend_from_slice(b"mn\r\n"),
        _ => unreachable!("not in meta text"),
    };
    out.extend_from_slice(verb);
    out.extend_from_slice(if ask.in_base64 {
        names.base64(ask.key())
    } else {
        names.plain(ask.key())
    });
    if let What::Set | What::Add | What::Replace | What::Append | What::Prepend = ask.what {
        out.push(b' ');
        write_number(out, ask.text.bytes() as u64);
    }
    let mut flag = |letter: u8, token: Option<u64>| {
        out.extend_from_slice(&[b' ', letter]);
        if let Some(token) = token {
            write_number(out, token);
        }
    };
    for (given, letter) in [
        (ask.in_base64, b'b'),
        (ask.what == What::Debug, 0),
        (ask.with_cas, b'c'),
        (ask.with_key, b'k'),
        (ask.with_value, b'v'),
        (ask.quiet, b'q'),
    ] {
        if given && letter != 0 {
            flag(letter, None);
        }
    }
    if ask.what != What::Debug {
        flag(b'O', Some(ask.number.into()));
    }
    if ask.guard != 0 {
        flag(b'C', Some(ask.guard));
        if ask.else_stale {
            flag(b'I', None);
        }
    }
    match ask.what {
        What::MarkStale => flag(b'I', None),
        What::Clear => flag(b'x', None),
        What::ClearAndMarkStale => {
            flag(b'x', None);
            flag(b'I', None);
        }
        _ => {}
    }
    if let Some(exptime) = ask.vivify {
        flag(b'N', Some(exptime.into()));
    }
    if let Some(threshold) = ask.recache {
        flag(b'R', Some(threshold.into()));
    }
    if let What::Increment | What::Decrement = ask.what {
        flag(b'D', Some(ask.delta.into()));
        if ask.vivify.is_some() {
            flag(b'J', Some(ask.initial));
        }
    }
    if let Some(exptime) = ask.exptime {
        out.extend_from_slice(b" T");
        put_exptime(out, exptime);
    }
    let mode: &[u8] = match ask.what {
        What::Add => b" ME",
        What::Replace => b" MR",
        What::Append => b" MA",
        What::Prepend => b" MP",
        What::Decrement => b" MD",
        _ => b"",
    };
    out.extend_from_slice(mode);
    out.extend_from_slice(b"\r\n");
    put_body(ask, out);
}

/// Which opcode a binary request has.
pub(super) fn opcode(ask: &Ask) -> Opcode {
    let quiet = ask.quiet;
    let either = |loud, silent| if quiet { silent } else { loud };
    match (ask.what, ask.with_key) {
        (What::Get, false) if ask.exptime.is_some() => either(Opcode::Gat, Opcode::GatQ),
        (What::Get, true) if ask.exptime.is_some() => either(Opcode::GatK, Opcode::GatKQ),
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
        (What::Stats, _) => Opcode::Stat,
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
    let seconds = |exptime: Option<i32>| {
        u32::try_from(exptime.unwrap_or(0)).expect("no negative exptimes in binary")
    };
    let extras = match ask.what {
        What::Touch => Extras::Exptime(seconds(ask.exptime)),
        What::Get | What::LockAndGet | What::Flush if ask.exptime.is_some() => {
            Extras::Exptime(seconds(ask.exptime))
        }
        What::Set | What::Add | What::Replace | What::ReplaceAndUnlock => Extras::Store {
            client_flags: 0,
            exptime: seconds(ask.exptime),
        },
        What::Increment | What::Decrement => Extras::Arithmetic {
            delta: ask.delta.into(),
            initial: ask.initial,
            exptime: ask.vivify.map_or(EXPTIME_DO_NOT_CREATE, u32::from),
        },
        _ => Extras::None,
    };
    let key = match ask.what {
        What::UnlockAll
        | What::Flush
        | What::Keys
        | What::Stats
        | What::Version
        | What::Noop
        | What::Quit
        | What::Unknown => b"",
        _ => names.plain(ask.key()),
    };
    // A value of digits or letters is never long; it is put together on the stack of the request.
    let mut value = Vec::new();
    if let What::Set
    | What::Add
    | What::Replace
    | What::Append
    | What::Prepend
    | What::ReplaceAndUnlock = ask.what
    {
        value.reserve(ask.text.bytes());
        ask.text.write(&mut value);
    }
    Request {
        opaque: ask.number,
        cas: Cas::new(ask.guard),
        extras,
        key,
        value: &value,
        ..Request::new(opcode(ask))
    }
    .encode(out)
    .expect("nothing in it is too long");
}

/// The value of a request, for the ledger.
pub(super) fn value_into(text: Text, value: &mut Vec<u8>) {
    value.clear();
    text.write(value);
}
