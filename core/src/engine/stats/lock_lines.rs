//! `stats locks`: a line a lock that is held, up to a bound.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use latchd_protocol::key::Key;
use latchd_protocol::stats::{LOCK_LINES_MAX, LOCKS_LOOKED_AT_MAX, StatsLine};
use latchd_protocol::uri::UriEncoded;

use crate::engine::Holding;
use crate::engine::manager::LockManager;

/// The grants that a page of `stats locks` reads, and those of its last key: a few 100 µs.
const GRANTS_PER_PAGE: usize = 256;

impl LockManager {
    /// The locks in force, in the order of the keys, of the first [`LOCKS_LOOKED_AT_MAX`] in the table. A shared lock
    /// with shares that may be over counts as many times as it has shares.
    pub fn locks_in_force(&self) -> impl Iterator<Item = (Key<'_>, Holding)> {
        let mut looks_left = LOCKS_LOOKED_AT_MAX;
        let looked_at = self.locks.table.keys().take_while(move |(_, looks)| {
            let is_left = looks_left > 0;
            looks_left = looks_left.saturating_sub(*looks);
            is_left
        });
        looked_at.filter_map(|(key, _)| Some((key, self.locks.table.in_force(key)?)))
    }

    /// A line for each of [`Self::locks_in_force`], up to [`LOCK_LINES_MAX`]: a page of `stats locks`.
    ///
    /// The name is the key, with bytes that are not printable as in a URL. The value has no blanks, since clients cut
    /// the line at each. Metadata is as in a URL, at the end.
    #[must_use]
    pub fn lock_lines(&self) -> Vec<StatsLine> {
        self.locks_in_force()
            .take(LOCK_LINES_MAX)
            .map(|(key, holding)| self.lock_line(key, holding))
            .collect()
    }

    /// A page of `stats locks` for a transport that shares its time among clients: at most `lines_max` lines, of the locks from
    /// this place in the table on. Also returns the place where the next page begins, if there may be more. A page ends after
    /// 256 grants. A lock that changes between two pages may be missing, or be shown twice.
    #[must_use]
    pub fn lock_page(&self, from: usize, lines_max: usize) -> (Vec<StatsLine>, Option<usize>) {
        let mut lines = Vec::new();
        let mut looks = 0;
        for (place, (key, grants)) in self.locks.table.keys().enumerate().skip(from) {
            if lines.len() >= lines_max || looks >= GRANTS_PER_PAGE {
                return (lines, Some(place));
            }
            looks += grants;
            if let Some(holding) = self.locks.table.in_force(key) {
                lines.push(self.lock_line(key, holding));
            }
        }
        (lines, None)
    }

    fn lock_line(&self, key: Key<'_>, holding: Holding) -> StatsLine {
        let now_ms = self.now.as_millis();
        let held_s = (now_ms - holding.since.as_millis()) / 1000;
        let lease = holding.lease_until.map_or_else(
            || String::from("-1"),
            |until| format!("{}", (until.as_millis() - now_ms).div_ceil(1000)),
        );
        let mut value = format!(
            "mode={},conn={},held={held_s},waiting={},fence={},lease={lease},holders={}",
            if holding.mode.is_shared() { 's' } else { 'x' },
            holding.owner.number(),
            self.locks.queue.waiting(key),
            holding.fence.number(),
            self.locks.table.holder_count(key),
        );
        if let Some(metadata) = self.locks.table.metadata(holding.fence) {
            let _ = write!(value, ",metadata={}", UriEncoded(metadata));
        }
        StatsLine {
            name: Cow::Owned(printable(key.as_bytes())),
            value,
        }
    }
}

/// A key, or a part of one, as one word of printable bytes.
pub(in crate::engine) fn printable(key: &[u8]) -> String {
    let mut name = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_graphic() && byte != b'%' {
            name.push(char::from(byte));
        } else {
            // Nothing fails that writes to a string.
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}
