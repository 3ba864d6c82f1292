//! One alphabet for everything that drives the core: the model, the property tests, the simulation
//! and the fuzz targets.
//!
//! An [`Op`] is something that can happen, in an owned form and from small ranges: few clients, few
//! keys, few values, short TTLs, and versions by what they mean ("the one it has now") and not by
//! number. So sequences collide often, and any sequence has a meaning: a [`Stage`] turns each op
//! into the event it stands for, or into none (a client that is not there cannot go).
//!
//! What the small words of an op stand for is the layer's to say ([`Meaning`]): which name a key
//! has, which bytes a value, which number a version.
//!
//! - A1: every command with every option that a request can ask for is in the alphabet. What one
//!   layer misses, it misses for want of an op.
//! - A2: leaving any op out of a sequence gives a sequence, so that a failing one can be shortened.
//! - A3: every request of the alphabet can be asked on a wire, but for the guarded replace, which
//!   is a guarded set there: only a transport of somebody's own can ask for it.

mod draw;
pub mod limits;
mod pairs;
mod shorten;
mod stage;

pub use pairs::{Pairs, ReplyKind, RequestKind, reachable};
pub use stage::{Stage, pressure};

use crate::command::{
    Arithmetic, Command, Delete, Direction, Get, Guard, Keys, LockAfter, NewCas, Removal,
    ScanCursor, Set, SetMode, TtlSteps,
};
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::stats::StatsTopic;
use crate::time::Exptime;

/// How many clients there are.
pub const CLIENTS: usize = 3;

/// The keys of the alphabet, unless a layer has names of its own. One is the beginning of another,
/// for the sake of `keys`.
pub const KEYS: [&[u8]; 3] = [b"a", b"b", b"ab"];

/// A limit of the value size that no [`SmallValue`] reaches, and two that are put together can.
pub const VALUE_BYTES_MAX: usize = 64;

/// How many different keys [`Op::Pressure`] stores.
pub const PRESSURE_KEYS: usize = 16;

/// Unix time at the start, for exptimes that are dates.
pub const UNIX_S_AT_START: u64 = 1_700_000_000;

/// Something that can happen.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Op {
    /// A client connects. Nothing if it is connected.
    Open {
        /// Which one.
        client: Client,
    },
    /// A client's connection ends. Nothing if it is not connected.
    Close {
        /// Which one.
        client: Client,
    },
    /// Time passes.
    Advance {
        /// Milliseconds.
        ms: u32,
    },
    /// The clock steps back, which must not make anything younger.
    Rewind {
        /// Milliseconds.
        ms: u32,
    },
    /// The wall clock is looked at, and stands elsewhere than it was thought to.
    WallClock {
        /// Seconds ahead of [`UNIX_S_AT_START`].
        ahead_s: u8,
    },
    /// The core is told that time has passed.
    Tick,
    /// An item that nobody else knows is stored: memory becomes scarce.
    Pressure {
        /// Which of [`PRESSURE_KEYS`].
        key: u8,
    },
    /// A client asks for something. One that has gone asks under the id it had, which is dead, and
    /// may take no lock; nothing if it has never been connected.
    Request {
        /// Which one.
        client: Client,
        /// What.
        request: Request,
    },
}

/// A client, by its number. A layer has some, of which each number means one ([`among`]).
///
/// [`among`]: Client::among
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Client(u8);

impl Client {
    /// The client with this number.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// Which of `count` clients it is: the numbers beyond are the first ones again.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub const fn among(self, count: usize) -> usize {
        self.0 as usize % count
    }
}

/// A key, by its number. A layer has some, of which each number means one ([`among`]).
///
/// [`among`]: SmallKey::among
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SmallKey(u8);

impl SmallKey {
    /// The key with this number.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// Which of `count` keys it is: the numbers beyond are the first ones again.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub const fn among(self, count: usize) -> usize {
        self.0 as usize % count
    }

    /// The one of [`KEYS`] that it is.
    #[must_use]
    pub fn name(self) -> Key<'static> {
        KEYS.get(self.among(KEYS.len()))
            .copied()
            .and_then(Key::new)
            .expect("every key has 1 to 250 bytes")
    }
}

/// A value, by what is remarkable about it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SmallValue {
    /// No bytes.
    #[default]
    Empty,
    /// No number.
    Word,
    /// A number.
    Number,
    /// The greatest number there is.
    Greatest,
    /// A number that may gain or lose a digit.
    Round,
    /// A number that a `decr` has padded.
    Padded,
    /// One of which two are too long.
    Long,
}

impl SmallValue {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::Word,
        Self::Number,
        Self::Greatest,
        Self::Round,
        Self::Padded,
        Self::Long,
    ];

    /// Such bytes, for a layer that tells values apart by these.
    #[must_use]
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Empty => b"",
            Self::Word => b"v",
            Self::Number => b"7",
            Self::Greatest => b"18446744073709551615",
            Self::Round => b"10",
            Self::Padded => b"7 ",
            Self::Long => &[b'x'; 40],
        }
    }
}

/// A version of an item, by what the clients know of it. Whether they tell each other what they
/// know is the layer's to say.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CasChoice {
    /// The last one that was told.
    Current,
    /// The one before.
    Former,
    /// One above any that was told.
    Higher,
    /// One above any that there will be.
    Highest,
}

/// [`Guard`] with a [`CasChoice`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum GuardChoice {
    /// Always.
    #[default]
    None,
    /// If this is the item's version.
    Match(CasChoice),
    /// If this is the item's version, or else stale.
    MatchElseStale(CasChoice),
    /// If its version is 0.
    Never,
}

impl GuardChoice {
    fn lower(self, version: impl Fn(CasChoice) -> Cas) -> Guard {
        match self {
            Self::None => Guard::None,
            Self::Match(cas) => Guard::Match(version(cas)),
            Self::MatchElseStale(cas) => Guard::MatchElseStale(version(cas)),
            Self::Never => Guard::Never,
        }
    }
}

/// What the small words of a request stand for in one layer; `'a` is how long its keys and values
/// live.
pub trait Meaning<'a> {
    /// A key.
    fn key(&self, key: SmallKey) -> Key<'a> {
        key.name()
    }

    /// A value.
    fn value(&self, value: SmallValue) -> &'a [u8] {
        value.bytes()
    }

    /// A version of the item with this key.
    fn version(&self, key: SmallKey, choice: CasChoice) -> Cas;
}

/// What a client asks for: a [`Command`], owned and small.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Request {
    /// Reads an item, and may touch, vivify, win or lock it.
    Get {
        /// Which item.
        key: SmallKey,
        /// How the key is written.
        key_form: KeyForm,
        /// Touch, vivify and recache.
        steps: TtlSteps,
        /// Whether the read counts.
        bump: bool,
        /// What the client already has.
        known_cas: Option<CasChoice>,
        /// The version of a vivified item; `None` is the next.
        new_cas: Option<CasChoice>,
        /// Whether the read takes part in recaching.
        recaches: bool,
        /// Take the lock in the same step.
        lock: bool,
    },
    /// Stores a value.
    Set {
        /// Which item.
        key: SmallKey,
        /// How the key is written.
        key_form: KeyForm,
        /// What is stored.
        value: SmallValue,
        /// The client's own number.
        client_flags: u32,
        /// When it expires.
        exptime: Exptime,
        /// On what condition.
        mode: SetMode,
        /// Which version.
        guard: GuardChoice,
        /// The version it gets; `None` is the next.
        new_cas: Option<CasChoice>,
        /// What becomes of the lock.
        lock: LockAfter,
    },
    /// A value that was too large to take in.
    SetTooLarge {
        /// Which item.
        key: SmallKey,
    },
    /// Removes an item, or marks it.
    Delete {
        /// Which item.
        key: SmallKey,
        /// How the key is written.
        key_form: KeyForm,
        /// Which version.
        guard: GuardChoice,
        /// What is done.
        removal: Removal,
        /// The version it gets, if it stays; `None` is the next.
        new_cas: Option<CasChoice>,
    },
    /// Adds or subtracts.
    Arithmetic {
        /// Which item.
        key: SmallKey,
        /// How the key is written.
        key_form: KeyForm,
        /// Which way.
        direction: Direction,
        /// How much.
        delta: u64,
        /// The number of a vivified item.
        initial: u64,
        /// Touch and vivify.
        steps: TtlSteps,
        /// Which version.
        guard: GuardChoice,
        /// The version it gets; `None` is the next.
        new_cas: Option<CasChoice>,
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

impl Request {
    /// The key it is about.
    #[must_use]
    pub const fn key(&self) -> Option<SmallKey> {
        match self {
            Self::Get { key, .. }
            | Self::Set { key, .. }
            | Self::SetTooLarge { key }
            | Self::Delete { key, .. }
            | Self::Arithmetic { key, .. }
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
            Self::Get { key, .. }
            | Self::Set { key, .. }
            | Self::SetTooLarge { key }
            | Self::Delete { key, .. }
            | Self::Arithmetic { key, .. }
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

    /// The command, with what its words stand for.
    #[must_use]
    pub fn lower<'a>(&self, meaning: &impl Meaning<'a>) -> Command<'a> {
        let about = self.key().unwrap_or_default();
        let version = |choice| meaning.version(about, choice);
        let new = |cas: Option<CasChoice>| match cas {
            Some(cas) => NewCas::Is(version(cas)),
            None => NewCas::Next,
        };
        match *self {
            Self::Get {
                key,
                key_form,
                steps,
                bump,
                known_cas,
                new_cas,
                recaches,
                lock,
            } => Command::Get(Get {
                key: meaning.key(key),
                key_form,
                steps,
                bump,
                known_cas: known_cas.map(&version),
                new_cas: new(new_cas),
                recaches,
                lock,
            }),
            Self::Set {
                key,
                key_form,
                value,
                client_flags,
                exptime,
                mode,
                guard,
                new_cas,
                lock,
            } => Command::Set(Set {
                key: meaning.key(key),
                key_form,
                value: meaning.value(value),
                client_flags,
                exptime,
                mode,
                guard: guard.lower(version),
                new_cas: new(new_cas),
                lock,
            }),
            Self::SetTooLarge { key } => Command::SetTooLarge {
                key: meaning.key(key),
            },
            Self::Delete {
                key,
                key_form,
                guard,
                removal,
                new_cas,
            } => Command::Delete(Delete {
                key: meaning.key(key),
                key_form,
                guard: guard.lower(version),
                removal,
                new_cas: new(new_cas),
            }),
            Self::Arithmetic {
                key,
                key_form,
                direction,
                delta,
                initial,
                steps,
                guard,
                new_cas,
            } => Command::Arithmetic(Arithmetic {
                key: meaning.key(key),
                key_form,
                direction,
                delta,
                initial,
                steps,
                guard: guard.lower(version),
                new_cas: new(new_cas),
            }),
            Self::Lock { key } => Command::Lock {
                key: meaning.key(key),
            },
            Self::Unlock { key } => Command::Unlock {
                key: meaning.key(key),
            },
            Self::UnlockAll => Command::UnlockAll,
            Self::FlushAll { at } => Command::FlushAll { at },
            Self::Keys { prefix } => Command::Keys(Keys {
                prefix: prefix.map_or(&[], |key| meaning.key(key).as_bytes()),
                cursor: ScanCursor::default(),
            }),
            Self::Stats => Command::Stats(StatsTopic::General),
            Self::StatsReset => Command::StatsReset,
        }
    }
}
