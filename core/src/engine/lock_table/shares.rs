//! Who shares the lock of a key.
//!
//! A share is a grant like any other: it has a fence, a lease and a term of its own, and is charged to its connection like
//! a lock, the item that it pins included. Nobody changes the item of a key that is shared, so what this takes is
//! the same until the last share has gone.
//!
//! - L1: no more share a key than each of them has asked for.
//! - L9: a share that is over is held by nobody. Whoever looks at the key has it taken out before
//!   ([`LockTable::over_shares`]), so that what is counted then is in force.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::{
    ENTRY_BYTES, Entry, Grant, Hold, Holding, LISTED_BYTES, LockTable, OwnedKey, Tenure,
    WAITED_BYTES,
};
use crate::command::Mode;
use crate::conn_id::ConnId;
use crate::fence::Fence;
use crate::key::Key;

/// What a share takes beyond what a lock does, in bytes: up to four places of 64 bytes in the list of its key, which has
/// room to grow and to shrink; for the first, the place of that list in a tree that is seldom full.
pub(super) const SHARE_BYTES: usize = 336;

/// One connection's part in the lock of a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Share {
    pub(super) tenure: Tenure,
    /// Among how many.
    pub(super) among: Option<NonZeroU32>,
    /// Its owner has waited for it, and does not know yet.
    pub(super) is_untold: bool,
}

impl Share {
    const fn mode(&self) -> Mode {
        Mode::Shared { among: self.among }
    }
}

impl LockTable {
    /// What a share of this key takes of what its connection may have. [`Self::table_bytes`] grows by as much or less.
    #[must_use]
    pub const fn bytes_for_share(key: Key<'_>) -> usize {
        Self::bytes_for(key) + SHARE_BYTES
    }

    /// What a lock of this key takes of what its connection may have, in this mode.
    pub(in crate::engine) const fn bytes_in(mode: Mode, key: Key<'_>) -> usize {
        match mode {
            Mode::Exclusive => Self::bytes_for(key),
            Mode::Shared { .. } => Self::bytes_for_share(key),
        }
    }

    /// Who holds `key`, in the order of the grants, and among how many, 1 being alone.
    pub fn holders_of(&self, key: Key<'_>) -> impl Iterator<Item = (ConnId, u32)> {
        let alone = match self.by_key.get(key.as_bytes()).map(|entry| &entry.hold) {
            Some(Hold::Alone(tenure)) => Some((tenure, 1)),
            Some(Hold::Shared) | None => None,
        };
        let shares = self.sharers(key).iter();
        let shares = shares.map(|share| (&share.tenure, share.mode().among()));
        let all = alone.into_iter().chain(shares);
        all.filter(|(tenure, _)| self.is_in_force(tenure))
            .map(|(tenure, among)| (tenure.owner, among))
    }

    /// Whether the lock of `key` can be had in this mode, by one who has no part in it.
    pub(in crate::engine) fn has_room(&self, key: Key<'_>, mode: Mode) -> bool {
        match self.by_key.get(key.as_bytes()).map(|entry| &entry.hold) {
            None => true,
            Some(Hold::Alone(_)) => false,
            Some(Hold::Shared) => {
                let shares = self.sharers(key);
                let among = shares.iter().map(|share| share.mode().among());
                let among = among.fold(mode.among(), u32::min);
                mode.is_shared() && self.share_count(key) < among
            }
        }
    }

    /// How many shares of `key` are in the table.
    pub(in crate::engine) fn share_count(&self, key: Key<'_>) -> u32 {
        u32::try_from(self.sharers(key).len()).unwrap_or(u32::MAX)
    }

    /// Whether `fence` is that of a share of `key` that is in force.
    pub(in crate::engine) fn is_share(&self, key: Key<'_>, fence: Fence) -> bool {
        let mut shares = self.sharers(key).iter();
        shares.any(|share| share.tenure.fence == fence && self.is_in_force(&share.tenure))
    }

    /// Whose shares of `key` are over, and wait to be taken out.
    pub(in crate::engine) fn over_shares(&self, key: Key<'_>) -> Vec<ConnId> {
        let shares = self.sharers(key).iter();
        let over = shares.filter(|share| !self.is_in_force(&share.tenure));
        over.map(|share| share.tenure.owner).collect()
    }

    /// Gives a share of `key` to a connection that is open and has none. The lock is not in the table, or it is shared.
    /// The item, if there is one, takes `pinned_bytes` of the memory limit.
    pub(in crate::engine) fn share(
        &mut self,
        key: Key<'_>,
        grant: Grant,
        among: Option<NonZeroU32>,
        pinned_bytes: Option<usize>,
    ) {
        let (owned, is_waited) = self.shared_entry(key, &grant, pinned_bytes.is_some());
        let holder = self.enter(grant.owner, &owned);
        holder.pinned_bytes += pinned_bytes.unwrap_or(0);
        holder.shared_pinned_bytes += pinned_bytes.unwrap_or(0);
        holder.table_bytes += Self::bytes_for_share(key);
        let tenure = Tenure {
            owner: grant.owner,
            term: holder.term,
            fence: grant.fence,
            since: grant.now,
            lease_until: None,
        };
        if is_waited {
            self.list_waited(&owned, &tenure, true);
        }
        let shares = self.shares.entry(owned).or_default();
        shares.push(Share {
            tenure,
            among,
            is_untold: false,
        });
        self.share_entries += 1;
        self.table_bytes += SHARE_BYTES + LISTED_BYTES + key.as_bytes().len();
        self.set_lease(key, grant.owner, grant.lease_until);
    }

    /// The key of a lock that is shared, which is entered if it is not there; and whether somebody waits for it.
    fn shared_entry(&mut self, key: Key<'_>, grant: &Grant, has_item: bool) -> (OwnedKey, bool) {
        if let Some((owned, entry)) = self.by_key.get_key_value(key.as_bytes()) {
            return (Arc::clone(owned), entry.is_waited);
        }
        let owned: OwnedKey = Arc::from(key.as_bytes());
        let entry = Entry {
            hold: Hold::Shared,
            flushes: self.flushes,
            taken: grant.taken,
            has_item,
            is_waited: false,
            is_untold: false,
        };
        self.by_key.insert(Arc::clone(&owned), entry);
        self.bare_entries += usize::from(!has_item);
        self.table_bytes += ENTRY_BYTES;
        (owned, false)
    }

    /// Takes the share out that `owner` has, or had, of `key`, whose item takes `pinned_bytes` of the memory limit. Says
    /// what it was; `None` if there was none.
    pub(in crate::engine) fn release_share(
        &mut self,
        key: Key<'_>,
        owner: ConnId,
        pinned_bytes: usize,
    ) -> Option<Holding> {
        let (shared_key, entry) = self.by_key.get_key_value(key.as_bytes())?;
        let (shared_key, entry) = (Arc::clone(shared_key), *entry);
        let holding = self.share_of(key, &entry, owner)?;
        self.set_lease(key, owner, None);
        let shares = self.shares.get_mut(&shared_key)?;
        let place = shares.iter().position(|it| it.tenure.owner == owner)?;
        let Share { tenure, .. } = shares.remove(place);
        if shares.capacity() > 4 * shares.len() {
            shares.shrink_to(2 * shares.len());
        }
        let is_last = shares.is_empty();
        self.ends.note(&shared_key, &tenure, &holding);
        self.share_entries -= 1;
        self.table_bytes -= SHARE_BYTES;
        if let Some(holder) = self.leave(key, &tenure) {
            holder.pinned_bytes -= pinned_bytes;
            holder.shared_pinned_bytes -= pinned_bytes;
            holder.table_bytes -= Self::bytes_for_share(key);
            if holder.waited.remove(&shared_key) {
                self.table_bytes -= WAITED_BYTES + shared_key.len();
            }
        }
        if is_last {
            self.shares.remove(&shared_key);
            self.by_key.remove(&shared_key);
            self.table_bytes -= ENTRY_BYTES;
            self.bare_entries -= usize::from(!entry.has_item);
        }
        Some(holding)
    }

    /// The share of `key`, which is shared, that `conn` has or had.
    pub(super) fn share_of(&self, key: Key<'_>, entry: &Entry, conn: ConnId) -> Option<Holding> {
        let mut shares = self.sharers(key).iter();
        let share = shares.find(|share| share.tenure.owner == conn)?;
        Some(self.holding_of(entry, &share.tenure, share.mode(), share.is_untold))
    }

    /// The first share in force of a key that is shared; if there is none, the first.
    pub(super) fn holding_of_first(&self, key: &[u8], entry: &Entry) -> Holding {
        let shares = self.shares.get(key).expect("L1: never none");
        let mut in_force = shares.iter();
        let first = in_force.find(|share| self.is_in_force(&share.tenure));
        let share = first.or_else(|| shares.first()).expect("L1: never none");
        self.holding_of(entry, &share.tenure, share.mode(), share.is_untold)
    }

    pub(super) fn first_sharer(&self, key: Key<'_>) -> Option<ConnId> {
        let mut shares = self.sharers(key).iter();
        let first = shares.find(|share| self.is_in_force(&share.tenure))?;
        Some(first.tenure.owner)
    }

    pub(super) fn set_share_untold(&mut self, key: Key<'_>, owner: ConnId, is_untold: bool) {
        let shares = self.shares.get_mut(key.as_bytes()).into_iter().flatten();
        for share in shares.filter(|share| share.tenure.owner == owner) {
            share.is_untold = is_untold;
        }
    }

    /// The shares of `key`, those included that are over.
    pub(super) fn sharers(&self, key: Key<'_>) -> &[Share] {
        if self.shares.is_empty() {
            return &[];
        }
        self.shares.get(key.as_bytes()).map_or(&[], Vec::as_slice)
    }

    /// Every key that is shared, with its shares in the order of the grants, those that are over included.
    pub fn shared(&self) -> impl Iterator<Item = (Key<'_>, Vec<Holding>)> {
        self.shares.iter().map(|(key, shares)| {
            let entry = &self.by_key[key];
            let shares = shares
                .iter()
                .map(|share| self.holding_of(entry, &share.tenure, share.mode(), share.is_untold));
            (super::as_key(key), shares.collect())
        })
    }
}
