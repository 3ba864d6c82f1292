//! The commands of a connection to the core. All three protocols lower into them, so a rule is written once.
//!
//! A command is a plain value that borrows keys and values from the request. Details that only the wire needs
//! (opaque, quiet, key echo, the order of flags in a reply) are in the request's envelope ([`crate::wire`]).
//!
//! One [`Get`] covers get, gets, gat, touch, `mg`, `me` and lock-and-get; one [`Set`] covers set,
//! add, replace, append, prepend, cas, `ms` and replace-and-unlock.

mod change;
mod get;
mod locks;
mod metadata;

pub use change::{
    Arithmetic, Delete, Direction, Guard, LockAfter, NewCas, OnMissing, Removal, Set, SetMode,
};
pub use get::{Get, TTL_STEPS_MAX, TtlStep, TtlSteps};
pub use locks::{
    Acquire, LEASE_MS_MIN, Lease, Mode, Release, ReleaseOf, SHARERS_MAX, WAIT_MS_MAX, Wait,
};
pub use metadata::{LOCK_METADATA_BYTES_MAX, LockMetadata};

use crate::fence::Fence;
use crate::key::Key;
use crate::stats::StatsTopic;
use crate::time::Exptime;

/// One request of one connection. It has exactly one [`Reply`](crate::reply::Reply).
///
/// The split is by the number of shards of items that are concerned: one, or all.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Command<'a> {
    /// About one item: for the shard of its key.
    Item(ItemCommand<'a>),
    /// About all items, or all locks of a connection: for every shard.
    Global(GlobalCommand<'a>),
}

/// A [`Command`] about one item, by its [`key`](ItemCommand::key).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ItemCommand<'a> {
    /// Reads an item, and may touch, vivify, win or lock it.
    Get(Get<'a>),
    /// Stores a value.
    Set(Set<'a>),
    /// A [`Set`] whose value is past `value_bytes_max` and was not read. The
    /// old value of the key is removed, so that no client reads the value that the writer meant to replace.
    /// Always answered [`Refusal::TooLarge`](crate::reply::Refusal::TooLarge).
    ///
    /// Source: memcached 1.6.45 `proto_parser.c`, `process_update_cmd_start`.
    SetTooLarge {
        /// The key; its old value is removed.
        key: Key<'a>,
    },
    /// Removes an item, or marks it.
    Delete(Delete<'a>),
    /// Adds to a decimal number, or subtracts from it.
    Arithmetic(Arithmetic<'a>),
    /// Acquires the lock of a key, whether or not there is an item (`ml`).
    Acquire(Acquire<'a>),
    /// Releases the lock of a key (`mu`).
    Release(Release<'a>),
    /// Acquires the lock of an existing item.
    Lock {
        /// The item's key; the item must exist.
        key: Key<'a>,
    },
    /// Releases the lock of an item.
    Unlock {
        /// The item's key; the connection must hold its lock.
        key: Key<'a>,
    },
}

/// A [`Command`] about all items, or all locks of the connection.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum GlobalCommand<'a> {
    /// Releases every lock of the connection.
    UnlockAll,
    /// Removes, at the given moment, every item that was stored before it. A later `flush_all` replaces one
    /// that is still to come.
    FlushAll {
        /// The moment: [`Exptime::Never`] and [`Exptime::Past`] mean "at once".
        at: Exptime,
    },
    /// Lists keys, a page at a time.
    Keys(Keys<'a>),
    /// Reads the statistics of a topic.
    Stats(StatsTopic),
    /// Sets the counters back to 0 (`stats reset`).
    StatsReset,
}

impl<'a> Command<'a> {
    /// The key of the command; `None` for commands about all items or the connection.
    #[must_use]
    pub const fn key(&self) -> Option<Key<'a>> {
        match self {
            Self::Item(command) => Some(command.key()),
            Self::Global(_) => None,
        }
    }

    /// Whether this is a command that only clients that know locks send.
    #[must_use]
    pub fn is_of_locks(&self) -> bool {
        let of_change = |fence: &Option<Fence>, lock: LockAfter| {
            fence.is_some() || matches!(lock, LockAfter::Release)
        };
        match self {
            Self::Item(command) => match command {
                ItemCommand::Get(get) => get.lock,
                ItemCommand::Set(set) => of_change(&set.fence, set.lock),
                ItemCommand::Delete(delete) => of_change(&delete.fence, delete.lock),
                ItemCommand::Arithmetic(sum) => of_change(&sum.fence, sum.lock),
                ItemCommand::SetTooLarge { .. } => false,
                ItemCommand::Acquire(_)
                | ItemCommand::Release(_)
                | ItemCommand::Lock { .. }
                | ItemCommand::Unlock { .. } => true,
            },
            Self::Global(command) => matches!(command, GlobalCommand::UnlockAll),
        }
    }

    /// Whether this asks for a lock or has one, waits, or binds a win: its reply is wrong if another server has the locks of
    /// its key.
    #[must_use]
    pub fn concerns_locks(&self) -> bool {
        let is_get_of_wins = match self {
            Self::Item(ItemCommand::Get(get)) => get.bound_to_owner || get.wait_ms > 0,
            Self::Item(_) | Self::Global(_) => false,
        };
        is_get_of_wins || self.is_of_locks()
    }

    /// The same command without its wait; the core executes it when a wait is over.
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

/// Lists keys, a page at a time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Keys<'a> {
    /// Only keys that begin with this; empty for all.
    pub prefix: &'a [u8],
    /// Where the page starts: [`ScanCursor::default`] for the first page, then the cursor of the last page.
    pub cursor: ScanCursor,
}

/// A place in a scan over the store. It means something only to the store that gave it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct ScanCursor(pub u64);
