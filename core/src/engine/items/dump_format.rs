//! Items that outlive a core: the form in which one run saves them and the next one restores them.
//!
//! - N1: Locks do not outlive a core. An item is saved as its holder left it, without the lock.
//! - N2: Wins do not outlive a core. The winner may have ended, so the item is stale then, and the next get wins it.
//! - N3: a CAS that a core has given is given to no other change: the next run begins above [`Numbers`]. A CAS
//!   that a client has chosen is restored as it is, and moves no counter, neither then nor when it was chosen (E3).
//! - N4: A TTL goes on by the wall clock, also between two runs.

use core::ops::Deref;

use latchd_protocol::command::ScanCursor;
use latchd_protocol::fence::Fence;
use latchd_protocol::item::{Cas, ItemHeader, WinMark};
use latchd_protocol::key::{Key, KeyForm};
use latchd_protocol::value::Value;

use crate::engine::items::Items;
use crate::engine::manager::LockManager;
use crate::store::{Full, Store};

/// An item between two runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SavedItem<'a> {
    /// Its key.
    pub key: Key<'a>,
    /// As [`ItemHeader::key_form`].
    pub key_form: KeyForm,
    /// Its value.
    pub value: &'a [u8],
    /// As [`ItemHeader::client_flags`].
    pub client_flags: u32,
    /// As [`ItemHeader::cas`].
    pub cas: Cas,
    /// When it expires, in milliseconds since 1970; `None` is never.
    pub expires_unix_ms: Option<u64>,
    /// As [`ItemHeader::fetched`].
    pub fetched: bool,
    /// As [`ItemHeader::stale`]; also if a client had its win (N2).
    pub stale: bool,
}

/// The numbers above which the next run begins.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Numbers {
    /// The next CAS that would have been given.
    pub cas: Cas,
    /// The next fence that would have been given.
    pub fence: Fence,
}

impl Numbers {
    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            cas: self.cas.max(other.cas),
            fence: self.fence.max(other.fence),
        }
    }
}

/// The result of [`Items::restore`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Restored {
    /// It is there.
    Kept,
    /// It has expired meanwhile.
    Expired,
    /// Its value is larger than values may be now, there is no free memory and nothing may be evicted, or its key is
    /// there already.
    Refused,
}

impl<S: Store> Items<S> {
    /// Goes on above the CAS numbers of an earlier run, in its own stride.
    pub(in crate::engine) fn resume(&mut self, cas: Cas) {
        let index = (self.next_cas.number() - Cas::FIRST.number()) % u64::from(self.cas_stride);
        let cas = cas.number().saturating_add(index);
        self.next_cas = Cas::new(cas).map_or(self.next_cas, |cas| self.next_cas.max(cas));
    }

    /// Shows the items that a client would find among up to `items_max` from `cursor` on. Returns where to go on;
    /// `None` at the end.
    pub fn save(
        &self,
        manager: &impl Deref<Target = LockManager>,
        cursor: ScanCursor,
        items_max: usize,
        visit: &mut dyn FnMut(&SavedItem<'_>),
    ) -> Option<ScanCursor> {
        let is_won = |key: Key<'_>, header: &ItemHeader| {
            header.win != WinMark::None && manager.wins.mark(key, header) != WinMark::None
        };
        self.store.scan(cursor, items_max, &mut |item| {
            let header = &item.header;
            if self.is_there(manager, item.key, header) {
                visit(&SavedItem {
                    key: item.key,
                    key_form: header.key_form,
                    value: item.value,
                    client_flags: header.client_flags,
                    cas: header.cas,
                    expires_unix_ms: header
                        .deadline
                        .map(|deadline| self.clock.unix_ms(deadline.tick())),
                    fetched: header.fetched,
                    stale: header.stale || is_won(item.key, header),
                });
            }
        })
    }

    /// Stores an item of an earlier run. Others are evicted for it, if they may be.
    pub fn restore(&mut self, item: &SavedItem<'_>) -> Restored {
        let deadline = item
            .expires_unix_ms
            .map(|unix_ms| self.clock.deadline_at_unix_ms(unix_ms));
        let tick = self.clock.tick();
        if deadline.is_some_and(|deadline| deadline.has_passed(tick)) {
            return Restored::Expired;
        }
        if item.value.len() > self.limits.value_bytes_max {
            return Restored::Refused;
        }
        let Err(vacancy) = self.store.find(item.key) else {
            return Restored::Refused;
        };
        let header = ItemHeader {
            deadline,
            client_flags: item.client_flags,
            key_form: item.key_form,
            fetched: item.fetched,
            stale: item.stale,
            ..ItemHeader::new(item.cas, tick)
        };
        let value = Value::Borrowed(item.value);
        let counters = &mut self.counters;
        match self
            .store
            .insert(tick, vacancy, item.key, header, value, counters)
        {
            Ok(_) => Restored::Kept,
            Err(Full) => Restored::Refused,
        }
    }
}
