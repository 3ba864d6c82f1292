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

/// Keys that begin with a number of eight digits, below 32,768, hash so that a log takes none of them for another that it has
/// given up not long ago: what it keeps of a hash for that, 15 bits from the 36th on, is the number.
#[derive(Clone, Copy, Debug)]
pub struct Numbered;

/// As [`Numbered`], and the place where a log keeps that is known, as soon as it has 64 buckets: the number over
/// [`Placed::PLACES`] leaves it. No more buckets than 64 are used.
#[derive(Clone, Copy, Debug)]
pub struct Placed;

impl Placed {
    /// From how many places a number chooses.
    pub const PLACES: usize = 64 * 8;
}

impl KeyHasher for Numbered {
    fn hash(&self, key: Key<'_>) -> u64 {
        let number = number(key);
        kept(number) | (number.wrapping_mul(0x9E37_79B1) & 0xFFFF_FFFF)
    }
}

impl KeyHasher for Placed {
    fn hash(&self, key: Key<'_>) -> u64 {
        let number = number(key);
        kept(number) | (number / 8 % 64)
    }
}

fn number(key: Key<'_>) -> u64 {
    let digits = key.as_bytes().iter().take(8);
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// The number, and three bits of it that choose one of eight places.
const fn kept(number: u64) -> u64 {
    (number << 36) | ((number % 8) << 32)
}
