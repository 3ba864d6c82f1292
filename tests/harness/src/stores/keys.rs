//! The keys of the calls, by their numbers: few, so that calls meet.
//!
//! The list of expected items is read after every call, so it is an array with a place for each key
//! and not a tree: in a build that checks every access a store beside such a tree costs half as
//! much again.

use std::array;
use std::sync::LazyLock;

/// How many keys there are.
pub(super) const KEYS: u8 = 48;

/// The key with this number: keys of all lengths, up to the longest, and some that begin alike.
pub(super) fn key(number: u8) -> &'static [u8] {
    static ALL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..KEYS).map(spell).collect());
    &ALL[usize::from(number)]
}

/// The number of a key, if it is one of them.
pub(super) fn number(named: &[u8]) -> Option<u8> {
    let number = *named.last()?;
    (number < KEYS && key(number) == named).then_some(number)
}

fn spell(number: u8) -> Vec<u8> {
    let length = match number % 4 {
        0 => 1 + usize::from(number) / 4,
        1 => 250,
        2 => 32,
        _ => 60 + usize::from(number),
    };
    let mut key = vec![b'k'; length];
    if let Some(last) = key.last_mut() {
        *last = number;
    }
    key
}

/// Something for some of the keys.
#[derive(Clone, Debug)]
pub(super) struct ByKey<T>([Option<T>; KEYS as usize]);

impl<T> ByKey<T> {
    pub(super) fn new() -> Self {
        Self(array::from_fn(|_| None))
    }

    pub(super) const fn get(&self, number: u8) -> Option<&T> {
        self.0[number as usize].as_ref()
    }

    pub(super) const fn get_mut(&mut self, number: u8) -> Option<&mut T> {
        self.0[number as usize].as_mut()
    }

    pub(super) fn insert(&mut self, number: u8, one: T) {
        self.0[usize::from(number)] = Some(one);
    }

    pub(super) fn remove(&mut self, number: u8) {
        self.0[usize::from(number)] = None;
    }

    /// Keeps only those for which `keeps` is true.
    pub(super) fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        for one in &mut self.0 {
            one.take_if(|one| !keeps(one));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// In the order of the numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &T)> {
        (0..KEYS)
            .zip(&self.0)
            .filter_map(|(number, one)| Some((number, one.as_ref()?)))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten()
    }

    /// The keys of the items.
    pub(super) fn keys(&self) -> KeySet {
        let mut set = KeySet::default();
        for (number, _) in self.iter() {
            set.insert(number);
        }
        set
    }
}

/// Some of the keys.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct KeySet(u64);

impl KeySet {
    pub(super) const fn insert(&mut self, number: u8) {
        self.0 |= 1 << number;
    }

    pub(super) const fn remove(&mut self, number: u8) {
        self.0 &= !(1 << number);
    }

    /// Those that are in both.
    pub(super) const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are not in `other`.
    pub(super) fn without(self, other: Self) -> impl Iterator<Item = u8> {
        let left = self.0 & !other.0;
        (0..KEYS).filter(move |number| left & (1 << number) != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_are_told_apart_and_found_again() {
        let all: BTreeSet<_> = (0..KEYS).map(key).collect();
        assert_eq!(all.len(), usize::from(KEYS));
        for of in 0..KEYS {
            assert_eq!(number(key(of)), Some(of));
        }
        let mut other = key(1).to_vec();
        other[0] = b'x';
        assert_eq!(number(&other), None);
        assert_eq!(number(&[KEYS]), None);
        assert_eq!(number(b""), None);
    }

    #[test]
    fn a_set_lists_the_missing_keys() {
        let mut both = KeySet::default();
        both.insert(0);
        both.insert(KEYS - 1);
        let mut last = both;
        last.remove(0);
        assert_eq!(both.without(last).collect::<Vec<_>>(), [0]);
        assert_eq!(both.both(last), last);
    }
}
