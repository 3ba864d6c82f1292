//! What a connection can ask of the core. All three protocols lower into it, so a rule is written
//! once.
//!
//! A command is a plain value that borrows keys and values from the request. What the wire needs
//! and the core does not (opaque, quiet, key echo, the order of flags in an answer) is the
//! request's envelope ([`crate::wire`]) and is not here.
//!
//! One [`Get`] covers get, gets, gat, touch, `mg`, `me` and lock-and-get; one [`Set`] covers set,
//! add, replace, append, prepend, cas, `ms` and replace-and-unlock.

use core::num::NonZeroU32;

use crate::fence::Fence;
use crate::item::Cas;
use crate::key::{Key, KeyForm};
use crate::stats::StatsTopic;
use crate::time::Exptime;
use crate::value::Value;

/// One request of one connection. It has exactly one [`Reply`](crate::reply::Reply).
///
/// Split by what a transport that spreads items over several cores must know: whether one core
/// answers, or all of them do.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Command<'a> {
    /// About one item: for the core that has the key.
    Item(ItemCommand<'a>),
    /// About all items, or all locks of a connection: for every core.
    Global(GlobalCommand<'a>),
}

/// A [`Command`] about one item, by its [`key`](ItemCommand::key).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ItemCommand<'a> {
    /// Reads an item, and may touch, vivify, win or lock it.
    Get(Get<'a>),
    /// Stores a value.
    Set(Set<'a>),
    /// A [`Set`] whose value is past [`value_bytes_max`](crate::Limits::value_bytes_max) and was
    /// not taken in: the old value of the key goes, so that nobody reads what its writer meant to
    /// replace. Always answered [`Refusal::TooLarge`](crate::reply::Refusal::TooLarge).
    ///
    /// Source: memcached 1.6.45 `proto_parser.c`, `process_update_cmd_start`.
    SetTooLarge {
        /// Whose old value goes.
        key: Key<'a>,
    },
    /// Removes an item, or marks it.
    Delete(Delete<'a>),
    /// Adds to a decimal number, or takes from it.
    Arithmetic(Arithmetic<'a>),
    /// Takes the lock of a key, whether or not there is an item (`ml`).
    Acquire(Acquire<'a>),
    /// Gives the lock of a key back (`mu`).
    Release(Release<'a>),
    /// Takes the lock of an existing item.
    Lock {
        /// The item's; it must exist.
        key: Key<'a>,
    },
    /// Gives the lock of an item back.
    Unlock {
        /// The item's; the connection must hold its lock.
        key: Key<'a>,
    },
}

/// A [`Command`] about all items, or all locks of the connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum GlobalCommand<'a> {
    /// Gives every lock of the connection back.
    UnlockAll,
    /// Makes every item that is stored before the given moment go at that moment. A later
    /// `flush_all` replaces one that is still to come.
    FlushAll {
        /// When: [`Exptime::Never`] and [`Exptime::Past`] are "at once".
        at: Exptime,
    },
    /// Lists keys, a page at a time.
    Keys(Keys<'a>),
    /// Reads what there is to tell about a topic.
    Stats(StatsTopic),
    /// Sets the counters back to 0 (`stats reset`).
    StatsReset,
}

impl<'a> Command<'a> {
    /// The key the command is about; `None` for those about all items or about the connection.
    #[must_use]
    pub const fn key(&self) -> Option<Key<'a>> {
        match self {
            Self::Item(command) => Some(command.key()),
            Self::Global(_) => None,
        }
    }

    /// The same, answered at once: what is asked of the core when a wait is over.
    #[must_use]
    pub const fn without_wait(self) -> Self {
        match self {
            Self::Item(ItemCommand::Acquire(acquire)) => {
                Self::Item(ItemCommand::Acquire(Acquire {
                    wait: Wait::No,
                    ..acquire
                }))
            }
            Self::Item(ItemCommand::Get(get)) => {
                Self::Item(ItemCommand::Get(Get { wait_ms: 0, ..get }))
            }
            Self::Item(_) | Self::Global(_) => self,
        }
    }
}

impl<'a> ItemCommand<'a> {
    /// The key of the item that the command is about.
    #[must_use]
    pub const fn key(&self) -> Key<'a> {
        match self {
            Self::Get(get) => get.key,
            Self::Set(set) => set.key,
            Self::Delete(delete) => delete.key,
            Self::Arithmetic(arithmetic) => arithmetic.key,
            Self::Acquire(acquire) => acquire.key,
            Self::Release(release) => release.key,
            Self::SetTooLarge { key } | Self::Lock { key } | Self::Unlock { key } => *key,
        }
    }
}

impl<'a> From<ItemCommand<'a>> for Command<'a> {
    fn from(command: ItemCommand<'a>) -> Self {
        Self::Item(command)
    }
}

impl<'a> From<GlobalCommand<'a>> for Command<'a> {
    fn from(command: GlobalCommand<'a>) -> Self {
        Self::Global(command)
    }
}

impl<'a> From<Get<'a>> for Command<'a> {
    fn from(get: Get<'a>) -> Self {
        Self::Item(ItemCommand::Get(get))
    }
}

impl<'a> From<Set<'a>> for Command<'a> {
    fn from(set: Set<'a>) -> Self {
        Self::Item(ItemCommand::Set(set))
    }
}

impl<'a> From<Delete<'a>> for Command<'a> {
    fn from(delete: Delete<'a>) -> Self {
        Self::Item(ItemCommand::Delete(delete))
    }
}

impl<'a> From<Arithmetic<'a>> for Command<'a> {
    fn from(arithmetic: Arithmetic<'a>) -> Self {
        Self::Item(ItemCommand::Arithmetic(arithmetic))
    }
}

/// Reads an item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each may be asked for whatever the others are"
)]
pub struct Get<'a> {
    /// The item to read, or to make if `steps` vivify and there is none.
    pub key: Key<'a>,
    /// How the key was written, for an item that this get vivifies.
    pub key_form: KeyForm,
    /// Touch, vivify and recache, in the order they are to act.
    pub steps: TtlSteps,
    /// Whether the read counts as one: for eviction, last access and `fetched`. Not with `u`, and
    /// not for `me`.
    pub bump: bool,
    /// What the client already has: an item with this CAS is answered
    /// [`unchanged`](crate::reply::Hit::unchanged). `C` of meta get.
    pub known_cas: Option<Cas>,
    /// The CAS of an item that this get vivifies.
    pub new_cas: NewCas,
    /// Whether the read takes part in recaching: it is told who has the win, and may get it. Only
    /// `mg` does; every other read leaves the win alone.
    ///
    /// Source: memcached 1.6.45 `proto_parser.c`, `process_get_cmd`, which looks at no win.
    pub recaches: bool,
    /// Take the lock in the same step (lock-and-get).
    pub lock: bool,
    /// If it is told to recache the item, that ends with its connection: then the win is open again (`B`). Only
    /// for a connection that was announced ([`Event::Opened`](crate::engine::Event::Opened)).
    pub binds: bool,
    /// How long to wait where another has been told, in milliseconds (`w`); 0 is not at all, more than
    /// [`wait_ms_max`](crate::Limits::wait_ms_max) are as many. It is answered
    /// [`Reply::Waits`](crate::reply::Reply::Waits) then: only for those who see to what the core has to tell later (see
    /// [`crate::wait`]).
    pub wait_ms: u64,
}

impl<'a> Get<'a> {
    /// A plain `get`.
    #[must_use]
    pub const fn new(key: Key<'a>) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            steps: TtlSteps::NONE,
            bump: true,
            known_cas: None,
            new_cas: NewCas::Next,
            recaches: false,
            lock: false,
            binds: false,
            wait_ms: 0,
        }
    }
}

/// One of the flags of meta commands that act on an item's TTL, each at its place in the request:
/// `t T30` shows the old TTL, `T30 t` the new one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TtlStep {
    /// `T`: the item gets this exptime.
    Touch(Exptime),
    /// `N`: a missing item is made, and gets this exptime here. Nothing for an item that was there.
    Vivify(Exptime),
    /// `R`: an item whose remaining TTL is less than this is won, if nobody has the win. The token
    /// is an exptime, so 0 and negative ones never win.
    Recache(Exptime),
}

/// How many [`TtlStep`]s a command can have: each flag stands at most once.
pub const TTL_STEPS_MAX: usize = 3;

/// The TTL flags of a command in request order, at most [`TTL_STEPS_MAX`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TtlSteps([Option<TtlStep>; TTL_STEPS_MAX]);

impl TtlSteps {
    /// No steps.
    pub const NONE: Self = Self([None; TTL_STEPS_MAX]);

    /// One step.
    #[must_use]
    pub const fn one(step: TtlStep) -> Self {
        Self([Some(step), None, None])
    }

    /// Adds a step behind the others; `None` if there is no room, which no request with each flag
    /// at most once can bring about.
    #[must_use]
    pub fn then(mut self, step: TtlStep) -> Option<Self> {
        *self.0.iter_mut().find(|slot| slot.is_none())? = Some(step);
        Some(self)
    }

    /// The steps in order.
    pub fn iter(&self) -> impl Iterator<Item = TtlStep> + '_ {
        self.0.iter().map_while(|step| *step)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Whether a missing item is to be made.
    #[must_use]
    pub fn vivifies(&self) -> bool {
        self.iter().any(|step| matches!(step, TtlStep::Vivify(_)))
    }
}

/// Stores a value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Set<'a> {
    /// The item to store, or to add to.
    pub key: Key<'a>,
    /// How the key was written.
    pub key_form: KeyForm,
    /// The bytes to store; at most [`value_bytes_max`](crate::Limits::value_bytes_max).
    pub value: Value<'a>,
    /// The client's own number. Append and prepend to an existing item keep its own.
    pub client_flags: u32,
    /// Append and prepend to an existing item keep its own.
    pub exptime: Exptime,
    /// On what condition, and onto what.
    pub mode: SetMode,
    /// Which version of the item the client must have seen.
    pub guard: Guard,
    /// The version it gets.
    pub new_cas: NewCas,
    /// In whose right it is stored: `None` is the connection's own, otherwise only while the grant
    /// with this number is in force, and then as its holder.
    pub fence: Option<Fence>,
    /// What becomes of the key's lock.
    pub lock: LockAfter,
}

impl<'a> Set<'a> {
    /// A plain `set` that never expires.
    #[must_use]
    pub const fn new(key: Key<'a>, value: &'a [u8]) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            value: Value::Borrowed(value),
            client_flags: 0,
            exptime: Exptime::Never,
            mode: SetMode::Set,
            guard: Guard::None,
            new_cas: NewCas::Next,
            fence: None,
            lock: LockAfter::Keep,
        }
    }
}

/// On what condition a [`Set`] stores, and what becomes of the old value.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SetMode {
    /// Whether or not there is an item.
    #[default]
    Set,
    /// Only if there is none.
    Add,
    /// Only if there is one.
    Replace,
    /// Behind the value of an existing item; if there is none, as `missing` says.
    Append {
        /// What a miss means.
        missing: OnMissing,
    },
    /// Before the value of an existing item; if there is none, as `missing` says.
    Prepend {
        /// What a miss means.
        missing: OnMissing,
    },
}

impl SetMode {
    /// Whether the value is added to one that is there, instead of taking its place.
    #[must_use]
    pub const fn extends(self) -> bool {
        match self {
            Self::Append { .. } | Self::Prepend { .. } => true,
            Self::Set | Self::Add | Self::Replace => false,
        }
    }

    /// Whether it is an append or prepend that makes a missing item.
    #[must_use]
    pub const fn creates(self) -> bool {
        match self {
            Self::Append { missing } | Self::Prepend { missing } => {
                matches!(missing, OnMissing::Create)
            }
            Self::Set | Self::Add | Self::Replace => false,
        }
    }
}

/// What an append or prepend does when there is no item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum OnMissing {
    /// Nothing is stored.
    Refuse,
    /// The item is made with the [`Set`]'s exptime and client flags (`ms … MA N<exptime>`).
    Create,
}

/// When a change may proceed. In `ms`, flag `I` means something only beside `C`; as
/// `(Option<Cas>, bool)` this would have a fourth state that no request can ask for.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Guard {
    /// Always.
    #[default]
    None,
    /// If this is the item's version.
    Match(Cas),
    /// If this is the item's version; and if it is lower, the value is stored all the same but
    /// stays stale, with its TTL and its win (`ms … C<cas> I`).
    MatchElseStale(Cas),
    /// If its version is 0, which no item has (`ms … C0`, `cas … 0`).
    Never,
}

/// Which version an item gets when it changes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum NewCas {
    /// The next one of the server.
    #[default]
    Next,
    /// This one (`E`); the server's counter stays where it is.
    Is(Cas),
}

/// What becomes of a key's lock when a change happens.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum LockAfter {
    /// It stays as it is.
    #[default]
    Keep,
    /// The connection must hold it, and gives it back in the same step (replace-and-unlock, `U`).
    Release,
}

/// Removes an item, or marks it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Delete<'a> {
    /// The item to remove, to empty or to mark.
    pub key: Key<'a>,
    /// How the key was written, for an item that is emptied.
    pub key_form: KeyForm,
    /// The version that the client has seen; another one is [`Reply::Exists`](crate::reply::Reply).
    pub guard: Guard,
    /// What is done to it.
    pub removal: Removal,
    /// The version it gets, if it stays.
    pub new_cas: NewCas,
    /// As in [`Set::fence`].
    pub fence: Option<Fence>,
    /// What becomes of the key's lock.
    pub lock: LockAfter,
}

impl<'a> Delete<'a> {
    /// A plain `delete`.
    #[must_use]
    pub const fn new(key: Key<'a>) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            guard: Guard::None,
            removal: Removal::Remove,
            new_cas: NewCas::Next,
            fence: None,
            lock: LockAfter::Keep,
        }
    }
}

/// What a [`Delete`] does to an item.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Removal {
    /// It goes.
    #[default]
    Remove,
    /// It stays and is marked out of date: the next reader wins (`md I`). Its version changes.
    MarkStale {
        /// Its new exptime; `None` keeps the old one.
        exptime: Option<Exptime>,
    },
    /// It stays without its value (`md x`). Its version changes only by `E`.
    Clear {
        /// From now on; the old one goes with the value.
        exptime: Exptime,
        /// From now on, as the exptime.
        client_flags: u32,
    },
    /// Both of the above (`md x I`). Its version changes.
    ClearAndMarkStale {
        /// From now on; the old one goes with the value.
        exptime: Exptime,
        /// From now on, as the exptime.
        client_flags: u32,
    },
}

/// Adds to a decimal number, or takes from it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Arithmetic<'a> {
    /// The item whose value is the number, in decimal digits.
    pub key: Key<'a>,
    /// How the key was written, for an item that is made.
    pub key_form: KeyForm,
    /// Up or down, and what happens at the ends.
    pub direction: Direction,
    /// How much is added or taken. By 0 nothing is counted, and the version changes all the same.
    pub delta: u64,
    /// The number of an item that is made; one is made only if `steps` vivify.
    pub initial: u64,
    /// Touch and vivify, in the order they are to act.
    pub steps: TtlSteps,
    /// The version that the client has seen; another one is [`Reply::Exists`](crate::reply::Reply).
    pub guard: Guard,
    /// The version it gets.
    pub new_cas: NewCas,
    /// As in [`Set::fence`].
    pub fence: Option<Fence>,
    /// What becomes of the key's lock.
    pub lock: LockAfter,
}

impl<'a> Arithmetic<'a> {
    /// A plain `incr` or `decr`.
    #[must_use]
    pub const fn new(key: Key<'a>, direction: Direction, delta: u64) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            direction,
            delta,
            initial: 0,
            steps: TtlSteps::NONE,
            guard: Guard::None,
            new_cas: NewCas::Next,
            fence: None,
            lock: LockAfter::Keep,
        }
    }
}

/// Takes the lock of a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Acquire<'a> {
    /// Whose lock; there need not be an item.
    pub key: Key<'a>,
    /// Who else may hold it at the same time.
    pub mode: Mode,
    /// How long it is to last: for the holder, from now on. `None` is as long as the connection, and
    /// the holder is refused.
    pub lease: Option<Lease>,
    /// Only if there is an item (`x`).
    pub needs_item: bool,
    /// The item is looked at in the same step, which counts as a read of it.
    pub looks: bool,
    /// What is to happen if somebody holds it.
    pub wait: Wait,
}

impl<'a> Acquire<'a> {
    /// A plain `ml`.
    #[must_use]
    pub const fn new(key: Key<'a>) -> Self {
        Self {
            key,
            mode: Mode::Exclusive,
            lease: None,
            needs_item: false,
            looks: false,
            wait: Wait::No,
        }
    }
}

/// Who else may hold the lock of a key at the same time.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mode {
    /// Nobody.
    #[default]
    Exclusive,
    /// Others who share it (`S`). Nobody changes the item of a key that is shared.
    Shared {
        /// How many may hold it in all, whoever asks included; `None` is without a bound of its own. Of
        /// several that share a key the least counts.
        among: Option<NonZeroU32>,
    },
}

impl Mode {
    /// How many may hold the lock in all, as far as whoever takes it in this mode minds.
    #[must_use]
    pub const fn among(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Shared { among: Some(among) } => among.get(),
            Self::Shared { among: None } => u32::MAX,
        }
    }

    /// Whether it is shared, among however many.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }
}

/// What becomes of an [`Acquire`] of a lock that somebody holds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Wait {
    /// It is refused at once.
    #[default]
    No,
    /// It is answered [`Reply::Waits`](crate::reply::Reply::Waits), and stands in line for so long: only
    /// for those who see to what the core has to tell later (see [`crate::wait`]).
    UpTo {
        /// Milliseconds from now; more than [`wait_ms_max`](crate::Limits::wait_ms_max) are as many. 0
        /// is not at all.
        ms: u64,
    },
    /// It is refused at once, since waiting would close a circle of connections that wait for each other.
    /// Never from a client: a transport over several cores says it to the one that has the key
    /// ([`Chain::judge`](crate::wait::Chain::judge)).
    WouldDeadlock,
    /// It is refused at once, since nobody has looked so far as to tell whether it would. Never from a
    /// client, either.
    TooLong,
}

/// How long a lock is to last, whatever becomes of its holder.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Lease {
    /// So many milliseconds from now (`T`).
    For {
        /// At least [`LEASE_MS_MIN`].
        ms: u64,
    },
    /// As long as the connection, from now on: the holder takes its lease off (`T-1`).
    Off,
}

/// The shortest lease, in milliseconds.
pub const LEASE_MS_MIN: u64 = 10;

/// Gives the lock of a key back.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Release<'a> {
    /// Whose lock.
    pub key: Key<'a>,
    /// Only if it is this grant.
    pub fence: Option<Fence>,
}

impl<'a> Release<'a> {
    /// A plain `mu`.
    #[must_use]
    pub const fn new(key: Key<'a>) -> Self {
        Self { key, fence: None }
    }
}

/// Which way an [`Arithmetic`] goes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Direction {
    /// Up; past 2^64 it starts again at 0.
    Increment,
    /// Down; it stops at 0.
    Decrement,
}

/// Asks for a page of keys.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Keys<'a> {
    /// Only keys that begin with this; empty for all.
    pub prefix: &'a [u8],
    /// Where the page starts: [`ScanCursor::default`] for the first, then what the last page said.
    pub cursor: ScanCursor,
}

/// A place in a scan over the store. It means something only to the store that gave it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct ScanCursor(pub u64);
