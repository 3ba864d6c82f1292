//! The counters of requests: how many there were of each kind, and how many found an item.

use latchd_protocol::command::{Direction, TtlStep, TtlSteps};
use latchd_protocol::stats::{Counters, Gauges, Stats};

use super::Oracle;

/// The statistics that follow from the requests and the items alone. When an expired or a flushed item is taken out, and which
/// item is evicted, depends on the store; so do the gauges of items, which `lockstep` compares.
pub(super) fn comparable(stats: &Stats) -> Stats {
    let Gauges {
        locks_held,
        lock_holders,
        lock_waiting,
        get_waiting,
        ..
    } = stats.gauges;
    Stats {
        counters: Counters {
            get_expired: 0,
            get_flushed: 0,
            evictions: 0,
            reclaimed: 0,
            evicted_unfetched: 0,
            evicted_active: 0,
            evicted_nonzero: 0,
            expired_unfetched: 0,
            crawler_items_checked: 0,
            crawler_reclaimed: 0,
            ..stats.counters
        },
        gauges: Gauges {
            locks_held,
            lock_holders,
            lock_waiting,
            get_waiting,
            ..Gauges::default()
        },
    }
}

impl Oracle {
    /// A get has found or made an item, or there is none. A meta get touches only an existing item.
    pub(super) fn count_get(&mut self, steps: &TtlSteps, is_meta: bool, found: bool) {
        let touches = (found || !is_meta) && steps.iter().any(|it| matches!(it, TtlStep::Touch(_)));
        let counters = &mut self.counters;
        let (all, hits, misses) = if touches {
            (
                &mut counters.cmd_touch,
                &mut counters.touch_hits,
                &mut counters.touch_misses,
            )
        } else {
            (
                &mut counters.cmd_get,
                &mut counters.get_hits,
                &mut counters.get_misses,
            )
        };
        *all += 1;
        *(if found { hits } else { misses }) += 1;
    }

    /// A number was counted up or down, or there was none.
    pub(super) const fn count_arithmetic(&mut self, direction: Direction, found: bool) {
        let counters = &mut self.counters;
        let counter = match (direction, found) {
            (Direction::Increment, true) => &mut counters.incr_hits,
            (Direction::Increment, false) => &mut counters.incr_misses,
            (Direction::Decrement, true) => &mut counters.decr_hits,
            (Direction::Decrement, false) => &mut counters.decr_misses,
        };
        *counter += 1;
    }
}
