//! What the wire needs of a request and the core does not: an [`Envelope`] travels beside a command
//! and says how its reply is to be written.

use super::{binary, classic, meta};

/// What `version` shows: the memcached whose answers these are, then our own.
///
/// Clients go by the first number. libmemcached's conformance program, for one, takes a server below
/// 1.6 to refuse arguments of `version` and `quit`, which memcached has let through since.
pub const VERSION: &str = concat!("1.6.45-latchd-", env!("CARGO_PKG_VERSION"));

/// How a request wants to be answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Envelope<'a> {
    /// In the words of the classic text protocol.
    Classic(classic::ClassicEnvelope),
    /// By a code of two letters and the flags that were asked for.
    Meta(meta::MetaEnvelope<'a>),
    /// By packets, or not at all where it is quiet.
    Binary(binary::BinaryEnvelope<'a>),
}
