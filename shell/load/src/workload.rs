//! The requests to a server with known items: gets and sets, gets alone, locks, filling.

use std::ops::Range;

use fastrand::Rng;

use crate::load::Workload;
use crate::wire::{Ask, Reply, Requests};
use crate::zipf::Zipf;

/// Gets, and one set in ten, of keys that are all there.
#[derive(Debug)]
pub struct GetsSets {
    rng: Rng,
    keys: Keys,
    /// Of 100 requests.
    sets: u8,
}

impl GetsSets {
    /// Nine gets to one set, of `keys` keys in a random order that `seed` names.
    #[must_use]
    pub fn new(seed: u64, keys: u32) -> Self {
        Self::of(seed, Keys::Evenly(keys), 10)
    }

    /// `sets` sets in 100 requests, of these keys.
    #[must_use]
    pub fn of(seed: u64, keys: Keys, sets: u8) -> Self {
        let rng = Rng::with_seed(seed);
        Self { rng, keys, sets }
    }

    /// Gets alone.
    #[must_use]
    pub fn gets(seed: u64, keys: u32) -> Self {
        Self {
            sets: 0,
            ..Self::new(seed, keys)
        }
    }
}

impl Workload for GetsSets {
    fn next(&mut self, _connection: usize) -> Option<Ask> {
        let key = self.keys.draw(&mut self.rng);
        let is_set = self.rng.u8(..100) < self.sets;
        Some(if is_set { Ask::Set(key) } else { Ask::Get(key) })
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        requests.is_answered(ask, reply)
    }
}

/// Which keys are drawn how often.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Each of the first so many keys equally often.
    Evenly(u32),
    /// The first keys far more often than the others.
    Zipf(Zipf),
}

impl Keys {
    /// The next key.
    pub fn draw(&self, rng: &mut Rng) -> u32 {
        match self {
            Self::Evenly(keys) => rng.u32(..*keys),
            Self::Zipf(zipf) => zipf.draw(rng),
        }
    }
}

/// Every connection locks a key and unlocks it, on keys of its own.
#[derive(Debug)]
pub struct Locks {
    rng: Rng,
    /// The keys of the first connection. Those of the others follow, as many each.
    first: Range<u32>,
    /// The lock that each connection holds.
    held: Vec<Option<u32>>,
}

impl Locks {
    /// For `connections` connections, which divide these keys among them: at least one each.
    #[must_use]
    pub fn new(seed: u64, keys: Range<u32>, connections: usize) -> Self {
        let share = u32::try_from(connections).expect("connections are few");
        Self {
            rng: Rng::with_seed(seed),
            first: keys.start..keys.start + (keys.end - keys.start) / share,
            held: vec![None; connections],
        }
    }

    /// The request that releases the lock of a connection; `None` if it has none. The next request acquires.
    pub fn release(&mut self, connection: usize) -> Option<Ask> {
        self.held[connection].take().map(Ask::Unlock)
    }
}

impl Workload for Locks {
    fn next(&mut self, connection: usize) -> Option<Ask> {
        let index = u32::try_from(connection).expect("connections are few");
        if let Some(release) = self.release(connection) {
            return Some(release);
        }
        let share = self.first.end - self.first.start;
        let key = index * share + self.rng.u32(self.first.clone());
        Some(Ask::Lock(*self.held[connection].insert(key)))
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        requests.is_answered(ask, reply)
    }
}

/// Stores a range of keys, each once.
#[derive(Debug)]
pub struct Fill {
    keys: Range<u32>,
    /// Whether a server may refuse to store, as one does that is full.
    may_refuse: bool,
    /// How many it refused.
    pub refused: u64,
}

impl Fill {
    /// All of them are to be stored.
    #[must_use]
    pub fn new(keys: Range<u32>) -> Self {
        Self {
            keys,
            may_refuse: false,
            refused: 0,
        }
    }

    /// How many are still to be asked for.
    #[must_use]
    pub fn left(&self) -> usize {
        self.keys.len()
    }

    /// Past the memory limit: refusals are counted.
    #[must_use]
    pub fn past_the_limit(keys: Range<u32>) -> Self {
        Self {
            may_refuse: true,
            ..Self::new(keys)
        }
    }
}

impl Workload for Fill {
    fn next(&mut self, _connection: usize) -> Option<Ask> {
        self.keys.next().map(Ask::Set)
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        let is_refused = self.may_refuse && is_out_of_memory(reply);
        self.refused += u64::from(is_refused);
        is_refused || requests.is_answered(ask, reply)
    }
}

/// Whether a server reports that it is out of memory.
#[must_use]
pub fn is_out_of_memory(reply: &Reply<'_>) -> bool {
    match reply {
        Reply::Other(words) => {
            words.starts_with(b"SERVER_ERROR out of memory") || words.starts_with(b"Out of memory")
        }
        Reply::Hit(_) | Reply::Miss | Reply::Stored | Reply::Granted => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Dialect;

    #[test]
    fn one_request_in_ten_is_a_set() {
        let asks = |seed| {
            let mut workload = GetsSets::new(seed, 1_000);
            let next = std::iter::from_fn(move || workload.next(0));
            next.take(100_000).collect::<Vec<_>>()
        };
        let sets = asks(1).iter().filter(|a| matches!(a, Ask::Set(_))).count();
        assert!((9_500..10_500).contains(&sets), "{sets} sets");
        assert_eq!(asks(1), asks(1));
        assert_ne!(asks(1), asks(2));
    }

    #[test]
    fn connections_unlock_their_own_keys() {
        let mut workload = Locks::new(1, 0..100, 4);
        for _ in 0..50 {
            for connection in 0..4 {
                let Some(Ask::Lock(locked)) = workload.next(connection) else {
                    panic!("a lock first");
                };
                assert_eq!(usize::try_from(locked / 25), Ok(connection));
                assert_eq!(workload.next(connection), Some(Ask::Unlock(locked)));
            }
        }
    }

    #[test]
    fn a_lock_is_released_at_the_end() {
        let mut workload = Locks::new(1, 40..60, 2);
        assert_eq!(workload.release(1), None);
        let Some(Ask::Lock(locked)) = workload.next(1) else {
            panic!("a lock first");
        };
        assert!((50..60).contains(&locked), "{locked}");
        assert_eq!(workload.release(1), Some(Ask::Unlock(locked)));
        assert_eq!(workload.release(1), None);
        assert!(matches!(workload.next(1), Some(Ask::Lock(50..60))));
    }

    #[test]
    fn popular_keys_are_drawn_more_often() {
        let keys = Keys::Zipf(Zipf::new(1_000, 1.0));
        let mut workload = GetsSets::of(1, keys, 100);
        let next = std::iter::from_fn(|| workload.next(0));
        let first = next.take(1_000).filter(|ask| *ask == Ask::Set(0)).count();
        assert!((90..180).contains(&first), "{first} of 1,000");
    }

    #[test]
    fn a_miss_is_a_wrong_answer() {
        let requests = Requests::new(Dialect::Meta, 10, 0);
        let mut workload = GetsSets::new(1, 10);
        assert!(workload.judge(&requests, Ask::Get(1), &Reply::Hit(b"00000001ab")));
        assert!(!workload.judge(&requests, Ask::Get(1), &Reply::Miss));
        assert!(!workload.judge(&requests, Ask::Get(1), &Reply::Hit(b"00000002ab")));
        assert!(!workload.judge(&requests, Ask::Set(1), &Reply::Other(b"LK")));
    }

    #[test]
    fn refusals_are_wrong_unless_memory_is_full() {
        let requests = Requests::new(Dialect::Classic, 10, 0);
        let refusal = Reply::Other(b"SERVER_ERROR out of memory storing object");
        assert!(!Fill::new(0..1).judge(&requests, Ask::Set(0), &refusal));
        let mut fill = Fill::past_the_limit(0..2);
        assert!(fill.judge(&requests, Ask::Set(0), &refusal));
        assert!(!fill.judge(&requests, Ask::Set(1), &Reply::Other(b"ERROR")));
        assert_eq!(fill.refused, 1);
    }
}
