//! The table of wins that are bound to their winners, without the items.
//!
//! All wins of an owner end with it, in one step, whatever their number. They stay in the table until each is reopened
//! in its turn, or a command reads its key.
//!
//! - Z1: A key has at most one such win, and the lists by key and by winner agree.
//! - Z2: The counts agree with the table: its bytes, and the wins that have not ended.
//! - Z13: A winner without a list has ended, and so have its wins; their keys are queued to be reopened.
//!
//! The item shows whether the win of a key in this table is still out: `WinMark::Sent` means this win, since each later
//! one replaces it here.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

use latchd_protocol::Owner;
use latchd_protocol::key::Key;

use crate::engine::owned_key::{OwnedKey, as_key};

/// The bytes of a win among the keys: a place in a tree that is seldom full.
const ENTRY_BYTES: usize = 128;

/// The bytes of a win in its winner's list besides its key: the two counters of the key and the allocator's header, and
/// a place in a tree that is seldom full.
const LISTED_BYTES: usize = 64;

/// The wins, by key and by winner.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct BoundWins {
    by_key: BTreeMap<OwnedKey, BoundWin>,
    /// Never an empty list.
    by_owner: BTreeMap<Owner, BTreeSet<OwnedKey>>,
    /// The lists of winners that have ended (Z13), the oldest first; never an empty one.
    ended: VecDeque<BTreeSet<OwnedKey>>,
    /// How many of `by_key` have ended.
    ended_entries: usize,
    table_bytes: usize,
}

/// A win that ends with its winner.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BoundWin {
    /// Its owner.
    pub winner: Owner,
    /// Its item was made to be filled: nothing but a mark says that the win is open, when it is again.
    pub is_made: bool,
    /// It was given to a get that waited and has no reply yet.
    pub is_unacknowledged: bool,
    /// It stays bound after that reply: `B`.
    pub stays: bool,
}

impl BoundWins {
    /// The win of `key`.
    #[must_use]
    pub fn get(&self, key: Key<'_>) -> Option<BoundWin> {
        self.noted(key).filter(|win| !self.has_ended(win))
    }

    /// The win of `key`, also if it has ended with its winner and is still to be reopened.
    pub(in crate::engine) fn noted(&self, key: Key<'_>) -> Option<BoundWin> {
        self.by_key.get(key.as_bytes()).copied()
    }

    /// The key, if the table has a win of it.
    pub(in crate::engine) fn owned(&self, key: Key<'_>) -> Option<OwnedKey> {
        let (owned, _) = self.by_key.get_key_value(key.as_bytes())?;
        Some(Arc::clone(owned))
    }

    /// Whether this win, which the table has, has ended with its winner (Z13).
    pub(in crate::engine) fn has_ended(&self, win: &BoundWin) -> bool {
        !self.by_owner.contains_key(&win.winner)
    }

    /// Every win, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (Key<'_>, BoundWin)> {
        let wins = self.by_key.iter().map(|(key, win)| (as_key(key), *win));
        wins.filter(|(_, win)| !self.has_ended(win))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len() - self.ended_entries
    }

    /// Whether there are none, and none that has ended is still to be reopened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty() && self.ended.is_empty()
    }

    /// Whether wins that have ended with their winners are queued to be reopened.
    #[inline]
    pub(in crate::engine) fn has_line(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Whether wins have ended with their winners, and are still to be reopened.
    pub(in crate::engine) const fn has_some_ended(&self) -> bool {
        self.ended_entries > 0
    }

    /// How many `owner` has.
    #[must_use]
    pub fn won_by(&self, owner: Owner) -> usize {
        self.by_owner.get(&owner).map_or(0, BTreeSet::len)
    }

    /// The bytes that the table takes of the memory limit.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// The bytes that a win of this key would add to that.
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        ENTRY_BYTES + LISTED_BYTES + key.as_bytes().len()
    }

    /// Binds the win of `key`, in the place of one that there may have been.
    pub(in crate::engine) fn bind(&mut self, key: Key<'_>, win: BoundWin) {
        self.release(key);
        let owned: OwnedKey = Arc::from(key.as_bytes());
        let won = self.by_owner.entry(win.winner).or_default();
        won.insert(Arc::clone(&owned));
        self.by_key.insert(owned, win);
        self.table_bytes += Self::bytes_for(key);
    }

    /// The get that was given the win of `key` has its reply.
    pub(in crate::engine) fn set_answered(&mut self, key: Key<'_>) {
        if let Some(win) = self.by_key.get_mut(key.as_bytes()) {
            win.is_unacknowledged = false;
        }
    }

    /// Removes the win of `key`.
    pub(in crate::engine) fn release(&mut self, key: Key<'_>) {
        let Some(win) = self.by_key.remove(key.as_bytes()) else {
            return;
        };
        self.table_bytes -= ENTRY_BYTES;
        let Some(won) = self.by_owner.get_mut(&win.winner) else {
            // Its place in the queue stays until its turn.
            self.ended_entries -= 1;
            return;
        };
        won.remove(key.as_bytes());
        if won.is_empty() {
            self.by_owner.remove(&win.winner);
        }
        self.table_bytes -= LISTED_BYTES + key.as_bytes().len();
    }

    /// All wins of `owner` end with it (Z13), in one step.
    pub(in crate::engine) fn end(&mut self, owner: Owner) {
        if let Some(won) = self.by_owner.remove(&owner) {
            self.ended_entries += won.len();
            self.ended.push_back(won);
        }
    }

    /// The next key to reopen (Z13). Another owner may have won it since: then it has not ended.
    pub(in crate::engine) fn next_ended(&mut self) -> Option<OwnedKey> {
        let won = self.ended.front_mut()?;
        let key = won
            .pop_first()
            .expect("an empty list does not stand in line");
        if won.is_empty() {
            self.ended.pop_front();
        }
        self.table_bytes -= LISTED_BYTES + key.len();
        Some(key)
    }

    /// Up to `keys_max` keys of wins of `owner`, those first that follow `key`.
    pub(in crate::engine) fn some_of(
        &self,
        owner: Owner,
        key: Key<'_>,
        keys_max: usize,
    ) -> Vec<OwnedKey> {
        let Some(won) = self.by_owner.get(&owner) else {
            return Vec::new();
        };
        let behind = (Bound::Excluded(key.as_bytes()), Bound::Unbounded);
        let behind = won.range::<[u8], _>(behind);
        behind.chain(won).take(keys_max).cloned().collect()
    }

    /// Up to `keys_max` keys that follow `key`, or the first.
    pub(in crate::engine) fn after(&self, key: Option<&[u8]>, keys_max: usize) -> Vec<OwnedKey> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.by_key.range::<[u8], _>((from, Bound::Unbounded));
        behind
            .take(keys_max)
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }
}

/// The table as a view shows it.
#[cfg(any(test, feature = "verify"))]
impl BoundWins {
    /// Every win, those included that have ended, by key.
    pub(in crate::engine) fn all_noted(&self) -> impl Iterator<Item = (Key<'_>, BoundWin)> {
        self.by_key.iter().map(|(key, win)| (as_key(key), *win))
    }

    /// The keys of wins that have ended, in the order in which they are reopened.
    #[cfg(feature = "verify")]
    pub(in crate::engine) fn in_line(&self) -> impl Iterator<Item = Key<'_>> {
        self.ended.iter().flatten().map(|key| as_key(key))
    }
}

#[cfg(any(test, feature = "verify"))]
impl BoundWins {
    /// Z1, Z2 and Z13.
    pub(in crate::engine) fn check(&self) {
        let (mut table_bytes, mut ended) = (0, 0);
        for (key, win) in &self.by_key {
            let is_listed = if let Some(won) = self.by_owner.get(&win.winner) {
                won.contains(key)
            } else {
                ended += 1;
                self.ended.iter().any(|won| won.contains(key))
            };
            assert!(is_listed, "Z1, Z13: a win that is in no list");
            table_bytes += ENTRY_BYTES;
        }
        assert_eq!(self.ended_entries, ended, "Z2: wins that have ended");
        let listed: usize = self.by_owner.values().map(BTreeSet::len).sum();
        assert_eq!(listed, self.len(), "Z1: a win of nobody");
        for won in self.by_owner.values().chain(&self.ended) {
            assert!(!won.is_empty(), "Z1, Z13: an empty list");
            let keys = won.iter().map(|key| LISTED_BYTES + key.len());
            table_bytes += keys.sum::<usize>();
        }
        assert_eq!(self.table_bytes, table_bytes, "Z2: the table's own bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Owner = Owner::from_number(1);
    const B: Owner = Owner::from_number(2);

    fn key(bytes: &'static [u8]) -> Key<'static> {
        Key::new(bytes).unwrap()
    }

    const fn of(winner: Owner) -> BoundWin {
        BoundWin {
            winner,
            is_made: true,
            is_unacknowledged: false,
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
        wins.release(key(b"b"));
        assert_eq!(wins.won_by(A), 0);
        wins.release(key(b"a"));
        wins.check();
        assert!(wins.is_empty());
        assert_eq!(wins.table_bytes(), 0);
    }

    #[test]
    fn wins_that_end_with_their_winner_stand_in_line() {
        let mut wins = BoundWins::default();
        for name in [&b"a"[..], b"b", b"c"] {
            wins.bind(Key::new(name).unwrap(), of(A));
        }
        wins.end(A);
        wins.check();
        assert_eq!((wins.len(), wins.won_by(A), wins.is_empty()), (0, 0, false));
        assert_eq!(
            (wins.get(key(b"a")), wins.noted(key(b"a"))),
            (None, Some(of(A)))
        );
        // One is looked at before its turn, and one is won again.
        wins.release(key(b"a"));
        wins.bind(key(b"b"), of(B));
        wins.check();
        let in_line = core::iter::from_fn(|| wins.next_ended());
        assert_eq!(in_line.collect::<Vec<_>>().concat(), b"abc");
        assert_eq!(wins.get(key(b"b")), Some(of(B)));
        wins.release(key(b"c"));
        wins.check();
        assert_eq!(
            (wins.len(), wins.table_bytes()),
            (1, BoundWins::bytes_for(key(b"b")))
        );
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
