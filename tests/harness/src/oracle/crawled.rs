//! The counters of the crawl.
//!
//! Only a tick crawls. It looks at each item that it takes out, and at no more items than its bound
//! says. It takes out expired items, which are reclaimed with that; all other items that a tick
//! reclaims were in the way of a request.

use latchd_protocol::stats::Counters;

/// The counters of the crawl.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs)] // As `Counters` has them.
pub struct Crawled {
    pub crawler_items_checked: u64,
    pub crawler_reclaimed: u64,
}

/// The event between two readings of the counters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Between {
    /// A tick, and the items reclaimed with it.
    Tick {
        /// However they were.
        reclaimed: u64,
        /// How many items it may look at.
        items_max: u64,
    },
    /// The counters began again.
    Reset,
    /// Anything else.
    Nothing,
}

impl Crawled {
    /// The counters of a core.
    #[must_use]
    pub const fn of(counters: &Counters) -> Self {
        Self {
            crawler_items_checked: counters.crawler_items_checked,
            crawler_reclaimed: counters.crawler_reclaimed,
        }
    }

    /// The increase since `before`, if it is possible.
    #[must_use]
    pub fn since(self, before: Self, between: Between) -> Option<Self> {
        if between == Between::Reset {
            return (self == Self::default()).then_some(self);
        }
        let checked = self.crawler_items_checked;
        let more = Self {
            crawler_items_checked: checked.checked_sub(before.crawler_items_checked)?,
            crawler_reclaimed: self
                .crawler_reclaimed
                .checked_sub(before.crawler_reclaimed)?,
        };
        let is_possible = match between {
            Between::Tick {
                reclaimed,
                items_max,
            } => {
                more.crawler_reclaimed <= reclaimed
                    && more.crawler_reclaimed <= more.crawler_items_checked
                    && more.crawler_items_checked <= items_max
            }
            Between::Reset | Between::Nothing => more == Self::default(),
        };
        is_possible.then_some(more)
    }
}
