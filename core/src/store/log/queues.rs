//! The order of eviction: S3-FIFO over whole segments.
//!
//! A new item enters the small queue. At the end of that queue it is evicted, or moves on to the main queue
//! if it was hit meanwhile. An evicted item is remembered for a while as a ghost. If it is stored again, it
//! goes directly to the main queue. At the end of the main queue an item passes through once more for each
//! hit, up to three times. So items that are read only once pass through a fifth of the memory, and never
//! evict items in use. If memory is short, at most three quarters of a segment stay, in either queue (E1).
//!
//! Items with huge values are not evicted here ([`admission`](super::admission)).
//!
//! - Q1: Every segment with records is in one queue, or being drained.
//! - Q2: The weight of a queue is the sum of the bytes of its live records.
//! - Q3: A queue has at most one open segment. Behind it are only segments that could not be drained
//!   completely.
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023. The small queue is
//! larger here, and one hit is enough to leave it. On measured traces, this was never much worse than LRU and
//! mostly better.

use super::geometry::SegmentId;
use super::list::{List, Row};
use super::queue::Queue;

/// The small queue evicts first while it has more than one in this many bytes.
pub(super) const SMALL_SHARE: usize = 5;

/// After new items have filled the memory this many times, the main queue has evicted each of its segments
/// once, even without need. Otherwise, if no item is promoted, items that were once hot would stay for ever.
const FILLS_A_TURN: usize = 8;

/// The segments of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) segments: List,
    pub(super) open: Option<SegmentId>,
    /// The bytes of its live records.
    pub(super) weight: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            segments: List::new(Row::Queue),
            open: None,
            weight: 0,
        }
    }
}

/// All queues, and the turn between them.
#[derive(Debug)]
pub(super) struct Queues {
    lines: [Line; 4],
    /// The sum of the main queue's lengths, over the segments that the small queue has evicted since the main
    /// queue last did.
    main_waits: usize,
}

impl Queues {
    pub(super) const fn new() -> Self {
        Self {
            lines: [Line::new(); 4],
            main_waits: 0,
        }
    }

    pub(super) const fn line(&self, queue: Queue) -> &Line {
        &self.lines[queue as usize]
    }

    pub(super) const fn line_mut(&mut self, queue: Queue) -> &mut Line {
        &mut self.lines[queue as usize]
    }

    /// The queue whose oldest segment is evicted next, if any can be: Small or Main.
    pub(super) fn turn(&self) -> Option<Queue> {
        let (small, main) = (self.line(Queue::Small), self.line(Queue::Main));
        if small.segments.len() == 0 || main.segments.len() == 0 {
            return [Queue::Small, Queue::Main]
                .into_iter()
                .find(|queue| self.line(*queue).segments.len() > 0);
        }
        let is_small = small.weight > (small.weight + main.weight) / SMALL_SHARE;
        let segments = small.segments.len() + main.segments.len();
        let is_idle = self.main_waits >= segments * FILLS_A_TURN;
        Some(if is_small && !is_idle {
            Queue::Small
        } else {
            Queue::Main
        })
    }

    /// Records that `queue` has evicted a segment.
    pub(super) const fn took_turn(&mut self, queue: Queue) {
        match queue {
            Queue::Small => self.main_waits += self.line(Queue::Main).segments.len(),
            Queue::Main => self.main_waits = 0,
            Queue::Pinned | Queue::Flushed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::chunks::Chunks;
    use super::super::segment::Segment;
    use super::*;

    /// Queues with these numbers of segments and live bytes.
    fn queues(small: (u32, usize), main: (u32, usize)) -> Queues {
        let mut segments = Chunks::new(4);
        let mut queues = Queues::new();
        let mut number = 0;
        for (queue, (count, weight)) in [(Queue::Small, small), (Queue::Main, main)] {
            for _ in 0..count {
                segments.push(Segment::<Vec<u8>>::default()).unwrap();
                let line = queues.line_mut(queue);
                line.segments.push(&mut segments, number);
                number += 1;
            }
            queues.line_mut(queue).weight = weight;
        }
        queues
    }

    #[test]
    fn it_is_the_turn_of_the_small_queue_if_it_has_more_than_a_fifth() {
        for (small, main, turn) in [
            ((0, 0), (0, 0), None),
            ((3, 201), (5, 799), Some(Queue::Small)),
            ((3, 200), (5, 800), Some(Queue::Main)),
            // A segment can have no live record.
            ((1, 0), (0, 0), Some(Queue::Small)),
            ((0, 0), (1, 0), Some(Queue::Main)),
            ((1, 0), (1, 0), Some(Queue::Main)),
        ] {
            assert_eq!(queues(small, main).turn(), turn, "{small:?} {main:?}");
        }
    }

    #[test]
    fn the_main_queue_is_asked_though_it_is_small_when_it_has_waited_for_eight_fills() {
        let mut queues = queues((6, 900), (2, 100));
        for turn in 0..32 {
            assert_eq!(queues.turn(), Some(Queue::Small), "{turn}");
            queues.took_turn(Queue::Small);
        }
        assert_eq!(queues.turn(), Some(Queue::Main));
        queues.took_turn(Queue::Main);
        assert_eq!(queues.turn(), Some(Queue::Small));
    }

    /// For any waiting time: it has nothing to evict.
    #[test]
    fn a_main_queue_of_no_segments_is_not_asked() {
        let mut queues = queues((6, 900), (2, 100));
        for _ in 0..40 {
            queues.took_turn(Queue::Small);
        }
        queues.line_mut(Queue::Main).segments = List::new(Row::Queue);
        assert_eq!(queues.turn(), Some(Queue::Small));
    }
}
