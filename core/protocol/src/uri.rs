//! Bytes as in a URL: letters, digits and `-._~` stay, any other byte is `%` and two hexadecimal digits.
//!
//! Source: memcached 1.6.45 `util.c`, `uriencode_init`.

use alloc::vec::Vec;
use core::fmt::{Display, Formatter, Result, Write};

/// Displays these bytes as in a URL: one word, from which the bytes can be read back.
#[derive(Clone, Copy, Debug)]
pub struct UriEncoded<'a>(pub &'a [u8]);

impl Display for UriEncoded<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        for &byte in self.0 {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.write_char(char::from(byte))?;
            } else {
                write!(out, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// Appends these bytes as in a URL.
pub(crate) fn put(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

/// The bytes that this text stands for. A `%` without two hexadecimal digits stands for itself.
#[must_use]
pub fn decode(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| *byte == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| core::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(*byte));
        rest = if code.is_some() {
            behind.get(2..).unwrap_or_default()
        } else {
            behind
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_one() {
        let bytes = b"aZ09-._~ %,=/\"<\x00\xff\xc3\xa9";
        let mut out = Vec::new();
        put(bytes, &mut out);
        let text = alloc::format!("{}", UriEncoded(bytes));
        assert_eq!(text, "aZ09-._~%20%25%2C%3D%2F%22%3C%00%FF%C3%A9");
        assert_eq!(out, text.as_bytes());
        assert_eq!(decode(&out), bytes);
    }

    #[test]
    fn percent_encoded_bytes_are_decoded() {
        for (encoded, bytes) in [
            ("job", &b"job"[..]),
            ("a%20b%25", b"a b%"),
            ("%C3%a9", b"\xc3\xa9"),
            ("%", b"%"),
            ("%4", b"%4"),
            ("%zz", b"%zz"),
            ("%+1", b"%+1"),
            ("%00", b"\0"),
        ] {
            assert_eq!(decode(encoded.as_bytes()), bytes, "{encoded}");
        }
    }
}
