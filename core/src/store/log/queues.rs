//! The order in which items are given up: S3-FIFO, by whole segments.
//!
//! A new item goes into a small queue. When it comes to that queue's end it is given up, unless it
//! was hit meanwhile: then it goes on into the main queue. What was given up is remembered for a
//! while, and goes straight into the main queue if it comes again. At the end of the main queue an
//! item goes round again for each hit, up to three. So what is asked for only once passes through a
//! fifth of the memory, and never crowds out what is in use. Where room is short, three quarters of a
//! segment go on at most, in either queue (E1).
//!
//! - Q1: every segment that has records is in one queue, or being drained.
//! - Q2: the weight of a queue is the sum of what its living items take.
//! - Q3: a queue has at most one open segment, and it is the newest.
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023. The small
//! queue is larger here, and one hit is enough to leave it: on the traces that we measured, that
//! was never much worse than LRU, and most often better.

use super::geometry::SegmentId;
use super::list::{List, Row};

/// Which queue a segment is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Queue {
    /// New items.
    Small,
    /// Items that were hit, or came again.
    Main,
    /// Locked items that an end of another queue has come across: they are not in the way there.
    Pinned,
    /// What a flush has left behind. No item in it is there any more, but for locked ones.
    Flushed,
}

impl Queue {
    #[cfg(any(test, feature = "verify"))]
    pub(super) const ALL: [Self; 4] = [Self::Small, Self::Main, Self::Pinned, Self::Flushed];
}

/// The small queue gives up first as long as it has more than one in this many bytes.
const SMALL_SHARE: usize = 5;

/// When new items have filled the memory so often, the main queue has given up each of its segments
/// once, though there was no need: if nothing is promoted, what was hot once would stay for ever.
const FILLS_A_TURN: usize = 8;

/// The segments of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) segments: List,
    pub(super) open: Option<SegmentId>,
    /// What the living items in it take, in bytes, huge values included.
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

/// All queues, and whose turn it is.
#[derive(Debug)]
pub(super) struct Queues {
    lines: [Line; 4],
    /// The sum of the lengths of the main queue, over the segments that the small queue has given up
    /// since the main queue did.
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

    /// Which queue is to give up its oldest segment, if any can: Small or Main.
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

    /// `queue` has given up a segment.
    pub(super) const fn took_turn(&mut self, queue: Queue) {
        match queue {
            Queue::Small => self.main_waits += self.line(Queue::Main).segments.len(),
            Queue::Main => self.main_waits = 0,
            Queue::Pinned | Queue::Flushed => {}
        }
    }
}
