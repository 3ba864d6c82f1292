//! The table as a view shows it.

use super::{Fence, Holder, Key, LockTable, Owner};
use crate::engine::owned_key::as_key;

impl LockTable {
    /// Whether everything in it is in force: nothing that is over waits to be taken out, and nothing that was taken out has left
    /// its place behind.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.has_over()
    }

    /// Every open owner that was announced, with the keys that it holds.
    pub(in crate::engine) fn connections(
        &self,
    ) -> impl Iterator<Item = (Owner, impl Iterator<Item = Key<'_>>)> {
        self.by_owner.iter().map(|(owner, holder)| {
            // The number of a term decides nothing but whether a lock is in force, which `iter` and
            // `shared` show; pinned bytes are a sum (L10).
            let Holder {
                term: _,
                keys,
                shared,
                // `iter` shows them.
                waited: _,
                pinned_bytes: _,
                pins: _,
                table_bytes: _,
            } = holder;
            let keys = keys.iter().chain(shared.keys());
            (*owner, keys.map(|key| as_key(key)))
        })
    }

    /// The metadata of each grant that has some.
    pub(in crate::engine) fn all_metadata(&self) -> impl Iterator<Item = (Fence, &[u8])> {
        let all = self.metadata.iter();
        all.map(|(fence, metadata)| (*fence, &**metadata))
    }

    /// The keys of ended locks (L9), in the order of their removal: exclusive ones with waiters (L14), shared ones, and
    /// all exclusive ones.
    pub(in crate::engine) fn in_line(
        &self,
    ) -> (
        impl Iterator<Item = Key<'_>>,
        impl Iterator<Item = Key<'_>>,
        impl Iterator<Item = Key<'_>>,
    ) {
        // V1: every field is shown, here, by `iter`, by `shared` and by `connections`, or is a sum (L10). Of
        // the flushes only the difference matters, which `iter` shows.
        let Self {
            by_key: _,
            by_owner: _,
            // `shared` shows the fences: each owner has at most one share of a key.
            shares,
            // The view shows it by itself.
            metadata: _,
            ended,
            handovers,
            ended_entries: _,
            bare_entries: _,
            // `iter` and `shared` show them.
            leases: _,
            waited_leases: _,
            lease_next: _,
            leases_passed: _,
            pins: _,
            holders: _,
            table_bytes: _,
            // Counted and reported; no reply depends on it.
            ends: _,
            flushes: _,
        } = self;
        let waited = handovers.iter().flatten().map(|key| as_key(key));
        let shared = shares.ended.iter().flat_map(|line| line.keys());
        (
            waited,
            shared.map(|key| as_key(key)),
            ended.iter().flatten().map(|key| as_key(key)),
        )
    }
}
