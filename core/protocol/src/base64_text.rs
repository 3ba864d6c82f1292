//! Bytes in base64, as lines of meta text have them.
//!
//! Decoding is as lenient as memcached's, since clients may rely on that. Bytes outside the alphabet are
//! skipped, and text behind the padding is ignored. Encoding gives the one standard form, so bytes may be
//! returned in another form than they were sent in.
//!
//! Source: memcached 1.6.45 `base64.c`.

use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Decodes into the front of `out`. Returns the number of bytes; `None` if this is not base64, or `out` is too small.
pub(crate) fn decode(encoded: &[u8], out: &mut [u8]) -> Option<usize> {
    // Padding counts as a digit here, and every fourth digit ends a group.
    let digits = encoded
        .iter()
        .filter(|byte| digit_of(**byte).is_some())
        .count();
    if digits == 0 || !digits.is_multiple_of(4) {
        return None;
    }
    let mut out = out.iter_mut();
    let mut decoded_bytes = 0;
    let mut group = 0_u32;
    let mut group_digits = 0;
    let mut padding = 0;
    for byte in encoded {
        let Some(digit) = digit_of(*byte) else {
            continue;
        };
        padding += usize::from(*byte == b'=');
        group = group << 6 | u32::from(digit);
        group_digits += 1;
        if group_digits < 4 {
            continue;
        }
        let [_, bytes @ ..] = group.to_be_bytes();
        let kept = 3_usize.checked_sub(padding).filter(|kept| *kept > 0)?;
        for byte in bytes.into_iter().take(kept) {
            *out.next()? = byte;
        }
        decoded_bytes += kept;
        if padding > 0 {
            break;
        }
        (group, group_digits) = (0, 0);
    }
    Some(decoded_bytes)
}

const fn digit_of(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        b'=' => Some(0),
        _ => None,
    }
}

/// Appends the one standard form of these bytes.
pub(crate) fn put(bytes: &[u8], out: &mut Vec<u8>) {
    // The buffer is grown first and cut afterwards, since the encoder writes into a slice.
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let encoded = out.get_mut(start..).unwrap_or_default();
    let written = STANDARD.encode_slice(bytes, encoded).unwrap_or(0);
    out.truncate(start + written);
}
