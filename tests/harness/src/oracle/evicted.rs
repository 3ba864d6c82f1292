//! What is counted of items that were evicted.
//!
//! Which they are, whoever compares has seen; that each was there, whether somebody had fetched it, and whether it would
//! have expired some day, is known here.

use latchd_core::stats::Counters;

use super::Oracle;

/// The counters of what is evicted, but for those that say how a store came to choose it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs)] // As `Counters` has them.
pub struct Evicted {
    pub evictions: u64,
    pub evicted_unfetched: u64,
    pub evicted_nonzero: u64,
}

impl Evicted {
    /// What a core has counted.
    #[must_use]
    pub const fn of(counters: &Counters) -> Self {
        Self {
            evictions: counters.evictions,
            evicted_unfetched: counters.evicted_unfetched,
            evicted_nonzero: counters.evicted_nonzero,
        }
    }
}

impl Oracle {
    /// The item was evicted for room.
    pub fn evict(&mut self, key: &[u8]) {
        let Some(item) = self.items.remove(key) else {
            return;
        };
        self.judged.evicted += 1;
        self.evicted.evictions += 1;
        self.evicted.evicted_unfetched += u64::from(!item.fetched);
        self.evicted.evicted_nonzero += u64::from(item.gone_at_ms.is_some());
    }

    /// What should have been counted of items that were evicted.
    #[must_use]
    pub const fn evicted(&self) -> Evicted {
        self.evicted
    }
}
