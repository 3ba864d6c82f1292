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

use super::Core;
use super::locks::queue::WaitTable;
use super::locks::table::LockTable;
use super::wins::queue::WinWaits;
use crate::store::{Full, Store};

/// The most that one command adds to the tables: a wait for a lock with the longest key, or a get that waits, whichever it is.
pub const TABLES_GROWTH_MAX: usize = {
    let Some(key) = Key::new(&[b'k'; KEY_BYTES_MAX]) else {
        panic!("K1")
    };
    WaitTable::bytes_for(key) + LockTable::BYTES_FOR_WAITED_MAX + WinWaits::bytes_for(key)
};

impl<S: Store> Core<S> {
    /// The bytes that the tables of locks, waits and wins of this core take of the memory limit.
    #[must_use]
    pub const fn lock_memory_bytes(&self) -> usize {
        self.locks.table.table_bytes()
            + self.locks.queue.table_bytes()
            + self.wins.bound.table_bytes()
            + self.wins.queue.table_bytes()
    }

    /// Whether the tables may take so many bytes more.
    pub(super) const fn has_room_in_table(&self, bytes: usize) -> bool {
        let all = self.lock_memory_bytes() + self.tables_elsewhere;
        all + bytes <= self.limits.lock_table_bytes_max
    }

    /// Whether ended locks are still in the table, and the tables take more than half of their budget. Then locks may
    /// be refused in any core until these are removed.
    pub(super) fn wants_lock_memory(&self) -> bool {
        self.locks.table.has_over() && !self.has_room_in_table(self.limits.lock_table_bytes_max / 2)
    }

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
        let all = self.lock_memory_bytes() + self.tables_elsewhere + more;
        let part = all.div_ceil(self.table_cores);
        let now = self.clock.tick();
        self.store
            .set_aside(now, slot, part, &mut self.stats.counters)
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
        if !self.has_room_in_table(more) {
            return Err(Refusal::TooManyLocks);
        }
        self.set_tables_aside(more, slot)
            .map_err(|Full| Refusal::TooManyLocks)
    }

    /// Whether nothing could be evicted for its part of all tables at the last
    /// [`Event::TablesSpread`](super::Event::TablesSpread). Then the tables of no core should grow.
    #[must_use]
    pub const fn lacks_room_for_tables(&self) -> bool {
        self.lacks_room_for_tables
    }
}
