//! The queues for locks: which request may wait, which waiter is next, and how a wait ends.
//!
//! - Q6: No lock is free, or admits one more sharer, while the first waiter could have it. It is handed over in the
//!   step that ends it, also to the waiters behind the first that can share it. If very many locks end at once, this happens
//!   before any request sees the key. While grants are withheld, this waits (L18, `withheld.rs`).
//! - Q7: No client gets a lock before the clients that waited for it.
//! - Q8: No lock goes to a client that has ended or has reached its deadline.
//! - Q9: No clients wait for each other in a cycle.
//! - Q10: Each wait ends with one notice: granted, refused, or too late.

use latchd_protocol::Owner;
use latchd_protocol::command::{Acquire, Lease, Wait};
use latchd_protocol::key::Key;
use latchd_protocol::time::Instant;
use latchd_protocol::wait::Outcome;

use super::queue::Waiter;
use super::table::{LockScope, LockTable, charge};
use super::{Effect, Locks, Pinned, Terms};
use crate::deadlock::{Deadlock, would_deadlock};
use crate::engine::context::Context;
use crate::engine::owned_key::{OwnedKey, as_key};
use crate::engine::queues::{Place, Waits};
use crate::limits::Limits;

impl Locks {
    /// Whether a wait of `owner` would close a cycle, as far as this core knows; and the number of grants it has read.
    pub(in crate::engine) fn chain(
        &self,
        owner: Owner,
        acquire: &Acquire<'_>,
        context: &Context<'_>,
    ) -> (Deadlock, usize) {
        would_deadlock(
            owner,
            self.target(acquire, context.limits),
            context.limits.wait_chain_max,
            |key| self.table.grants_of(key),
            |owner| self.queue.target_of(owner, context.now),
        )
    }

    /// Puts `owner`, which may wait, into the queue of `key`.
    pub(in crate::engine) fn wait(
        &mut self,
        owner: Owner,
        acquire: &Acquire<'_>,
        ms: u64,
        context: &mut Context<'_>,
    ) {
        context.counters.lock_waits += 1;
        let waiter = Waiter {
            until: context.now.end_after(ms),
            mode: acquire.mode,
            max_sharers: max_sharers(acquire.mode, context.limits),
            lease: acquire.lease,
            needs_item: acquire.needs_item,
        };
        let metadata = acquire.metadata.map(|metadata| metadata.to_bytes());
        self.queue.join(acquire.key, owner, waiter, metadata);
        self.table.set_waited(acquire.key, true);
    }

    /// Whether a session leaves the place in a queue that its last connection has left to it, before its request is judged:
    /// the request may wait for a held lock, and is not the one of that place.
    pub(in crate::engine) fn leaves_place(
        &self,
        owner: Owner,
        acquire: &Acquire<'_>,
        now: Instant,
    ) -> bool {
        let may_wait = || {
            let held = self.table.held_as(acquire.key, owner);
            let is_answered = match held {
                Some(held) => held.mode.is_shared() == acquire.mode.is_shared(),
                None => acquire.lease == Some(Lease::Off),
            };
            matches!(acquire.wait, Wait::UpTo { ms: 1.. })
                && !is_answered
                && self.is_taken(acquire.key)
        };
        owner.is_session() && may_wait() && !self.is_same_wait(owner, acquire, now)
    }

    /// Whether a session waits already as it requests now, and its deadline has not passed. Its place was judged when the wait
    /// began, and no later wait has made it vain (Q9), so it is not judged again.
    pub(in crate::engine) fn is_same_wait(
        &self,
        owner: Owner,
        acquire: &Acquire<'_>,
        now: Instant,
    ) -> bool {
        let place = owner
            .is_session()
            .then(|| self.queue.place(owner))
            .flatten();
        place.is_some_and(|place| {
            let Waiter {
                until,
                mode,
                lease,
                needs_item,
                ..
            } = place.waiter;
            let asked = (acquire.mode, acquire.lease, acquire.needs_item);
            as_key(&place.key) == acquire.key && until > now && (mode, lease, needs_item) == asked
        })
    }

    /// A session that requests the same wait again keeps its place, until the new time; and its metadata, unless the request
    /// has some.
    pub(in crate::engine) fn change_wait(
        &mut self,
        owner: Owner,
        acquire: &Acquire<'_>,
        ms: u64,
        now: Instant,
    ) {
        self.queue.change(owner, |waiter, kept| {
            waiter.until = now.end_after(ms);
            if let Some(metadata) = acquire.metadata {
                *kept = Some(metadata.to_bytes());
            }
        });
    }

    /// The bytes that the metadata of a wait takes of the queues.
    pub(in crate::engine) fn metadata_bytes_of_wait(&self, owner: Owner) -> usize {
        charge(self.queue.metadata(owner).map(<[u8]>::len))
    }

    /// Gives the lock of `key`, which is free or admits sharers, to the waiters that can have it, in their order (Q6, Q7).
    /// The tables have the bytes: each wait has taken them
    /// ([`WaitTable::bytes_for`](super::queue::WaitTable::bytes_for)).
    pub(in crate::engine) fn hand_over(
        &mut self,
        key: Key<'_>,
        item: Pinned,
        context: &mut Context<'_>,
    ) -> Effect {
        let mut effect = Effect::None;
        while let Some((owner, waiter)) = self.wake_to_next(key, item, context) {
            let place = self.queue.leave(owner);
            let terms = Terms {
                mode: waiter.mode,
                scope: LockScope::Key,
                lease_until: waiter.lease.and_then(|lease| end_of(lease, context.now)),
            };
            let fence = self.acquire(key, owner, terms, item, context);
            if let Some(metadata) = place.and_then(|place| place.kept) {
                self.table.set_metadata(owner, fence, metadata);
            }
            self.table.set_unacknowledged(key, owner, true);
            context.notices.push(owner, Outcome::Granted);
            effect = Effect::Lock;
        }
        let is_waited = self.queue.waiting(key) > 0;
        self.table.set_waited(key, is_waited);
        effect
    }

    /// Ends the waits of the first waiters of `key` that cannot have it, though it admits them: up to the first that can, which
    /// is returned, or that it does not admit.
    fn wake_to_next(
        &mut self,
        key: Key<'_>,
        item: Pinned,
        context: &mut Context<'_>,
    ) -> Option<(Owner, Waiter)> {
        let has_item = item.bytes.is_some();
        let mut ended = [0; 3];
        let mut next = None;
        for (owner, place) in self.queue.in_turn(key) {
            let waiter = place.waiter;
            if !self.has_room(key, waiter.mode, context.limits) {
                break;
            }
            if self.may_have(owner, place, item, context) {
                next = Some((owner, waiter));
                break;
            }
            match waiter.outcome(context.now, has_item) {
                Outcome::TimedOut => ended[0] += 1,
                Outcome::NotFound => ended[1] += 1,
                Outcome::TooManyLocks | Outcome::Granted => ended[2] += 1,
            }
        }
        let [too_late, not_found, too_many] = ended;
        // A request that is executed again is counted then.
        context.counters.lock_wait_timeouts += too_late;
        context.counters.cmd_lock += not_found + too_many;
        context.counters.lock_misses += not_found;
        let count = too_late + not_found + too_many;
        if count > 0 {
            let count = usize::try_from(count).expect("as many as wait");
            self.queue.wake_first(key, count, context.now, has_item);
            context.notices.push_locks();
        }
        next
    }

    /// Whether a waiter can have a lock that is free or admits it (Q8).
    fn may_have(
        &self,
        owner: Owner,
        place: &Place<Waiter>,
        item: Pinned,
        context: &Context<'_>,
    ) -> bool {
        let (key, waiter) = (as_key(&place.key), place.waiter);
        if waiter.until <= context.now || waiter.needs_item && item.bytes.is_none() {
            return false;
        }
        let held = self.table.held_by(owner);
        let held = held.expect("Q8: an owner that has ended does not wait");
        let of_table = LockTable::bytes_in(waiter.mode, key) + Waiter::kept_bytes(&place.kept);
        self.is_within_bounds(held, key, of_table, item, context.limits)
    }

    /// Removes `owner` from its queue, if it waits. Returns the key if it is to be updated: its lock can be handed over now, or
    /// the queue is empty.
    pub(in crate::engine) fn leave(&mut self, owner: Owner, limits: &Limits) -> Option<OwnedKey> {
        let left = self.queue.leave(owner)?.key;
        let key = as_key(&left);
        let Some((_, first)) = self.queue.first(key) else {
            self.table.set_waited(key, false);
            return (!self.table.has_item(key)).then_some(left);
        };
        let is_ended = self.table.get(key).is_some() || self.queue.is_ending();
        let can_be_had = is_ended && self.has_room(key, first.mode, limits);
        can_be_had.then_some(left)
    }

    /// Q6, Q8 and Q9, and that both tables agree.
    #[cfg(any(test, feature = "verify"))]
    pub(in crate::engine) fn check_waits(
        &self,
        now: Instant,
        limits: &Limits,
        due: &alloc::collections::BTreeSet<Key<'_>>,
    ) {
        self.queue.check();
        for (key, holding) in self.table.iter() {
            let waiting = self.queue.waiting(key);
            assert_eq!(holding.is_waited, waiting > 0, "Q6: waiters of {key:?}");
            assert!(
                waiting <= limits.waits_per_key_max,
                "Q6: too many wait for {key:?}"
            );
        }
        for key in self.queue.keys() {
            if self.queue.is_unserved(key) || due.contains(&key) {
                continue;
            }
            // The table sees to it that a lock that is over comes next (L14).
            assert!(self.table.get(key).is_some(), "Q6: {key:?} is free");
            let (_, first) = self.queue.first(key).expect("Q1: a queue has a waiter");
            assert!(
                !self.has_room(key, first.mode, limits),
                "Q6: {key:?} admits its first waiter"
            );
            for (owner, _) in self.queue.queue(key) {
                assert!(self.table.held_by(owner).is_some(), "Q8: {owner} has ended");
                let Some(target) = self.queue.target_of(owner, now) else {
                    continue;
                };
                let (chain, _) = would_deadlock(
                    owner,
                    target,
                    usize::MAX,
                    |key| self.table.grants_of(key),
                    |owner| self.queue.target_of(owner, now),
                );
                assert_eq!(chain, Deadlock::No, "Q9: {owner} waits for itself");
            }
        }
    }
}

/// The number of owners among which a lock is held in this mode, within the bound.
pub(super) fn max_sharers(mode: latchd_protocol::command::Mode, limits: &Limits) -> u32 {
    mode.max_sharers().min(limits.sharers_per_key_max)
}

/// When a lock that lasts from now on expires.
pub(super) fn end_of(lease: Lease, now: Instant) -> Option<Instant> {
    match lease {
        Lease::For { ms } => Some(now.end_after(ms)),
        Lease::Off => None,
    }
}
