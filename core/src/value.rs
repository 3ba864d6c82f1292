//! A value on its way from the store to the wire: borrowed, or shared.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

use bytes::Bytes;

/// The shortest value that is worth sharing, in bytes; a shorter one is copied. Up to here a copy
/// costs less than one more piece in a system call and a counter that several threads change.
pub const SHARED_VALUE_BYTES_MIN: usize = 16 << 10;

/// The bytes of an item's value, as a store has them.
///
/// Two values are equal if their bytes are, whichever way they are held.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// They lie in the store, and are copied by whoever wants to keep them.
    Borrowed(&'a [u8]),
    /// They are shared with the store: who wants to keep them need not copy them.
    Shared(&'a Bytes),
}

impl<'a> Value<'a> {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Default for Value<'_> {
    fn default() -> Self {
        Self::Borrowed(&[])
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Borrowed(bytes)
    }
}

impl<'a> From<&'a Bytes> for Value<'a> {
    fn from(bytes: &'a Bytes) -> Self {
        Self::Shared(bytes)
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Value<'_> {}

impl PartialEq<[u8]> for Value<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_bytes() == other
    }
}

impl Hash for Value<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "b\"{}\"", self.as_bytes().escape_ascii())
    }
}
