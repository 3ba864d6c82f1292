//! By example, and against what the words say: what is given back until nothing more can be.

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

/// Who holds each key, and among how many; and what each connection waits for.
#[derive(Clone, Debug, Default)]
struct Locks {
    holders: [Vec<(usize, u32)>; 5],
    waits: [Option<(usize, u32)>; 5],
}

impl Locks {
    fn ask(&self, asks: usize, wanted: (usize, u32), looks_max: usize) -> Chain {
        self.ask_and_count(asks, wanted, looks_max).0
    }

    /// The answer, and how many holders were looked at for it.
    fn ask_and_count(&self, asks: usize, wanted: (usize, u32), looks_max: usize) -> (Chain, usize) {
        let looks = Cell::new(0);
        let (key_number, among) = wanted;
        let sought = Sought {
            key: key(key_number),
            among,
        };
        let (chain, charged) = would_deadlock(
            conn(asks),
            sought,
            looks_max,
            |key| {
                let holders = self.holders[number(key)].iter();
                let look = |_: &_| looks.set(looks.get() + 1);
                holders
                    .inspect(look)
                    .map(|(holder, among)| Some((conn(*holder), *among)))
            },
            |conn| {
                let place = self.waits.get(usize::try_from(conn.number()).unwrap());
                let (key_number, among) = (*place?)?;
                Some(Sought {
                    key: key(key_number),
                    among,
                })
            },
        );
        // One more look tells that there are too many.
        assert_eq!(charged, looks.get().min(looks_max));
        (chain, looks.get())
    }

    /// Whether the wait of `asks` is answered in the end, if all give back who can.
    fn is_answered(&self, asks: usize) -> bool {
        let mut locks = self.clone();
        loop {
            let free = |it: usize| locks.waits[it].is_none();
            let mut after = locks.clone();
            for holders in &mut after.holders {
                holders.retain(|(holder, _)| !free(*holder));
            }
            for waits in &mut after.waits {
                let Some((key, among)) = *waits else {
                    continue;
                };
                let holders = &after.holders[key];
                let least = holders.iter().map(|(_, among)| *among).min();
                if holders.len() < among.min(least.unwrap_or(u32::MAX)) as usize {
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

/// Connection `n` holds the key of the number `n`, and waits for that of `n + 1`, up to the last.
fn chain(last: usize, looks_max: usize, asks: usize) -> Chain {
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
    assert_eq!(chain(3, 10, 3), Chain::Closes);
    assert_eq!(chain(3, 10, 0), Chain::Closes);
    assert_eq!(chain(3, 10, 4), Chain::Ends);
    assert_eq!(chain(4, 4, 9), Chain::TooLong);
    assert_eq!(chain(3, 4, 9), Chain::Ends);
}

#[test]
fn who_wants_it_alone_waits_for_all_who_share_it() {
    let mut locks = Locks::default();
    locks.holders[0] = vec![(1, 9), (2, 9)];
    locks.holders[1] = vec![(0, 1)];
    assert_eq!(locks.ask(0, (0, 1), 10), Chain::Ends);
    locks.waits[2] = Some((1, 1));
    assert_eq!(locks.ask(0, (0, 1), 10), Chain::Closes);
    // Who would share it has room, or needs one of the two to go.
    assert_eq!(locks.ask(0, (0, 2), 10), Chain::Ends);
    locks.waits[1] = Some((1, 1));
    assert_eq!(locks.ask(0, (0, 2), 10), Chain::Closes);
    assert_eq!(locks.ask(0, (0, 3), 10), Chain::Ends);
    locks.holders[0][1].1 = 2;
    assert_eq!(locks.ask(0, (0, 3), 10), Chain::Closes);
}

#[test]
fn who_has_it_waits_for_itself_whatever_it_asks_for() {
    let mut locks = Locks::default();
    locks.holders[0] = vec![(0, 9), (1, 9)];
    assert_eq!(locks.ask(0, (0, 9), 10), Chain::Closes);
    assert_eq!(locks.ask(0, (0, 1), 10), Chain::Closes);
}

quickcheck! {
    /// A wait that is granted or begun as the rule says is refused if and only if, with it, it is never answered.
    fn a_wait_is_refused_if_and_only_if_it_would_be_in_vain(steps: Vec<(u8, u8, u8)>) -> bool {
        let mut locks = Locks::default();
        for (asks, wanted, among) in steps {
            let asks = usize::from(asks % 5);
            let (wanted, among) = (usize::from(wanted % 3), u32::from(among % 3) + 1);
            let holders = &locks.holders[wanted];
            if locks.waits[asks].is_some() || holders.iter().any(|(holder, _)| *holder == asks) {
                continue;
            }
            let least = holders.iter().map(|(_, among)| *among).min();
            if holders.len() < among.min(least.unwrap_or(u32::MAX)) as usize {
                locks.holders[wanted].push((asks, among));
                continue;
            }
            let mut with = locks.clone();
            with.waits[asks] = Some((wanted, among));
            let due = if with.is_answered(asks) {
                locks.waits[asks] = with.waits[asks];
                Chain::Ends
            } else {
                Chain::Closes
            };
            let mut before = locks.clone();
            before.waits[asks] = None;
            let (chain, looks) = before.ask_and_count(asks, (wanted, among), 10_000);
            if chain != due {
                return false;
            }
            // As many are enough, and one less is not; and no more than one beyond the bound is looked at.
            let bounded = (0..=looks).map(|max| before.ask_and_count(asks, (wanted, among), max));
            for (max, (chain, looked)) in bounded.enumerate() {
                let due = if max < looks { Chain::TooLong } else { due };
                if chain != due || looked > max + 1 {
                    return false;
                }
            }
        }
        true
    }
}

/// Once enough of those who share it can go, nobody looks at the others, whatever these wait for.
#[test]
fn those_who_need_not_go_are_not_looked_at() {
    let mut locks = Locks::default();
    locks.holders[0] = vec![(1, 2), (2, 2)];
    locks.holders[1] = vec![(5, 9), (6, 9), (7, 9)];
    locks.waits[2] = Some((1, 1));
    assert_eq!(locks.ask(0, (0, 2), 2), Chain::Ends);
    assert_eq!(locks.ask(0, (0, 1), 2), Chain::TooLong);
    assert_eq!(locks.ask(0, (0, 1), 5), Chain::Ends);
}
