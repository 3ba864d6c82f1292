//! The view of a core: all state that decides its next replies, for models that compare states.
//!
//! - V1: Every field of the core, its lock table and its store is named here, without `..`. A new field does not
//!   compile until the view shows it or says why not.
//!
//! A view omits a field by name, with the reason beside it.

use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;
use latchd_protocol::stats::Counters;
use latchd_protocol::time::{Clock, Instant};
use latchd_protocol::wait::Notice;

use super::Core;
use super::items::Items;
use super::locks::Locks;
use super::locks::queue::Waiter;
use super::locks::table::{Held, Holding};
use super::locks::withheld::Withheld;
use super::manager::LockManager;
use super::notices::Due;
use super::wins::Wins;
use super::wins::bound::BoundWin;
use super::wins::queue::WinWaiter;
use crate::limits::Limits;
use crate::store::{MapStore, MapView, Store};

/// A core on a [`MapStore`], laid open.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The items, in the order in which the store would evict them.
    pub store: MapView<'a>,
    /// Every key that is shared, with its shares, the first to be granted first.
    pub shares: Vec<(Key<'a>, Vec<Holding>)>,
    /// Every lock, by key; of one that is shared the first share.
    pub locks: Vec<(Key<'a>, Holding)>,
    /// Every open owner, with the keys of its locks and its locks in other cores.
    pub connections: Vec<(Owner, Vec<Key<'a>>, Held)>,
    /// The keys of locks of one holder that have ended many at once and were waited for then, in the order in which they are
    /// handed over.
    pub handovers: Vec<Key<'a>>,
    /// The keys of shares that have ended many at once, in the order of their removal.
    pub ended_shares: Vec<Key<'a>>,
    /// The keys of all locks that have ended many at once with their owners, those included, in the order of their
    /// removal.
    pub ended: Vec<Key<'a>>,
    /// Whether grants are withheld.
    pub withheld: &'a Withheld,
    /// The waiters for locks, by key, the first to come first.
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
    /// The CAS that the next change gets.
    pub next_cas: Cas,
    /// How far the one after it is.
    pub cas_stride: u32,
    /// When a `flush_all` is still to take effect.
    pub flush_at: Option<Instant>,
}

impl Core<MapStore> {
    /// Lays the core open.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        let Self { items, manager } = self;
        let Items {
            store,
            limits,
            clock,
            next_cas,
            cas_stride,
            flush_at,
            // Reported, and read by no rule.
            evicted: _,
            stats: _,
            detail: _,
            // Reported to a transport; no reply shows it.
            work: _,
        } = items;
        let LockManager {
            locks,
            wins,
            // Shown below, with the batches that the queues know.
            notices: _,
            // Constant, and set by the transport.
            table_cores: _,
            tables_elsewhere: _,
            // Only said to the transport.
            lacks_room_for_tables: _,
        } = manager;
        let Wins {
            bound: bound_wins,
            queue: win_waits,
            // The place of a round that checks every win.
            checked: _,
        } = wins;
        let Locks {
            table: locks,
            queue: waits,
            // Above every fence that was given (L12). No reply shows the number itself.
            next_fence: _,
            // The same from beginning to end.
            fence_stride: _,
        } = locks;
        let (handovers, ended_shares, ended) = locks.in_line();
        View {
            store: store.view(),
            shares: locks.shared().collect(),
            locks: locks.iter().collect(),
            connections: locks
                .connections()
                .map(|(owner, keys, elsewhere)| (owner, keys.collect(), elsewhere))
                .collect(),
            handovers: handovers.collect(),
            ended_shares: ended_shares.collect(),
            ended: ended.collect(),
            withheld: waits.withheld(),
            waits: waits.view().collect(),
            bound_wins: bound_wins.all_noted().collect(),
            wins_ended: bound_wins.in_line().collect(),
            win_waits: win_waits.view().collect(),
            notices: self.notices(),
            limits,
            clock: *clock,
            next_cas: *next_cas,
            cas_stride: *cas_stride,
            flush_at: *flush_at,
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

    /// Its counters since it began, or since they were reset.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.items.stats.counters
    }
}
