//! Hashes that collide as a whole, which no client can cause: a store must still find each item.

use latchd_core::store::KeyHasher;
use latchd_protocol::key::Key;

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
