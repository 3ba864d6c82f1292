//! A restart: items that survive it, numbers that go on above the old ones, and locks that are not granted yet.

use std::io;

use latchd_core::Instant;
use latchd_core::engine::{Event, Numbers, Restored, SavedItem};
use latchd_protocol::command::ScanCursor;

use super::Shards;
use super::hold::Hold;

/// The most items read while a shard is locked.
const ITEMS_PER_LOOK: usize = 100;

impl Shards {
    /// Whether an assertion has failed in a shard: then its items are not used again. It waits for the lock of each shard.
    pub(crate) fn have_failed(&self) -> bool {
        self.cores.iter().any(|core| core.lock().is_err())
    }

    /// The numbers that the next run starts above.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = self.core(0).numbers();
        for shard in 1..self.cores.len() {
            numbers = numbers.max(self.core(shard).numbers());
        }
        numbers
    }

    /// Goes on above the numbers of an earlier run. Call it before the first client is served.
    pub(crate) fn resume(&self, numbers: Numbers) {
        for shard in 0..self.cores.len() {
            let mut core = self.core(shard);
            core.handle(Instant::default(), Event::Resumed(numbers));
        }
    }

    /// Grants no lock until this moment, with `None` for ever.
    pub(crate) fn withhold_grants(&self, now: Instant, until: Option<Instant>) {
        for core in &self.cores {
            // A core that failed an assertion grants nothing any more.
            if let Ok(core) = core.lock() {
                let mut core = Hold::new(core, &self.waiters);
                core.handle(now, Event::WithholdGrants(until));
            }
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
        for shard in 0..self.cores.len() {
            let mut cursor = Some(ScanCursor::default());
            while let Some(at) = cursor {
                let mut core = self.core_at(now, shard);
                core.handle(now, Event::Due);
                let mut result = Ok(());
                cursor = core.save(at, ITEMS_PER_LOOK, &mut |item| {
                    if result.is_ok() {
                        result = visit(item);
                    }
                });
                result?;
            }
        }
        Ok(())
    }

    /// Stores an item of an earlier run.
    pub(crate) fn restore(&self, now: Instant, item: &SavedItem<'_>) -> Restored {
        let shard = self.shard_of(item.key);
        self.core_at(now, shard).restore(now, item)
    }
}
