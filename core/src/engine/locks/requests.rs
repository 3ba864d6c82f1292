//! The requests for locks and their replies: `lock`, `unlock`, `ml`, `mu`, and the waits that are over.
//!
//! - L6: A lock is acquired if and only if the machine allows it, the tables have memory for it and, if the request requires
//!   an item, the item exists.

use latchd_protocol::Owner;
use latchd_protocol::command::{Acquire, Lease, Mode, Release, ReleaseOf, Wait};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::ItemHeader;
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Granted, LockSeen, Refusal, Reply};
use latchd_protocol::time::Instant;
use latchd_protocol::wait::Notice;

use super::Terms;
use super::queue::WaitTable;
use super::table::{LockScope, LockTable};
use super::waits::end_of;
use crate::deadlock::Sought;
use crate::engine::Core;
use crate::engine::notices::Due;
use crate::store::Store;

impl<S: Store> Core<S> {
    /// `lock`.
    pub(in crate::engine) fn lock(&mut self, owner: Owner, key: Key<'_>) -> Reply<'static> {
        self.stats.counters.cmd_lock += 1;
        let Ok((slot, header)) = self.find_live(key) else {
            return self.lock_without_item(owner, key, Reply::NotFound);
        };
        match self.lock_item(owner, key, slot, &header) {
            Ok(slot) => {
                let locked = true;
                let header = ItemHeader { locked, ..header };
                self.store.set_header(slot, header);
                Reply::Locked
            }
            Err(refusal) => Reply::Refused(refusal),
        }
    }

    /// Locks the item in `slot`, which may be in another slot then. The caller marks it.
    ///
    /// # Errors
    /// [`Refusal::Locked`] if any connection holds the lock, also this one: the reference server refuses a second lock by the
    /// same client, and a counting lock would leave `unlock` with two meanings. The same while grants are withheld (L17).
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`], as they say.
    pub(in crate::engine) fn lock_item(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        slot: S::Slot,
        header: &ItemHeader,
    ) -> Result<S::Slot, Refusal> {
        if header.locked || self.locks.queue.are_withheld() {
            if self.locks.table.held_by(owner).is_none() {
                return Err(Refusal::ConnectionClosed);
            }
            self.stats.counters.lock_contended += 1;
            return Err(Refusal::Locked);
        }
        let slot = self.admit_lock(owner, key, Mode::Exclusive, Some(slot))?;
        let terms = Terms {
            mode: Mode::Exclusive,
            scope: LockScope::Item,
            lease_until: None,
        };
        self.acquire_lock(owner, key, terms, slot);
        Ok(slot.expect("the item that is kept stays"))
    }

    /// The reply to a request to lock an item that does not exist: `missing`, unless the key is locked or grants are withheld.
    pub(in crate::engine) fn lock_without_item(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        missing: Reply<'static>,
    ) -> Reply<'static> {
        if self.locks.bare(key).is_none() && !self.locks.queue.are_withheld() {
            self.stats.counters.lock_misses += 1;
            return missing;
        }
        if self.locks.table.held_by(owner).is_none() {
            return Reply::Refused(Refusal::ConnectionClosed);
        }
        self.stats.counters.lock_contended += 1;
        Reply::Refused(Refusal::Locked)
    }

    /// Checks that `owner` may acquire the lock of `key`, which is free or has room for it, and makes free memory for it, if
    /// need be by evicting other items than the one in `slot`. Returns the slot of that item then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`], as they say.
    fn admit_lock(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        mode: Mode,
        slot: Option<S::Slot>,
    ) -> Result<Option<S::Slot>, Refusal> {
        let pinned_bytes = slot.map(|slot| self.store.item_bytes(slot));
        self.locks
            .may_acquire(owner, key, mode, pinned_bytes, &self.limits)?;
        self.admit_to_tables(LockTable::bytes_in(mode, key), slot)
    }

    /// Acquires a lock that [`Self::admit_lock`] has admitted.
    fn acquire_lock(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        terms: Terms,
        slot: Option<S::Slot>,
    ) -> Fence {
        let pinned_bytes = slot.map(|slot| self.store.item_bytes(slot));
        let (locks, mut context) = self.locks_in_context();
        let fence = locks.acquire(key, owner, terms, pinned_bytes, &mut context);
        self.note_locked(key);
        fence
    }

    /// `ml`.
    pub(in crate::engine) fn acquire<'a>(
        &'a mut self,
        owner: Owner,
        acquire: Acquire<'a>,
    ) -> Reply<'a> {
        let key = acquire.key;
        let found = self.find_live(key).ok();
        let is_held = match found {
            Some((_, header)) => header.locked,
            None => self.locks.bare(key).is_some(),
        };
        let own = if is_held {
            self.locks.table.held_as(key, owner)
        } else {
            None
        };
        // A holder that asks for the other mode is refused like any other requester.
        if let Some(held) = own.filter(|held| held.mode.is_shared() == acquire.mode.is_shared()) {
            let is_there = found.is_some() || !acquire.needs_item;
            if held.is_unanswered && (is_there || !owner.is_session()) {
                // It has waited for this lock. The lease lasts from the hand-over.
                self.stats.counters.cmd_lock += 1;
                self.locks.table.set_unanswered(key, owner, false);
                return self.granted(&acquire, found, held.fence);
            }
            if let Some(lease) = acquire.lease {
                self.stats.counters.cmd_lock += 1;
                return self.renew(owner, &acquire, found, held.fence, lease);
            }
            if owner.is_session() {
                self.stats.counters.cmd_lock += 1;
                if !is_there {
                    self.stats.counters.lock_misses += 1;
                    return Reply::NotFound;
                }
                return self.granted(&acquire, found, held.fence);
            }
        }
        let is_taken = is_held || self.locks.queue.are_withheld();
        // Only a holder can remove its lease.
        let needs_hold = acquire.lease == Some(Lease::Off) && own.is_none();
        if needs_hold || found.is_none() && !is_taken && acquire.needs_item {
            self.stats.counters.cmd_lock += 1;
            self.stats.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        let slot = found.map(|(slot, _)| slot);
        if is_taken && self.locks.leaves_place(owner, &acquire, self.clock.now) {
            // The place would be in its own way.
            self.leave_all(owner);
        }
        let is_open = |core: &Self| core.locks.table.held_by(owner).is_some();
        if is_taken && is_open(self) && !self.locks.may_join(owner, &acquire) {
            // A request that waits is counted when it has its reply.
            return self.contended(owner, &acquire, slot);
        }
        self.stats.counters.cmd_lock += 1;
        if found.is_none() && acquire.needs_item && is_open(self) {
            self.stats.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        let slot = match self.admit_lock(owner, key, acquire.mode, slot) {
            Ok(slot) => slot,
            Err(refusal) => return Reply::Refused(refusal),
        };
        let lease = acquire.lease;
        let terms = Terms {
            mode: acquire.mode,
            scope: LockScope::Key,
            lease_until: lease.and_then(|lease| end_of(lease, self.clock.now)),
        };
        let fence = self.acquire_lock(owner, key, terms, slot);
        let found = slot.zip(found).map(|(slot, (_, before))| (slot, before));
        self.granted(&acquire, found, fence)
    }

    /// The holder asks again: it renews its lock, and keeps its fence.
    fn renew(
        &mut self,
        owner: Owner,
        acquire: &Acquire<'_>,
        found: Option<(S::Slot, ItemHeader)>,
        fence: Fence,
        lease: Lease,
    ) -> Reply<'_> {
        if found.is_none() && acquire.needs_item {
            self.stats.counters.lock_misses += 1;
            return Reply::NotFound;
        }
        self.stats.counters.lock_renewed += 1;
        let until = end_of(lease, self.clock.now);
        self.locks.renew(acquire.key, owner, until);
        self.granted(acquire, found, fence)
    }

    /// The reply to an acquire that was granted: with the item, which is locked now.
    fn granted(
        &mut self,
        acquire: &Acquire<'_>,
        found: Option<(S::Slot, ItemHeader)>,
        fence: Fence,
    ) -> Reply<'_> {
        let item = found.map(|(slot, before)| {
            let mut after = ItemHeader {
                locked: true,
                ..before
            };
            if acquire.looks {
                after.fetched = true;
                after.last_access = self.clock.tick();
                self.store.record_hit(slot);
            }
            if after != before {
                self.store.set_header(slot, after);
            }
            (slot, before)
        });
        let item = item.map(|(slot, before)| self.shown(slot, &before));
        Reply::Granted(Granted { fence, item })
    }

    /// The reply to an acquire of a lock that another connection holds or waits for, or that is withheld.
    fn contended(
        &mut self,
        owner: Owner,
        acquire: &Acquire<'_>,
        slot: Option<S::Slot>,
    ) -> Reply<'static> {
        let key = acquire.key;
        let seen = self.locks.seen(key, self.clock.now);
        let wait = match acquire.wait {
            Wait::UpTo { ms: ms @ 1.. }
                if self.locks.is_same_wait(owner, acquire, self.clock.now) =>
            {
                let ms = ms.min(self.limits.wait_ms_max);
                self.locks.change_time(owner, ms, self.clock.now);
                return Reply::Waits;
            }
            Wait::UpTo { ms: 1.. } => {
                let (locks, context) = self.locks_in_context();
                let (chain, read) = locks.chain(owner, acquire, &context);
                self.work.charge(read);
                chain.judge(acquire.wait)
            }
            other @ (Wait::No | Wait::UpTo { ms: 0 } | Wait::WouldDeadlock | Wait::TooLong) => {
                other
            }
        };
        let ms = match wait {
            Wait::No | Wait::UpTo { ms: 0 } => {
                self.count_refused();
                let waiting = self.locks.queue.waiting(key);
                return seen.map_or(Reply::Withheld { waiting }, Reply::Contended);
            }
            Wait::WouldDeadlock => {
                let seen = seen.expect("a cycle goes through a holder");
                return self.refuse_deadlock(seen);
            }
            Wait::TooLong => return self.refuse_wait(Refusal::TooManyLocks),
            Wait::UpTo { ms } => ms.min(self.limits.wait_ms_max),
        };
        if let Err(refusal) = self.admit_wait(owner, key, slot) {
            return self.refuse_wait(refusal);
        }
        let (locks, mut context) = self.locks_in_context();
        locks.wait(owner, acquire, ms, &mut context);
        Reply::Waits
    }

    fn count_refused(&mut self) {
        self.stats.counters.cmd_lock += 1;
        self.stats.counters.lock_contended += 1;
    }

    fn refuse_deadlock(&mut self, seen: LockSeen) -> Reply<'static> {
        self.count_refused();
        self.stats.counters.lock_deadlocks += 1;
        Reply::WouldDeadlock(seen)
    }

    fn refuse_wait(&mut self, refusal: Refusal) -> Reply<'static> {
        self.stats.counters.cmd_lock += 1;
        Reply::Refused(refusal)
    }

    /// Checks that `owner` may wait for the lock of `key`, and makes free memory for the wait.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`] and [`Refusal::ConnectionClosed`], as they say.
    fn admit_wait(
        &mut self,
        owner: Owner,
        key: Key<'_>,
        slot: Option<S::Slot>,
    ) -> Result<(), Refusal> {
        let held = self.locks.table.held_by(owner);
        let held = held.ok_or(Refusal::ConnectionClosed)?;
        if self.is_waiting(owner)
            || held.locks >= self.limits.locks_per_connection_max
            || self.locks.queue.waiting(key) >= self.limits.waits_per_key_max
            || self.waiting_in_all() >= self.limits.waits_max
        {
            return Err(Refusal::TooManyLocks);
        }
        let of_tables = WaitTable::bytes_for(key) + self.locks.table.bytes_for_waited(key);
        self.admit_to_tables(of_tables, slot).map(|_| ())
    }

    /// `mu`.
    pub(in crate::engine) fn release_key(
        &mut self,
        owner: Owner,
        release: &Release<'_>,
    ) -> Reply<'static> {
        let Release { key, of } = *release;
        let found = self.find_live(key).ok();
        let may_be_held = found.map_or(self.locks.table.has_bare(), |(_, header)| header.locked);
        let table = &self.locks.table;
        let held = match of {
            _ if !may_be_held => None,
            ReleaseOf::Own => table.held_as(key, owner),
            ReleaseOf::OwnGrant(fence) => {
                let own = table.held_as(key, owner);
                own.filter(|held| held.fence == fence)
            }
            ReleaseOf::Grant(fence) => table.grant(key, fence),
        };
        match (held, of) {
            (Some(held), _) => {
                self.release(held.owner, key, found.map(|(slot, _)| slot));
                Reply::Unlocked
            }
            (None, ReleaseOf::Grant(_)) => {
                self.stats.counters.fence_refusals += 1;
                Reply::Exists
            }
            (None, ReleaseOf::Own | ReleaseOf::OwnGrant(_)) => Reply::NotFound,
        }
    }

    /// `unlock`.
    pub(in crate::engine) fn unlock(&mut self, owner: Owner, key: Key<'_>) -> Reply<'static> {
        let Ok((slot, header)) = self.find_live(key) else {
            let bare = self.locks.bare(key);
            return if bare.is_some() && self.locks.table.held_as(key, owner).is_some() {
                self.release(owner, key, None);
                Reply::Unlocked
            } else {
                Reply::Refused(Refusal::NotLockedNotFound)
            };
        };
        if header.locked && self.locks.table.held_as(key, owner).is_some() {
            self.release(owner, key, Some(slot));
            Reply::Unlocked
        } else {
            Reply::Refused(Refusal::NotLocked)
        }
    }

    /// Whether a session leaves the place in a queue that it has, in this core or another, before its request is judged: for a
    /// transport over several cores, which passes [`Event::WaitsElsewhere`](crate::engine::Event::WaitsElsewhere) to
    /// the core of the place. Ask it after [`Event::DueAt`](crate::engine::Event::DueAt).
    #[must_use]
    pub fn leaves_place(&self, owner: Owner, acquire: &Acquire<'_>) -> bool {
        self.locks.leaves_place(owner, acquire, self.clock.now)
    }

    /// Whether a request of `owner` would wait in a new place, or be refused, because of the holders of the lock or its waiters:
    /// for a transport over several cores, which must know it beforehand. Ask it after
    /// [`Event::DueAt`](crate::engine::Event::DueAt).
    #[must_use]
    pub fn would_contend(&self, owner: Owner, acquire: &Acquire<'_>) -> bool {
        self.locks.would_contend(owner, acquire, self.clock.now)
    }

    /// The lock that this request would wait for ([`would_deadlock`](crate::deadlock::would_deadlock)).
    #[must_use]
    pub fn sought<'a>(&self, acquire: &Acquire<'a>) -> Sought<'a> {
        self.locks.sought(acquire, &self.limits)
    }

    /// The lock that `owner` waits for, unless its time is over.
    #[must_use]
    pub fn sought_by(&self, owner: Owner) -> Option<Sought<'_>> {
        self.locks.queue.sought_by(owner, self.clock.now)
    }

    /// The queues of the waiters for locks.
    #[must_use]
    pub const fn waits(&self) -> &WaitTable {
        &self.locks.queue
    }

    /// The next notice of a wait that is over, for a lock or a value. One call may end thousands of waits; a transport with
    /// other clients may take some of the notices now and the rest a little later.
    pub(in crate::engine) fn next_notice(&mut self) -> Option<Notice> {
        loop {
            let notice = match self.notices.first()? {
                Due::One(notice) => {
                    self.notices.pop();
                    return Some(notice);
                }
                Due::OfLocks => self.locks.queue.next_woken(),
                Due::OfGets => self.wins.queue.next_woken(),
            };
            if notice.is_some() {
                return notice;
            }
            self.notices.pop();
        }
    }

    /// Whether there may be a notice that no transport has taken.
    #[inline]
    #[must_use]
    pub fn has_notices(&self) -> bool {
        !self.notices.is_empty()
    }

    /// Whether any client waits, or has a notice that no transport has taken. If not, there is no deadline either.
    #[inline]
    #[must_use]
    pub fn has_waits(&self) -> bool {
        !self.locks.queue.is_empty() || self.has_notices() || !self.wins.queue.is_empty()
    }

    /// The next moment at which a wait ends by itself, or the lease of a lock with waiters expires. It is in the past if there
    /// is more to do than one call does. To be on time, a transport passes [`Event::Due`](crate::engine::Event::Due) then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.locks.table.has_handovers() || self.wins.queue.is_on_round() {
            return Some(self.clock.now);
        }
        let deadlines = [
            self.locks.queue.next(),
            self.locks.table.next_waited_lease(),
            self.wins.queue.next(),
        ];
        deadlines.into_iter().flatten().min()
    }
}
