//! The flags of meta commands, one word each: a letter, and for some a token.
//!
//! As in memcached, text behind a letter that takes no token is ignored.
//!
//! Source: memcached 1.6.45 `proto_parser.c`, `_meta_flag_preparse`.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::Verb;
use crate::command::{LEASE_MS_MIN, Lease, LockMetadata};
use crate::command::{SHARERS_MAX, WAIT_MS_MAX};
use crate::fence::Fence;
use crate::session::Token;
use crate::time::Exptime;
use crate::wire::scan::{i32_from, u32_from, u64_from};
use crate::wire::status_line::{BAD_FORMAT, put_number};

/// One flag of a meta command, with its token read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Flag<'a> {
    /// `b`: the key is written in base64.
    BinaryKey,
    /// `c`: show the version.
    ShowCas,
    /// `C`: the version the client knows; no item has version 0.
    Cas(u64),
    /// `D`: the amount to count by.
    Delta(u64),
    /// `E`: the version for the item; 0 leaves the choice to the server.
    NewCas(u64),
    /// `f`: show the client flags.
    ShowClientFlags,
    /// `F`: the client flags to store.
    ClientFlags(u32),
    /// `G`: change or release only while the grant with this number is in force, as its holder.
    InGrant(Fence),
    /// `F` of `mu`: release only this connection's grant with this number.
    OfGrant(Fence),
    /// `T` of `ml`: the ttl of the lock.
    Lease(Lease),
    /// `w` of `ml` and `mg`: how long to wait if another client has the lock or the win, in milliseconds, up to
    /// [`WAIT_MS_MAX`]; 0 means not at all.
    Wait(u64),
    /// `B` of `mg`: a win ends with its connection.
    Bind,
    /// `S` of `ml`: share the lock, with a number among at most so many holders, up to [`SHARERS_MAX`].
    Shared(Option<NonZeroU32>),
    /// `F` of `ml`: show the number of the grant.
    ShowFence,
    /// `H` of `ml`: show for how long no other server can grant the lock.
    ShowHold,
    /// `U`: release the lock in the same step.
    Unlock,
    /// `h`: show whether the item was fetched before.
    ShowFetched,
    /// `I`: mark the item stale, or store though it is newer.
    Invalidate,
    /// `j` of `ml`, `mu`, `ms`, `md` and `ma`: execute as this session.
    InSession(Token<'a>),
    /// `J`: the number in a new item.
    Initial(u64),
    /// `k`: show the key.
    ShowKey,
    /// `l`: show how long ago the item was used.
    ShowLastAccess,
    /// `m` of `ml`: show the metadata of the holder if the lock is not granted.
    ShowMetadata,
    /// `M` of `ml`: the metadata of the lock, in base64.
    Metadata(LockMetadata<'a>),
    /// `M`: the mode of a set or arithmetic; only the first byte counts.
    Mode(u8),
    /// `N`: make a missing item, with this exptime.
    Vivify(Exptime),
    /// `O`: show these bytes.
    Opaque(&'a [u8]),
    /// `q`: leave out the reply if it brings nothing new.
    Quiet,
    /// `R`: win the right to recache an item that has less than this left.
    Recache(Exptime),
    /// `s`: show the length of the value.
    ShowSize,
    /// `t`: show the remaining TTL.
    ShowTtl,
    /// `T`: the new exptime.
    Touch(Exptime),
    /// `u`: do not count this as a use.
    NoBump,
    /// `v`: show the value.
    Value,
    /// `x`: remove the value and keep the item.
    Clear,
    /// `P` and `L`: for proxies, and ignored.
    Proxy,
}

/// Why a word is not a flag. If there are several, [`super::options`] chooses the error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BadFlag {
    /// No command has a flag with this letter; the rest of the word is ignored.
    Unknown,
    /// The token is unreadable. This is the error unless a later flag has a worse one.
    Token(&'static str),
    /// The token of `F` is unreadable; memcached has no error text for that.
    ClientFlags,
}

const BAD_TOKEN: BadFlag = BadFlag::Token("CLIENT_ERROR bad token in command line format");

impl BadFlag {
    /// The error text, if `before` is the error of an earlier flag.
    pub(crate) fn text(self, before: Option<&'static str>) -> &'static str {
        match self {
            Self::Unknown => "CLIENT_ERROR invalid flag",
            Self::Token(text) => text,
            Self::ClientFlags => before.unwrap_or(BAD_FORMAT),
        }
    }
}

impl<'a> Flag<'a> {
    /// Reads one word of a request. Its first byte decides; an unexpected token is ignored.
    ///
    /// Only the verbs with a use for latchd's own flags know them: the others answer as memcached does.
    #[inline]
    pub(crate) fn decode(verb: Verb, word: &'a [u8]) -> Result<Self, BadFlag> {
        let Some((letter, token)) = word.split_first() else {
            return Err(BadFlag::Unknown);
        };
        let exptime = || {
            let seconds = some(token).and_then(i32_from).ok_or(BAD_TOKEN)?;
            Ok(Exptime::from_wire(i64::from(seconds)))
        };
        let number = |bad: BadFlag| some(token).and_then(u64_from).ok_or(bad);
        let fence = || number(BAD_TOKEN).and_then(|number| Fence::new(number).ok_or(BAD_TOKEN));
        Ok(match letter {
            b'b' => Self::BinaryKey,
            b'c' => Self::ShowCas,
            b'B' if verb == Verb::Get => Self::Bind,
            b'C' => Self::Cas(number(BAD_TOKEN)?),
            b'D' => Self::Delta(number(BadFlag::Token(
                "CLIENT_ERROR invalid numeric delta value",
            ))?),
            b'E' => Self::NewCas(number(BAD_TOKEN)?),
            b'f' => Self::ShowClientFlags,
            b'F' if verb == Verb::Lock => Self::ShowFence,
            b'F' if verb == Verb::Unlock => Self::OfGrant(fence()?),
            b'F' => Self::ClientFlags(some(token).and_then(u32_from).ok_or(BadFlag::ClientFlags)?),
            b'G' if verb.changes() || verb == Verb::Unlock => Self::InGrant(fence()?),
            b'h' => Self::ShowFetched,
            b'H' if verb == Verb::Lock => Self::ShowHold,
            b'I' => Self::Invalidate,
            b'j' if verb.is_in_session() => Self::InSession(Token::new(token).ok_or(BAD_TOKEN)?),
            b'J' => Self::Initial(number(BadFlag::Token(
                "CLIENT_ERROR invalid numeric initial value",
            ))?),
            b'k' => Self::ShowKey,
            b'l' => Self::ShowLastAccess,
            b'm' if verb == Verb::Lock => Self::ShowMetadata,
            b'M' if verb == Verb::Lock => {
                Self::Metadata(LockMetadata::from_base64(token).ok_or(BAD_TOKEN)?)
            }
            // A bare `M` is an unknown mode: a blank follows it.
            b'M' => Self::Mode(token.first().copied().unwrap_or(b' ')),
            b'N' => Self::Vivify(exptime()?),
            b'O' => Self::Opaque(token),
            b'q' => Self::Quiet,
            b'R' => Self::Recache(exptime()?),
            b's' => Self::ShowSize,
            b'S' if verb == Verb::Lock => shared(token).ok_or(BAD_TOKEN)?,
            b't' => Self::ShowTtl,
            b'T' if verb == Verb::Lock => Self::Lease(lease(token).ok_or(BAD_TOKEN)?),
            b'T' => Self::Touch(exptime()?),
            b'U' if verb.changes() => Self::Unlock,
            b'u' => Self::NoBump,
            b'v' => Self::Value,
            b'w' if matches!(verb, Verb::Lock | Verb::Get) => match number(BAD_TOKEN)? {
                ms @ 0..=WAIT_MS_MAX => Self::Wait(ms),
                _ => return Err(BAD_TOKEN),
            },
            b'x' => Self::Clear,
            b'P' | b'L' => Self::Proxy,
            _ => return Err(BadFlag::Unknown),
        })
    }

    /// Appends a blank and the flag.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(b' ');
        let exptime = |letter, exptime: Exptime, out: &mut Vec<u8>| {
            out.push(letter);
            put_number(out, exptime.to_wire());
        };
        let number = |letter, number: u64, out: &mut Vec<u8>| {
            out.push(letter);
            put_number(out, number);
        };
        match *self {
            Self::BinaryKey => out.push(b'b'),
            Self::ShowCas => out.push(b'c'),
            Self::Cas(cas) => number(b'C', cas, out),
            Self::Delta(delta) => number(b'D', delta, out),
            Self::NewCas(cas) => number(b'E', cas, out),
            Self::ShowClientFlags => out.push(b'f'),
            Self::ClientFlags(flags) => number(b'F', u64::from(flags), out),
            Self::InGrant(fence) => number(b'G', fence.number(), out),
            Self::OfGrant(fence) => number(b'F', fence.number(), out),
            Self::Lease(Lease::Off) => out.extend_from_slice(b"T-1"),
            Self::Lease(Lease::For { ms }) => {
                out.push(b'T');
                put_number(out, ms / 1000);
                let [hundreds, tens, ones] = [100, 10, 1].map(|unit| b'0' + digit(ms / unit));
                out.extend_from_slice(&[b'.', hundreds, tens, ones]);
            }
            Self::Wait(ms) => number(b'w', ms, out),
            Self::Bind => out.push(b'B'),
            Self::Shared(None) => out.push(b'S'),
            Self::Shared(Some(max_sharers)) => number(b'S', u64::from(max_sharers.get()), out),
            Self::ShowFence => out.push(b'F'),
            Self::Unlock => out.push(b'U'),
            Self::ShowFetched => out.push(b'h'),
            Self::Invalidate => out.push(b'I'),
            Self::ShowHold => out.push(b'H'),
            Self::InSession(token) => {
                out.push(b'j');
                out.extend_from_slice(token.as_bytes());
            }
            Self::Initial(initial) => number(b'J', initial, out),
            Self::ShowKey => out.push(b'k'),
            Self::ShowLastAccess => out.push(b'l'),
            Self::ShowMetadata => out.push(b'm'),
            Self::Metadata(metadata) => {
                out.push(b'M');
                metadata.put_base64(out);
            }
            Self::Mode(mode) => out.extend_from_slice(&[b'M', mode]),
            Self::Vivify(seconds) => exptime(b'N', seconds, out),
            Self::Opaque(opaque) => {
                out.push(b'O');
                out.extend_from_slice(opaque);
            }
            Self::Quiet => out.push(b'q'),
            Self::Recache(seconds) => exptime(b'R', seconds, out),
            Self::ShowSize => out.push(b's'),
            Self::ShowTtl => out.push(b't'),
            Self::Touch(seconds) => exptime(b'T', seconds, out),
            Self::NoBump => out.push(b'u'),
            Self::Value => out.push(b'v'),
            Self::Clear => out.push(b'x'),
            Self::Proxy => out.push(b'P'),
        }
    }
}

/// The last decimal digit of a number.
const fn digit(number: u64) -> u8 {
    // The cast keeps the value: it is below 10.
    #[allow(clippy::cast_possible_truncation)]
    let digit = (number % 10) as u8;
    digit
}

/// Seconds with up to three decimals, at least [`LEASE_MS_MIN`]; or -1.
fn lease(token: &[u8]) -> Option<Lease> {
    if token == b"-1" {
        return Some(Lease::Off);
    }
    let mut parts = token.splitn(2, |byte| *byte == b'.');
    let seconds = parts.next().and_then(some).and_then(u32_from)?;
    let ms = match parts.next() {
        None => 0,
        Some(decimals) => {
            let scale = match decimals.len() {
                1 => 100,
                2 => 10,
                3 => 1,
                _ => return None,
            };
            u32_from(decimals)? * scale
        }
    };
    let ms = u64::from(seconds) * 1000 + u64::from(ms);
    (ms >= LEASE_MS_MIN).then_some(Lease::For { ms })
}

/// Nothing, or a number from 1 to [`SHARERS_MAX`].
fn shared(token: &[u8]) -> Option<Flag<'static>> {
    if token.is_empty() {
        return Some(Flag::Shared(None));
    }
    let max_sharers = u32_from(token).filter(|max_sharers| *max_sharers <= SHARERS_MAX)?;
    Some(Flag::Shared(Some(NonZeroU32::new(max_sharers)?)))
}

/// The token of a flag that must have one.
const fn some(token: &[u8]) -> Option<&[u8]> {
    if token.is_empty() { None } else { Some(token) }
}
