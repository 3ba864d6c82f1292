//! The locks: who holds them, who waits for them, and who may change what is held.
//!
//! Those who wait stand in one line, whatever they wait for, in the order in which they came. Whoever ends a lock
//! looks for the first in it who wants this one.

use latchd_core::ConnId;
use latchd_core::command::{Acquire, Lease, LockAfter, Wait};
use latchd_core::fence::Fence;
use latchd_core::reply::{LockSeen, Refusal};
use latchd_core::wait::{Notice, Outcome};

use super::{Oracle, OwnedReply, Win};

/// Everything there is to know of a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lock {
    /// Who holds it.
    pub owner: ConnId,
    /// The number of the grant.
    pub fence: u64,
    /// When it was granted.
    pub since_ms: u64,
    /// When it ends by itself.
    pub lease_until_ms: Option<u64>,
    /// It stays when its owner deletes the item.
    pub is_of_key: bool,
    /// Its owner has waited for it, and has not asked since.
    pub is_unheard: bool,
}

/// Everything there is to know of one who waits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Waiting {
    /// Who.
    pub conn: ConnId,
    /// For which lock.
    pub key: Vec<u8>,
    /// Until when.
    pub until_ms: u64,
    /// What the lock is to last for.
    pub lease: Option<Lease>,
    /// Only if there is an item then.
    pub needs_item: bool,
}

impl Oracle {
    /// Who holds the lock of a key.
    #[must_use]
    pub fn holder(&self, key: &[u8]) -> Option<ConnId> {
        self.locks.get(key).map(|lock| lock.owner)
    }

    /// The lock of a key.
    #[must_use]
    pub fn lock_of(&self, key: &[u8]) -> Option<Lock> {
        self.locks.get(key).copied()
    }

    /// Those who wait for a key, the first to come first.
    pub fn queue(&self, key: &[u8]) -> impl Iterator<Item = &Waiting> {
        self.waits.iter().filter(move |waiting| waiting.key == key)
    }

    /// The next who was told that his wait is over, and how.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// When something is to happen by itself of which somebody is to be told.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let of_wait = |waiting: &Waiting| {
            let lock = self.locks.get(&waiting.key);
            let lease = lock.and_then(|lock| lock.lease_until_ms);
            lease.map_or(waiting.until_ms, |until| until.min(waiting.until_ms))
        };
        self.waits.iter().map(of_wait).min()
    }

    /// `ml`.
    pub(super) fn acquire(&mut self, conn: ConnId, acquire: &Acquire<'_>) -> OwnedReply {
        let key = acquire.key.as_bytes();
        let held = self.locks.contains_key(key);
        if let Some(lock) = self.locks.get_mut(key)
            && lock.owner == conn
            && lock.is_unheard
        {
            lock.is_unheard = false;
            let fence = lock.fence;
            return self.granted(acquire, fence);
        }
        if acquire.lease.is_some() && self.holder(key) == Some(conn) {
            if acquire.needs_item && !self.items.contains_key(key) {
                return OwnedReply::NotFound;
            }
            let lease_until_ms = self.lease_end(acquire.lease);
            let lock = self.locks.get_mut(key).expect("it is held");
            lock.is_of_key = true;
            lock.lease_until_ms = lease_until_ms;
            let fence = lock.fence;
            self.counts.lock_renewed += 1;
            return self.granted(acquire, fence);
        }
        if acquire.lease == Some(Lease::Off) {
            return OwnedReply::NotFound;
        }
        if acquire.needs_item && !held && !self.items.contains_key(key) {
            return OwnedReply::NotFound;
        }
        if let Wait::UpTo { ms } = acquire.wait
            && held
            && self.open.contains(&conn)
        {
            return self.join(conn, acquire, ms);
        }
        let fence = match self.lock(conn, key, true) {
            Ok(fence) => fence,
            Err(Refusal::Locked) => {
                return OwnedReply::Contended(self.lock_seen(key).expect("it is held"));
            }
            Err(refusal) => return OwnedReply::Refused(refusal),
        };
        let lease_until_ms = self.lease_end(acquire.lease);
        if let Some(lock) = self.locks.get_mut(key) {
            lock.lease_until_ms = lease_until_ms;
        }
        self.granted(acquire, fence)
    }

    /// The answer to an acquire that was granted, and the look at the item.
    fn granted(&mut self, acquire: &Acquire<'_>, fence: u64) -> OwnedReply {
        let key = acquire.key.as_bytes();
        let Some(before) = self.items.get(key).cloned() else {
            return OwnedReply::Granted { fence, item: None };
        };
        let now_ms = self.now_ms;
        if acquire.looks {
            let item = self.items.get_mut(key).expect("it is there");
            item.fetched = true;
            item.accessed_ms = now_ms;
        }
        let ttls = vec![self.seconds_left(before.gone_at_ms)];
        OwnedReply::Granted {
            fence,
            item: Some(self.seen(key, &before, ttls, Win::None, None)),
        }
    }

    /// The lock of a key, as others see it.
    pub(super) fn lock_seen(&self, key: &[u8]) -> Option<LockSeen> {
        self.locks.get(key).map(|lock| LockSeen {
            holder: lock.owner,
            fence: Fence::new(lock.fence).expect("they start at 1"),
            held_s: (self.now_ms - lock.since_ms) / 1000,
            waiting: self.queue(key).count(),
        })
    }

    /// A request for a lock that another holds, or the same: it waits, unless that would be for ever.
    fn join(&mut self, conn: ConnId, acquire: &Acquire<'_>, ms: u64) -> OwnedReply {
        let key = acquire.key.as_bytes();
        if self.waits_for_itself(conn, key) {
            self.counts.lock_contended += 1;
            self.counts.lock_deadlocks += 1;
            return OwnedReply::WouldDeadlock(self.lock_seen(key).expect("it is held"));
        }
        if self.has_enough(conn) {
            return OwnedReply::Refused(Refusal::TooManyLocks);
        }
        self.counts.lock_waits += 1;
        self.waits.push(Waiting {
            conn,
            key: key.to_vec(),
            until_ms: self.now_ms + ms,
            lease: acquire.lease,
            needs_item: acquire.needs_item,
        });
        OwnedReply::Waits
    }

    /// Whether `conn` would be among those whom `conn` waits for, if it waited for this key: they become more
    /// until they are all.
    fn waits_for_itself(&self, conn: ConnId, key: &[u8]) -> bool {
        let mut awaited: Vec<ConnId> = self.holder(key).into_iter().collect();
        let mut known = 0;
        while known < awaited.len() {
            known = awaited.len();
            for waiting in &self.waits {
                let holder = self.holder(&waiting.key).expect("one waits for a holder");
                if awaited.contains(&waiting.conn) && !awaited.contains(&holder) {
                    awaited.push(holder);
                }
            }
        }
        awaited.contains(&conn)
    }

    /// A lock is free: the first who can have it, does.
    fn serve(&mut self, key: &[u8]) {
        while let Some(place) = self.waits.iter().position(|waiting| waiting.key == key) {
            let first = self.waits.remove(place);
            let conn = first.conn;
            let is_missing = first.needs_item && !self.items.contains_key(key);
            let outcome = if is_missing {
                Outcome::NotFound
            } else {
                self.grant(conn, key, true);
                let lease_until_ms = self.lease_end(first.lease);
                let lock = self.locks.get_mut(key).expect("just granted");
                lock.lease_until_ms = lease_until_ms;
                lock.is_unheard = true;
                Outcome::Granted
            };
            self.notices.push(Notice { conn, outcome });
            if outcome == Outcome::Granted {
                return;
            }
        }
    }

    /// Who has waited long enough waits no more.
    pub(super) fn end_waits(&mut self) {
        let now_ms = self.now_ms;
        let over = self
            .waits
            .extract_if(.., |waiting| waiting.until_ms <= now_ms);
        for Waiting { conn, .. } in over {
            let outcome = Outcome::TimedOut;
            self.notices.push(Notice { conn, outcome });
            self.counts.lock_wait_timeouts += 1;
        }
    }

    /// Leases that have passed end, the first to pass first.
    pub(super) fn end_leases(&mut self) {
        let until = |lock: &Lock| lock.lease_until_ms.filter(|until| *until <= self.now_ms);
        let over = self.locks.iter();
        let over = over.filter_map(|(key, lock)| Some((until(lock)?, key.clone())));
        let mut over: Vec<(u64, Vec<u8>)> = over.collect();
        over.sort();
        for (_, key) in over {
            self.unlock(&key);
            self.counts.lock_expired += 1;
        }
    }

    /// When a lease that begins now ends.
    fn lease_end(&self, lease: Option<Lease>) -> Option<u64> {
        match lease {
            Some(Lease::For { ms }) => Some(self.now_ms + ms),
            Some(Lease::Off) | None => None,
        }
    }

    /// Whether `conn` may not change the item of `key`, because another one holds it.
    pub(super) fn refuses(&mut self, conn: ConnId, key: &[u8]) -> bool {
        let refuses = self.locks.get(key).is_some_and(|lock| lock.owner != conn);
        self.counts.lock_refusals += u64::from(refuses);
        refuses
    }

    /// What keeps `conn` from changing what is, or is not, under `key`: with a fence, that this is not
    /// the grant in force; if it is to be unlocked, that it is another's or nobody's; and otherwise
    /// that it is another's. `missing` is for who would unlock where there is nothing.
    pub(super) fn forbids(
        &mut self,
        conn: ConnId,
        key: &[u8],
        (fence, lock): (Option<Fence>, LockAfter),
        missing: Option<OwnedReply>,
    ) -> Option<OwnedReply> {
        let in_force = self.locks.get(key).map(|lock| lock.fence);
        if let Some(fence) = fence {
            return (in_force != Some(fence.number())).then_some(OwnedReply::Exists);
        }
        match lock {
            LockAfter::Release if self.holder(key) == Some(conn) => None,
            LockAfter::Release => {
                let is_missing = !self.items.contains_key(key);
                let not_locked = OwnedReply::Refused(Refusal::NotLocked);
                Some(missing.filter(|_| is_missing).unwrap_or(not_locked))
            }
            LockAfter::Keep => self
                .refuses(conn, key)
                .then_some(OwnedReply::Refused(Refusal::Locked)),
        }
    }

    /// A change is done, and the lock that was in force before, if there was one, goes with it if that was asked for.
    pub(super) fn changed(&mut self, key: &[u8], before: Option<u64>, lock: LockAfter) {
        let is_same = before.is_some() && self.locks.get(key).map(|lock| lock.fence) == before;
        if lock == LockAfter::Release && is_same {
            self.unlock(key);
            self.counts.lock_released += 1;
        }
    }

    pub(super) fn lock(
        &mut self,
        conn: ConnId,
        key: &[u8],
        is_of_key: bool,
    ) -> Result<u64, Refusal> {
        if !self.open.contains(&conn) {
            return Err(Refusal::ConnectionClosed);
        }
        if self.locks.contains_key(key) {
            self.counts.lock_contended += 1;
            return Err(Refusal::Locked);
        }
        if self.has_enough(conn) {
            return Err(Refusal::TooManyLocks);
        }
        Ok(self.grant(conn, key, is_of_key))
    }

    fn grant(&mut self, conn: ConnId, key: &[u8], is_of_key: bool) -> u64 {
        self.fence_last += 1;
        let lock = Lock {
            owner: conn,
            fence: self.fence_last,
            since_ms: self.now_ms,
            lease_until_ms: None,
            is_of_key,
            is_unheard: false,
        };
        self.locks.insert(key.to_vec(), lock);
        self.counts.lock_granted += 1;
        lock.fence
    }

    /// Whether `conn` holds as many locks as it may.
    fn has_enough(&self, conn: ConnId) -> bool {
        let held = self.locks.values().filter(|lock| lock.owner == conn);
        held.count() >= self.limits.locks_per_connection_max
    }

    /// Ends a lock; what it has held off happens, and the next has it.
    pub(super) fn unlock(&mut self, key: &[u8]) {
        self.locks.remove(key);
        if self
            .items
            .get(key)
            .is_some_and(|item| item.flush_pending || self.is_gone(item))
        {
            self.items.remove(key);
        }
        self.serve(key);
    }

    pub(super) fn unlock_every(&mut self, conn: ConnId) -> u64 {
        let keys: Vec<Vec<u8>> = self
            .locks
            .iter()
            .filter(|(_, lock)| lock.owner == conn)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &keys {
            self.unlock(key);
        }
        keys.len() as u64
    }

    /// The item is no more, nor its lock if it was that of the item.
    pub(super) fn take_out(&mut self, key: &[u8]) {
        let is_of_item = self.locks.get(key).is_some_and(|lock| !lock.is_of_key);
        if self.items.remove(key).is_some() && is_of_item {
            self.unlock(key);
        }
    }
}
