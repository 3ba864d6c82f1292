//! The small words of ops, and their meaning.

use latchd_protocol::command::{Guard, LOCK_METADATA_BYTES_MAX, LockMetadata};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::Cas;
use latchd_protocol::key::Key;

use super::{CLIENTS, KEYS};

/// Declares a small type with a number for each value.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(u8);

        impl $name {
            /// The one with this number.
            #[must_use]
            pub const fn new(number: u8) -> Self {
                Self(number)
            }

            /// Which of `count` it is: the numbers beyond are the first ones again.
            ///
            /// # Panics
            /// If there are none.
            #[must_use]
            pub const fn among(self, count: usize) -> usize {
                self.0 as usize % count
            }
        }
    };
}

numbered! {
    /// A client, by its number. A layer has some, of which each number means one (`among`).
    ClientNumber
}

numbered! {
    /// A key, by its number. A layer has some, of which each number means one (`among`).
    SmallKey
}

impl ClientNumber {
    /// Whether it is a session among [`CLIENTS`]: the last of them.
    #[must_use]
    pub const fn is_session(self) -> bool {
        self.among(CLIENTS) == CLIENTS - 1
    }
}

impl SmallKey {
    /// The one of [`KEYS`] that it is.
    #[must_use]
    pub fn name(self) -> Key<'static> {
        KEYS.get(self.among(KEYS.len()))
            .copied()
            .and_then(Key::new)
            .expect("every key has 1 to 250 bytes")
    }
}

/// A value, by its notable property.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SmallValue {
    /// No bytes.
    #[default]
    Empty,
    /// No number.
    Word,
    /// A number.
    Number,
    /// The greatest number there is.
    Greatest,
    /// A number that may gain or lose a digit.
    Round,
    /// A number that a `decr` has padded.
    Padded,
    /// One of which two are too long.
    Long,
}

impl SmallValue {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Empty,
        Self::Word,
        Self::Number,
        Self::Greatest,
        Self::Round,
        Self::Padded,
        Self::Long,
    ];

    /// Such bytes, for a layer that tells values apart by these.
    #[must_use]
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Empty => b"",
            Self::Word => b"v",
            Self::Number => b"7",
            Self::Greatest => b"18446744073709551615",
            Self::Round => b"10",
            Self::Padded => b"7 ",
            Self::Long => &[b'x'; 40],
        }
    }
}

/// The metadata of a lock, by its notable property.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SmallMetadata {
    /// A word.
    Word,
    /// Bytes that a line cannot carry.
    Binary,
    /// As many bytes as there may be.
    Most,
}

impl SmallMetadata {
    /// The metadata in a command.
    pub(super) fn lower(self) -> LockMetadata<'static> {
        const MOST: &[u8] = &[b'm'; LOCK_METADATA_BYTES_MAX];
        let metadata = LockMetadata::new(match self {
            Self::Word => b"job-7",
            Self::Binary => b"\0 ,=%\r\n\xff",
            Self::Most => MOST,
        });
        metadata.expect("1 to 250 bytes")
    }
}

/// A version of an item, by the clients' knowledge of it. Each layer decides whether clients share
/// their knowledge.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CasChoice {
    /// The last one that a client was told.
    Current,
    /// The one before.
    Former,
    /// One above any that a client was told.
    Higher,
    /// One above any that there will be.
    Highest,
}

/// [`Guard`] with a [`CasChoice`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum GuardChoice {
    /// Always.
    #[default]
    None,
    /// If this is the item's version.
    Match(CasChoice),
    /// If this is the item's version, or else stale.
    MatchElseStale(CasChoice),
    /// If its version is 0.
    Never,
}

impl GuardChoice {
    pub(super) fn lower(self, version: impl Fn(CasChoice) -> Cas) -> Guard {
        match self {
            Self::None => Guard::None,
            Self::Match(cas) => Guard::Match(version(cas)),
            Self::MatchElseStale(cas) => Guard::MatchElseStale(version(cas)),
            Self::Never => Guard::Never,
        }
    }
}

/// A grant, by the clients' knowledge of it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FenceChoice {
    /// The last one of the key that a client was told.
    Current,
    /// The one before.
    Former,
}

/// The grant that a request releases.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReleaseChoice {
    /// The client's own.
    Own,
    /// The client's own, if it is this one.
    OwnGrant(FenceChoice),
    /// This one, of any client.
    Grant(FenceChoice),
}

/// The translation of the small words of a request in one layer; `'a` is the lifetime of its keys
/// and values.
pub trait Meaning<'a> {
    /// A key.
    fn key(&self, key: SmallKey) -> Key<'a> {
        key.name()
    }

    /// A value.
    fn value(&self, value: SmallValue) -> &'a [u8] {
        value.bytes()
    }

    /// A version of the item with this key.
    fn version(&self, key: SmallKey, choice: CasChoice) -> Cas;

    /// A grant of the lock of this key.
    fn fence(&self, key: SmallKey, choice: FenceChoice) -> Fence;
}
