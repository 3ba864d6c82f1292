//! The classic text protocol: get, set and their kin, locks, and everything about the server.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`; for `lock`, `unlock`, `unlock_all` and `keys`
//! yrmcds 1.1 `docs/locking.md` and `docs/keys.md`. Where we differ: docs/PROTOCOL.md.

mod dump;
pub mod reply;
pub mod request;

pub use self::dump::Dump;
use crate::reply::KeysPage;
use crate::stats::StatsTopic;

/// The form of the reply to a classic command.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ClassicEnvelope {
    /// One key of `get`, `gets`, `gat` or `gats`: `VALUE` and the value, or nothing.
    Get {
        /// With the item's version (`gets`, `gats`).
        with_cas: bool,
        /// `END` follows.
        last: bool,
    },
    /// `touch`: `TOUCHED` or `NOT_FOUND`.
    Touch {
        /// Nothing is sent, not even an error.
        noreply: bool,
    },
    /// A change: one word for the outcome.
    Change {
        /// Nothing is sent, not even an error.
        noreply: bool,
    },
    /// `incr` or `decr`: the number.
    Arithmetic {
        /// Nothing is sent, not even an error.
        noreply: bool,
    },
    /// `keys`: a `VALUE` line per key, and `END` after the last page.
    Keys,
    /// A dump of all items: a line per item.
    Dump(Dump),
    /// `stats`: a `STAT` line per value, and `END`.
    Stats(StatsTopic),
    /// `stats reset`.
    StatsReset,
}

impl ClassicEnvelope {
    /// Whether nothing is sent, not even an error.
    pub(crate) const fn is_silent(self) -> bool {
        match self {
            Self::Touch { noreply } | Self::Change { noreply } | Self::Arithmetic { noreply } => {
                noreply
            }
            Self::Get { .. } | Self::Keys | Self::Dump(_) | Self::Stats(_) | Self::StatsReset => {
                false
            }
        }
    }

    /// The number of items of a listing's page to show, if that is limited, and whether it is the last.
    pub(crate) fn shows(self, page: &KeysPage<'_>) -> (u32, bool) {
        match self {
            Self::Dump(dump) => dump.shows(page),
            Self::Get { .. }
            | Self::Touch { .. }
            | Self::Change { .. }
            | Self::Arithmetic { .. }
            | Self::Keys
            | Self::Stats(_)
            | Self::StatsReset => (0, page.next.is_none()),
        }
    }
}

#[cfg(test)]
mod tests;
