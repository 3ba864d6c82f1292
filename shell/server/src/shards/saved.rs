//! Items that outlive a server: handed out at its end, and taken in at the next start.

use std::io;

use latchd_core::Instant;
use latchd_core::command::ScanCursor;
use latchd_core::engine::{Event, Numbers, Restored, SavedItem};

use super::Shards;

/// How many items are looked at while a shard is held.
const ITEMS_PER_LOOK: usize = 100;

impl Shards {
    /// Whether an assertion has failed in one of them: its items are not touched again. For when nobody else
    /// holds one for long.
    pub(crate) fn have_failed(&self) -> bool {
        self.cores.iter().any(|core| core.lock().is_err())
    }

    /// What the next run must begin above.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut numbers = self.core(0).numbers();
        for shard in 1..self.cores.len() {
            numbers = numbers.max(self.core(shard).numbers());
        }
        numbers
    }

    /// Shows every item that a client would find at `now`, one shard after the other.
    ///
    /// # Errors
    /// The first that `visit` has; nothing more is shown then, but what was being looked at.
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

    /// Takes an item of an earlier run in.
    pub(crate) fn restore(&self, now: Instant, item: &SavedItem<'_>) -> Restored {
        let shard = self.shard_of(item.key);
        self.core_at(now, shard).restore(now, item)
    }
}
