//! The view of a core: all state that decides its next replies, for models that compare states.
//!
//! - V1: Every field of the core, its lock table and its store is named here, without `..`. A new field does not
//!   compile until the view shows it or says why not.
//!
//! A view omits a field by name, with the reason beside it.

use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;
use latchd_protocol::time::{Clock, Instant};
use latchd_protocol::wait::Notice;

use super::Core;
use super::items::Items;
use super::locks::Locks;
use super::locks::queue::Waiter;
use super::locks::table::Holding;
use super::locks::withheld::Withheld;
use super::manager::LockManager;
use super::notices::Due;
use super::owned_key::as_key;
use super::wins::Wins;
use super::wins::bound::BoundWin;
use super::wins::queue::WinWaiter;
use crate::limits::Limits;
use crate::store::{MapStore, MapView, Store};

/// A core on [`MapStore`]s, laid open.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The items of each shard, in the order in which the store would evict them.
    pub stores: Vec<MapView<'a>>,
    /// Every key that is shared, with its shares, the first to be granted first.
    pub shares: Vec<(Key<'a>, Vec<Holding>)>,
    /// Every lock, by key; of one that is shared the first share.
    pub locks: Vec<(Key<'a>, Holding)>,
    /// The metadata of each grant and share that has some.
    pub metadata: Vec<(Fence, &'a [u8])>,
    /// Every open owner, with the keys of its locks.
    pub connections: Vec<(Owner, Vec<Key<'a>>)>,
    /// The keys of locks of one holder that have ended many at once and were waited for then, in the order in which they are
    /// handed over.
    pub handovers: Vec<Key<'a>>,
    /// The keys of shares that have ended many at once, in the order of their removal.
    pub ended_shares: Vec<Key<'a>>,
    /// The keys of all locks that have ended many at once with their owners, those included, in the order of their
    /// removal.
    pub ended: Vec<Key<'a>>,
    /// The keys that are due because a waiter has left or a lease has expired, in their order.
    pub left: Vec<Key<'a>>,
    /// Whether grants are withheld.
    pub withheld: &'a Withheld,
    /// The waiters for locks, by key, the first to come first, without their metadata: each grant shows it.
    pub waits: Vec<(Key<'a>, Vec<(Owner, Waiter)>)>,
    /// The wins that end with their winners, by key, those included that have ended and are to be reopened.
    pub bound_wins: Vec<(Key<'a>, BoundWin)>,
    /// The keys of wins that have ended, in the order in which they are reopened.
    pub wins_ended: Vec<Key<'a>>,
    /// The gets that wait, by key, the first to come first.
    pub win_waits: Vec<(Key<'a>, Vec<(Owner, WinWaiter)>)>,
    /// The notices that no transport has taken, the oldest first.
    pub notices: Vec<Notice>,
    /// The bounds.
    pub limits: &'a Limits,
    /// The time as the last event left it.
    pub clock: Clock,
    /// The CAS that the next change gets, in each shard.
    pub next_cas: Vec<Cas>,
    /// When a `flush_all` is still to take effect.
    pub flush_at: Option<Instant>,
}

impl Core<MapStore> {
    /// Lays the core open.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        let Self {
            shards,
            manager,
            limits,
            // Written and borrowed in one call.
            reported: _,
        } = self;
        let LockManager {
            locks,
            wins,
            // Shown below, with the batches that the queues know.
            notices: _,
            // The time of the last step, as in each shard.
            now: _,
            // The share of `limits`.
            limits: _,
            // Reported, and read by no rule.
            counters: _,
            // Reported to a transport; no reply shows it.
            work: _,
            left,
            // Constant.
            shards: _,
            // With several shards, that are not filled.
            spread_bytes: _,
            is_full: _,
        } = manager;
        let Wins {
            bound: bound_wins,
            queue: win_waits,
            // The place of a round that checks every win, and the keys of its last step.
            checked: _,
            to_check: _,
        } = wins;
        let Locks {
            table: locks,
            queue: waits,
            // Above every fence that was given (L12). No reply shows the number itself.
            next_fence: _,
        } = locks;
        let (handovers, ended_shares, ended) = locks.in_line();
        View {
            stores: shards.iter().map(|items| items.view()).collect(),
            shares: locks.shared().collect(),
            locks: locks.iter().collect(),
            metadata: locks.all_metadata().collect(),
            connections: locks
                .connections()
                .map(|(owner, keys)| (owner, keys.collect()))
                .collect(),
            handovers: handovers.collect(),
            ended_shares: ended_shares.collect(),
            ended: ended.collect(),
            left: left.iter().map(|key| as_key(key)).collect(),
            withheld: waits.withheld(),
            waits: waits.view().collect(),
            bound_wins: bound_wins.all_noted().collect(),
            wins_ended: bound_wins.in_line().collect(),
            win_waits: win_waits.view().collect(),
            notices: self.notices(),
            limits,
            clock: *self.clock(),
            next_cas: shards.iter().map(|items| items.next_cas).collect(),
            flush_at: self.flush_at(),
        }
    }
}

impl<S: Store> Core<S> {
    /// The notices that no transport has taken, the oldest first.
    fn notices(&self) -> Vec<Notice> {
        let mut of_locks = self.manager.locks.queue.woken_notices();
        let mut of_gets = self.manager.wins.queue.woken_notices();
        let due = self.manager.notices.iter().flat_map(|due| match due {
            Due::One(notice) => alloc::vec![notice],
            Due::OfLocks => of_locks.next().unwrap_or_default(),
            Due::OfGets => of_gets.next().unwrap_or_default(),
        });
        due.collect()
    }
}

impl Items<MapStore> {
    /// The items, in the order in which the store would evict them.
    fn view(&self) -> MapView<'_> {
        let Self {
            // Constant.
            shard: _,
            // It follows from the tables, but for keys that are due.
            noted: _,
            store,
            // The share of those of all shards.
            limits: _,
            // Of the core.
            clock: _,
            next_cas: _,
            flush_at: _,
            // Constant.
            cas_stride: _,
            // Reported, and read by no rule.
            evicted: _,
            counters: _,
            detail: _,
            // Written and borrowed in one call.
            metadata: _,
            // Reported to a transport; no reply shows it.
            work: _,
        } = self;
        store.view()
    }
}
