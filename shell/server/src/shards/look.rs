//! Reads over all shards: a thread locks one shard after the other, and never two at once.

use std::cmp::Reverse;
use std::sync::Arc;

use latchd_core::engine::{Event, Holding, Notification, Prefixes};
use latchd_core::times::Times;
use latchd_core::{Instant, Owner};
use latchd_protocol::command::{Command, GlobalCommand, Keys, ScanCursor};
use latchd_protocol::reply::{KeysPage, Reply};
use latchd_protocol::stats::{LOCK_LINES_MAX, Stats, StatsTopic};
use latchd_protocol::watch::Evicted;

use super::{Shards, StatsPage};
use crate::sync::atomic::Ordering;

/// The bits of a [`ScanCursor`] that belong to the store; the bits above them are the shard.
const CURSOR_BITS: u32 = 56;

/// The owner of requests that are no client's: clients are numbered from 1.
pub(super) const NOBODY: Owner = Owner::from_number(0);

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
        for shard in 0..self.cores.len() {
            let mut core = self.core(shard);
            let now = core.clock().now;
            core.handle(now, Event::ReadEvictions { is_watched });
            if let Some(Notification::Evicted {
                mut items,
                missed: more,
            }) = core.poll()
            {
                all.append(&mut items);
                missed += more;
            }
        }
        (all, missed)
    }

    /// The counters, and the first `locks_max` locks as far as [`Core::locks_in_force`] tells: for the status port.
    pub(crate) fn look(&self, now: Instant, locks_max: usize) -> Seen {
        let mut locks = Vec::new();
        let mut hold_times = Times::default();
        let mut blocking_since: Option<Instant> = None;
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            core.handle(now, Event::Due);
            let held = core.locks_in_force();
            let mut held: Vec<_> = held
                .map(|(key, holding)| (core.waits().waiting(key), key, holding))
                .collect();
            let blocking = held.iter().filter(|(waiting, ..)| *waiting > 0);
            let oldest = blocking.map(|(_, _, holding)| holding.since).min();
            blocking_since = blocking_since.into_iter().chain(oldest).min();
            held.sort_unstable_by_key(|(waiting, _, holding)| (Reverse(*waiting), holding.since));
            let first = held.into_iter().take(locks_max);
            locks.extend(first.map(|(waiting, key, holding)| {
                let permits = core.locks().holders_of(key).map(|(_, among)| among);
                let queue = core.waits().queue(key).take(WAITERS_SHOWN_MAX);
                LockedKey {
                    key: key.as_bytes().into(),
                    holding,
                    holders: core.locks().holder_count(key),
                    permits: permits.min().unwrap_or(u32::MAX),
                    waiting,
                    first_waiters: queue
                        .map(|(conn, waiter)| (conn, waiter.mode.is_shared()))
                        .collect(),
                }
            }));
            hold_times.add(core.locks().hold_times());
            drop(core);
            locks.sort_by_key(|lock: &LockedKey| (Reverse(lock.waiting), lock.holding.since));
            locks.truncate(locks_max);
        }
        Seen {
            stats: self.stats(now, NOBODY),
            hold_times,
            locks,
            blocking_since,
        }
    }

    /// A page of the keys of one shard. After its last page, the next shard follows.
    pub(super) fn keys(
        &self,
        now: Instant,
        conn: Owner,
        keys: Keys<'_>,
        answer: &mut dyn FnMut(&Reply<'_>),
    ) {
        let shard = usize::try_from(keys.cursor.0 >> CURSOR_BITS).unwrap_or(usize::MAX);
        if shard >= self.cores.len() {
            return answer(&Reply::Keys(KeysPage {
                items: Vec::new(),
                next: None,
            }));
        }
        let cursor = ScanCursor(keys.cursor.0 & ((1 << CURSOR_BITS) - 1));
        let command = Command::Global(GlobalCommand::Keys(Keys { cursor, ..keys }));
        let mut core = self.core_at(now, shard);
        let mut reply = core.execute(now, conn, &command);
        if let Reply::Keys(page) = &mut reply {
            page.next = match page.next {
                Some(next) => Some(cursor_in(shard, next)),
                None => self.next_shard(shard),
            };
        }
        answer(&reply);
    }

    /// A page of the locks of one shard, up to the bound of all together. A place in this list is a shard, a place in its
    /// table, and the number of locks shown before.
    pub(super) fn lock_lines(&self, now: Instant, at: ScanCursor) -> StatsPage {
        let (shard, place) = Self::place(at);
        if shard >= self.cores.len() {
            return (Vec::new(), None);
        }
        let (from, shown) = (place >> SHOWN_BITS, place & ((1 << SHOWN_BITS) - 1));
        let mut core = self.core_at(now, shard);
        core.handle(now, Event::Due);
        let lines_max = LOCKS_PER_PAGE.min(LOCK_LINES_MAX.saturating_sub(shown));
        let (lines, next) = core.lock_page(from, lines_max);
        drop(core);
        let shown = shown + lines.len();
        let next = match next {
            Some(from) => Some(cursor_in(shard, ScanCursor((from << SHOWN_BITS) as u64))),
            None => self.next_shard(shard),
        };
        let next = next.filter(|_| shown < LOCK_LINES_MAX);
        (lines, next.map(|at| ScanCursor(at.0 + shown as u64)))
    }

    /// A page of the counters by prefix, over all shards. A place in this list is a shard and the number of its prefixes
    /// before. A prefix is shown with the first shard that has counted it.
    pub(super) fn prefix_lines(&self, at: ScanCursor) -> StatsPage {
        let (shard, from) = Self::place(at);
        if shard >= self.cores.len() {
            return (Vec::new(), None);
        }
        let core = self.core(shard);
        let page = core.prefixes().page(from, PREFIXES_PER_PAGE);
        let mut prefixes: Vec<_> = page.map(Arc::clone).collect();
        let until = from + prefixes.len();
        let next = if until < core.prefixes().len() {
            Some(cursor_in(shard, ScanCursor(until as u64)))
        } else {
            self.next_shard(shard)
        };
        drop(core);
        for earlier in 0..shard {
            let core = self.core(earlier);
            prefixes.retain(|prefix| !core.prefixes().has(prefix));
        }
        let mut sum = Prefixes::default();
        for later in shard..self.cores.len() {
            if !prefixes.is_empty() {
                sum.add(&prefixes, self.core(later).prefixes());
            }
        }
        (sum.lines(), next)
    }

    /// The beginning of the next shard in a list.
    fn next_shard(&self, shard: usize) -> Option<ScanCursor> {
        let next = shard + 1;
        (next < self.cores.len()).then(|| cursor_in(next, ScanCursor::default()))
    }

    /// The shard of a place in a list, and the place in it.
    fn place(at: ScanCursor) -> (usize, usize) {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let within = at.0 & ((1 << CURSOR_BITS) - 1);
        (number(at.0 >> CURSOR_BITS), number(within))
    }

    /// The sum over all shards, one after the other: counters of a busy server never stand still.
    pub(super) fn stats(&self, now: Instant, conn: Owner) -> Stats {
        let mut sum = Stats::default();
        let lock_holders = self.lock_holders();
        for shard in 0..self.cores.len() {
            let mut core = self.core_at(now, shard);
            let command = Command::Global(GlobalCommand::Stats(StatsTopic::General));
            if let Reply::Stats(report) = core.execute(now, conn, &command) {
                sum.add(report.stats);
            }
        }
        // Every shard counts the same flush.
        sum.counters.cmd_flush /= self.cores.len() as u64;
        sum.gauges.lock_holders = lock_holders as u64;
        sum
    }
}

fn cursor_in(shard: usize, cursor: ScanCursor) -> ScanCursor {
    assert!(cursor.0 < 1 << CURSOR_BITS, "a store counts its slots");
    ScanCursor(((shard as u64) << CURSOR_BITS) | cursor.0)
}
