//! Which connection a win is bound to: the table, without the items.
//!
//! - Z1: a key has at most one such win, and what keys know of their winners and connections of their
//!   wins is the same.
//! - Z2: what is counted is what is there: the table's own bytes.
//!
//! What the win of a key that stands here is worth, its item knows: `WinMark::Sent` is this one, since every later
//! one takes its place here (`wins.rs`).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use super::lock_table::as_key;
use crate::conn_id::ConnId;
use crate::key::Key;

/// What a win takes beyond its key, in bytes: the key's two counters and the allocator's header, and its
/// places among the keys and among its winner's, in trees that are seldom full.
const WIN_BYTES: usize = 192;

/// A key, shared by its win and its winner's list.
type OwnedKey = Arc<[u8]>;

/// Who has which win.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct BoundWins {
    by_key: BTreeMap<OwnedKey, BoundWin>,
    /// Never an empty list.
    by_conn: BTreeMap<ConnId, BTreeSet<OwnedKey>>,
    table_bytes: usize,
}

/// A win that ends with its winner.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BoundWin {
    /// Whose it is.
    pub winner: ConnId,
    /// Its item was made to be filled: nothing but a mark says that the win is open, when it is again.
    pub is_made: bool,
    /// It was given to one who waited, and does not know yet.
    pub is_untold: bool,
    /// It stays bound when that is told: `B`.
    pub stays: bool,
}

impl BoundWins {
    /// The win of `key`.
    #[must_use]
    pub fn get(&self, key: Key<'_>) -> Option<BoundWin> {
        self.by_key.get(key.as_bytes()).copied()
    }

    /// Every win, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (Key<'_>, BoundWin)> {
        self.by_key.iter().map(|(key, win)| (as_key(key), *win))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// How many `conn` has.
    #[must_use]
    pub fn won_by(&self, conn: ConnId) -> usize {
        self.by_conn.get(&conn).map_or(0, BTreeSet::len)
    }

    /// What the table takes of the memory limit, in bytes.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// What a win of this key would add to that.
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        WIN_BYTES + key.as_bytes().len()
    }

    /// Binds the win of `key`, in the place of one that there may have been.
    pub(super) fn bind(&mut self, key: Key<'_>, win: BoundWin) {
        self.release(key);
        let owned: OwnedKey = Arc::from(key.as_bytes());
        let won = self.by_conn.entry(win.winner).or_default();
        won.insert(Arc::clone(&owned));
        self.by_key.insert(owned, win);
        self.table_bytes += Self::bytes_for(key);
    }

    /// Whoever was given the win of `key` knows it now.
    pub(super) fn set_told(&mut self, key: Key<'_>) {
        if let Some(win) = self.by_key.get_mut(key.as_bytes()) {
            win.is_untold = false;
        }
    }

    /// The win of `key` is nobody's.
    pub(super) fn release(&mut self, key: Key<'_>) {
        let Some(win) = self.by_key.remove(key.as_bytes()) else {
            return;
        };
        self.table_bytes -= Self::bytes_for(key);
        if let Some(won) = self.by_conn.get_mut(&win.winner) {
            won.remove(key.as_bytes());
            if won.is_empty() {
                self.by_conn.remove(&win.winner);
            }
        }
    }

    /// A win of `conn`; it is nobody's then.
    pub(super) fn take(&mut self, conn: ConnId) -> Option<(OwnedKey, BoundWin)> {
        let key = Arc::clone(self.by_conn.get(&conn)?.first()?);
        let win = *self.by_key.get(&key)?;
        self.release(as_key(&key));
        Some((key, win))
    }

    /// Up to `keys_max` keys of wins of `conn`, those first that follow `key`.
    pub(super) fn some_of(&self, conn: ConnId, key: Key<'_>, keys_max: usize) -> Vec<OwnedKey> {
        let Some(won) = self.by_conn.get(&conn) else {
            return Vec::new();
        };
        let behind = (Bound::Excluded(key.as_bytes()), Bound::Unbounded);
        let behind = won.range::<[u8], _>(behind);
        behind.chain(won).take(keys_max).cloned().collect()
    }

    /// Up to `keys_max` keys that follow `key`, or the first.
    pub(super) fn after(&self, key: Option<&[u8]>, keys_max: usize) -> Vec<OwnedKey> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.by_key.range::<[u8], _>((from, Bound::Unbounded));
        behind
            .take(keys_max)
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }
}

#[cfg(any(test, feature = "verify"))]
impl BoundWins {
    /// Z1 and Z2.
    pub(super) fn check(&self) {
        let mut table_bytes = 0;
        for (key, win) in &self.by_key {
            let won = self.by_conn.get(&win.winner);
            assert!(
                won.is_some_and(|won| won.contains(key)),
                "Z1: a winner who does not know"
            );
            table_bytes += Self::bytes_for(as_key(key));
        }
        let listed: usize = self.by_conn.values().map(BTreeSet::len).sum();
        assert_eq!(listed, self.by_key.len(), "Z1: a win of nobody");
        assert!(!self.by_conn.values().any(BTreeSet::is_empty), "Z1");
        assert_eq!(self.table_bytes, table_bytes, "Z2: the table's own bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnId = ConnId::from_number(1);
    const B: ConnId = ConnId::from_number(2);

    fn key(bytes: &'static [u8]) -> Key<'static> {
        Key::new(bytes).unwrap()
    }

    const fn of(winner: ConnId) -> BoundWin {
        BoundWin {
            winner,
            is_made: true,
            is_untold: false,
            stays: true,
        }
    }

    #[test]
    fn a_later_win_takes_the_place_of_the_one_before() {
        let mut wins = BoundWins::default();
        wins.bind(key(b"a"), of(A));
        wins.bind(key(b"b"), of(A));
        wins.bind(key(b"a"), of(B));
        wins.check();
        assert_eq!((wins.won_by(A), wins.won_by(B)), (1, 1));
        assert_eq!(wins.take(A).map(|(key, _)| key), Some(b"b"[..].into()));
        assert_eq!(wins.take(A), None);
        wins.release(key(b"a"));
        wins.check();
        assert!(wins.is_empty());
        assert_eq!(wins.table_bytes(), 0);
    }

    #[test]
    fn those_that_follow_a_key_are_looked_at_first() {
        let mut wins = BoundWins::default();
        for name in [&b"a"[..], b"b", b"c"] {
            wins.bind(Key::new(name).unwrap(), of(A));
        }
        let names = |keys: Vec<OwnedKey>| keys.concat();
        assert_eq!(names(wins.some_of(A, key(b"b"), 2)), b"ca");
        assert_eq!(names(wins.after(Some(b"a"), 9)), b"bc");
        assert_eq!(names(wins.after(None, 2)), b"ab");
    }
}
