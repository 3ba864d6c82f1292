//! The counters of evicted items.
//!
//! The comparison says which items were evicted. The oracle knows that each existed and had not
//! expired, whether a client had fetched it, and whether it had an exptime. It accepts the core's
//! count of items used too seldom, if a client has used them at all.

use latchd_protocol::stats::{Counters, Eviction};
use latchd_protocol::time::TICK_MS;

use super::{Oracle, quarter};

/// The counters of evicted items.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs)] // As `Counters` has them.
pub struct Evicted {
    pub evictions: u64,
    pub evicted_unfetched: u64,
    pub evicted_active: u64,
    pub evicted_nonzero: u64,
}

/// The last evicted item: one of those that the same call evicted.
#[derive(Clone, Debug, Default)]
pub(super) struct LastEvicted {
    /// When.
    at_ms: u64,
    /// For how long each had not been asked for, in seconds.
    idle_s: Vec<u64>,
    /// How many of them a client had used, unless they are counted as that already.
    used: u64,
}

impl Evicted {
    /// The counters of a core.
    #[must_use]
    pub const fn of(counters: &Counters) -> Self {
        Self {
            evictions: counters.evictions,
            evicted_unfetched: counters.evicted_unfetched,
            evicted_active: counters.evicted_active,
            evicted_nonzero: counters.evicted_nonzero,
        }
    }
}

impl Oracle {
    /// These items were evicted for room, with one call.
    pub fn evict(&mut self, keys: &[Vec<u8>]) {
        if keys.is_empty() {
            return;
        }
        let now_ms = quarter(self.now_ms);
        self.last_evicted = LastEvicted {
            at_ms: now_ms,
            ..LastEvicted::default()
        };
        for key in keys {
            let Some(item) = self.items.remove(key) else {
                continue;
            };
            let last = &mut self.last_evicted;
            last.idle_s
                .push((now_ms - quarter(item.accessed_ms)) / 1000);
            last.used += u64::from(item.used);
            self.judged.evicted += 1;
            self.evicted.evictions += 1;
            self.evicted.evicted_unfetched += u64::from(!item.fetched);
            self.evicted.evicted_nonzero += u64::from(item.gone_at_ms.is_some());
        }
    }

    /// The counts that a core which reports `told` should have of evicted items.
    pub fn evicted(&mut self, told: &Evicted) -> Evicted {
        let active = told
            .evicted_active
            .saturating_sub(self.evicted.evicted_active);
        let active = active.min(self.last_evicted.used);
        self.evicted.evicted_active += active;
        self.judged.gone.active += active;
        self.last_evicted.used = 0;
        self.evicted
    }

    /// Whether this could be said of the last eviction.
    #[must_use]
    pub fn may_be_last(&self, eviction: Option<Eviction>) -> bool {
        let LastEvicted { at_ms, idle_s, .. } = &self.last_evicted;
        match eviction {
            None => idle_s.is_empty(),
            Some(Eviction { at, idle_s: idle }) => {
                u64::from(at.count()) * TICK_MS == *at_ms && idle_s.contains(&idle.into())
            }
        }
    }
}
