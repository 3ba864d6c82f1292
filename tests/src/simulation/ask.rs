//! A request of a simulated client, before it is bytes: what it asks for, in the words of which
//! protocol, and how it wants to be answered.
//!
//! What is asked is a [`SmallRequest`] of the alphabet that all layers draw from, such that its wire can
//! say it exactly ([`nearest`](latchd_harness::wording::nearest)); or one of the few things that only a wire has, of which no core hears.
//! It is a small plain value, so that a client can remember what it waits for, and the trace what
//! happened, without allocating.

use std::ops::Range;

use latchd_core::command::{Direction, Guard, LockAfter, Removal, SetMode, TtlSteps};
use latchd_core::wire::binary::Opcode;
use latchd_harness::alphabet::{SmallArithmetic, SmallDelete, SmallGet, SmallRequest, SmallSet};
use latchd_harness::wording::{Protocol, Style};

use super::workload::intent::{Text, Versions};

/// Which word of its protocol a request begins with, whatever it is called there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// `get`, `gets`, `gat`, `gats`, `mg`, `Get…`, `Gat…`; several keys in classic text.
    Get,
    /// `touch` and its packet: they do not show the item.
    Touch,
    Set,
    Add,
    /// With a version it is a `cas`, as far as the core goes.
    Replace,
    Append,
    Prepend,
    /// Binary only: replace-and-unlock.
    ReplaceAndUnlock,
    Delete,
    /// Meta only: `md I`.
    MarkStale,
    /// Meta only: `md x`.
    Clear,
    /// Meta only: `md x I`.
    ClearAndMarkStale,
    Increment,
    Decrement,
    Lock,
    /// Binary only.
    LockAndGet,
    Unlock,
    UnlockAll,
    Flush,
    Keys,
    Stats,
    StatsReset,
    /// Meta only: `me`.
    Debug,
    Version,
    /// `mn`, `Noop`: what stands before it has been answered.
    Noop,
    /// No command of this protocol: an error, and nothing else happens.
    Unknown,
    /// A body of another length than announced, with a line end where the next line is to begin.
    BadBody,
    /// The last request: `quit`.
    Quit,
    /// A line without an end, or a packet that does not begin as one: the server is to close.
    Nonsense,
}

/// The most keys in one `get`.
pub(super) const KEYS_MAX: usize = 6;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) what: What,
    pub(super) protocol: Protocol,
    /// What the core is to be asked, in the words of the alphabet; `None` for what only a wire has.
    pub(super) request: Option<SmallRequest>,
    /// Of `keys`, those that are asked for; one but for a classic get.
    pub(super) key_count: u8,
    /// Numbers of keys.
    pub(super) keys: [u8; KEYS_MAX],
    /// What its value stands for.
    pub(super) text: Text,
    /// Its value is over the limit.
    pub(super) is_too_large: bool,
    /// What its versions stand for.
    pub(super) versions: Versions,
    /// How it is written, and what its answer is to show.
    pub(super) style: Style,
    /// Its opcode, if it is a packet.
    pub(super) opcode: Option<Opcode>,
    /// Its number on its connection; what `O` and the opaque of a packet say.
    pub(super) number: u32,
    /// Where in the bytes of its connection it begins and ends.
    pub(super) start: u64,
    pub(super) end: u64,
    /// How many commands of it the core has executed.
    pub(super) executed: u8,
    /// It has been answered (or passed over in silence), though its bytes are not all done with.
    pub(super) answered: bool,
    /// Of a classic get: how many keys are answered. Of a listing: whether a page is.
    pub(super) keys_answered: u8,
}

impl Ask {
    /// A request with nothing but what it asks.
    pub(super) fn new(what: What, protocol: Protocol) -> Self {
        Self {
            what,
            protocol,
            request: None,
            key_count: 1,
            keys: [0; KEYS_MAX],
            text: Text::Digits {
                number: 0,
                blanks: 0,
            },
            is_too_large: false,
            versions: Versions::NONE,
            style: Style::default(),
            opcode: None,
            number: 0,
            start: 0,
            end: 0,
            executed: 0,
            answered: false,
            keys_answered: 0,
        }
    }

    pub(super) const fn key(&self) -> usize {
        self.keys[0] as usize
    }

    /// It carries a value.
    pub(super) const fn stores(&self) -> bool {
        matches!(
            self.what,
            What::Set
                | What::Add
                | What::Replace
                | What::Append
                | What::Prepend
                | What::ReplaceAndUnlock
                | What::BadBody
        )
    }

    /// It reads an item, and shows what it is asked to show.
    pub(super) const fn reads(&self) -> bool {
        matches!(self.what, What::Get | What::LockAndGet)
    }

    pub(super) const fn counts(&self) -> bool {
        matches!(self.what, What::Increment | What::Decrement)
    }

    /// `noreply`: nothing is ever sent.
    pub(super) fn is_unanswered(&self) -> bool {
        self.style.quiet && self.protocol == Protocol::Classic
    }

    /// The client means the connection to end.
    pub(super) const fn ends_connection(&self) -> bool {
        matches!(self.what, What::Quit | What::Nonsense)
    }

    /// Whether the core hears of it. A value over the limit takes the old one out if it comes with
    /// a plain set, or in meta text, which has one verb for all; others are refused unread.
    pub(super) fn reaches_core(&self) -> bool {
        self.request.is_some()
            && (!self.is_too_large
                || match self.protocol {
                    Protocol::Classic => self.what == What::Set && !self.is_guarded(),
                    Protocol::Meta => true,
                    Protocol::Binary => self.what == What::Set,
                })
    }

    /// It says which version the item must have.
    pub(super) fn is_guarded(&self) -> bool {
        self.guard() != Guard::None
    }

    /// Which version the item must have.
    pub(super) fn guard(&self) -> Guard {
        match self.request {
            Some(
                SmallRequest::Set(SmallSet { guard, .. })
                | SmallRequest::Delete(SmallDelete { guard, .. })
                | SmallRequest::Arithmetic(SmallArithmetic { guard, .. }),
            ) => self.versions.guard(guard),
            _ => Guard::None,
        }
    }

    /// The version that the client has, in a `mg`.
    pub(super) fn known_cas(&self) -> Option<u64> {
        match self.request {
            Some(SmallRequest::Get(SmallGet { known_cas, .. })) => {
                known_cas.map(|cas| self.versions.number(cas))
            }
            _ => None,
        }
    }

    /// The version that the item is to get.
    pub(super) fn new_cas(&self) -> Option<u64> {
        let new_cas = match self.request {
            Some(
                SmallRequest::Get(SmallGet { new_cas, .. })
                | SmallRequest::Set(SmallSet { new_cas, .. })
                | SmallRequest::Delete(SmallDelete { new_cas, .. })
                | SmallRequest::Arithmetic(SmallArithmetic { new_cas, .. }),
            ) => new_cas,
            _ => None,
        };
        new_cas.map(|cas| self.versions.number(cas))
    }

    /// Touch, vivify and recache.
    pub(super) fn steps(&self) -> TtlSteps {
        match self.request {
            Some(
                SmallRequest::Get(SmallGet { steps, .. })
                | SmallRequest::Arithmetic(SmallArithmetic { steps, .. }),
            ) => steps,
            _ => TtlSteps::NONE,
        }
    }

    /// The key whose name is the beginning of those to be listed, of so many keys.
    pub(super) fn prefix(&self, keys: usize) -> Option<usize> {
        match self.request {
            Some(SmallRequest::Keys { prefix }) => prefix.map(|key| key.among(keys)),
            _ => None,
        }
    }

    /// Of `keys` keys, those on whose locks a client that sends it may not count any more. A value
    /// over the limit takes the item away, and its lock with it.
    pub(super) fn relinquishes(&self, keys: usize) -> Range<usize> {
        let own = self.key()..self.key() + 1;
        match self.what {
            What::UnlockAll | What::Quit | What::Nonsense => 0..keys,
            What::Unlock | What::ReplaceAndUnlock | What::Delete => own,
            What::Set | What::Add | What::Replace | What::Append | What::Prepend
                if self.is_too_large =>
            {
                own
            }
            What::Set
            | What::Add
            | What::Replace
            | What::Append
            | What::Prepend
            | What::Get
            | What::Touch
            | What::MarkStale
            | What::Clear
            | What::ClearAndMarkStale
            | What::Increment
            | What::Decrement
            | What::Lock
            | What::LockAndGet
            | What::Flush
            | What::Keys
            | What::Stats
            | What::StatsReset
            | What::Debug
            | What::Version
            | What::Noop
            | What::Unknown
            | What::BadBody => 0..0,
        }
    }
}

impl What {
    /// The word that a request begins with. A touch may show the item or not (`shows`), and a guarded
    /// replace and a guarded set are the same command (`as_replace`): there the client chooses.
    pub(super) fn of(
        request: &SmallRequest,
        protocol: Protocol,
        shows: bool,
        as_replace: bool,
    ) -> Self {
        match *request {
            SmallRequest::Get(SmallGet { lock: true, .. }) => Self::LockAndGet,
            SmallRequest::Get(SmallGet { bump, recaches, .. }) if !bump && !recaches => Self::Debug,
            SmallRequest::Get(SmallGet { steps, .. }) => {
                if protocol != Protocol::Meta && !steps.is_empty() && !shows {
                    Self::Touch
                } else {
                    Self::Get
                }
            }
            SmallRequest::Set(SmallSet {
                lock: LockAfter::Release,
                ..
            }) => Self::ReplaceAndUnlock,
            SmallRequest::Set(SmallSet { mode, .. }) => match mode {
                SetMode::Set if as_replace => Self::Replace,
                SetMode::Set => Self::Set,
                SetMode::Add => Self::Add,
                SetMode::Replace => Self::Replace,
                SetMode::Append { .. } => Self::Append,
                SetMode::Prepend { .. } => Self::Prepend,
            },
            SmallRequest::SetTooLarge { .. } => Self::Set,
            SmallRequest::Delete(SmallDelete { removal, .. }) => match removal {
                Removal::Remove => Self::Delete,
                Removal::MarkStale { .. } => Self::MarkStale,
                Removal::Clear { .. } => Self::Clear,
                Removal::ClearAndMarkStale { .. } => Self::ClearAndMarkStale,
            },
            SmallRequest::Arithmetic(SmallArithmetic { direction, .. }) => match direction {
                Direction::Increment => Self::Increment,
                Direction::Decrement => Self::Decrement,
            },
            SmallRequest::Acquire(_) | SmallRequest::Release { .. } => {
                unreachable!("locks are spoken of in the old words")
            }
            SmallRequest::Lock { .. } => Self::Lock,
            SmallRequest::Unlock { .. } => Self::Unlock,
            SmallRequest::UnlockAll => Self::UnlockAll,
            SmallRequest::FlushAll { .. } => Self::Flush,
            SmallRequest::Keys { .. } => Self::Keys,
            SmallRequest::Stats => Self::Stats,
            SmallRequest::StatsReset => Self::StatsReset,
        }
    }
}
