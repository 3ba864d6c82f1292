//! Which keys a client can ask for.
//!
//! A key is 1 to 250 bytes. One with blanks or control bytes cannot stand on a line: meta commands
//! carry it in base64, a third longer, and the bound is on what is written. The classic protocol,
//! which `lock` belongs to, cannot carry it at all.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Keys" and "Meta Commands"; `KEY_MAX_LENGTH`.

use core::fmt;

use crate::key::{KEY_BYTES_MAX, Key, KeyForm};
use crate::wire::meta::listed_form;

/// Why a server can have no such key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum KeyError {
    /// It is empty, or too long.
    Length,
    /// It has blanks or control bytes, and in base64 it is too long.
    EncodedLength,
    /// It has blanks or control bytes, and is of an item to lock.
    Blanks,
}

/// The key of a lease, or of a value that is computed.
///
/// # Errors
/// [`KeyError`] if no server can have it.
pub fn leased_key(bytes: &[u8]) -> Result<Key<'_>, KeyError> {
    let key = Key::new(bytes).ok_or(KeyError::Length)?;
    let encoded_bytes = 4 * bytes.len().div_ceil(3);
    if listed_form(key.as_bytes()) == KeyForm::Binary && encoded_bytes > KEY_BYTES_MAX {
        return Err(KeyError::EncodedLength);
    }
    Ok(key)
}

/// The key of an item whose lock is to be bound to a connection.
///
/// # Errors
/// [`KeyError`] if `lock` cannot name it.
pub fn bound_key(bytes: &[u8]) -> Result<Key<'_>, KeyError> {
    let key = Key::new(bytes).ok_or(KeyError::Length)?;
    match listed_form(key.as_bytes()) {
        KeyForm::Plain => Ok(key),
        KeyForm::Binary => Err(KeyError::Blanks),
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Length => "a key is 1 to 250 bytes",
            Self::EncodedLength => {
                "a key with blanks or control bytes is at most 186 bytes: it is sent in base64, and \
                 that is at most 250"
            }
            Self::Blanks => "the key of a connection-bound lock has no blanks and control bytes",
        })
    }
}

impl core::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_bounded() {
        let blank = |length: usize| {
            let mut bytes = alloc::vec![b'k'; length];
            bytes[0] = b' ';
            leased_key(&bytes).map(|_| ())
        };
        assert_eq!(blank(186), Ok(()));
        assert_eq!(blank(187), Err(KeyError::EncodedLength));
        assert!(leased_key(&[b'k'; 250]).is_ok());
        assert_eq!(leased_key(&[b'k'; 251]), Err(KeyError::Length));
        assert_eq!(leased_key(b""), Err(KeyError::Length));
    }

    #[test]
    fn lock_names_only_what_stands_on_a_line() {
        assert!(bound_key(b"k").is_ok());
        assert!(bound_key(b"\xff").is_ok());
        assert_eq!(bound_key(b"a b"), Err(KeyError::Blanks));
        assert_eq!(bound_key(b"a\n"), Err(KeyError::Blanks));
    }
}
