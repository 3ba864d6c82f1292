//! Reads over all shards, one after the other, and of the locks.

use std::cmp::Reverse;
use std::sync::Arc;

use latchd_core::engine::shards::{self, Shards as _};
use latchd_core::engine::{Holding, Prefixes};
use latchd_core::times::Times;
use latchd_core::{Instant, Owner};
use latchd_protocol::command::{Keys, ScanCursor};
use latchd_protocol::reply::{KeysPage, Reply};
use latchd_protocol::stats::{LOCK_LINES_MAX, Stats};
use latchd_protocol::watch::Evicted;

use super::{Shards, StatsPage};
use crate::sync::atomic::Ordering;

/// The most prefixes on a page; each is looked up in every shard.
const PREFIXES_PER_PAGE: usize = 64;

/// The most locks on a page: writing them takes a few 10 µs.
const LOCKS_PER_PAGE: usize = 64;

/// The bits of a place in the list of locks that count the lines before it; the place in the shard stands above them.
const SHOWN_BITS: u32 = 16;

/// The most waiters shown of a lock.
const WAITERS_SHOWN_MAX: usize = 10;

/// The result of [`Shards::look`].
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) stats: Stats,
    /// How long ended locks were held.
    pub(crate) hold_times: Times,
    /// Locks: those with the most waiting clients first, then the oldest.
    pub(crate) locks: Vec<LockedKey>,
    /// When the oldest lock with waiting clients was granted.
    pub(crate) blocking_since: Option<Instant>,
}

/// A locked key and its lock.
#[derive(Debug)]
pub(crate) struct LockedKey {
    pub(crate) key: Box<[u8]>,
    /// The lock, or the first share of a shared lock.
    pub(crate) holding: Holding,
    /// Its metadata, if it has some.
    pub(crate) metadata: Option<Box<[u8]>>,
    /// The number of holders.
    pub(crate) holders: usize,
    /// The most that may: the least that a holder has asked for.
    pub(crate) permits: u32,
    /// The number of waiters.
    pub(crate) waiting: usize,
    /// The first [`WAITERS_SHOWN_MAX`] waiters, and whether each would share the lock.
    pub(crate) first_waiters: Vec<(Owner, bool)>,
}

impl Shards {
    /// The evictions since the last call, one shard after the other, and the number of missed ones. From now on evictions are
    /// remembered if `is_watched`.
    pub(crate) fn evicted(&self, is_watched: bool) -> (Vec<Evicted>, u64) {
        if !is_watched && !self.watches_evictions.load(Ordering::Relaxed) {
            return (Vec::new(), 0);
        }
        self.watches_evictions.store(is_watched, Ordering::Relaxed);
        let (mut all, mut missed) = (Vec::new(), 0);
        for shard in 0..self.items.len() {
            let (mut items, more) = self.shard(shard).take_evicted(is_watched);
            all.append(&mut items);
            missed += more;
        }
        (all, missed)
    }

    /// The counters, and the first `locks_max` locks as far as [`LockManager::locks_in_force`] tells: for the status port.
    pub(crate) fn look(&self, now: Instant, locks_max: usize) -> Seen {
        self.pass(now);
        let mut all = self.at(now);
        let stats = shards::stats(&mut all);
        all.manage(|manager| {
            let held = manager.locks_in_force();
            let mut held: Vec<_> = held
                .map(|(key, holding)| (manager.waits().waiting(key), key, holding))
                .collect();
            let blocking = held.iter().filter(|(waiting, ..)| *waiting > 0);
            let blocking_since = blocking.map(|(_, _, holding)| holding.since).min();
            held.sort_unstable_by_key(|(waiting, _, holding)| (Reverse(*waiting), holding.since));
            let first = held.into_iter().take(locks_max);
            let locks = first.map(|(waiting, key, holding)| {
                let permits = manager
                    .locks()
                    .holders_of(key)
                    .map(|(_, max_sharers)| max_sharers);
                let queue = manager.waits().queue(key).take(WAITERS_SHOWN_MAX);
                LockedKey {
                    key: key.as_bytes().into(),
                    holding,
                    metadata: manager.locks().metadata(holding.fence).map(Box::from),
                    holders: manager.locks().holder_count(key),
                    permits: permits.min().unwrap_or(u32::MAX),
                    waiting,
                    first_waiters: queue
                        .map(|(conn, waiter)| (conn, waiter.mode.is_shared()))
                        .collect(),
                }
            });
            Seen {
                stats,
                hold_times: *manager.locks().hold_times(),
                locks: locks.collect(),
                blocking_since,
            }
        })
    }

    /// A page of the keys of one shard. After its last page, the next shard follows.
    pub(super) fn keys(&self, now: Instant, keys: Keys<'_>, answer: &mut dyn FnMut(&Reply<'_>)) {
        let (shard, cursor) = shards::shard_at(keys.cursor);
        if shard >= self.items.len() {
            return answer(&Reply::Keys(KeysPage {
                items: Vec::new(),
                next: None,
            }));
        }
        let items = self.shard_at(now, shard);
        let mut lazy = self.lazy(now);
        let page = items.keys(&lazy.reach(), Keys { cursor, ..keys });
        let news = lazy.unlock();
        let next = shards::after_page(shard, page.next, self.items.len());
        answer(&Reply::Keys(KeysPage { next, ..page }));
        drop(items);
        self.at(now).end(news);
    }

    /// A page of the locks, up to the bound of all together. A place in this list is a place in the table and the number of
    /// locks shown before.
    pub(super) fn lock_lines(&self, now: Instant, at: ScanCursor) -> StatsPage {
        let place = usize::try_from(at.0).unwrap_or(usize::MAX);
        let (from, shown) = (place >> SHOWN_BITS, place & ((1 << SHOWN_BITS) - 1));
        let lines_max = LOCKS_PER_PAGE.min(LOCK_LINES_MAX.saturating_sub(shown));
        let mut all = self.at(now);
        let (lines, next) = all.manage(|manager| manager.lock_page(from, lines_max));
        let shown = shown + lines.len();
        let next = next.filter(|_| shown < LOCK_LINES_MAX);
        let next = next.map(|from| ScanCursor(((from << SHOWN_BITS) + shown) as u64));
        (lines, next)
    }

    /// A page of the counters by prefix, over all shards. A place in this list is a shard and the number of its prefixes
    /// before. A prefix is shown with the first shard that has counted it.
    pub(super) fn prefix_lines(&self, at: ScanCursor) -> StatsPage {
        let (shard, at) = shards::shard_at(at);
        if shard >= self.items.len() {
            return (Vec::new(), None);
        }
        let from = usize::try_from(at.0).unwrap_or(usize::MAX);
        let items = self.shard(shard);
        let page = items.prefixes().page(from, PREFIXES_PER_PAGE);
        let mut prefixes: Vec<_> = page.map(Arc::clone).collect();
        let until = from + prefixes.len();
        let has_more = until < items.prefixes().len();
        drop(items);
        let next = has_more.then_some(ScanCursor(until as u64));
        let next = shards::after_page(shard, next, self.items.len());
        for earlier in 0..shard {
            let items = self.shard(earlier);
            prefixes.retain(|prefix| !items.prefixes().has(prefix));
        }
        let mut sum = Prefixes::default();
        for later in shard..self.items.len() {
            if !prefixes.is_empty() {
                sum.add(&prefixes, self.shard(later).prefixes());
            }
        }
        (sum.lines(), next)
    }
}
