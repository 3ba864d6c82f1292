//! Stores keys and locks every third item, as a server sees it whose clients hold locks on many items.

use std::collections::VecDeque;
use std::ops::Range;

use latchd_load::Workload;
use latchd_load::wire::{Ask, Reply, Requests};
use latchd_load::workload::is_out_of_memory;

/// The most locks of a connection: their tables take memory too, which is not measured here.
const LOCKS_MAX: usize = 2_000;

/// Stores a range of keys, each once, and locks every third. A connection releases its oldest locks beyond its share.
#[derive(Debug)]
pub(super) struct LockedFill {
    keys: Range<u32>,
    connections: Vec<Held>,
    /// The most locks of a connection.
    locks_max: usize,
    /// How many sets were refused.
    pub(super) refused: u64,
}

/// The locks of a connection.
#[derive(Clone, Debug, Default)]
struct Held {
    /// The key that it has just stored.
    next: Option<u32>,
    keys: VecDeque<u32>,
}

impl LockedFill {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            keys: 0..0,
            connections: vec![Held::default(); connections],
            locks_max: 0,
            refused: 0,
        }
    }

    /// Stores these keys next, and holds at most `locks_max` locks over all connections.
    pub(super) fn go_on(&mut self, keys: Range<u32>, locks_max: usize) {
        self.keys = keys;
        self.locks_max = (locks_max / self.connections.len()).min(LOCKS_MAX);
    }
}

impl Workload for LockedFill {
    fn next(&mut self, connection: usize) -> Option<Ask> {
        let held = &mut self.connections[connection];
        if held.keys.len() > self.locks_max {
            return held.keys.pop_front().map(Ask::Unlock);
        }
        if let Some(key) = held.next.take() {
            held.keys.push_back(key);
            return Some(Ask::Lock(key));
        }
        let key = self.keys.next()?;
        held.next = key.is_multiple_of(3).then_some(key);
        Some(Ask::Set(key))
    }

    fn judge(&mut self, requests: &Requests, ask: Ask, reply: &Reply<'_>) -> bool {
        match ask {
            Ask::Set(_) if is_out_of_memory(reply) => {
                self.refused += 1;
                true
            }
            Ask::Get(_) | Ask::Set(_) => requests.is_answered(ask, reply),
            // The item may be evicted before its lock arrives, and there are bounds on locks.
            Ask::Lock(_) | Ask::Unlock(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_releases_its_oldest_locks() {
        let mut fill = LockedFill::new(2);
        fill.go_on(0..9, 2);
        let asks: Vec<Ask> = std::iter::from_fn(|| fill.next(0)).collect();
        let [set, lock, unlock] = [Ask::Set, Ask::Lock, Ask::Unlock];
        let expected = [
            set(0),
            lock(0),
            set(1),
            set(2),
            set(3),
            lock(3),
            unlock(0),
            set(4),
            set(5),
            set(6),
            lock(6),
            unlock(3),
            set(7),
            set(8),
        ];
        assert_eq!(asks, expected);
    }
}
