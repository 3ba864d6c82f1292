//! The only place where keys are hashed.
//!
//! The hash has a secret seed. A client that does not know it cannot choose keys that share a bucket. A
//! command hashes its key once: slots and vacancies carry the hash.

use siphasher::sip::SipHasher13;

use latchd_protocol::key::Key;

/// The seed of a store's hash: two numbers that clients cannot guess.
pub type HashSeed = [u64; 2];

/// Hashes keys. Tests use one that gives many keys the same hash.
pub trait KeyHasher {
    /// The hash of `key`, always the same.
    fn hash(&self, key: Key<'_>) -> u64;
}

/// SipHash-1-3, the usual choice where clients choose the keys.
#[derive(Clone, Copy, Debug)]
pub struct SipHash(SipHasher13);

impl SipHash {
    /// A hash with a seed that clients cannot guess.
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
