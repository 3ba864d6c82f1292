//! Hashes that collide as a whole, which no client can bring about: a store must not mind.

use latchd_core::key::Key;
use latchd_core::store::KeyHasher;

/// All keys hash alike.
#[derive(Clone, Copy, Debug)]
pub struct Same;

impl KeyHasher for Same {
    fn hash(&self, _: Key<'_>) -> u64 {
        0x5A5A_5A5A_5A5A_5A5A
    }
}

/// Keys of the same length hash alike.
#[derive(Clone, Copy, Debug)]
pub struct ByLength;

impl KeyHasher for ByLength {
    fn hash(&self, key: Key<'_>) -> u64 {
        (key.as_bytes().len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Keys that are decimal numbers below 32,768 hash so that a log takes none of them for another that it has given up not
/// long ago: what it keeps of a hash for that, 15 bits from the 36th on, is the number.
#[derive(Clone, Copy, Debug)]
pub struct Numbered;

impl KeyHasher for Numbered {
    fn hash(&self, key: Key<'_>) -> u64 {
        let digits = key.as_bytes().iter().map(|digit| u64::from(digit - b'0'));
        let number = digits.fold(0, |number, digit| number * 10 + digit);
        let bucket = number.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF;
        (number << 36) | ((number & 7) << 32) | bucket
    }
}
