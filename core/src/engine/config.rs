//! The settings of a new core, and how several cores share one range of versions.
//!
//! - E3, L12 over several cores: the versions of core `i` of `n` are `i + 1`, `i + 1 + n`, and so on, so
//!   no two cores give the same; and so with fences, from a first one that the transport hands in.

use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;

use crate::limits::Limits;
use crate::store::HashSeed;

/// The settings of a new core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The limits; with several cores, this one's share of them.
    pub limits: Limits,
    /// Unix seconds at [`Instant`](crate::Instant) 0, for exptimes that are dates.
    pub unix_s_at_start: u64,
    /// The first CAS it gives.
    pub cas_first: Cas,
    /// How far each CAS is from the one before, so that several cores can share the numbers.
    pub cas_stride: u32,
    /// The first fence it gives. Each is as far from the one before as with CAS numbers.
    pub fence_first: Fence,
    /// The secret of its hashes. A server takes it from the system's randomness, so that no client can choose keys that
    /// are slow to find.
    pub hash_seed: HashSeed,
    /// Keys are counted by the bytes before this one, from the start; with `None` by those before `:`, once `stats
    /// detail on` has come.
    pub prefix_delimiter: Option<u8>,
    /// The number of cores that share the budget of the lock tables: `limits` has the whole budget.
    pub table_cores: u32,
}

impl Config {
    /// One core that has all CAS numbers to itself.
    #[must_use]
    pub const fn new(limits: Limits, unix_s_at_start: u64) -> Self {
        Self {
            limits,
            unix_s_at_start,
            cas_first: Cas::FIRST,
            cas_stride: 1,
            fence_first: Fence::FIRST,
            hash_seed: [0, 0],
            prefix_delimiter: None,
            table_cores: 1,
        }
    }

    /// The `index`th of `count` cores: its CAS numbers are its own.
    #[must_use]
    pub const fn strided(mut self, index: u32, count: u32) -> Self {
        self.cas_first = match Cas::new(index as u64 + 1) {
            Some(cas) => cas,
            None => Cas::FIRST,
        };
        self.cas_stride = count;
        self.fence_first = self.fence_first.step(index as u64);
        self
    }

    /// The same in a run that starts so many milliseconds after 1970: its fences are above those of
    /// every earlier run.
    #[must_use]
    pub const fn started_at(mut self, unix_ms: u64) -> Self {
        let index = self.fence_first.number() - Fence::FIRST.number();
        self.fence_first = Fence::first_at(unix_ms).step(index);
        self
    }

    /// The same as one of `count` cores with one budget for their tables of locks.
    #[must_use]
    pub const fn sharing_tables(mut self, count: u32) -> Self {
        self.table_cores = count;
        self
    }

    /// The same, counting keys by prefix from the start.
    #[must_use]
    pub const fn detailed(mut self, delimiter: u8) -> Self {
        self.prefix_delimiter = Some(delimiter);
        self
    }

    /// The same with another hash seed.
    #[must_use]
    pub const fn seeded(mut self, hash_seed: HashSeed) -> Self {
        self.hash_seed = hash_seed;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new(Limits::default(), 0)
    }
}
