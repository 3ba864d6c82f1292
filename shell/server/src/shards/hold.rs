//! A shard that is held by a thread, for as long as it works with it.
//!
//! What becomes of locks is logged here while the shard is held, so that the log has it in its order.
//!
//! - D8: who lets go of a shard tells at most [`TOLD_MAX`] clients that their waits have ended. If there are more, the clock
//!   comes at once for the rest, and so does anybody else who wants the shard.

use std::ops::{Deref, DerefMut};

use latchd_core::engine::Notification;

use super::ShardCore;
use crate::clients::lock_log;
use crate::clients::waiters::Waiters;
use crate::sync::MutexGuard;

/// How many clients are told when a shard is let go of, at a microsecond or two each.
const TOLD_MAX: usize = 64;

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
                    // They are taken where they are asked for.
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
