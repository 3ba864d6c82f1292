//! How much may be held for clients, over all connections: what they have not finished, and what they
//! have not taken.
//!
//! What one client can have the server hold is bounded by the size of a request and of a reply; there
//! may be thousands of clients. So there is a bound for all of them together, and when it is passed,
//! those that hold most are closed until it is not.
//!
//! - Q1: between turns, what clients hold is at most the bound, but for those that are about to be
//!   closed by their own workers, and for less than [`STEP_BYTES`] a client, which nobody counts.
//! - Q2: whoever is closed for it held at least as much as any other.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

/// What is held is counted in steps of so many bytes, so that clients with a small rest of a request
/// meet no lock.
pub(crate) const STEP_BYTES: usize = 4096;

/// What may be held of one kind.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    by_size: BTreeSet<(usize, Holder)>,
}

/// Who holds something: a worker's client.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Holder {
    /// Which worker's.
    pub(crate) worker: usize,
    /// What the worker calls it; never again the same.
    pub(crate) name: u64,
}

impl Budget {
    /// Room for `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            held: Mutex::default(),
        }
    }

    /// Notes that `holder` holds `bytes` now, and `charged` no more, which is updated. Returns who is
    /// to be closed for it, and is not counted any more.
    pub(crate) fn charge(&self, holder: Holder, charged: &mut usize, bytes: usize) -> Vec<Holder> {
        let bytes = bytes - bytes % STEP_BYTES;
        if bytes == *charged {
            return Vec::new();
        }
        let mut held = self.held();
        held.remove(*charged, holder);
        held.insert(bytes, holder);
        *charged = bytes;
        let mut closed = Vec::new();
        while held.bytes > self.bytes_max
            && let Some((bytes, worst)) = held.by_size.last().copied()
        {
            held.remove(bytes, worst);
            closed.push(worst);
        }
        closed
    }

    /// How many clients hold anything that is counted, and how much in all, in bytes.
    pub(crate) fn held_now(&self) -> (usize, usize) {
        let held = self.held();
        (held.by_size.len(), held.bytes)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held
            .lock()
            .expect("nobody panics between taking from the list and adding to it")
    }
}

impl Held {
    /// Who is about to be closed is not there any more.
    fn remove(&mut self, bytes: usize, holder: Holder) {
        if self.by_size.remove(&(bytes, holder)) {
            self.bytes -= bytes;
        }
    }

    fn insert(&mut self, bytes: usize, holder: Holder) {
        if bytes > 0 {
            self.by_size.insert((bytes, holder));
            self.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(name: u64) -> Holder {
        Holder { worker: 0, name }
    }

    #[test]
    fn whoever_holds_most_is_closed() {
        let budget = Budget::new(10 * STEP_BYTES);
        let mut charged = [0; 4];
        for (name, steps) in [(0, 2), (1, 5), (2, 3)] {
            let closed = budget.charge(
                holder(name),
                &mut charged[usize::try_from(name).unwrap()],
                steps * STEP_BYTES,
            );
            assert_eq!(closed, []);
        }
        let closed = budget.charge(holder(3), &mut charged[3], STEP_BYTES);
        assert_eq!(closed, [holder(1)]);
        // It is not counted any more, whenever its worker gets to it.
        let closed = budget.charge(holder(3), &mut charged[3], 5 * STEP_BYTES);
        assert_eq!(closed, []);
        assert_eq!(budget.charge(holder(1), &mut charged[1], 0), []);
        assert_eq!(budget.held().bytes, 10 * STEP_BYTES);
    }

    #[test]
    fn what_is_given_back_is_free() {
        let budget = Budget::new(2 * STEP_BYTES);
        let mut charged = 0;
        for _ in 0..10 {
            assert_eq!(budget.charge(holder(1), &mut charged, 2 * STEP_BYTES), []);
            assert_eq!(budget.charge(holder(1), &mut charged, 0), []);
        }
        assert_eq!(budget.held().bytes, 0);
    }

    #[test]
    fn a_little_is_not_counted() {
        let budget = Budget::new(0);
        let mut charged = 0;
        let closed = budget.charge(holder(1), &mut charged, STEP_BYTES - 1);
        assert_eq!((closed, charged), (Vec::new(), 0));
        let closed = budget.charge(holder(1), &mut charged, STEP_BYTES);
        assert_eq!(closed, [holder(1)]);
    }
}
