//! The commands without a key: `flush_all`, listings of keys, `stats`, and the release of all locks.

use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::command::{GlobalCommand, Keys};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{KeysPage, Listed, Reply};
use latchd_protocol::stats::{Gauges, Report, Stats, StatsTopic};
use latchd_protocol::time::{Exptime, Instant};

use super::Core;
use crate::store::{Store, Visited};

impl<S: Store> Core<S> {
    pub(super) fn execute_global<'a>(
        &'a mut self,
        owner: Owner,
        command: GlobalCommand<'a>,
    ) -> Reply<'a> {
        match command {
            GlobalCommand::UnlockAll => self.unlock_all(owner),
            GlobalCommand::FlushAll { at } => self.flush_all(at),
            GlobalCommand::Keys(keys) => self.keys(keys),
            GlobalCommand::Stats(topic) => self.stats(topic),
            GlobalCommand::StatsReset => {
                self.stats = Stats::default();
                self.locks.table.forget_times();
                self.detail.forget();
                Reply::Ok
            }
        }
    }

    fn flush_all(&mut self, at: Exptime) -> Reply<'_> {
        self.stats.counters.cmd_flush += 1;
        match self.clock.delay_ms(at) {
            0 => {
                self.flush();
                self.sweep_gets(self.limits.locks_settled_max);
            }
            ms => {
                let now_ms = self.clock.now.as_millis();
                self.flush_at = Some(Instant::from_millis(now_ms.saturating_add(ms)));
            }
        }
        Reply::Ok
    }

    /// Takes out every item that is not held; those that are go when they are unlocked.
    pub(super) fn flush(&mut self) {
        // Also if this one was asked for at once: the one that was still to come is overtaken.
        self.flush_at = None;
        self.store.clear();
        self.locks.table.postpone_flush();
        self.wins.queue.begin_round();
    }

    fn keys(&mut self, keys: Keys<'_>) -> Reply<'_> {
        let mut page = Vec::new();
        // No comparison at all without a prefix: with AVX-512, the C library's `memcmp` of no bytes at the address of an
        // empty slice takes longer than all else.
        let is_wanted =
            |key: Key<'_>| keys.prefix.is_empty() || key.as_bytes().starts_with(keys.prefix);
        let next = self
            .store
            .scan(keys.cursor, self.limits.scan_items_max, &mut |item| {
                if self.is_there(item.key, &item.header) && is_wanted(item.key) {
                    page.push(self.listed(&item));
                }
            });
        Reply::Keys(KeysPage { items: page, next })
    }

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

    fn stats(&mut self, topic: StatsTopic) -> Reply<'_> {
        match topic {
            StatsTopic::DetailOn => self.detail.turn(true),
            StatsTopic::DetailOff => self.detail.turn(false),
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
        let now = self.clock.tick();
        let age_s = |at| u64::from(now.seconds_since(at));
        let usage = self.store.usage();
        let queue = self.store.queue();
        self.stats.gauges = Gauges {
            curr_items: usage.items as u64,
            bytes: usage.bytes as u64,
            limit_maxbytes: self.limits.memory_bytes_max as u64,
            locks_held: self.locks.table.len() as u64,
            lock_holders: self.locks.table.holders() as u64,
            lock_waiting: self.locks.queue.len() as u64,
            wins_bound: self.wins.bound.len() as u64,
            get_waiting: self.wins.queue.len() as u64,
            locked_bytes: usage.locked_bytes as u64,
            hash_bytes: queue.index_bytes as u64,
            held_bytes: usage.held_bytes as u64,
            oldest_s: queue.oldest.map_or(0, age_s),
            last_eviction: queue.last_eviction,
            counts_prefixes: self.detail.is_on(),
        };
        Reply::Stats(Report::new(&self.stats))
    }
}
