//! Removing an item, emptying it, or marking it out of date.
//!
//! Source: memcached 1.6.45 `proto_parser.c`, `process_delete_cmd` and `process_mdelete_cmd`.
//! Where we differ: emptying an item keeps its win (docs/PROTOCOL.md, "md").

use super::guard::Guarded;
use super::{Core, HELD_BY_ANOTHER};
use crate::command::{Delete, NewCas, Removal};
use crate::conn_id::ConnId;
use crate::item::ItemHeader;
use crate::key::Key;
use crate::reply::Reply;
use crate::store::{Full, Store};
use crate::time::Exptime;
use crate::value::Value;

impl<S: Store> Core<S> {
    pub(super) fn delete(&mut self, conn: ConnId, delete: &Delete<'_>) -> Reply<'static> {
        let Ok((slot, header)) = self.find_live(delete.key) else {
            self.stats.counters.delete_misses += 1;
            return Reply::NotFound;
        };
        if self.is_held_by_another(conn, delete.key, &header) {
            return HELD_BY_ANOTHER;
        }
        if delete.guard.judge(header.cas) != Guarded::Pass {
            self.stats.counters.delete_misses += 1;
            return Reply::Exists;
        }
        let done = match delete.removal {
            Removal::Remove => {
                self.remove(delete.key, slot);
                Ok(())
            }
            Removal::MarkStale { exptime } => {
                let deadline = exptime.map_or(header.deadline, |at| self.clock.deadline(at));
                let marked = ItemHeader {
                    deadline,
                    ..self.marked_stale(header, delete.new_cas)
                };
                self.store.set_header(slot, marked);
                self.commit_cas(delete.new_cas);
                self.stats.counters.stale_marks += 1;
                Ok(())
            }
            Removal::Clear {
                exptime,
                client_flags,
            } => {
                // Without `E` the version stays, and with it the win: the value is gone, but nobody has
                // replaced it.
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
                    .inspect(|()| {
                        self.commit_cas(delete.new_cas);
                        self.stats.counters.stale_marks += 1;
                    })
            }
        };
        match done {
            Ok(()) => {
                self.stats.counters.delete_hits += 1;
                Reply::Deleted
            }
            Err(refused) => refused,
        }
    }

    /// Out of date, with its win open again.
    const fn marked_stale(&self, header: ItemHeader, new_cas: NewCas) -> ItemHeader {
        ItemHeader {
            cas: self.peek_cas(new_cas),
            stale: true,
            win_sent: false,
            ..header
        }
    }

    /// Puts an empty value in the place of the one that is there.
    fn clear(
        &mut self,
        delete: &Delete<'_>,
        slot: S::Slot,
        header: ItemHeader,
        exptime: Exptime,
        client_flags: u32,
    ) -> Result<(), Reply<'static>> {
        let now = self.clock.tick();
        let header = ItemHeader {
            deadline: self.clock.deadline(exptime),
            last_access: now,
            client_flags,
            key_form: delete.key_form,
            fetched: false,
            ..header
        };
        match self.overwrite(slot, header, Value::default()) {
            Ok(_) => Ok(()),
            Err(Full) => Err(self.out_of_memory()),
        }
    }

    /// Takes an item out, and its lock with it.
    pub(super) fn remove(&mut self, key: Key<'_>, slot: S::Slot) {
        let pinned_bytes = self.store.item_bytes(slot);
        self.locks.release(key, pinned_bytes);
        self.store.remove(slot);
    }
}
