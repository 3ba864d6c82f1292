//! The expected holders and waiters, by the rules of waiting and nothing else.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use latchd_protocol::Owner;
use latchd_protocol::command::Mode;
use latchd_protocol::wait::Outcome;
use quickcheck::{Arbitrary, Gen};

use super::KEYS;

/// How much of everything there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) locks: usize,
    pub(super) sharers: u32,
    pub(super) waits_of_key: usize,
    pub(super) waits: usize,
    pub(super) wait_ms: u64,
}

impl Arbitrary for Bounds {
    /// Each small enough to be met, or none at all.
    fn arbitrary(g: &mut Gen) -> Self {
        fn up_to<T: TryFrom<u8>>(g: &mut Gen, most: u8, none: T) -> T {
            let bound = T::try_from(1 + u8::arbitrary(g) % most);
            if bool::arbitrary(g) {
                none
            } else {
                bound.ok().expect("it is small")
            }
        }
        Self {
            locks: up_to(g, 2, usize::MAX),
            sharers: up_to(g, 3, u32::MAX),
            waits_of_key: up_to(g, 3, usize::MAX),
            waits: up_to(g, 4, usize::MAX),
            wait_ms: up_to(g, 50, u64::MAX),
        }
    }
}

/// A bound that was reached: it alone caused the refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Bound {
    Locks,
    Sharers,
    LocksOfWhoWaits,
    WaitsOfKey,
    Waits,
    WaitMs,
}

impl Bound {
    pub(super) const ALL: [Self; 6] = [
        Self::Locks,
        Self::Sharers,
        Self::LocksOfWhoWaits,
        Self::WaitsOfKey,
        Self::Waits,
        Self::WaitMs,
    ];
}

/// A holder of a key: its mode, and the end of its lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holds {
    pub(super) owner: Owner,
    pub(super) mode: Mode,
    pub(super) until: Option<u64>,
}

/// A waiter for a key: its mode, its lease and its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) owner: Owner,
    pub(super) mode: Mode,
    pub(super) lease_ms: Option<u64>,
    pub(super) until: u64,
}

/// The holders of a key, in the order of the grants, and its waiters, in the order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) held: Vec<Holds>,
    pub(super) waits: VecDeque<Waits>,
}

impl Line {
    const fn new() -> Self {
        Self {
            held: Vec::new(),
            waits: VecDeque::new(),
        }
    }

    /// Whether the first waiter can have the lock in this mode beside the present holders.
    pub(super) fn fits(&self, mode: Mode) -> bool {
        let modes = self.held.iter().map(|it| it.mode);
        let max_sharers = modes
            .map(Mode::max_sharers)
            .fold(mode.max_sharers(), u32::min);
        let all_share = mode.is_shared() && self.held.iter().all(|it| it.mode.is_shared());
        self.held.is_empty() || all_share && self.held.len() < max_sharers as usize
    }

    pub(super) fn of(&self, owner: Owner) -> Option<&Holds> {
        self.held.iter().find(|it| it.owner == owner)
    }
}

/// The expected state, by the rules and nothing else.
#[derive(Clone)]
pub(super) struct Lines {
    bounds: Bounds,
    pub(super) met: Vec<Bound>,
    pub(super) now_ms: u64,
    pub(super) by_key: [Line; KEYS.len()],
    pub(super) notices: Vec<(Owner, Outcome)>,
}

impl Lines {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            met: Vec::new(),
            now_ms: 0,
            by_key: [const { Line::new() }; KEYS.len()],
            notices: Vec::new(),
        }
    }

    /// Whether one more may share `key`.
    fn may_share(&self, key: usize) -> bool {
        let held = &self.by_key[key].held;
        held.is_empty() || held.len() < self.bounds.sharers as usize
    }

    /// Whether `owner` may hold one more lock.
    fn may_hold(&self, owner: Owner) -> bool {
        let held = self.by_key.iter().filter(|line| line.of(owner).is_some());
        held.count() < self.bounds.locks
    }

    /// Whether `owner` may be given `key`, which fits.
    pub(super) fn may_have(&mut self, owner: Owner, key: usize) -> bool {
        self.keeps([
            (Bound::Locks, self.may_hold(owner)),
            (Bound::Sharers, self.may_share(key)),
        ])
    }

    /// Whether `owner` may wait for `key`, with which it closes no cycle.
    pub(super) fn may_wait(&mut self, owner: Owner, key: usize) -> bool {
        let in_all: usize = self.by_key.iter().map(|line| line.waits.len()).sum();
        let of_key = self.by_key[key].waits.len();
        self.keeps([
            (Bound::LocksOfWhoWaits, self.may_hold(owner)),
            (Bound::WaitsOfKey, of_key < self.bounds.waits_of_key),
            (Bound::Waits, in_all < self.bounds.waits),
        ])
    }

    /// Whether all bounds are kept.
    fn keeps<const N: usize>(&mut self, bounds: [(Bound, bool); N]) -> bool {
        let mut met = bounds.iter().filter(|(_, is_kept)| !is_kept);
        match (met.next(), met.next()) {
            (None, _) => true,
            (Some((bound, _)), None) => {
                self.met.push(*bound);
                false
            }
            (Some(_), Some(_)) => false,
        }
    }

    /// How long `owner` waits that would for `ms`.
    pub(super) fn wait_ms(&mut self, ms: u64) -> u64 {
        if ms > self.bounds.wait_ms {
            self.met.push(Bound::WaitMs);
        }
        ms.min(self.bounds.wait_ms)
    }

    /// When a span ends that begins now: it is over a millisecond later, since the clock shows moments that have begun.
    pub(super) const fn end_ms(&self, ms: u64) -> u64 {
        self.now_ms + ms + 1
    }

    /// The effects of time, moment by moment, as if each key were read at each moment.
    pub(super) fn pass(&mut self, until_ms: u64) {
        while self.now_ms < until_ms {
            self.now_ms += 1;
            let now_ms = self.now_ms;
            for key in 0..KEYS.len() {
                let line = &mut self.by_key[key];
                let is_over = |until: u64| until <= now_ms;
                for wait in line.waits.iter().filter(|wait| is_over(wait.until)) {
                    self.notices.push((wait.owner, Outcome::TimedOut));
                }
                line.waits.retain(|wait| !is_over(wait.until));
                line.held.retain(|it| !it.until.is_some_and(is_over));
                self.hands_over(key);
            }
        }
    }

    /// The first waiter gets the lock if it can have it.
    pub(super) fn hands_over(&mut self, key: usize) {
        while let Some(first) = self.by_key[key].waits.front().copied()
            && self.by_key[key].fits(first.mode)
            && self.may_share(key)
        {
            assert!(
                self.may_hold(first.owner),
                "who waits asks for nothing more"
            );
            let until = first.lease_ms.map(|ms| self.end_ms(ms));
            let line = &mut self.by_key[key];
            line.waits.pop_front();
            line.held.push(Holds {
                owner: first.owner,
                mode: first.mode,
                until,
            });
            self.notices.push((first.owner, Outcome::Granted));
        }
    }

    pub(super) fn frees(&mut self, key: usize, owner: Owner) {
        self.by_key[key].held.retain(|it| it.owner != owner);
        self.hands_over(key);
    }

    pub(super) fn frees_all(&mut self, owner: Owner) {
        for key in 0..KEYS.len() {
            self.frees(key, owner);
        }
    }

    pub(super) fn waits_for(&self, owner: Owner) -> Option<usize> {
        let waits = |line: &Line| line.waits.iter().any(|wait| wait.owner == owner);
        self.by_key.iter().position(waits)
    }

    /// Whether a wait of one owner for `key` would never end, although all others release their locks as soon as they
    /// can.
    pub(super) fn is_in_vain(&self, owner: Owner, key: usize, mode: Mode) -> bool {
        let mut lines = self.clone();
        // Circles are looked for before that.
        lines.bounds.locks = usize::MAX;
        lines.by_key[key].waits.push_back(Waits {
            owner,
            mode,
            lease_ms: None,
            until: u64::MAX,
        });
        loop {
            let before = lines.notices.len();
            let free: Vec<Owner> = lines
                .by_key
                .iter()
                .flat_map(|line| &line.held)
                .map(|it| it.owner)
                .collect();
            for owner in free
                .into_iter()
                .filter(|it| lines.waits_for(*it).is_none())
                .collect::<Vec<_>>()
            {
                lines.frees_all(owner);
            }
            if lines.waits_for(owner).is_none() {
                return false;
            }
            if lines.notices.len() == before {
                return true;
            }
        }
    }
}
