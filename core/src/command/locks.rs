//! What a request for the lock of a key can ask for.

use core::num::NonZeroU32;

use crate::fence::Fence;
use crate::key::Key;

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
