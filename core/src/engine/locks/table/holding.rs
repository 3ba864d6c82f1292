//! A lock as the table shows it, and the arguments of a grant.

use latchd_protocol::Owner;
use latchd_protocol::command::Mode;
use latchd_protocol::fence::Fence;
use latchd_protocol::time::Instant;

use super::Shard;

/// The scope of a lock.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LockScope {
    /// The lock of an item (`lock`, lock-and-get): it ends when its owner deletes the item.
    Item,
    /// The lock of a key (`ml`): it stays.
    Key,
}

/// A lock that is to be granted.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct NewGrant {
    pub(in crate::engine) owner: Owner,
    pub(in crate::engine) fence: Fence,
    pub(in crate::engine) now: Instant,
    pub(in crate::engine) lease_until: Option<Instant>,
    pub(in crate::engine) scope: LockScope,
    /// The shard of the key.
    pub(in crate::engine) shard: Shard,
}

/// The amount of locks, bytes and wins that an owner has.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct OwnerUsage {
    /// Locks.
    pub locks: usize,
    /// The bytes that the locks and the locked items take of the memory limit, as the table and the store account for
    /// them. A shared item counts for each sharer.
    pub bytes: usize,
    /// Wins that are bound to it.
    pub wins: usize,
}

/// One lock of the table; of one that is shared, one share.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and only one combination of two is none"
)]
pub struct Holding {
    /// Its owner, or its last one.
    pub owner: Owner,
    /// Whether it can be shared.
    pub mode: Mode,
    /// It has ended with all locks of its owner, or its lease is over: it has no holder, and is still in the table (L9).
    pub is_over: bool,
    /// It is its lease that has ended it.
    pub is_expired: bool,
    /// A `flush_all` found the item held and takes effect when it is unlocked.
    pub flush_pending: bool,
    /// The number of the grant.
    pub fence: Fence,
    /// When it was granted.
    pub since: Instant,
    /// When it ends by itself.
    pub lease_until: Option<Instant>,
    /// The scope with which it was acquired.
    pub scope: LockScope,
    /// There is an item of the key.
    pub has_item: bool,
    /// A client waits for it.
    pub is_waited: bool,
    /// Its owner has waited for it, and has not asked since: it does not know yet.
    pub is_unacknowledged: bool,
}
