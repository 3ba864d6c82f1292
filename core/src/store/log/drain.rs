//! Emptying a segment, record by record, so that its memory can be used again.
//!
//! Dead, expired and flushed records are dropped. Locked items are moved to the pinned queue, where the ends
//! of the other queues do not meet them again, and so are the records of huge values. The queue decides about the remaining items: hit items are
//! moved, the others are evicted. If a quarter of a segment is slack, it is emptied before anything is
//! evicted, and all its present items are moved.
//!
//! - E1: A segment that the store starts to empty while memory is short frees a quarter of its evictable
//!   bytes. This holds in either queue and for any number of hits, so the work
//!   to free a number of bytes is bounded. If the store starts to empty a segment of the small queue while
//!   memory is free, the segment's hit items all stay.
//! - E2: If that was not enough for a waiting caller, it goes on until segments hold locked items alone, each with
//!   less slack than [`SLACK_WORTH_AT_LAST`]. Only then is the caller refused (S5).

use latchd_protocol::stats::{Counters, Eviction};
use latchd_protocol::time::Tick;
use latchd_protocol::watch::Evicted;

use super::block::Block;
use super::geometry::{Address, SegmentId};
use super::huge::Stage;
use super::queue::Queue;
use super::reclaim::{Bit, Haste, KEPT_TO_CARRY};
use super::record::{HITS_MAX, NEVER, Record};
use super::segment::State;
use super::segments::SLACK_CLASSES;
use super::{Full, KeyHasher, LogStore};
use crate::store::EVICTED_MAX;

/// The slack that makes emptying a segment better than evicting: a quarter.
pub(super) const SLACK_WORTH: usize = SLACK_CLASSES / 4;

/// The slack that makes emptying a segment worthwhile if nothing else may be evicted.
const SLACK_WORTH_AT_LAST: usize = 1;

/// A segment that is being emptied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    pub(super) segment: SegmentId,
    offset: usize,
    pub(super) rule: Rule,
    /// Bytes that were moved because of hits, and their limit (E1).
    kept_bytes: usize,
    kept_bytes_max: usize,
}

/// The fate of an item that is present, not locked and not expired.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rule {
    /// It is moved.
    Keep,
    /// It is moved to the main queue if it was hit (E1), otherwise evicted and remembered as a ghost.
    Promote,
    /// It passes through the queue once more, which costs one hit, if it has enough hits (E1). Otherwise it
    /// is evicted.
    Again,
}

/// The result of examining a record.
enum Fate {
    Carry {
        queue: Queue,
        hits: u8,
    },
    /// As [`Carry`](Fate::Carry), but evicted if there is no segment to move it to.
    Hit {
        queue: Queue,
        hits: u8,
    },
    Expire,
    GiveUp {
        remember: bool,
    },
    /// A flush has removed it already.
    Forget,
}

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// Chooses a segment to empty. Returns whether there was one.
    pub(super) fn begin_drain(&mut self, haste: Haste) -> bool {
        let turn = self.log.queues.turn().filter(|_| self.evict);
        let Some(queue) = turn else {
            return self.drain_slack(SLACK_WORTH_AT_LAST);
        };
        let line = self.log.queues.line(queue);
        let Some(oldest) = line.segments.oldest() else {
            return false;
        };
        if line.open == Some(oldest) {
            self.log.seal(queue);
        }
        self.log.queues.took_turn(queue);
        let segment = &self.log.segments[oldest as usize];
        // Sealing has made it spare if all of it was dead.
        if segment.state == State::Sealed {
            if self.log.is_pinnable(oldest, SLACK_WORTH) {
                self.log.pin(oldest);
            } else if queue == Queue::Small {
                let is_short = haste == Haste::Now || self.free_segments() <= KEPT_TO_CARRY;
                self.drain_from(oldest, Rule::Promote);
                if !is_short && let Some(drain) = &mut self.drain {
                    drain.kept_bytes_max = usize::MAX;
                }
            } else {
                self.drain_from(oldest, Rule::Again);
            }
        }
        true
    }

    /// Starts to empty the segment with the most slack, if it is at least `worth`.
    pub(super) fn drain_slack(&mut self, worth: usize) -> bool {
        // Its locked items need another segment. Without eviction the other items move with them, which frees nothing.
        if self.evict && self.free_segments() >= KEPT_TO_CARRY {
            self.log.seal_slack(worth);
        }
        let Some(segment) = self.log.slackest(worth) else {
            return false;
        };
        let is_pinned = self.log.queue(segment) == Queue::Pinned;
        let rule = if is_pinned && self.evict {
            Rule::Again
        } else {
            Rule::Keep
        };
        self.drain_from(segment, rule);
        true
    }

    /// Moves the live records of segments with at least half slack together, so that memory can be freed.
    /// Takes about as long as reading `looks_max` records.
    pub(super) fn compact(&mut self, now: Tick, looks_max: usize, counters: &mut Counters) {
        let mut left = looks_max;
        while left > 0 {
            let looks = match &self.drain {
                Some(drain) if drain.rule != Rule::Keep => return,
                Some(_) => match self.drain_record(now, counters) {
                    Ok(bit) => bit.looks,
                    Err(Full) => return self.abandon_drain(),
                },
                None => match self.log.slackest(SLACK_CLASSES / 2) {
                    Some(segment) => {
                        self.drain_from(segment, Rule::Keep);
                        1
                    }
                    None => return,
                },
            };
            left = left.saturating_sub(looks);
        }
    }

    fn drain_from(&mut self, segment: SegmentId, rule: Rule) {
        let kept_bytes_max = self.log.segments[segment as usize].evictable_bytes / 4 * 3;
        self.log.withdraw(segment);
        self.drain = Some(Drain {
            segment,
            offset: 0,
            rule,
            kept_bytes: 0,
            kept_bytes_max,
        });
    }

    /// Handles the next record of the segment that is being emptied.
    ///
    /// # Errors
    /// [`Full`] if an item must be moved and there is no segment to move it to.
    pub(super) fn drain_record(&mut self, now: Tick, counters: &mut Counters) -> Result<Bit, Full> {
        let Some(mut drain) = self.drain else {
            return Ok(Bit::won(0));
        };
        if drain.offset >= self.log.segments[drain.segment as usize].len() {
            self.end_drain(&drain);
            return Ok(Bit::won(0));
        }
        let address = self.geometry.address(drain.segment, drain.offset);
        let record = self.record(address);
        let bytes = record.padded_bytes(&self.geometry);
        let mut bit = Bit::won(bytes);
        if !record.is_dead() {
            let hash = self.hasher.hash(record.key());
            let all_bytes = bytes + self.huge_bytes(record);
            bit = Bit::won(all_bytes);
            match self.fate(address, record, &drain, now) {
                Fate::Carry { queue, hits } => {
                    self.carry(address, hash, queue, hits)?;
                    bit = Bit::carried(bytes);
                }
                Fate::Hit { queue, hits } => {
                    if self.carry(address, hash, queue, hits).is_ok() {
                        drain.kept_bytes += bytes;
                        bit = Bit::carried(bytes);
                    } else {
                        self.give_up(now, address, hash, counters);
                    }
                }
                Fate::Expire => self.expire(address, hash, counters),
                Fate::GiveUp { remember } => {
                    if remember {
                        self.remember(hash);
                    }
                    self.give_up(now, address, hash, counters);
                }
                Fate::Forget => self.bury(address, hash),
            }
        }
        drain.offset += bytes;
        self.drain = Some(drain);
        Ok(bit)
    }

    fn fate(&self, address: Address, record: Record<'_>, drain: &Drain, now: Tick) -> Fate {
        let hits = record.hits();
        let bytes = record.padded_bytes(&self.geometry);
        let home = match self.log.queue(drain.segment) {
            Queue::Small => Queue::Small,
            Queue::Main | Queue::Pinned | Queue::Flushed => Queue::Main,
        };
        if record.is_locked() {
            let queue = Queue::Pinned;
            return Fate::Carry { queue, hits };
        }
        if self.in_hand == Some(address) {
            return Fate::Carry { queue: home, hits };
        }
        if !self.log.is_there(address) {
            return Fate::Forget;
        }
        if record.is_past(now) {
            return Fate::Expire;
        }
        if !record.is_evictable() {
            let queue = Queue::Pinned;
            return Fate::Carry { queue, hits };
        }
        match drain.rule {
            Rule::Keep => Fate::Carry { queue: home, hits },
            Rule::Promote if hits > 0 && drain.kept_bytes + bytes <= drain.kept_bytes_max => {
                let queue = Queue::Main;
                Fate::Hit { queue, hits: 0 }
            }
            Rule::Promote => Fate::GiveUp { remember: true },
            Rule::Again => {
                let is_hit = hits > self.hits_needed;
                if is_hit && drain.kept_bytes + bytes <= drain.kept_bytes_max {
                    Fate::Hit {
                        queue: Queue::Main,
                        hits: hits - 1,
                    }
                } else {
                    Fate::GiveUp { remember: false }
                }
            }
        }
    }

    /// Finishes an emptied segment. If too many of its items had enough hits, items need more hits from now
    /// on; if too few, fewer. So the items with the most hits stay, not the first ones (E1).
    fn end_drain(&mut self, drain: &Drain) {
        self.log.release(drain.segment);
        self.drain = None;
        self.has_swept = false;
        if drain.rule == Rule::Again {
            if drain.kept_bytes > drain.kept_bytes_max / 8 * 7 {
                self.hits_needed = (self.hits_needed + 1).min(HITS_MAX);
            } else if drain.kept_bytes < drain.kept_bytes_max / 2 {
                self.hits_needed = self.hits_needed.saturating_sub(1);
            }
        }
    }

    /// Stops emptying the segment: it returns to its queue as the last one, so that others are tried first.
    pub(super) fn abandon_drain(&mut self) {
        if let Some(drain) = self.drain.take() {
            self.log.restore(drain.segment);
        }
    }

    /// Writes a copy of an item in another segment.
    fn carry(&mut self, address: Address, hash: u64, queue: Queue, hits: u8) -> Result<(), Full> {
        let record = self.record(address);
        let (bytes, number) = (record.padded_bytes(&self.geometry), record.huge());
        let queue = self.open_to_carry(queue, bytes)?;
        let copy = self.log.copy(queue, address, hits);
        self.index.replace(hash, address, copy);
        self.log.kill(address);
        if let Some(number) = number {
            self.huge.set_address(number, copy);
        }
        if self.in_hand == Some(address) {
            self.in_hand = Some(copy);
        }
        Ok(())
    }

    /// Removes an item that has expired.
    pub(super) fn expire(&mut self, address: Address, hash: u64, counters: &mut Counters) {
        counters.reclaimed += 1;
        counters.expired_unfetched += u64::from(!self.record(address).is_fetched());
        self.bury(address, hash);
    }

    pub(super) fn give_up(
        &mut self,
        now: Tick,
        address: Address,
        hash: u64,
        counters: &mut Counters,
    ) {
        let record = self.record(address);
        counters.evictions += 1;
        counters.evicted_unfetched += u64::from(!record.is_fetched());
        counters.evicted_active += u64::from(record.hits() > 0);
        counters.evicted_nonzero += u64::from(record.deadline() != NEVER);
        let idle_s = now.seconds_since(record.header().last_access);
        self.last_eviction = Some(Eviction { at: now, idle_s });
        if self.evicted.is_some() {
            self.tell_evicted(now, address, idle_s);
        }
        self.bury(address, hash);
    }

    #[cold]
    fn tell_evicted(&mut self, now: Tick, address: Address, idle_s: u32) {
        let record = self.record(address);
        let deadline = record.header().deadline;
        let evicted = Evicted {
            key: record.key().as_bytes().to_vec(),
            fetched: record.is_fetched(),
            ttl_s: deadline.map(|deadline| deadline.remaining_s(now)),
            idle_s,
            value_bytes: self.value_bytes(record),
        };
        match &mut self.evicted {
            Some(all) if all.len() < EVICTED_MAX => all.push(evicted),
            Some(_) | None => self.evicted_missed += 1,
        }
    }

    /// The last access of the first item in each queue and in each list of huge values, the oldest of them. If a
    /// queue's first segment begins with many removed items, that queue gives none.
    pub(super) fn oldest_access(&self) -> Option<Tick> {
        const RECORDS_LOOKED_AT_MAX: usize = 256;
        let first = |queue| {
            let segment = self.log.queues.line(queue).segments.oldest()?;
            let len = self.log.segments[segment as usize].len();
            let mut offset = 0;
            for _ in 0..RECORDS_LOOKED_AT_MAX {
                if offset >= len {
                    break;
                }
                let address = self.geometry.address(segment, offset);
                let record = self.record(address);
                if !record.is_dead() && record.is_evictable() && self.log.is_there(address) {
                    return Some(record.header().last_access);
                }
                offset += record.padded_bytes(&self.geometry);
            }
            None
        };
        let first_huge = |stage| {
            let address = self.huge.address(self.huge.oldest(stage)?);
            let is_there = self.log.is_there(address);
            is_there.then(|| self.record(address).header().last_access)
        };
        let firsts = [first(Queue::Small), first(Queue::Main)];
        let huge = [first_huge(Stage::Window), first_huge(Stage::Main)];
        firsts.into_iter().chain(huge).flatten().min()
    }

    /// Remembers an evicted item as a ghost, unless the memory for that is needed elsewhere.
    pub(super) fn remember(&mut self, hash: u64) {
        let bucket = self.index.bucket(hash);
        let bytes = self.ghost.note_bytes(hash, bucket);
        if bytes == 0 || self.has_memory_left(bytes) {
            self.ghost.note(hash, bucket);
        }
    }
}
