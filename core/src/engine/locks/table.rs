//! The table of locks, without the items: which owner holds which key.
//!
//! A lock ties one key to one open owner, or to several if it is shared ([`shares`]). The key need not have an item. A
//! *term* of an owner lasts until it releases all of its locks or ends: this ends all of them in one step, whatever
//! their number. A lock with a lease ends when the lease expires. Ended locks are removed from the table later, a few
//! at a time, or when a command reads the key.
//!
//! - L1: a key has at most one owner, or sharers, no more than each of them has asked for.
//! - L2: The list of locks by key and the list by owner agree.
//! - L4: The owner of a lock in force is open.
//! - L9: A lock has no holder from the moment at which its term or its lease is over, and its key is queued for
//!   removal.
//! - L10: The counts agree with the table: locks, holders, locks without an item, pinned bytes, and the bytes of the
//!   table.
//! - L12: every grant has a fence of its own, which is greater than that of every grant before.
//! - L13: a lock with a lease is listed by the moment at which it ends, and no other is.
//! - L14: Of the locks that have ended, exclusive ones with waiters are removed first, then shares, then the rest: each
//!   kind has a queue. The leases of keys with waiters have a list of their own.

#[cfg(any(test, feature = "verify"))]
mod check;
mod ends;
mod holding;
mod leases;
mod shares;
#[cfg(feature = "verify")]
mod view;

use self::ends::Ends;
pub use self::ends::{EndCause, LOCK_ENDS_MAX, LockEnd};
pub(in crate::engine) use self::holding::NewGrant;
pub use self::holding::{Held, Holding, Taken};
use self::shares::{Group, Shares};

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use core::ops::Bound;

use crate::command::Mode;
use crate::engine::owned_key::{OwnedKey, as_key};
use crate::fence::Fence;
use crate::key::{KEY_BYTES_MAX, Key};
use crate::owner::Owner;
use crate::time::Instant;
use crate::times::Times;

/// The bytes of an entry of the table besides its key: a place in a tree that is seldom full, with a key pointer (16)
/// and owner, term, flushes, fence, moments and marks (64); and a place in the list of leases (32), with or without a
/// lease.
const ENTRY_BYTES: usize = 176;

/// The bytes of a place in an owner's list besides the key: the two counters of the key and the allocator's header, and
/// a key pointer in a tree that is seldom full.
const LISTED_BYTES: usize = 64;

/// The bytes of a key with waiters besides the key: a key pointer in its owner's list of those, in a tree that is
/// seldom full. This list becomes a queue of keys to hand over.
const WAITED_BYTES: usize = 64;

/// The locks, by key and by owner. They refer to items by key, since items move.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct LockTable {
    /// L1 holds by type for those that are not shared: a map has one value a key.
    by_key: BTreeMap<OwnedKey, Entry>,
    /// The shares of those that are.
    shares: Shares,
    /// The open owners (L4), each with the keys that it holds.
    by_owner: BTreeMap<Owner, Holder>,
    /// The keys that terms that are over have held alone (L9), the oldest first.
    ended: VecDeque<BTreeSet<OwnedKey>>,
    /// Of those, the keys that were waited for when their term was over (L14), the oldest first.
    handovers: VecDeque<BTreeSet<OwnedKey>>,
    /// Entries and shares of terms that are over. A lock with an expired lease alone still counts for its owner.
    ended_entries: usize,
    /// Entries, in force or not, of keys without an item.
    bare_entries: usize,
    /// The bytes of the items of entries of terms that are over. A shared item counts as pinned until its last share is
    /// removed.
    ended_pinned_bytes: usize,
    /// The bytes of the items of all keys in the table.
    pinned_bytes: usize,
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
    taken: Taken,
    has_item: bool,
    /// A client waits for it.
    is_waited: bool,
    /// Its one owner has waited for it, and does not know yet. Of sharers each has its own mark.
    is_untold: bool,
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
    /// In force while this is the owner's, and the lease has not passed.
    term: u64,
    /// L12.
    fence: Fence,
    /// When it was granted.
    since: Instant,
    /// When it ends by itself.
    lease_until: Option<Instant>,
}

/// An open owner.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Holder {
    /// The locks it takes now are of this term; the next begins when all are given back.
    term: u64,
    /// The keys that it holds alone.
    keys: BTreeSet<OwnedKey>,
    /// The keys that it shares, with the fences of its shares.
    shared: BTreeMap<OwnedKey, Fence>,
    /// The keys that it holds alone and that have waiters.
    waited: BTreeSet<OwnedKey>,
    /// The bytes that the items of its locks take of the memory limit.
    pinned_bytes: usize,
    /// As much of that as others may share.
    shared_pinned_bytes: usize,
    /// The bytes that its locks take of the table.
    table_bytes: usize,
    elsewhere: Held,
}

impl Holder {
    fn holds_nothing(&self) -> bool {
        self.keys.is_empty() && self.shared.is_empty()
    }
}

impl LockTable {
    /// The holder of `key`; of several, the one with the oldest grant.
    #[must_use]
    pub fn owner(&self, key: Key<'_>) -> Option<Owner> {
        match &self.by_key.get(key.as_bytes())?.holders {
            Holders::Alone(grant) => self.is_in_force(grant).then_some(grant.owner),
            Holders::Shared(group) => self.first_sharer(group.id),
        }
    }

    /// The lock of `key` that is in force; of one that is shared, the first share.
    #[must_use]
    pub fn in_force(&self, key: Key<'_>) -> Option<Holding> {
        self.get(key).filter(|holding| !holding.is_over)
    }

    /// How long the locks were held that have ended, each share by itself.
    #[must_use]
    pub const fn hold_times(&self) -> &Times {
        &self.ends.times
    }

    /// As after a start.
    pub(in crate::engine) fn forget_times(&mut self) {
        self.ends.times = Times::default();
    }

    /// From now on each end of a lock is kept, up to [`LOCK_ENDS_MAX`], or not.
    pub(in crate::engine) fn keep_ends(&mut self, is_taken: bool) {
        self.ends.keep(is_taken);
    }

    /// Whether there are ends to be taken.
    #[inline]
    #[must_use]
    pub fn has_ends(&self) -> bool {
        self.ends.has_some()
    }

    /// The ends since the last call, and how many more there were.
    pub(in crate::engine) fn take_ends(&mut self) -> (VecDeque<LockEnd>, u64) {
        self.ends.take()
    }

    /// Whether the lock of a key without an item may be in the table: if not, a key that has none
    /// need not be looked for.
    #[must_use]
    pub(in crate::engine) const fn has_bare(&self) -> bool {
        self.bare_entries > 0
    }

    /// Every lock, in the order of the keys, also ended ones that are still in the table; of a shared lock the share
    /// that [`Self::in_force`] shows, if there is one.
    pub fn iter(&self) -> impl Iterator<Item = (Key<'_>, Holding)> {
        self.by_key
            .iter()
            .map(|(key, entry)| (as_key(key), self.holding(entry)))
    }

    /// Every key in the table, with the number of grants that a look at it may have to read: one, unless shares may be
    /// over.
    pub(in crate::engine) fn keys(&self) -> impl Iterator<Item = (Key<'_>, usize)> {
        self.by_key.iter().map(|(key, entry)| {
            let looks = match &entry.holders {
                Holders::Shared(group) if self.may_be_over(group) => group.count as usize,
                Holders::Shared(_) | Holders::Alone(_) => 1,
            };
            (as_key(key), looks)
        })
    }

    /// The number of holders of `key`.
    #[must_use]
    pub fn holder_count(&self, key: Key<'_>) -> usize {
        match self.entry(key).map(|entry| &entry.holders) {
            Some(Holders::Shared(group)) if !self.may_be_over(group) => group.count as usize,
            Some(Holders::Shared(_) | Holders::Alone(_)) => self.holders_of(key).count(),
            None => 0,
        }
    }

    /// Every open owner that was announced.
    pub fn open_connections(&self) -> impl Iterator<Item = Owner> {
        self.by_owner.keys().copied()
    }

    /// Every owner that holds a lock.
    pub fn holding_connections(&self) -> impl Iterator<Item = Owner> {
        let holding = self
            .by_owner
            .iter()
            .filter(|(_, holder)| !holder.holds_nothing());
        holding.map(|(owner, _)| *owner)
    }

    /// The open owners after this one, in the order of their numbers, and whether each holds a lock.
    pub fn connections_behind(&self, owner: Owner) -> impl Iterator<Item = (Owner, bool)> {
        let behind = self
            .by_owner
            .range((Bound::Excluded(owner), Bound::Unbounded));
        behind.map(|(owner, holder)| (*owner, !holder.keys.is_empty()))
    }

    /// The number of open owners.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.by_owner.len()
    }

    /// The number of locks in force; a shared lock counts once for each sharer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len() - self.shares.keys + self.shares.by_fence.len() - self.ended_entries
    }

    /// Whether no lock is in force.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of owners that hold a lock.
    #[must_use]
    pub const fn holders(&self) -> usize {
        self.holders
    }

    /// The bytes that the table takes of the memory limit.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// The bytes that a lock of this key would add to [`Self::table_bytes`].
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        ENTRY_BYTES + LISTED_BYTES + key.as_bytes().len()
    }

    /// The most that [`Self::bytes_for_waited`] says.
    pub(in crate::engine) const BYTES_FOR_WAITED_MAX: usize = WAITED_BYTES + KEY_BYTES_MAX;

    /// The bytes that the first waiter of this key would add besides.
    pub(in crate::engine) fn bytes_for_waited(&self, key: Key<'_>) -> usize {
        match self.by_key.get(key.as_bytes()) {
            Some(entry) if entry.is_waited || matches!(entry.holders, Holders::Shared(_)) => 0,
            Some(_) | None => WAITED_BYTES + key.as_bytes().len(),
        }
    }

    /// The bytes of items that are still marked locked after the ends of their locks.
    #[must_use]
    pub(in crate::engine) const fn ended_pinned_bytes(&self) -> usize {
        self.ended_pinned_bytes
    }

    /// The bytes that the items of all keys in the table take of the memory limit.
    #[must_use]
    pub(in crate::engine) const fn pinned_bytes(&self) -> usize {
        self.pinned_bytes
    }

    /// The sum of the locks of `owner`, in other cores too; `None` if it is not open.
    #[must_use]
    pub fn held_by(&self, owner: Owner) -> Option<Held> {
        let elsewhere = self.by_owner.get(&owner)?.elsewhere;
        Some(elsewhere.with(self.held_here(owner)))
    }

    /// The same in this core, without wins; nothing if it is not open.
    #[must_use]
    pub fn held_here(&self, owner: Owner) -> Held {
        self.by_owner
            .get(&owner)
            .map_or_else(Held::default, |holder| Held {
                locks: holder.keys.len() + holder.shared.len(),
                bytes: holder.pinned_bytes + holder.table_bytes,
                wins: 0,
            })
    }

    /// The lock of `key`, in force or not.
    pub(in crate::engine) fn get(&self, key: Key<'_>) -> Option<Holding> {
        let entry = self.by_key.get(key.as_bytes())?;
        Some(self.holding(entry))
    }

    fn entry(&self, key: Key<'_>) -> Option<&Entry> {
        self.by_key.get(key.as_bytes())
    }

    /// Whether `key`, which is in the table, has an item.
    pub(in crate::engine) fn has_item(&self, key: Key<'_>) -> bool {
        self.entry(key).is_some_and(|entry| entry.has_item)
    }

    /// Whether `key`, which is in the table, has waiters.
    pub(in crate::engine) fn is_waited(&self, key: Key<'_>) -> bool {
        self.entry(key).is_some_and(|entry| entry.is_waited)
    }

    /// Whether a flush takes effect when the lock of `key` ends, which is in the table.
    pub(in crate::engine) fn is_flush_pending(&self, key: Key<'_>) -> bool {
        let entry = self.entry(key);
        entry.is_some_and(|entry| entry.flushes < self.flushes)
    }

    /// The same as [`Self::get`], unless it is shared.
    pub(in crate::engine) fn get_alone(&self, key: Key<'_>) -> Option<Holding> {
        let entry = self.by_key.get(key.as_bytes())?;
        matches!(entry.holders, Holders::Alone(_)).then(|| self.holding(entry))
    }

    /// The lock, or the share, of `key` that `owner` has and that is in force.
    #[must_use]
    pub fn held_as(&self, key: Key<'_>, owner: Owner) -> Option<Holding> {
        let entry = self.by_key.get(key.as_bytes())?;
        let holding = match &entry.holders {
            Holders::Alone(grant) if grant.owner == owner => self.holding(entry),
            Holders::Alone(_) => return None,
            Holders::Shared(_) => self.share_of(key, entry, owner)?,
        };
        Some(holding).filter(|holding| !holding.is_over)
    }

    pub(in crate::engine) fn open(&mut self, owner: Owner) {
        self.by_owner.entry(owner).or_default();
    }

    /// Notes the locks of an open owner in other cores.
    pub(in crate::engine) fn note_elsewhere(&mut self, owner: Owner, elsewhere: Held) {
        if let Some(holder) = self.by_owner.get_mut(&owner) {
            holder.elsewhere = elsewhere;
        }
    }

    /// Grants `key`, which is not in the table, to an open owner. Its item, if there is one, takes `pinned_bytes` of
    /// the memory limit.
    pub(in crate::engine) fn acquire(
        &mut self,
        key: Key<'_>,
        grant: NewGrant,
        pinned_bytes: Option<usize>,
    ) {
        let NewGrant {
            owner,
            fence,
            now,
            lease_until,
            taken,
        } = grant;
        let has_item = pinned_bytes.is_some();
        let bytes = Self::bytes_for(key);
        let owned: OwnedKey = Arc::from(key.as_bytes());
        let holder = self.enter(owner, &owned);
        holder.pinned_bytes += pinned_bytes.unwrap_or(0);
        holder.table_bytes += bytes;
        let grant = Grant {
            owner,
            term: holder.term,
            fence,
            since: now,
            lease_until: None,
        };
        let entry = Entry {
            holders: Holders::Alone(grant),
            flushes: self.flushes,
            taken,
            has_item,
            is_waited: false,
            is_untold: false,
        };
        self.by_key.insert(owned, entry);
        self.bare_entries += usize::from(!has_item);
        self.pinned_bytes += pinned_bytes.unwrap_or(0);
        self.table_bytes += bytes;
        self.set_lease(key, owner, lease_until);
    }

    /// Adds a key to those that an open owner holds alone.
    fn enter(&mut self, owner: Owner, key: &OwnedKey) -> &mut Holder {
        let holder = self
            .by_owner
            .get_mut(&owner)
            .expect("L4: asked for before a lock is granted");
        self.holders += usize::from(holder.holds_nothing());
        holder.keys.insert(Arc::clone(key));
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
                let holding = self.holding(entry);
                self.release_alone(key, &grant, &holding, pinned_bytes);
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
        pinned_bytes: usize,
    ) {
        self.set_lease(key, grant.owner, None);
        if holding.is_waited {
            self.set_waited(key, false);
        }
        if let Some((owned, _)) = self.by_key.remove_entry(key.as_bytes()) {
            self.ends.note(&owned, grant, holding);
        }
        self.table_bytes -= ENTRY_BYTES;
        self.bare_entries -= usize::from(!holding.has_item);
        self.pinned_bytes -= pinned_bytes;
        if let Some(holder) = self.leave(key, grant) {
            holder.pinned_bytes -= pinned_bytes;
            holder.table_bytes -= Self::bytes_for(key);
        } else {
            self.ended_pinned_bytes -= pinned_bytes;
        }
    }

    /// Removes a key from those that its owner holds; `None` if that term is over: then its place in the queue stays
    /// until its turn.
    fn leave(&mut self, key: Key<'_>, grant: &Grant) -> Option<&mut Holder> {
        let holder = self.by_owner.get_mut(&grant.owner);
        let Some(holder) = holder.filter(|holder| holder.term == grant.term) else {
            self.ended_entries -= 1;
            return None;
        };
        if !holder.keys.remove(key.as_bytes()) {
            holder.shared.remove(key.as_bytes());
        }
        self.holders -= usize::from(holder.holds_nothing());
        self.table_bytes -= LISTED_BYTES + key.as_bytes().len();
        Some(holder)
    }

    /// The item of `key`, which its owner holds, takes `after` bytes of the memory limit in the
    /// place of `before`.
    pub(in crate::engine) fn resize(&mut self, key: Key<'_>, before: usize, after: usize) {
        // A shared item is not changed.
        if let Some(Entry {
            holders: Holders::Alone(grant),
            ..
        }) = self.by_key.get(key.as_bytes())
            && let Some(holder) = self.by_owner.get_mut(&grant.owner)
        {
            holder.pinned_bytes = holder.pinned_bytes - before + after;
            self.pinned_bytes = self.pinned_bytes - before + after;
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
        // An ended lock keeps its place in the queue until its turn.
        let holder = self.by_owner.get_mut(&grant.owner);
        if let Some(holder) = holder.filter(|holder| holder.term == grant.term) {
            if is_waited {
                holder.waited.insert(Arc::clone(key));
                self.table_bytes += WAITED_BYTES + key.len();
            } else if holder.waited.remove(key) {
                self.table_bytes -= WAITED_BYTES + key.len();
            }
        }
    }

    /// `owner`, which has `key`, has waited for it, and does not know yet that it holds it; or it does now.
    pub(in crate::engine) fn set_untold(&mut self, key: Key<'_>, owner: Owner, is_untold: bool) {
        let Some(entry) = self.by_key.get_mut(key.as_bytes()) else {
            return;
        };
        match entry.holders {
            Holders::Alone(grant) if grant.owner == owner => entry.is_untold = is_untold,
            Holders::Alone(_) => {}
            Holders::Shared(_) => self.set_share_untold(key, owner, is_untold),
        }
    }

    /// The lock of `key` stays from now on when its owner deletes the item.
    pub(in crate::engine) fn keep_without_item(&mut self, key: Key<'_>) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.taken = Taken::ForKey;
        }
    }

    /// Whether locks that have ended many at once are still to be taken out.
    #[inline]
    pub(in crate::engine) fn has_ended(&self) -> bool {
        !self.ended.is_empty() || !self.shares.ended.is_empty()
    }

    /// The same, or some with expired leases.
    pub(in crate::engine) fn has_over(&self) -> bool {
        self.has_ended() || self.lease_next.is_some_and(|at| at <= self.leases_passed)
    }

    /// Whether some of them may be waited for.
    pub(in crate::engine) fn has_handovers(&self) -> bool {
        !self.handovers.is_empty() || self.shares.waited_keys > 0 && !self.shares.ended.is_empty()
    }

    /// The next of the keys that were waited for when their term was over (L14); as
    /// [`Self::next_ended`].
    pub(in crate::engine) fn next_handover(&mut self) -> Option<OwnedKey> {
        let keys = self.handovers.front_mut()?;
        let key = keys
            .pop_first()
            .expect("an empty list does not stand in line");
        if keys.is_empty() {
            self.handovers.pop_front();
        }
        self.table_bytes -= WAITED_BYTES + key.len();
        Some(key)
    }

    /// `key`, which is held, has an item again, of `pinned_bytes`.
    pub(in crate::engine) fn gain_item(&mut self, key: Key<'_>, pinned_bytes: usize) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.has_item = true;
            // It was stored after every flush there was.
            entry.flushes = self.flushes;
            self.bare_entries -= 1;
        }
        self.resize(key, 0, pinned_bytes);
    }

    /// `key`, which is held, has no item any more: it was of `pinned_bytes`.
    pub(in crate::engine) fn lose_item(&mut self, key: Key<'_>, pinned_bytes: usize) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.has_item = false;
            self.bare_entries += 1;
        }
        self.resize(key, pinned_bytes, 0);
    }

    /// Every lock of `owner` is over (L9), in one step. Returns how many there were.
    pub(in crate::engine) fn end_term(&mut self, owner: Owner) -> usize {
        let Some(holder) = self.by_owner.get_mut(&owner) else {
            return 0;
        };
        let term = holder.term;
        holder.term += 1;
        if holder.holds_nothing() {
            return 0;
        }
        let keys = core::mem::take(&mut holder.keys);
        let shared = core::mem::take(&mut holder.shared);
        let waited = core::mem::take(&mut holder.waited);
        let pinned_bytes = core::mem::take(&mut holder.pinned_bytes);
        let shared_pinned_bytes = core::mem::take(&mut holder.shared_pinned_bytes);
        holder.table_bytes = 0;
        let ended = keys.len() + shared.len();
        self.ends.end_term(owner, term, ended);
        self.holders -= 1;
        self.ended_entries += ended;
        self.ended_pinned_bytes += pinned_bytes - shared_pinned_bytes;
        if !keys.is_empty() {
            self.ended.push_back(keys);
        }
        if !shared.is_empty() {
            self.shares.ended.push_back(shared);
            self.shares.lines_begun += 1;
        }
        if !waited.is_empty() {
            self.handovers.push_back(waited);
        }
        ended
    }

    /// `owner` is not open any more, and nothing of it is in force. Returns how many locks it had.
    pub(in crate::engine) fn close(&mut self, owner: Owner) -> usize {
        let ended = self.end_term(owner);
        self.by_owner.remove(&owner);
        if ended > 0 {
            self.ends.close(owner);
        }
        ended
    }

    /// The next ended key that was held alone (L9). A command may have read it, and a client acquired it, in the
    /// meantime: then it is not over.
    pub(in crate::engine) fn next_ended(&mut self) -> Option<OwnedKey> {
        let keys = self.ended.front_mut()?;
        let key = keys
            .pop_first()
            .expect("an empty list does not stand in line");
        if keys.is_empty() {
            self.ended.pop_front();
        }
        self.table_bytes -= LISTED_BYTES + key.len();
        Some(key)
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

    fn is_in_force(&self, grant: &Grant) -> bool {
        !self.has_expired(grant) && self.is_of_term(grant)
    }

    /// Whether its owner has not given back or lost everything since.
    fn is_of_term(&self, grant: &Grant) -> bool {
        self.by_owner
            .get(&grant.owner)
            .is_some_and(|holder| holder.term == grant.term)
    }

    fn holding(&self, entry: &Entry) -> Holding {
        match &entry.holders {
            Holders::Alone(grant) => {
                self.holding_of(entry, grant, Mode::Exclusive, entry.is_untold)
            }
            Holders::Shared(group) => self.holding_of_first(group.id, entry),
        }
    }

    fn holding_of(&self, entry: &Entry, grant: &Grant, mode: Mode, is_untold: bool) -> Holding {
        let is_of_term = self.is_of_term(grant);
        let has_expired = self.has_expired(grant);
        Holding {
            owner: grant.owner,
            mode,
            is_over: has_expired || !is_of_term,
            is_expired: has_expired && is_of_term,
            flush_pending: entry.flushes < self.flushes,
            fence: grant.fence,
            since: grant.since,
            lease_until: grant.lease_until,
            taken: entry.taken,
            has_item: entry.has_item,
            is_waited: entry.is_waited,
            is_untold,
        }
    }
}

#[cfg(test)]
mod tests;
