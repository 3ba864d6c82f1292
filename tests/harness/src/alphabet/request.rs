//! What a client asks for: the requests of the alphabet.

use latchd_core::command::{
    Acquire, Arithmetic, Command, Delete, Direction, Get, GlobalCommand, ItemCommand, Keys, Lease,
    LockAfter, Mode as LockMode, NewCas, Release, Removal, ScanCursor, Set, SetMode, TtlSteps,
    Wait,
};
use latchd_core::item::Cas;
use latchd_core::key::KeyForm;
use latchd_core::stats::StatsTopic;
use latchd_core::time::Exptime;

use super::words::{CasChoice, FenceChoice, GuardChoice, Meaning, SmallKey, SmallValue};

/// What a client asks for: a [`Command`], owned and small.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SmallRequest {
    /// Reads an item, and may touch, vivify, win or lock it.
    Get(SmallGet),
    /// Stores a value.
    Set(SmallSet),
    /// A value that was too large to take in.
    SetTooLarge {
        /// Which item.
        key: SmallKey,
    },
    /// Removes an item, or marks it.
    Delete(SmallDelete),
    /// Adds or subtracts.
    Arithmetic(SmallArithmetic),
    /// Takes a lock, whether or not there is an item.
    Acquire(SmallAcquire),
    /// Gives such a lock back.
    Release {
        /// Whose.
        key: SmallKey,
        /// Only if it is this grant.
        fence: Option<FenceChoice>,
    },
    /// Takes a lock.
    Lock {
        /// Whose.
        key: SmallKey,
    },
    /// Gives a lock back.
    Unlock {
        /// Whose.
        key: SmallKey,
    },
    /// Gives every lock of the client back.
    UnlockAll,
    /// Makes every item go.
    FlushAll {
        /// When.
        at: Exptime,
    },
    /// Lists the first page of keys.
    Keys {
        /// Keys that begin with this one; `None` is all.
        prefix: Option<SmallKey>,
    },
    /// Reads the counters.
    Stats,
    /// Sets the counters back.
    StatsReset,
}

/// Reads an item, as [`command::Get`](latchd_core::command::Get).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // As in the command.
pub struct SmallGet {
    /// Which item.
    pub key: SmallKey,
    /// How the key is written.
    pub key_form: KeyForm,
    /// Touch, vivify and recache.
    pub steps: TtlSteps,
    /// Whether the read counts.
    pub bump: bool,
    /// What the client already has.
    pub known_cas: Option<CasChoice>,
    /// The version of a vivified item; `None` is the next.
    pub new_cas: Option<CasChoice>,
    /// Whether the read takes part in recaching.
    pub recaches: bool,
    /// Take the lock in the same step.
    pub lock: bool,
    /// A win ends with its connection.
    pub binds: bool,
    /// How long it waits for what another computes, in milliseconds; `None` is not at all.
    pub wait_ms: Option<u32>,
}

impl SmallGet {
    /// A plain `get`.
    #[must_use]
    pub const fn new(key: SmallKey) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            steps: TtlSteps::NONE,
            bump: true,
            known_cas: None,
            new_cas: None,
            recaches: false,
            lock: false,
            binds: false,
            wait_ms: None,
        }
    }

    fn lower<'a>(&self, meaning: &impl Meaning<'a>) -> Get<'a> {
        let version = |choice| meaning.version(self.key, choice);
        Get {
            key: meaning.key(self.key),
            key_form: self.key_form,
            steps: self.steps,
            bump: self.bump,
            known_cas: self.known_cas.map(version),
            new_cas: given(self.new_cas, version),
            recaches: self.recaches,
            lock: self.lock,
            binds: self.binds,
            wait_ms: self.wait_ms.map_or(0, u64::from),
        }
    }
}

/// Stores a value, as [`command::Set`](latchd_core::command::Set).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SmallSet {
    /// Which item.
    pub key: SmallKey,
    /// How the key is written.
    pub key_form: KeyForm,
    /// What is stored.
    pub value: SmallValue,
    /// The client's own number.
    pub client_flags: u32,
    /// When it expires.
    pub exptime: Exptime,
    /// On what condition.
    pub mode: SetMode,
    /// Which version.
    pub guard: GuardChoice,
    /// The version it gets; `None` is the next.
    pub new_cas: Option<CasChoice>,
    /// In the right of which grant; `None` is the client's own.
    pub fence: Option<FenceChoice>,
    /// What becomes of the lock.
    pub lock: LockAfter,
}

impl SmallSet {
    /// A plain `set` that never expires.
    #[must_use]
    pub const fn new(key: SmallKey, value: SmallValue) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            value,
            client_flags: 0,
            exptime: Exptime::Never,
            mode: SetMode::Set,
            guard: GuardChoice::None,
            new_cas: None,
            fence: None,
            lock: LockAfter::Keep,
        }
    }

    fn lower<'a>(&self, meaning: &impl Meaning<'a>) -> Set<'a> {
        let version = |choice| meaning.version(self.key, choice);
        Set {
            key: meaning.key(self.key),
            key_form: self.key_form,
            value: meaning.value(self.value).into(),
            client_flags: self.client_flags,
            exptime: self.exptime,
            mode: self.mode,
            guard: self.guard.lower(version),
            new_cas: given(self.new_cas, version),
            fence: self.fence.map(|choice| meaning.fence(self.key, choice)),
            lock: self.lock,
        }
    }
}

/// Removes an item or marks it, as [`command::Delete`](latchd_core::command::Delete).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SmallDelete {
    /// Which item.
    pub key: SmallKey,
    /// How the key is written.
    pub key_form: KeyForm,
    /// Which version.
    pub guard: GuardChoice,
    /// What is done.
    pub removal: Removal,
    /// The version it gets, if it stays; `None` is the next.
    pub new_cas: Option<CasChoice>,
    /// As in [`SmallSet`].
    pub fence: Option<FenceChoice>,
    /// What becomes of the lock.
    pub lock: LockAfter,
}

impl SmallDelete {
    /// A plain `delete`.
    #[must_use]
    pub const fn new(key: SmallKey) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            guard: GuardChoice::None,
            removal: Removal::Remove,
            new_cas: None,
            fence: None,
            lock: LockAfter::Keep,
        }
    }

    fn lower<'a>(&self, meaning: &impl Meaning<'a>) -> Delete<'a> {
        let version = |choice| meaning.version(self.key, choice);
        Delete {
            key: meaning.key(self.key),
            key_form: self.key_form,
            guard: self.guard.lower(version),
            removal: self.removal,
            new_cas: given(self.new_cas, version),
            fence: self.fence.map(|choice| meaning.fence(self.key, choice)),
            lock: self.lock,
        }
    }
}

/// Adds or subtracts, as [`command::Arithmetic`](latchd_core::command::Arithmetic).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SmallArithmetic {
    /// Which item.
    pub key: SmallKey,
    /// How the key is written.
    pub key_form: KeyForm,
    /// Which way.
    pub direction: Direction,
    /// How much.
    pub delta: u64,
    /// The number of a vivified item.
    pub initial: u64,
    /// Touch and vivify.
    pub steps: TtlSteps,
    /// Which version.
    pub guard: GuardChoice,
    /// The version it gets; `None` is the next.
    pub new_cas: Option<CasChoice>,
    /// As in [`SmallSet`].
    pub fence: Option<FenceChoice>,
    /// What becomes of the lock.
    pub lock: LockAfter,
}

impl SmallArithmetic {
    /// A plain `incr` or `decr`.
    #[must_use]
    pub const fn new(key: SmallKey, direction: Direction, delta: u64) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            direction,
            delta,
            initial: 0,
            steps: TtlSteps::NONE,
            guard: GuardChoice::None,
            new_cas: None,
            fence: None,
            lock: LockAfter::Keep,
        }
    }

    fn lower<'a>(&self, meaning: &impl Meaning<'a>) -> Arithmetic<'a> {
        let version = |choice| meaning.version(self.key, choice);
        Arithmetic {
            key: meaning.key(self.key),
            key_form: self.key_form,
            direction: self.direction,
            delta: self.delta,
            initial: self.initial,
            steps: self.steps,
            guard: self.guard.lower(version),
            new_cas: given(self.new_cas, version),
            fence: self.fence.map(|choice| meaning.fence(self.key, choice)),
            lock: self.lock,
        }
    }
}

/// Takes a lock, as [`command::Acquire`](latchd_core::command::Acquire).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SmallAcquire {
    /// Whose.
    pub key: SmallKey,
    /// Who else may hold it.
    pub mode: LockMode,
    /// How long it is to last.
    pub lease: Option<Lease>,
    /// Only if there is an item.
    pub needs_item: bool,
    /// The item is looked at.
    pub looks: bool,
    /// How long it waits for its turn, in milliseconds; `None` is not at all.
    pub wait_ms: Option<u32>,
}

impl SmallAcquire {
    /// A plain `ml`.
    #[must_use]
    pub const fn new(key: SmallKey) -> Self {
        Self {
            key,
            mode: LockMode::Exclusive,
            lease: None,
            needs_item: false,
            looks: false,
            wait_ms: None,
        }
    }
}

impl SmallRequest {
    /// The key it is about.
    #[must_use]
    pub const fn key(&self) -> Option<SmallKey> {
        match self {
            Self::Get(SmallGet { key, .. })
            | Self::Set(SmallSet { key, .. })
            | Self::SetTooLarge { key }
            | Self::Delete(SmallDelete { key, .. })
            | Self::Arithmetic(SmallArithmetic { key, .. })
            | Self::Acquire(SmallAcquire { key, .. })
            | Self::Release { key, .. }
            | Self::Lock { key }
            | Self::Unlock { key } => Some(*key),
            Self::UnlockAll
            | Self::FlushAll { .. }
            | Self::Keys { .. }
            | Self::Stats
            | Self::StatsReset => None,
        }
    }

    /// The same about `other`; what is about no key stays as it is.
    #[must_use]
    pub const fn about(mut self, other: SmallKey) -> Self {
        match &mut self {
            Self::Get(SmallGet { key, .. })
            | Self::Set(SmallSet { key, .. })
            | Self::SetTooLarge { key }
            | Self::Delete(SmallDelete { key, .. })
            | Self::Arithmetic(SmallArithmetic { key, .. })
            | Self::Acquire(SmallAcquire { key, .. })
            | Self::Release { key, .. }
            | Self::Lock { key }
            | Self::Unlock { key } => *key = other,
            Self::UnlockAll
            | Self::FlushAll { .. }
            | Self::Keys { .. }
            | Self::Stats
            | Self::StatsReset => {}
        }
        self
    }

    /// The same, if it is one that may wait, by one who does not.
    #[must_use]
    pub const fn without_wait(mut self) -> Self {
        if let Self::Acquire(SmallAcquire { wait_ms, .. }) | Self::Get(SmallGet { wait_ms, .. }) =
            &mut self
        {
            *wait_ms = None;
        }
        self
    }

    /// The command, with what its words stand for.
    #[must_use]
    pub fn lower<'a>(&self, meaning: &impl Meaning<'a>) -> Command<'a> {
        match *self {
            Self::Get(get) => Command::from(get.lower(meaning)),
            Self::Set(set) => Command::from(set.lower(meaning)),
            Self::SetTooLarge { key } => Command::Item(ItemCommand::SetTooLarge {
                key: meaning.key(key),
            }),
            Self::Delete(delete) => Command::from(delete.lower(meaning)),
            Self::Arithmetic(arithmetic) => Command::from(arithmetic.lower(meaning)),
            Self::Acquire(acquire) => Command::Item(ItemCommand::Acquire(Acquire {
                key: meaning.key(acquire.key),
                mode: acquire.mode,
                lease: acquire.lease,
                needs_item: acquire.needs_item,
                looks: acquire.looks,
                wait: match acquire.wait_ms {
                    Some(ms) => Wait::UpTo { ms: ms.into() },
                    None => Wait::No,
                },
            })),
            Self::Release { key, fence } => Command::Item(ItemCommand::Release(Release {
                key: meaning.key(key),
                fence: fence.map(|choice| meaning.fence(key, choice)),
            })),
            Self::Lock { key } => Command::Item(ItemCommand::Lock {
                key: meaning.key(key),
            }),
            Self::Unlock { key } => Command::Item(ItemCommand::Unlock {
                key: meaning.key(key),
            }),
            Self::UnlockAll => Command::Global(GlobalCommand::UnlockAll),
            Self::FlushAll { at } => Command::Global(GlobalCommand::FlushAll { at }),
            Self::Keys { prefix } => Command::Global(GlobalCommand::Keys(Keys {
                prefix: prefix.map_or(&[], |key| meaning.key(key).as_bytes()),
                cursor: ScanCursor::default(),
            })),
            Self::Stats => Command::Global(GlobalCommand::Stats(StatsTopic::General)),
            Self::StatsReset => Command::Global(GlobalCommand::StatsReset),
        }
    }
}

/// The version that an item is to get.
fn given(choice: Option<CasChoice>, version: impl Fn(CasChoice) -> Cas) -> NewCas {
    choice.map_or(NewCas::Next, |choice| NewCas::Is(version(choice)))
}
