//! Which connection holds which key: the table, without the items.
//!
//! A lock ties one key to one open connection. There need not be an item of the key. All the locks of
//! a connection end at once, when it closes or gives them all back, and that takes one step however
//! many there are: their *term* is over. A lock with a lease ends when this has passed. What is left of
//! locks that have ended is taken out later, a few at a time, or when somebody looks.
//!
//! - L1: a key has at most one owner.
//! - L2: what keys know of their owner and what connections know of their keys is the same.
//! - L4: the owner of a lock in force is an open connection.
//! - L9: a lock whose term or lease is over is held by nobody from that moment on, and its key stands
//!   in line to be taken out.
//! - L10: what is counted is what is there: locks, holders, locks without an item, pinned bytes, and
//!   the table's own.
//! - L12: every grant has a fence of its own, which is greater than that of every grant before.
//! - L13: a lock with a lease is listed by the moment at which it ends, and no other is.
//! - L14: of what has ended, the keys that somebody waits for come before all others: they have a line,
//!   and a list of leases, of their own.

#[cfg(any(test, feature = "verify"))]
mod check;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;

use crate::conn_id::ConnId;
use crate::fence::Fence;
use crate::key::Key;
use crate::time::Instant;

/// What an entry of the table takes beyond its key, in bytes: its place in a tree that is seldom
/// full, 16 bytes of key pointer and 64 of owner, term, flushes, fence, moments and marks; and its
/// place among those that have a lease, whether or not it has one.
const ENTRY_BYTES: usize = 176;

/// What a place in a connection's list takes beyond the key, in bytes: the key's two counters and
/// the allocator's header, and a key pointer in a tree that is seldom full.
const LISTED_BYTES: usize = 64;

/// What the place of a key takes that somebody waits for, beyond the key, in bytes: in its owner's list of
/// those, which becomes the line of those, and a key pointer in a tree that is seldom full.
const WAITED_BYTES: usize = 64;

/// A key as the table keeps it, shared by its entry and its owner's list.
type OwnedKey = Arc<[u8]>;

/// Who holds what. Owned by key and never by place, since items move.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct LockTable {
    /// L1 holds by type: a map has one value a key.
    by_key: BTreeMap<OwnedKey, Entry>,
    /// The open connections (L4), each with the keys it holds.
    by_conn: BTreeMap<ConnId, Holder>,
    /// What terms that are over have left behind (L9), the oldest first.
    ended: VecDeque<BTreeSet<OwnedKey>>,
    /// Of those, the keys that were waited for when their term was over (L14), the oldest first.
    handovers: VecDeque<BTreeSet<OwnedKey>>,
    /// Entries whose term is over; those whose lease alone is, are still their owners'.
    ended_entries: usize,
    /// Entries, in force or not, of keys without an item.
    bare_entries: usize,
    /// What their items take of the memory limit.
    ended_pinned_bytes: usize,
    /// The locks that have a lease, by the moments at which these end (L13), if nobody waits for them.
    leases: BTreeSet<(Instant, OwnedKey)>,
    /// The same of those that somebody waits for (L14).
    waited_leases: BTreeSet<(Instant, OwnedKey)>,
    /// The first of these moments, so that who meets no lease looks at one number.
    lease_next: Option<Instant>,
    /// A lease that lasts until then or less has passed.
    leases_passed: Instant,
    /// Open connections that hold a lock.
    holders: usize,
    /// What the table takes itself.
    table_bytes: usize,
    /// How often everything was flushed.
    flushes: u64,
}

/// One lock, as its key knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Entry {
    owner: ConnId,
    /// In force while this is the owner's, and the lease has not passed.
    term: u64,
    /// How often everything had been flushed when it was taken, or when the item was stored anew.
    flushes: u64,
    /// L12.
    fence: Fence,
    /// When it was granted.
    since: Instant,
    /// When it ends by itself.
    lease_until: Option<Instant>,
    taken: Taken,
    has_item: bool,
    /// Somebody waits for it.
    is_waited: bool,
    /// Its owner has waited for it, and does not know yet.
    is_untold: bool,
}

/// What a lock was taken as.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Taken {
    /// The lock of an item (`lock`, lock-and-get): it ends when its owner deletes the item.
    WithItem,
    /// The lock of a key (`ml`): it stays.
    ForKey,
}

/// A lock that is to be granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) owner: ConnId,
    pub(super) fence: Fence,
    pub(super) now: Instant,
    pub(super) lease_until: Option<Instant>,
    pub(super) taken: Taken,
}

/// An open connection.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Holder {
    /// The locks it takes now are of this term; the next begins when all are given back.
    term: u64,
    keys: BTreeSet<OwnedKey>,
    /// Those of them that somebody waits for.
    waited: BTreeSet<OwnedKey>,
    /// What the items it holds take of the memory limit.
    pinned_bytes: usize,
    /// What its locks take of the table.
    table_bytes: usize,
    elsewhere: Held,
}

/// How much a connection holds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Held {
    /// Locks.
    pub locks: usize,
    /// What the locks and the held items take of the memory limit, in bytes as the table and the
    /// store account for them.
    pub bytes: usize,
}

impl Held {
    /// This and as much more.
    #[must_use]
    pub const fn with(self, more: Self) -> Self {
        Self {
            locks: self.locks + more.locks,
            bytes: self.bytes + more.bytes,
        }
    }
}

/// One lock of the table.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and only one combination of two is none"
)]
pub struct Holding {
    /// Who holds it, or did.
    pub owner: ConnId,
    /// Its term or its lease is over: nobody holds it, and it waits to be taken out (L9).
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
    /// What it was taken as.
    pub taken: Taken,
    /// There is an item of the key.
    pub has_item: bool,
    /// Somebody waits for it.
    pub is_waited: bool,
    /// Its owner has waited for it, and has not asked since: it does not know yet.
    pub is_untold: bool,
}

impl LockTable {
    /// The connection that holds `key`.
    #[must_use]
    pub fn owner(&self, key: Key<'_>) -> Option<ConnId> {
        let entry = self.by_key.get(key.as_bytes())?;
        self.is_in_force(entry).then_some(entry.owner)
    }

    /// The lock of `key` that is in force.
    #[must_use]
    pub fn in_force(&self, key: Key<'_>) -> Option<Holding> {
        self.get(key).filter(|holding| !holding.is_over)
    }

    /// Whether the lock of a key without an item may be in the table: if not, a key that has none
    /// need not be looked for.
    #[must_use]
    pub(super) const fn has_bare(&self) -> bool {
        self.bare_entries > 0
    }

    /// Every lock, in the order of the keys, those that wait to be taken out included.
    pub fn iter(&self) -> impl Iterator<Item = (Key<'_>, Holding)> {
        self.by_key
            .iter()
            .map(|(key, entry)| (as_key(key), self.holding(entry)))
    }

    /// Every open connection that was announced.
    pub fn open_connections(&self) -> impl Iterator<Item = ConnId> {
        self.by_conn.keys().copied()
    }

    /// Every connection that holds a lock.
    pub fn holding_connections(&self) -> impl Iterator<Item = ConnId> {
        let holding = self
            .by_conn
            .iter()
            .filter(|(_, holder)| !holder.keys.is_empty());
        holding.map(|(conn, _)| *conn)
    }

    /// How many locks are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len() - self.ended_entries
    }

    /// Whether nobody holds anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many connections hold a lock.
    #[must_use]
    pub const fn holders(&self) -> usize {
        self.holders
    }

    /// What the table takes of the memory limit itself, in bytes.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// What a lock of this key would add to [`Self::table_bytes`].
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        ENTRY_BYTES + LISTED_BYTES + key.as_bytes().len()
    }

    /// What it adds besides if somebody waits for that lock.
    pub(super) const fn bytes_for_waited(key: Key<'_>) -> usize {
        WAITED_BYTES + key.as_bytes().len()
    }

    /// What items that nobody holds any more take of the memory limit while they still look held,
    /// in bytes.
    #[must_use]
    pub(super) const fn ended_pinned_bytes(&self) -> usize {
        self.ended_pinned_bytes
    }

    /// What `conn` holds, in other cores too; `None` if it is not open.
    #[must_use]
    pub fn held_by(&self, conn: ConnId) -> Option<Held> {
        let elsewhere = self.by_conn.get(&conn)?.elsewhere;
        Some(elsewhere.with(self.held_here(conn)))
    }

    /// What `conn` holds in this core; nothing if it is not open.
    #[must_use]
    pub fn held_here(&self, conn: ConnId) -> Held {
        self.by_conn
            .get(&conn)
            .map_or_else(Held::default, |holder| Held {
                locks: holder.keys.len(),
                bytes: holder.pinned_bytes + holder.table_bytes,
            })
    }

    /// The lock of `key`, in force or not.
    pub(super) fn get(&self, key: Key<'_>) -> Option<Holding> {
        let entry = self.by_key.get(key.as_bytes())?;
        Some(self.holding(entry))
    }

    pub(super) fn open(&mut self, conn: ConnId) {
        self.by_conn.entry(conn).or_default();
    }

    /// Notes what an open connection holds in other cores.
    pub(super) fn note_elsewhere(&mut self, conn: ConnId, elsewhere: Held) {
        if let Some(holder) = self.by_conn.get_mut(&conn) {
            holder.elsewhere = elsewhere;
        }
    }

    /// Grants `key`, whose lock is not in the table, to a connection that is open. Its item, if
    /// there is one, takes `pinned_bytes` of the memory limit.
    pub(super) fn acquire(&mut self, key: Key<'_>, grant: Grant, pinned_bytes: Option<usize>) {
        let Grant {
            owner: conn,
            fence,
            now,
            lease_until,
            taken,
        } = grant;
        let has_item = pinned_bytes.is_some();
        let bytes = Self::bytes_for(key);
        let owned: OwnedKey = Arc::from(key.as_bytes());
        let holder = self
            .by_conn
            .get_mut(&conn)
            .expect("L4: asked for before a lock is granted");
        self.holders += usize::from(holder.keys.is_empty());
        holder.keys.insert(Arc::clone(&owned));
        holder.pinned_bytes += pinned_bytes.unwrap_or(0);
        holder.table_bytes += bytes;
        let entry = Entry {
            owner: conn,
            term: holder.term,
            flushes: self.flushes,
            fence,
            since: now,
            lease_until: None,
            taken,
            has_item,
            is_waited: false,
            is_untold: false,
        };
        self.by_key.insert(owned, entry);
        self.bare_entries += usize::from(!has_item);
        self.table_bytes += bytes;
        self.set_lease(key, lease_until);
    }

    /// Takes the lock of `key` out, whose item takes `pinned_bytes` of the memory limit. Says what
    /// it was; `None` if there was none.
    pub(super) fn release(&mut self, key: Key<'_>, pinned_bytes: usize) -> Option<Holding> {
        // As it is before its lease and those who wait are taken out of their lists.
        let holding = self.get(key)?;
        self.set_lease(key, None);
        if holding.is_waited {
            self.set_waited(key, false);
        }
        let entry = self.by_key.remove(key.as_bytes())?;
        self.table_bytes -= ENTRY_BYTES;
        self.bare_entries -= usize::from(!entry.has_item);
        let holder = self.by_conn.get_mut(&entry.owner);
        if let Some(holder) = holder.filter(|holder| holder.term == entry.term) {
            holder.keys.remove(key.as_bytes());
            holder.pinned_bytes -= pinned_bytes;
            holder.table_bytes -= Self::bytes_for(key);
            self.holders -= usize::from(holder.keys.is_empty());
            self.table_bytes -= LISTED_BYTES + key.as_bytes().len();
        } else {
            // Its place in line is left when its turn comes.
            self.ended_entries -= 1;
            self.ended_pinned_bytes -= pinned_bytes;
        }
        Some(holding)
    }

    /// The item of `key`, which its owner holds, takes `after` bytes of the memory limit in the
    /// place of `before`.
    pub(super) fn resize(&mut self, key: Key<'_>, before: usize, after: usize) {
        let entry = self.by_key.get(key.as_bytes());
        if let Some(holder) = entry.and_then(|entry| self.by_conn.get_mut(&entry.owner)) {
            holder.pinned_bytes = holder.pinned_bytes - before + after;
        }
    }

    /// The lock of `key` ends by itself at this moment, or not at all.
    pub(super) fn set_lease(&mut self, key: Key<'_>, until: Option<Instant>) {
        let Some((key, entry)) = self.by_key.get_key_value(key.as_bytes()) else {
            return;
        };
        if entry.lease_until == until {
            return;
        }
        let (key, before) = (Arc::clone(key), entry.lease_until);
        let leases = if entry.is_waited {
            &mut self.waited_leases
        } else {
            &mut self.leases
        };
        if let Some(before) = before {
            leases.remove(&(before, Arc::clone(&key)));
        }
        if let Some(until) = until {
            leases.insert((until, Arc::clone(&key)));
        }
        if let Some(entry) = self.by_key.get_mut(&key) {
            entry.lease_until = until;
        }
        self.lease_next = self.first_lease();
    }

    fn first_lease(&self) -> Option<Instant> {
        let firsts = [self.leases.first(), self.waited_leases.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    /// Somebody waits for `key`, whose lock is in the table; or nobody does any more.
    pub(super) fn set_waited(&mut self, key: Key<'_>, is_waited: bool) {
        let Some((owned, entry)) = self.by_key.get_key_value(key.as_bytes()) else {
            return;
        };
        if entry.is_waited == is_waited {
            return;
        }
        let (owned, entry) = (Arc::clone(owned), *entry);
        if let Some(until) = entry.lease_until {
            let lease = (until, Arc::clone(&owned));
            if is_waited {
                self.leases.remove(&lease);
                self.waited_leases.insert(lease);
            } else {
                self.waited_leases.remove(&lease);
                self.leases.insert(lease);
            }
        }
        // What has ended keeps its place in line until its turn comes.
        let holder = self.by_conn.get_mut(&entry.owner);
        if let Some(holder) = holder.filter(|holder| holder.term == entry.term) {
            if is_waited {
                holder.waited.insert(Arc::clone(&owned));
                self.table_bytes += WAITED_BYTES + owned.len();
            } else if holder.waited.remove(&owned) {
                self.table_bytes -= WAITED_BYTES + owned.len();
            }
        }
        if let Some(entry) = self.by_key.get_mut(&owned) {
            entry.is_waited = is_waited;
        }
    }

    /// The owner of `key` has waited for it, and does not know yet that it holds it; or it does now.
    pub(super) fn set_untold(&mut self, key: Key<'_>, is_untold: bool) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.is_untold = is_untold;
        }
    }

    /// The lock of `key` stays from now on when its owner deletes the item.
    pub(super) fn keep_without_item(&mut self, key: Key<'_>) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.taken = Taken::ForKey;
        }
    }

    /// It is `now`: every lease that has passed has ended its lock (L9), in one step. Says whether there
    /// is one.
    pub(super) fn pass_leases(&mut self, now: Instant) -> bool {
        let is_due = self.lease_next.is_some_and(|at| at <= now);
        if is_due {
            self.leases_passed = now;
        }
        is_due
    }

    /// A key whose lease has passed. Its lock is to be released.
    pub(super) fn next_expired(&self) -> Option<OwnedKey> {
        let passed = |(at, _): &&(Instant, OwnedKey)| *at <= self.leases_passed;
        let waited = self.waited_leases.first().filter(passed);
        let (_, key) = waited.or_else(|| self.leases.first().filter(passed))?;
        Some(Arc::clone(key))
    }

    /// When the first lease ends of a lock that somebody waits for.
    pub(super) fn next_waited_lease(&self) -> Option<Instant> {
        self.waited_leases.first().map(|(at, _)| *at)
    }

    /// Whether locks that have ended many at once are still to be taken out.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Whether some of them may be waited for.
    pub(super) fn has_handovers(&self) -> bool {
        !self.handovers.is_empty()
    }

    /// The next of the keys that were waited for when their term was over (L14); as
    /// [`Self::next_ended`].
    pub(super) fn next_handover(&mut self) -> Option<OwnedKey> {
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
    pub(super) fn gain_item(&mut self, key: Key<'_>, pinned_bytes: usize) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.has_item = true;
            // It was stored after every flush there was.
            entry.flushes = self.flushes;
            self.bare_entries -= 1;
        }
        self.resize(key, 0, pinned_bytes);
    }

    /// `key`, which is held, has no item any more: it was of `pinned_bytes`.
    pub(super) fn lose_item(&mut self, key: Key<'_>, pinned_bytes: usize) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.has_item = false;
            self.bare_entries += 1;
        }
        self.resize(key, pinned_bytes, 0);
    }

    /// Every lock of `conn` is over (L9), in one step. Returns how many there were.
    pub(super) fn end_term(&mut self, conn: ConnId) -> usize {
        let Some(holder) = self.by_conn.get_mut(&conn) else {
            return 0;
        };
        holder.term += 1;
        let keys = core::mem::take(&mut holder.keys);
        let waited = core::mem::take(&mut holder.waited);
        let pinned_bytes = core::mem::take(&mut holder.pinned_bytes);
        holder.table_bytes = 0;
        if keys.is_empty() {
            return 0;
        }
        let ended = keys.len();
        self.holders -= 1;
        self.ended_entries += ended;
        self.ended_pinned_bytes += pinned_bytes;
        self.ended.push_back(keys);
        if !waited.is_empty() {
            self.handovers.push_back(waited);
        }
        ended
    }

    /// `conn` is not open any more, and nothing of it is in force. Returns how many locks it had.
    pub(super) fn close(&mut self, conn: ConnId) -> usize {
        let ended = self.end_term(conn);
        self.by_conn.remove(&conn);
        ended
    }

    /// The next key in line (L9). Its lock is to be released if it is over: somebody may have
    /// looked it up, and taken it again, in the meantime.
    pub(super) fn next_ended(&mut self) -> Option<OwnedKey> {
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

    /// A `flush_all` has happened: it reaches what is held when it is unlocked.
    pub(super) fn postpone_flush(&mut self) {
        // As many as a server can be asked for in any life: one a nanosecond for 500 years.
        self.flushes += 1;
    }

    /// The owner of `key` has stored a new value: the flush before it has no claim on it.
    pub(super) fn clear_flush(&mut self, key: Key<'_>) {
        if let Some(entry) = self.by_key.get_mut(key.as_bytes()) {
            entry.flushes = self.flushes;
        }
    }

    fn is_in_force(&self, entry: &Entry) -> bool {
        !self.has_expired(entry) && self.is_of_term(entry)
    }

    /// Whether its owner has not given back or lost everything since.
    fn is_of_term(&self, entry: &Entry) -> bool {
        self.by_conn
            .get(&entry.owner)
            .is_some_and(|holder| holder.term == entry.term)
    }

    fn has_expired(&self, entry: &Entry) -> bool {
        entry
            .lease_until
            .is_some_and(|until| until <= self.leases_passed)
    }

    fn holding(&self, entry: &Entry) -> Holding {
        Holding {
            owner: entry.owner,
            is_over: !self.is_in_force(entry),
            is_expired: self.has_expired(entry) && self.is_of_term(entry),
            flush_pending: entry.flushes < self.flushes,
            fence: entry.fence,
            since: entry.since,
            lease_until: entry.lease_until,
            taken: entry.taken,
            has_item: entry.has_item,
            is_waited: entry.is_waited,
            is_untold: entry.is_untold,
        }
    }
}

/// What only a view looks at.
#[cfg(feature = "verify")]
impl LockTable {
    /// Every open connection that was announced, with the keys it holds and what it is known to
    /// hold elsewhere.
    pub(super) fn connections(
        &self,
    ) -> impl Iterator<Item = (ConnId, impl Iterator<Item = Key<'_>>, Held)> {
        self.by_conn.iter().map(|(conn, holder)| {
            // The number of a term decides nothing but whether a lock is in force, which `iter`
            // shows; pinned bytes are a sum (L10).
            let Holder {
                term: _,
                keys,
                // `iter` shows them.
                waited: _,
                pinned_bytes: _,
                table_bytes: _,
                elsewhere,
            } = holder;
            (*conn, keys.iter().map(|key| as_key(key)), *elsewhere)
        })
    }

    /// The keys in line to be taken out (L9), in their order, those that are waited for first and again
    /// at their place.
    pub(super) fn in_line(&self) -> impl Iterator<Item = Key<'_>> {
        // V1: every field is shown, here, by `iter` and by `connections`, or is a sum (L10). Of the
        // flushes only the difference matters, which `iter` shows.
        let Self {
            by_key: _,
            by_conn: _,
            ended,
            handovers,
            ended_entries: _,
            bare_entries: _,
            // `iter` shows them.
            leases: _,
            waited_leases: _,
            lease_next: _,
            leases_passed: _,
            ended_pinned_bytes: _,
            holders: _,
            table_bytes: _,
            flushes: _,
        } = self;
        let first = handovers.iter().flatten();
        first.chain(ended.iter().flatten()).map(|key| as_key(key))
    }
}

pub(super) fn as_key(key: &[u8]) -> Key<'_> {
    Key::new(key).expect("it was made from a key")
}

#[cfg(test)]
mod tests;
