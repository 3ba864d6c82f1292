//! Storing a value: set, add, replace, append, prepend, cas, meta set, and replace-and-unlock.
//!
//! A set checks the lock first (or, with a fence or to release it, whether its owner holds it), then the mode, the
//! guard and the free memory. Each refusal returns before the first change (E1). The item of a lease is not made while
//! grants are withheld (L17).
//!
//! Source: memcached 1.6.45 `memcached.c`, `do_store_item`; yrmcds `docs/locking.md`.

use latchd_protocol::Owner;
use latchd_protocol::command::{Guard, OnMissing, Set, SetMode};
use latchd_protocol::item::{ItemHeader, LEASE_ITEM, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::reply::{Refusal, Reply, Stored};
use latchd_protocol::stats::{Counters, Unstored};
use latchd_protocol::value::Value;

use crate::engine::items::Items;
use crate::engine::items::fenced::{Forbidden, Right};
use crate::engine::items::guard::{Guarded, judge};
use crate::engine::rules::{Access, Rules};
use crate::store::{End, Full, Store};

const fn right(owner: Owner, set: &Set<'_>) -> Right {
    Right {
        owner,
        fence: set.fence,
        lock: set.lock,
    }
}

impl<S: Store, M: Access> Rules<'_, S, M> {
    pub(in crate::engine) fn set(&mut self, owner: Owner, set: &Set<'_>) -> Reply<'static> {
        if set.value.len() > self.items.limits.value_bytes_max {
            self.items.note_unstored(Unstored::TooLarge);
            return Reply::Refused(Refusal::TooLarge);
        }
        self.items.counters.cmd_set += 1;
        match self.find_live(set.key) {
            Ok((slot, old)) => self.set_found(owner, set, slot, old),
            Err(vacancy) => self.set_missing(owner, set, vacancy),
        }
    }

    fn set_missing(&mut self, owner: Owner, set: &Set<'_>, vacancy: S::Vacancy) -> Reply<'static> {
        match self.may_make(set.key, right(owner, set)) {
            Ok(()) => {}
            // For a replace-and-unlock, a missing item is reported first.
            Err(Forbidden::NotHolder) if set.mode == SetMode::Replace => return Reply::NotFound,
            Err(forbidden) => return forbidden.into(),
        }
        match (set.mode, set.guard) {
            (SetMode::Set, Guard::None) | (SetMode::Add, _) => self.insert(owner, set, vacancy),
            (SetMode::Replace, Guard::None) => Reply::NotStored,
            // A guard makes a replace a compare-and-swap, too.
            (
                SetMode::Set | SetMode::Replace,
                Guard::Match(_) | Guard::MatchElseStale(_) | Guard::Never,
            ) => {
                self.items.counters.cas_misses += 1;
                Reply::NotFound
            }
            (SetMode::Append { missing } | SetMode::Prepend { missing }, _) => match missing {
                OnMissing::Refuse => Reply::NotStored,
                OnMissing::Create => self.insert(owner, set, vacancy),
            },
        }
    }

    fn set_found(
        &mut self,
        owner: Owner,
        set: &Set<'_>,
        slot: S::Slot,
        old: ItemHeader,
    ) -> Reply<'static> {
        if let Err(forbidden) = self.may_change(set.key, right(owner, set), &old) {
            return forbidden.into();
        }
        let end = match set.mode {
            SetMode::Add => {
                // memcached counts a refused add as a use of the item.
                self.items.store.record_hit(slot);
                return Reply::NotStored;
            }
            SetMode::Set | SetMode::Replace => None,
            SetMode::Append { .. } => Some(End::Back),
            SetMode::Prepend { .. } => Some(End::Front),
        };
        let guarded = judge(set.guard, old.cas);
        // As memcached: an append under a version is no compare-and-swap to the counters.
        if set.guard != Guard::None && end.is_none() {
            let counters = &mut self.items.counters;
            match guarded {
                Guarded::Pass | Guarded::PassStale => counters.cas_hits += 1,
                Guarded::Fail => counters.cas_badval += 1,
            }
        }
        let fresh = ItemHeader {
            locked: old.locked,
            ..self.new_header(set)
        };
        match (guarded, end) {
            (Guarded::Fail, _) | (Guarded::PassStale, Some(_)) => Reply::Exists,
            (Guarded::Pass, Some(end)) => self.extend(owner, set, slot, old, end),
            (Guarded::Pass, None) => self.replace(owner, set, slot, fresh),
            (Guarded::PassStale, None) => {
                // The value was computed before the item was marked: better than the stored one, and still stale. The
                // winner goes on.
                let stale = ItemHeader {
                    deadline: old.deadline,
                    stale: true,
                    win: old.win,
                    ..fresh
                };
                self.replace(owner, set, slot, stale)
            }
        }
    }

    /// The header of an item that `set` makes.
    fn new_header(&self, set: &Set<'_>) -> ItemHeader {
        ItemHeader {
            deadline: self.items.clock.deadline(set.exptime),
            client_flags: set.client_flags,
            key_form: set.key_form,
            ..ItemHeader::new(self.items.peek_cas(set.new_cas), self.items.clock.tick())
        }
    }

    fn insert(&mut self, owner: Owner, set: &Set<'_>, vacancy: S::Vacancy) -> Reply<'static> {
        if set.client_flags == LEASE_ITEM && self.manager.locks.queue.are_withheld() {
            return Reply::Refused(Refusal::Locked);
        }
        let now = self.items.clock.tick();
        let header = self.new_header(set);
        let inserted = self.may_pin_new(set.key, set.value.len()).and_then(|()| {
            let counters = &mut self.items.counters;
            self.items
                .store
                .insert(now, vacancy, set.key, header, set.value, counters)
        });
        let Ok(slot) = inserted else {
            return self.items.out_of_memory();
        };
        self.items.commit_cas(set.new_cas);
        self.lock_made_item(set.key, slot);
        self.end_lock(set.key, owner, Some(slot), set.lock);
        Reply::Stored(Stored {
            cas: header.cas,
            size: set.value.len(),
        })
    }

    fn replace(
        &mut self,
        owner: Owner,
        set: &Set<'_>,
        slot: S::Slot,
        header: ItemHeader,
    ) -> Reply<'static> {
        let Ok(slot) = self.overwrite(slot, header, set.value) else {
            return self.items.out_of_memory();
        };
        self.items.commit_cas(set.new_cas);
        if header.locked {
            // A flush removes items that were stored before it; this one was stored after.
            self.manager.locks.table.clear_flush(set.key);
            self.end_lock(set.key, owner, Some(slot), set.lock);
        }
        Reply::Stored(Stored {
            cas: header.cas,
            size: set.value.len(),
        })
    }

    fn extend(
        &mut self,
        owner: Owner,
        set: &Set<'_>,
        slot: S::Slot,
        old: ItemHeader,
        end: End,
    ) -> Reply<'static> {
        let now = self.items.clock.tick();
        let size = self.items.store.value(slot).len() + set.value.len();
        if size > self.items.limits.value_bytes_max {
            return Reply::NotStored;
        }
        let header = ItemHeader {
            cas: self.items.peek_cas(set.new_cas),
            last_access: now,
            fetched: false,
            stale: false,
            win: WinMark::None,
            ..old
        };
        let extended = self.resized(slot, size, |store, counters| {
            store.extend(now, slot, header, &set.value, end, counters)
        });
        let Ok(slot) = extended else {
            return self.items.out_of_memory();
        };
        self.items.commit_cas(set.new_cas);
        self.end_lock(set.key, owner, Some(slot), set.lock);
        Reply::Stored(Stored {
            cas: header.cas,
            size,
        })
    }

    /// Gives an item that was found another header and value. A locked item stays within the bound of pinned bytes.
    ///
    /// # Errors
    /// [`Full`]: nothing has changed.
    pub(in crate::engine) fn overwrite(
        &mut self,
        slot: S::Slot,
        header: ItemHeader,
        value: Value<'_>,
    ) -> Result<S::Slot, Full> {
        let now = self.items.clock.tick();
        self.resized(slot, value.len(), |store, counters| {
            store.replace(now, slot, header, value, counters)
        })
    }

    /// Runs `change`, which gives the item in `slot` a value of `value_bytes`; its lock, if any, pins the new size from
    /// now on.
    fn resized(
        &mut self,
        slot: S::Slot,
        value_bytes: usize,
        change: impl FnOnce(&mut S, &mut Counters) -> Result<S::Slot, Full>,
    ) -> Result<S::Slot, Full> {
        let is_held = self.items.store.header(slot).locked;
        let mut before = 0;
        if is_held {
            before = self.items.store.item_bytes(slot);
            let key = self.items.store.key(slot);
            let after = self
                .items
                .store
                .bytes_for(key.as_bytes().len(), value_bytes);
            if !self
                .manager
                .locks
                .may_resize(key, before, after, &self.manager.limits)
            {
                return Err(Full);
            }
        }
        let slot = change(&mut self.items.store, &mut self.items.counters)?;
        if is_held {
            let after = self.items.store.item_bytes(slot);
            self.manager
                .locks
                .table
                .resize(self.items.store.key(slot), before, after);
        }
        Ok(slot)
    }

    /// The value of a set was over the limit. The old item is removed, so that no client reads an outdated value;
    /// unless another owner has locked it.
    pub(in crate::engine) fn set_too_large(
        &mut self,
        owner: Owner,
        key: Key<'_>,
    ) -> Reply<'static> {
        self.items.note_unstored(Unstored::TooLarge);
        if let Ok((slot, header)) = self.find_live(key)
            && self.may_change(key, Right::own(owner), &header).is_ok()
        {
            self.remove(key, slot);
        }
        Reply::Refused(Refusal::TooLarge)
    }
}

impl<S> Items<S> {
    /// Counts a set with a value that was never stored.
    pub const fn note_unstored(&mut self, why: Unstored) {
        let counters = &mut self.counters;
        match why {
            Unstored::BadChunk => counters.cmd_set += 1,
            Unstored::TooLarge => counters.store_too_large += 1,
        }
    }

    pub(in crate::engine) const fn out_of_memory(&mut self) -> Reply<'static> {
        self.counters.store_no_memory += 1;
        Reply::Refused(Refusal::OutOfMemory)
    }
}
