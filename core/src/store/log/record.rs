//! The bytes of one item in a segment.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0..4 | length of the value (30 bits), and number of hits (2 bits, the highest) |
//! | 4..8 | deadline in ticks; all ones is never |
//! | 8..12 | last access in ticks |
//! | 12..20 | CAS |
//! | 20 | length of the key |
//! | 21 | marks; two of them are one of four: no win, win sent, win open, dead |
//! | 22..26 | the client's flags, if they are not 0 |
//! | | key, value, and zeros up to the next unit |
//!
//! A huge item has its value in an allocation of its own; its record holds the number of the value in 4
//! bytes.
//!
//! - R1: A record holds its length, dead or not. So all records of a segment can be read in order from the
//!   first one.
//! - R2: Flags are 0 or stand in the record. While the record is live, neither their place nor the key
//!   changes.

use core::ops::Range;

use latchd_protocol::item::{Cas, ItemHeader, WinMark};
use latchd_protocol::key::{Key, KeyForm};
use latchd_protocol::time::{Deadline, Tick};

use super::geometry::Geometry;
use crate::erased;

/// The size of a record's fields before the flags, or before the key if there are no flags.
const HEAD_BYTES: usize = 22;

/// The size of the client's flags.
const FLAGS_BYTES: usize = 4;

/// The size of a huge value's number, which replaces the value.
pub(super) const STUB_BYTES: usize = 4;

/// The most hits that an item can collect.
pub(super) const HITS_MAX: u8 = 3;

/// No deadline. A deadline in the last tick, 34 years after the start, is kept as the tick before it.
pub(super) const NEVER: u32 = u32::MAX;

/// The bits below the hits.
const VALUE_BYTES_MASK: u32 = (1 << 30) - 1;

const HAS_FLAGS: u8 = 1;
const FETCHED: u8 = 1 << 1;
const STALE: u8 = 1 << 2;
const WIN_SENT: u8 = 1 << 3;
const LOCKED: u8 = 1 << 4;
const WIN_OPEN: u8 = 1 << 5;
/// The marks of a dead record, which no live item has: a win that is sent and open.
const DEAD: u8 = WIN_SENT | WIN_OPEN;
const BINARY_KEY: u8 = 1 << 6;
const HUGE: u8 = 1 << 7;

/// A record, for reading. The bytes begin with it and may extend beyond it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// An array, so that reading a field needs no bounds check.
    head: &'a [u8; HEAD_BYTES],
    bytes: &'a [u8],
}

/// A record, for writing.
#[derive(Debug)]
pub(super) struct RecordMut<'a>(&'a mut [u8]);

/// The size of a record in a segment, in bytes, without padding. `value_bytes` is [`STUB_BYTES`] for a huge
/// value.
pub(super) const fn record_bytes(has_flags: bool, key_bytes: usize, value_bytes: usize) -> usize {
    let flags_bytes = if has_flags { FLAGS_BYTES } else { 0 };
    HEAD_BYTES + flags_bytes + key_bytes + value_bytes
}

/// The beginning of a record, up to the key: the bytes to write, and their number.
pub(super) fn head(
    header: &ItemHeader,
    key: Key<'_>,
    value_bytes: usize,
    is_huge: bool,
    hits: u8,
) -> ([u8; HEAD_BYTES + FLAGS_BYTES], usize) {
    let mut bytes = [0; HEAD_BYTES + FLAGS_BYTES];
    let value_bytes = u32::try_from(value_bytes).expect("a longer one is huge");
    assert!(value_bytes <= VALUE_BYTES_MASK, "30 bits");
    let word = value_bytes | (u32::from(hits) << 30);
    bytes[..4].copy_from_slice(&word.to_le_bytes());
    bytes[20] = u8::try_from(key.as_bytes().len()).expect("K1: at most 250");
    let has_flags = header.client_flags != 0;
    bytes[21] = if is_huge { HUGE } else { 0 } | if has_flags { HAS_FLAGS } else { 0 };
    bytes[HEAD_BYTES..].copy_from_slice(&header.client_flags.to_le_bytes());
    RecordMut(&mut bytes).set_header(header);
    let length = if has_flags { bytes.len() } else { HEAD_BYTES };
    (bytes, length)
}

/// A deadline in the form of a record.
pub(super) fn deadline_count(header: &ItemHeader) -> u32 {
    header
        .deadline
        .map_or(NEVER, |deadline| deadline.tick().count().min(NEVER - 1))
}

impl<'a> Record<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let head = bytes.first_chunk().expect("R1: a record begins here");
        Self { head, bytes }
    }

    /// The size of the record with its padding.
    pub(super) fn padded_bytes(self, geometry: &Geometry) -> usize {
        geometry.padded(self.value_start() + self.value_bytes())
    }

    /// The item's key.
    #[inline]
    pub(super) fn key(self) -> Key<'a> {
        let start = self.key_start();
        Key::new(&self.bytes[start..start + self.key_bytes()]).expect("it was made from a key")
    }

    /// Whether this is the item of `key`.
    #[inline]
    pub(super) fn has_key(self, key: Key<'_>) -> bool {
        let (wanted, start) = (key.as_bytes(), self.key_start());
        self.key_bytes() == wanted.len() && &self.bytes[start..start + wanted.len()] == wanted
    }

    /// The value, or the number of a huge value.
    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let start = self.value_start();
        &self.bytes[start..start + self.value_bytes()]
    }

    /// The range of the key in the segment, if the record begins at `offset`.
    pub(super) fn key_range(self, offset: usize) -> Range<usize> {
        let start = offset + self.key_start();
        start..start + self.key_bytes()
    }

    /// The range of the value in the segment, likewise.
    pub(super) fn value_range(self, offset: usize) -> Range<usize> {
        let start = offset + self.value_start();
        start..start + self.value_bytes()
    }

    /// The number of the value, if it is huge.
    #[inline]
    pub(super) fn huge(self) -> Option<u32> {
        self.has(HUGE).then(|| self.word_behind(self.value_start()))
    }

    #[inline]
    pub(super) fn value_bytes(self) -> usize {
        (self.word(0) & VALUE_BYTES_MASK) as usize
    }

    #[inline]
    pub(super) fn key_bytes(self) -> usize {
        usize::from(self.head[20])
    }

    #[inline]
    pub(super) fn hits(self) -> u8 {
        self.head[3] >> 6
    }

    /// The deadline in ticks; [`NEVER`] is none.
    #[inline]
    pub(super) fn deadline(self) -> u32 {
        self.word(4)
    }

    pub(super) fn is_past(self, now: Tick) -> bool {
        self.deadline() <= now.count() && self.deadline() != NEVER
    }

    #[inline]
    pub(super) fn is_locked(self) -> bool {
        self.has(LOCKED)
    }

    /// Whether its item is evicted with the segment: a locked item is not evicted, and a huge value apart.
    pub(super) fn is_evictable(self) -> bool {
        self.head[21] & (LOCKED | HUGE) == 0
    }

    pub(super) fn is_fetched(self) -> bool {
        self.has(FETCHED)
    }

    pub(super) fn is_dead(self) -> bool {
        self.head[21] & DEAD == DEAD
    }

    #[inline]
    pub(super) fn has_flags(self) -> bool {
        self.has(HAS_FLAGS)
    }

    /// The item's header: all fields except key and value.
    #[inline]
    pub(super) fn header(self) -> ItemHeader {
        let cas = self.head[12..].first_chunk();
        let cas = cas.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        ItemHeader {
            cas: Cas::new(cas).expect("it was made from one"),
            deadline: match self.deadline() {
                NEVER => None,
                count => Some(Deadline::at(Tick::from_count(count))),
            },
            last_access: Tick::from_count(self.word(8)),
            client_flags: if self.has_flags() {
                self.word_behind(HEAD_BYTES)
            } else {
                0
            },
            key_form: if self.has(BINARY_KEY) {
                KeyForm::Binary
            } else {
                KeyForm::Plain
            },
            fetched: self.has(FETCHED),
            stale: self.has(STALE),
            win: match self.head[21] & DEAD {
                0 => WinMark::None,
                WIN_OPEN => WinMark::Open,
                _ => WinMark::Sent,
            },
            locked: self.has(LOCKED),
        }
    }

    #[inline]
    fn has(self, mark: u8) -> bool {
        self.head[21] & mark != 0
    }

    /// A number in the head.
    #[inline]
    fn word(self, at: usize) -> u32 {
        let word = self.head[at..].first_chunk();
        word.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// A number after the head.
    #[inline]
    fn word_behind(self, at: usize) -> u32 {
        let word = self.bytes[at..].first_chunk();
        word.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    fn key_start(self) -> usize {
        if self.has_flags() {
            HEAD_BYTES + FLAGS_BYTES
        } else {
            HEAD_BYTES
        }
    }

    #[inline]
    fn value_start(self) -> usize {
        self.key_start() + self.key_bytes()
    }
}

impl<'a> RecordMut<'a> {
    pub(super) const fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// The record, for reading.
    #[inline]
    pub(super) fn as_ref(&self) -> Record<'_> {
        Record::new(self.0)
    }

    /// The record, for reading from now on.
    #[inline]
    pub(super) fn into_record(self) -> Record<'a> {
        Record::new(self.0)
    }

    #[inline]
    const fn head(&mut self) -> &mut [u8; HEAD_BYTES] {
        self.0.first_chunk_mut().expect("R1: a record begins here")
    }

    /// Changes a live item's header, except for the flags (R2).
    pub(super) fn set_header(&mut self, header: &ItemHeader) {
        let ItemHeader {
            cas,
            deadline: _,
            last_access,
            client_flags: _,
            key_form,
            fetched,
            stale,
            win,
            locked,
        } = *header;
        let head = self.head();
        head[4..8].copy_from_slice(&deadline_count(header).to_le_bytes());
        head[8..12].copy_from_slice(&last_access.count().to_le_bytes());
        head[12..20].copy_from_slice(&cas.number().to_le_bytes());
        let mark = |is_set: bool, mark: u8| if is_set { mark } else { 0 };
        let win_mark = match win {
            WinMark::None => 0,
            WinMark::Sent => WIN_SENT,
            WinMark::Open => WIN_OPEN,
        };
        head[21] = head[21] & (HAS_FLAGS | HUGE)
            | win_mark
            | mark(fetched, FETCHED)
            | mark(stale, STALE)
            | mark(locked, LOCKED)
            | mark(key_form == KeyForm::Binary, BINARY_KEY);
    }

    /// Changes the flags of a record that has flags.
    pub(super) fn set_flags(&mut self, client_flags: u32) {
        self.0[HEAD_BYTES..HEAD_BYTES + FLAGS_BYTES].copy_from_slice(&client_flags.to_le_bytes());
    }

    /// Replaces the value with one of another length. The caller has checked that the padded record keeps its
    /// size.
    pub(super) fn set_value(&mut self, value: &[u8]) {
        let start = self.as_ref().value_start();
        let value_bytes = u32::try_from(value.len()).expect("a longer one is huge");
        let word = self.as_ref().word(0) & !VALUE_BYTES_MASK | value_bytes;
        self.0[..4].copy_from_slice(&word.to_le_bytes());
        self.0[start..start + value.len()].copy_from_slice(value);
    }

    /// The item is used at `now`: that is its last access, it was fetched, and a hit is counted.
    #[inline]
    pub(super) fn note_use(&mut self, now: Tick) {
        let head = self.head();
        head[8..12].copy_from_slice(&now.count().to_le_bytes());
        head[21] |= FETCHED;
        self.count_hit();
    }

    /// Adds a hit, up to [`HITS_MAX`].
    #[inline]
    pub(super) fn count_hit(&mut self) {
        let hits = self.as_ref().hits();
        if hits < HITS_MAX {
            self.set_hits(hits + 1);
        }
    }

    /// Zeroes the value and the bytes between it and the next record.
    pub(super) fn erase_value(&mut self, geometry: &Geometry) {
        let record = self.as_ref();
        let (start, end) = (record.value_start(), record.padded_bytes(geometry));
        erased::zero(&mut self.0[start..end]);
    }

    #[inline]
    pub(super) fn set_hits(&mut self, hits: u8) {
        let head = self.head();
        head[3] = head[3] & (u8::MAX >> 2) | (hits << 6);
    }

    /// Marks the record as dead. It stays, so that its length can be read (R1).
    pub(super) fn set_dead(&mut self) {
        self.head()[21] |= DEAD;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    fn header(bits: u8, numbers: (u64, Option<u32>, u32, u32)) -> ItemHeader {
        let (cas, deadline, last_access, client_flags) = numbers;
        let has = |bit: u8| bits & (1 << bit) != 0;
        ItemHeader {
            cas: Cas::new(cas.max(1)).unwrap(),
            deadline: deadline.map(|count| Deadline::at(Tick::from_count(count.min(NEVER - 1)))),
            last_access: Tick::from_count(last_access),
            client_flags,
            key_form: if has(0) {
                KeyForm::Binary
            } else {
                KeyForm::Plain
            },
            fetched: has(1),
            stale: has(2),
            win: match (has(3), has(5)) {
                (false, false) => WinMark::None,
                (true, false) => WinMark::Sent,
                (false | true, true) => WinMark::Open,
            },
            locked: has(4),
        }
    }

    /// The last tick means no deadline, so a deadline there is kept as one tick earlier.
    #[test]
    fn the_latest_deadline_is_one() {
        let numbers = (1, None, 0, 0);
        let deadline = Some(Deadline::at(Tick::from_count(NEVER)));
        let header = ItemHeader {
            deadline,
            ..header(0, numbers)
        };
        let bytes = record(&header, Key::new(b"k").unwrap(), b"v", 0);
        let written = Record::new(&bytes).header().deadline;
        let due = Deadline::at(Tick::from_count(NEVER - 1));
        assert_eq!(written, Some(due));
        assert_eq!(deadline_count(&header), NEVER - 1);
    }

    fn record(header: &ItemHeader, key: Key<'_>, value: &[u8], hits: u8) -> Vec<u8> {
        let (head, length) = head(header, key, value.len(), false, hits);
        [&head[..length], key.as_bytes(), value].concat()
    }

    quickcheck! {
        fn what_is_written_is_read(bits: u8, numbers: (u64, Option<u32>, u32, u32), key: Vec<u8>, value: Vec<u8>) -> bool {
            let Some(key) = Key::new(&key) else { return true };
            let header = header(bits, numbers);
            let bytes = record(&header, key, &value, bits % 4);
            let read = Record::new(&bytes);
            assert_eq!(bytes.len(), record_bytes(header.client_flags != 0, key.as_bytes().len(), value.len()));
            assert_eq!(read.header(), header);
            assert_eq!((read.key(), read.value()), (key, value.as_slice()));
            assert_eq!(read.hits(), bits % 4);
            assert!(read.has_key(key));
            !read.is_dead() && read.huge().is_none()
        }

        fn a_header_changes_nothing_else(one: (u8, u64, Option<u32>), two: (u8, u64, Option<u32>), flags: u32, hits: u8) -> bool {
            let key = Key::new(b"key").unwrap();
            let before = header(one.0, (one.1, one.2, 1, flags));
            let after = header(two.0, (two.1, two.2, 2, flags));
            let mut bytes = record(&before, key, b"value", hits % 4);
            RecordMut::new(&mut bytes).set_header(&after);
            bytes == record(&after, key, b"value", hits % 4)
        }
    }

    #[test]
    fn a_dead_record_still_says_how_long_it_is() {
        let geometry = Geometry::for_memory(1 << 20);
        let key = Key::new(b"key").unwrap();
        let mut bytes = record(&header(0, (1, None, 0, 7)), key, b"12345", 0);
        RecordMut::new(&mut bytes).set_dead();
        assert!(Record::new(&bytes).is_dead());
        assert_eq!(Record::new(&bytes).padded_bytes(&geometry), 40);
    }

    #[test]
    fn hits_and_length_share_a_word() {
        let key = Key::new(b"key").unwrap();
        let mut bytes = record(&header(0, (1, None, 0, 0)), key, b"12345", 1);
        RecordMut::new(&mut bytes).set_hits(HITS_MAX);
        assert_eq!(Record::new(&bytes).hits(), HITS_MAX);
        RecordMut::new(&mut bytes).set_value(b"123");
        assert_eq!(Record::new(&bytes).hits(), HITS_MAX);
        assert_eq!(Record::new(&bytes).value(), b"123");
    }
}
