//! What an item is besides its key and value.

use core::num::NonZeroU64;

use crate::key::KeyForm;
use crate::time::{Deadline, Tick};

/// The version of an item: never 0, unique over the server, changed by every change of the value.
///
/// 0 means "no CAS" on the wire, so it does not exist past a decoder.
/// Source: memcached 1.6.45 `doc/protocol.txt`, "cas unique".
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cas(NonZeroU64);

impl Cas {
    /// The least.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The version with this number; `None` for 0.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0.get()
    }

    /// The version `stride` after this one. A server that gave a thousand million of them a second
    /// would reach the end, and stay there, after 500 years.
    #[must_use]
    pub const fn step(self, stride: u32) -> Self {
        Self(self.0.saturating_add(stride as u64))
    }
}

/// Everything about an item that is not its key or value. A store keeps it; only the engine reads
/// meaning into it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ItemHeader {
    /// The item's version.
    pub cas: Cas,
    /// When it expires; `None` is never.
    pub deadline: Option<Deadline>,
    /// When it was last stored or fetched.
    pub last_access: Tick,
    /// The client's own number, kept and handed back.
    pub client_flags: u32,
    /// How the key is written in meta text.
    pub key_form: KeyForm,
    /// Somebody has fetched it since it was stored (`h` of meta get).
    pub fetched: bool,
    /// Marked out of date by `md I`, and served all the same (`X` of meta get).
    pub stale: bool,
    /// Whether a client has been told to recache it.
    pub win: WinMark,
    /// A connection holds its lock: it is not evicted, does not expire, and no other changes it.
    pub locked: bool,
}

impl ItemHeader {
    /// That of an item which was stored at `last_access` and of which no more is said: its key is [plain](KeyForm::Plain),
    /// it never expires, has no client flags and no mark, and nobody holds its lock.
    #[must_use]
    pub const fn new(cas: Cas, last_access: Tick) -> Self {
        Self {
            cas,
            deadline: None,
            last_access,
            client_flags: 0,
            key_form: KeyForm::Plain,
            fetched: false,
            stale: false,
            win: WinMark::None,
            locked: false,
        }
    }
}

/// Whether a client has been told to recache an item, as the item itself knows.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum WinMark {
    /// Nobody has been: whether a get is, its age and its stale mark say.
    #[default]
    None,
    /// One has been told (`W`); the others see `Z`.
    Sent,
    /// One was told to fill it, and its connection has ended: the next get is told, whatever it asks for.
    Open,
}
