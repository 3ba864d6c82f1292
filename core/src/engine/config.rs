//! The settings of a new core.

use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;

use crate::limits::Limits;
use crate::sessions::{SESSIONS_MAX, SessionLimits};
use crate::store::HashSeed;

/// The settings of a new core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The limits of all shards together.
    pub limits: Limits,
    /// Unix seconds at [`Instant`](crate::Instant) 0, for exptimes that are dates.
    pub unix_s_at_start: u64,
    /// The first CAS it gives.
    pub cas_first: Cas,
    /// The first fence it gives.
    pub fence_first: Fence,
    /// The secret of its hashes, of keys and of tokens. A server takes it from the system's randomness, so that no client can
    /// choose keys that are slow to find.
    pub hash_seed: HashSeed,
    /// The bounds on sessions. By default they are not bounded for each address.
    pub sessions: SessionLimits,
    /// `stats detail` counts keys by their prefix: the bytes before this one. It counts from the start. With `None`, the byte is
    /// `:`, and `stats detail on` begins the counting.
    pub prefix_delimiter: Option<u8>,
}

impl Config {
    /// A core within these limits.
    #[must_use]
    pub const fn new(limits: Limits, unix_s_at_start: u64) -> Self {
        Self {
            limits,
            unix_s_at_start,
            cas_first: Cas::FIRST,
            fence_first: Fence::FIRST,
            hash_seed: [0, 0],
            sessions: SessionLimits {
                sessions_max: SESSIONS_MAX,
                per_address_max: SESSIONS_MAX,
            },
            prefix_delimiter: None,
        }
    }

    /// The same in a run that starts so many milliseconds after 1970: its fences are above those of
    /// every earlier run.
    #[must_use]
    pub const fn started_at(mut self, unix_ms: u64) -> Self {
        self.fence_first = Fence::first_at(unix_ms);
        self
    }

    /// The same, counting keys by prefix from the start.
    #[must_use]
    pub const fn detailed(mut self, delimiter: u8) -> Self {
        self.prefix_delimiter = Some(delimiter);
        self
    }

    /// The same with these bounds on sessions.
    #[must_use]
    pub const fn with_sessions(mut self, sessions: SessionLimits) -> Self {
        self.sessions = sessions;
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
