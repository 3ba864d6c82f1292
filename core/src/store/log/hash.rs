//! What a key hashes to: the one place where keys become numbers.
//!
//! The hash is keyed, so that nobody who does not know the seed can make many keys share a bucket.
//! It is taken once a command: a slot and a vacancy carry it.

use siphasher::sip::SipHasher13;

use crate::key::Key;

/// What the hashes of a store depend on besides the keys: two numbers that clients cannot guess.
pub type HashSeed = [u64; 2];

/// Makes numbers of keys. Tests have one that gives many keys the same.
pub trait KeyHasher {
    /// The hash of `key`, the same whenever it is asked.
    fn hash(&self, key: Key<'_>) -> u64;
}

/// SipHash-1-3: what the field uses where clients choose the keys.
#[derive(Clone, Copy, Debug)]
pub struct SipHash(SipHasher13);

impl SipHash {
    /// With a seed that clients cannot guess.
    #[must_use]
    pub fn new(seed: HashSeed) -> Self {
        Self(SipHasher13::new_with_keys(seed[0], seed[1]))
    }
}

impl KeyHasher for SipHash {
    fn hash(&self, key: Key<'_>) -> u64 {
        self.0.hash(key.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_the_hash() {
        let key = Key::new(b"k").unwrap();
        assert_ne!(
            SipHash::new([1, 2]).hash(key),
            SipHash::new([1, 3]).hash(key)
        );
    }
}
