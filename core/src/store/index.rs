//! Finds an item's slot by its key: an ordered set of hashes.
//!
//! Comparing hashes costs less than comparing keys, and the order makes every operation
//! logarithmic even for keys that share a hash. The hash is keyed, so nobody who does not know the
//! seed can make many keys share one.
//!
//! - I1: a slot stands under the hash of its key, and under no other.

use alloc::collections::BTreeSet;
use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::slot::MapSlot;
use crate::key::Key;

/// The hash of a key: where in the index its slot stands, or would stand.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct KeyHash(u64);

/// What the hashes of a store depend on besides the keys: two numbers that clients cannot guess.
pub type HashSeed = [u64; 2];

/// The slots of a [`MapStore`](super::MapStore) by the hash of their keys.
#[derive(Clone, Debug)]
pub(super) struct Index {
    seed: HashSeed,
    slots: BTreeSet<(KeyHash, MapSlot)>,
}

impl Index {
    pub(super) const fn new(seed: HashSeed) -> Self {
        Self {
            seed,
            slots: BTreeSet::new(),
        }
    }

    /// Among the slots that stand under `hash`, the one that `is_it`.
    pub(super) fn find(&self, hash: KeyHash, is_it: impl Fn(MapSlot) -> bool) -> Option<MapSlot> {
        self.slots
            .range((hash, MapSlot::FIRST)..=(hash, MapSlot::LAST))
            .map(|(_, slot)| *slot)
            .find(|slot| is_it(*slot))
    }

    pub(super) fn insert(&mut self, hash: KeyHash, slot: MapSlot) {
        self.slots.insert((hash, slot));
    }

    pub(super) fn remove(&mut self, hash: KeyHash, slot: MapSlot) {
        self.slots.remove(&(hash, slot));
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Every slot, each with whether it stands under the hash of the key that `key_of` says (I1).
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn iter<'a>(
        &'a self,
        key_of: impl Fn(MapSlot) -> Key<'a>,
    ) -> impl Iterator<Item = (MapSlot, bool)> {
        self.slots
            .iter()
            .map(move |(hash, slot)| (*slot, self.hash(key_of(*slot)) == *hash))
    }

    pub(super) fn hash(&self, key: Key<'_>) -> KeyHash {
        let mut hasher = SipHasher13::new_with_keys(self.seed[0], self.seed[1]);
        hasher.write(key.as_bytes());
        KeyHash(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_share_a_hash_are_told_apart() {
        let mut index = Index::new([1, 2]);
        let hash = index.hash(Key::new(b"k").unwrap());
        index.insert(hash, MapSlot::FIRST);
        index.insert(hash, MapSlot::LAST);
        assert_eq!(
            index.find(hash, |slot| slot == MapSlot::LAST),
            Some(MapSlot::LAST)
        );
        index.remove(hash, MapSlot::LAST);
        assert_eq!(index.find(hash, |slot| slot == MapSlot::LAST), None);
        assert_eq!(
            index.find(hash, |slot| slot == MapSlot::FIRST),
            Some(MapSlot::FIRST)
        );
    }

    #[test]
    fn the_seed_decides_the_hash() {
        let key = Key::new(b"k").unwrap();
        assert_ne!(Index::new([1, 2]).hash(key), Index::new([1, 3]).hash(key));
    }
}
