//! T5: the gauges have the expected values after each step, and `stats` shows them.
//!
//! The number of items and their bytes are exact: on the reference to the byte, on a log as much as
//! it says that an item of such a key and value takes. So is the number of bound wins, except for
//! wins of items that have gone unnoticed. The last eviction is one of those of its step. The next
//! item to be evicted is one of the items in the store, on the reference one of those that are not
//! held. The bytes of an index are part of the allocated bytes.

use latchd_core::engine::{BoundWin, Core};
use latchd_core::store::{Store, Usage};
use latchd_protocol::key::Key;
use latchd_protocol::reply::Reply;
use latchd_protocol::stats::Gauges;

use super::gone::{may_keep, there};
use super::{Difference, Lockstep, Room};
use crate::alphabet::KEYS;
use crate::oracle::{Oracle, There, Winner};

/// The gauges in a reply, if it shows them.
pub(super) fn shown(reply: Option<&Reply<'_>>) -> Option<Gauges> {
    if let Some(Reply::Stats(report)) = reply {
        Some(report.stats.gauges)
    } else {
        None
    }
}

/// The number of items, expired ones included, and their bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sizes {
    items: u64,
    bytes: u64,
    /// Of items that are held, or look so.
    locked_bytes: u64,
}

impl Sizes {
    /// The figures of a store.
    #[must_use]
    pub const fn of(usage: Usage) -> Self {
        Self {
            items: usage.items as u64,
            bytes: usage.bytes as u64,
            locked_bytes: usage.locked_bytes as u64,
        }
    }

    /// The figures in a reply, if it shows all gauges.
    #[must_use]
    pub fn shown(reply: &Reply<'_>) -> Option<Self> {
        shown(Some(reply)).map(|gauges| Self {
            items: gauges.curr_items,
            bytes: gauges.bytes,
            locked_bytes: gauges.locked_bytes,
        })
    }

    /// The expected figures, from the sizes of keys and values.
    #[must_use]
    pub fn of_all<S: Store>(core: &Core<S>, oracle: &Oracle) -> Self {
        let store = core.store();
        Self::due(core, oracle, |key, bytes| store.bytes_for(key.len(), bytes))
    }

    fn due<S: Store>(
        core: &Core<S>,
        oracle: &Oracle,
        cost: impl Fn(&[u8], usize) -> usize,
    ) -> Self {
        let mut due = Self::default();
        let may_keep = may_keep(core);
        for (key, item) in oracle.all_items().chain(oracle.leaving()) {
            let bytes = cost(key, item.value.len()) as u64;
            let is_kept = may_keep && there(core, key) == There::Kept;
            let is_locked = oracle.holder(key).is_some() || is_kept;
            due.items += 1;
            due.bytes += bytes;
            due.locked_bytes += if is_locked { bytes } else { 0 };
        }
        due
    }
}

impl<S: Store> Lockstep<S> {
    /// Compares the gauges after a step. `shown` holds those of the step's reply, if it shows them.
    pub(super) fn compare_gauges(&mut self, shown: Option<Gauges>) -> Result<(), Difference> {
        self.compare_sizes()?;
        self.compare_wins()?;
        self.compare_queue()?;
        let Some(shown) = shown else {
            return Ok(());
        };
        let told = self.gauges();
        if shown != told {
            return Err(format!("gauges: expected {told:?}\n         got {shown:?}"));
        }
        let oracle = &self.oracle;
        let has_unseen = oracle
            .all_items()
            .any(|(key, _)| oracle.visible(key).is_none());
        self.gone.shown += 1;
        self.gone.shown_expired += u64::from(has_unseen);
        self.gone.shown_locked += u64::from(shown.locked_bytes > 0);
        self.gone.shown_eviction += u64::from(shown.last_eviction.is_some());
        self.gone.shown_oldest += u64::from(shown.oldest_s > 0);
        self.gone.shown_wins += u64::from(shown.wins_bound > 0);
        Ok(())
    }

    /// The gauges of the parts of the core, which are compared with the oracle after each step.
    fn gauges(&self) -> Gauges {
        let core = &self.core;
        let (usage, queue) = (core.store().usage(), core.store().queue());
        let now = core.clock().tick();
        let age_s = |at| now.seconds_since(at).into();
        Gauges {
            curr_items: usage.items as u64,
            bytes: usage.bytes as u64,
            limit_maxbytes: core.limits().memory_bytes_max as u64,
            locks_held: core.locks().len() as u64,
            lock_holders: core.locks().holders() as u64,
            lock_waiting: core.waits().len() as u64,
            wins_bound: core.bound_wins().len() as u64,
            get_waiting: core.win_waits().len() as u64,
            locked_bytes: usage.locked_bytes as u64,
            hash_bytes: queue.index_bytes as u64,
            held_bytes: usage.held_bytes as u64,
            oldest_s: queue.oldest.map_or(0, age_s),
            last_eviction: queue.last_eviction,
            counts_prefixes: false,
        }
    }

    fn compare_sizes(&self) -> Result<(), Difference> {
        let due = match self.room {
            Room::ByItem(room) => Sizes::due(&self.core, &self.oracle, |key, value_bytes| {
                room.cost(key, value_bytes)
            }),
            Room::Ample | Room::BySegment { .. } => Sizes::of_all(&self.core, &self.oracle),
        };
        let told = Sizes::of(self.core.store().usage());
        if told != due {
            return Err(format!("sizes: expected {due:?}\n         got {told:?}"));
        }
        Ok(())
    }

    fn compare_wins(&self) -> Result<(), Difference> {
        let wins = self.core.bound_wins();
        let mut bound = 0;
        for bytes in KEYS {
            let key = Key::new(bytes).expect("it is a legal key");
            let is = wins.get(key).map(winner);
            let item = self.oracle.visible(bytes);
            let should = item.and_then(|item| item.bound);
            if is != should && item.is_some() {
                return Err(format!(
                    "win of {key:?}: expected {should:?}\n         got {is:?}"
                ));
            }
            bound += usize::from(is.is_some());
        }
        if wins.len() != bound {
            let told = wins.len();
            return Err(format!("wins: expected {bound}, got {told}"));
        }
        Ok(())
    }

    fn compare_queue(&self) -> Result<(), Difference> {
        let (core, oracle) = (&self.core, &self.oracle);
        let queue = core.store().queue();
        if !oracle.may_be_last(queue.last_eviction) {
            let last = queue.last_eviction;
            return Err(format!("{last:?} is not what was evicted last"));
        }
        let is_reference = matches!(self.room, Room::ByItem(_));
        let may_keep = may_keep(core);
        let may_go = |key: &[u8]| {
            let looks_held = may_keep && there(core, key) == There::Kept;
            !is_reference || oracle.holder(key).is_none() && !looks_held
        };
        let items = oracle.all_items().chain(oracle.leaving());
        let mut ages_s = items
            .filter(|(key, _)| may_go(key))
            .map(|(_, item)| oracle.age_s(item));
        let now = core.clock().tick();
        let oldest_s = queue.oldest.map(|at| u64::from(now.seconds_since(at)));
        let is_right = match oldest_s {
            Some(oldest_s) => ages_s.any(|age_s| age_s == oldest_s),
            None => !is_reference || ages_s.next().is_none(),
        };
        if !is_right {
            return Err(format!("no item was last asked for {oldest_s:?} s ago"));
        }
        let (index, held) = (queue.index_bytes, core.store().usage().held_bytes);
        if index > held || is_reference && index > 0 {
            return Err(format!("an index of {index} bytes in {held}"));
        }
        Ok(())
    }
}

const fn winner(win: BoundWin) -> Winner {
    let BoundWin {
        winner,
        is_made,
        is_unacknowledged,
        stays,
    } = win;
    Winner {
        conn: winner,
        made: is_made,
        is_unheard: is_unacknowledged,
        stays,
    }
}
