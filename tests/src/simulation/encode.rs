//! Requests as the clients write them, in the three protocols.
//!
//! Text is put together here and not by the crate's own encoders: what those leave out (flags in
//! other orders, options that say what goes without saying, lines that are wrong) is what a server
//! meets.

mod binary;
mod meta;

pub(super) use binary::opcode;

use latchd_core::command::Guard;
use latchd_core::time::Exptime;
use latchd_core::wire::limits::LINE_BYTES_MAX;
use latchd_harness::alphabet::{SmallArithmetic, SmallRequest};

use super::ask::{Ask, Protocol, What};
use super::names::Names;

/// Appends the request to `out`.
pub(super) fn encode(ask: &Ask, names: &Names, out: &mut Vec<u8>) {
    match ask.protocol {
        Protocol::Classic => classic(ask, names, out),
        Protocol::Meta => meta::encode(ask, names, out),
        Protocol::Binary => binary::encode(ask, names, out),
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
        Some(SmallRequest::Arithmetic(SmallArithmetic { delta, initial, .. })) => (delta, initial),
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
