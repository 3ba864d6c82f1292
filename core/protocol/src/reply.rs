//! The core's replies: the outcome of a command, independent of the wire.
//!
//! A reply borrows from the store, so a value goes from the store straight into the output.

use crate::command::{ScanCursor, TTL_STEPS_MAX};
use crate::fence::Fence;
use crate::item::Cas;
use crate::key::KeyForm;
use crate::owner::Owner;
use crate::stats::Report;
use crate::value::Value;

/// The outcome of one [`Command`](crate::command::Command).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply<'a> {
    /// A get found or made an item.
    Hit(Hit<'a>),
    /// A get found no item.
    Miss,
    /// A set stored its value.
    Stored(Stored),
    /// The set's mode did not allow it: an item was there, or was not.
    NotStored,
    /// The item's version is not the one in the request.
    Exists,
    /// There is no item to change, delete, lock or compare with.
    NotFound,
    /// A delete removed, emptied or marked the item.
    Deleted,
    /// An arithmetic command changed the number, or made it.
    Number(Number),
    /// A lock was acquired.
    Locked,
    /// An acquire was granted.
    Granted(Granted<'a>),
    /// An acquire was not granted: a connection holds the lock, perhaps the requester itself, or waits for it.
    Contended(LockInfo<'a>),
    /// An acquire was not granted and may not wait: it would close a cycle of waiting connections.
    WouldDeadlock(LockInfo<'a>),
    /// An acquire was not granted, though no connection holds the lock: the server grants no lock at this time.
    Withheld {
        /// Connections that wait for it.
        waiting: usize,
    },
    /// An acquire waits, and has no reply yet. A [`Notice`](crate::wait::Notice) comes later. Nothing is
    /// encoded.
    Waits,
    /// One lock, or all locks of the connection, were released.
    Unlocked,
    /// `flush_all` or `stats reset` took effect.
    Ok,
    /// A page of keys.
    Keys(KeysPage<'a>),
    /// The counters, and the transport's own lines.
    Stats(Report<'a>),
    /// The command was refused and has changed nothing (but see
    /// [`Refusal::TooLarge`]).
    Refused(Refusal),
    /// The key belongs to the partition with this name, which another server serves. Nothing has changed. Only a
    /// transport that checks keys gives this reply.
    KeyOf(&'a str),
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Refusal {
    /// A connection holds the item's lock: another one, or for `lock` and for a shared lock, any.
    Locked,
    /// The connection does not hold the key's lock.
    NotLocked,
    /// The item to unlock does not exist. Binary tells it from `NotLocked`, text does not.
    NotLockedNotFound,
    /// A limit on locks was reached. The connection holds
    /// `locks_per_connection_max` locks, locked items pin
    /// `locked_bytes_max`, or too many connections wait
    /// (`waits_per_key_max`, and the limits after it).
    TooManyLocks,
    /// The connection is not open (its `Closed` has been handled), so it can
    /// hold no lock. Only a driver that mixes up its connections sees this.
    ConnectionClosed,
    /// The value is past `value_bytes_max`. For
    /// [`SetTooLarge`](crate::command::ItemCommand::SetTooLarge) the old value is removed.
    TooLarge,
    /// All items that may be evicted were evicted, and there is still not enough free memory.
    OutOfMemory,
    /// The item's value is not a decimal number below 2^64.
    NonNumeric,
    /// The lease's time must be recorded before it is granted, and cannot be. Only a transport that records such times gives
    /// this reply.
    Unrecorded,
}

/// An item as a get found it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hit<'a> {
    /// The item's key, never in base64.
    pub key: &'a [u8],
    /// How its key is written in meta text.
    pub key_form: KeyForm,
    /// The item's value; empty for one that this get has made. A large one may be shared with the
    /// store.
    pub value: Value<'a>,
    /// The item's version, even if the client knows it (`unchanged`).
    pub cas: Cas,
    /// The client's own number.
    pub client_flags: u32,
    /// Its remaining TTL before the first of the command's
    /// [`steps`](crate::command::TtlSteps), after the first, and so on. For a get without steps,
    /// the first is the TTL.
    pub ttl: TtlTrace,
    /// Whole seconds since the item was last stored or fetched before this get.
    pub last_access_s: u32,
    /// Whether the item was fetched before this get.
    pub fetched: bool,
    /// The item is marked stale (`X`).
    pub stale: bool,
    /// The win of this get.
    pub win: Win,
    /// The item has the version that the client knows ([`known_cas`](crate::command::Get::known_cas)).
    pub unchanged: bool,
    /// Its lock, if a connection holds it.
    pub lock: Option<LockInfo<'a>>,
    /// Its share of the memory limit, in bytes as the store accounts for them.
    pub memory_bytes: usize,
}

/// A lock that was granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Granted<'a> {
    /// The number of the grant.
    pub fence: Fence,
    /// The item of the key, as it was found; `None` if there is none.
    pub item: Option<Hit<'a>>,
}

/// A lock as other connections see it. Of a shared lock, this is the oldest grant in force.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LockInfo<'a> {
    /// The holder.
    pub holder: Owner,
    /// The number of the grant.
    pub fence: Fence,
    /// Whole seconds since it was granted.
    pub held_s: u64,
    /// Others may hold it at the same time.
    pub is_shared: bool,
    /// Connections that wait for it.
    pub waiting: usize,
    /// Its metadata, if it has some. Of the replies to a get, only that to `me` has it.
    pub metadata: Option<&'a [u8]>,
}

/// An item in a listing: `keys` shows its key, a dump shows all of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listed<'a> {
    /// The item's key, never in base64.
    pub key: &'a [u8],
    /// How its key is written in meta text.
    pub key_form: KeyForm,
    /// The item's version.
    pub cas: Cas,
    /// The client's own number.
    pub client_flags: u32,
    /// When it expires, in Unix seconds; `None` means never.
    pub expires_unix_s: Option<u64>,
    /// When it was stored or last fetched, in Unix seconds.
    pub accessed_unix_s: u64,
    /// Whether a client has fetched it since it was stored.
    pub fetched: bool,
    /// The length of its value.
    pub value_bytes: usize,
    /// Its share of the memory limit, in bytes as the store accounts for them.
    pub memory_bytes: usize,
}

impl<'a> Listed<'a> {
    /// An empty item with this key and version, and times of 0.
    #[must_use]
    pub const fn new(key: &'a [u8], cas: Cas) -> Self {
        Self {
            key,
            key_form: KeyForm::Plain,
            cas,
            client_flags: 0,
            expires_unix_s: None,
            accessed_unix_s: 0,
            fetched: false,
            value_bytes: 0,
            memory_bytes: 0,
        }
    }
}

/// A remaining TTL in seconds; `None` is "never expires".
pub type TtlSeconds = Option<u32>;

/// The TTL of an item before, between and after the [`TtlSteps`](crate::command::TtlSteps) of a command: entry
/// `n` is the TTL after `n` steps.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TtlTrace(pub [TtlSeconds; TTL_STEPS_MAX + 1]);

impl TtlTrace {
    /// A TTL that no step changes.
    #[must_use]
    #[inline]
    pub const fn unchanged(ttl: TtlSeconds) -> Self {
        Self([ttl; TTL_STEPS_MAX + 1])
    }

    /// The TTL after `steps` steps. After the last step it stays the same.
    #[must_use]
    pub fn after(&self, steps: usize) -> TtlSeconds {
        self.0[steps.min(TTL_STEPS_MAX)]
    }
}

/// The win of a get: the right to recache an item.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Win {
    /// The item need not be recached.
    None,
    /// This get won it (`W`).
    Won,
    /// Another client has it (`Z`).
    Sent,
}

/// An item after a set.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Stored {
    /// Its new version.
    pub cas: Cas,
    /// The bytes of its whole value, also after an append.
    pub size: usize,
}

/// A number after an arithmetic command.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Number {
    /// The number.
    pub value: u64,
    /// The item's new version.
    pub cas: Cas,
    /// As in [`Hit::ttl`].
    pub ttl: TtlTrace,
}

/// Why a new memory limit was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MemoryRefused {
    /// The owner of the items does not support a change.
    Fixed,
    /// The limit is less than the store needs to work, or than two of the largest values.
    TooSmall,
    /// The limit is more than the store has addresses for. They are chosen when the store is made.
    TooLarge,
    /// The locks pin or use more memory than the new limit allows.
    Locked,
}

/// A page of a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeysPage<'a> {
    /// The items: locked ones included, expired ones not.
    pub items: alloc::vec::Vec<Listed<'a>>,
    /// Where the next page starts; `None` after the last one.
    pub next: Option<ScanCursor>,
}
