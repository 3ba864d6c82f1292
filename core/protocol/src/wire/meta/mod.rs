//! The meta text protocol: `mg`, `ms`, `md`, `ma`, `me` and `mn`; and, of latchd's own, `ml`, `mu` and `mo`.
//!
//! A meta command is a verb, a key and flags. Every verb accepts most flags, even those without a meaning for
//! it; [`request`] has the meaning of each.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Meta Commands", and `proto_parser.c`. Where we
//! differ: docs/PROTOCOL.md.

mod flag;
mod key;
mod options;
pub mod reply;
pub mod request;
pub mod session;

pub use flag::Flag;
pub use key::KeyBuffer;
pub use key::listed_form;
pub(crate) use key::put_key;

use crate::key::{Key, KeyForm};

/// A meta command that is about a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verb {
    /// `mg`
    Get,
    /// `ms`
    Set,
    /// `md`
    Delete,
    /// `ma`
    Arithmetic,
    /// `me`: everything about an item, for a person.
    Debug,
    /// `ml`: acquires the lock of a key.
    Lock,
    /// `mu`: releases it.
    Unlock,
}

impl Verb {
    /// Whether it changes the item.
    pub(crate) const fn changes(self) -> bool {
        match self {
            Self::Set | Self::Delete | Self::Arithmetic => true,
            Self::Get | Self::Debug | Self::Lock | Self::Unlock => false,
        }
    }

    /// Whether it may be executed as a session (`j`).
    pub(crate) const fn is_in_session(self) -> bool {
        match self {
            Self::Set | Self::Delete | Self::Arithmetic | Self::Lock | Self::Unlock => true,
            Self::Get | Self::Debug => false,
        }
    }
}

/// The form of the reply to a meta command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetaEnvelope<'a> {
    /// The codes for an outcome differ by verb: a miss is `EN` for `mg`, `NF` for `md`.
    pub(crate) verb: Verb,
    /// The key of the request, decoded. `k` shows it if there is no item.
    pub(crate) key: Key<'a>,
    /// The form of the key in the request, and so in the reply.
    pub(crate) key_form: KeyForm,
    /// The flags of the request. They select the fields to show, and their order. Empty if none of them shows
    /// anything.
    pub(crate) flags: &'a [u8],
    /// `q`: a response that brings nothing new is not sent.
    pub(crate) quiet: bool,
    /// `v`: show the value.
    pub(crate) with_value: bool,
    /// The length of the value of `ms`. `s` shows it if the value is not stored.
    pub(crate) value_bytes: usize,
}

#[cfg(test)]
mod tests;
