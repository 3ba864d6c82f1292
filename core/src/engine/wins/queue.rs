//! Which gets wait for a value or a win, and in which order: the queues, without the items.
//!
//! The queues keep Q1 to Q4 of `queues.rs` under these ids:
//!
//! - Z3: An owner waits for at most one key, and the lists by key and by owner agree.
//! - Z4: the waiters of a key stand in the order of arrival.
//! - Z5: each wait ends, and is listed by its deadline. The end of the item is listed as well, as far as it is known.
//! - Z6: the counted bytes are those that the queues take.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use core::mem;
use core::ops::Bound;

use latchd_protocol::Owner;
use latchd_protocol::command::{Get, NewCas, TtlSteps};
use latchd_protocol::key::{Key, KeyForm};
use latchd_protocol::time::Instant;
use latchd_protocol::wait::Outcome;

use crate::engine::owned_key::{OwnedKey, as_key};
use crate::engine::queues::{Queues, Waits};
use crate::engine::wins::bound::BoundWins;

/// The bytes of a wait besides its key and the win that it may become: the options of its get, its places in the queue,
/// among the owners and among the deadlines, in trees that are seldom full, and in the list of notices. The first
/// waiter of a key also pays for the queue.
const WAIT_BYTES: usize = 640;

/// Which gets wait.
pub type WinWaits = Queues<WinWaiter>;

/// The options of a get that waits, as far as its turn needs them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct WinWaiter {
    /// When it waits no more.
    pub until: Instant,
    /// As [`Get::steps`].
    pub steps: TtlSteps,
    /// As [`Get::key_form`].
    pub key_form: KeyForm,
    /// As [`Get::new_cas`].
    pub new_cas: NewCas,
    /// As [`Get::bump`].
    pub bump: bool,
    /// As [`Get::bound_to_owner`].
    pub bound_to_owner: bool,
}

impl WinWaiter {
    pub(in crate::engine) const fn new(get: &Get<'_>, until: Instant) -> Self {
        Self {
            until,
            steps: get.steps,
            key_form: get.key_form,
            new_cas: get.new_cas,
            bump: get.bump,
            bound_to_owner: get.bound_to_owner,
        }
    }

    /// The get as far as it makes an item.
    pub(in crate::engine) const fn get(self, key: Key<'_>) -> Get<'_> {
        Get {
            key_form: self.key_form,
            steps: self.steps,
            bump: self.bump,
            new_cas: self.new_cas,
            // Only such a get waits.
            recaches: true,
            ..Get::new(key)
        }
    }
}

impl Waits for WinWaiter {
    type Kept = ();
    /// When the item ends.
    type Queue = Option<Instant>;
    type Table = Ends;

    fn until(&self) -> Instant {
        self.until
    }

    fn outcome(&self, at: Instant, has_item: bool) -> Outcome {
        if self.until <= at {
            Outcome::TimedOut
        } else if has_item {
            // The reply to the same get without its wait shows everything else.
            Outcome::Granted
        } else {
            Outcome::NotFound
        }
    }

    fn bytes_for(key: Key<'_>) -> usize {
        WinWaits::bytes_for(key)
    }

    fn kept_bytes((): &()) -> usize {
        0
    }

    fn next_of(ends: &Ends) -> Option<Instant> {
        ends.by_moment.first().map(|(at, _)| *at)
    }
}

/// When the items that are waited for end, and which of them are to be looked at.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// By the moments at which that is (Z5).
    by_moment: BTreeSet<(Instant, OwnedKey)>,
    /// All of them are looked at, from this key on.
    round: Option<Round>,
}

/// How far a look at all items has come.
#[derive(Clone, Debug)]
enum Round {
    Begins,
    Behind(OwnedKey),
}

impl WinWaits {
    /// The bytes that a waiter of this key would add to that. The win that it gets adds no more than that to the table
    /// of wins, which has free memory for it then.
    #[must_use]
    pub const fn bytes_for(key: Key<'_>) -> usize {
        WAIT_BYTES + 2 * key.as_bytes().len() + BoundWins::bytes_for(key)
    }

    /// Whether there is work by `now` that can end a wait.
    pub(in crate::engine) fn is_due(&self, now: Instant) -> bool {
        self.table.round.is_some() || self.next().is_some_and(|at| at <= now)
    }

    /// Whether all items are being looked at, some with each call: then there is something to do now.
    #[must_use]
    pub const fn is_on_round(&self) -> bool {
        self.table.round.is_some()
    }

    /// All items that are waited for are to be looked at: any of them may be missing.
    pub(in crate::engine) fn begin_round(&mut self) {
        if self.has_queues() {
            self.table.round = Some(Round::Begins);
        }
    }

    /// As [`Self::begin_round`], unless that is under way.
    pub(in crate::engine) fn go_on_round(&mut self) {
        if self.table.round.is_none() {
            self.begin_round();
        }
    }

    /// The next item that is to be looked at.
    pub(in crate::engine) fn next_of_round(&mut self) -> Option<OwnedKey> {
        let from = match self.table.round.as_ref()? {
            Round::Begins => Bound::Unbounded,
            Round::Behind(key) => Bound::Excluded(&**key),
        };
        let mut behind = self.keys_from(from);
        let key = behind.next().map(Arc::clone);
        let has_more = behind.next().is_some();
        drop(behind);
        self.table.round = key.clone().filter(|_| has_more).map(Round::Behind);
        key
    }

    /// `owner`, which waits for nothing, waits for `key` behind all others.
    pub(in crate::engine) fn join(&mut self, key: Key<'_>, owner: Owner, waiter: WinWaiter) {
        self.put(key, owner, waiter, ());
    }

    /// `owner` waits no more, if it did. Returns its key if no get waits for it any more.
    pub(in crate::engine) fn leave(&mut self, owner: Owner) -> Option<OwnedKey> {
        let (place, last) = self.take_out(owner)?;
        let is_last = last.is_some();
        self.note_left(Arc::clone(&place.key), last.flatten());
        is_last.then_some(place.key)
    }

    /// Wakes the first `count` waiters of `key` ([`Queues::wake`]).
    pub(in crate::engine) fn wake_first(
        &mut self,
        key: Key<'_>,
        count: usize,
        at: Instant,
        has_item: bool,
    ) {
        let owned = self.owned(key);
        let end = self.wake(key, count, at, has_item);
        if let Some(owned) = owned {
            self.note_left(owned, end.flatten());
        }
    }

    /// Some waiters have left the queue of `key`. If it is empty now, the end of the item is not needed any more.
    fn note_left(&mut self, key: OwnedKey, end: Option<Instant>) {
        if let Some(end) = end {
            self.table.by_moment.remove(&(end, key));
            self.note_next();
        }
        if !self.has_queues() {
            self.table.round = None;
        }
    }

    /// The item of `key` ends at this moment, as it is now.
    pub(in crate::engine) fn set_end(&mut self, key: Key<'_>, end: Option<Instant>) {
        let known = self.queue_mut(key).map(|queue| &mut queue.beside);
        let Some(known) = known.filter(|known| **known != end) else {
            return;
        };
        let before = mem::replace(known, end);
        let owned = self.owned(key).expect("Q1: somebody waits for it");
        if let Some(before) = before {
            self.table.by_moment.remove(&(before, Arc::clone(&owned)));
        }
        if let Some(end) = end {
            self.table.by_moment.insert((end, owned));
        }
        self.note_next();
    }

    /// A key that may have lost its item by `now`. It is not returned again before [`Self::set_end`].
    pub(in crate::engine) fn next_end(&mut self, now: Instant) -> Option<OwnedKey> {
        let (at, key) = self.table.by_moment.first()?;
        if *at > now {
            return None;
        }
        let key = Arc::clone(key);
        self.set_end(as_key(&key), None);
        Some(key)
    }

    /// Z3 to Z6.
    #[cfg(any(test, feature = "verify"))]
    pub(in crate::engine) fn check(&self) {
        self.check_queues();
        let ends = self.keys_from(Bound::Unbounded).filter_map(|key| {
            let queue = self.queue_of(as_key(key))?;
            Some((queue.beside?, Arc::clone(key)))
        });
        let ends: BTreeSet<_> = ends.collect();
        assert_eq!(self.table.by_moment, ends, "Z5: ends of items");
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const fn owner(number: u64) -> Owner {
        Owner::from_number(number)
    }

    fn key(bytes: &'static [u8]) -> Key<'static> {
        Key::new(bytes).unwrap()
    }

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn join(table: &mut WinWaits, name: &'static [u8], number: u64, until_ms: u64) {
        let waiter = WinWaiter::new(&Get::new(key(name)), at(until_ms));
        table.join(key(name), owner(number), waiter);
        table.check();
    }

    #[test]
    fn first_waiter_leaves_first() {
        let mut table = WinWaits::default();
        for number in [3, 1, 2] {
            join(&mut table, b"a", number, 10 * number);
        }
        join(&mut table, b"b", 4, 5);
        assert_eq!(table.leave(owner(1)), None, "two are left");
        assert!(!table.is_waiting(owner(1)));
        assert_eq!(table.leave(owner(1)), None);
        for expected in [Some(owner(3)), Some(owner(2)), None] {
            let first = table.first(key(b"a")).map(|(owner, _)| owner);
            assert_eq!(first, expected);
            first.map(|owner| table.leave(owner));
            table.check();
        }
        assert_eq!(table.len(), 1);
        assert_eq!(table.leave(owner(4)).as_deref(), Some(&b"b"[..]));
        assert_eq!((table.table_bytes(), table.next()), (0, None));
        table.check();
    }

    #[test]
    fn woken_waiters_get_their_notices_singly() {
        let mut table = WinWaits::default();
        for (number, until_ms) in [(1, 90), (2, 10), (3, 90), (4, 90)] {
            join(&mut table, b"a", number, until_ms);
        }
        table.set_end(key(b"a"), Some(at(70)));
        table.wake_first(key(b"a"), 3, at(20), true);
        table.check();
        assert_eq!(
            (table.len(), table.places(), table.waiting(key(b"a"))),
            (1, 4, 1)
        );
        // The deadline of a woken get has no effect; an owner that has ended gets no notice.
        let mut stale_max = 0;
        assert_eq!(table.overdue(at(80), &mut stale_max), None);
        assert_eq!(
            table.next(),
            Some(at(10)),
            "the rest is left to the next step"
        );
        stale_max = 3;
        assert_eq!(table.overdue(at(80), &mut stale_max), None);
        assert_eq!((stale_max, table.next()), (2, Some(at(70))));
        assert!(table.is_waiting(owner(3)));
        table.leave(owner(3));
        table.check();
        table.wake_first(key(b"a"), 1, at(30), false);
        table.check();
        let woken = |table: &mut WinWaits| {
            let woken = core::iter::from_fn(|| table.next_woken());
            woken
                .map(|woken| (woken.owner, woken.outcome))
                .collect::<Vec<_>>()
        };
        let first = [(owner(1), Outcome::Granted), (owner(2), Outcome::TimedOut)];
        assert_eq!(woken(&mut table), first);
        assert_eq!(woken(&mut table), [(owner(4), Outcome::NotFound)]);
        assert_eq!(woken(&mut table), []);
        table.check();
        assert!(table.is_empty());
        assert_eq!((table.table_bytes(), table.next()), (0, None));
    }

    #[test]
    fn the_end_of_an_item_is_told_once() {
        let mut table = WinWaits::default();
        join(&mut table, b"a", 1, 50);
        table.set_end(key(b"a"), Some(at(20)));
        assert_eq!(table.next(), Some(at(20)));
        assert_eq!([19, 20].map(|ms| table.is_due(at(ms))), [false, true]);
        assert_eq!(table.next_end(at(19)), None);
        assert_eq!(table.next_end(at(20)), Some(b"a"[..].into()));
        assert_eq!(table.next_end(at(20)), None);
        table.check();
        table.set_end(key(b"a"), Some(at(30)));
        table.leave(owner(1));
        table.check();
        assert_eq!(table.next(), None);
    }

    #[test]
    fn a_round_comes_to_every_key_once() {
        let mut table = WinWaits::default();
        for (number, name) in [&b"a"[..], b"b", b"c"].into_iter().enumerate() {
            join(&mut table, name, number as u64, 50);
        }
        assert_eq!(table.next_of_round(), None);
        table.begin_round();
        assert!(table.is_due(at(0)));
        assert_eq!(table.next_of_round(), Some(b"a"[..].into()));
        table.leave(owner(1));
        table.go_on_round();
        assert_eq!(table.next_of_round(), Some(b"c"[..].into()));
        assert_eq!(table.next_of_round(), None);
        assert!(!table.is_on_round());
    }
}
