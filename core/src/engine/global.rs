//! The commands without a key: `flush_all`, listings of keys, `stats`, and the release of all locks.

use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::command::{GlobalCommand, Keys};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{KeysPage, Listed, Reply};
use latchd_protocol::stats::{Gauges, Report, Stats, StatsTopic};
use latchd_protocol::time::{Exptime, Instant};

use super::items::Items;
use super::rules::{Access, Rules};
use crate::store::{Store, Visited};

impl<'a, S: Store, M: Access> Rules<'a, S, M> {
    pub(super) fn execute_global(mut self, owner: Owner, command: GlobalCommand<'a>) -> Reply<'a> {
        match command {
            GlobalCommand::UnlockAll => self.unlock_all(owner),
            GlobalCommand::FlushAll { at } => self.flush_all(at),
            GlobalCommand::Keys(keys) => self.keys(keys),
            GlobalCommand::Stats(topic) => self.stats(topic),
            GlobalCommand::StatsReset => {
                self.items.stats = Stats::default();
                self.manager.locks.table.forget_times();
                self.items.detail.forget();
                Reply::Ok
            }
        }
    }

    fn flush_all(&mut self, at: Exptime) -> Reply<'static> {
        self.items.stats.counters.cmd_flush += 1;
        match self.items.clock.delay_ms(at) {
            0 => {
                self.flush();
                self.sweep_gets(self.items.limits.locks_settled_max);
            }
            ms => {
                let now_ms = self.items.clock.now.as_millis();
                self.items.flush_at = Some(Instant::from_millis(now_ms.saturating_add(ms)));
            }
        }
        Reply::Ok
    }

    /// Takes out every item that is not held; those that are go when they are unlocked.
    pub(super) fn flush(&mut self) {
        // Also if this one was asked for at once: the one that was still to come is overtaken.
        self.items.flush_at = None;
        self.items.store.clear();
        self.manager.locks.table.postpone_flush();
        self.manager.wins.queue.begin_round();
    }

    fn keys(self, keys: Keys<'_>) -> Reply<'a> {
        let Self { items, manager } = self;
        let items: &Items<S> = items;
        let mut page = Vec::new();
        // No comparison at all without a prefix: with AVX-512, the C library's `memcmp` of no bytes at the address of an
        // empty slice takes longer than all else.
        let is_wanted =
            |key: Key<'_>| keys.prefix.is_empty() || key.as_bytes().starts_with(keys.prefix);
        let next = items
            .store
            .scan(keys.cursor, items.limits.scan_items_max, &mut |item| {
                if items.is_there(&manager, item.key, &item.header) && is_wanted(item.key) {
                    page.push(items.listed(&item));
                }
            });
        Reply::Keys(KeysPage { items: page, next })
    }

    fn stats(self, topic: StatsTopic) -> Reply<'a> {
        let Self { items, manager } = self;
        match topic {
            StatsTopic::DetailOn => items.detail.turn(true),
            StatsTopic::DetailOff => items.detail.turn(false),
            StatsTopic::General
            | StatsTopic::Settings
            | StatsTopic::Items
            | StatsTopic::Slabs
            | StatsTopic::Sizes
            | StatsTopic::Extstore
            | StatsTopic::Cluster
            | StatsTopic::Conns(_)
            | StatsTopic::Sessions(_)
            | StatsTopic::Locks(_)
            | StatsTopic::Detail(_) => {}
        }
        let now = items.clock.tick();
        let age_s = |at| u64::from(now.seconds_since(at));
        let usage = items.store.usage();
        let queue = items.store.queue();
        items.stats.gauges = Gauges {
            curr_items: usage.items as u64,
            bytes: usage.bytes as u64,
            limit_maxbytes: items.limits.memory_bytes_max as u64,
            locks_held: manager.locks.table.len() as u64,
            lock_holders: manager.locks.table.holders() as u64,
            lock_waiting: manager.locks.queue.len() as u64,
            wins_bound: manager.wins.bound.len() as u64,
            get_waiting: manager.wins.queue.len() as u64,
            locked_bytes: usage.locked_bytes as u64,
            hash_bytes: queue.index_bytes as u64,
            held_bytes: usage.held_bytes as u64,
            oldest_s: queue.oldest.map_or(0, age_s),
            last_eviction: queue.last_eviction,
            counts_prefixes: items.detail.is_on(),
        };
        Reply::Stats(Report::new(&items.stats))
    }
}

impl<S: Store> Items<S> {
    fn listed<'a>(&self, item: &Visited<'a>) -> Listed<'a> {
        let header = &item.header;
        Listed {
            key: item.key.as_bytes(),
            key_form: header.key_form,
            cas: header.cas,
            client_flags: header.client_flags,
            expires_unix_s: header
                .deadline
                .map(|deadline| self.clock.unix_s(deadline.tick())),
            accessed_unix_s: self.clock.unix_s(header.last_access),
            fetched: header.fetched,
            value_bytes: item.value.len(),
            memory_bytes: item.item_bytes,
        }
    }
}
