//! Converts bytes to readable text and back.
//!
//! - B1: Shown text contains no terminal control: control bytes, invisible characters, and characters that change the
//!   text direction are shown as escapes.
//! - B2: Shown text, typed again between quotes, gives the same bytes.

use std::fmt::Write as _;

/// `bytes` as text: printable characters as they are, `\n`, `\r`, `\t` and `\\`, other bytes as `\xNN`.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\\' => text.push_str("\\\\"),
                char if is_unseen(char) => {
                    escape(char.encode_utf8(&mut [0; 4]).as_bytes(), &mut text);
                }
                char => text.push(char),
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// Control characters, and characters of Unicode's category Cf that are invisible or change the text direction.
fn is_unseen(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A line without its line end.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The length of the front of `bytes` that ends with a whole character.
pub(super) fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    }
}

/// Reads a quoted string at the front of `text`, which begins with the quote. Returns its bytes and its length in
/// `text`.
///
/// # Errors
/// A message for the user.
pub(super) fn quoted(text: &[u8]) -> Result<(Vec<u8>, usize), &'static str> {
    let mut bytes = Vec::new();
    let mut rest = text.iter().enumerate().skip(1);
    while let Some((at, byte)) = rest.next() {
        match byte {
            b'"' => return Ok((bytes, at + 1)),
            b'\\' => match rest.next().map(|(_, byte)| byte) {
                Some(b'n') => bytes.push(b'\n'),
                Some(b'r') => bytes.push(b'\r'),
                Some(b't') => bytes.push(b'\t'),
                Some(byte @ (b'\\' | b'"')) => bytes.push(*byte),
                Some(b'x') => {
                    let digits = [rest.next(), rest.next()];
                    let byte = match digits {
                        [Some((_, high)), Some((_, low))] => hex(*high).zip(hex(*low)),
                        _ => None,
                    };
                    let (high, low) = byte.ok_or("\\x requires two hex digits, as in \\x0a")?;
                    bytes.push(high << 4 | low);
                }
                _ => {
                    return Err("unknown escape in quotes; use \\n, \\r, \\t, \\xNN, \\\\ or \\\"");
                }
            },
            byte => bytes.push(*byte),
        }
    }
    Err("the closing quote is missing")
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_it_is_and_other_bytes_as_escapes() {
        assert_eq!(
            shown("Größe 8 \"x\" हिन्दी".as_bytes()),
            "Größe 8 \"x\" हिन्दी"
        );
        assert_eq!(
            shown(b"a\r\n\t\\ \0\x1b[2J\xff"),
            r"a\r\n\t\\ \x00\x1b[2J\xff"
        );
        assert_eq!(shown("a\u{202e}b".as_bytes()), r"a\xe2\x80\xaeb");
    }

    #[test]
    fn a_cut_character_is_left_out() {
        let text = "aé".as_bytes();
        assert_eq!(whole_characters(text), 3);
        assert_eq!(whole_characters(text.get(..2).unwrap()), 1);
        assert_eq!(whole_characters(b"a\xff"), 2);
    }

    #[test]
    fn shown_text_can_be_typed() {
        let all: Vec<u8> = (0..=255).collect();
        let text = format!("\"{}\" T60", shown(&all).replace('"', "\\\""));
        let (bytes, length) = quoted(text.as_bytes()).unwrap();
        assert_eq!(bytes, all);
        assert_eq!(text.get(length..), Some(" T60"));
    }

    #[test]
    fn malformed_quotes_are_refused() {
        for text in [r#""a"#, r#""\"#, r#""\q""#, r#""\x1""#, r#""\x"#] {
            assert!(quoted(text.as_bytes()).is_err(), "{text}");
        }
    }
}
