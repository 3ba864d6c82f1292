//! An item's header: everything but its key and value.

use core::num::NonZeroU64;

use crate::key::KeyForm;
use crate::time::{Deadline, Tick};

/// The client flags of the item of a leased lock (`latchd-client-core`): "leas" in ASCII. A lock that is bound to a connection
/// leaves such an item alone.
pub const LEASE_ITEM: u32 = 0x6c65_6173;

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

    /// The version `stride` after this one. At a thousand million changes per second the last version is
    /// reached after 500 years; from then on it stays the same.
    #[must_use]
    pub const fn step(self, stride: u32) -> Self {
        Self(self.0.saturating_add(stride as u64))
    }
}

/// Everything about an item but its key and value. A store keeps it; only the engine interprets it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ItemHeader {
    /// The item's version.
    pub cas: Cas,
    /// When it expires; `None` means never.
    pub deadline: Option<Deadline>,
    /// When it was last stored or fetched.
    pub last_access: Tick,
    /// The client's own number, returned unchanged.
    pub client_flags: u32,
    /// How the key is written in meta text.
    pub key_form: KeyForm,
    /// A client has fetched it since it was stored (`h` of meta get).
    pub fetched: bool,
    /// Marked stale by `md I`, and still served (`X` of meta get).
    pub stale: bool,
    /// Whether a client has won the right to recache it.
    pub win: WinMark,
    /// A connection holds its lock. Then it is not evicted, does not expire, and other connections cannot
    /// change it.
    pub locked: bool,
}

impl ItemHeader {
    /// The header of an item stored at `last_access` with defaults. Its key is [plain](KeyForm::Plain), it
    /// never expires, it has no client flags and no mark, and its lock is free.
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

/// Whether a client has won the right to recache an item, as recorded in the item.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum WinMark {
    /// No client has won it. The item's age and its stale mark decide whether a get wins.
    #[default]
    None,
    /// A client has won (`W`); the others see `Z`.
    Sent,
    /// A client had the win to fill the item, and its connection has ended. The next get wins, whatever its
    /// flags.
    Open,
}
