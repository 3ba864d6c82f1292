//! The keys that a client can use.
//!
//! A key is 1 to 250 bytes. A key with blanks or control bytes cannot stand on a line. Meta commands carry it
//! in base64, which is a third longer, and the bound applies to the encoded form.
//!
//! Source: memcached 1.6.45 `doc/protocol.txt`, "Keys" and "Meta Commands"; `KEY_MAX_LENGTH`.

use latchd_protocol::key::{KEY_BYTES_MAX, Key, KeyForm};
use latchd_protocol::wire::meta::listed_form;

use super::terms::TermsError;

/// A key that a meta command can carry.
///
/// # Errors
/// [`TermsError`] if no server can have it.
pub fn wire_key(bytes: &[u8]) -> Result<Key<'_>, TermsError> {
    let key = Key::new(bytes).ok_or(TermsError::Key)?;
    let encoded_bytes = 4 * bytes.len().div_ceil(3);
    if needs_meta(key) && encoded_bytes > KEY_BYTES_MAX {
        return Err(TermsError::EncodedKey);
    }
    Ok(key)
}

/// Whether only meta commands can carry it.
fn needs_meta(key: Key<'_>) -> bool {
    listed_form(key.as_bytes()) == KeyForm::Binary
}

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
        assert_eq!(blank(187), Err(TermsError::EncodedKey));
        assert!(wire_key(&[b'k'; 250]).is_ok());
        assert_eq!(wire_key(&[b'k'; 251]), Err(TermsError::Key));
        assert_eq!(wire_key(b""), Err(TermsError::Key));
    }
}
