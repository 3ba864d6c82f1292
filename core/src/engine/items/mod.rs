//! Items: one shard of them, and the commands that read, store, count and remove them.
//!
//! [`Items`] has no owners: an item is marked as locked, and the lock manager has its lock. The rules in these files
//! change the store. A file about the lock or the win of an item belongs beside its table, in `locks/` or `wins/`.

mod arithmetic;
mod fenced;
mod guard;
mod read;
mod remove;
pub(in crate::engine) mod saved;
mod write;

use alloc::vec::Vec;

use latchd_protocol::command::NewCas;
use latchd_protocol::item::{Cas, ItemHeader};
use latchd_protocol::stats::Stats;
use latchd_protocol::time::{Clock, Instant};
use latchd_protocol::watch::Evicted;

use crate::engine::config::Config;
use crate::engine::context::Context;
use crate::engine::notices::Notices;
use crate::engine::stats::detail::Detail;
use crate::limits::Limits;
use crate::store::Store;
use crate::work::Meter;

/// A shard of items: the store, its CAS numbers, its time and its counters.
#[derive(Clone, Debug)]
pub struct Items<S> {
    pub(in crate::engine) store: S,
    pub(in crate::engine) limits: Limits,
    pub(in crate::engine) clock: Clock,
    pub(in crate::engine) next_cas: Cas,
    pub(in crate::engine) cas_stride: u32,
    pub(in crate::engine) flush_at: Option<Instant>,
    /// Evictions to be handed out.
    pub(in crate::engine) evicted: Option<(Vec<Evicted>, u64)>,
    pub(in crate::engine) stats: Stats,
    pub(in crate::engine) detail: Detail,
    /// The work of steps besides the commands themselves.
    pub(in crate::engine) work: Meter,
}

impl<S: Store> Items<S> {
    pub(in crate::engine) fn new(config: &Config, store: S) -> Self {
        Self {
            store,
            limits: config.limits,
            clock: Clock {
                now: Instant::default(),
                unix_s_at_start: config.unix_s_at_start,
            },
            next_cas: config.cas_first,
            cas_stride: config.cas_stride,
            flush_at: None,
            evicted: None,
            stats: Stats::default(),
            detail: Detail::new(config.prefix_delimiter),
            work: Meter::default(),
        }
    }

    /// It is `now`. Says whether a `flush_all` is due.
    pub(in crate::engine) fn advance(&mut self, now: Instant) -> bool {
        self.clock.now = self.clock.now.max(now);
        self.flush_at.is_some_and(|at| at <= self.clock.now)
    }

    /// The surroundings of a step of a machine without a store.
    pub(in crate::engine) const fn context<'a>(
        &'a mut self,
        notices: &'a mut Notices,
    ) -> Context<'a> {
        Context {
            now: self.clock.now,
            limits: &self.limits,
            counters: &mut self.stats.counters,
            notices,
        }
    }

    /// Looks at some items for those that have expired.
    pub(in crate::engine) fn crawl(&mut self) {
        let tick = self.clock.tick();
        let counters = &mut self.stats.counters;
        self.store
            .crawl(tick, self.limits.crawl_items_max, counters);
    }

    /// Removes an item after its TTL.
    pub(in crate::engine) fn reclaim(&mut self, slot: S::Slot, header: &ItemHeader) -> S::Vacancy {
        let counters = &mut self.stats.counters;
        counters.reclaimed += 1;
        counters.expired_unfetched += u64::from(!header.fetched);
        self.store.remove(slot)
    }

    /// Whether the TTL of an item has passed.
    pub(in crate::engine) fn is_past(&self, header: &ItemHeader) -> bool {
        header
            .deadline
            .is_some_and(|deadline| deadline.has_passed(self.clock.tick()))
    }

    /// The CAS of a change that is about to happen. It is used up by [`Self::commit_cas`] only, so
    /// a change that does not happen leaves no trace.
    pub(in crate::engine) const fn peek_cas(&self, new_cas: NewCas) -> Cas {
        match new_cas {
            NewCas::Next => self.next_cas,
            NewCas::Is(cas) => cas,
        }
    }

    /// E3: the CAS that [`Self::peek_cas`] showed is given.
    pub(in crate::engine) const fn commit_cas(&mut self, new_cas: NewCas) {
        if let NewCas::Next = new_cas {
            self.next_cas = self.next_cas.step(self.cas_stride);
        }
    }
}
