//! What a connection is known to hold, for proofs.

use super::{ShardSession, Shards};

impl Shards {
    /// Asserts D4: what a connection is known to hold in a shard is what it holds there. In `shard` alone, which has
    /// just executed a command of it, or in all shards.
    pub(crate) fn check_held(&self, session: &ShardSession, shard: Option<usize>) {
        for (other, held) in session.held.iter().enumerate() {
            if shard.is_none_or(|shard| shard == other) {
                let there = self.core(other).held_here(session.owner);
                assert_eq!(*held, there, "D4: {:?} in shard {other}", session.owner);
            }
        }
    }
}
