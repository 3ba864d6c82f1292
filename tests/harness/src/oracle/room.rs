//! The room in a store that takes for each item its key, its value, and a fixed overhead.
//!
//! An item that is not held can be evicted, so only held items are in the way: of the memory, and
//! of the bytes that locks may pin. If nothing is evicted, all items are in the way, also expired
//! ones that were not removed yet. A change that takes no more bytes than the item took always has
//! room. The bytes of the tables of locks and waits are in [`super::tables`]; this module does not
//! count them.
//!
//! For a store that it does not know so well, the caller can say that there is no room just now,
//! because it has seen a refusal ([`Oracle::enter_without_room`]): then it says whether this
//! refusal is possible, and which other effects the request had.

use latchd_core::Owner;
use latchd_protocol::command::Mode;
use latchd_protocol::reply::Refusal;

use super::tables::{TableEntry, own_bytes};
use super::{Gone, Item, Oracle, OwnedReply};
use crate::alphabet::Input;

/// How a store takes room of its limit, and how often that mattered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ByItem {
    /// The bytes that an item takes besides its key and its value.
    pub overhead_bytes: usize,
}

/// How often it was asked whether there is room.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Judged {
    /// Refused for want of memory.
    pub out_of_memory: u64,
    /// A lock was refused because it would pin too much.
    pub too_much_pinned: u64,
    /// A lock was refused since its connection has as many as it may.
    pub too_many_locks: u64,
    /// A win was not bound, or not waited for, since its connection has as many as it may.
    pub too_many_wins: u64,
    /// A wait was refused, since the lock has more holders than the search for a deadlock looks at.
    pub too_long_to_tell: u64,
    /// A place in the tables was refused, since all of it is taken.
    pub tables_full: u64,
    /// A place took the last byte of the tables.
    pub tables_just_enough: u64,
    /// Whether the tables had a place turned on something that is over and may still have stood in them.
    pub tables_unsettled: u64,
    /// A lock, or more of a held item, was refused since its connection would have more than its share.
    pub past_share: u64,
    /// A connection came to have all of its share.
    pub share_just_enough: u64,
    /// A request just fits: not a byte is left of the memory, or of the bytes that locks may pin.
    pub to_the_byte: u64,
    /// Items were evicted, and counted correctly.
    pub evicted: u64,
    /// There is another limit of memory.
    pub limited: u64,
    /// A new limit was refused, since items that may not be evicted take more, or two of the
    /// largest values do.
    pub limit_refused: u64,
    /// A request needed room when the oracle was told that there is none.
    pub told_full: u64,
    /// The fates of items were counted correctly.
    pub gone: Gone,
}

impl Judged {
    /// Adds the counts of another.
    pub const fn add(&mut self, other: &Self) {
        let Self {
            out_of_memory,
            too_much_pinned,
            too_many_locks,
            too_many_wins,
            too_long_to_tell,
            tables_full,
            tables_just_enough,
            tables_unsettled,
            past_share,
            share_just_enough,
            to_the_byte,
            evicted,
            limited,
            limit_refused,
            told_full,
            gone,
        } = *other;
        self.out_of_memory += out_of_memory;
        self.too_much_pinned += too_much_pinned;
        self.too_many_locks += too_many_locks;
        self.too_many_wins += too_many_wins;
        self.too_long_to_tell += too_long_to_tell;
        self.tables_full += tables_full;
        self.tables_just_enough += tables_just_enough;
        self.tables_unsettled += tables_unsettled;
        self.past_share += past_share;
        self.share_just_enough += share_just_enough;
        self.to_the_byte += to_the_byte;
        self.evicted += evicted;
        self.limited += limited;
        self.limit_refused += limit_refused;
        self.told_full += told_full;
        self.gone.add(&gone);
    }
}

impl Oracle {
    /// The same server with no more room than its limits say.
    #[must_use]
    pub const fn with_room(mut self, room: ByItem) -> Self {
        self.room = Some(room);
        self
    }

    /// The limit of memory, in bytes.
    #[must_use]
    pub const fn memory_bytes_max(&self) -> usize {
        self.limits.memory_bytes_max
    }

    /// Changes the memory limit, if the items that may not be evicted and two of the largest values
    /// are within it. The bytes that locks may pin, and those of their table, stay.
    pub(super) fn limit_memory(&mut self, bytes: usize) {
        let Some(room) = self.room else {
            return;
        };
        // No key is empty.
        let kept = self.kept_bytes_besides(room, b"");
        if kept <= bytes && 2 * self.limits.value_bytes_max <= bytes {
            self.judged.limited += u64::from(bytes != self.limits.memory_bytes_max);
            self.limits.memory_bytes_max = bytes;
        } else {
            self.judged.limit_refused += 1;
        }
    }

    /// The limit of memory stays, since items of locks that are over are still in the way.
    pub const fn keep_limit(&mut self, bytes: usize) {
        self.limits.memory_bytes_max = bytes;
    }

    /// Applies `input` at `now_ms` without room: with [`Refusal::OutOfMemory`] there is none for a
    /// value, however small; with [`Refusal::TooManyLocks`] none for another lock, wait or win, or
    /// for a lock's pinned item. Requests that need no room are answered as always.
    pub fn enter_without_room(
        &mut self,
        now_ms: u64,
        input: &Input<'_>,
        lack: Refusal,
    ) -> Option<OwnedReply> {
        // Events that were due before are not affected.
        self.advance_to(now_ms);
        self.lack = Some(lack);
        let answer = self.take(input);
        self.lack = None;
        answer
    }

    /// How often room was requested, and the outcomes.
    #[must_use]
    pub const fn judged(&self) -> Judged {
        self.judged
    }

    /// Whether there is room for a value of `value_bytes` under a key; either outcome is counted.
    pub(super) fn has_room_for(&mut self, key: &[u8], value_bytes: usize) -> bool {
        let has_room = !self.lacks(Refusal::OutOfMemory) && self.would_fit(key, value_bytes);
        if has_room {
            self.counters.total_items += 1;
        } else {
            self.counters.store_no_memory += 1;
        }
        has_room
    }

    /// Whether there is room to rewrite an item that takes no more than it took: a store may have
    /// to write it elsewhere, and have no room there. Counts the cases without room.
    pub(super) fn may_be_written_anew(&mut self) -> bool {
        let is_full = self.lacks(Refusal::OutOfMemory);
        self.counters.store_no_memory += u64::from(is_full);
        !is_full
    }

    /// Whether a lock, a wait or a win has room in the tables.
    pub(super) fn has_room_in_tables(&mut self, place: TableEntry, key: &[u8]) -> bool {
        !self.lacks(Refusal::TooManyLocks) && self.has_place(place, key)
    }

    pub(super) fn lacks(&mut self, what: Refusal) -> bool {
        let is_lacking = self.lack == Some(what);
        self.judged.told_full += u64::from(is_lacking);
        is_lacking
    }

    fn would_fit(&mut self, key: &[u8], value_bytes: usize) -> bool {
        let Some(room) = self.room else {
            return true;
        };
        let need = room.cost(key, value_bytes);
        let old = self.items.get(key);
        let own = old.map_or(0, |item| room.cost(key, item.value.len()));
        let kept = self.kept_bytes_besides(room, key);
        let pinned = self.held_bytes_besides(room, key);
        let is_held = self.locks.contains_key(key);
        let is_in_place = old.is_some() && need == own;
        let is_growing = is_held && need > own;
        let holder = self.holder(key).filter(|_| is_growing);
        let is_past_share =
            holder.is_some_and(|holder| !self.is_within_share(room, holder, need - own, 0));
        let is_too_much = !is_in_place && kept + need > self.limits.memory_bytes_max
            || is_growing && pinned + need > self.limits.locked_bytes_max
            || is_past_share;
        let is_just_enough = !is_in_place && kept + need == self.limits.memory_bytes_max
            || is_growing && pinned + need == self.limits.locked_bytes_max;
        self.judged.out_of_memory += u64::from(is_too_much);
        self.judged.to_the_byte += u64::from(is_just_enough && !is_too_much);
        !is_too_much
    }

    /// Whether `conn` may have a lock of a key, in this mode and with metadata of so many bytes: the bytes that all locks pin are
    /// within their bound, and its own within its share. A client that joins a shared lock pins
    /// nothing anew, and is charged for the whole.
    pub(super) fn may_be_pinned(
        &mut self,
        conn: Owner,
        key: &[u8],
        mode: Mode,
        metadata_bytes: usize,
    ) -> bool {
        let Some(room) = self.room else {
            return true;
        };
        let item = self.items.get(key);
        let item_bytes = item.map_or(0, |item| room.cost(key, item.value.len()));
        let table_bytes = own_bytes(mode, key) + metadata_bytes;
        if !self.is_within_share(room, conn, item_bytes, table_bytes) {
            return false;
        }
        if item_bytes == 0 || self.locks.contains_key(key) {
            return true;
        }
        let pinned = self.held_bytes_besides(room, key) + item_bytes;
        let may_be = pinned <= self.limits.locked_bytes_max;
        self.judged.too_much_pinned += u64::from(!may_be);
        self.judged.to_the_byte += u64::from(pinned == self.limits.locked_bytes_max);
        may_be
    }

    /// The bytes of items that may not be evicted, apart from this one.
    fn kept_bytes_besides(&self, room: ByItem, key: &[u8]) -> usize {
        if self.limits.evict {
            return self.held_bytes_besides(room, key);
        }
        let items = self.items.iter();
        items
            .filter(|(other, _)| other.as_slice() != key)
            .map(|(key, item)| room.cost(key, item.value.len()))
            .sum()
    }

    /// The bytes of held items, apart from this one.
    fn held_bytes_besides(&self, room: ByItem, key: &[u8]) -> usize {
        let held = |(other, _): &(&Vec<u8>, &Item)| {
            other.as_slice() != key && self.locks.contains_key(*other)
        };
        let items = self.items.iter().filter(held);
        items
            .map(|(key, item)| room.cost(key, item.value.len()))
            .sum()
    }
}

impl ByItem {
    pub(crate) const fn cost(self, key: &[u8], value_bytes: usize) -> usize {
        self.overhead_bytes + key.len() + value_bytes
    }
}
