//! What a connection is known to hold, and what is left when all have gone, for proofs.

use super::{ShardSession, Shards};

impl Shards {
    /// Asserts D4 after a command of a connection in this shard: what it is known to hold there is what it holds.
    pub(crate) fn check_held(&self, session: &ShardSession, shard: usize) {
        if let Some(held) = session.held.get(shard) {
            let there = self.core(shard).held_here(session.owner);
            assert_eq!(*held, there, "D4: {:?} in shard {shard}", session.owner);
        }
    }

    /// Asserts D4 after `unlock_all`: it is known to hold no lock, and at least the wins that are bound to it.
    pub(crate) fn check_unlocked(&self, session: &ShardSession) {
        for (shard, held) in session.held.iter().enumerate() {
            let there = self.core(shard).held_here(session.owner);
            assert_eq!((held.locks, held.bytes), (there.locks, there.bytes), "D4");
            assert!(
                held.wins >= there.wins,
                "D4: {:?} in shard {shard}",
                session.owner
            );
        }
    }

    /// Asserts the invariants of each core.
    pub(crate) fn check(&self) {
        for shard in 0..self.cores.len() {
            self.core(shard).check();
        }
    }

    /// The locks in force, and whether a request waits or has a notice to come.
    pub(crate) fn left(&self) -> (usize, bool) {
        (0..self.cores.len()).fold((0, false), |(locks, waits), shard| {
            let core = self.core(shard);
            let here = core.locks_in_force().count();
            (locks + here, waits || core.has_waits())
        })
    }

    /// The memory of the tables of all shards and of the reservations, in bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.lock_memory.total()
    }
}
