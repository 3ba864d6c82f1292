//! The lock manager, locked when a step reaches it, and what is left to do when the step has let it go.
//!
//! - D4: A thread locks a shard before the manager, several shards in the order of their numbers, and no shard while it has
//!   locked the manager. A debug build asserts that.
//! - D5: A thread that unlocks the manager notifies at most [`NOTIFIED_MAX`] clients of ended waits. If there are more, the
//!   clock notifies the rest at once, and so does each other thread that locks it.

use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};

use latchd_core::Instant;
use latchd_core::engine::{Access, LockManager, Notification};
use latchd_core::sessions::EndedSession;
use latchd_protocol::wait::Notice;

use super::Shards;
use crate::clients::lock_log;
use crate::clients::waiters::Waiters;
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;

/// The most clients notified when the manager is unlocked; each takes a microsecond or two.
const NOTIFIED_MAX: usize = 64;

/// The rest of the clock between two turns in which it updates keys, in milliseconds.
const REST_MS: u64 = 1;

/// The manager, which is locked at its first use.
#[derive(Debug)]
pub(super) struct Lazy<'a> {
    shards: &'a Shards,
    now: Instant,
    guard: OnceCell<MutexGuard<'a, LockManager>>,
}

impl<'a> Lazy<'a> {
    #[inline]
    pub(super) const fn new(shards: &'a Shards, now: Instant) -> Self {
        Self {
            shards,
            now,
            guard: OnceCell::new(),
        }
    }

    /// The way of one step to the manager.
    #[inline]
    pub(super) const fn reach(&mut self) -> Reach<'_, 'a> {
        Reach(self)
    }

    fn lock(&self) -> &MutexGuard<'a, LockManager> {
        self.guard.get_or_init(|| {
            order::enter_manager();
            #[cfg(test)]
            self.shards.manager_locks.fetch_add(1, Ordering::Relaxed);
            let mut manager = self
                .shards
                .manager
                .lock()
                .expect("a manager that failed an assertion is not used again");
            manager.advance(self.now);
            manager
        })
    }

    fn lock_mut(&mut self) -> &mut LockManager {
        self.lock();
        self.guard.get_mut().expect("it was locked just now")
    }

    /// Unlocks the manager, if it is locked. Returns what is left to do.
    #[inline]
    pub(super) fn unlock(&mut self) -> Option<News> {
        let manager = self.guard.take()?;
        let due = manager.next_due();
        let due_ms = due.map_or(u64::MAX, Instant::as_millis);
        self.shards.due_ms.store(due_ms, Ordering::Relaxed);
        let mut news = News::take(manager, self.now);
        if due_ms <= self.now.as_millis() {
            // The clock updates the keys that no client waits for, in turns with a rest between them.
            let soon = Instant::from_millis(self.now.as_millis().saturating_add(REST_MS));
            news.deadline = Some(news.deadline.map_or(soon, |at| at.min(soon)));
        }
        order::leave_manager();
        Some(news)
    }
}

impl Drop for Lazy<'_> {
    fn drop(&mut self) {
        // A thread that panics leaves the manager as it is.
        if self.guard.take().is_some() {
            order::leave_manager();
        }
    }
}

/// The way of one step to a [`Lazy`] manager.
#[derive(Debug)]
pub(super) struct Reach<'b, 'a>(&'b mut Lazy<'a>);

impl Deref for Reach<'_, '_> {
    type Target = LockManager;

    #[inline]
    fn deref(&self) -> &LockManager {
        self.0.lock()
    }
}

impl DerefMut for Reach<'_, '_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut LockManager {
        self.0.lock_mut()
    }
}

impl Access for Reach<'_, '_> {
    #[inline]
    fn is_reached(&self) -> bool {
        self.0.guard.get().is_some()
    }
}

/// What a step has left to do, besides its reply.
#[derive(Debug)]
#[must_use]
pub(super) struct News {
    now: Instant,
    /// Notices of waits that are over.
    notices: Vec<Notice>,
    /// Sessions that are over.
    expired: Vec<EndedSession>,
    deadline: Option<Instant>,
    /// Keys with waiters are due.
    pub(super) is_due: bool,
    /// The units of work of the manager in this step.
    pub(super) work: u64,
    /// The items of all shards are to leave memory free for the tables.
    pub(super) wants_spread: bool,
}

impl News {
    fn take(mut manager: MutexGuard<'_, LockManager>, now: Instant) -> Self {
        let mut news = Self {
            now,
            notices: Vec::new(),
            expired: Vec::new(),
            deadline: None,
            is_due: false,
            work: manager.take_work(),
            wants_spread: manager.wants_spread(),
        };
        if manager.has_news() {
            news.take_all(&mut manager);
        }
        news
    }

    #[cold]
    fn take_all(&mut self, manager: &mut LockManager) {
        while self.notices.len() < NOTIFIED_MAX {
            match manager.poll() {
                Some(Notification::WaitOver(notice)) => self.notices.push(notice),
                Some(Notification::SessionExpired(over)) => self.expired.push(over),
                // While the manager is locked, so the log has them in their order.
                Some(Notification::LocksEnded { ends, missed }) => {
                    ends.iter().for_each(lock_log::ended);
                    lock_log::missed(missed);
                }
                // `Shards::evicted` takes them.
                Some(Notification::Evicted { .. }) => {}
                None => break,
            }
        }
        let next = manager.next_deadline();
        self.is_due = next.is_some_and(|at| at <= self.now);
        self.deadline = manager.has_notices().then_some(self.now).or(next);
    }

    /// Notifies the clients of ended waits, and tells the clock the next deadline.
    pub(super) fn deliver(&mut self, waiters: &Waiters) {
        if !self.notices.is_empty() {
            let mut notices = self.notices.drain(..);
            waiters.tell(self.now, || notices.next());
        }
        for over in self.expired.drain(..) {
            waiters.note_expired(over);
        }
        if let Some(at) = self.deadline {
            waiters.note_deadline(at);
        }
    }
}

/// D4, as each thread keeps to it.
#[cfg(all(debug_assertions, not(feature = "scheduled")))]
pub(super) mod order {
    use std::cell::Cell;

    thread_local! {
        /// The shards that the thread has locked, one bit each.
        static SHARDS: Cell<u64> = const { Cell::new(0) };
        static HAS_MANAGER: Cell<bool> = const { Cell::new(false) };
    }

    pub(in crate::shards) fn enter_shard(shard: usize) {
        assert!(!HAS_MANAGER.get(), "D4: a shard after the manager");
        let locked = SHARDS.get();
        assert!(locked >> shard == 0, "D4: shard {shard} after a later one");
        SHARDS.set(locked | 1 << shard);
    }

    pub(in crate::shards) fn leave_shard(shard: usize) {
        SHARDS.set(SHARDS.get() & !(1 << shard));
    }

    pub(super) fn enter_manager() {
        assert!(!HAS_MANAGER.replace(true), "D4: the manager twice");
    }

    pub(super) fn leave_manager() {
        HAS_MANAGER.set(false);
    }
}

/// D4 is not asserted in a release, nor where a scheduler runs several threads as one.
#[cfg(not(all(debug_assertions, not(feature = "scheduled"))))]
pub(super) mod order {
    #[inline]
    pub(in crate::shards) const fn enter_shard(_: usize) {}

    #[inline]
    pub(in crate::shards) const fn leave_shard(_: usize) {}

    #[inline]
    pub(super) const fn enter_manager() {}

    #[inline]
    pub(super) const fn leave_manager() {}
}
