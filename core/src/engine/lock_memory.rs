//! The memory that the tables of locks, waits and wins take: one budget, for which the items of all shards leave memory free.
//!
//! A rule that makes a table larger has its own shard leave an equal part of the memory of all tables free. All others
//! follow when the tables have grown much ([`spread_tables`](super::shards::spread_tables)).
//!
//! - L11: The tables together take at most [`Limits::lock_table_bytes_max`].
//!
//! [`Limits::lock_table_bytes_max`]: crate::Limits::lock_table_bytes_max

use latchd_protocol::reply::Refusal;

use super::rules::{Access, Rules};
use crate::store::{Full, Store};

impl<S: Store, M: Access> Rules<'_, S, M> {
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
        if self.manager.is_full() || !self.manager.has_room_in_tables(more) {
            return Err(Refusal::TooManyLocks);
        }
        let part = self.manager.part_of_tables(more);
        let slot = self.items.set_aside(slot, part);
        slot.map_err(|Full| Refusal::TooManyLocks)
    }
}
