//! A value on its way from the store to the wire: borrowed, or shared.

use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

use bytes::Bytes;

/// The default for the largest value, in bytes. Source: memcached 1.6.45, `-I`.
pub const VALUE_BYTES_MAX_DEFAULT: usize = 1 << 20;

/// The shortest value that is worth sharing, in bytes; a shorter one is copied. Up to here a copy
/// costs less than one more piece in a system call and a counter that several threads change.
pub const SHARED_VALUE_BYTES_MIN: usize = 16 << 10;

/// The bytes of an item's value, as a store has them.
///
/// Two values are equal if their bytes are, whichever way they are held.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// The bytes lie in the store. A caller that keeps them copies them.
    Borrowed(&'a [u8]),
    /// The bytes are shared with the store. A caller that keeps them need not copy them.
    Shared(&'a Bytes),
}

impl<'a> Value<'a> {
    /// The same value, shared if it is large enough to be worth it. The one copy needed for that lies in
    /// `copy`. A store that shares (`SHARES_VALUES`) must do this before
    /// other threads wait for it. If the allocator refuses, the value stays as it is, and the store meets the
    /// same refusal later.
    #[must_use]
    pub fn share(self, copy: &'a mut Option<Bytes>) -> Self {
        match self {
            Self::Borrowed(bytes) if bytes.len() >= SHARED_VALUE_BYTES_MIN => {
                copied(bytes).map_or(self, |shared| Self::Shared(copy.insert(shared)))
            }
            Self::Borrowed(_) | Self::Shared(_) => self,
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// A copy, or `None` if there is no memory for it.
fn copied(bytes: &[u8]) -> Option<Bytes> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(Bytes::from(copy))
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

impl PartialEq<&[u8]> for Value<'_> {
    fn eq(&self, other: &&[u8]) -> bool {
        self.as_bytes() == *other
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn only_a_large_value_is_shared_and_it_is_copied_once() {
        let bytes = vec![7; SHARED_VALUE_BYTES_MIN];
        let (mut copy, mut unused) = (None, None);
        let large = Value::Borrowed(&bytes);
        let Value::Shared(shared) = large.share(&mut copy) else {
            panic!("it is large enough")
        };
        assert_eq!(Value::Shared(shared), large);
        let Value::Shared(again) = Value::Shared(shared).share(&mut unused) else {
            panic!("it was shared before")
        };
        assert_eq!(again.as_ptr(), shared.as_ptr());
        let small = Value::Borrowed(&bytes[1..]);
        assert!(matches!(small.share(&mut unused), Value::Borrowed(_)));
        assert_eq!(unused, None);
    }

    #[test]
    fn values_are_equal_by_their_bytes_wherever_these_lie() {
        let hash = |value: Value<'_>| {
            let mut hasher = siphasher::sip::SipHasher13::new();
            value.hash(&mut hasher);
            hasher.finish()
        };
        let shared = Bytes::from_static(b"abc");
        let (one, same, other) = (
            Value::from(&shared),
            Value::Borrowed(b"abc"),
            Value::Borrowed(b"abd"),
        );
        assert!(matches!(one, Value::Shared(_)));
        assert!(one == same && one != other);
        assert!(one == b"abc".as_slice() && one != b"abd".as_slice());
        assert_eq!(hash(one), hash(same));
        assert_ne!(hash(one), hash(other));
    }
}
