//! The reply to a change of an item that another connection has locked.
//!
//! memcached's clients do not know the replies `LOCKED`, `LK` and 0x0010. An operator can choose memcached's
//! own replies instead ([`LockedReply::NotStored`]), for connections that have not used a lock command.
//!
//! - A set gets `NOT_STORED`, `NS` or 0x0005: it was not stored. With a version to compare it gets `EXISTS`,
//!   `EX` or 0x0002, as if another client had been faster, since clients do not expect `NOT_STORED` there.
//! - A delete, an increment and a decrement get the reply for a missing item: memcached has no other failure
//!   there.

use super::Envelope;
use super::binary::{Status, StatusPacket};
use super::{classic, meta};
use crate::command::{Command, GlobalCommand, Guard, ItemCommand, SetMode};
use crate::output::Output;
use crate::reply::Reply;

/// The reply about a lock, for a connection that has used no lock command.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LockedReply {
    /// `LOCKED`, `LK`, 0x0010.
    #[default]
    Locked,
    /// memcached's replies.
    NotStored,
}

/// The reply about a lock, for one connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WhenLocked {
    /// `LOCKED`, `LK`, 0x0010.
    Locked,
    /// memcached's reply: this one for the command of the last step.
    Plain(PlainWords),
}

/// A reply of memcached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PlainWords {
    NotStored,
    Exists,
    NotFound,
}

impl WhenLocked {
    pub(crate) const fn new(reply: LockedReply) -> Self {
        match reply {
            LockedReply::Locked => Self::Locked,
            LockedReply::NotStored => Self::Plain(PlainWords::NotStored),
        }
    }

    /// The next command of the connection is `command`.
    pub(crate) fn note(&mut self, command: &Command<'_>) {
        if self.is_plain() {
            *self = match words(command) {
                Some(words) => Self::Plain(words),
                None => Self::Locked,
            };
        }
    }

    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        matches!(self, Self::Plain(_))
    }
}

/// The reply to `command` instead of `LOCKED`; `None` if it is a command about locks.
fn words(command: &Command<'_>) -> Option<PlainWords> {
    if command.is_of_locks() {
        return None;
    }
    Some(match command {
        Command::Item(ItemCommand::Set(set))
            if set.guard != Guard::None && set.mode != SetMode::Add =>
        {
            PlainWords::Exists
        }
        Command::Item(ItemCommand::Delete(_) | ItemCommand::Arithmetic(_)) => PlainWords::NotFound,
        // No lock refuses the others.
        Command::Item(
            ItemCommand::Set(_)
            | ItemCommand::Get(_)
            | ItemCommand::SetTooLarge { .. }
            | ItemCommand::Acquire(_)
            | ItemCommand::Release(_)
            | ItemCommand::Lock { .. }
            | ItemCommand::Unlock { .. },
        )
        | Command::Global(
            GlobalCommand::UnlockAll
            | GlobalCommand::FlushAll { .. }
            | GlobalCommand::Keys(_)
            | GlobalCommand::Stats(_)
            | GlobalCommand::StatsReset,
        ) => PlainWords::NotStored,
    })
}

impl PlainWords {
    /// Appends the reply, in the form that the request asked for.
    #[cold]
    pub(crate) fn encode(self, envelope: &Envelope<'_>, out: &mut Output) {
        let (reply, status) = match self {
            Self::NotStored => (Reply::NotStored, Status::NOT_STORED),
            Self::Exists => (Reply::Exists, Status::EXISTS),
            Self::NotFound => (Reply::NotFound, Status::NOT_FOUND),
        };
        match envelope {
            Envelope::Classic(envelope) => classic::reply::encode(*envelope, &reply, out),
            Envelope::Meta(envelope) => meta::reply::encode(envelope, &reply, out),
            // Not as the reply: it has another status for each verb.
            Envelope::Binary(envelope) => {
                StatusPacket::error(envelope.opcode.byte(), envelope.opaque, status)
                    .encode(out.copied());
            }
        }
    }
}
