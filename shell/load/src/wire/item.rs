//! The items that are stored: numbered keys of 32 bytes, and values that tell their keys.
//!
//! A value starts with the digits of its key and goes on with a text that repeats only every 36
//! bytes. So another key's value, a shifted one and a truncated one are all detected.

use std::ops::Range;

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

/// Small values, and a share of large ones. A key always has a value of the same size.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    /// So many keys of 10,000 have large values.
    pub large_of_10000: u32,
}

/// The sizes of small and of large values: each is as frequent as any other.
const SMALL_BYTES: Range<u32> = 100..1_000;
const LARGE_BYTES: Range<u32> = 50_000..400_000;

impl Mixture {
    /// Whether this key has a large value.
    #[must_use]
    pub fn is_large(self, number: u32) -> bool {
        let (chance, _) = Self::drawn(number);
        u64::from(chance) * 10_000 < u64::from(self.large_of_10000) << 32
    }

    /// The size of the value of this key.
    #[must_use]
    pub fn bytes(self, number: u32) -> usize {
        let (_, size) = Self::drawn(number);
        let sizes = if self.is_large(number) {
            LARGE_BYTES
        } else {
            SMALL_BYTES
        };
        let span = u64::from(sizes.end - sizes.start);
        let more = u32::try_from((u64::from(size) * span) >> 32).expect("it is below the span");
        usize::try_from(sizes.start + more).expect("a value fits into memory")
    }

    /// Two numbers that depend on the key alone. Source: the finalizer of `MurmurHash3`.
    fn drawn(number: u32) -> (u32, u32) {
        let mut bits = u64::from(number) + 1;
        for factor in [0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53] {
            bits = (bits ^ (bits >> 33)).wrapping_mul(factor);
        }
        bits ^= bits >> 33;
        let half = |bits| u32::try_from(bits & u64::from(u32::MAX)).expect("32 bits");
        (half(bits >> 32), half(bits))
    }
}

/// The values of one size, or of a mixture.
#[derive(Clone, Debug)]
pub struct Values {
    /// All of the longest value but its digits.
    rest: Vec<u8>,
    mixture: Option<Mixture>,
}

impl Values {
    /// Values of `bytes` bytes, at least [`VALUE_BYTES_MIN`].
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        assert!(bytes >= VALUE_BYTES_MIN, "a value holds its digits");
        let rest = ALPHABET.iter().copied().cycle();
        Self {
            rest: rest.take(bytes - DIGITS).collect(),
            mixture: None,
        }
    }

    /// Values of the sizes of `mixture`.
    #[must_use]
    pub fn mixed(mixture: Mixture) -> Self {
        let bytes_max = usize::try_from(LARGE_BYTES.end).expect("a value fits into memory");
        Self {
            mixture: Some(mixture),
            ..Self::new(bytes_max)
        }
    }

    /// The length of the longest.
    #[must_use]
    pub fn bytes(&self) -> usize {
        DIGITS + self.rest.len()
    }

    /// The bytes behind the digits of the value of this key.
    #[must_use]
    pub fn rest_of(&self, number: u32) -> &[u8] {
        match self.mixture {
            Some(mixture) => &self.rest[..mixture.bytes(number) - DIGITS],
            None => &self.rest,
        }
    }

    /// The bytes behind the digits of the longest.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Whether `value` is the one of this key, to the last byte.
    #[must_use]
    pub fn is_of(&self, number: u32, value: &[u8]) -> bool {
        value
            .split_first_chunk::<DIGITS>()
            .is_some_and(|(start, rest)| *start == digits(number) && rest == self.rest_of(number))
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
    fn a_key_of_a_mixture_keeps_its_size() {
        let mixture = Mixture {
            large_of_10000: 500,
        };
        let values = Values::mixed(mixture);
        let mut large = 0;
        for number in 0..10_000 {
            let bytes = mixture.bytes(number);
            let sizes = if mixture.is_large(number) {
                50_000..400_000
            } else {
                100..1_000
            };
            assert!(sizes.contains(&bytes), "{number}: {bytes}");
            assert_eq!(values.rest_of(number).len() + DIGITS, bytes);
            large += u32::from(mixture.is_large(number));
        }
        assert!(large.abs_diff(500) < 60, "{large}");
        let value = [&digits(7)[..], values.rest_of(7)].concat();
        assert!(values.is_of(7, &value));
        assert!(!values.is_of(7, &value[..value.len() - 1]));
    }

    #[test]
    fn a_larger_share_has_the_same_large_keys_and_more() {
        let share = |large_of_10000| Mixture { large_of_10000 };
        for number in 0..10_000 {
            assert!(!share(0).is_large(number));
            assert!(!share(100).is_large(number) || share(200).is_large(number));
        }
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
