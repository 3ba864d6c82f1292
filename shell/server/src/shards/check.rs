//! What a connection is known to hold, for proofs.

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
}
