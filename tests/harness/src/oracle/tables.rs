//! The bytes of the tables of locks, waits and wins, and the right to one more entry.
//!
//! Each entry takes a fixed number of bytes besides its key. A wait also takes the bytes of the
//! lock or win that it may become, so a waiter finds room at its end. All entries together stay
//! within their bound. The locks of one connection, with the items that they pin, stay within its
//! share. A new entry is granted if and only if that stays so.
//!
//! Entries that are over may stay in the tables a while longer; the comparison reports the bytes
//! that the tables take ([`Oracle::see_tables`]). If a request fits only without such entries, the
//! core's word decides whether it is granted. If the bytes are not compared, there is room for
//! every entry: counting would cost too much per request.
//!
//! Source: docs/LIMITS.md.

use std::collections::BTreeSet;

use latchd_core::Owner;
use latchd_protocol::command::Mode;

use super::Oracle;
use super::locks::{Lock, Metadata};
use super::room::ByItem;

/// The bytes of a lock that is not shared: itself, and its place in the list of its holder.
const LOCK_BYTES: usize = 176 + 64;

/// The bytes of each share of a shared lock.
const SHARED_BYTES: usize = 176;

/// The part of one of those, and its place in the list of its holder, in bytes.
const SHARE_BYTES: usize = 372 + 64;

/// The bytes that the only holder of a lock has besides while a client waits for it.
const AWAITED_BYTES: usize = 64;

/// The bytes of a waiter of a lock; and its key, twice.
const WAIT_BYTES: usize = 768;

/// The metadata of a lock or a waiter, in bytes besides itself.
const METADATA_BYTES: usize = 96;

/// A win that ends with its winner, in bytes.
const WIN_BYTES: usize = 192;

/// A get that waits, in bytes; and its key, twice.
const GET_BYTES: usize = 640;

/// The kinds of table entries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TableEntry {
    /// A lock, or a share of one.
    /// The bytes of its metadata are the second part.
    Lock(Mode, usize),
    /// A waiter of a lock, with the bytes of its metadata.
    Wait(usize),
    /// So many bytes more of a lock or of a waiter.
    More(usize),
    /// A bound win.
    Win,
    /// A get that waits for a value, or for a win.
    Get,
}

/// The bytes of the tables at the time of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Tables {
    /// The bytes that they took, entries that are over included.
    bytes: usize,
    /// There was no room for an entry.
    is_refused: bool,
}

impl Oracle {
    /// Before `input` comes, the tables take `bytes`, and `is_refused` says whether the core
    /// refuses an entry.
    pub const fn see_tables(&mut self, bytes: usize, is_refused: bool) {
        self.tables = Some(Tables { bytes, is_refused });
    }

    /// The bytes of the tables without any entry that is over.
    #[must_use]
    pub fn tables_bytes(&self) -> usize {
        let locks = self.locks.iter().map(|(key, locks)| {
            let shared = match locks.first() {
                Some(first) if first.mode.is_shared() => SHARED_BYTES,
                Some(_) | None => 0,
            };
            let own: usize = locks.iter().map(|lock| lock_bytes(lock, key)).sum();
            // Each sharer is charged for the whole of the shared part, which exists once.
            own - (locks.len() * shared - shared)
        });
        let awaited: BTreeSet<_> = self.waits.iter().map(|it| it.key.as_slice()).collect();
        let awaited = awaited.into_iter().map(|key| self.awaited_bytes(key));
        let waits = self.waits.iter();
        let waits = waits.map(|it| wait_bytes(&it.key) + metadata_bytes(&it.metadata));
        let gets = self.gets.iter().map(|it| get_bytes(&it.key));
        let wins = self.bound_wins().map(win_bytes);
        locks
            .chain(awaited)
            .chain(waits)
            .chain(gets)
            .chain(wins)
            .sum()
    }

    /// How many bound wins belong to present items.
    #[must_use]
    pub fn bound_win_count(&self) -> usize {
        self.bound_wins().count()
    }

    fn bound_wins(&self) -> impl Iterator<Item = &[u8]> {
        let keys = self.winners().map(|(key, _)| key.as_slice());
        keys.filter(|key| self.visible(key).is_some())
    }

    /// Whether the tables have room for one more entry, of this key.
    pub(super) fn has_place(&mut self, place: TableEntry, key: &[u8]) -> bool {
        let Some(tables) = self.tables else {
            return true;
        };
        let need = match place {
            TableEntry::Lock(mode, metadata) => own_bytes(mode, key) + metadata,
            TableEntry::Wait(metadata) if self.queue(key).next().is_some() => {
                wait_bytes(key) + metadata
            }
            TableEntry::Wait(metadata) => wait_bytes(key) + metadata + self.awaited_bytes(key),
            TableEntry::More(bytes) => bytes,
            TableEntry::Win => win_bytes(key),
            TableEntry::Get => get_bytes(key),
        };
        let max = self.limits.lock_table_bytes_max;
        let least = self.tables_bytes() + need;
        if least > max {
            self.judged.tables_full += 1;
            return false;
        }
        if tables.bytes + need > max {
            self.judged.tables_unsettled += 1;
            return !tables.is_refused;
        }
        self.judged.tables_just_enough += u64::from(least == max);
        true
    }

    /// Whether `conn` may have `table_bytes` more of the tables, and pin `pinned_bytes` more.
    pub(super) fn is_within_share(
        &mut self,
        room: ByItem,
        conn: Owner,
        pinned_bytes: usize,
        table_bytes: usize,
    ) -> bool {
        let locks = self.locks.iter();
        let own = locks.filter_map(|(key, locks)| {
            let own = locks.iter().find(|lock| lock.owner == conn)?;
            let item = self.items.get(key);
            let pinned = item.map_or(0, |item| room.cost(key, item.value.len()));
            Some(pinned + lock_bytes(own, key))
        });
        let all = own.sum::<usize>() + pinned_bytes + table_bytes;
        let max = self.limits.lock_bytes_per_connection_max;
        self.judged.past_share += u64::from(all > max);
        self.judged.share_just_enough += u64::from(all == max);
        all <= max
    }

    /// Whether `conn`, which holds a lock, may have so many more bytes of the tables.
    pub(super) fn may_have_more(&mut self, conn: Owner, bytes: usize) -> bool {
        let room = self.room;
        room.is_none_or(|room| self.is_within_share(room, conn, 0, bytes))
    }

    /// The bytes that the holder of a key has in the tables because of a waiter, if the lock is not
    /// shared.
    fn awaited_bytes(&self, key: &[u8]) -> usize {
        let is_alone = self.locks_of(key).iter().any(|lock| !lock.mode.is_shared());
        usize::from(is_alone) * (AWAITED_BYTES + key.len())
    }
}

/// The bytes of metadata, besides the lock or the waiter that has it.
pub(super) fn metadata_bytes(metadata: &Metadata) -> usize {
    let bytes = metadata.as_ref().map(|metadata| metadata.len());
    bytes.map_or(0, |bytes| METADATA_BYTES + bytes)
}

/// The bytes of a lock with its metadata that are charged to its holder.
fn lock_bytes(lock: &Lock, key: &[u8]) -> usize {
    own_bytes(lock.mode, key) + metadata_bytes(&lock.metadata)
}

/// The bytes of a lock without metadata that are charged to its holder.
pub(super) const fn own_bytes(mode: Mode, key: &[u8]) -> usize {
    let of_mode = match mode {
        Mode::Exclusive => LOCK_BYTES,
        Mode::Shared { .. } => SHARED_BYTES + SHARE_BYTES,
    };
    of_mode + key.len()
}

/// The bytes of a waiter, with the largest lock that it may become.
const fn wait_bytes(key: &[u8]) -> usize {
    WAIT_BYTES + 2 * key.len() + SHARED_BYTES + SHARE_BYTES + key.len()
}

const fn win_bytes(key: &[u8]) -> usize {
    WIN_BYTES + key.len()
}

/// The bytes of a waiting get, with the win that it may become.
const fn get_bytes(key: &[u8]) -> usize {
    GET_BYTES + 2 * key.len() + win_bytes(key)
}
