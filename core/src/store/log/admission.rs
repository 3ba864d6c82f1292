//! The eviction of huge values: each one has to earn the small items that it displaces.
//!
//! A new value enters the window. At the end of the window it is evicted, unless it has earned its memory. Then it
//! moves to the main list, at whose end it is judged again. Its record in the log stays where it is.
//!
//! A value has earned its memory if it had as many hits as small items would have had there. The ghosts tell that
//! number: with twice the memory for small items, each return of a ghost would have been a hit. A value owes its
//! share of these hits: its size, as a part of the small items. If small items hardly return, a value that was
//! itself stored again soon after its eviction stays without a hit. So memory that small items do not use serves
//! large values.
//!
//! - D1: No item outside the window is evicted while the window has more than its share of the memory.
//!
//! Source: the window by bytes is that of Einziger et al., "Lightweight Robust Size Aware Cache Management", ACM TOS
//! 2022. The main list is a CLOCK.

use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;

use super::block::Block;
use super::huge::{Merit, Stage};
use super::queue::Queue;
use super::queues::SMALL_SHARE;
use super::reclaim::Bit;
use super::{KeyHasher, LogStore};

/// The window has at least one in so many bytes of the limit.
const WINDOW_SHARE: usize = 32;

/// A value in the main list is judged by its hits alone when it owes one in so many of them. Until then, chance
/// would decide.
const HITS_OWED_SHARE: u128 = 8;

/// Small items hardly return while a value owes less than one in so many hits.
const HITS_OWED_SHARE_IDLE: u128 = 256;

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// Whether the window has more than its share of the memory, and is to be evicted from first (D1).
    pub(super) const fn is_window_full(&self) -> bool {
        self.evict && self.huge.window_bytes() > self.window_bytes_max()
    }

    /// The share of the window: as that of the small queue, if huge values have much of the memory.
    const fn window_bytes_max(&self) -> usize {
        let of_limit = self.bytes_max / WINDOW_SHARE;
        let of_huge = self.huge.value_bytes() / SMALL_SHARE;
        if of_limit > of_huge {
            of_limit
        } else {
            of_huge
        }
    }

    /// Judges the oldest value of the window, if there is one.
    pub(super) fn judge_window(&mut self, now: Tick, counters: &mut Counters) -> Option<Bit> {
        let number = self.huge.oldest(Stage::Window)?;
        Some(self.judge(number, now, counters))
    }

    /// Judges the oldest values of the main list, until one is evicted or they have as many bytes as a segment.
    /// Returns `None` if all stay and a segment can be emptied instead.
    pub(super) fn judge_main(&mut self, now: Tick, counters: &mut Counters) -> Option<Bit> {
        let is_last = self.small_bytes() < self.geometry.segment_bytes();
        let mut judged_bytes = 0;
        while judged_bytes < self.geometry.segment_bytes() {
            let Some(number) = self.huge.oldest(Stage::Main) else {
                break;
            };
            judged_bytes += self.huge.value(number).len();
            // The value that is being replaced may be the only one here.
            let is_held = self.in_hand == Some(self.huge.address(number));
            let bit = self.judge(number, now, counters);
            if bit.won > 0 || (is_last && !is_held) {
                return Some(bit);
            }
        }
        if is_last {
            self.judge_window(now, counters)
        } else {
            None
        }
    }

    /// The bytes of the items that are evicted with their segments, and of one that is being replaced. If they are
    /// less than a segment, huge values are evicted instead: emptying segments might free nothing.
    fn small_bytes(&self) -> usize {
        let queues = [Queue::Small, Queue::Main];
        queues
            .map(|queue| self.log.queues.line(queue).weight)
            .iter()
            .sum()
    }

    /// Evicts a value, or moves it to the end of the main list.
    fn judge(&mut self, number: u32, now: Tick, counters: &mut Counters) -> Bit {
        let address = self.huge.address(number);
        let record = self.record(address);
        let (hash, bytes) = (self.hasher.hash(record.key()), self.huge_bytes(record));
        if self.in_hand == Some(address) {
            self.huge.move_to(number, Stage::Main);
            return Bit::won(0);
        }
        if !self.log.is_there(address) {
            self.bury(address, hash);
        } else if record.is_past(now) {
            self.expire(address, hash, counters);
        } else if let Some(merit) = self.judged(number, bytes) {
            self.huge.set_merit(number, merit);
            self.huge.move_to(number, Stage::Main);
            return Bit::won(0);
        } else {
            if self.huge.is_in_window(number) {
                self.remember(hash);
            }
            self.give_up(now, address, hash, counters);
        }
        Bit::won(bytes)
    }

    /// The merit from which a value of so many bytes goes on; `None` if it has not earned its memory.
    fn judged(&self, number: u32, bytes: usize) -> Option<Merit> {
        let merit = self.huge.merit(number);
        let returns = self.returns.wrapping_sub(merit.since);
        let (small_bytes, least) = (self.small_bytes(), self.geometry.segment_bytes());
        // Hits are counted in bytes of small items, so that nothing is divided.
        let owed = u128::from(returns) * bytes as u128;
        let a_hit = small_bytes.max(least) as u128;
        let has_earned = merit.hits > 0 && u128::from(merit.hits) * a_hit >= owed;
        let anew = Merit {
            hits: 0,
            since: self.returns,
            ..merit
        };
        if self.huge.is_in_window(number) {
            let is_idle = owed < a_hit / HITS_OWED_SHARE_IDLE;
            return (has_earned || merit.is_back && is_idle).then_some(anew);
        }
        let is_early = owed < a_hit / HITS_OWED_SHARE;
        if is_early && small_bytes >= least {
            return (has_earned || merit.is_back).then_some(merit);
        }
        has_earned.then_some(anew)
    }
}
