//! The memory that the tables of locks, waits and wins take: one budget, which several cores may share.
//!
//! A core counts its own tables. The transport passes the bytes of the others
//! ([`Event::TablesElsewhere`](super::Event::TablesElsewhere)) before each command that may make a table larger and
//! before each tick. The items of all cores make room for the tables of all, each core for an equal part. So the tables
//! of one core may take more than its part of the memory.
//!
//! - L11: The tables of all cores together take at most [`Limits::lock_table_bytes_max`], as far as the core was told.
//!
//! [`Limits::lock_table_bytes_max`]: crate::Limits::lock_table_bytes_max

use latchd_protocol::key::{KEY_BYTES_MAX, Key};
use latchd_protocol::reply::Refusal;

use super::locks::queue::WaitTable;
use super::locks::table::LockTable;
use super::rules::{Access, Rules};
use super::wins::queue::WinWaits;
use crate::store::{Full, Store};

/// The most that one command adds to the tables: a wait for a lock with the longest key, or a get that waits, whichever it is.
pub const TABLES_GROWTH_MAX: usize = {
    let Some(key) = Key::new(&[b'k'; KEY_BYTES_MAX]) else {
        panic!("K1")
    };
    WaitTable::bytes_for(key) + LockTable::BYTES_FOR_WAITED_MAX + WinWaits::bytes_for(key)
};

impl<S: Store, M: Access> Rules<'_, S, M> {
    /// Reserves this core's part of all tables, with `more` bytes in this one's, if need be by evicting items. The item
    /// in `slot`, if any, stays: returns its slot then.
    ///
    /// # Errors
    /// [`Full`] if nothing else may be evicted.
    pub(super) fn set_tables_aside(
        &mut self,
        more: usize,
        slot: Option<S::Slot>,
    ) -> Result<Option<S::Slot>, Full> {
        let all = self.manager.all_table_bytes() + more;
        let part = all.div_ceil(self.manager.table_cores);
        let now = self.items.clock.tick();
        self.items
            .store
            .set_aside(now, slot, part, &mut self.items.stats.counters)
    }

    /// Checks that the tables of locks, waits and wins may take `more` bytes, and makes free memory for them, if need be by
    /// evicting other items than the one in `slot`. Returns the slot of that item then.
    ///
    /// # Errors
    /// [`Refusal::TooManyLocks`], as it says.
    pub(super) fn admit_to_tables(
        &mut self,
        more: usize,
        slot: Option<S::Slot>,
    ) -> Result<Option<S::Slot>, Refusal> {
        if !self.manager.has_room_in_table(more, &self.items.limits) {
            return Err(Refusal::TooManyLocks);
        }
        self.set_tables_aside(more, slot)
            .map_err(|Full| Refusal::TooManyLocks)
    }
}
