//! What an operator allows clients to ask for: memcached's switches `-F`, `-X`, `-W`, `-A`, `-B`, `-Y` and
//! `-S`.
//!
//! What is not allowed is refused where its request is decoded, so that neither the core nor a store
//! ever hears of it.
//!
//! Source: memcached 1.6.45 `memcached.c`, `usage`; its answers in `proto_text.c` and `proto_bin.c`.

use super::locked_reply::LockedReply;

/// What clients may ask for. By default everything but the end of the server, by everybody.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, and all combinations are real"
)]
pub struct Allowed {
    /// `flush_all`. Otherwise `CLIENT_ERROR flush_all not allowed`, 0x0020.
    pub flush_all: bool,
    /// What tells the names of keys: `keys`, `stats locks`, `stats cachedump`, and the dumps of
    /// `lru_crawler`. Otherwise `CLIENT_ERROR keys not allowed` and so on, 0x0020.
    pub listing: bool,
    /// `watch`. Otherwise `CLIENT_ERROR watch commands not allowed`, and so it is without
    /// [`listing`](Self::listing) for what tells keys.
    pub watching: bool,
    /// `shutdown`. Otherwise `SERVER_ERROR: shutdown not enabled`.
    pub shutdown: bool,
    /// Which protocols are spoken.
    pub protocols: Protocols,
    /// Who may ask at all.
    pub admission: Admission,
    /// What those are told who meet a lock and use none.
    pub locked_reply: LockedReply,
}

/// Which protocols are spoken. A client of another one is told an error, or closed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Protocols {
    /// All of them: the first byte of a connection tells.
    #[default]
    Any,
    /// Classic and meta text.
    Text,
    /// Binary.
    Binary,
}

/// Who may ask at all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Admission {
    /// Whoever connects.
    #[default]
    Open,
    /// Whoever has shown a name and a password. It is done in text, so text is all that is spoken.
    ByPassword,
    /// The same, by SASL in the binary protocol, which is all that is spoken.
    BySasl,
    /// The same, in each protocol in its way.
    Either,
}

impl Admission {
    /// Whether a client of the binary protocol can show who it is.
    pub(crate) const fn is_by_sasl(self) -> bool {
        match self {
            Self::Open | Self::ByPassword => false,
            Self::BySasl | Self::Either => true,
        }
    }
}

impl Allowed {
    /// Which protocols are spoken in the end.
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
