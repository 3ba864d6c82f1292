//! A client of the crowd: what is on its way to the server, and what it reads.

use latchd_core::ConnId;
use latchd_core::fence::Fence;
use latchd_core::reply::Refusal;
use latchd_core::wire::meta::reply::{Code, MetaResponse};
use latchd_harness::oracle::{OwnedReply, Win};

use super::ask::{Ask, Verb};

/// One client, over all its connections.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// `None` between two connections.
    pub(super) conn: Option<ConnId>,
    /// Written, and not at the server.
    pub(super) to_server: Vec<u8>,
    /// At the client, and not read.
    pub(super) answers: Vec<u8>,
    /// How many requests it has written on this connection.
    pub(super) asked: u32,
    /// The last fence it has read, and of which key.
    pub(super) fence: Option<(usize, Fence)>,
    /// The server does not read on before it has sent.
    pub(super) is_full: bool,
    /// Its request waits.
    pub(super) waits: bool,
}

impl Client {
    pub(super) fn forget(&mut self) {
        *self = Self {
            fence: self.fence,
            ..Self::default()
        };
    }
}

/// Reads an answer off the front of `bytes`, which is to be the one to `ask`, whose reply was `reply` (C3). Returns how long it
/// is, and the fence that it tells.
///
/// # Errors
/// What it is instead.
pub(super) fn read(
    ask: &Ask,
    reply: &OwnedReply,
    bytes: &[u8],
) -> Result<(usize, Option<Fence>), String> {
    let shown = || bytes[..bytes.len().min(80)].escape_ascii().to_string();
    let line = match (ask.verb, reply) {
        (Verb::UnlockAll | Verb::FlushAll { .. }, _) => Some(&b"OK\r\n"[..]),
        (Verb::Count { .. }, OwnedReply::Refused(refusal))
            if !matches!(refusal, Refusal::Locked | Refusal::NotLocked) =>
        {
            Some(&b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"[..])
        }
        (Verb::Lock { .. } | Verb::Get(_), OwnedReply::Refused(_)) => {
            Some(&b"SERVER_ERROR too many locks\r\n"[..])
        }
        _ => None,
    };
    if let Some(line) = line {
        let is_it = bytes.starts_with(line);
        return is_it.then_some((line.len(), None)).ok_or_else(shown);
    }
    let (response, taken) = MetaResponse::decode(bytes)
        .ok()
        .flatten()
        .ok_or_else(shown)?;
    let opaque = response.flag(b'O').and_then(number);
    if opaque != Some(ask.number.into()) || response.code != code(ask, reply) {
        return Err(shown());
    }
    let fence = response.flag(b'F').and_then(number).and_then(Fence::new);
    if let OwnedReply::Granted { fence: given, .. } = reply
        && fence.map(Fence::number) != Some(*given)
    {
        return Err(shown());
    }
    if let OwnedReply::Hit(seen) = reply {
        let is_shown = [
            (b'W', seen.win == Win::Won),
            (b'Z', seen.win == Win::Sent),
            (b'X', seen.stale),
        ];
        let is_marked = is_shown
            .iter()
            .all(|(letter, is_due)| response.flag(*letter).is_some() == *is_due);
        if !is_marked || ask.looks && response.value != seen.value {
            return Err(shown());
        }
    }
    Ok((taken, fence))
}

/// The two letters that say such a reply.
fn code(ask: &Ask, reply: &OwnedReply) -> Code {
    match reply {
        OwnedReply::Granted { item: Some(_), .. } | OwnedReply::Hit(_) if ask.looks => Code::Value,
        OwnedReply::Miss => Code::Miss,
        OwnedReply::NotStored => Code::NotStored,
        OwnedReply::Exists | OwnedReply::Refused(Refusal::NotLocked) => Code::Exists,
        OwnedReply::NotFound => Code::NotFound,
        OwnedReply::Contended(_) | OwnedReply::WouldDeadlock(_) | OwnedReply::Refused(_) => {
            Code::Locked
        }
        OwnedReply::Hit(_)
        | OwnedReply::Granted { .. }
        | OwnedReply::Stored { .. }
        | OwnedReply::Deleted
        | OwnedReply::Number { .. }
        | OwnedReply::Locked
        | OwnedReply::Waits
        | OwnedReply::Unlocked
        | OwnedReply::Ok
        | OwnedReply::Keys(_)
        | OwnedReply::Stats(_) => Code::Done,
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
