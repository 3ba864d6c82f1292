//! T5: the places of items and the counters of removed items, after each step.
//!
//! The store has an item of a key if and only if the oracle has one, expired items included. An
//! item that no command removed was evicted or reclaimed, and is counted as that: exactly, except
//! for how many of the evicted were used. The crawl's counters are exact where nothing else can
//! have taken out expired items: neither the end of a lock, nor the upkeep of wins, nor a log that
//! wants room; and in all cases within the bounds of [`Crawled`].

use latchd_core::engine::{Core, Event};
use latchd_core::store::Store;
use latchd_protocol::command::{Command, GlobalCommand};
use latchd_protocol::key::Key;

use super::{Difference, Lockstep, Room};
use crate::alphabet::{Input, KEYS, Op, PRESSURE_KEYS, pressure_keys};
use crate::oracle::{Between, Crawled, Evicted, Expired, There};

/// The counters up to the last step, and the replies that were under way then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    crawled: Crawled,
    reclaimed: u64,
    with_lock: u64,
    /// A tick may find more than the crawl does.
    has_more_to_tend: bool,
}

/// Where a core has the item of a key.
#[must_use]
pub fn there<S: Store>(core: &Core<S>, key: &[u8]) -> There {
    look(core, key).0
}

/// Whether a core knows of a flushed item of a key; `None` if there is another one now, which is all that it tells.
#[must_use]
pub fn knows_flushed<S: Store>(core: &Core<S>, key: &[u8]) -> Option<bool> {
    look(core, key).1
}

/// Both, with one look-up.
fn look<S: Store>(core: &Core<S>, key: &[u8]) -> (There, Option<bool>) {
    let key = Key::new(key).expect("it was made from a key");
    match core.store().find_item(key) {
        Ok((_, header)) if header.locked && core.locks().owner(key).is_none() => {
            (There::Kept, None)
        }
        Ok(_) => (There::Here, None),
        Err(vacancy) => {
            let knows = core.store().was_flushed(key, vacancy);
            (There::Nowhere, Some(knows))
        }
    }
}

/// Whether an item may look held although its lock is over.
pub(super) fn may_keep<S: Store>(core: &Core<S>) -> bool {
    !core.locks().is_settled()
}

/// Whether the counters begin again.
#[must_use]
pub const fn is_reset(input: &Input<'_>) -> bool {
    matches!(
        input.command(),
        Some(Command::Global(GlobalCommand::StatsReset))
    )
}

/// The keys of [`Op::Pressure`] that were ever asked for, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pressed([bool; PRESSURE_KEYS]);

impl Pressed {
    /// Of an operation that is being played.
    pub(super) fn note(&mut self, op: &Op) {
        if let Op::Pressure { key } = op
            && let Some(is_pressed) = self.0.get_mut(usize::from(*key) % PRESSURE_KEYS)
        {
            *is_pressed = true;
        }
    }

    /// Every key that was ever asked for, and a few more: an item of any other would be one too many of all that there are, which
    /// is judged by their sizes.
    pub(super) fn all_keys(self) -> impl Iterator<Item = Key<'static>> {
        let keys = KEYS
            .iter()
            .map(|key| Key::new(key).expect("it is a legal key"));
        let pressed = pressure_keys().zip(self.0);
        keys.chain(pressed.filter_map(|(key, is_pressed)| is_pressed.then_some(key)))
    }
}

impl<S: Store> Lockstep<S> {
    /// After `input`, with which these items were evicted.
    pub(super) fn compare_gone(
        &mut self,
        input: &Input<'_>,
        evicted: &[Vec<u8>],
    ) -> Result<(), Difference> {
        let Self { core, oracle, .. } = self;
        oracle.evict(evicted);
        oracle.follow_expired(|key| there(core, key));
        oracle.follow_misses(|key| knows_flushed(core, key));
        if is_reset(input) {
            oracle.forget_followed();
        }
        let told = Evicted::of(&core.counters());
        let due = oracle.evicted(&told);
        if told != due {
            return Err(format!("evicted: expected {due:?}\n         got {told:?}"));
        }
        if matches!(self.room, Room::ByItem(_)) && told.evicted_active != 0 {
            return Err("the reference evicts what was used last of all".into());
        }
        let told = Expired::of(&core.counters());
        let due = oracle.expired(&told);
        if told != due {
            return Err(format!("expired: expected {due:?}\n         got {told:?}"));
        }
        self.compare_places()?;
        self.compare_crawl(input, due.reclaimed)
    }

    /// Compares the place of each item, and the store's knowledge of flushed items.
    /// [`compare_items`](Self::compare_items) has already compared the visible items and their
    /// holders.
    fn compare_places(&mut self) -> Result<(), Difference> {
        let Self {
            core,
            oracle,
            pressed,
            ..
        } = self;
        for key in pressed.all_keys() {
            let bytes = key.as_bytes();
            if oracle.visible(bytes).is_some() {
                continue;
            }
            let ((is, knows), should) = (look(core, bytes), oracle.place(bytes));
            let is_right = match is {
                There::Here | There::Nowhere => is == should,
                There::Kept => should != There::Nowhere && oracle.holder(bytes).is_none(),
            };
            if !is_right {
                return Err(format!("item {key:?}: expected {should:?}, got {is:?}"));
            }
            if is == There::Kept && !may_keep(core) {
                return Err(format!(
                    "item {key:?} looks held, and all that is over was let go of"
                ));
            }
            if knows == Some(true) && !oracle.was_flushed(bytes) {
                return Err(format!("item {key:?} is known as flushed, and was not"));
            }
        }
        oracle.follow_flushed(|key| knows_flushed(core, key));
        Ok(())
    }

    fn compare_crawl(&mut self, input: &Input<'_>, reclaimed: u64) -> Result<(), Difference> {
        let with_lock = self.oracle.judged().gone.with_lock;
        let has_more_to_tend = !self.core.bound_wins().is_empty()
            || !self.core.win_waits().is_empty()
            || may_keep(&self.core)
                && self
                    .pressed
                    .all_keys()
                    .any(|key| there(&self.core, key.as_bytes()) == There::Kept);
        let now = Before {
            crawled: Crawled::of(&self.core.counters()),
            reclaimed,
            with_lock,
            has_more_to_tend,
        };
        let before = std::mem::replace(&mut self.before, now);
        let items_max = self.core.limits().crawl_items_max as u64;
        let between = if is_reset(input) {
            Between::Reset
        } else if matches!(input, Input::Event(Event::Tick)) {
            Between::Tick {
                reclaimed: reclaimed - before.reclaimed,
                items_max,
            }
        } else {
            Between::Nothing
        };
        let Some(more) = now.crawled.since(before.crawled, between) else {
            return Err(format!(
                "crawled: {:?} before {between:?}, then {:?}",
                before.crawled, now.crawled
            ));
        };
        let Between::Tick { reclaimed, .. } = between else {
            return Ok(());
        };
        let of_crawl = reclaimed - (with_lock - before.with_lock);
        let is_exact = !before.has_more_to_tend && !matches!(self.room, Room::BySegment { .. });
        if is_exact && more.crawler_reclaimed != of_crawl {
            return Err(format!("{of_crawl} were reclaimed by a crawl: {more:?}"));
        }
        self.gone.crawled += more.crawler_reclaimed;
        self.compare_whole_crawl(more, items_max)
    }

    /// A crawl that has come to everything has left nothing that has expired, unless a lock has kept it.
    fn compare_whole_crawl(&mut self, more: Crawled, items_max: u64) -> Result<(), Difference> {
        let (core, oracle) = (&self.core, &self.oracle);
        let is_whole = match self.room {
            Room::ByItem(_) => items_max >= (KEYS.len() + PRESSURE_KEYS) as u64,
            Room::BySegment { .. } => !core.store().wants_crawl(core.clock().tick()),
            Room::Ample => false,
        };
        if !is_whole {
            return Ok(());
        }
        let looked_at = core.store().usage().items as u64 + more.crawler_reclaimed;
        if matches!(self.room, Room::ByItem(_)) && more.crawler_items_checked != looked_at {
            return Err(format!("{looked_at} items were there to look at: {more:?}"));
        }
        let mut left = oracle.all_items().map(|(key, _)| key);
        let left =
            left.find(|key| oracle.visible(key).is_none() && there(core, key) == There::Here);
        if let Some(key) = left {
            let key = String::from_utf8_lossy(key);
            return Err(format!("a crawl has left item {key}, which has expired"));
        }
        self.gone.crawled_all += 1;
        Ok(())
    }
}
