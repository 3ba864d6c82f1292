//! The alphabet: what can happen in one step of a model.
//!
//! An action is small and free of numbers that grow: which client, which verb, which key. What a
//! client puts into a request besides (a version, a TTL) follows from what it has been told and
//! from the model's bounds.

use std::fmt;

use latchd_core::command::OnMissing;
use latchd_core::command::{
    Arithmetic, Command, Delete, Direction, Get, Guard, LockAfter, NewCas, Removal, Set, SetMode,
    TtlStep, TtlSteps,
};
use latchd_core::item::Cas;
use latchd_core::key::Key;
use latchd_core::time::Exptime;

/// The keys of the clients, and behind them the one of [`Verb::Pressure`].
pub(crate) const KEYS: [&[u8]; 3] = [b"a", b"b", b"p"];

/// Which of `KEYS` nobody but [`Verb::Pressure`] stores.
pub(crate) const PRESSURE_KEY: usize = 2;

/// The version that [`Verb::SetVersion`] asks for: above all that a search can reach.
pub(crate) const CHOSEN_CAS: u64 = 1 << 40;

/// The version that [`Verb::StaleSetAhead`] claims to know: above all there is.
pub(crate) const FUTURE_CAS: u64 = 1 << 41;

/// The token of `R`, in seconds: wins an item of which less than this remains.
pub(crate) const RECACHE_S: u32 = 2;

/// What can happen.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Verb {
    /// A client connects.
    Open,
    /// A client's connection ends, however it does.
    Close,
    /// The next shard hears of what a client does to all of them.
    Walk,
    /// `lock`.
    Lock,
    /// Lock-and-get, of the binary protocol.
    LockAndGet,
    /// `unlock`.
    Unlock,
    /// `unlock_all`.
    UnlockAll,
    /// `gets`.
    Gets,
    /// `touch`.
    Touch,
    /// `set` of an item that never expires.
    Set,
    /// `set` of one that expires.
    SetExpiring,
    /// `add`.
    Add,
    /// `replace`.
    Replace,
    /// `append`, of nothing: a change all the same.
    Append,
    /// `cas`, with the version that the client was told last.
    Cas,
    /// Replace-and-unlock, of the binary protocol.
    ReplaceAndUnlock,
    /// The same with the version that the client was told last.
    CasAndUnlock,
    /// `set` of a value that is too large.
    SetTooLarge,
    /// `incr`.
    Increment,
    /// `delete`.
    Delete,
    /// `md C`, with the version that the client was told last.
    DeleteVersion,
    /// `md I`.
    MarkStale,
    /// `md x`.
    Clear,
    /// `md x I`.
    ClearAndMarkStale,
    /// `mg`.
    MetaGet,
    /// `mg N`.
    Vivify,
    /// `mg R`.
    Recache,
    /// `ms C I`, with the version that the client was told last.
    StaleSet,
    /// `ms C I`, with a version that does not exist yet.
    StaleSetAhead,
    /// `ms E`.
    SetVersion,
    /// `flush_all`.
    Flush,
    /// `flush_all 1`.
    FlushLater,
    /// A connection that has ended asks for a lock.
    LateLock,
    /// A second passes.
    Pass,
    /// The core is told the time, and looks for expired items.
    Tick,
    /// The core is told a time before that.
    StepBack,
    /// Somebody stores an item that is nothing to the clients: memory becomes scarce.
    Pressure,
}

/// What a [`Verb`] is said of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// A client that is not connected.
    Absent,
    /// A client.
    Client,
    /// A client and a key.
    Item,
    /// A client and a key that it has been told a version of.
    Version,
    /// A key.
    Key,
    /// The world.
    World,
    /// A client that is in the middle of something.
    Underway,
}

impl Verb {
    /// What it is said of.
    #[must_use]
    pub const fn scope(self) -> Scope {
        match self {
            Self::Open => Scope::Absent,
            Self::Walk => Scope::Underway,
            Self::Close | Self::UnlockAll | Self::Flush | Self::FlushLater => Scope::Client,
            Self::Lock
            | Self::LockAndGet
            | Self::Unlock
            | Self::Gets
            | Self::Touch
            | Self::Set
            | Self::SetExpiring
            | Self::Add
            | Self::Replace
            | Self::Append
            | Self::ReplaceAndUnlock
            | Self::SetTooLarge
            | Self::Increment
            | Self::Delete
            | Self::MarkStale
            | Self::Clear
            | Self::ClearAndMarkStale
            | Self::MetaGet
            | Self::Vivify
            | Self::Recache
            | Self::StaleSetAhead
            | Self::SetVersion => Scope::Item,
            Self::Cas | Self::CasAndUnlock | Self::DeleteVersion | Self::StaleSet => Scope::Version,
            Self::LateLock => Scope::Key,
            Self::Pass | Self::Tick | Self::StepBack | Self::Pressure => Scope::World,
        }
    }

    /// The command that a client sends about one key; `None` if it is not of that kind, or if the
    /// client would have to know a version and does not.
    #[must_use]
    pub fn command<'a>(
        self,
        key: Key<'a>,
        known: Option<Cas>,
        ttl_s: u32,
        value: &'a [u8],
    ) -> Option<Command<'a>> {
        let ttl = Exptime::In { seconds: ttl_s };
        let get = Get::new(key);
        let set = Set::new(key, value);
        let meta_get = |step| {
            let steps = TtlSteps::one(step);
            Command::Get(Get {
                steps,
                recaches: true,
                ..get
            })
        };
        let mode = |mode| Command::Set(Set { mode, ..set });
        let removal = |removal| {
            Command::Delete(Delete {
                removal,
                ..Delete::new(key)
            })
        };
        Some(match self {
            Self::Lock | Self::LateLock => Command::Lock { key },
            Self::LockAndGet => Command::Get(Get { lock: true, ..get }),
            Self::Unlock => Command::Unlock { key },
            Self::Gets => Command::Get(get),
            Self::Touch => Command::Get(Get {
                steps: TtlSteps::one(TtlStep::Touch(ttl)),
                ..get
            }),
            Self::Set | Self::Pressure => Command::Set(set),
            Self::SetExpiring => Command::Set(Set {
                exptime: ttl,
                ..set
            }),
            Self::Add => mode(SetMode::Add),
            Self::Replace => mode(SetMode::Replace),
            Self::Append => Command::Set(Set {
                mode: SetMode::Append {
                    missing: OnMissing::Refuse,
                },
                ..Set::new(key, b"")
            }),
            Self::Cas => Command::Set(Set {
                guard: Guard::Match(known?),
                ..set
            }),
            Self::ReplaceAndUnlock => Command::Set(Set {
                lock: LockAfter::Release,
                mode: SetMode::Replace,
                ..set
            }),
            Self::CasAndUnlock => Command::Set(Set {
                guard: Guard::Match(known?),
                lock: LockAfter::Release,
                mode: SetMode::Replace,
                ..set
            }),
            Self::SetTooLarge => Command::SetTooLarge { key },
            Self::Increment => Command::Arithmetic(Arithmetic::new(key, Direction::Increment, 1)),
            Self::Delete => removal(Removal::Remove),
            Self::DeleteVersion => Command::Delete(Delete {
                guard: Guard::Match(known?),
                ..Delete::new(key)
            }),
            Self::MarkStale => removal(Removal::MarkStale { exptime: None }),
            Self::Clear => removal(Removal::Clear {
                exptime: Exptime::Never,
                client_flags: 0,
            }),
            Self::ClearAndMarkStale => removal(Removal::ClearAndMarkStale {
                exptime: Exptime::Never,
                client_flags: 0,
            }),
            Self::MetaGet => Command::Get(Get {
                recaches: true,
                ..get
            }),
            Self::Vivify => meta_get(TtlStep::Vivify(ttl)),
            Self::Recache => meta_get(TtlStep::Recache(Exptime::In { seconds: RECACHE_S })),
            Self::StaleSet => Command::Set(Set {
                guard: Guard::MatchElseStale(known?),
                ..set
            }),
            Self::StaleSetAhead => Command::Set(Set {
                guard: Guard::MatchElseStale(Cas::new(FUTURE_CAS)?),
                ..set
            }),
            Self::SetVersion => Command::Set(Set {
                new_cas: NewCas::Is(Cas::new(CHOSEN_CAS)?),
                ..set
            }),
            Self::Open
            | Self::Close
            | Self::Walk
            | Self::UnlockAll
            | Self::Flush
            | Self::FlushLater
            | Self::Pass
            | Self::Tick
            | Self::StepBack => return None,
        })
    }
}

/// One step of a model.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Action {
    /// Which client; 0 where none has part in it.
    pub client: u8,
    /// What happens.
    pub verb: Verb,
    /// Which of `KEYS`; 0 where it is about none.
    pub key: u8,
}

impl Action {
    /// The client's place in the world.
    #[must_use]
    pub const fn client(self) -> usize {
        self.client as usize
    }

    /// The key's place in `KEYS`.
    #[must_use]
    pub const fn key(self) -> usize {
        self.key as usize
    }

    /// The letter that transcripts call the client by.
    #[must_use]
    pub const fn letter(self) -> char {
        (b'A' + self.client) as char
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = name(self.key());
        match self.verb.scope() {
            Scope::World => write!(out, "{:?}", self.verb),
            Scope::Key => write!(out, "{:?} {key}", self.verb),
            Scope::Absent | Scope::Client | Scope::Underway => {
                write!(out, "{}: {:?}", self.letter(), self.verb)
            }
            Scope::Item | Scope::Version => {
                write!(out, "{}: {:?} {key}", self.letter(), self.verb)
            }
        }
    }
}

/// The name of one of `KEYS`.
#[must_use]
pub(crate) fn key(number: usize) -> Key<'static> {
    Key::new(KEYS[number]).expect("each has one byte")
}

/// The letter of one of `KEYS`.
#[must_use]
pub(crate) const fn name(number: usize) -> char {
    KEYS[number][0] as char
}
