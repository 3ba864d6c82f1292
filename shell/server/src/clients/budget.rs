//! How much memory is kept for clients, over all connections: requests that are not whole, and replies that
//! the clients have not read.
//!
//! The size of a request and of a reply bounds what one client can have the server keep; there may be thousands of
//! clients. So there is a bound for all of them together. When it is passed, the clients that take most are closed
//! until it is not.
//!
//! - Q1: between turns, clients take at most the bound. Not counted are clients that their own workers are about to
//!   close, and less than [`STEP_BYTES`] per client.
//! - Q2: a client that is closed for it took at least as much as any other.
//! - Q3: a value that several clients keep is counted once: one of them pays for it. When that client is done with it,
//!   another one pays.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use latchd_core::output::SharedValue;

/// Memory of a client's own is counted in steps of so many bytes, so that clients with a small rest of a request
/// meet no lock.
pub(crate) const STEP_BYTES: usize = 4096;

/// The memory of one kind that may be kept.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    kept: Mutex<KeptForAll>,
}

#[derive(Debug, Default)]
struct KeptForAll {
    /// All that clients pay for.
    bytes: usize,
    by_client: BTreeMap<Holder, KeptForOne>,
    by_size: BTreeSet<(usize, Holder)>,
    values: BTreeMap<usize, KeptValue>,
}

/// A value that clients keep.
#[derive(Debug)]
struct KeptValue {
    bytes: usize,
    payer: Holder,
    /// The other clients that keep it.
    others: BTreeSet<Holder>,
}

#[derive(Debug, Default)]
struct KeptForOne {
    /// All that it pays for.
    bytes: usize,
    /// The values that it keeps, by their ids.
    values: BTreeSet<usize>,
}

/// A client of a worker.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Holder {
    /// The worker's number.
    pub(crate) worker: usize,
    /// The worker's name for it; never used again for another.
    pub(crate) name: u64,
}

/// The memory that a budget counts for a client, as the client's worker has told it last.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Charge {
    own_bytes: usize,
    values: Vec<SharedValue>,
}

impl Budget {
    /// A budget of `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            kept: Mutex::default(),
        }
    }

    /// Counts `own_bytes` and these values for a client from now on, instead of `charged`, which is updated. Returns the
    /// clients that are to be closed for it; they are not counted any more.
    #[inline]
    pub(crate) fn charge(
        &self,
        client: Holder,
        charged: &mut Charge,
        own_bytes: usize,
        values: impl Iterator<Item = SharedValue> + Clone,
    ) -> Vec<Holder> {
        let own_bytes = own_bytes - own_bytes % STEP_BYTES;
        if own_bytes == charged.own_bytes && values.clone().eq(charged.values.iter().copied()) {
            return Vec::new();
        }
        charged.own_bytes = own_bytes;
        charged.values.clear();
        charged.values.extend(values);
        self.recount(client, charged)
    }

    #[cold]
    fn recount(&self, client: Holder, charged: &Charge) -> Vec<Holder> {
        let mut kept = self.kept();
        kept.remove(client);
        kept.insert(client, charged);
        let mut closed = Vec::new();
        while kept.bytes > self.bytes_max
            && let Some((_, worst)) = kept.by_size.last().copied()
        {
            kept.remove(worst);
            closed.push(worst);
        }
        closed
    }

    /// How many clients take memory that is counted, and how much in all, in bytes.
    pub(crate) fn kept_now(&self) -> (usize, usize) {
        let kept = self.kept();
        (kept.by_client.len(), kept.bytes)
    }

    fn kept(&self) -> MutexGuard<'_, KeptForAll> {
        self.kept
            .lock()
            .expect("no thread panics between taking from the list and adding to it")
    }
}

impl KeptForAll {
    /// Counts nothing for a client any more. A client that is about to be closed is not counted already.
    fn remove(&mut self, client: Holder) {
        let Some(one) = self.by_client.remove(&client) else {
            return;
        };
        self.by_size.remove(&(one.bytes, client));
        self.bytes -= one.bytes;
        for id in one.values {
            let Some(value) = self.values.get_mut(&id) else {
                continue;
            };
            if value.payer != client {
                value.others.remove(&client);
            } else if let Some(next) = value.others.pop_first() {
                value.payer = next;
                let bytes = value.bytes;
                self.pay(next, bytes);
            } else {
                self.values.remove(&id);
            }
        }
    }

    /// Counts this for a client that is not counted.
    fn insert(&mut self, client: Holder, charge: &Charge) {
        if *charge == Charge::default() {
            return;
        }
        let mut one = KeptForOne {
            bytes: charge.own_bytes,
            values: BTreeSet::new(),
        };
        for SharedValue { id, bytes } in charge.values.iter().copied() {
            // A client may keep the same value several times.
            if !one.values.insert(id) {
                continue;
            }
            match self.values.entry(id) {
                Entry::Occupied(value) => drop(value.into_mut().others.insert(client)),
                Entry::Vacant(entry) => {
                    one.bytes += bytes;
                    entry.insert(KeptValue {
                        bytes,
                        payer: client,
                        others: BTreeSet::new(),
                    });
                }
            }
        }
        self.bytes += one.bytes;
        self.by_size.insert((one.bytes, client));
        self.by_client.insert(client, one);
    }

    /// Counts so many bytes more for a client that is counted.
    fn pay(&mut self, client: Holder, bytes: usize) {
        let one = self.by_client.entry(client).or_default();
        self.by_size.remove(&(one.bytes, client));
        one.bytes += bytes;
        self.by_size.insert((one.bytes, client));
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: u64) -> Holder {
        Holder { worker: 0, name }
    }

    /// A budget beside what its clients have told it last.
    struct Bench {
        budget: Budget,
        charges: Vec<Charge>,
    }

    impl Bench {
        fn new(bytes_max: usize) -> Self {
            Self {
                budget: Budget::new(bytes_max),
                charges: std::iter::repeat_with(Charge::default).take(8).collect(),
            }
        }

        /// Client `name` takes so many steps of its own, and keeps these values of ten steps each.
        fn charge(&mut self, name: usize, steps: usize, values: &[usize]) -> Vec<Holder> {
            let values = values.iter().map(|id| SharedValue {
                id: *id,
                bytes: 10 * STEP_BYTES,
            });
            let holder = client(name as u64);
            self.budget
                .charge(holder, &mut self.charges[name], steps * STEP_BYTES, values)
        }

        fn steps(&self) -> usize {
            self.budget.kept_now().1 / STEP_BYTES
        }
    }

    #[test]
    fn the_client_that_takes_most_is_closed() {
        let mut bench = Bench::new(10 * STEP_BYTES);
        for (name, steps) in [(0, 2), (1, 5), (2, 3)] {
            assert_eq!(bench.charge(name, steps, &[]), []);
        }
        assert_eq!(bench.charge(3, 1, &[]), [client(1)]);
        // It is not counted any more, whenever its worker closes it.
        assert_eq!(bench.charge(3, 5, &[]), []);
        assert_eq!(bench.charge(1, 0, &[]), []);
        assert_eq!(bench.steps(), 10);
    }

    #[test]
    fn memory_that_is_given_back_is_free() {
        let mut bench = Bench::new(12 * STEP_BYTES);
        for _ in 0..10 {
            assert_eq!(bench.charge(1, 2, &[7]), []);
            assert_eq!(bench.charge(1, 0, &[]), []);
        }
        assert_eq!(bench.budget.kept_now(), (0, 0));
    }

    #[test]
    fn less_than_a_step_is_not_counted() {
        let budget = Budget::new(0);
        let mut charged = Charge::default();
        let none = std::iter::empty();
        let closed = budget.charge(client(1), &mut charged, STEP_BYTES - 1, none.clone());
        assert_eq!((closed, budget.kept_now()), (Vec::new(), (0, 0)));
        let closed = budget.charge(client(1), &mut charged, STEP_BYTES, none);
        assert_eq!(closed, [client(1)]);
    }

    #[test]
    fn a_value_that_many_keep_is_counted_once() {
        let mut bench = Bench::new(13 * STEP_BYTES);
        for name in 0..6 {
            assert_eq!(bench.charge(name, 0, &[7, 7]), []);
        }
        assert_eq!(bench.steps(), 10);
        // Another client pays when the first has sent it, and the last takes it along.
        for name in 0..5 {
            assert_eq!(bench.charge(name, 0, &[]), []);
            assert_eq!(bench.steps(), 10);
        }
        assert_eq!(bench.charge(0, 1, &[]), []);
        assert_eq!(bench.charge(5, 0, &[8]), []);
        assert_eq!(bench.steps(), 11);
        assert_eq!(bench.charge(1, 0, &[7]), [client(5)]);
        assert_eq!(bench.steps(), 11);
    }
}
