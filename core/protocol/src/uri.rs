//! Bytes as in a URL: letters, digits and `-._~` stay, any other byte is `%` and two hexadecimal digits.
//!
//! Source: memcached 1.6.45 `util.c`, `uriencode_init`.

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
pub(crate) fn put(bytes: &[u8], out: &mut alloc::vec::Vec<u8>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_one() {
        let bytes = b"aZ09-._~ %,=/\"<\x00\xff\xc3\xa9";
        let mut out = alloc::vec::Vec::new();
        put(bytes, &mut out);
        let text = alloc::format!("{}", UriEncoded(bytes));
        assert_eq!(text, "aZ09-._~%20%25%2C%3D%2F%22%3C%00%FF%C3%A9");
        assert_eq!(out, text.as_bytes());
    }
}
