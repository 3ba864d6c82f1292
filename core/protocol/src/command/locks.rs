//! The requests for the lock of a key.

use core::num::NonZeroU32;

use super::LockMetadata;
use crate::fence::Fence;
use crate::key::Key;

/// The longest wait for a lock or a value, in milliseconds: one hour.
pub const WAIT_MS_MAX: u64 = 60 * 60 * 1000;

/// The most connections that can share the lock of a key, and the highest limit of sharers in a request.
pub const SHARERS_MAX: u32 = 1024;

/// Acquires the lock of a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Acquire<'a> {
    /// The key; there need not be an item.
    pub key: Key<'a>,
    /// Whether others may hold it at the same time.
    pub mode: Mode,
    /// The ttl of the lock; a holder renews its lock by this. With `None` the lock lasts as long as the
    /// connection, and a holder is refused.
    pub lease: Option<Lease>,
    /// The metadata of the lock. A holder replaces that of its lock by this; with `None` it stays.
    pub metadata: Option<LockMetadata<'a>>,
    /// Only if there is an item (`x`).
    pub needs_item: bool,
    /// The item is read in the same step, which counts as a read.
    pub reads_item: bool,
    /// The action if another connection holds it.
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
            metadata: None,
            needs_item: false,
            reads_item: false,
            wait: Wait::No,
        }
    }
}

/// Whether others may hold the lock of a key at the same time.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Mode {
    /// No other connection.
    #[default]
    Exclusive,
    /// Other sharers (`S`). The item of a key with a shared lock cannot be changed.
    Shared {
        /// The most holders at a time, including the requester; `None` sets no bound of its own. Of the bounds
        /// of all sharers the least counts.
        max_sharers: Option<NonZeroU32>,
    },
}

impl Mode {
    /// The most holders of the lock that a holder in this mode allows.
    #[must_use]
    pub const fn max_sharers(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Shared {
                max_sharers: Some(max_sharers),
            } => max_sharers.get(),
            Self::Shared { max_sharers: None } => u32::MAX,
        }
    }

    /// Whether it is shared, among any number.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }
}

/// The effect of an [`Acquire`] of a lock that another connection holds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Wait {
    /// It is refused at once.
    #[default]
    No,
    /// The reply is [`Reply::Waits`](crate::reply::Reply::Waits), and the request waits in the queue for this
    /// time. Only for callers that handle the core's later notices (see [`crate::wait`]).
    UpTo {
        /// Milliseconds from now, at most `wait_ms_max`; a higher number is cut
        /// to that. 0 means not at all.
        ms: u64,
    },
}

/// The time of a lock, independent of its holder's connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Lease {
    /// This many milliseconds from now (`T`).
    For {
        /// At least [`LEASE_MS_MIN`].
        ms: u64,
    },
    /// As long as the connection, from now on: the holder removes its lease (`T-1`).
    Off,
}

/// The shortest lease, in milliseconds.
pub const LEASE_MS_MIN: u64 = 10;

/// Releases the lock of a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Release<'a> {
    /// The key.
    pub key: Key<'a>,
    /// The grant to release.
    pub of: ReleaseOf,
}

impl<'a> Release<'a> {
    /// A plain `mu`.
    #[must_use]
    pub const fn new(key: Key<'a>) -> Self {
        let of = ReleaseOf::Own;
        Self { key, of }
    }
}

/// The grant that a [`Release`] ends; of a shared lock, the share.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum ReleaseOf {
    /// That of this connection.
    #[default]
    Own,
    /// That of this connection, if it has this number (`F`).
    OwnGrant(Fence),
    /// The one with this number, of any connection (`G`).
    Grant(Fence),
}
