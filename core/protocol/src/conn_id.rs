//! Which connection it was: the one name that engine, wire and transport have in common.

use core::fmt;

/// Names a connection. Never reused while the process lives, unlike a file descriptor: a late
/// release by a dead client can then never name a live one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnId(u64);

impl ConnId {
    /// The connection with this number.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number, for logs and `me`.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
