//! What happens in a run, and what came of it.

use latchd_harness::stores::{Choices, Setting};

/// How many items are stored in a run.
const ITEMS: usize = 10_000;

/// How often something is done after an item was stored, and to how many neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Often {
    pub(super) of_1000: u64,
    pub(super) at_once: usize,
}

/// What happens in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    pub(super) items: usize,
    pub(super) memory_bytes: usize,
    pub(super) setting: Setting,
    /// So many are asked for while a hundred are stored.
    pub(super) asked_of_100: u64,
    pub(super) locked: Often,
    /// So many are locked at a time, at most.
    pub(super) locked_max: usize,
    pub(super) unlocked_of_1000: u64,
    pub(super) deleted: Often,
    /// They get another value, or a longer one.
    pub(super) replaced: Often,
    /// They get another deadline.
    pub(super) retimed: Often,
    pub(super) crawled_of_1000: u64,
    /// Where nothing is locked, and nothing crawled.
    pub(super) flushed_of_1000: u64,
    /// So many are such as went before.
    pub(super) back_of_100: u64,
    /// They are among so many that went last.
    pub(super) back_among: usize,
    /// So many of those are taken out at once.
    pub(super) back_and_gone_of_100: u64,
    pub(super) expiring_of_100: u64,
    /// When they expire at the latest; each item that is stored takes a tick.
    pub(super) ticks_max: u64,
    /// Records that are longer than others.
    pub(super) longer_of_100: u64,
    /// Values that have an allocation of their own.
    pub(super) large_of_1000: u64,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) choices: Choices,
    pub(super) hypotheses_most: usize,
    /// How many items came again.
    pub(super) back: u64,
}

const NEVER: Often = Often {
    of_1000: 0,
    at_once: 1,
};

impl Habits {
    /// New items and no others, eight of them in a segment.
    pub(super) const TINY: Self = Self {
        items: ITEMS,
        memory_bytes: 64 << 10,
        setting: Setting {
            segment_bytes: 512,
            segment_room: 512,
            places: 1,
            may_be_short: false,
        },
        asked_of_100: 0,
        locked: NEVER,
        locked_max: 100,
        unlocked_of_1000: 0,
        deleted: NEVER,
        replaced: NEVER,
        retimed: NEVER,
        crawled_of_1000: 0,
        flushed_of_1000: 0,
        back_of_100: 0,
        back_among: 1,
        back_and_gone_of_100: 0,
        expiring_of_100: 0,
        ticks_max: 1,
        longer_of_100: 0,
        large_of_1000: 0,
    };

    /// The same, 63 of them in a segment. What goes is remembered where nobody is short of the memory for that: a few segments of
    /// this size are enough.
    pub(super) const SMALL: Self = Self {
        memory_bytes: 256 << 10,
        setting: Setting {
            segment_bytes: 4 << 10,
            segment_room: (4 << 10) - 64,
            ..Self::TINY.setting
        },
        ..Self::TINY
    };

    /// With so many large values. What is free goes to them, so somebody may have to wait.
    pub(super) const fn large(self, of_1000: u64) -> Self {
        Self {
            large_of_1000: of_1000,
            ..self.short_if(of_1000 > 0)
        }
    }

    /// With so many that are asked for while a hundred are stored. Where it is as many as that, hardly any room is left once in
    /// a while, since all of a segment was hit.
    pub(super) const fn asked(self, of_100: u64) -> Self {
        Self {
            asked_of_100: of_100,
            ..self.short_if(of_100 >= 100)
        }
    }

    const fn short_if(self, may_be_short: bool) -> Self {
        Self {
            setting: Setting {
                may_be_short: self.setting.may_be_short || may_be_short,
                ..self.setting
            },
            ..self
        }
    }
}
