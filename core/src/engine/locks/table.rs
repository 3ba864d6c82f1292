//! The table of locks, without the items: which owner holds which key.
//!
//! A lock ties one key to one open owner, or to several if it is shared ([`shares`]). The key need not have an item. An
//! owner that ends, or releases all of its locks, ends them by one number, whatever their number: its grants are valid from
//! a higher fence on. A lock with a lease ends when the lease expires. Ended locks are removed from the table later, a few
//! at a time, or when a command reads the key.
//!
//! - L1: a key has at most one owner, or sharers, no more than each of them has asked for.
//! - L2: The list of locks by key and the list by owner agree.
//! - L4: The owner of a lock in force is open.
//! - L9: A lock has no holder once its fence is below the first valid one of its owner, or its lease is over. An owner with
//!   such locks in the table is listed.
//! - L10: The counts agree with the table: locks, holders, locks without an item, pinned bytes, and the bytes of the
//!   table.
//! - L12: every grant has a fence of its own, which is greater than that of every grant before.
//! - L13: a lock with a lease is listed by the moment at which it ends, and no other is.
//! - L14: Of the locks that have ended with their owners, exclusive ones with waiters are removed first, then shares, then the
//!   rest. The leases of keys with waiters have a list of their own.

#[cfg(any(test, feature = "verify"))]
mod check;
mod ends;
mod holder;
mod holding;
mod leases;
mod metadata;
mod pins;
mod read;
mod shares;
#[cfg(feature = "verify")]
mod view;

use self::ends::Ends;
pub use self::ends::{EndCause, LOCK_ENDS_MAX, LockEnd};
use self::holder::{Holder, Rank};
pub(in crate::engine) use self::holding::NewGrant;
pub use self::holding::{Holding, LockScope, OwnerUsage};
pub(in crate::engine) use self::metadata::{MetadataBuffer, charge};
use self::pins::Pins;
pub(in crate::engine) use self::pins::Shard;
use self::shares::{Group, Shares};

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;

use crate::engine::owned_key::OwnedKey;
use crate::times::Times;
use latchd_protocol::Owner;
use latchd_protocol::fence::Fence;
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;

/// The bytes of an entry of the table besides its key: a place in a tree that is seldom full, with a key pointer (16)
/// and owner, flushes, fence, moments and marks (56); and a place in the list of leases (32), with or without a lease.
const ENTRY_BYTES: usize = 176;

/// The bytes of a place in an owner's list besides the key: the two counters of the key and the allocator's header, and
/// a fence and a key pointer in a tree that is seldom full.
const LISTED_BYTES: usize = 64;

/// The bytes of a key with waiters besides the key: a fence and a key pointer in its owner's list of those, in a tree that is
/// seldom full.
const WAITED_BYTES: usize = 64;

/// The locks, by key and by owner. They refer to items by key, since items move.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct LockTable {
    /// L1 holds by type for those that are not shared: a map has one value a key.
    by_key: BTreeMap<OwnedKey, Entry>,
    /// The shares of those that are.
    shares: Shares,
    /// The metadata of grants and shares that have some (L19).
    metadata: BTreeMap<Fence, Box<[u8]>>,
    /// The open owners (L4), and those that have ended with locks left in the table, each with its keys.
    by_owner: BTreeMap<Owner, Holder>,
    /// The owners of ended locks (L9), by what is left of them and in the order of their ends (L14).
    over: BTreeSet<(Rank, u64, Owner)>,
    /// How often all locks of an owner have ended.
    ends_begun: u64,
    /// Ended locks and shares. A lock with an expired lease alone still counts for its owner.
    ended_entries: usize,
    /// Entries, in force or not, of keys without an item.
    entries_without_item: usize,
    /// The bytes of the items in each shard that locks pin, but for exclusive ones that have ended. A shared item counts until
    /// its last share is removed.
    pins: Pins,
    /// The leases of keys without waiters, by the moments at which they expire (L13); of a shared lock, the first.
    leases: BTreeSet<(Instant, OwnedKey)>,
    /// The same for keys with waiters (L14).
    waited_leases: BTreeSet<(Instant, OwnedKey)>,
    /// The first of these moments: without an expired lease, a command reads one number.
    lease_next: Option<Instant>,
    /// A lease that lasts until then or less has passed.
    leases_passed: Instant,
    /// Open owners that hold a lock.
    holders: usize,
    /// The bytes of the table itself.
    table_bytes: usize,
    /// How often everything was flushed.
    flushes: u64,
    /// The record of ended locks.
    ends: Ends,
}

/// The lock of a key, as this knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Entry {
    holders: Holders,
    /// How often everything had been flushed when it was taken, or when the item was stored anew.
    flushes: u64,
    scope: LockScope,
    /// The shard of the key.
    shard: Shard,
    has_item: bool,
    /// A client waits for it.
    is_waited: bool,
    /// Its one owner has waited for it, and does not know yet. Of sharers each has its own mark.
    is_unacknowledged: bool,
}

/// The holders of a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Holders {
    Alone(Grant),
    /// The sharers, which [`LockTable::shares`] has.
    Shared(Group),
}

/// One grant of a lock to one owner.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Grant {
    owner: Owner,
    /// L12. In force while it is valid for the owner, and the lease has not passed.
    fence: Fence,
    /// When it was granted.
    since: Instant,
    /// When it ends by itself.
    lease_until: Option<Instant>,
}

impl LockTable {
    /// As after a start.
    pub(in crate::engine) fn forget_times(&mut self) {
        self.ends.times = Times::default();
    }

    /// From now on each end of a lock is kept, up to [`LOCK_ENDS_MAX`], or not.
    pub(in crate::engine) fn keep_ends(&mut self, is_taken: bool) {
        self.ends.keep(is_taken);
    }

    /// The ends since the last call, and how many more there were.
    pub(in crate::engine) fn take_ends(&mut self) -> (VecDeque<LockEnd>, u64) {
        self.ends.take()
    }

    pub(in crate::engine) fn open(&mut self, owner: Owner) {
        self.by_owner.entry(owner).or_default().is_open = true;
    }

    /// Grants `key`, which is not in the table, to an open owner. Its item, if there is one, takes `pinned_bytes` of
    /// the memory limit.
    pub(in crate::engine) fn acquire(
        &mut self,
        key: Key<'_>,
        new: NewGrant,
        pinned_bytes: Option<usize>,
    ) {
        let NewGrant {
            owner,
            fence,
            now,
            lease_until,
            scope,
            shard,
        } = new;
        let has_item = pinned_bytes.is_some();
        let pinned_bytes = pinned_bytes.unwrap_or(0);
        let bytes = Self::bytes_for(key);
        let owned: OwnedKey = Arc::from(key.as_bytes());
        let holder = self.enter(owner);
        holder.keys.insert(fence, Arc::clone(&owned));
        holder.pinned_bytes += pinned_bytes;
        holder.pins.add(shard, pinned_bytes);
        holder.table_bytes += bytes;
        let grant = Grant {
            owner,
            fence,
            since: now,
            lease_until: None,
        };
        let entry = Entry {
            holders: Holders::Alone(grant),
            flushes: self.flushes,
            scope,
            shard,
            has_item,
            is_waited: false,
            is_unacknowledged: false,
        };
        self.by_key.insert(owned, entry);
        self.entries_without_item += usize::from(!has_item);
        self.pins.add(shard, pinned_bytes);
        self.table_bytes += bytes;
        self.set_lease(key, owner, lease_until);
    }

    /// An open owner, which gets a lock.
    fn enter(&mut self, owner: Owner) -> &mut Holder {
        let holder = self
            .by_owner
            .get_mut(&owner)
            .expect("L4: asked for before a lock is granted");
        self.holders += usize::from(holder.in_force() == 0);
        holder
    }

    /// Removes the lock of `key`, or one share of it; its item takes `pinned_bytes` of the memory limit. Returns the
    /// removed lock or share; `None` if there was none.
    pub(in crate::engine) fn release(
        &mut self,
        key: Key<'_>,
        pinned_bytes: usize,
    ) -> Option<Holding> {
        let entry = self.by_key.get(key.as_bytes())?;
        match entry.holders {
            Holders::Alone(grant) => {
                // As it is before its lease and its waiters leave their lists.
                let (holding, shard) = (self.holding(entry), entry.shard);
                self.release_alone(key, &grant, &holding, (shard, pinned_bytes));
                Some(holding)
            }
            Holders::Shared(group) => {
                let last = self.shares.of(group.id).next_back();
                let fence = last.expect("L1: never none").grant.fence;
                self.release_share(key, fence, pinned_bytes)
            }
        }
    }

    fn release_alone(
        &mut self,
        key: Key<'_>,
        grant: &Grant,
        holding: &Holding,
        (shard, pinned_bytes): (Shard, usize),
    ) {
        self.set_lease(key, grant.owner, None);
        if holding.is_waited {
            self.set_waited(key, false);
        }
        let (metadata, metadata_bytes) = self.take_metadata(grant.fence);
        if let Some((owned, _)) = self.by_key.remove_entry(key.as_bytes()) {
            self.note_end(&owned, grant, holding, metadata);
        }
        self.table_bytes -= ENTRY_BYTES;
        self.entries_without_item -= usize::from(!holding.has_item);
        if let Some(holder) = self.leave(key, grant) {
            holder.pinned_bytes -= pinned_bytes;
            holder.pins.remove(shard, pinned_bytes);
            holder.table_bytes -= Self::bytes_for(key) + metadata_bytes;
            self.pins.remove(shard, pinned_bytes);
        }
    }

    /// The item of `key`, which its owner holds, takes `after` bytes of the memory limit in the
    /// place of `before`.
    pub(in crate::engine) fn resize(&mut self, key: Key<'_>, before: usize, after: usize) {
        // A shared item is not changed.
        if let Some(Entry {
            holders: Holders::Alone(grant),
            shard,
            ..
        }) = self.by_key.get(key.as_bytes())
            && let Some(holder) = self.by_owner.get_mut(&grant.owner)
        {
            holder.pinned_bytes = holder.pinned_bytes - before + after;
            for pins in [&mut holder.pins, &mut self.pins] {
                pins.add(*shard, after);
                pins.remove(*shard, before);
            }
        }
    }

    /// `key`, which is in the table, has waiters from now on, or has none.
    pub(in crate::engine) fn set_waited(&mut self, key: Key<'_>, is_waited: bool) {
        let Some((owned, entry)) = self.by_key.get_key_value(key.as_bytes()) else {
            return;
        };
        if entry.is_waited == is_waited {
            return;
        }
        let (owned, hold) = (Arc::clone(owned), entry.holders);
        match hold {
            Holders::Alone(grant) => self.list_waited(&owned, &grant, is_waited),
            Holders::Shared(group) => {
                let first = self.shares.first_lease(group.id);
                self.list_waited_lease(&owned, first.map(|(until, _)| until), is_waited);
                if is_waited {
                    self.shares.waited_keys += 1;
                } else {
                    self.shares.waited_keys -= 1;
                }
            }
        }
        if let Some(entry) = self.by_key.get_mut(&owned) {
            entry.is_waited = is_waited;
        }
    }

    /// Moves the records of an exclusive lock to the lists of keys with waiters, or back (L14).
    fn list_waited(&mut self, key: &OwnedKey, grant: &Grant, is_waited: bool) {
        self.list_waited_lease(key, grant.lease_until, is_waited);
        let bytes = WAITED_BYTES + key.len();
        self.change_holder(grant.owner, |holder| {
            if is_waited {
                holder.waited.insert(grant.fence, Arc::clone(key));
            } else {
                holder.waited.remove(&grant.fence);
            }
        });
        if is_waited {
            self.table_bytes += bytes;
        } else {
            self.table_bytes -= bytes;
        }
    }

    /// `owner`, which has `key`, has waited for it, and does not know yet that it holds it; or it does now.
    pub(in crate::engine) fn set_unacknowledged(
        &mut self,
        key: Key<'_>,
        owner: Owner,
        is_unacknowledged: bool,
    ) {
        let Some(entry) = self.by_key.get_mut(key.as_bytes()) else {
            return;
        };
        match entry.holders {
            Holders::Alone(grant) if grant.owner == owner => {
                entry.is_unacknowledged = is_unacknowledged;
            }
            Holders::Alone(_) => {}
            Holders::Shared(_) => self.set_share_unacknowledged(key, owner, is_unacknowledged),
        }
    }

    /// The lock of `key` stays from now on when its owner deletes the item.
    pub(in crate::engine) fn keep_without_item(&mut self, key: Key<'_>) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.scope = LockScope::Key;
        }
    }

    /// `key`, which is held, has an item again, of `pinned_bytes`.
    pub(in crate::engine) fn gain_item(&mut self, key: Key<'_>, pinned_bytes: usize) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.has_item = true;
            // It was stored after every flush there was.
            entry.flushes = self.flushes;
            self.entries_without_item -= 1;
        }
        self.resize(key, 0, pinned_bytes);
    }

    /// `key`, which is held, has no item any more: it was of `pinned_bytes`.
    pub(in crate::engine) fn lose_item(&mut self, key: Key<'_>, pinned_bytes: usize) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.has_item = false;
            self.entries_without_item += 1;
        }
        self.resize(key, pinned_bytes, 0);
    }

    /// A `flush_all` has come: it takes effect on a locked item when that is unlocked.
    pub(in crate::engine) fn postpone_flush(&mut self) {
        // As many as a server can be asked for in any life: one a nanosecond for 500 years.
        self.flushes += 1;
    }

    /// The owner of `key` has stored a new value: the flush before it has no claim on it.
    pub(in crate::engine) fn clear_flush(&mut self, key: Key<'_>) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.flushes = self.flushes;
        }
    }
}

#[cfg(test)]
mod tests;
