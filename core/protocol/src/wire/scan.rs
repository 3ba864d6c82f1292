//! Lines, words and numbers: the common parts of the two text protocols.
//!
//! Only blanks (0x20) separate words: a tab or another control byte is part of a word. A line ends with LF; one
//! CR before it belongs to the end.
//!
//! Sources: memcached 1.6.45 `vendor/mcmc/mcmc.c` (`_mcmc_tokenize_meta`, `mcmc_toktou64`,
//! `mcmc_tokto32`) and `util.c` (`safe_strtol`, `safe_strtoul`). Where we differ: docs/PROTOCOL.md,
//! "Classic text".

use super::Malformed;
use super::limits::{ANNOUNCED_BYTES_MAX, LINE_BYTES_MAX};
use crate::key::Key;

/// Eight bytes of 1.
const ONES: u64 = u64::MAX / 0xff;

/// The highest bit of each of eight bytes.
const HIGHEST: u64 = ONES << 7;

/// The longest line of a reply: `VALUE`, the longest key and three numbers, or an error.
const REPLY_LINE_BYTES_MAX: usize = LINE_BYTES_MAX;

/// The length of the first line of a reply, line end included; `None` if it is not complete.
pub(crate) fn reply_line_bytes(input: &[u8]) -> Result<Option<usize>, Malformed> {
    let window = input.get(..REPLY_LINE_BYTES_MAX).unwrap_or(input);
    match memchr::memchr(b'\n', window) {
        Some(end) => Ok(Some(end + 1)),
        None if window.len() < REPLY_LINE_BYTES_MAX => Ok(None),
        None => Err(Malformed),
    }
}

/// The line without its line end.
pub(crate) fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Takes the first word off a text; `None` if there is none. The rest begins with a blank or is empty.
#[inline]
pub(crate) fn split_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    // Nearly always there is one blank.
    let mut text = text.strip_prefix(b" ").unwrap_or(text);
    if let [b' ', ..] = text {
        text = without_blanks(text);
    }
    if text.is_empty() {
        return None;
    }
    text.split_at_checked(word_bytes(text))
}

#[cold]
fn without_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

/// The length of the word at the start of the text.
///
/// Reads eight bytes at a time: keys are long enough to gain from that, and most other words are so short that
/// a call of `memchr` costs more than it saves.
#[inline]
pub(crate) fn word_bytes(text: &[u8]) -> usize {
    const BLANKS: u64 = ONES * b' ' as u64;
    let (groups, rest) = text.as_chunks::<8>();
    let mut before = 0;
    for group in groups {
        // A byte of `differs` is 0 where the text has a blank; subtracting 1 from it borrows. Higher bytes may
        // then look like blanks, but only the lowest is used.
        let differs = u64::from_le_bytes(*group) ^ BLANKS;
        let blanks = differs.wrapping_sub(ONES) & !differs & HIGHEST;
        if blanks != 0 {
            return before + blanks.trailing_zeros() as usize / 8;
        }
        before += 8;
    }
    before
        + rest
            .iter()
            .position(|byte| *byte == b' ')
            .unwrap_or(rest.len())
}

/// Takes the first word off a text as a key. As in memcached, any byte but a blank can be part of one.
#[inline]
pub(crate) fn split_key(text: &[u8]) -> Option<(Key<'_>, &[u8])> {
    let (word, rest) = split_token(text)?;
    Some((Key::new(word)?, rest))
}

/// Whether a line can carry these bytes as one word for any reader: no blank ends it, no line end forges the
/// next line, and no control byte reaches a terminal. Listings write any other key in base64, or leave it out.
pub(crate) fn is_plain(key: &[u8]) -> bool {
    !key.iter()
        .any(|byte| byte.is_ascii_control() || *byte == b' ')
}

/// The words of a text, one after the other. Nothing is copied or read twice.
#[derive(Clone, Debug)]
pub(crate) struct Tokens<'a>(&'a [u8]);

impl<'a> Tokens<'a> {
    pub(crate) const fn new(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// The rest of the text behind the words that were taken, blanks included.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (token, rest) = split_token(self.0)?;
        self.0 = rest;
        Some(token)
    }
}

/// A number made of digits only, at most 22 of them; none at all is 0, as in memcached.
#[inline]
#[must_use]
pub fn u64_from(token: &[u8]) -> Option<u64> {
    if token.len() > 22 {
        return None;
    }
    token.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A number below 2^32 made of at most 11 digits; none at all is 0, as in memcached.
#[inline]
pub(crate) fn u32_from(token: &[u8]) -> Option<u32> {
    if token.len() > 11 {
        return None;
    }
    u32::try_from(u64_from(token)?).ok()
}

/// A number that fits 32 bits with its sign, at most 11 bytes; no digits at all is 0, as in
/// memcached.
#[inline]
pub(crate) fn i32_from(token: &[u8]) -> Option<i32> {
    if token.len() > 11 {
        return None;
    }
    let number = match token.strip_prefix(b"-") {
        Some(digits) => -i64::try_from(u64_from(digits)?).ok()?,
        None => i64::try_from(u64_from(token)?).ok()?,
    };
    i32::try_from(number).ok()
}

/// The length of a value as a request announces it.
pub(crate) fn announced_bytes_from(token: &[u8]) -> Option<usize> {
    let bytes = u32::try_from(i32_from(token)?).ok()?;
    if bytes > ANNOUNCED_BYTES_MAX {
        None
    } else {
        usize::try_from(bytes).ok()
    }
}

/// A number as C's `strtol` reads it, as memcached does for the exptime of `set`. White space before it, a sign
/// of either kind, and anything after white space behind it are accepted.
pub(crate) fn loose_i64_from(token: &[u8]) -> Option<i64> {
    let (negative, magnitude) = loose_magnitude(token)?;
    let magnitude = i128::from(magnitude);
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// A number as memcached reads it for the client flags of `set`: as [`loose_i64_from`], but not below 0, up to
/// 64 bits, of which the lower 32 count.
pub(crate) fn loose_u32_from(token: &[u8]) -> Option<u32> {
    let (negative, magnitude) = loose_magnitude(token)?;
    if negative && magnitude != 0 {
        return None;
    }
    // The cast cuts off the upper half, as memcached does.
    #[allow(clippy::cast_possible_truncation)]
    Some(magnitude as u32)
}

fn loose_magnitude(token: &[u8]) -> Option<(bool, u64)> {
    // The common case first: digits and nothing else.
    if let (Some(b'0'..=b'9'), Some(number)) = (token.first(), u64_from(token)) {
        return Some((false, number));
    }
    let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r');
    let start = token.iter().position(|byte| !is_space(byte))?;
    let token = token.get(start..)?;
    let (negative, token) = match token.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, token),
    };
    let digits = token
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(token.len());
    let (digits, behind) = token.split_at_checked(digits)?;
    if digits.is_empty() || behind.first().is_some_and(|byte| !is_space(byte)) {
        return None;
    }
    let magnitude = digits.iter().try_fold(0_u64, |sum, byte| {
        sum.checked_mul(10)?
            .checked_add(u64::from(byte.wrapping_sub(b'0')))
    })?;
    Some((negative, magnitude))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;
    use std::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    #[test]
    fn one_cr_belongs_to_the_line_end() {
        assert_eq!(without_line_end(b"get a\r\n"), b"get a");
        assert_eq!(without_line_end(b"get a\n"), b"get a");
        assert_eq!(without_line_end(b"get a\r\r\n"), b"get a\r");
        assert_eq!(without_line_end(b"\n"), b"");
    }

    #[test]
    fn only_blanks_part_words() {
        let words: Vec<&[u8]> = Tokens::new(b"  a\tb  c ").collect();
        assert_eq!(words, [&b"a\tb"[..], b"c"]);
        assert!(split_token(b"   ").is_none());
        assert!(split_token(b"").is_none());
    }

    #[test]
    fn numbers_are_digits_only_and_bounded() {
        assert_eq!(u64_from(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(u64_from(b"18446744073709551616"), None);
        assert_eq!(u64_from(b"0000000000000000000005"), Some(5));
        assert_eq!(u64_from(b"00000000000000000000005"), None);
        assert_eq!(u64_from(b"+5"), None);
        assert_eq!(u64_from(b"-5"), None);
        assert_eq!(u64_from(b""), Some(0));
        assert_eq!(u32_from(b"4294967295"), Some(u32::MAX));
        assert_eq!(u32_from(b"4294967296"), None);
        assert_eq!(u32_from(b"00000000001"), Some(1));
        assert_eq!(u32_from(b"000000000001"), None);
        assert_eq!(i32_from(b"2147483647"), Some(i32::MAX));
        assert_eq!(i32_from(b"2147483648"), None);
        assert_eq!(i32_from(b"-2147483648"), Some(i32::MIN));
        assert_eq!(i32_from(b"-2147483649"), None);
        assert_eq!(i32_from(b"-"), Some(0));
        assert_eq!(i32_from(b"--5"), None);
        assert_eq!(i32_from(b"+5"), None);
    }

    #[test]
    fn loose_numbers_read_like_strtol() {
        assert_eq!(loose_u32_from(b"+1"), Some(1));
        assert_eq!(loose_u32_from(b"-1"), None);
        assert_eq!(loose_u32_from(b"\t7\tz"), Some(7));
        assert_eq!(loose_u32_from(b"4294967296"), Some(0));
        assert_eq!(loose_u32_from(b"18446744073709551616"), None);
        assert_eq!(loose_u32_from(b"1x"), None);
        assert_eq!(loose_u32_from(b"-"), None);
        assert_eq!(loose_u32_from(b""), None);
        assert_eq!(loose_i64_from(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(loose_i64_from(b"9223372036854775808"), None);
        assert_eq!(loose_i64_from(b"00000000000000000000000000000005"), Some(5));
    }

    quickcheck! {
        fn a_number_that_is_written_reads_back(unsigned: u64, signed: i32) -> bool {
            u64_from(unsigned.to_string().as_bytes()) == Some(unsigned)
                && i32_from(signed.to_string().as_bytes()) == Some(signed)
                && loose_i64_from(signed.to_string().as_bytes()) == Some(i64::from(signed))
        }

        fn blanks_separate_words(text: Vec<u8>) -> bool {
            let words: Vec<&[u8]> = Tokens::new(&text).collect();
            let expected: Vec<&[u8]> =
                text.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
            words == expected
        }
    }
}
