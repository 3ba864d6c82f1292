//! The statistics of a core.
//!
//! Counters only go up, until `stats reset`; gauges show the present state. If memcached has the statistic, the
//! name is memcached's (`doc/protocol.txt`, "General-purpose statistics"), so that monitoring reads it
//! unchanged.
//!
//! A [`Report`] is the reply to `stats`: the counters of the core, and lines of the transport. [`Report::each`]
//! selects the lines of each [`StatsTopic`], so text and binary show the same.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use core::fmt;

use crate::command::ScanCursor;
use crate::time::Tick;

/// Declares the counters once: the struct, its sum, its reset and its help cannot disagree. The comment of each is its help
/// in `/metrics`.
macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Events since the start or the last `stats reset`.
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds another shard's counters to these.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// Every counter: its name in `stats`, its help, and its value.
            pub fn each(&self, mut show: impl FnMut(&'static str, &'static str, u64)) {
                $(show(stringify!($name), concat!($($doc),*).trim_ascii(), self.$name);)*
            }
        }
    };
}

counters! {
    /// Gets of any kind, except gets that touch and `me`.
    cmd_get,
    /// Sets of any kind with a complete value, except values that are too large.
    cmd_set,
    /// `flush_all`.
    cmd_flush,
    /// `touch`, and gets that touch.
    cmd_touch,
    /// Gets that found an item, or made it.
    get_hits,
    /// Gets that found none.
    get_misses,
    /// Gets that found an expired item.
    get_expired,
    /// Gets that found an item from before the last `flush_all`.
    get_flushed,
    /// Deletes that found an item.
    delete_hits,
    /// Deletes that found none, or another version.
    delete_misses,
    /// Increments of an existing number.
    incr_hits,
    /// Increments that found none.
    incr_misses,
    /// Decrements of an existing number.
    decr_hits,
    /// Decrements that found none.
    decr_misses,
    /// Compare-and-swaps that stored.
    cas_hits,
    /// Compare-and-swaps that found none.
    cas_misses,
    /// Compare-and-swaps that found another version.
    cas_badval,
    /// Touches that found an item, or made it.
    touch_hits,
    /// Touches that found none; a meta get is a get then.
    touch_misses,
    /// Values over the size limit.
    store_too_large,
    /// Stores that failed since nothing more could be evicted.
    store_no_memory,
    /// Items that were ever stored.
    total_items,
    /// Items that were evicted before they expired.
    evictions,
    /// Items that were removed after they expired.
    reclaimed,
    /// Evicted items that were never fetched.
    evicted_unfetched,
    /// Evicted items that were fetched since they were last kept, but not often enough.
    evicted_active,
    /// Evicted items that had an exptime.
    evicted_nonzero,
    /// Reclaimed items that were never fetched.
    expired_unfetched,
    /// Items that the crawler checked.
    crawler_items_checked,
    /// Expired items that the crawler removed.
    crawler_reclaimed,
    /// Requests for locks.
    cmd_lock,
    /// Locks granted.
    lock_granted,
    /// Lock requests refused because another connection holds the lock, also after a wait.
    lock_contended,
    /// Lock requests for missing items.
    lock_misses,
    /// Locks released by their holder.
    lock_released,
    /// Locks released because their connection ended.
    lock_died,
    /// Locks whose lease expired.
    lock_expired,
    /// Leases that their holders renewed, or removed.
    lock_renewed,
    /// Lock requests that found the lock held and began to wait.
    lock_waits,
    /// Lock requests that waited without getting the lock.
    lock_wait_timeouts,
    /// Lock requests refused because of a deadlock.
    lock_deadlocks,
    /// Changes refused because another connection holds the lock.
    lock_refusals,
    /// Changes refused because their fencing token is not current.
    fence_refusals,
    /// Times a client won the recache of an item (W).
    win_sent,
    /// Replies that another client has won (Z).
    win_waits,
    /// Wins reopened because their connection ended.
    win_reopened,
    /// Gets that waited for a value.
    get_waits,
    /// Gets that waited without getting a value.
    get_wait_timeouts,
    /// Items marked stale.
    stale_marks,
}

/// Why the value of a set never reached the store, where a counter shows it.
///
/// Source: memcached 1.6.45 `proto_parser.c`, `process_update_cmd_start` and `complete_nread_ascii`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Unstored {
    /// It does not end where the request says: `cmd_set`.
    BadChunk,
    /// It is over the limit: `store_too_large`.
    TooLarge,
}

/// Declares the gauges that `stats` shows, and then the others.
macro_rules! gauges {
    ($($(#[doc = $doc:literal])* $name:ident,)* ; $($(#[$attribute:meta])* $own:ident: $kind:ty,)*) => {
        /// The present state of a core.
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
        pub struct Gauges {
            $($(#[doc = $doc])* pub $name: u64,)*
            $($(#[$attribute])* pub $own: $kind,)*
        }

        impl Gauges {
            /// Adds the gauges that `stats` shows.
            const fn add_shown(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Every gauge that `stats` shows: its name there, its help, and its value.
            pub fn each(&self, mut show: impl FnMut(&'static str, &'static str, u64)) {
                $(show(stringify!($name), concat!($($doc),*).trim_ascii(), self.$name);)*
            }
        }
    };
}

gauges! {
    /// Items in the store, including expired ones that were not removed yet.
    curr_items,
    /// The memory of the items, in bytes as the store accounts for them.
    bytes,
    /// The memory limit, in bytes.
    limit_maxbytes,
    /// Held locks.
    locks_held,
    /// Connections holding a lock.
    lock_holders,
    /// Connections waiting for a lock.
    lock_waiting,
    /// Open wins bound to a connection.
    wins_bound,
    /// Gets waiting for a value.
    get_waiting,
    /// Bytes used by locked items.
    locked_bytes,
    /// The memory of the index, in bytes.
    hash_bytes,
    ;
    /// The memory that the store has allocated or reserved, in bytes: at least [`bytes`](Self::bytes).
    held_bytes: u64,
    /// Idle time, in seconds, of the longest unused item among those that would be evicted next.
    oldest_s: u64,
    /// The last item that was evicted.
    last_eviction: Option<Eviction>,
    /// Keys are counted by prefix (`stats detail on`).
    counts_prefixes: bool,
}

/// An item was evicted.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Eviction {
    /// The tick of the eviction.
    pub at: Tick,
    /// Its idle time, in seconds.
    pub idle_s: u32,
}

impl Gauges {
    /// Adds another shard's gauges to these.
    pub fn add(&mut self, other: &Self) {
        self.add_shown(other);
        self.held_bytes += other.held_bytes;
        self.oldest_s = self.oldest_s.max(other.oldest_s);
        let evictions = self.last_eviction.into_iter().chain(other.last_eviction);
        self.last_eviction = evictions.max_by_key(|eviction| eviction.at);
        self.counts_prefixes |= other.counts_prefixes;
    }
}

/// Counters and gauges of one core, or of several added up.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Stats {
    /// Events since the start or the last `stats reset`.
    pub counters: Counters,
    /// The present state.
    pub gauges: Gauges,
}

impl Stats {
    /// Adds another shard's statistics to these.
    pub fn add(&mut self, other: &Self) {
        self.counters.add(&other.counters);
        self.gauges.add(&other.gauges);
    }
}

/// The topic of `stats`: its argument.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum StatsTopic {
    /// No argument: the counters.
    #[default]
    General,
    /// `settings`: the server's settings.
    Settings,
    /// `items`: the items of each slab class. There is one class here, `1`.
    Items,
    /// `slabs`: the memory of each slab class.
    Slabs,
    /// `sizes`: the histogram of item sizes, which is never on.
    Sizes,
    /// `extstore`: always empty, since there is none.
    Extstore,
    /// `cluster`: the part of the server in a cluster; empty without one.
    Cluster,
    /// `conns`: a page of the connections, from here on.
    Conns(ScanCursor),
    /// `sessions`: a page of the sessions, from here on.
    Sessions(ScanCursor),
    /// `locks`: a page of the held locks, from here on.
    Locks(ScanCursor),
    /// `detail dump`: a page of the counts of requests by prefix, from here on.
    Detail(ScanCursor),
    /// `detail on`: counts requests by prefix from now on.
    DetailOn,
    /// `detail off`: stops counting them.
    DetailOff,
}

impl StatsTopic {
    /// Whether the reply shows keys of clients.
    #[must_use]
    pub const fn tells_keys(self) -> bool {
        match self {
            // memcached refuses all three names.
            Self::Locks(_) | Self::Detail(_) | Self::DetailOn | Self::DetailOff => true,
            Self::General
            | Self::Settings
            | Self::Items
            | Self::Slabs
            | Self::Sizes
            | Self::Extstore
            | Self::Cluster
            | Self::Conns(_)
            | Self::Sessions(_) => false,
        }
    }

    /// The same topic from another page on; `None` if it has no pages.
    #[must_use]
    pub const fn on_page(self, at: ScanCursor) -> Option<Self> {
        match self {
            Self::Conns(_) => Some(Self::Conns(at)),
            Self::Sessions(_) => Some(Self::Sessions(at)),
            Self::Locks(_) => Some(Self::Locks(at)),
            Self::Detail(_) => Some(Self::Detail(at)),
            Self::General
            | Self::Settings
            | Self::Items
            | Self::Slabs
            | Self::Sizes
            | Self::Extstore
            | Self::Cluster
            | Self::DetailOn
            | Self::DetailOff => None,
        }
    }
}

/// Locks that `stats locks` shows. It bounds the length of the reply.
pub const LOCK_LINES_MAX: usize = 1_000;

/// Locks of a core that a request checks to find those to show. Other requests wait for the core meanwhile, a
/// fraction of a millisecond. Ended locks that were not removed yet count too, although they are not shown.
pub const LOCKS_LOOKED_AT_MAX: usize = 4_096;

/// A line of `stats` that the transport supplies: about its process, threads and connections.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct StatsLine {
    /// The name; no blanks.
    pub name: Cow<'static, str>,
    /// The value; no blanks, no line ends.
    pub value: String,
}

impl StatsLine {
    /// A line with a value as it is displayed.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, value: impl fmt::Display) -> Self {
        Self {
            name: name.into(),
            value: value.to_string(),
        }
    }
}

/// The reply to `stats`.
///
/// A core alone returns [`Report::new`]. A transport adds up the [`Stats`] of its cores, and sets
/// [`lines`](Report::lines) to its own lines for the topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Report<'a> {
    /// The counters and gauges.
    pub stats: &'a Stats,
    /// The transport's own lines for the topic, shown before the core's.
    pub lines: &'a [StatsLine],
    /// Where the next page of the topic begins, if it has pages and this is not the last.
    pub next: Option<ScanCursor>,
}

impl<'a> Report<'a> {
    /// A report without lines of a transport.
    #[must_use]
    pub const fn new(stats: &'a Stats) -> Self {
        Self {
            stats,
            lines: &[],
            next: None,
        }
    }

    /// Every line of the reply to `stats <topic>`: name and value.
    pub fn each(&self, topic: StatsTopic, mut show: impl FnMut(&str, &str)) {
        for StatsLine { name, value } in self.lines {
            show(name, value);
        }
        let mut digits = itoa::Buffer::new();
        let mut number = |name: &str, value: u64| show(name, digits.format(value));
        match topic {
            StatsTopic::General => {
                self.each_general(&mut number);
                show("slab_reassign_last_busy_status", "none");
            }
            StatsTopic::Items => self.each_of_items(&mut number),
            StatsTopic::Slabs => self.each_of_slabs(&mut number),
            StatsTopic::Settings => {
                number("maxbytes", self.stats.gauges.limit_maxbytes);
                let is_on = self.stats.gauges.counts_prefixes;
                show("detail_enabled", if is_on { "yes" } else { "no" });
            }
            StatsTopic::Sizes => show("sizes_status", "disabled"),
            StatsTopic::Conns(_)
            | StatsTopic::Sessions(_)
            | StatsTopic::Locks(_)
            | StatsTopic::Detail(_)
            | StatsTopic::DetailOn
            | StatsTopic::DetailOff
            | StatsTopic::Extstore
            | StatsTopic::Cluster => {}
        }
    }

    fn each_general(&self, number: &mut impl FnMut(&str, u64)) {
        let Stats { counters, gauges } = self.stats;
        counters.each(|name, _, value| {
            // As in memcached, a number of the class.
            if name != "evicted_nonzero" {
                number(name, value);
            }
        });
        gauges.each(|name, _, value| number(name, value));
        number("pointer_size", u64::from(usize::BITS));
        // As with memcached's table: the power of two of this number of pointers.
        let pointers = (gauges.hash_bytes / 8).max(1);
        number("hash_power_level", u64::from(pointers.ilog2()));
        // Counters of memcached without a counterpart here. Monitoring reports a server as broken if their
        // lines are missing.
        for name in [
            "direct_reclaims",
            "hash_is_expanding",
            "lru_bumps_dropped",
            "lru_crawler_running",
            "lru_crawler_starts",
            "lru_maintainer_juggles",
            "lrutail_reflocked",
            "moves_to_cold",
            "moves_to_warm",
            "moves_within_lru",
            "round_robin_fallback",
            "slab_global_page_pool",
            "slab_reassign_busy_deletes",
            "slab_reassign_busy_items",
            "slab_reassign_busy_nomem",
            "slab_reassign_chunk_rescues",
            "slab_reassign_inline_reclaim",
            "slab_reassign_rescues",
            "slab_reassign_running",
            "slabs_moved",
            "unexpected_napi_ids",
        ] {
            number(name, 0);
        }
    }

    /// As in memcached, a class without items is not shown.
    fn each_of_items(&self, number: &mut impl FnMut(&str, u64)) {
        let Stats { counters, gauges } = self.stats;
        if gauges.curr_items == 0 {
            return;
        }
        number("items:1:number", gauges.curr_items);
        // As in a memcached whose LRU is not segmented: all items are cold.
        number("items:1:number_hot", 0);
        number("items:1:number_warm", 0);
        number("items:1:number_cold", gauges.curr_items);
        number("items:1:age_hot", 0);
        number("items:1:age_warm", 0);
        number("items:1:age", gauges.oldest_s);
        number("items:1:hits_to_hot", 0);
        number("items:1:hits_to_warm", 0);
        number("items:1:hits_to_cold", counters.get_hits);
        number("items:1:hits_to_temp", 0);
        number("items:1:mem_requested", gauges.bytes);
        number("items:1:evicted", counters.evictions);
        number("items:1:evicted_nonzero", counters.evicted_nonzero);
        let idle_s = gauges.last_eviction.map_or(0, |last| last.idle_s);
        number("items:1:evicted_time", u64::from(idle_s));
        number("items:1:evicted_active", counters.evicted_active);
        number("items:1:evicted_unfetched", counters.evicted_unfetched);
        number("items:1:expired_unfetched", counters.expired_unfetched);
        number("items:1:outofmemory", counters.store_no_memory);
        number("items:1:reclaimed", counters.reclaimed);
        number("items:1:crawler_reclaimed", counters.crawler_reclaimed);
        number(
            "items:1:crawler_items_checked",
            counters.crawler_items_checked,
        );
        // As in General.
        for name in [
            "items:1:tailrepairs",
            "items:1:lrutail_reflocked",
            "items:1:direct_reclaims",
            "items:1:moves_to_cold",
            "items:1:moves_to_warm",
            "items:1:moves_within_lru",
        ] {
            number(name, 0);
        }
    }

    /// One class of chunks of one byte; its page is the memory that the store holds. As in memcached, a class
    /// without a page is not shown, and `total_malloced` is the size of all pages.
    /// `mem_requested` is in `stats items`: memcached moved it there in 1.5.17, and an exporter that finds both
    /// has one metric twice.
    fn each_of_slabs(&self, number: &mut impl FnMut(&str, u64)) {
        let Stats { counters, gauges } = self.stats;
        let has_page = gauges.held_bytes > 0;
        if has_page {
            number("1:chunk_size", 1);
            number("1:chunks_per_page", gauges.held_bytes);
            number("1:total_pages", 1);
            number("1:total_chunks", gauges.held_bytes);
            number("1:used_chunks", gauges.bytes);
            number(
                "1:free_chunks",
                gauges.held_bytes.saturating_sub(gauges.bytes),
            );
            number("1:free_chunks_end", 0);
            number("1:get_hits", counters.get_hits);
            number("1:cmd_set", counters.cmd_set);
            number("1:delete_hits", counters.delete_hits);
            number("1:incr_hits", counters.incr_hits);
            number("1:decr_hits", counters.decr_hits);
            number("1:cas_hits", counters.cas_hits);
            number("1:cas_badval", counters.cas_badval);
            number("1:touch_hits", counters.touch_hits);
        }
        number("active_slabs", u64::from(has_page));
        number("total_malloced", gauges.held_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gauges that all differ, in the order in which they are shown.
    fn gauges(last_eviction: Option<Eviction>) -> Gauges {
        Gauges {
            curr_items: 10,
            bytes: 11,
            limit_maxbytes: 12,
            locks_held: 13,
            lock_holders: 14,
            lock_waiting: 15,
            wins_bound: 16,
            get_waiting: 17,
            locked_bytes: 18,
            hash_bytes: 19,
            held_bytes: 20,
            oldest_s: 20,
            last_eviction,
            counts_prefixes: false,
        }
    }

    #[test]
    fn two_cores_add_up() {
        let counters = Counters {
            cmd_get: 2,
            ..Counters::default()
        };
        let at = |count, idle_s| {
            let at = Tick::from_count(count);
            Some(Eviction { at, idle_s })
        };
        let mut sum = Stats {
            counters,
            gauges: gauges(at(3, 1)),
        };
        sum.add(&Stats {
            counters,
            gauges: Gauges {
                oldest_s: 4,
                counts_prefixes: true,
                ..gauges(at(7, 2))
            },
        });
        sum.add(&Stats {
            counters: Counters::default(),
            gauges: Gauges {
                curr_items: 1,
                ..Gauges::default()
            },
        });
        assert_eq!(sum.counters.cmd_get, 4);
        let expected = Gauges {
            curr_items: 21,
            bytes: 22,
            limit_maxbytes: 24,
            locks_held: 26,
            lock_holders: 28,
            lock_waiting: 30,
            wins_bound: 32,
            get_waiting: 34,
            locked_bytes: 36,
            hash_bytes: 38,
            held_bytes: 40,
            // The oldest of all shards, and the last eviction of any.
            oldest_s: 20,
            last_eviction: at(7, 2),
            counts_prefixes: true,
        };
        assert_eq!(sum.gauges, expected);
    }

    #[test]
    fn topics_with_keys_need_listing() {
        let tells = [
            StatsTopic::Locks(ScanCursor(0)),
            StatsTopic::Detail(ScanCursor(0)),
            StatsTopic::DetailOn,
            StatsTopic::DetailOff,
        ];
        let others = [
            StatsTopic::General,
            StatsTopic::Settings,
            StatsTopic::Items,
            StatsTopic::Slabs,
            StatsTopic::Sizes,
            StatsTopic::Extstore,
            StatsTopic::Cluster,
            StatsTopic::Conns(ScanCursor(0)),
            StatsTopic::Sessions(ScanCursor(0)),
        ];
        assert!(tells.into_iter().all(StatsTopic::tells_keys));
        assert!(!others.into_iter().any(StatsTopic::tells_keys));
    }

    #[test]
    fn the_level_of_the_hash_is_that_of_so_many_pointers() {
        let level = |hash_bytes| {
            let stats = Stats {
                gauges: Gauges {
                    hash_bytes,
                    ..Gauges::default()
                },
                ..Stats::default()
            };
            let mut level = None;
            Report::new(&stats).each(StatsTopic::General, |name, value| {
                if name == "hash_power_level" {
                    level = value.parse().ok();
                }
            });
            level
        };
        let levels = [0, 8, 31, 32, 64 << 20].map(level);
        assert_eq!(levels, [0, 0, 1, 2, 23].map(Some));
    }

    #[test]
    fn every_counter_is_shown_under_its_own_name() {
        let mut names = alloc::vec::Vec::new();
        let counters = Counters {
            win_sent: 7,
            ..Counters::default()
        };
        counters.each(|name, _, value| names.push((name, value)));
        assert!(names.contains(&("win_sent", 7)));
        assert!(names.contains(&("cmd_get", 0)));
    }
}
