//! The commands and protocols that an operator allows: memcached's switches `-F`, `-X`, `-W`, `-A`, `-B`, `-Y`
//! and `-S`.
//!
//! A disabled command is refused by the decoder, so neither the core nor a store sees it.
//!
//! Source: memcached 1.6.45 `memcached.c`, `usage`; its answers in `proto_text.c` and `proto_bin.c`.

use super::locked_reply::LockedReply;

/// The allowed commands, protocols and clients. By default everything but `shutdown`, for every client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, and all combinations are real"
)]
pub struct Allowed {
    /// `flush_all`. Otherwise `CLIENT_ERROR flush_all not allowed`, 0x0020.
    pub flush_all: bool,
    /// Commands that show the names of keys: `keys`, `stats locks`, `stats cachedump`, and the dumps of
    /// `lru_crawler`. Otherwise `CLIENT_ERROR keys not allowed` and so on, 0x0020.
    pub listing: bool,
    /// `watch`. Otherwise `CLIENT_ERROR watch commands not allowed`. The same error for topics that show keys,
    /// without [`listing`](Self::listing).
    pub watching: bool,
    /// `shutdown`. Otherwise `SERVER_ERROR: shutdown not enabled`.
    pub shutdown: bool,
    /// The protocols.
    pub protocols: Protocols,
    /// The clients that may send commands.
    pub admission: Admission,
    /// The reply about another client's lock, for a client that uses no locks.
    pub locked_reply: LockedReply,
}

/// The allowed protocols. A client of another one gets an error, or is closed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Protocols {
    /// All of them: the first byte of a connection decides.
    #[default]
    Any,
    /// Classic and meta text.
    Text,
    /// Binary.
    Binary,
}

/// The clients that may send commands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Admission {
    /// Every client.
    #[default]
    Open,
    /// Clients that have sent a name and a password. Authentication is in text, so text is the only protocol.
    ByPassword,
    /// The same, by SASL in the binary protocol, which is the only protocol.
    BySasl,
    /// The same, in either protocol by its own method.
    Either,
}

impl Admission {
    /// Whether a client of the binary protocol can authenticate.
    pub(crate) const fn is_by_sasl(self) -> bool {
        match self {
            Self::Open | Self::ByPassword => false,
            Self::BySasl | Self::Either => true,
        }
    }
}

impl Allowed {
    /// The resulting protocols.
    pub(crate) const fn protocols(self) -> Protocols {
        match self.admission {
            Admission::Open | Admission::Either => self.protocols,
            Admission::ByPassword => Protocols::Text,
            Admission::BySasl => Protocols::Binary,
        }
    }
}

impl Default for Allowed {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Allowed {
    /// The default.
    pub const DEFAULT: Self = Self {
        flush_all: true,
        listing: true,
        watching: true,
        shutdown: false,
        protocols: Protocols::Any,
        admission: Admission::Open,
        locked_reply: LockedReply::Locked,
    };
}
