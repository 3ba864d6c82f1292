//! The counters of requests: how many there were of each kind, and how many found an item.

use latchd_protocol::command::{Direction, TtlStep, TtlSteps};
use latchd_protocol::stats::Counters;

use super::Oracle;

/// Declares the counters once, so that the compared counters and the core's cannot disagree.
macro_rules! asked {
    ($($name:ident,)*) => {
        /// The counters that follow from the requests and the items alone. The moment at which an
        /// expired item is taken out depends on the store, and so do evictions: they are not
        /// counted here.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        #[allow(missing_docs)] // As `Counters` has them.
        pub struct Asked {
            $(pub $name: u64,)*
        }

        impl Asked {
            /// The counters of a core.
            #[must_use]
            pub const fn of(counters: &Counters) -> Self {
                Self { $($name: counters.$name,)* }
            }
        }
    };
}

asked! {
    cmd_get,
    cmd_set,
    cmd_flush,
    cmd_touch,
    get_hits,
    get_misses,
    delete_hits,
    delete_misses,
    incr_hits,
    incr_misses,
    decr_hits,
    decr_misses,
    cas_hits,
    cas_misses,
    cas_badval,
    touch_hits,
    touch_misses,
    store_too_large,
    store_no_memory,
    total_items,
    cmd_lock,
    lock_misses,
    fence_refusals,
}

impl Oracle {
    /// A get has found or made an item, or there is none. A meta get touches only an existing item.
    pub(super) fn count_get(&mut self, steps: &TtlSteps, is_meta: bool, found: bool) {
        let touches = (found || !is_meta) && steps.iter().any(|it| matches!(it, TtlStep::Touch(_)));
        let asked = &mut self.asked;
        let (all, hits, misses) = if touches {
            (
                &mut asked.cmd_touch,
                &mut asked.touch_hits,
                &mut asked.touch_misses,
            )
        } else {
            (
                &mut asked.cmd_get,
                &mut asked.get_hits,
                &mut asked.get_misses,
            )
        };
        *all += 1;
        *(if found { hits } else { misses }) += 1;
    }

    /// A number was counted up or down, or there was none.
    pub(super) const fn count_arithmetic(&mut self, direction: Direction, found: bool) {
        let asked = &mut self.asked;
        let counter = match (direction, found) {
            (Direction::Increment, true) => &mut asked.incr_hits,
            (Direction::Increment, false) => &mut asked.incr_misses,
            (Direction::Decrement, true) => &mut asked.decr_hits,
            (Direction::Decrement, false) => &mut asked.decr_misses,
        };
        *counter += 1;
    }
}
