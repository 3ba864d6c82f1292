//! The table as a view shows it.

use alloc::vec::Vec;

use super::holder::Grants;
use super::{Fence, Holder, Key, LockTable, Owner};
use crate::engine::owned_key::as_key;

impl LockTable {
    /// Whether everything in it is in force: nothing that is over waits to be taken out, and nothing that was taken out has left
    /// its place behind.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.has_over()
    }

    /// Every open owner that was announced, with the keys that it holds, in the order of the grants, shared ones last.
    pub(in crate::engine) fn connections(
        &self,
    ) -> impl Iterator<Item = (Owner, impl Iterator<Item = Key<'_>>)> {
        let open = self.by_owner.iter().filter(|(_, holder)| holder.is_open);
        open.map(|(owner, holder)| {
            let lists = [&holder.keys, &holder.shared].into_iter();
            let in_force = lists.flat_map(|grants| grants.range(holder.valid_from..));
            (*owner, in_force.map(|(_, key)| as_key(key)))
        })
    }

    /// The metadata of each grant that has some.
    pub(in crate::engine) fn all_metadata(&self) -> impl Iterator<Item = (Fence, &[u8])> {
        let all = self.metadata.iter();
        all.map(|(fence, metadata)| (*fence, &**metadata))
    }

    /// The keys of ended locks (L9), in the order of their removal, those of each owner after each other: exclusive ones with
    /// waiters (L14), shared ones, and all exclusive ones.
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
            shares: _,
            // The view shows it by itself.
            metadata: _,
            over: _,
            // Only the order of the ends matters.
            ends_begun: _,
            ended_entries: _,
            entries_without_item: _,
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
        // Each kind is removed in the order of the ends.
        let mut owners: Vec<_> = self.owners_over().collect();
        owners.sort_unstable_by_key(|holder| holder.place);
        let ended = |of: fn(&Holder) -> &Grants| {
            owners.clone().into_iter().flat_map(move |holder| {
                let over = of(holder).range(..holder.valid_from);
                over.map(|(_, key)| as_key(key))
            })
        };
        (
            ended(|holder| &holder.waited),
            ended(|holder| &holder.shared),
            ended(|holder| &holder.keys),
        )
    }
}
