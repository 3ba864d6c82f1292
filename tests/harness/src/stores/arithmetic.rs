//! The memory rules of a store, from figures alone: when it may refuse, and when it may evict.
//!
//! - N7: nothing is evicted while the live items and the new one fit together. A store by the item
//!   evicts no more than it takes to fit.
//! - N8: a call is refused if the kept items and the new one do not fit together; by the item, only
//!   then. In a log, even kept items with a segment each do not fit, or no item may be evicted.
//!
//! A store by the item is judged to the byte. For a log, which depends on how records lie in
//! segments, the rule bounds the memory that may be unallocated when it evicts or refuses: the
//! segments that it keeps free, the new item, and the growth of its lists and index for that. That
//! a log uses the slack of other segments first is shown with records of one size
//! (`tests/harness/tests/oracles/stores.rs`).

/// How a store takes room of its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Charge {
    /// Each item takes its key, its value, and a fixed overhead.
    ByItem {
        /// The bytes that an item takes besides its key and value.
        overhead_bytes: usize,
    },
    /// Records stand in segments.
    BySegment {
        /// The bytes of a segment.
        segment_bytes: usize,
    },
}

/// The figures before a call, and its demand. All in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// The bytes of the new item, in the place of `own`.
    pub(super) need: usize,
    /// The bytes of the replaced item, if there is one.
    pub(super) own: usize,
    /// The replaced item may not be evicted.
    pub(super) own_is_kept: bool,
    /// The bytes of all items, expired ones included.
    pub(super) all: usize,
    /// The bytes of items that may not be evicted.
    pub(super) kept: usize,
    /// The bytes that the store has allocated.
    pub(super) held: usize,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) is_refused: bool,
    /// How many items were evicted.
    pub(super) evicted: u64,
    /// How many items went in total, expired or evicted.
    pub(super) gone: u64,
    /// The bytes of the largest of them.
    pub(super) gone_bytes_max: usize,
    /// The bytes of all items now.
    pub(super) all: usize,
}

/// Three segments that a log keeps free, one that it opens, and two for the growth of its lists and
/// its index, which is much if segments are tiny.
pub const SEGMENTS_IDLE_MAX: usize = 6;

impl Charge {
    /// Judges a call by its demand and its outcome, in a store of `limit` bytes.
    ///
    /// # Panics
    /// If N7 or N8 does not hold.
    pub(super) fn judge(self, demand: &Demand, outcome: &Outcome, limit: usize, evict: bool) {
        match self {
            Self::ByItem { .. } => by_item(demand, outcome, limit),
            Self::BySegment { segment_bytes } => {
                by_segment(demand, outcome, limit, evict, segment_bytes);
            }
        }
    }
}

/// The bytes by which an item is found (24) and a large value is listed (80), at most.
const LISTED_BYTES: usize = 104;

/// Judges the refusal of `need` bytes in a log that may evict: `kept` are the sizes of the items that it may not.
///
/// # Panics
/// If N8 does not hold.
pub(super) fn refused_by_log(
    need: usize,
    kept: &[usize],
    items_max: usize,
    limit: usize,
    segment_bytes: usize,
) {
    let segments = (kept.len() + SEGMENTS_IDLE_MAX) * segment_bytes;
    let most = segments + kept.iter().sum::<usize>() + need + items_max * LISTED_BYTES;
    assert!(
        most > limit,
        "N8: {need} bytes refused beside {kept:?} in {limit}"
    );
}

fn by_item(demand: &Demand, outcome: &Outcome, limit: usize) {
    let kept_besides = demand.kept - if demand.own_is_kept { demand.own } else { 0 };
    // An item of the same size takes the same place.
    let is_in_place = demand.need == demand.own;
    let is_too_much = !is_in_place && kept_besides + demand.need > limit;
    assert_eq!(outcome.is_refused, is_too_much, "N8: {demand:?}, {limit}");
    let fits = demand.all - demand.own + demand.need <= limit;
    let makes_room = !is_in_place && !fits && !is_too_much;
    assert_eq!(outcome.gone > 0, makes_room, "N7: {demand:?}, {limit}");
    if outcome.gone > 0 {
        let was_needed = outcome.all + outcome.gone_bytes_max > limit;
        assert!(was_needed, "N7: more than needed: {outcome:?}, {limit}");
    }
}

fn by_segment(demand: &Demand, outcome: &Outcome, limit: usize, evict: bool, segment_bytes: usize) {
    assert!(
        evict || outcome.evicted == 0,
        "N7: evicted, though that is off"
    );
    let idle = limit.saturating_sub(demand.held);
    if idle >= demand.need + SEGMENTS_IDLE_MAX * segment_bytes {
        assert_eq!(outcome.evicted, 0, "N7: {demand:?}, {limit}");
        assert!(!outcome.is_refused, "N8: {demand:?}, {limit}");
    }
}
