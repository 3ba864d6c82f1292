//! What a connection is told when another one holds the lock of an item that it wants to change.
//!
//! `LOCKED`, `LK` and 0x0010 are answers that no client of memcached knows. An operator can have memcached's own words
//! said instead ([`LockedReply::NotStored`]), to connections that have not used a lock command.
//!
//! - A set gets `NOT_STORED`, `NS` or 0x0005: it was not stored. With a version to compare it gets `EXISTS`, `EX` or
//!   0x0002, as if another client had been faster: no client expects `NOT_STORED` there.
//! - A delete, an increment and a decrement get what a missing item gets: memcached has no other word for "not done"
//!   there.

use super::Envelope;
use super::binary::{Status, StatusPacket};
use super::{classic, meta};
use crate::command::{Command, GlobalCommand, Guard, ItemCommand, SetMode};
use crate::output::Output;
use crate::reply::Reply;

/// In whose words a connection that has used no lock command is told of a lock.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LockedReply {
    /// `LOCKED`, `LK`, 0x0010.
    #[default]
    Locked,
    /// memcached's.
    NotStored,
}

/// What one connection is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WhenLocked {
    /// `LOCKED`, `LK`, 0x0010.
    Locked,
    /// memcached's words: for the command of the last step, these.
    Plain(PlainWords),
}

/// An answer of memcached's.
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

    /// The connection asks for `command` next.
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

/// What `command` is told instead of `LOCKED`; `None` if it is of locks itself.
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
        // The others are refused for no lock.
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
    /// Appends the answer, in the form that the request asked for.
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
