//! The locks: their holders, their waiters, and the right to change a held item.
//!
//! A key has one exclusive holder, or several that share it, in the order of their grants. All
//! waiters of a key stand in one queue, in the order of arrival, whichever mode they want. When a
//! lock ends, the queue is searched for the first waiter that wants this lock, and then for the
//! next.

use std::collections::BTreeSet;
use std::sync::Arc;

use latchd_core::Owner;
use latchd_protocol::command::{Acquire, Lease, LockAfter, Mode, Wait};
use latchd_protocol::fence::Fence;
use latchd_protocol::reply::{LockInfo, Refusal};
use latchd_protocol::wait::{Notice, Outcome};

use super::answer::SeenLock;
use super::tables::{TableEntry, metadata_bytes};
use super::{Oracle, OwnedReply, Win};

/// Everything there is to know of a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lock {
    /// Its holder.
    pub owner: Owner,
    /// Whether others may hold it too.
    pub mode: Mode,
    /// The number of the grant.
    pub fence: u64,
    /// When it was granted.
    pub since_ms: u64,
    /// The deadline of its lease.
    pub lease_until_ms: Option<u64>,
    /// It stays when its owner deletes the item.
    pub is_of_key: bool,
    /// Its owner has waited for it, and has not asked since.
    pub is_unheard: bool,
    /// Its metadata.
    pub metadata: Metadata,
}

/// The metadata of a lock or of a waiter, if it has some.
pub type Metadata = Option<Arc<[u8]>>;

/// Everything there is to know of a waiter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Waiting {
    /// Its connection.
    pub conn: Owner,
    /// For which lock.
    pub key: Vec<u8>,
    /// Whether others may hold it too once it is granted.
    pub mode: Mode,
    /// Until when.
    pub until_ms: u64,
    /// The requested lease.
    pub lease: Option<Lease>,
    /// Only if there is an item then.
    pub needs_item: bool,
    /// The metadata of the lock that it may get.
    pub metadata: Metadata,
}

impl Oracle {
    /// The holder of the lock of a key; of several, the first.
    #[must_use]
    pub fn holder(&self, key: &[u8]) -> Option<Owner> {
        self.lock_of(key).map(|lock| lock.owner)
    }

    /// The lock of a key; of several, the first.
    #[must_use]
    pub fn lock_of(&self, key: &[u8]) -> Option<Lock> {
        self.locks_of(key).first().cloned()
    }

    /// The holders of the lock of a key, the first grant first.
    #[must_use]
    pub fn locks_of(&self, key: &[u8]) -> &[Lock] {
        self.locks.get(key).map_or(&[], Vec::as_slice)
    }

    /// The lock of a key as `conn` holds it.
    pub(super) fn own(&self, key: &[u8], conn: Owner) -> Option<Lock> {
        let mut locks = self.locks_of(key).iter();
        locks.find(|lock| lock.owner == conn).cloned()
    }

    fn own_mut(&mut self, key: &[u8], conn: Owner) -> Option<&mut Lock> {
        let mut locks = self.locks.get_mut(key)?.iter_mut();
        locks.find(|lock| lock.owner == conn)
    }

    fn is_shared(&self, key: &[u8]) -> bool {
        self.lock_of(key).is_some_and(|lock| lock.mode.is_shared())
    }

    /// The waiters of a key, the first to come first.
    pub fn queue(&self, key: &[u8]) -> impl Iterator<Item = &Waiting> {
        self.waits.iter().filter(move |waiting| waiting.key == key)
    }

    /// The next notice that a wait is over, and how.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut self.notices);
        notices.retain(|notice| self.is_open(notice.owner));
        notices
    }

    /// Whether a connection is announced and has not ended.
    #[must_use]
    pub fn is_open(&self, conn: Owner) -> bool {
        self.open.contains(&conn)
    }

    /// The time of the next event with a notice for a client.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let of_wait = |waiting: &Waiting| {
            let locks = self.locks_of(&waiting.key).iter();
            let lease = locks.filter_map(|lock| lock.lease_until_ms).min();
            lease.map_or(waiting.until_ms, |until| until.min(waiting.until_ms))
        };
        let waits = self.waits.iter().map(of_wait);
        let withheld = self.is_withheld().then_some(self.withheld_until_ms);
        waits.chain(self.next_get_ms()).chain(withheld).min()
    }

    /// `ml`.
    pub(super) fn acquire(&mut self, conn: Owner, acquire: &Acquire<'_>) -> OwnedReply {
        let key = acquire.key.as_bytes();
        let held = self.locks.contains_key(key) || self.is_withheld();
        let own = self.own(key, conn);
        let same = own
            .clone()
            .filter(|own| own.mode.is_shared() == acquire.mode.is_shared());
        let is_there = !acquire.needs_item || self.items.contains_key(key);
        let same = same.as_ref();
        if let Some(own) = same.filter(|own| own.is_unheard && (is_there || !conn.is_session())) {
            if let Some(refused) = self.replace_metadata(conn, acquire, own) {
                return refused;
            }
            self.own_mut(key, conn).expect("its own").is_unheard = false;
            return self.granted(acquire, own.fence);
        }
        if let Some(own) = same.filter(|_| acquire.lease.is_some()) {
            if acquire.needs_item && !self.items.contains_key(key) {
                return OwnedReply::NotFound;
            }
            if let Some(refused) = self.replace_metadata(conn, acquire, own) {
                return refused;
            }
            let lease_until_ms = self.lease_end(acquire.lease);
            let lock = self.own_mut(key, conn).expect("its own");
            lock.is_of_key = true;
            lock.lease_until_ms = lease_until_ms;
            self.counters.lock_renewed += 1;
            return self.granted(acquire, own.fence);
        }
        // A session may not have heard that it has the lock.
        if let Some(own) = same.filter(|_| conn.is_session()) {
            if !is_there {
                return OwnedReply::NotFound;
            }
            let refused = self.replace_metadata(conn, acquire, own);
            return refused.unwrap_or_else(|| self.granted(acquire, own.fence));
        }
        if acquire.lease == Some(Lease::Off) && own.is_none() {
            return OwnedReply::NotFound;
        }
        // A session that asks for another wait leaves the place that it has.
        let may_wait = matches!(acquire.wait, Wait::UpTo { ms: 1.. });
        let is_again = self.same_wait(conn, acquire).is_some();
        if held && may_wait && conn.is_session() && !is_again {
            self.leave_all(conn);
        }
        let joins = held
            && !self.is_withheld()
            && own.is_none()
            && self.queue(key).next().is_none()
            && fits(self.locks_of(key).iter().map(|it| it.mode), acquire.mode);
        let is_free = !held || joins && self.open.contains(&conn);
        if acquire.needs_item && is_free && !self.items.contains_key(key) {
            return OwnedReply::NotFound;
        }
        if let Wait::UpTo { ms } = acquire.wait
            && !is_free
            && self.open.contains(&conn)
        {
            return self.join(conn, acquire, ms);
        }
        let metadata = metadata_bytes(&metadata_of(acquire));
        if joins && is_free {
            if self.has_enough(conn)
                || !self.has_room_in_tables(TableEntry::Lock(acquire.mode, metadata), key)
                || !self.may_be_pinned(conn, key, acquire.mode, metadata)
            {
                return OwnedReply::Refused(Refusal::TooManyLocks);
            }
            let fence = self.grant(conn, key, true, acquire.mode);
            return self.leased(conn, acquire, fence);
        }
        let fence = match self.lock(conn, key, true, acquire.mode, metadata) {
            Ok(fence) => fence,
            Err(Refusal::Locked) => {
                let waiting = self.queue(key).count();
                let seen = self.lock_seen(key).map(OwnedReply::Contended);
                return seen.unwrap_or(OwnedReply::Withheld { waiting });
            }
            Err(refusal) => return OwnedReply::Refused(refusal),
        };
        self.leased(conn, acquire, fence)
    }

    /// The answer to an acquire that was granted just now.
    fn leased(&mut self, conn: Owner, acquire: &Acquire<'_>, fence: u64) -> OwnedReply {
        let lease_until_ms = self.lease_end(acquire.lease);
        let lock = self.own_mut(acquire.key.as_bytes(), conn);
        let lock = lock.expect("just granted");
        lock.lease_until_ms = lease_until_ms;
        lock.metadata = metadata_of(acquire);
        self.granted(acquire, fence)
    }

    /// A holder asks again: metadata in the request replaces that of its lock, if there is memory for it.
    fn replace_metadata(
        &mut self,
        conn: Owner,
        acquire: &Acquire<'_>,
        own: &Lock,
    ) -> Option<OwnedReply> {
        let metadata = metadata_of(acquire);
        metadata.as_ref()?;
        let key = acquire.key.as_bytes();
        let more = metadata_bytes(&metadata).saturating_sub(metadata_bytes(&own.metadata));
        if more > 0
            && !(self.may_have_more(conn, more)
                && self.has_room_in_tables(TableEntry::More(more), key))
        {
            return Some(OwnedReply::Refused(Refusal::TooManyLocks));
        }
        self.own_mut(key, conn).expect("its own").metadata = metadata;
        None
    }

    /// The answer to an acquire that was granted, and the look at the item.
    fn granted(&mut self, acquire: &Acquire<'_>, fence: u64) -> OwnedReply {
        let key = acquire.key.as_bytes();
        let Some(before) = self.items.get(key).cloned() else {
            return OwnedReply::Granted { fence, item: None };
        };
        let now_ms = self.now_ms;
        if acquire.reads_item {
            let item = self.items.get_mut(key).expect("it is there");
            (item.fetched, item.used) = (true, true);
            item.accessed_ms = now_ms;
        }
        let ttls = vec![self.seconds_left(before.gone_at_ms)];
        OwnedReply::Granted {
            fence,
            item: Some(self.seen(key, &before, ttls, Win::None, None)),
        }
    }

    /// The lock of a key, as others see it.
    pub(super) fn lock_seen(&self, key: &[u8]) -> Option<SeenLock> {
        self.lock_of(key).map(|lock| SeenLock {
            lock: LockInfo {
                holder: lock.owner,
                fence: Fence::new(lock.fence).expect("they start at 1"),
                held_s: (self.now_ms - lock.since_ms) / 1000,
                is_shared: lock.mode.is_shared(),
                waiting: self.queue(key).count(),
                metadata: None,
            },
            metadata: lock.metadata,
        })
    }

    /// A request for a lock that another holds, or the same: it waits, unless that would be for ever.
    fn join(&mut self, conn: Owner, acquire: &Acquire<'_>, ms: u64) -> OwnedReply {
        let key = acquire.key.as_bytes();
        let metadata = metadata_of(acquire);
        if let Some(place) = self.same_wait(conn, acquire) {
            let before = metadata_bytes(&self.waits[place].metadata);
            let more = metadata_bytes(&metadata).saturating_sub(before);
            if more > 0 && !self.has_room_in_tables(TableEntry::More(more), key) {
                return OwnedReply::Refused(Refusal::TooManyLocks);
            }
            if metadata.is_some() {
                self.waits[place].metadata = metadata;
            }
            self.waits[place].until_ms = self.end_ms(ms);
            return OwnedReply::Waits;
        }
        if self.takes_too_long_to_tell(key) {
            return OwnedReply::Refused(Refusal::TooManyLocks);
        }
        if self.own(key, conn).is_some() || self.waits_in_vain(conn, key, acquire.mode) {
            self.counters.lock_contended += 1;
            self.counters.lock_deadlocks += 1;
            return OwnedReply::WouldDeadlock(self.lock_seen(key).expect("it is held"));
        }
        let place = TableEntry::Wait(metadata_bytes(&metadata));
        if self.has_enough(conn) || !self.has_room_in_tables(place, key) {
            return OwnedReply::Refused(Refusal::TooManyLocks);
        }
        self.counters.lock_waits += 1;
        self.waits.push(Waiting {
            conn,
            key: key.to_vec(),
            mode: acquire.mode,
            until_ms: self.end_ms(ms),
            lease: acquire.lease,
            needs_item: acquire.needs_item,
            metadata,
        });
        OwnedReply::Waits
    }

    /// The place of a session that waits already as it requests now.
    fn same_wait(&self, conn: Owner, acquire: &Acquire<'_>) -> Option<usize> {
        let asked = (acquire.mode, acquire.lease, acquire.needs_item);
        self.waits.iter().position(|it| {
            it.conn == conn
                && conn.is_session()
                && it.key == acquire.key.as_bytes()
                && (it.mode, it.lease, it.needs_item) == asked
        })
    }

    /// Whether the search for a deadlock of a wait for this key exceeds its limit. More holders
    /// than that are too many by themselves; how far holders lead that wait themselves depends on
    /// the order of the search, so the core's word is accepted.
    fn takes_too_long_to_tell(&mut self, key: &[u8]) -> bool {
        let are_too_many = self.locks_of(key).len() > self.limits.wait_chain_max;
        self.judged.too_long_to_tell += u64::from(are_too_many);
        are_too_many || self.leads_on(key) && self.lacks(Refusal::TooManyLocks)
    }

    /// Whether a holder of this key waits for another.
    #[must_use]
    pub fn leads_on(&self, key: &[u8]) -> bool {
        let mut holders = self.locks_of(key).iter();
        holders.any(|lock| self.waits.iter().any(|it| it.conn == lock.owner))
    }

    /// Whether `conn` would never be answered if it waited for this key: the set of holders that
    /// can release grows until no more can be added.
    fn waits_in_vain(&self, conn: Owner, key: &[u8], mode: Mode) -> bool {
        let line: Vec<(Owner, &[u8], Mode)> = self
            .waits
            .iter()
            // A session leaves the place that it has.
            .filter(|it| it.conn != conn)
            .map(|it| (it.conn, it.key.as_slice(), it.mode))
            .chain([(conn, key, mode)])
            .collect();
        let mut stuck: BTreeSet<Owner> = line.iter().map(|it| it.0).collect();
        loop {
            let freed = line.iter().enumerate().find(|(place, (conn, key, mode))| {
                let mut before = line[..*place].iter().filter(|it| it.1 == *key);
                let locks = self.locks_of(key).iter();
                let stay = locks.filter(|lock| stuck.contains(&lock.owner));
                stuck.contains(conn)
                    && !before.any(|it| stuck.contains(&it.0))
                    && fits(stay.map(|lock| lock.mode), *mode)
            });
            match freed {
                Some((_, (conn, ..))) => stuck.remove(conn),
                None => return stuck.contains(&conn),
            };
        }
    }

    /// A lock is free, or has room for more sharers: the first waiter that can have it gets it.
    pub(super) fn serve(&mut self, key: &[u8]) {
        if self.is_withheld() {
            return;
        }
        // The key may have been free while the item expired.
        if self.queue(key).next().is_some() && self.reclaim(key) {
            self.judged.gone.with_lock += 1;
        }
        while let Some(place) = self.waits.iter().position(|waiting| waiting.key == key)
            && fits(
                self.locks_of(key).iter().map(|lock| lock.mode),
                self.waits[place].mode,
            )
        {
            let first = self.waits.remove(place);
            let conn = first.conn;
            if first.until_ms <= self.now_ms {
                // Too late for this waiter (Q8).
                self.time_out(conn);
                continue;
            }
            let is_missing = first.needs_item && !self.items.contains_key(key);
            // A client that shares it has pinned it already.
            let is_pinned = self.locks.contains_key(key);
            let outcome = if is_missing {
                self.counters.cmd_lock += 1;
                self.counters.lock_misses += 1;
                Outcome::NotFound
            } else if self.has_enough(conn)
                // A session may have acquired other locks since.
                || !is_pinned && self.lacks(Refusal::TooManyLocks)
                || !self.may_be_pinned(conn, key, first.mode, metadata_bytes(&first.metadata))
            {
                self.counters.cmd_lock += 1;
                Outcome::TooManyLocks
            } else {
                self.grant(conn, key, true, first.mode);
                let lease_until_ms = self.lease_end(first.lease);
                let lock = self.own_mut(key, conn).expect("just granted");
                lock.lease_until_ms = lease_until_ms;
                lock.is_unheard = true;
                lock.metadata = first.metadata;
                Outcome::Granted
            };
            self.notices.push(Notice {
                owner: conn,
                outcome,
            });
        }
    }

    /// No lock is granted now.
    pub(super) const fn is_withheld(&self) -> bool {
        self.withheld_until_ms > 0
    }

    /// Locks are granted again if it is time. Whether that is new.
    pub(super) const fn end_withheld(&mut self) -> bool {
        let is_over = self.is_withheld() && self.withheld_until_ms <= self.now_ms;
        if is_over {
            self.withheld_until_ms = 0;
        }
        is_over
    }

    /// Locks are granted again: all waiters that can have theirs get them.
    pub(super) fn serve_all(&mut self) {
        let keys: BTreeSet<_> = self.waits.iter().map(|it| it.key.clone()).collect();
        for key in keys {
            self.serve(&key);
        }
    }

    /// `conn` waits no more, if it did; those behind it may have their turn.
    pub(super) fn leave(&mut self, conn: Owner) {
        let left: Vec<_> = self.waits.extract_if(.., |it| it.conn == conn).collect();
        for waiting in left {
            self.serve(&waiting.key);
        }
    }

    /// A session leaves the places that its last connection has left to it.
    pub(super) fn leave_all(&mut self, conn: Owner) {
        self.leave(conn);
        self.gets.retain(|getting| getting.conn != conn);
        // The notice of a wait that has ended just now would be taken for that of the next one.
        self.notices.retain(|notice| notice.owner != conn);
    }

    /// Waits end one after the other, in the order of their deadlines. Waiters behind them are
    /// served at once.
    pub(super) fn end_waits(&mut self) {
        let first = |oracle: &Self| {
            let over = oracle
                .waits
                .iter()
                .filter(|it| it.until_ms <= oracle.now_ms);
            over.map(|it| (it.until_ms, it.conn)).min()
        };
        while let Some((_, conn)) = first(self) {
            self.time_out(conn);
            self.leave(conn);
        }
    }

    fn time_out(&mut self, conn: Owner) {
        let outcome = Outcome::TimedOut;
        self.notices.push(Notice {
            owner: conn,
            outcome,
        });
        self.counters.lock_wait_timeouts += 1;
    }

    /// Leases that have passed end, the first to pass first.
    pub(super) fn end_leases(&mut self) {
        if self.no_lease_ends_before_ms > self.now_ms {
            return;
        }
        let leases = self.locks.iter().flat_map(|(key, locks)| {
            let of_lock = |lock: &Lock| Some((lock.lease_until_ms?, lock.owner));
            let leases = locks.iter().filter_map(of_lock);
            leases.map(move |(until_ms, owner)| (until_ms, key, owner))
        });
        let later = |&(until_ms, ..): &(u64, _, _)| until_ms > self.now_ms;
        let next = leases.clone().filter(later).map(|(until_ms, ..)| until_ms);
        self.no_lease_ends_before_ms = next.min().unwrap_or(u64::MAX);
        let over = leases.filter(|lease| !later(lease));
        let over = over.map(|(until_ms, key, owner)| (until_ms, key.clone(), owner));
        let mut over: Vec<_> = over.collect();
        over.sort();
        // All at once: no client is given a lock that another loses at the same moment.
        for (_, key, owner) in &over {
            self.take_lock(key, *owner);
            self.counters.lock_expired += 1;
        }
        for (_, key, _) in over {
            self.is_released(&key);
        }
    }

    /// When a span ends that begins now and must not end early. The clock shows whole milliseconds that have begun.
    pub(super) const fn end_ms(&self, ms: u64) -> u64 {
        self.now_ms + ms + 1
    }

    /// When a lease that begins now ends.
    fn lease_end(&mut self, lease: Option<Lease>) -> Option<u64> {
        let Some(Lease::For { ms }) = lease else {
            return None;
        };
        let until_ms = self.end_ms(ms);
        self.no_lease_ends_before_ms = self.no_lease_ends_before_ms.min(until_ms);
        Some(until_ms)
    }

    /// Whether `conn` may not change the item of `key`, because another one holds it.
    pub(super) fn refuses(&mut self, conn: Owner, key: &[u8]) -> bool {
        let refuses = self.holder(key).is_some_and(|owner| owner != conn) || self.is_shared(key);
        self.counters.lock_refusals += u64::from(refuses);
        refuses
    }

    /// The reason why `conn` may not change the item, or the absence of one, under `key`: with a
    /// fence, that this is not the grant in force; if it is to be unlocked, that the lock is
    /// another's, or that there is none; and otherwise that it is another's. `missing` is the
    /// refusal for an unlock of a missing item.
    pub(super) fn forbids(
        &mut self,
        conn: Owner,
        key: &[u8],
        (fence, lock): (Option<Fence>, LockAfter),
        missing: Option<OwnedReply>,
    ) -> Option<OwnedReply> {
        let locked = OwnedReply::Refused(Refusal::Locked);
        if let Some(fence) = fence {
            let mut locks = self.locks_of(key).iter();
            let is_in_force = locks.any(|lock| lock.fence == fence.number());
            return match (is_in_force, self.is_shared(key)) {
                (false, _) => {
                    self.counters.fence_refusals += 1;
                    Some(OwnedReply::Exists)
                }
                (true, true) => {
                    self.counters.lock_refusals += 1;
                    Some(locked)
                }
                (true, false) => None,
            };
        }
        match lock {
            LockAfter::Release if self.own(key, conn).is_some() => {
                self.refuses(conn, key).then_some(locked)
            }
            LockAfter::Release => {
                let is_missing = !self.items.contains_key(key);
                let not_locked = OwnedReply::Refused(Refusal::NotLocked);
                Some(missing.filter(|_| is_missing).unwrap_or(not_locked))
            }
            LockAfter::Keep => self.refuses(conn, key).then_some(locked),
        }
    }

    /// A change is done, and the lock that was in force before, if there was one, goes with it if that was asked for.
    pub(super) fn changed(&mut self, key: &[u8], before: Option<u64>, lock: LockAfter) {
        let lock_now = self.lock_of(key);
        if lock == LockAfter::Release
            && let Some(same) = lock_now.filter(|lock| Some(lock.fence) == before)
        {
            self.unlock(key, same.owner);
            self.counters.lock_released += 1;
        }
    }

    pub(super) fn lock(
        &mut self,
        conn: Owner,
        key: &[u8],
        is_of_key: bool,
        mode: Mode,
        metadata_bytes: usize,
    ) -> Result<u64, Refusal> {
        if !self.open.contains(&conn) {
            return Err(Refusal::ConnectionClosed);
        }
        if self.locks.contains_key(key) || self.is_withheld() {
            self.counters.lock_contended += 1;
            return Err(Refusal::Locked);
        }
        if self.has_enough(conn)
            || !self.has_room_in_tables(TableEntry::Lock(mode, metadata_bytes), key)
            || !self.may_be_pinned(conn, key, mode, metadata_bytes)
        {
            return Err(Refusal::TooManyLocks);
        }
        Ok(self.grant(conn, key, is_of_key, mode))
    }

    fn grant(&mut self, conn: Owner, key: &[u8], is_of_key: bool, mode: Mode) -> u64 {
        self.fence_last += 1;
        let lock = Lock {
            owner: conn,
            mode,
            fence: self.fence_last,
            since_ms: self.now_ms,
            lease_until_ms: None,
            is_of_key,
            is_unheard: false,
            metadata: None,
        };
        self.locks.entry(key.to_vec()).or_default().push(lock);
        *self.lock_counts.entry(conn).or_default() += 1;
        self.counters.lock_granted += 1;
        self.fence_last
    }

    /// Whether `conn` holds as many locks as it may.
    fn has_enough(&mut self, conn: Owner) -> bool {
        let held = self.lock_counts.get(&conn).copied().unwrap_or(0);
        let has_enough = held >= self.limits.locks_per_connection_max;
        self.judged.too_many_locks += u64::from(has_enough);
        has_enough
    }

    /// Ends the lock of `owner`; with the last holder, the expiry and flushes that it has held off
    /// happen; and the next waiter gets it.
    pub(super) fn unlock(&mut self, key: &[u8], owner: Owner) {
        self.take_lock(key, owner);
        self.is_released(key);
    }

    fn take_lock(&mut self, key: &[u8], owner: Owner) {
        if let Some(locks) = self.locks.get_mut(key) {
            let before = locks.len();
            locks.retain(|lock| lock.owner != owner);
            if let Some(count) = self.lock_counts.get_mut(&owner) {
                *count -= before - locks.len();
            }
            if locks.is_empty() {
                self.locks.remove(key);
            }
        }
    }

    fn is_released(&mut self, key: &[u8]) {
        if !self.locks.contains_key(key) {
            self.let_go(key);
        }
        self.serve(key);
        self.serve_gets(key);
    }

    pub(super) fn unlock_every(&mut self, conn: Owner) -> u64 {
        let own = self.locks.iter().filter_map(|(key, locks)| {
            let lock = locks.iter().find(|lock| lock.owner == conn)?;
            Some((lock.mode.is_shared(), lock.fence, key.clone()))
        });
        // Keys that it holds alone come first, then its shares; each in the order of the grants (L14).
        let mut keys: Vec<_> = own.collect();
        keys.sort();
        for (_, _, key) in &keys {
            self.unlock(key, conn);
        }
        keys.len() as u64
    }

    /// The item is no more, nor its lock if it was that of the item.
    pub(super) fn take_out(&mut self, key: &[u8]) {
        let of_item = self.lock_of(key).filter(|lock| !lock.is_of_key);
        if self.items.remove(key).is_some()
            && let Some(lock) = of_item
        {
            self.unlock(key, lock.owner);
        }
    }
}

/// The metadata of a request.
fn metadata_of(acquire: &Acquire<'_>) -> Metadata {
    let metadata = acquire.metadata?;
    Some(metadata.to_bytes().into())
}

/// Whether a client without a part in a lock can have it in this mode, beside holders in those
/// modes.
fn fits(held: impl Iterator<Item = Mode>, mode: Mode) -> bool {
    let held: Vec<Mode> = held.collect();
    let max_sharers = held.iter().map(|it| it.max_sharers());
    let max_sharers = max_sharers.fold(mode.max_sharers(), u32::min);
    let all_share = mode.is_shared() && held.iter().all(|it| it.is_shared());
    held.is_empty() || all_share && held.len() < max_sharers as usize
}
