//! The commands without a key, as one shard has a part in them: listings of keys, and `stats`.

use alloc::vec::Vec;
use core::ops::Deref;

use latchd_protocol::command::Keys;
use latchd_protocol::key::Key;
use latchd_protocol::reply::{KeysPage, Listed};
use latchd_protocol::stats::{Gauges, Stats};

use super::items::Items;
use super::manager::LockManager;
use crate::store::{Store, Visited};

impl<S: Store> Items<S> {
    /// A page of the keys of this shard.
    pub fn keys<'a>(
        &'a self,
        manager: &impl Deref<Target = LockManager>,
        keys: Keys<'_>,
    ) -> KeysPage<'a> {
        let mut items = Vec::new();
        // No comparison at all without a prefix: with AVX-512, the C library's `memcmp` of no bytes at the address of an
        // empty slice takes longer than all else.
        let is_wanted =
            |key: Key<'_>| keys.prefix.is_empty() || key.as_bytes().starts_with(keys.prefix);
        let looked_at_max = self.limits.scan_items_max;
        let next = self.store.scan(keys.cursor, looked_at_max, &mut |item| {
            if self.is_there(manager, item.key, &item.header) && is_wanted(item.key) {
                items.push(self.listed(&item));
            }
        });
        KeysPage { items, next }
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

    /// Its counters and gauges.
    pub(super) fn stats(&self) -> Stats {
        let now = self.clock.tick();
        let age_s = |at| u64::from(now.seconds_since(at));
        let usage = self.store.usage();
        let queue = self.store.queue();
        let gauges = Gauges {
            curr_items: usage.items as u64,
            bytes: usage.bytes as u64,
            limit_maxbytes: self.limits.memory_bytes_max as u64,
            locked_bytes: usage.locked_bytes as u64,
            hash_bytes: queue.index_bytes as u64,
            held_bytes: usage.held_bytes as u64,
            oldest_s: queue.oldest.map_or(0, age_s),
            last_eviction: queue.last_eviction,
            counts_prefixes: self.detail.is_on(),
            ..Gauges::default()
        };
        Stats {
            counters: self.counters,
            gauges,
        }
    }
}
