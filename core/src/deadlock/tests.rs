//! Examples, and a comparison with the definition: connections release locks until no more can.

use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use quickcheck::quickcheck;

use super::*;

const KEYS: [&[u8]; 5] = [b"0", b"1", b"2", b"3", b"4"];

fn key(number: usize) -> Key<'static> {
    Key::new(KEYS[number]).unwrap()
}

fn number(key: Key<'_>) -> usize {
    usize::from(key.as_bytes()[0] - b'0')
}

fn conn(number: usize) -> Owner {
    Owner::from_number(number as u64)
}

/// The holders of each key, with their bounds; and the lock that each connection waits for.
#[derive(Clone, Debug, Default)]
struct Locks {
    holders: [Vec<(usize, u32)>; 5],
    waits: [Option<(usize, u32)>; 5],
}

impl Locks {
    fn ask(&self, asks: usize, wanted: (usize, u32), looks_max: usize) -> Deadlock {
        self.ask_and_count(asks, wanted, looks_max).0
    }

    /// The answer, and the number of holders that were looked at for it.
    fn ask_and_count(
        &self,
        asks: usize,
        wanted: (usize, u32),
        looks_max: usize,
    ) -> (Deadlock, usize) {
        let looks = Cell::new(0);
        let (key_number, max_sharers) = wanted;
        let target = WaitTarget {
            key: key(key_number),
            max_sharers,
        };
        let (chain, charged) = would_deadlock(
            conn(asks),
            target,
            looks_max,
            |key| {
                let holders = self.holders[number(key)].iter();
                let look = |_: &_| looks.set(looks.get() + 1);
                holders
                    .inspect(look)
                    .map(|(holder, max_sharers)| Some((conn(*holder), *max_sharers)))
            },
            |conn| {
                let place = self.waits.get(usize::try_from(conn.number()).unwrap());
                let (key_number, max_sharers) = (*place?)?;
                Some(WaitTarget {
                    key: key(key_number),
                    max_sharers,
                })
            },
        );
        // With one more look the limit is reached.
        assert_eq!(charged, looks.get().min(looks_max));
        (chain, looks.get())
    }

    /// Whether the wait of `asks` is answered in the end, if every connection that can releases its locks.
    fn is_answered(&self, asks: usize) -> bool {
        let mut locks = self.clone();
        loop {
            let free = |it: usize| locks.waits[it].is_none();
            let mut after = locks.clone();
            for holders in &mut after.holders {
                holders.retain(|(holder, _)| !free(*holder));
            }
            for waits in &mut after.waits {
                let Some((key, max_sharers)) = *waits else {
                    continue;
                };
                let holders = &after.holders[key];
                let least = holders.iter().map(|(_, max_sharers)| *max_sharers).min();
                if holders.len() < max_sharers.min(least.unwrap_or(u32::MAX)) as usize {
                    *waits = None;
                }
            }
            if after.waits == locks.waits {
                return after.waits[asks].is_none();
            }
            locks = after;
        }
    }
}

/// Connection `n` holds key number `n` and waits for key `n + 1`, up to the last.
fn chain(last: usize, looks_max: usize, asks: usize) -> Deadlock {
    let mut locks = Locks::default();
    for holder in 0..=last {
        locks.holders[holder].push((holder, 1));
        if holder < last {
            locks.waits[holder] = Some((holder + 1, 1));
        }
    }
    locks.ask(asks, (0, 1), looks_max)
}

#[test]
fn a_chain_is_followed_to_its_end() {
    assert_eq!(chain(3, 10, 3), Deadlock::Yes);
    assert_eq!(chain(3, 10, 0), Deadlock::Yes);
    assert_eq!(chain(3, 10, 4), Deadlock::No);
    assert_eq!(chain(4, 4, 9), Deadlock::TooLong);
    assert_eq!(chain(3, 4, 9), Deadlock::No);
}

#[test]
fn exclusive_waiter_waits_for_all_sharers() {
    let mut locks = Locks::default();
    locks.holders[0] = vec![(1, 9), (2, 9)];
    locks.holders[1] = vec![(0, 1)];
    assert_eq!(locks.ask(0, (0, 1), 10), Deadlock::No);
    locks.waits[2] = Some((1, 1));
    assert_eq!(locks.ask(0, (0, 1), 10), Deadlock::Yes);
    // A sharer has a free place, or needs one of the two holders to release.
    assert_eq!(locks.ask(0, (0, 2), 10), Deadlock::No);
    locks.waits[1] = Some((1, 1));
    assert_eq!(locks.ask(0, (0, 2), 10), Deadlock::Yes);
    assert_eq!(locks.ask(0, (0, 3), 10), Deadlock::No);
    locks.holders[0][1].1 = 2;
    assert_eq!(locks.ask(0, (0, 3), 10), Deadlock::Yes);
}

#[test]
fn holder_would_wait_for_itself() {
    let mut locks = Locks::default();
    locks.holders[0] = vec![(0, 9), (1, 9)];
    assert_eq!(locks.ask(0, (0, 9), 10), Deadlock::Yes);
    assert_eq!(locks.ask(0, (0, 1), 10), Deadlock::Yes);
}

quickcheck! {
    /// A wait that is granted or begun by the rule is refused if and only if it would never be answered.
    fn a_wait_is_refused_if_and_only_if_it_would_be_in_vain(steps: Vec<(u8, u8, u8)>) -> bool {
        let mut locks = Locks::default();
        for (asks, wanted, max_sharers) in steps {
            let asks = usize::from(asks % 5);
            let (wanted, max_sharers) = (usize::from(wanted % 3), u32::from(max_sharers % 3) + 1);
            let holders = &locks.holders[wanted];
            if locks.waits[asks].is_some() || holders.iter().any(|(holder, _)| *holder == asks) {
                continue;
            }
            let least = holders.iter().map(|(_, max_sharers)| *max_sharers).min();
            if holders.len() < max_sharers.min(least.unwrap_or(u32::MAX)) as usize {
                locks.holders[wanted].push((asks, max_sharers));
                continue;
            }
            let mut with = locks.clone();
            with.waits[asks] = Some((wanted, max_sharers));
            let due = if with.is_answered(asks) {
                locks.waits[asks] = with.waits[asks];
                Deadlock::No
            } else {
                Deadlock::Yes
            };
            let mut before = locks.clone();
            before.waits[asks] = None;
            let (chain, looks) = before.ask_and_count(asks, (wanted, max_sharers), 10_000);
            if chain != due {
                return false;
            }
            // The bound is exact: as many looks are enough, one less is not, and at most one more is made.
            let bounded = (0..=looks).map(|max| before.ask_and_count(asks, (wanted, max_sharers), max));
            for (max, (chain, looked)) in bounded.enumerate() {
                let due = if max < looks { Deadlock::TooLong } else { due };
                if chain != due || looked > max + 1 {
                    return false;
                }
            }
        }
        true
    }
}

/// Once enough sharers can release, the search ignores the others, and also the locks that they wait for.
#[test]
fn search_skips_irrelevant_holders() {
    let mut locks = Locks::default();
    locks.holders[0] = vec![(1, 2), (2, 2)];
    locks.holders[1] = vec![(5, 9), (6, 9), (7, 9)];
    locks.waits[2] = Some((1, 1));
    assert_eq!(locks.ask(0, (0, 2), 2), Deadlock::No);
    assert_eq!(locks.ask(0, (0, 1), 2), Deadlock::TooLong);
    assert_eq!(locks.ask(0, (0, 1), 5), Deadlock::No);
}
