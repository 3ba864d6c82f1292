//! A shard that a thread has locked.
//!
//! Ends of locks are logged here while the shard is locked, so the log has them in their order.
//!
//! - D8: A thread that unlocks a shard notifies at most [`TOLD_MAX`] clients of ended waits. If there are more, the clock
//!   notifies the rest at once, and so does each other thread that locks the shard.

use std::ops::{Deref, DerefMut};

use latchd_core::engine::Notification;

use super::ShardCore;
use crate::clients::lock_log;
use crate::clients::waiters::Waiters;
use crate::sync::MutexGuard;

/// The most clients notified when a shard is unlocked; each takes a microsecond or two.
const TOLD_MAX: usize = 64;

/// A locked shard's core. When it is unlocked, the clients of ended waits are notified, and the clock gets the next
/// deadline.
pub(super) struct Hold<'a> {
    core: MutexGuard<'a, ShardCore>,
    waiters: &'a Waiters,
}

impl<'a> Hold<'a> {
    #[inline]
    pub(super) fn new(core: MutexGuard<'a, ShardCore>, waiters: &'a Waiters) -> Self {
        Self { core, waiters }
    }

    #[cold]
    fn tell(&mut self) {
        let now = self.core.clock().now;
        let core = &mut self.core;
        let mut told = 0..TOLD_MAX;
        let next_notice = || {
            told.next()?;
            loop {
                match core.poll()? {
                    Notification::WaitOver(notice) => return Some(notice),
                    Notification::LocksEnded { ends, missed } => {
                        ends.iter().for_each(lock_log::ended);
                        lock_log::missed(missed);
                    }
                    // `Shards::evicted` takes them.
                    Notification::Evicted { .. } => {}
                }
            }
        };
        self.waiters.tell(now, next_notice);
        let rest = core.has_notices().then_some(now);
        if let Some(at) = rest.or_else(|| core.next_deadline()) {
            self.waiters.note_deadline(at);
        }
    }
}

impl Deref for Hold<'_> {
    type Target = ShardCore;

    #[inline]
    fn deref(&self) -> &ShardCore {
        &self.core
    }
}

impl DerefMut for Hold<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ShardCore {
        &mut self.core
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.core.has_news() {
            self.tell();
        }
    }
}
