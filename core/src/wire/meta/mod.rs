//! The meta text protocol: `mg`, `ms`, `md`, `ma`, `me` and `mn`; and, of latchd's own, `ml` and `mu`.
//!
//! A meta command is a verb, a key and flags. Most flags are accepted by every verb, whether they
//! mean something to it or not; what each means where is in [`request`].
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Meta Commands", and `proto_parser.c`. Where we
//! differ: docs/PROTOCOL.md.

mod flag;
mod key;
mod options;
pub mod reply;
pub mod request;

pub use flag::Flag;
pub use key::KeyBuffer;
pub(crate) use key::{listed_form, put_key};

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
    /// `ml`: takes the lock of a key.
    Lock,
    /// `mu`: gives it back.
    Unlock,
}

impl Verb {
    /// Whether it changes what is stored.
    pub(crate) const fn changes(self) -> bool {
        match self {
            Self::Set | Self::Delete | Self::Arithmetic => true,
            Self::Get | Self::Debug | Self::Lock | Self::Unlock => false,
        }
    }
}

/// How a meta command wants to be answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetaEnvelope<'a> {
    /// The same outcome has another code for another verb: a miss is `EN` for `mg`, `NF` for `md`.
    pub(crate) verb: Verb,
    /// The key asked for, decoded: what `k` shows where there is no item.
    pub(crate) key: Key<'a>,
    /// How the key was written, and so how it is shown.
    pub(crate) key_form: KeyForm,
    /// The flags as they stand in the request. They say what to show, and in which order. Empty if none of them
    /// shows anything.
    pub(crate) flags: &'a [u8],
    /// `q`: a response that says nothing new is not sent.
    pub(crate) quiet: bool,
    /// `v`: the value is to be shown.
    pub(crate) with_value: bool,
    /// How long the value of `ms` is: what `s` shows if it is not stored.
    pub(crate) value_bytes: usize,
}

#[cfg(test)]
mod tests;
