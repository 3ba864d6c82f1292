//! The items that are stored: numbered keys of 32 bytes, and values that tell their keys.
//!
//! A value starts with the digits of its key and goes on with a text that repeats only every 36
//! bytes. So another key's value, a shifted one and a truncated one are all detected.

/// The length of every key.
pub const KEY_BYTES: usize = 32;
/// The digits at the end of a key and at the start of its value.
pub const DIGITS: usize = 8;
/// The smallest value there can be.
pub const VALUE_BYTES_MIN: usize = DIGITS;

/// The common start of all keys.
pub const STEM: &[u8; KEY_BYTES - DIGITS] = b"latchd:bench:item:number";
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// A number in eight hexadecimal digits.
#[must_use]
pub fn digits(number: u32) -> [u8; DIGITS] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; DIGITS];
    for (digit, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        digit[0] = HEX[usize::from(byte >> 4)];
        digit[1] = HEX[usize::from(byte & 15)];
    }
    digits
}

/// The values of one size.
#[derive(Clone, Debug)]
pub struct Values {
    /// All of a value but its digits.
    rest: Vec<u8>,
}

impl Values {
    /// Values of `bytes` bytes, at least [`VALUE_BYTES_MIN`].
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        assert!(bytes >= VALUE_BYTES_MIN, "a value has room for its digits");
        let rest = ALPHABET.iter().copied().cycle();
        Self {
            rest: rest.take(bytes - DIGITS).collect(),
        }
    }

    /// The length of each.
    #[must_use]
    pub fn bytes(&self) -> usize {
        DIGITS + self.rest.len()
    }

    /// The bytes behind the digits.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Whether `value` is the one of this key, to the last byte.
    #[must_use]
    pub fn is_of(&self, number: u32, value: &[u8]) -> bool {
        value
            .split_first_chunk::<DIGITS>()
            .is_some_and(|(start, rest)| *start == digits(number) && rest == self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_hexadecimal_and_always_eight() {
        assert_eq!(&digits(0), b"00000000");
        assert_eq!(&digits(0x0012_abef), b"0012abef");
        assert_eq!(&digits(u32::MAX), b"ffffffff");
    }

    #[test]
    fn values_identify_key_and_size() {
        let values = Values::new(50);
        let mut value = digits(7).to_vec();
        value.extend_from_slice(values.rest());
        assert_eq!(value.len(), values.bytes());
        assert!(values.is_of(7, &value));
        assert!(!values.is_of(8, &value), "another key's");
        assert!(!values.is_of(7, &value[..49]), "cut");
        assert!(!Values::new(51).is_of(7, &value), "another size");
        value[49] ^= 1;
        assert!(!values.is_of(7, &value), "the last byte is another");
    }
}
