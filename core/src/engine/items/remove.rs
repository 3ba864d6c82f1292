//! Removing an item, emptying it, or marking it out of date.
//!
//! Source: memcached 1.6.45 `proto_parser.c`, `process_delete_cmd` and `process_mdelete_cmd`.
//! Where we differ: emptying an item keeps its win (docs/PROTOCOL.md, "md").

use latchd_protocol::Owner;
use latchd_protocol::command::{Delete, LockAfter, NewCas, Removal};
use latchd_protocol::fence::Fence;
use latchd_protocol::item::{ItemHeader, WinMark};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::time::Exptime;
use latchd_protocol::value::Value;

use crate::engine::items::fenced::{Forbidden, Right};
use crate::engine::items::guard::{Guarded, judge};
use crate::engine::rules::{Access, Rules};
use crate::store::{Full, Store};

impl<S: Store, M: Access> Rules<'_, S, M> {
    pub(in crate::engine) fn delete(
        &mut self,
        owner: Owner,
        delete: &Delete<'_>,
    ) -> Reply<'static> {
        let right = Right {
            owner,
            fence: delete.fence,
            lock: delete.lock,
        };
        let Ok((slot, header)) = self.find_live(delete.key) else {
            self.items.counters.delete_misses += 1;
            return match self.may_make(delete.key, right) {
                // As with replace-and-unlock, a missing item is reported first.
                Ok(()) | Err(Forbidden::NotHolder) => Reply::NotFound,
                Err(forbidden @ (Forbidden::GrantIsOver | Forbidden::HeldByAnother)) => {
                    forbidden.into()
                }
            };
        };
        if let Err(forbidden) = self.may_change(delete.key, right, &header) {
            return forbidden.into();
        }
        if judge(delete.guard, header.cas) != Guarded::Pass {
            self.items.counters.delete_misses += 1;
            return Reply::Exists;
        }
        let of_grant = match delete.lock {
            LockAfter::Release => self.grant_in_force(delete.key),
            LockAfter::Keep => None,
        };
        // Where the item is then, if it stays.
        let done = match delete.removal {
            Removal::Remove => {
                self.remove(delete.key, slot);
                Ok(None)
            }
            Removal::MarkStale { exptime } => {
                let deadline = exptime.map_or(header.deadline, |at| self.items.clock.deadline(at));
                let marked = ItemHeader {
                    deadline,
                    ..self.marked_stale(header, delete.new_cas)
                };
                self.items.store.set_header(slot, marked);
                self.items.commit_cas(delete.new_cas);
                Ok(Some(slot))
            }
            Removal::Clear {
                exptime,
                client_flags,
            } => {
                // Without `E` the version stays, and with it the win: the value is removed, but no client has replaced it.
                let cas = match delete.new_cas {
                    NewCas::Next => header.cas,
                    NewCas::Is(cas) => cas,
                };
                self.clear(
                    delete,
                    slot,
                    ItemHeader {
                        cas,
                        stale: false,
                        ..header
                    },
                    exptime,
                    client_flags,
                )
            }
            Removal::ClearAndMarkStale {
                exptime,
                client_flags,
            } => {
                let marked = self.marked_stale(header, delete.new_cas);
                self.clear(delete, slot, marked, exptime, client_flags)
                    .inspect(|_| self.items.commit_cas(delete.new_cas))
            }
        };
        match done {
            Ok(stays) => {
                match delete.removal {
                    Removal::Remove | Removal::Clear { .. } => {
                        self.items.counters.delete_hits += 1;
                    }
                    // Nothing is removed: memcached counts no delete, and latchd a mark.
                    Removal::MarkStale { .. } | Removal::ClearAndMarkStale { .. } => {
                        self.items.counters.stale_marks += 1;
                    }
                }
                // One of an item has ended with it, and may be another's by now.
                if of_grant.is_some() && self.grant_in_force(delete.key) == of_grant {
                    self.end_lock(delete.key, owner, stays, delete.lock);
                }
                Reply::Deleted
            }
            Err(Full) => self.items.out_of_memory(),
        }
    }

    fn grant_in_force(&self, key: Key<'_>) -> Option<Fence> {
        self.manager
            .locks
            .table
            .in_force(key)
            .map(|holding| holding.fence)
    }

    /// Out of date, with its win open again.
    const fn marked_stale(&self, header: ItemHeader, new_cas: NewCas) -> ItemHeader {
        ItemHeader {
            cas: self.items.peek_cas(new_cas),
            stale: true,
            win: WinMark::None,
            ..header
        }
    }

    /// Puts an empty value in the place of the one that is there; the item may be in another slot then.
    fn clear(
        &mut self,
        delete: &Delete<'_>,
        slot: S::Slot,
        header: ItemHeader,
        exptime: Exptime,
        client_flags: u32,
    ) -> Result<Option<S::Slot>, Full> {
        let now = self.items.clock.tick();
        let header = ItemHeader {
            deadline: self.items.clock.deadline(exptime),
            last_access: now,
            client_flags,
            key_form: delete.key_form,
            fetched: false,
            ..header
        };
        self.overwrite(slot, header, Value::default()).map(Some)
    }

    /// Removes an item, and with it the lock of the item, which the next waiter gets. The lock of the key stays.
    pub(in crate::engine) fn remove(&mut self, key: Key<'_>, slot: S::Slot) {
        if !self.items.store.header(slot).locked {
            self.items.store.remove(slot);
            return;
        }
        let pinned_bytes = self.items.store.item_bytes(slot);
        let manager = &mut *self.manager;
        let counters = &mut manager.counters;
        let ends = manager.locks.lose_item(key, pinned_bytes, counters);
        self.items.store.remove(slot);
        if ends {
            self.hand_over(key, None);
        }
    }
}
