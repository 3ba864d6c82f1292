//! The owner of locks, bound wins and places in queues.
//!
//! The tables of the engine speak of owners alone. A transport makes an owner of each connection
//! ([`Owner::from`]) and of each session; only the wire and the transport know connections.

use core::fmt;

use crate::conn_id::ConnId;

/// Names an owner. A number is never used again while the process lives: a late release of an owner that has ended
/// cannot name a live one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Owner(u64);

/// The bit of a session.
const SESSION: u64 = 1 << 63;

impl Owner {
    /// The owner with this number.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The session with this number, which no connection has.
    #[must_use]
    pub const fn of_session(number: u64) -> Self {
        Self(number | SESSION)
    }

    /// The number, for logs and `me`.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & !SESSION
    }

    /// Whether it is a session. A session that requests what it has already is granted it again, since its client may
    /// not have seen the reply.
    #[must_use]
    pub const fn is_session(self) -> bool {
        self.0 & SESSION != 0
    }
}

impl From<ConnId> for Owner {
    /// The owner that a connection is.
    fn from(conn: ConnId) -> Self {
        Self(conn.number())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(formatter)
    }
}
