//! A request of a simulated client, before it is bytes: the request, its protocol, and the wanted
//! form of the answer.
//!
//! It is a [`SmallRequest`] of the alphabet that all layers draw from, such that its wire can say
//! it exactly ([`nearest`](latchd_harness::wording::nearest)); or one of the few requests that only
//! a wire has, and that the core does not see. It is a small plain value, so that a client can
//! remember the request that waits without allocating.

use latchd_harness::alphabet::{
    GuardChoice, SmallAcquire, SmallArithmetic, SmallDelete, SmallGet, SmallRequest, SmallSet, Told,
};
use latchd_harness::wording::{Protocol, Style};
use latchd_protocol::command::{Direction, LockAfter, SetMode, TtlSteps};
use latchd_protocol::key::KeyForm;
use latchd_protocol::wire::binary::Opcode;

use super::workload::intent::Text;

/// The first word of a request, under one name for all protocols.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// `get`, `gets`, `gat`, `gats`, `mg`, `Get…`, `Gat…`; several keys in classic text.
    Get,
    /// `touch` and its packet: they do not show the item.
    Touch,
    Set,
    Add,
    /// With a version the core sees a `cas`.
    Replace,
    Append,
    Prepend,
    /// Binary only: replace-and-unlock.
    ReplaceAndUnlock,
    /// In meta text every kind of removal.
    Delete,
    Increment,
    Decrement,
    Lock,
    /// Binary only.
    LockAndGet,
    Unlock,
    /// Meta only: `ml`.
    Acquire,
    /// Meta only: `mu`.
    Release,
    UnlockAll,
    Flush,
    Keys,
    Stats,
    StatsReset,
    /// Meta only: `me`.
    Debug,
    Version,
    /// `mn`, `Noop`: all requests before it have been answered.
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

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) what: What,
    pub(super) protocol: Protocol,
    /// The request to the core, in the words of the alphabet; `None` for a request that only a wire
    /// has.
    pub(super) request: Option<SmallRequest>,
    /// How many keys it asks for; one, except for a classic get.
    pub(super) key_count: usize,
    /// The number of the first key; the others are the next ones, and behind the last `among` keys the first again.
    pub(super) first: usize,
    pub(super) max_sharers: usize,
    /// The meaning of its value.
    pub(super) text: Text,
    /// Its value is over the limit.
    pub(super) is_too_large: bool,
    /// The meaning of its versions and fences.
    pub(super) told: Told,
    /// How it is written, and the parts that its answer shows.
    pub(super) style: Style,
    /// Its opcode, if it is a packet.
    pub(super) opcode: Option<Opcode>,
    /// Its number on its connection; it stands in `O` and in the opaque of a packet.
    pub(super) number: u32,
    /// Where in the bytes of its connection it ends.
    pub(super) end: u64,
}

impl Ask {
    /// A request without optional parts.
    pub(super) fn new(what: What, protocol: Protocol, number: u32) -> Self {
        Self {
            what,
            protocol,
            request: None,
            key_count: 1,
            first: 0,
            max_sharers: usize::MAX,
            text: Text::Digits {
                number: 0,
                blanks: 0,
            },
            is_too_large: false,
            told: Told::NOTHING,
            style: Style::default(),
            opcode: None,
            number,
            end: 0,
        }
    }

    /// The number of the key at `place`.
    pub(super) const fn key(&self, place: usize) -> usize {
        (self.first + place) % self.max_sharers
    }

    /// Whether it may wait.
    pub(super) const fn may_wait(&self) -> bool {
        matches!(
            self.request,
            Some(
                SmallRequest::Acquire(SmallAcquire {
                    wait_ms: Some(_),
                    ..
                }) | SmallRequest::Get(SmallGet {
                    wait_ms: Some(_),
                    ..
                })
            )
        )
    }

    /// The client means to end the connection.
    pub(super) const fn ends_connection(&self) -> bool {
        matches!(self.what, What::Quit | What::Nonsense)
    }

    /// Whether the core sees it. A value over the limit removes the old one in two cases: a plain
    /// set by the client itself, and any set in meta text, which has one verb for all; others are
    /// refused unread.
    pub(super) fn reaches_core(&self) -> bool {
        match (&self.request, self.protocol) {
            (None, _) => false,
            (Some(SmallRequest::Set(set)), protocol) if self.is_too_large => match protocol {
                Protocol::Classic => self.what == What::Set && set.guard == GuardChoice::None,
                Protocol::Meta => set.fence.is_none() && set.lock == LockAfter::Keep,
                Protocol::Binary => self.what == What::Set,
            },
            (Some(_), _) => true,
        }
    }

    /// Has its key written in another form, if its word has several.
    pub(super) const fn set_key_form(&mut self, form: KeyForm) {
        if let Some(
            SmallRequest::Get(SmallGet { key_form, .. })
            | SmallRequest::Set(SmallSet { key_form, .. })
            | SmallRequest::Delete(SmallDelete { key_form, .. })
            | SmallRequest::Arithmetic(SmallArithmetic { key_form, .. }),
        ) = &mut self.request
        {
            *key_form = form;
        }
    }

    /// Touch, vivify and recache.
    pub(super) const fn steps(&self) -> TtlSteps {
        match self.request {
            Some(
                SmallRequest::Get(SmallGet { steps, .. })
                | SmallRequest::Arithmetic(SmallArithmetic { steps, .. }),
            ) => steps,
            _ => TtlSteps::NONE,
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
            }) if protocol == Protocol::Binary => Self::ReplaceAndUnlock,
            SmallRequest::Set(SmallSet { mode, .. }) => match mode {
                SetMode::Set if as_replace => Self::Replace,
                SetMode::Set => Self::Set,
                SetMode::Add => Self::Add,
                SetMode::Replace => Self::Replace,
                SetMode::Append { .. } => Self::Append,
                SetMode::Prepend { .. } => Self::Prepend,
            },
            SmallRequest::SetTooLarge { .. } => Self::Set,
            SmallRequest::Delete(_) => Self::Delete,
            SmallRequest::Arithmetic(SmallArithmetic { direction, .. }) => match direction {
                Direction::Increment => Self::Increment,
                Direction::Decrement => Self::Decrement,
            },
            SmallRequest::Acquire(_) => Self::Acquire,
            SmallRequest::Release { .. } => Self::Release,
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
