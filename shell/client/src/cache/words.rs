//! The requests of plain cache calls, and the meaning of their replies.

use bytes::Bytes;
use latchd_client_core::{AnyRequest, AnyResponse};
use latchd_protocol::key::Key;
use latchd_protocol::wire::meta::reply::Code;
use latchd_protocol::wire::meta::{Flag, Verb};

use super::{CacheItem, GetOptions, Outcome};
use crate::error::ErrorKind;

pub(super) fn read<'a>(key: Key<'a>, options: &GetOptions) -> AnyRequest<'a> {
    let mut flags = vec![
        Flag::Value,
        Flag::ShowClientFlags,
        Flag::ShowCas,
        Flag::ShowTtl,
    ];
    flags.extend(options.touch.map(Flag::Touch));
    flags.extend(options.vivify.map(Flag::Vivify));
    flags.extend(options.recache.map(Flag::Recache));
    AnyRequest::meta(Verb::Get, key, flags, &[])
}

pub(super) fn item(answer: &AnyResponse<'_>) -> Result<Option<CacheItem>, ErrorKind> {
    match answer.code() {
        Some(Code::Value) => Ok(Some(CacheItem {
            value: Bytes::copy_from_slice(answer.value()),
            client_flags: answer
                .number(b'f')
                .and_then(|flags| u32::try_from(flags).ok())
                .unwrap_or_default(),
            cas: answer.number(b'c').unwrap_or_default(),
            // -1 means that it never expires.
            ttl_s: answer.number(b't'),
            stale: answer.has(b'X'),
            won: answer.has(b'W'),
        })),
        Some(Code::Miss) => Ok(None),
        Some(_) | None => Err(refusal(answer)),
    }
}

/// The result of a change.
pub(super) fn outcome(answer: &AnyResponse<'_>) -> Result<Outcome, ErrorKind> {
    match answer.code() {
        Some(Code::Done) => Ok(Outcome::Done),
        Some(Code::NotStored) => Ok(Outcome::NotStored),
        Some(Code::NotFound | Code::Miss) => Ok(Outcome::NotFound),
        Some(Code::Exists) => Ok(Outcome::Exists),
        Some(Code::Locked) => Ok(Outcome::Locked),
        Some(Code::Value | Code::Debug | Code::Noop) | None => Err(refusal(answer)),
    }
}

/// The result of a count; `None` if there is no item.
pub(super) fn number(answer: &AnyResponse<'_>) -> Result<Option<u64>, ErrorKind> {
    match answer.code() {
        Some(Code::Value) => number_in(answer.value()).map(Some),
        Some(Code::NotFound) => Ok(None),
        Some(_) | None => Err(refusal(answer)),
    }
}

fn number_in(value: &[u8]) -> Result<u64, ErrorKind> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let no_number = |_| ErrorKind::Refused("no number".into());
    text.trim_end().parse().map_err(no_number)
}

/// The error for an unexpected reply.
pub(crate) fn refusal(answer: &AnyResponse<'_>) -> ErrorKind {
    if answer.code() == Some(Code::Locked) {
        return ErrorKind::Refused("LOCKED".into());
    }
    let words = answer.refusal();
    ErrorKind::refused(words.unwrap_or_else(|| "an unexpected reply".into()))
}
