//! The memory kept for clients over all connections: incomplete requests, and replies that the clients have
//! not read.
//!
//! The size limits of requests and replies bound the memory of one client, but there may be thousands of
//! clients. So a budget bounds all of them together. When it is exceeded, the server closes the clients that
//! take most until the rest fits.
//!
//! - Q1: Between turns, clients take at most the bound. Not counted are clients that their own workers are
//!   about to close, and less than [`STEP_BYTES`] per client.
//! - Q2: A client closed for the budget took at least as much as any other client.
//! - Q3: A value that several clients keep is counted once, for one of them. When that client no longer needs
//!   it, it is counted for another one.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use latchd_core::sessions::Route;
use latchd_protocol::output::SharedValue;

/// The unit in which a client's own memory is counted, in bytes. So a client with a short incomplete request
/// takes no lock.
pub(crate) const STEP_BYTES: usize = 4096;

/// The budget of one kind of memory.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    kept: Mutex<KeptForAll>,
}

#[derive(Debug, Default)]
struct KeptForAll {
    /// The bytes counted for all clients.
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
    /// The bytes counted for this client.
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

impl Holder {
    /// The client as sessions know it.
    pub(crate) const fn route(self) -> Route {
        [self.worker as u64, self.name]
    }

    /// The client with this route.
    pub(crate) fn at([worker, name]: Route) -> Self {
        let worker = usize::try_from(worker).expect("it was the number of a worker");
        Self { worker, name }
    }
}

/// The memory counted for a client, as its worker last reported it.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Charge {
    own_bytes: usize,
    values: Vec<SharedValue>,
}

impl Charge {
    /// Whether nothing is counted.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        self.own_bytes == 0 && self.values.is_empty()
    }
}

impl Budget {
    /// A budget of `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            kept: Mutex::default(),
        }
    }

    /// Replaces `charged` by `own_bytes` and these values, and updates it. Returns the clients to close; they
    /// are no longer counted.
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

    /// The number of counted clients, and their memory in bytes.
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
    /// Stops counting a client. A client about to be closed is not counted already.
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

    /// Counts this memory for a client that is not counted yet.
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

    /// Counts more bytes for a counted client.
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

    impl Budget {
        /// Checks that the sums are those of the clients, and that each value has one payer, who keeps it (Q3).
        pub(crate) fn check(&self) {
            let kept = self.kept();
            let sizes = kept
                .by_client
                .iter()
                .map(|(holder, one)| (one.bytes, *holder));
            let sizes: BTreeSet<_> = sizes.collect();
            assert_eq!(kept.by_size, sizes);
            let sum: usize = kept.by_client.values().map(|one| one.bytes).sum();
            assert_eq!(kept.bytes, sum);
            assert!(kept.bytes <= self.bytes_max, "Q1");
            for (id, value) in &kept.values {
                for holder in value.others.iter().chain([&value.payer]) {
                    assert!(kept.by_client[holder].values.contains(id), "Q3");
                }
                assert!(!value.others.contains(&value.payer));
            }
            for (holder, one) in &kept.by_client {
                let keeps = |id| {
                    let value = &kept.values[id];
                    value.payer == *holder || value.others.contains(holder)
                };
                assert!(one.values.iter().all(keeps), "Q3");
            }
        }

        #[cfg(not(feature = "scheduled"))]
        /// Checks that a client is counted for just this memory, or, if the budget is about to close it, for none.
        pub(crate) fn check_charge(
            &self,
            client: Holder,
            (own_bytes, values): (usize, &[SharedValue]),
            is_doomed: bool,
        ) {
            let kept = self.kept();
            let own_bytes = own_bytes - own_bytes % STEP_BYTES;
            let Some(one) = kept.by_client.get(&client) else {
                let is_small = own_bytes == 0 && values.is_empty();
                assert!(
                    is_small || is_doomed,
                    "{client:?} keeps {own_bytes} bytes uncounted"
                );
                return;
            };
            let ids: BTreeSet<_> = values.iter().map(|value| value.id).collect();
            assert_eq!(one.values, ids);
            let paid = ids.iter().filter(|id| kept.values[id].payer == client);
            let paid: usize = paid.map(|id| kept.values[id].bytes).sum();
            assert_eq!(one.bytes, own_bytes + paid, "{client:?}");
        }
    }

    fn client(name: u64) -> Holder {
        Holder { worker: 0, name }
    }

    /// A budget, and the charges that its clients last reported.
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

        /// Client `name` takes this many steps of its own memory, and keeps these values of ten steps each.
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
    fn largest_client_is_closed() {
        let mut bench = Bench::new(10 * STEP_BYTES);
        for (name, steps) in [(0, 2), (1, 5), (2, 3)] {
            assert_eq!(bench.charge(name, steps, &[]), []);
        }
        assert_eq!(bench.charge(3, 1, &[]), [client(1)]);
        // It is no longer counted, whenever its worker closes it.
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
        assert!(charged.is_nothing());
        let closed = budget.charge(client(1), &mut charged, STEP_BYTES, none);
        assert_eq!(closed, [client(1)]);
        assert!(!charged.is_nothing());
    }

    #[test]
    fn a_value_that_many_keep_is_counted_once() {
        let mut bench = Bench::new(13 * STEP_BYTES);
        for name in 0..6 {
            assert_eq!(bench.charge(name, 0, &[7, 7]), []);
        }
        assert_eq!(bench.steps(), 10);
        // When the first client has sent the value, another one pays; the last one removes it.
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
