//! What the clients read: the next answer in the bytes of a server, decoded as a client decodes it,
//! and told in words that are the same for the three protocols.
//!
//! An answer must be whole, of a shape that its protocol has for such a request, and its own: an
//! opaque, a key or an opcode that comes back must be the one that was sent.

use latchd_core::item::Cas;
use latchd_core::key::KeyForm;
use latchd_core::wire::binary::reply::{ResponsePacket, decode as decode_packet};
use latchd_core::wire::binary::{Opcode, Status};
use latchd_core::wire::classic::reply::ClassicResponse as Classic;
use latchd_core::wire::meta::reply::{Code, MetaResponse as Meta};
use latchd_harness::wording::Protocol;

use super::ask::{Ask, What};
use super::names::Names;

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Observed<'a> {
    Hit(Hit<'a>),
    /// There is no item to read, change or lock.
    Missing,
    /// With its version, where it is told.
    Stored(Option<u64>),
    NotStored,
    Exists,
    Deleted,
    Touched,
    Counted(Counted),
    /// A lock, a release, a flush or a reset was done.
    Ok,
    Locked,
    NotLocked,
    TooManyLocks,
    OutOfMemory,
    TooLarge,
    NonNumeric,
    /// One key of a listing; `None` if no client asks for it.
    Key(Option<usize>),
    /// One line of counters.
    Stat,
    /// A get, a listing or the counters are complete.
    End,
    /// `me`: the version, and who holds the lock.
    Debug {
        cas: u64,
        lock: Option<u64>,
    },
    /// The version of the server, or `MN`.
    Greeting,
    /// The request was refused as malformed or unknown.
    Malformed,
    /// Nothing was sent, and that is all there is to know.
    Unanswered,
}

/// An item as an answer shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Hit<'a> {
    /// In an answer of several keys: which one.
    pub(super) key: Option<usize>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) cas: Option<u64>,
    pub(super) client_flags: Option<u32>,
    pub(super) ttl: Option<Ttl>,
    /// Of a `mg` with a version and a value: that the value was left out, for the version is the
    /// item's.
    pub(super) is_unchanged: Option<bool>,
    /// What `mg` says of staleness and win; `None` where the protocol has no words for it.
    pub(super) marks: Option<Marks>,
}

/// A number as an answer shows it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counted {
    pub(super) number: Option<u64>,
    pub(super) cas: Option<u64>,
    pub(super) ttl: Option<Ttl>,
}

/// What `t` shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ttl {
    Never,
    Seconds(u64),
}

/// `X`, `W` and `Z`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Marks {
    pub(super) stale: bool,
    pub(super) won: bool,
    pub(super) sent: bool,
}

/// Why bytes are no answer to a request.
pub(super) type Unfit = &'static str;

/// What silence says to a quiet request.
pub(super) fn silence(ask: &Ask) -> Result<Observed<'static>, Unfit> {
    if !ask.style.quiet {
        return Err("a request was left without an answer");
    }
    if ask.is_unanswered() {
        return Ok(Observed::Unanswered);
    }
    match ask.what {
        What::Get => Ok(Observed::Missing),
        What::Set
        | What::Add
        | What::Replace
        | What::Append
        | What::Prepend
        | What::ReplaceAndUnlock => Ok(Observed::Stored(None)),
        What::Delete | What::MarkStale | What::Clear | What::ClearAndMarkStale => {
            Ok(Observed::Deleted)
        }
        What::Increment | What::Decrement => Ok(Observed::Counted(Counted::default())),
        What::Lock | What::Unlock | What::UnlockAll | What::Flush => Ok(Observed::Ok),
        What::Quit => Ok(Observed::End),
        _ => Err("silence where the protocol has none"),
    }
}

/// Whether the first answer in `bytes` is to `ask`, which is quiet, and not to a later request, of
/// which there can be none if it came alone.
pub(super) fn is_to(ask: &Ask, is_alone: bool, bytes: &[u8]) -> bool {
    match ask.protocol {
        Protocol::Classic => false,
        Protocol::Meta => match Meta::decode(bytes) {
            Ok(Some((response, _))) => is_own(ask, &response),
            // A line of classic text has no opaque.
            Ok(None) | Err(_) => is_alone,
        },
        Protocol::Binary => match decode_packet(bytes, usize::MAX) {
            Ok(Some((packet, _))) => packet.opaque == ask.number,
            Ok(None) | Err(_) => true,
        },
    }
}

fn is_own(ask: &Ask, response: &Meta<'_>) -> bool {
    response.flag(b'O').and_then(number) == Some(ask.number.into())
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Reads the next answer off the front of `bytes`, and how long it is.
///
/// # Errors
/// If it is no whole answer to such a request.
pub(super) fn decode<'a>(
    ask: &Ask,
    names: &Names,
    bytes: &'a [u8],
) -> Result<(Observed<'a>, usize), Unfit> {
    match ask.protocol {
        Protocol::Classic => classic(ask, names, bytes),
        Protocol::Meta => meta(ask, names, bytes),
        Protocol::Binary => binary(ask, names, bytes),
    }
}

fn classic<'a>(ask: &Ask, names: &Names, bytes: &'a [u8]) -> Result<(Observed<'a>, usize), Unfit> {
    let (response, taken) = match Classic::decode(bytes) {
        Ok(Some(decoded)) => decoded,
        Ok(None) => return Err("half an answer"),
        Err(_) => return Err("bytes that are no answer in text"),
    };
    let answer = match response {
        Classic::Value {
            key,
            client_flags,
            value,
            cas,
        } => {
            if cas.is_some() != ask.style.with_cas {
                return Err("a version shown to a get, or not shown to a gets");
            }
            let key = names.number(key).ok_or("an item that was never stored")?;
            Observed::Hit(Hit {
                key: Some(key),
                value: Some(value),
                cas: cas.map(Cas::number),
                client_flags: Some(client_flags),
                ..Hit::default()
            })
        }
        Classic::Key {
            word,
            key_form: KeyForm::Plain,
        } => Observed::Key(listed(ask, names, word)?),
        Classic::Key {
            key_form: KeyForm::Binary,
            ..
        } => return Err("a key in base64, though all names can stand on a line"),
        Classic::Stat { .. } => Observed::Stat,
        Classic::End => Observed::End,
        Classic::Stored => Observed::Stored(None),
        Classic::NotStored => Observed::NotStored,
        Classic::Exists => Observed::Exists,
        Classic::NotFound => Observed::Missing,
        Classic::Deleted => Observed::Deleted,
        Classic::Touched => Observed::Touched,
        Classic::Ok => Observed::Ok,
        Classic::Locked => Observed::Locked,
        Classic::Number(number) => Observed::Counted(Counted {
            number: Some(number),
            ..Counted::default()
        }),
        Classic::Version(_) => Observed::Greeting,
        Classic::Error(_) => Observed::Malformed,
        Classic::ClientError(reason) => client_error(reason),
        Classic::ServerError(reason) => server_error(reason)?,
        Classic::Reset if ask.what == What::StatsReset => Observed::Ok,
        Classic::Reset => return Err("RESET to a request that is no reset"),
    };
    Ok((answer, taken))
}

/// Which key a listing shows. There are some that no client asks for.
fn listed(ask: &Ask, names: &Names, key: &[u8]) -> Result<Option<usize>, Unfit> {
    let prefix = ask
        .prefix(names.count())
        .map_or(&b""[..], |key| names.plain(key));
    if !key.starts_with(prefix) {
        return Err("a key that does not begin as it was asked to");
    }
    let number = names.number(key);
    if number.is_none() && !key.starts_with(b"~") {
        return Err("a key that was never stored");
    }
    Ok(number)
}

fn client_error(reason: &[u8]) -> Observed<'static> {
    match reason {
        b"object is not locked or not found" => Observed::NotLocked,
        b"cannot increment or decrement non-numeric value" => Observed::NonNumeric,
        _ => Observed::Malformed,
    }
}

fn server_error(reason: &[u8]) -> Result<Observed<'static>, Unfit> {
    match reason {
        b"out of memory" | b"out of memory storing object" => Ok(Observed::OutOfMemory),
        b"object too large for cache" => Ok(Observed::TooLarge),
        b"too many locks" => Ok(Observed::TooManyLocks),
        _ => Err("a server error that no request of these brings about"),
    }
}

fn meta<'a>(ask: &Ask, names: &Names, bytes: &'a [u8]) -> Result<(Observed<'a>, usize), Unfit> {
    let (response, taken) = match Meta::decode(bytes) {
        Ok(Some(decoded)) => decoded,
        Ok(None) => return Err("half an answer"),
        Err(_) => {
            let error = classic(ask, names, bytes)?;
            return match error.0 {
                Observed::NonNumeric | Observed::OutOfMemory | Observed::TooLarge => Ok(error),
                _ => Err("a classic answer to a meta command"),
            };
        }
    };
    let plain = matches!(ask.what, What::Debug | What::Noop);
    if !plain && !is_own(ask, &response) {
        return Err("the opaque of another request");
    }
    if ask.style.with_key && !plain {
        let key = ask.key();
        let shown = response.flag(b'k').unwrap_or_default();
        let expected = match response.flag(b'b') {
            Some(_) => names.base64(key),
            None => names.plain(key),
        };
        if shown != expected {
            return Err("the key of another request");
        }
    }
    let cas = response.flag(b'c').and_then(number).filter(|cas| *cas != 0);
    let is_value = response.code == Code::Value;
    // With a version that the client has, there may be nothing to show.
    let may_be_left_out = ask.known_cas().is_some();
    let answer = match response.code {
        Code::Done | Code::Value
            if is_value != ask.style.with_value && (is_value || !may_be_left_out) =>
        {
            return Err("a value that was not asked for, or none that was");
        }
        Code::Done | Code::Value if ask.reads() => Observed::Hit(Hit {
            key: None,
            value: is_value.then_some(response.value),
            cas,
            client_flags: shown(ask.style.with_client_flags, &response, b'f', client_flags)?,
            ttl: shown(ask.style.ttl_after.is_some(), &response, b't', ttl)?,
            is_unchanged: (ask.style.with_value && may_be_left_out).then_some(!is_value),
            marks: Some(Marks {
                stale: response.flag(b'X').is_some(),
                won: response.flag(b'W').is_some(),
                sent: response.flag(b'Z').is_some(),
            }),
        }),
        Code::Done | Code::Value if ask.counts() => Observed::Counted(Counted {
            number: if is_value {
                Some(number(response.value).ok_or("a number that is none")?)
            } else {
                None
            },
            cas,
            ttl: shown(ask.style.ttl_after.is_some(), &response, b't', ttl)?,
        }),
        Code::Done => match ask.what {
            What::Delete | What::MarkStale | What::Clear | What::ClearAndMarkStale => {
                Observed::Deleted
            }
            _ => Observed::Stored(cas),
        },
        Code::Value => return Err("a value where none is"),
        Code::Miss | Code::NotFound => Observed::Missing,
        Code::NotStored => Observed::NotStored,
        Code::Exists => Observed::Exists,
        Code::Locked => Observed::Locked,
        Code::Debug => debug(response.flags)?,
        Code::Noop => Observed::Greeting,
    };
    Ok((answer, taken))
}

/// What a flag shows, if and only if it was asked for.
fn shown<T>(
    is_wanted: bool,
    response: &Meta<'_>,
    letter: u8,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, Unfit> {
    match (is_wanted, response.flag(letter)) {
        (true, Some(token)) => read(token).map(Some).ok_or("a flag that cannot be read"),
        (false, None) => Ok(None),
        (true, None) | (false, Some(_)) => Err("a flag that was not asked for, or none that was"),
    }
}

fn client_flags(digits: &[u8]) -> Option<u32> {
    u32::try_from(number(digits)?).ok()
}

fn ttl(digits: &[u8]) -> Option<Ttl> {
    match digits {
        b"-1" => Some(Ttl::Never),
        _ => number(digits).map(Ttl::Seconds),
    }
}

/// The two of its many words that the auditor can judge.
fn debug(words: &[u8]) -> Result<Observed<'static>, Unfit> {
    let (mut cas, mut lock) = (None, None);
    for word in words.split(|byte| *byte == b' ') {
        if let Some(digits) = word.strip_prefix(b"cas=") {
            cas = number(digits);
        } else if let Some(digits) = word.strip_prefix(b"lock=") {
            lock = number(digits);
        }
    }
    let cas = cas.ok_or("an item without a version")?;
    Ok(Observed::Debug { cas, lock })
}

fn binary<'a>(ask: &Ask, names: &Names, bytes: &'a [u8]) -> Result<(Observed<'a>, usize), Unfit> {
    let (packet, taken) = match decode_packet(bytes, usize::MAX) {
        Ok(Some(decoded)) => decoded,
        Ok(None) => return Err("half an answer"),
        Err(_) => return Err("bytes that are no packet of a server"),
    };
    if packet.opaque != ask.number {
        return Err("the opaque of another request");
    }
    if Some(packet.opcode) != ask.opcode.map(Opcode::byte) {
        return Err("the opcode of another request");
    }
    let answer = match packet.status {
        Status::SUCCESS => success(ask, names, &packet)?,
        Status::NOT_FOUND if ask.what == What::Replace && !ask.is_guarded() => Observed::NotStored,
        Status::NOT_FOUND => Observed::Missing,
        Status::EXISTS if ask.what == What::Add => Observed::NotStored,
        Status::EXISTS => Observed::Exists,
        Status::TOO_LARGE => Observed::TooLarge,
        Status::NOT_STORED => Observed::NotStored,
        Status::NON_NUMERIC => Observed::NonNumeric,
        Status::LOCKED => Observed::Locked,
        Status::NOT_LOCKED => Observed::NotLocked,
        Status::UNKNOWN_COMMAND => Observed::Malformed,
        Status::OUT_OF_MEMORY if packet.value == b"Too many locks" => Observed::TooManyLocks,
        Status::OUT_OF_MEMORY => Observed::OutOfMemory,
        _ => return Err("a status that no request of these brings about"),
    };
    Ok((answer, taken))
}

fn success<'a>(
    ask: &Ask,
    names: &Names,
    packet: &ResponsePacket<'a>,
) -> Result<Observed<'a>, Unfit> {
    let cas = packet.cas.map(Cas::number);
    Ok(match ask.what {
        What::Get | What::LockAndGet => {
            let expected = if ask.style.with_key {
                names.plain(ask.key())
            } else {
                b""
            };
            if packet.key != expected {
                return Err("the key of another request");
            }
            if cas.is_none() {
                return Err("an item without a version");
            }
            let client_flags = u32::from_be_bytes(
                packet
                    .extras
                    .try_into()
                    .map_err(|_| "an item without client flags")?,
            );
            Observed::Hit(Hit {
                key: None,
                value: Some(packet.value),
                cas,
                client_flags: Some(client_flags),
                ..Hit::default()
            })
        }
        What::Touch => Observed::Touched,
        What::Set
        | What::Add
        | What::Replace
        | What::Append
        | What::Prepend
        | What::ReplaceAndUnlock => {
            if cas.is_none() {
                return Err("an item without a version");
            }
            Observed::Stored(cas)
        }
        What::Delete => Observed::Deleted,
        What::Increment | What::Decrement => Observed::Counted(Counted {
            number: Some(packet.number().ok_or("a number that is none")?),
            cas,
            ttl: None,
        }),
        What::Lock | What::Unlock | What::UnlockAll | What::Flush | What::StatsReset => {
            Observed::Ok
        }
        What::Keys | What::Stats if packet.key.is_empty() => Observed::End,
        What::Keys => Observed::Key(listed(ask, names, packet.key)?),
        What::Stats => Observed::Stat,
        What::Version | What::Noop => Observed::Greeting,
        What::Quit => Observed::End,
        _ => return Err("success where there is none"),
    })
}
