//! All segments: writing records, and removing them.
//!
//! - A1: Every segment with memory is counted, and `held_bytes` is the sum of their sizes.
//! - A2: A segment without a live record is spare, unless it is open or being drained.
//! - A3: A sealed segment is in the list of its class of slack, and no other segment is in such a list.
//! - A4: A record is present if it is live, and its segment was opened after the last flush or its item is
//!   locked.
//! - A5: If the store erases, the value of a dead record is zeroed. So a spare or freed segment holds nothing
//!   but keys.

use core::mem::size_of;
use core::ops::Range;

use latchd_protocol::key::Key;

use super::Full;
use super::block::Block;
use super::chunks::Chunks;
use super::deadlines::Deadlines;
use super::geometry::{Address, Geometry, SegmentId};
use super::list::{List, Row};
use super::queue::Queue;
use super::queues::Queues;
use super::record::{NEVER, Record, RecordMut};
use super::segment::{Segment, State};

/// The number of classes of slack, as parts of a segment.
pub(super) const SLACK_CLASSES: usize = 16;

/// The segments of a store.
#[derive(Debug)]
pub(super) struct Log<B> {
    pub(super) geometry: Geometry,
    /// Whether the value of a dead record is zeroed.
    pub(super) erases: bool,
    pub(super) segments: Chunks<Segment<B>>,
    pub(super) queues: Queues,
    pub(super) deadlines: Deadlines,
    bare: List,
    spare: List,
    slack: [List; SLACK_CLASSES + 1],
    with_memory: usize,
    /// The number of flushes.
    epoch: u64,
    serial: u64,
}

/// A part of a record to be written.
#[derive(Clone, Debug)]
pub(super) enum Piece<'a> {
    /// These bytes.
    New(&'a [u8]),
    /// The bytes at these offsets of the old record's segment.
    Old(Range<usize>),
}

impl<B: Block> Log<B> {
    pub(super) const fn new(geometry: Geometry, erases: bool) -> Self {
        Self {
            geometry,
            erases,
            segments: Chunks::new(geometry.chunk_len(size_of::<Segment<B>>(), 2)),
            queues: Queues::new(),
            deadlines: Deadlines::new(geometry.chunk_len(size_of::<SegmentId>(), 8)),
            bare: List::new(Row::Queue),
            spare: List::new(Row::Queue),
            slack: [List::new(Row::Slack); SLACK_CLASSES + 1],
            with_memory: 0,
            epoch: 0,
            serial: 0,
        }
    }

    /// The bytes that it has allocated (A1).
    pub(super) const fn held_bytes(&self) -> usize {
        self.with_memory * self.geometry.segment_bytes() + self.listing_bytes()
    }

    /// The bytes of the lists of segments, which depend on the highest count of segments so far.
    pub(super) const fn listing_bytes(&self) -> usize {
        self.segments.held_bytes() + self.deadlines.held_bytes()
    }

    /// The bytes that one more segment would allocate; `None` if no number is left for one.
    pub(super) const fn allocate_bytes(&self) -> Option<usize> {
        if self.with_memory >= self.geometry.segments_max {
            return None;
        }
        let number_bytes = if self.bare.len() > 0 {
            0
        } else {
            self.segments.push_bytes()
        };
        Some(self.geometry.segment_bytes() + number_bytes + self.deadlines.push_bytes())
    }

    /// The most bytes that the lists of segments allocate for one more.
    pub(super) const fn listing_bytes_max(&self) -> usize {
        self.segments.chunk_bytes_max() + self.deadlines.chunk_bytes_max()
    }

    /// Allocates one more spare segment. The caller has checked the limit.
    ///
    /// # Errors
    /// [`Full`] if the allocation fails.
    pub(super) fn allocate(&mut self) -> Result<(), Full> {
        if self.bare.oldest().is_none() {
            let number = SegmentId::try_from(self.segments.len()).map_err(|_| Full)?;
            self.segments.push(Segment::default())?;
            self.bare.push(&mut self.segments, number);
        }
        let id = self.bare.oldest().ok_or(Full)?;
        let memory = B::allocate(self.geometry.segment_room()).ok_or(Full)?;
        self.deadlines.push(&mut self.segments, id)?;
        self.bare.unlink(&mut self.segments, id);
        self.segments[id as usize].give_memory(memory);
        self.segments[id as usize].state = State::Spare;
        self.spare.push(&mut self.segments, id);
        self.with_memory += 1;
        Ok(())
    }

    /// The number of spare segments.
    pub(super) const fn spare(&self) -> usize {
        self.spare.len()
    }

    /// The number of segments with memory.
    pub(super) const fn with_memory(&self) -> usize {
        self.with_memory
    }

    /// Frees the memory of a spare segment.
    pub(super) fn give_back(&mut self) {
        let Some(id) = self.spare.oldest() else {
            return;
        };
        self.spare.unlink(&mut self.segments, id);
        self.deadlines.remove(&mut self.segments, id);
        self.segments[id as usize].take_memory();
        self.segments[id as usize].state = State::Bare;
        self.bare.push(&mut self.segments, id);
        self.with_memory -= 1;
    }

    /// Whether a record of so many bytes fits into the open segment of `queue`.
    pub(super) fn has_room(&self, queue: Queue, bytes: usize) -> bool {
        self.queues.line(queue).open.is_some_and(|id| {
            self.segments[id as usize].len() + bytes <= self.geometry.segment_room()
        })
    }

    /// Opens a spare segment for `queue`. There is a spare one.
    pub(super) fn open(&mut self, queue: Queue) {
        self.seal_full(queue);
        let id = self.spare.oldest().expect("the caller has seen one");
        self.spare.unlink(&mut self.segments, id);
        self.serial += 1;
        let segment = &mut self.segments[id as usize];
        segment.state = State::Open;
        segment.queue = queue;
        segment.epoch = self.epoch;
        segment.serial = self.serial;
        let line = self.queues.line_mut(queue);
        line.segments.push(&mut self.segments, id);
        line.open = Some(id);
    }

    /// Seals the open segment of `queue`, if there is one, because the next record does not fit.
    fn seal_full(&mut self, queue: Queue) {
        if let Some(id) = self.queues.line_mut(queue).open.take() {
            self.enlist(id);
        }
    }

    /// Seals the open segment of `queue`, if there is one, before it is full: its unused end is slack.
    pub(super) fn seal(&mut self, queue: Queue) {
        if let Some(id) = self.queues.line(queue).open {
            self.segments[id as usize].is_short = true;
        }
        self.seal_full(queue);
    }

    fn enlist(&mut self, id: SegmentId) {
        let class = self.slack_class(id);
        self.slack[usize::from(class)].push(&mut self.segments, id);
        let segment = &mut self.segments[id as usize];
        segment.state = State::Sealed;
        segment.slack_class = class;
        self.relist(id);
    }

    /// Writes a record into the open segment of `queue`, where it fits. `old` is the segment of the old
    /// pieces.
    pub(super) fn append(&mut self, queue: Queue, old: SegmentId, pieces: &[Piece<'_>]) -> Address {
        let id = self.queues.line(queue).open.expect("the record fits");
        // Source and target may be the same segment, so the bytes are lent instead of borrowed.
        let lent = (old != id).then(|| self.segments[old as usize].lend());
        let segment = &mut self.segments[id as usize];
        let offset = segment.len();
        for piece in pieces {
            match (piece, &lent) {
                (Piece::New(bytes), _) => segment.write(bytes),
                (Piece::Old(range), Some(lent)) => segment.write(&lent.bytes()[range.clone()]),
                (Piece::Old(range), None) => segment.write_again(range.clone()),
            }
        }
        segment.pad(self.geometry.padded(segment.len()));
        let added = segment.len() - offset;
        let bytes = u32_of(added);
        let record = segment.record(offset);
        debug_assert_eq!(record.padded_bytes(&self.geometry), added, "R1");
        let (is_locked, deadline) = (record.is_locked(), record.deadline());
        if record.is_evictable() {
            segment.evictable_bytes += added;
        }
        segment.live_bytes += bytes;
        if let Some(lent) = lent {
            self.segments[old as usize].take_back(lent);
        }
        self.queues.line_mut(queue).weight += added;
        if !is_locked {
            self.expect(id, deadline);
        }
        self.geometry.address(id, offset)
    }

    /// Writes a record of new pieces only; as [`append`](Self::append).
    pub(super) fn append_new(&mut self, queue: Queue, pieces: &[Piece<'_>]) -> Address {
        let id = self.queues.line(queue).open.expect("the record fits");
        self.append(queue, id, pieces)
    }

    /// Writes a copy of a record into the open segment of `queue`, with so many hits.
    pub(super) fn copy(&mut self, queue: Queue, address: Address, hits: u8) -> Address {
        let (old, offset) = self.geometry.place(address);
        let bytes = self.record(address).padded_bytes(&self.geometry);
        let copy = self.append(queue, old, &[Piece::Old(offset..offset + bytes)]);
        self.record_mut(copy).set_hits(hits);
        copy
    }

    /// Marks a record as dead.
    pub(super) fn kill(&mut self, address: Address) {
        let (id, offset) = self.geometry.place(address);
        let queue = self.queue(id);
        let segment = &mut self.segments[id as usize];
        let record = segment.record(offset);
        let added = record.padded_bytes(&self.geometry);
        let bytes = u32_of(added);
        if record.is_evictable() {
            segment.evictable_bytes -= added;
        }
        segment.live_bytes -= bytes;
        segment.record_mut(offset).set_dead();
        if self.erases {
            segment.record_mut(offset).erase_value(&self.geometry);
        }
        self.queues.line_mut(queue).weight -= added;
        self.relist(id);
    }

    /// Updates the sums after the item of a record without a huge value was locked or unlocked.
    pub(super) fn set_locked(&mut self, address: Address, is_locked: bool) {
        let (id, offset) = self.geometry.place(address);
        let segment = &mut self.segments[id as usize];
        let bytes = segment.record(offset).padded_bytes(&self.geometry);
        if is_locked {
            segment.evictable_bytes -= bytes;
        } else {
            segment.evictable_bytes += bytes;
        }
        self.relist(id);
    }

    /// Records that an item in this segment may expire at `deadline`, in ticks (B2).
    pub(super) fn expect(&mut self, id: SegmentId, deadline: u32) {
        if deadline < self.segments[id as usize].earliest {
            self.deadlines.set(&mut self.segments, id, deadline);
        }
    }

    #[inline]
    pub(super) fn record(&self, address: Address) -> Record<'_> {
        let (id, offset) = self.geometry.place(address);
        self.segments[id as usize].record(offset)
    }

    #[inline]
    pub(super) fn record_mut(&mut self, address: Address) -> RecordMut<'_> {
        let (id, offset) = self.geometry.place(address);
        self.segments[id as usize].record_mut(offset)
    }

    /// The record, which is live, if its item has `key` and is present (A4).
    #[inline]
    pub(super) fn item(&self, address: Address, key: Key<'_>) -> Option<Record<'_>> {
        let (id, offset) = self.geometry.place(address);
        let segment = &self.segments[id as usize];
        let record = segment.record(offset);
        let is_it = record.has_key(key) && (segment.epoch == self.epoch || record.is_locked());
        is_it.then_some(record)
    }

    /// Whether a live record is present (A4).
    pub(super) fn is_there(&self, address: Address) -> bool {
        let (id, offset) = self.geometry.place(address);
        let segment = &self.segments[id as usize];
        segment.epoch == self.epoch || segment.record(offset).is_locked()
    }

    /// Whether there are segments from before the last flush.
    pub(super) const fn holds_flushed(&self) -> bool {
        self.queues.line(Queue::Flushed).segments.len() > 0
    }

    /// Whether a segment is from before the last flush.
    pub(super) fn is_flushed(&self, id: SegmentId) -> bool {
        self.segments[id as usize].epoch != self.epoch
    }

    /// The queue of a segment; of a drained one, the queue before that.
    pub(super) fn queue(&self, id: SegmentId) -> Queue {
        if self.is_flushed(id) {
            Queue::Flushed
        } else {
            self.segments[id as usize].queue
        }
    }

    /// A flush in constant time. The segments are swept later.
    pub(super) fn flush(&mut self) {
        for queue in [Queue::Small, Queue::Main, Queue::Pinned] {
            self.seal(queue);
            let line = self.queues.line_mut(queue);
            let (mut segments, weight) = (line.segments, line.weight);
            line.weight = 0;
            line.segments = List::new(Row::Queue);
            let flushed = self.queues.line_mut(Queue::Flushed);
            flushed.segments.append(&mut self.segments, &mut segments);
            flushed.weight += weight;
        }
        self.epoch += 1;
    }

    /// Moves a sealed segment to the pinned queue. If it was flushed, the items still in it have survived the
    /// flush.
    pub(super) fn pin(&mut self, id: SegmentId) {
        let queue = self.queue(id);
        let segment = &mut self.segments[id as usize];
        let weight = segment.live_bytes as usize;
        segment.epoch = self.epoch;
        segment.queue = Queue::Pinned;
        let line = self.queues.line_mut(queue);
        line.segments.unlink(&mut self.segments, id);
        line.weight -= weight;
        let line = self.queues.line_mut(Queue::Pinned);
        line.segments.push(&mut self.segments, id);
        line.weight += weight;
        self.relist(id);
        self.reopen(id);
    }

    /// Opens the newest pinned segment again, if it was sealed short and has more unused bytes than the open
    /// one. A flush has sealed the segment that items were moved to, and there may be no other.
    fn reopen(&mut self, id: SegmentId) {
        let line = self.queues.line(Queue::Pinned);
        let segment = &self.segments[id as usize];
        let len_of = |open: SegmentId| self.segments[open as usize].len();
        let is_roomier = line.open.is_none_or(|open| segment.len() < len_of(open));
        if segment.state != State::Sealed || !segment.is_short || !is_roomier {
            return;
        }
        self.seal(Queue::Pinned);
        let segment = &mut self.segments[id as usize];
        segment.state = State::Open;
        segment.is_short = false;
        let class = segment.slack_class;
        self.slack[usize::from(class)].unlink(&mut self.segments, id);
        self.queues.line_mut(Queue::Pinned).open = Some(id);
    }

    /// The segment with the most slack, if it is at least `class` of [`SLACK_CLASSES`] parts.
    pub(super) fn slackest(&self, class: usize) -> Option<SegmentId> {
        self.slack[class..].iter().rev().find_map(List::oldest)
    }

    /// Removes a sealed segment from its queue, to be drained.
    pub(super) fn withdraw(&mut self, id: SegmentId) {
        let queue = self.queue(id);
        let line = self.queues.line_mut(queue);
        line.segments.unlink(&mut self.segments, id);
        let class = self.segments[id as usize].slack_class;
        self.slack[usize::from(class)].unlink(&mut self.segments, id);
        self.segments[id as usize].state = State::Draining;
    }

    /// Returns a segment that could not be drained completely to its queue.
    pub(super) fn restore(&mut self, id: SegmentId) {
        let queue = self.queue(id);
        let line = self.queues.line_mut(queue);
        line.segments.push(&mut self.segments, id);
        self.enlist(id);
    }

    /// Finishes a drained segment, which has no live record.
    pub(super) fn release(&mut self, id: SegmentId) {
        let segment = &mut self.segments[id as usize];
        assert_eq!(segment.live_bytes, 0, "its live records were moved");
        segment.forget();
        segment.state = State::Spare;
        self.deadlines.set(&mut self.segments, id, NEVER);
        self.spare.push(&mut self.segments, id);
    }

    /// Restores A2 and A3 after the live records of a segment have changed.
    fn relist(&mut self, id: SegmentId) {
        let segment = &self.segments[id as usize];
        if segment.state != State::Sealed {
            return;
        }
        if segment.live_bytes == 0 {
            self.withdraw(id);
            self.release(id);
            return;
        }
        let class = self.slack_class(id);
        let before = self.segments[id as usize].slack_class;
        if class != before {
            self.slack[usize::from(before)].unlink(&mut self.segments, id);
            self.slack[usize::from(class)].push(&mut self.segments, id);
            self.segments[id as usize].slack_class = class;
        }
    }

    /// The slack of a segment, in parts of a segment, if it is in `queue`.
    fn slack_class_in(&self, id: SegmentId, queue: Queue) -> usize {
        let segment_bytes = self.geometry.segment_room();
        let slack = self.segments[id as usize].slack_bytes(segment_bytes, queue);
        self.geometry.segments_in(slack * SLACK_CLASSES)
    }

    fn slack_class(&self, id: SegmentId) -> u8 {
        let class = self.slack_class_in(id, self.segments[id as usize].queue);
        u8::try_from(class).expect("there are few classes")
    }

    /// Whether a segment would have less slack than `class` in the pinned queue, since most of it is not evictable.
    pub(super) fn is_pinnable(&self, id: SegmentId, class: usize) -> bool {
        self.slack_class_in(id, Queue::Pinned) < class
    }

    /// Seals the open pinned segment if its slack, without the unused end, is at least `class`. Otherwise it
    /// would not be emptied until it is full.
    pub(super) fn seal_slack(&mut self, class: usize) {
        if let Some(open) = self.queues.line(Queue::Pinned).open
            && self.slack_class_in(open, Queue::Pinned) >= class
        {
            self.seal(Queue::Pinned);
        }
    }

    /// All records of a segment, dead ones too, with their addresses.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn records(&self, id: SegmentId) -> impl Iterator<Item = (Address, Record<'_>)> {
        let segment = &self.segments[id as usize];
        let mut offset = 0;
        core::iter::from_fn(move || {
            (offset < segment.len()).then(|| {
                let record = segment.record(offset);
                let address = self.geometry.address(id, offset);
                offset += record.padded_bytes(&self.geometry);
                (address, record)
            })
        })
    }

    /// A1 to A3, B1 to B3, Q1 to Q3; the caller checks the records.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn check(&self) {
        self.segments.check();
        self.deadlines.check(&self.segments);
        let mut weights = [0; 4];
        let mut with_memory = 0;
        for (id, segment) in self.segments.iter().enumerate() {
            let id = u32_of(id);
            with_memory += usize::from(segment.has_memory());
            assert_eq!(segment.has_memory(), segment.state != State::Bare, "A1");
            assert!(segment.len() <= self.geometry.segment_room(), "B3");
            let (mut live, mut evictable) = (0, 0);
            for (address, record) in self.records(id).filter(|(_, record)| !record.is_dead()) {
                let bytes = record.padded_bytes(&self.geometry);
                live += bytes;
                if record.is_evictable() {
                    evictable += bytes;
                }
                assert!(
                    record.is_locked() || segment.earliest <= record.deadline(),
                    "B2: {address:?}"
                );
            }
            assert_eq!(segment.live_bytes as usize, live, "B1: segment {id}");
            assert_eq!(segment.evictable_bytes, evictable, "B1: segment {id}");
            weights[self.queue(id) as usize] += live;
            match segment.state {
                State::Bare | State::Spare => assert_eq!(segment.len(), 0, "A2: segment {id}"),
                State::Open => assert_eq!(
                    self.queues.line(self.queue(id)).open,
                    Some(id),
                    "Q3: segment {id}"
                ),
                State::Sealed => {
                    assert!(live > 0, "A2: segment {id}");
                    let class = self.slack_class(id);
                    assert_eq!(segment.slack_class, class, "A3: segment {id}");
                }
                State::Draining => {}
            }
        }
        assert_eq!(self.with_memory, with_memory, "A1");
        for queue in Queue::ALL {
            let line = self.queues.line(queue);
            assert_eq!(line.weight, weights[queue as usize], "Q2: {queue:?}");
            for id in line.segments.iter(&self.segments) {
                assert_eq!(self.queue(id), queue, "Q1: segment {id}");
                let state = self.segments[id as usize].state;
                assert!(matches!(state, State::Open | State::Sealed), "Q1: {id}");
            }
        }
        let in_state = |state| {
            let all = self.segments.iter();
            all.filter(|segment| segment.state == state).count()
        };
        let queued: usize = Queue::ALL
            .map(|queue| self.queues.line(queue).segments.len())
            .iter()
            .sum();
        let sealed: usize = self.slack.iter().map(List::len).sum();
        assert_eq!(
            queued,
            in_state(State::Open) + in_state(State::Sealed),
            "Q1"
        );
        assert_eq!(sealed, in_state(State::Sealed), "A3");
        assert_eq!(self.spare.len(), in_state(State::Spare), "A2");
        assert_eq!(self.bare.len(), in_state(State::Bare), "A1");
        for (class, list) in self.slack.iter().enumerate() {
            for id in list.iter(&self.segments) {
                let segment = &self.segments[id as usize];
                assert_eq!(usize::from(segment.slack_class), class, "A3: segment {id}");
            }
        }
    }
}

/// A number of bytes in a segment, or its size: both fit into 32 bits.
fn u32_of(number: usize) -> u32 {
    u32::try_from(number).expect("segments are small, and numbered in 32 bits")
}
