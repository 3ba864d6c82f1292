//! Whether a request may change the version that is there.
//!
//! Source: memcached 1.6.45 `memcached.c`, `do_store_item`.

use crate::command::Guard;
use crate::item::Cas;

/// The judgement of a guard on an item's version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::engine) enum Guarded {
    /// It may be changed.
    Pass,
    /// It may be overwritten, and stays stale.
    PassStale,
    /// It is another version.
    Fail,
}

impl Guard {
    pub(in crate::engine) fn judge(self, cas: Cas) -> Guarded {
        match self {
            Self::None => Guarded::Pass,
            Self::Match(wanted) | Self::MatchElseStale(wanted) if wanted == cas => Guarded::Pass,
            Self::MatchElseStale(wanted) if wanted < cas => Guarded::PassStale,
            Self::Match(_) | Self::MatchElseStale(_) | Self::Never => Guarded::Fail,
        }
    }
}
