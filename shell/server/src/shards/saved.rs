//! A restart: items that survive it, numbers that go on above the old ones, and locks that are not granted yet.

use std::io;

use latchd_core::Instant;
use latchd_core::engine::shards::{self, Shards as _};
use latchd_core::engine::{Numbers, Restored, SavedItem};
use latchd_protocol::command::ScanCursor;

use super::Shards;

/// The most items read while a shard is locked.
const ITEMS_PER_LOOK: usize = 100;

impl Shards {
    /// Whether an assertion has failed in a shard or in the manager: then its items are not used again. It waits for the lock
    /// of each.
    pub(crate) fn have_failed(&self) -> bool {
        self.items.iter().any(|items| items.lock().is_err()) || self.manager.lock().is_err()
    }

    /// The numbers that the next run starts above.
    pub(crate) fn numbers(&self, now: Instant) -> Numbers {
        shards::numbers(&mut self.at(now))
    }

    /// Goes on above the numbers of an earlier run. Call it before the first client is served.
    pub(crate) fn resume(&self, numbers: Numbers) {
        shards::resume(&mut self.at(Instant::default()), numbers);
    }

    /// Grants no lock until this moment, with `None` for ever.
    pub(crate) fn withhold_grants(&self, now: Instant, until: Option<Instant>) {
        // A manager that failed an assertion grants nothing any more.
        if self.manager.lock().is_ok() {
            self.at(now)
                .manage(|manager| manager.withhold_grants(until));
        }
    }

    /// Calls `visit` for every item that is visible to clients at `now`, one shard after the other.
    ///
    /// # Errors
    /// The first error of `visit`, which is not called again then.
    pub(crate) fn save(
        &self,
        now: Instant,
        visit: &mut dyn FnMut(&SavedItem<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        for shard in 0..self.items.len() {
            let mut cursor = Some(ScanCursor::default());
            while let Some(at) = cursor {
                let items = self.shard_at(now, shard);
                let mut lazy = self.lazy(now);
                let mut result = Ok(());
                cursor = items.save(&lazy.reach(), at, ITEMS_PER_LOOK, &mut |item| {
                    if result.is_ok() {
                        result = visit(item);
                    }
                });
                let news = lazy.unlock();
                drop(items);
                self.at(now).end(news);
                result?;
            }
        }
        Ok(())
    }

    /// Stores an item of an earlier run.
    pub(crate) fn restore(&self, now: Instant, item: &SavedItem<'_>) -> Restored {
        let shard = self.shard_of(item.key);
        self.shard_at(now, shard).restore(item)
    }
}
