//! The eviction of huge values: each one has to earn the small items that it displaces.
//!
//! A new value enters the window. At the end of the window it is evicted, unless it has earned its memory. Then it
//! moves to the main list, at whose end it is judged again. Its record in the log stays where it is.
//!
//! A value has earned its memory if it had as many hits as small items would have had there. The ghosts tell that
//! number: with twice the memory for small items, each return of a ghost would have been a hit. A value owes its
//! share of these hits: its size, as a part of the small items.
//!
//! - D1: No item outside the window is evicted while the window has more than its share of the memory.
//! - D2: A value without a hit leaves the window by eviction.
//!
//! Source: the window by bytes is that of Einziger et al., "Lightweight Robust Size Aware Cache Management", ACM TOS
//! 2022. The main list is a CLOCK.

use latchd_protocol::stats::Counters;
use latchd_protocol::time::Tick;

use super::block::Block;
use super::huge::{Merit, Returns, Stage};
use super::queue::Queue;
use super::room::Bit;
use super::{KeyHasher, LogStore};

/// The window has one in so many bytes of the limit.
const WINDOW_SHARE: usize = 32;

/// A value in the main list is judged when it owes one hit in so many. Until then, chance would decide.
const HITS_OWED_SHARE: u128 = 8;

impl<H: KeyHasher, B: Block> LogStore<H, B> {
    /// Whether the window has more than its share of the memory, and is to be evicted from first (D1).
    pub(super) const fn is_window_full(&self) -> bool {
        self.evict && self.huge.window_bytes() > self.bytes_max / WINDOW_SHARE
    }

    /// Judges the oldest value of the window, if there is one.
    pub(super) fn judge_window(&mut self, now: Tick, counters: &mut Counters) -> Option<Bit> {
        let number = self.huge.oldest(Stage::Window)?;
        Some(self.judge(number, now, counters))
    }

    /// Judges the oldest values of the main list, until one is evicted or they have as many bytes as a segment.
    /// Returns `None` if all stay and a segment can be emptied instead.
    pub(super) fn judge_main(&mut self, now: Tick, counters: &mut Counters) -> Option<Bit> {
        let is_last = self.log.queues.turn().is_none();
        let mut judged_bytes = 0;
        while judged_bytes < self.geometry.segment_bytes() {
            let Some(number) = self.huge.oldest(Stage::Main) else {
                break;
            };
            judged_bytes += self.huge.value(number).len();
            let bit = self.judge(number, now, counters);
            if bit.won > 0 || is_last {
                return Some(bit);
            }
        }
        if is_last {
            self.judge_window(now, counters)
        } else {
            None
        }
    }

    /// Evicts a value, or moves it to the end of the main list.
    fn judge(&mut self, number: u32, now: Tick, counters: &mut Counters) -> Bit {
        let address = self.huge.address(number);
        let record = self.record(address);
        let (hash, bytes) = (self.hasher.hash(record.key()), self.huge_bytes(record));
        let is_window = self.huge.stage(number) == Stage::Window;
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
            if is_window {
                self.remember(hash);
            }
            self.give_up(now, address, hash, counters);
        }
        Bit::won(bytes)
    }

    /// The merit from which a value of so many bytes goes on; `None` if it has not earned its memory.
    fn judged(&self, number: u32, bytes: usize) -> Option<Merit> {
        let merit = self.huge.merit(number);
        let returns = self.returns.small.wrapping_sub(merit.since.small);
        let [small, main] =
            [Queue::Small, Queue::Main].map(|queue| self.log.queues.line(queue).weight);
        // Both sides of the comparison are multiplied by the bytes of the small items.
        let owed = u128::from(returns) * bytes as u128;
        let a_hit = (small + main).max(self.geometry.segment_bytes()) as u128;
        let has_earned = merit.hits > 0 && u128::from(merit.hits) * a_hit >= owed;
        if self.huge.stage(number) == Stage::Window {
            // Hits in the window may be those of the client that stored the value.
            let large = merit.since.large;
            let since = Returns {
                large,
                ..self.returns
            };
            return has_earned.then_some(Merit::new(since));
        }
        let is_last = self.log.queues.turn().is_none();
        if owed >= a_hit / HITS_OWED_SHARE || is_last {
            return has_earned.then_some(Merit::new(self.returns));
        }
        // Small items would have had no hit either. Others of its kind return, so they need more memory.
        let others_return = self.returns.large != merit.since.large;
        (has_earned || others_return).then_some(merit)
    }
}
