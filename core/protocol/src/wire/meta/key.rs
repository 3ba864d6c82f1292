//! Binary keys: written in base64 on the wire (flag `b`), stored decoded.
//!
//! Decoding is as lenient as memcached's ([`base64_text`]), so a key may be returned in another form than it was
//! sent in.

use alloc::vec::Vec;

use crate::base64_text;
use crate::key::{KEY_BYTES_MAX, Key, KeyForm};
use crate::wire::scan::is_plain;

/// Space for one decoded key, lent to [`Connection::next`](crate::connection::Connection::next).
#[derive(Clone, Debug)]
pub struct KeyBuffer([u8; KEY_BYTES_MAX]);

impl KeyBuffer {
    /// A buffer to lend, for any number of keys, one after the other.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; KEY_BYTES_MAX])
    }

    /// Decodes a key of at most [`KEY_BYTES_MAX`] bytes; `None` if it is not base64.
    pub(crate) fn decode<'a>(&'a mut self, encoded: &[u8]) -> Option<Key<'a>> {
        let decoded_bytes = base64_text::decode(encoded, &mut self.0)?;
        Key::new(self.0.get(..decoded_bytes)?)
    }
}

impl Default for KeyBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// The form of a key in a listing, whichever protocol stored it: plain if a line can carry it.
#[must_use]
pub fn listed_form(key: &[u8]) -> KeyForm {
    if is_plain(key) {
        KeyForm::Plain
    } else {
        KeyForm::Binary
    }
}

/// The form of an item's key in a reply: the stored one. The exception is a key that the binary protocol stored
/// and that no line can carry: a request in base64 gets it in base64.
#[inline]
pub(crate) fn shown_form(key: &[u8], stored: KeyForm, asked: KeyForm) -> KeyForm {
    match (stored, asked) {
        (KeyForm::Plain, KeyForm::Binary) => listed_form(key),
        (KeyForm::Plain, KeyForm::Plain) | (KeyForm::Binary, _) => stored,
    }
}

/// Appends a key in this form.
pub(crate) fn put_key(key: &[u8], form: KeyForm, out: &mut Vec<u8>) {
    match form {
        KeyForm::Plain => out.extend_from_slice(key),
        KeyForm::Binary => base64_text::put(key, out),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use quickcheck::{TestResult, quickcheck};

    use super::*;

    fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
        KeyBuffer::new()
            .decode(encoded)
            .map(|key| key.as_bytes().to_vec())
    }

    #[test]
    fn keys_decode_as_leniently_as_in_memcached() {
        assert_eq!(decoded(b"Zm9vYmFy").as_deref(), Some(&b"foobar"[..]));
        assert_eq!(decoded(b"Zm9vYg==").as_deref(), Some(&b"foob"[..]));
        assert_eq!(decoded(b"Zm_9vYg=_=").as_deref(), Some(&b"foob"[..]));
        assert_eq!(decoded(b"aaa=aaaa").as_deref(), Some(&b"\x69\xa6"[..]));
        assert_eq!(decoded(b"a=aa").as_deref(), Some(&b"\x68\x06"[..]));
        assert_eq!(decoded(b"a"), None);
        assert_eq!(decoded(b"!!!"), None);
        assert_eq!(decoded(b"a==="), None);
        assert_eq!(decoded(b"===="), None);
        // An error behind whole groups makes the whole key invalid.
        assert_eq!(decoded(b"Zm9vYmF"), None);
        assert_eq!(decoded(b"Zm9va==="), None);
        assert_eq!(decoded(b"Zm9v===="), None);
        assert_eq!(decoded(b""), None);
    }

    quickcheck! {
        fn a_binary_key_that_is_written_reads_back(key: Vec<u8>) -> TestResult {
            // The encoded form of 187 bytes is the longest legal key.
            if key.is_empty() || key.len() > 187 {
                return TestResult::discard();
            }
            let mut written = Vec::new();
            put_key(&key, KeyForm::Binary, &mut written);
            assert!(written.len() <= KEY_BYTES_MAX);
            TestResult::from_bool(decoded(&written) == Some(key))
        }
    }
}
