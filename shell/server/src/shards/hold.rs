//! A shard that is held by a thread, for as long as it works with it.
//!
//! What becomes of locks is logged here while the shard is held, so that the log has it in its order.

use std::ops::{Deref, DerefMut};

use super::ShardCore;
use crate::clients::lock_log;
use crate::clients::waiters::Waiters;
use crate::sync::MutexGuard;

/// A shard's core. When it is let go of, those are told whose waits have ended meanwhile, whatever has ended them,
/// and the clock is told when the next one will.
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
        if self.core.locks().has_ends() {
            let (ends, missed) = self.core.take_lock_ends();
            ends.iter().for_each(lock_log::ended);
            lock_log::missed(missed);
        }
        let now = self.core.clock().now;
        self.waiters.tell(now, || self.core.next_notice());
        if let Some(at) = self.core.next_deadline() {
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
        if self.core.has_waits() || self.core.locks().has_ends() {
            self.tell();
        }
    }
}
