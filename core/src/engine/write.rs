//! Storing a value: set, add, replace, append, prepend, cas, meta set, and replace-and-unlock.
//!
//! The order of the questions is the order of the answers: somebody else's lock (or for a
//! replace-and-unlock, whether it is one's own), then the mode, then the guard, then room. Every refusal returns
//! before the first change (E1).
//!
//! Source: memcached 1.6.45 `memcached.c`, `do_store_item`; yrmcds `docs/locking.md`.

use super::{Core, Guarded, HELD_BY_ANOTHER};
use crate::command::{Guard, LockAfter, OnMissing, Set, SetMode};
use crate::conn_id::ConnId;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::reply::{Refusal, Reply, Stored};
use crate::store::{End, Store};

/// A set that mode and guard allow.
enum Change<Slot> {
    /// A whole new value; stale ones stay stale, with their TTL and their win.
    Put { stale: bool },
    /// More of the value that is there.
    Extend {
        slot: Slot,
        old: ItemHeader,
        end: End,
    },
}

impl<S: Store> Core<S> {
    pub(super) fn set(&mut self, conn: ConnId, set: &Set<'_>) -> Reply<'static> {
        self.stats.counters.cmd_set += 1;
        if set.value.len() > self.limits.value_bytes_max {
            self.stats.counters.store_too_large += 1;
            return Reply::Refused(Refusal::TooLarge);
        }
        let found = self.find_live(set.key);
        match set.lock {
            LockAfter::Keep => {
                if let Some((_, header)) = &found
                    && self.is_held_by_another(conn, set.key, header)
                {
                    return HELD_BY_ANOTHER;
                }
            }
            // Who must hold the lock is told whether he does, and not who else does.
            LockAfter::Release => {
                if found.is_none() {
                    return Reply::NotFound;
                }
                if self.locks.owner(set.key) != Some(conn) {
                    return Reply::Refused(Refusal::NotLocked);
                }
            }
        }
        match self.judge(set, found) {
            Err(answer) => answer,
            Ok(Change::Put { stale }) => self.put(set, found, stale),
            Ok(Change::Extend { slot, old, end }) => self.extend(set, slot, old, end),
        }
    }

    /// What mode and guard say.
    fn judge(
        &mut self,
        set: &Set<'_>,
        found: Option<(S::Slot, ItemHeader)>,
    ) -> Result<Change<S::Slot>, Reply<'static>> {
        let counters = &mut self.stats.counters;
        let Some((slot, header)) = found else {
            return match (set.mode, set.guard) {
                (SetMode::Set, Guard::None) | (SetMode::Add, _) => Ok(Change::Put { stale: false }),
                (SetMode::Replace, Guard::None) => Err(Reply::NotStored),
                // A guard makes a replace a compare-and-swap, too.
                (
                    SetMode::Set | SetMode::Replace,
                    Guard::Match(_) | Guard::MatchElseStale(_) | Guard::Never,
                ) => {
                    counters.cas_misses += 1;
                    Err(Reply::NotFound)
                }
                (SetMode::Append { missing } | SetMode::Prepend { missing }, _) => match missing {
                    OnMissing::Refuse => Err(Reply::NotStored),
                    OnMissing::Create => Ok(Change::Put { stale: false }),
                },
            };
        };
        let end = match set.mode {
            SetMode::Add => {
                // memcached counts a refused add as a use of the item.
                self.store.record_hit(slot);
                return Err(Reply::NotStored);
            }
            SetMode::Set | SetMode::Replace => None,
            SetMode::Append { .. } => Some(End::Back),
            SetMode::Prepend { .. } => Some(End::Front),
        };
        let guarded = set.guard.judge(header.cas);
        if set.guard != Guard::None {
            match guarded {
                Guarded::Pass | Guarded::PassStale => counters.cas_hits += 1,
                Guarded::Fail => counters.cas_badval += 1,
            }
        }
        match (guarded, end) {
            (Guarded::Fail, _) | (Guarded::PassStale, Some(_)) => Err(Reply::Exists),
            (Guarded::Pass, Some(end)) => Ok(Change::Extend {
                slot,
                old: header,
                end,
            }),
            (Guarded::Pass, None) => Ok(Change::Put { stale: false }),
            (Guarded::PassStale, None) => Ok(Change::Put { stale: true }),
        }
    }

    fn put(
        &mut self,
        set: &Set<'_>,
        found: Option<(S::Slot, ItemHeader)>,
        stale: bool,
    ) -> Reply<'static> {
        let now = self.clock.tick();
        let old = found.map(|(_, header)| header);
        let held = old.is_some_and(|header| header.locked);
        let header = ItemHeader {
            cas: self.peek_cas(set.new_cas),
            deadline: match old {
                Some(old) if stale => old.deadline,
                _ => self.clock.deadline(set.exptime),
            },
            last_access: now,
            client_flags: set.client_flags,
            key_form: set.key_form,
            fetched: false,
            stale,
            win_sent: stale && old.is_some_and(|header| header.win_sent),
            locked: held,
        };
        if held && !self.may_pin(found, set.key.as_bytes().len(), set.value.len()) {
            return self.out_of_memory();
        }
        let counters = &mut self.stats.counters;
        if self
            .store
            .put(now, set.key, header, set.value, counters)
            .is_err()
        {
            return self.out_of_memory();
        }
        self.commit_cas(set.new_cas);
        if held {
            self.locks.clear_flush(set.key);
            self.settle_lock(set);
        }
        Reply::Stored(Stored {
            cas: header.cas,
            size: set.value.len(),
        })
    }

    fn extend(
        &mut self,
        set: &Set<'_>,
        slot: S::Slot,
        old: ItemHeader,
        end: End,
    ) -> Reply<'static> {
        let now = self.clock.tick();
        let size = self.store.value(slot).len() + set.value.len();
        if size > self.limits.value_bytes_max {
            return Reply::NotStored;
        }
        if old.locked && !self.may_pin(Some((slot, old)), set.key.as_bytes().len(), size) {
            return self.out_of_memory();
        }
        let header = ItemHeader {
            cas: self.peek_cas(set.new_cas),
            last_access: now,
            fetched: false,
            stale: false,
            win_sent: false,
            ..old
        };
        let counters = &mut self.stats.counters;
        if self
            .store
            .extend(now, slot, header, set.value, end, counters)
            .is_err()
        {
            return self.out_of_memory();
        }
        self.commit_cas(set.new_cas);
        if old.locked {
            self.settle_lock(set);
        }
        Reply::Stored(Stored {
            cas: header.cas,
            size,
        })
    }

    fn settle_lock(&mut self, set: &Set<'_>) {
        match set.lock {
            LockAfter::Keep => {}
            LockAfter::Release => {
                self.stats.counters.lock_released += 1;
                self.release(set.key);
            }
        }
    }

    /// Whether a held item may take a value of this size, within what locks may pin. One that does
    /// not grow always may.
    pub(super) fn may_pin(
        &self,
        found: Option<(S::Slot, ItemHeader)>,
        key_bytes: usize,
        value_bytes: usize,
    ) -> bool {
        let gone = found.map_or(0, |(slot, _)| self.store.item_bytes(slot));
        let need = self.store.bytes_for(key_bytes, value_bytes);
        let pinned = self.store.usage().locked_bytes - gone + need;
        need <= gone || pinned <= self.limits.locked_bytes_max
    }

    pub(super) const fn out_of_memory(&mut self) -> Reply<'static> {
        self.stats.counters.store_no_memory += 1;
        Reply::Refused(Refusal::OutOfMemory)
    }

    /// A value over the limit was not taken in. What it was to replace goes, so that nobody reads
    /// it as if it were still true; not if another connection holds the item.
    pub(super) fn set_too_large(&mut self, conn: ConnId, key: Key<'_>) -> Reply<'static> {
        self.stats.counters.cmd_set += 1;
        self.stats.counters.store_too_large += 1;
        if let Some((slot, header)) = self.find_live(key)
            && !self.is_held_by_another(conn, key, &header)
        {
            self.locks.release(key);
            self.store.remove(slot);
        }
        Reply::Refused(Refusal::TooLarge)
    }
}
