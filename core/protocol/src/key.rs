//! The name of an item, already checked.
//!
//! - K1: A key has 1 to [`KEY_BYTES_MAX`] bytes. Holding a [`Key`] is the proof, so no caller checks again.
//!
//! Further limits (no blanks and line ends in the text protocols) belong to each wire and follow from the way
//! it splits a line.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Keys"; `KEY_MAX_LENGTH` in `memcached.h`.

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// How a key is written in the meta text protocol.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum KeyForm {
    /// As it is.
    #[default]
    Plain,
    /// In base64, with flag `b`: the key's bytes could not stand on a line.
    Binary,
}

/// A legal key: 1 to 250 bytes (K1), borrowed from the request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key<'a>(&'a [u8]);

impl<'a> Key<'a> {
    /// Checks the length of `bytes`; `None` if it is 0 or over [`KEY_BYTES_MAX`].
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            None
        } else {
            Some(Self(bytes))
        }
    }

    /// The key's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_250_bytes() {
        assert!(Key::new(b"").is_none());
        assert!(Key::new(b"k").is_some());
        assert!(Key::new(&[b'k'; 250]).is_some());
        assert!(Key::new(&[b'k'; 251]).is_none());
    }
}
