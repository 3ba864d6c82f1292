//! The keys that a client can use.
//!
//! A key is 1 to 250 bytes. A key with blanks or control bytes cannot stand on a line. Meta commands carry it
//! in base64, which is a third longer, and the bound applies to the encoded form.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Keys" and "Meta Commands"; `KEY_MAX_LENGTH`.

use core::fmt;

use latchd_protocol::key::{KEY_BYTES_MAX, Key, KeyForm};
use latchd_protocol::wire::meta::listed_form;

/// Why no server can have such a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum KeyError {
    /// It is empty, or too long.
    Length,
    /// It has blanks or control bytes, and in base64 it is too long.
    EncodedLength,
}

/// A key that a meta command can carry.
///
/// # Errors
/// [`KeyError`] if no server can have it.
pub fn wire_key(bytes: &[u8]) -> Result<Key<'_>, KeyError> {
    let key = Key::new(bytes).ok_or(KeyError::Length)?;
    let encoded_bytes = 4 * bytes.len().div_ceil(3);
    if needs_meta(key) && encoded_bytes > KEY_BYTES_MAX {
        return Err(KeyError::EncodedLength);
    }
    Ok(key)
}

/// Whether only meta commands can carry it.
fn needs_meta(key: Key<'_>) -> bool {
    listed_form(key.as_bytes()) == KeyForm::Binary
}

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Length => "a key is 1 to 250 bytes",
            Self::EncodedLength => {
                "a key with blanks or control bytes is at most 186 bytes: it is sent in base64, and \
                 that is at most 250"
            }
        })
    }
}

impl core::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_bound_counts_encoded_bytes() {
        let blank = |length: usize| {
            let mut bytes = alloc::vec![b'k'; length];
            bytes[0] = b' ';
            wire_key(&bytes).map(|_| ())
        };
        assert_eq!(blank(186), Ok(()));
        assert_eq!(blank(187), Err(KeyError::EncodedLength));
        assert!(wire_key(&[b'k'; 250]).is_ok());
        assert_eq!(wire_key(&[b'k'; 251]), Err(KeyError::Length));
        assert_eq!(wire_key(b""), Err(KeyError::Length));
    }
}
