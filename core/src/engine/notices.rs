//! The notices of waits that are over, for locks and for gets, in their order.
//!
//! One step may wake thousands of waiters. They stay in their own queue until each has its notice, and here is one
//! entry for all of them. So the work of a step depends on the locks and values that it changes, not on the number of
//! waiters.
//!
//! - Q5: A wait that is over has one notice, of a lock or of a value, which is delivered once.

use alloc::collections::VecDeque;

use latchd_protocol::Owner;
use latchd_protocol::wait::{Notice, Outcome};

/// The notices that no transport has taken yet, the oldest first (Q5).
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    due: VecDeque<Due>,
    /// The notices among them that stand by themselves.
    singles: usize,
}

/// A notice, or a batch of them.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    One(Notice),
    /// The next batch of waiters that the queues of locks have woken together.
    OfLocks,
    /// The next batch of gets that the queues of wins have woken together.
    OfGets,
}

impl Notices {
    /// Adds the notice of `owner`, which has left its queue.
    pub(super) fn push(&mut self, owner: Owner, outcome: Outcome) {
        self.due.push_back(Due::One(Notice { owner, outcome }));
        self.singles += 1;
    }

    /// Adds the batch of lock waiters that were woken last.
    pub(super) fn push_locks(&mut self) {
        self.due.push_back(Due::OfLocks);
    }

    /// Adds the batch of gets that were woken last.
    pub(super) fn push_gets(&mut self) {
        self.due.push_back(Due::OfGets);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// The notices that stand by themselves. The others are counted where their waiters stand.
    pub(super) const fn singles(&self) -> usize {
        self.singles
    }

    /// Removes the notices of `owner` that stand by themselves. Returns the number of entries that were read.
    pub(super) fn forget(&mut self, owner: Owner) -> usize {
        if self.singles == 0 {
            return 0;
        }
        let read = self.due.len();
        let singles = &mut self.singles;
        self.due.retain(|due| match due {
            Due::One(notice) if notice.owner == owner => {
                *singles -= 1;
                false
            }
            Due::One(_) | Due::OfLocks | Due::OfGets => true,
        });
        read
    }

    /// The oldest entry. A batch stays the oldest until [`Self::pop`].
    pub(super) fn first(&self) -> Option<Due> {
        self.due.front().copied()
    }

    /// Removes the oldest entry.
    pub(super) fn pop(&mut self) {
        if let Some(Due::One(_)) = self.due.pop_front() {
            self.singles -= 1;
        }
        if self.due.is_empty() {
            // It may have held thousands of notices: their memory is returned.
            self.due = VecDeque::new();
        }
    }

    #[cfg(feature = "verify")]
    pub(super) fn iter(&self) -> impl Iterator<Item = Due> {
        self.due.iter().copied()
    }
}
