//! What a store may hold, said by itself: when it may refuse, and when it may evict.
//!
//! - N7: nothing is evicted while what lives fits beside what is to be stored. A store by the item evicts no more than
//!   it takes to fit.
//! - N8: a call is refused if what may not go, and what it needs, do not fit; by the item, only then.
//!
//! A store by the item is judged to the byte. What a log holds depends on how records lie in segments; of that it is
//! said how much of the limit may not even be allocated when it evicts or refuses: the segments that are kept free,
//! what is to be stored, and what lists and index may grow by for it. That it uses what is slack in the others first
//! is shown where all records are of one size (`tests/harness/tests/oracles/stores.rs`).

/// How a store takes room of its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Charge {
    /// Each item takes its key, its value, and so much besides.
    ByItem {
        /// What an item takes besides, in bytes.
        overhead_bytes: usize,
    },
    /// Records stand in segments.
    BySegment {
        /// What a segment takes, in bytes.
        segment_bytes: usize,
    },
}

/// What there was before a call, and what that asks for. All in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// What the call stores, in the place of `own`.
    pub(super) need: usize,
    /// What the item that is replaced takes, if there is one.
    pub(super) own: usize,
    /// The item that is replaced may not be evicted.
    pub(super) own_is_kept: bool,
    /// What all items take, expired ones included.
    pub(super) all: usize,
    /// What those take that may not be evicted.
    pub(super) kept: usize,
    /// What the store has allocated.
    pub(super) held: usize,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) is_refused: bool,
    /// How many items were evicted.
    pub(super) evicted: u64,
    /// How many items went in all, for their time or for room.
    pub(super) gone: u64,
    /// What the largest of them took, in bytes.
    pub(super) gone_bytes_max: usize,
    /// What all items take now, in bytes.
    pub(super) all: usize,
}

/// Three segments that a log keeps free, one that it opens, and two for what its lists and its index may grow by, which
/// is much where segments are tiny.
pub const SEGMENTS_IDLE_MAX: usize = 6;

impl Charge {
    /// Judges a call by what it asked for and what has become of it, in a store of `limit` bytes.
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

fn by_item(demand: &Demand, outcome: &Outcome, limit: usize) {
    let kept_besides = demand.kept - if demand.own_is_kept { demand.own } else { 0 };
    // What takes the same room takes the same place.
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
