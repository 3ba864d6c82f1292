//! What each model explores.

use std::num::NonZeroU32;

use latchd_core::command::Mode;

use super::KEYS_MAX;

/// What one model explores.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// How many clients.
    pub clients: usize,
    /// How many keys.
    pub keys: usize,
    /// Over how many cores the keys are spread, one by one.
    pub shards: usize,
    /// Whether a core is told the time as soon as something is due; if not, somebody may ask first.
    pub is_punctual: bool,
    /// Whether time passes.
    pub has_time: bool,
    /// How many locks that are over a call lets go of.
    pub settled_max: usize,
    /// In which ways a lock is asked for.
    pub asks: &'static [Asks],
    /// In which ways one is given back, besides `mu`.
    pub gives: &'static [Gives],
    /// States and transitions, as of the last change of model or core on purpose.
    pub pinned: (usize, usize),
    /// What must be seen at least once, or the proof is about nothing.
    pub witnesses: &'static [Witness],
}

impl Bounds {
    /// Whether everything that ends is let go of in one call.
    pub(super) const fn settles_together(&self) -> bool {
        self.settled_max > KEYS_MAX
    }
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Asks {
    /// `ml`.
    Now,
    /// `ml` with a lease.
    NowLeased,
    /// `lock`.
    Lock,
    /// `ml w`.
    Waits,
    /// `ml w` with a lease.
    WaitsLeased,
    /// `ml w x`.
    WaitsForItem,
    /// `ml S`.
    NowShared,
    /// `ml S2`.
    NowByTwo,
    /// `ml S w`.
    WaitsShared,
    /// `ml S w` with a lease.
    WaitsSharedLeased,
    /// `ml S2 w`.
    WaitsByTwo,
}

impl Asks {
    pub(super) const fn waits(self) -> bool {
        match self {
            Self::Waits
            | Self::WaitsLeased
            | Self::WaitsForItem
            | Self::WaitsShared
            | Self::WaitsSharedLeased
            | Self::WaitsByTwo => true,
            Self::Now | Self::NowLeased | Self::Lock | Self::NowShared | Self::NowByTwo => false,
        }
    }

    pub(super) const fn mode(self) -> Mode {
        match self {
            Self::Now
            | Self::NowLeased
            | Self::Lock
            | Self::Waits
            | Self::WaitsLeased
            | Self::WaitsForItem => Mode::Exclusive,
            Self::NowShared | Self::WaitsShared | Self::WaitsSharedLeased => {
                Mode::Shared { among: None }
            }
            Self::NowByTwo | Self::WaitsByTwo => Mode::Shared {
                among: NonZeroU32::new(2),
            },
        }
    }

    /// Among how many, 1 being alone.
    pub(super) const fn among(self) -> u32 {
        self.mode().among()
    }

    pub(super) const fn is_leased(self) -> bool {
        matches!(
            self,
            Self::NowLeased | Self::WaitsLeased | Self::WaitsSharedLeased
        )
    }

    pub(super) const fn needs_item(self) -> bool {
        matches!(self, Self::WaitsForItem)
    }

    /// The same by one who has it, and is told so.
    pub(super) const fn heard(self) -> Self {
        match self {
            Self::Now | Self::NowLeased | Self::Lock | Self::Waits | Self::WaitsLeased => Self::Now,
            Self::NowShared | Self::WaitsShared | Self::WaitsSharedLeased => Self::NowShared,
            Self::NowByTwo | Self::WaitsByTwo => Self::NowByTwo,
            Self::WaitsForItem => self,
        }
    }
}

/// How a lock is given back, or ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gives {
    /// `unlock`.
    Unlock,
    /// `unlock_all`.
    UnlockAll,
    /// `md U`.
    DeleteAndUnlock,
    /// `md`, which ends the lock of an item, and `ms`, without which there is none.
    Items,
}

/// Something that must be seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Witness {
    /// A lock is given to one who has waited for it.
    GivenInTurn,
    /// Two wait for one lock.
    TwoWait,
    /// The first of two is given it, and the other waits on.
    OneOfTwo,
    /// A wait takes too long.
    TimedOut,
    /// A lock is free, and there is no item, which was asked for.
    NotFound,
    /// A request would close a circle of others.
    Deadlock,
    /// The circle would be one of three.
    DeadlockOfThree,
    /// A request would wait for a lock that its own connection holds.
    WaitsForItself,
    /// One who has not waited is refused while others do.
    NobodyBarges,
    /// The lease of a lock ends.
    LeaseOver,
    /// The lease of a lock ends, and somebody waits for it.
    LeaseHandedOver,
    /// One who waits goes, and others stay.
    WaiterGoes,
    /// A connection ends that was given a lock and had not heard of it, and another waits.
    GrantOfDeadPassedOn,
    /// Who was given a lock hears of it and has it.
    HeardInTime,
    /// Who was given a lock has lost it before it hears of it.
    LostBeforeHeard,
    /// Who has waited too long asks once more.
    HeardTooLate,
    /// A connection ends in the call in which a core learns that what it has waited for is free.
    ToldInItsEnd,
    /// Two share a lock.
    TwoShare,
    /// Two who wait are given a share in one call.
    GivenTogether,
    /// A lock that is shared already is full.
    ShareIsFull,
    /// A share could be had, if nobody waited before.
    ShareBehind,
    /// A request would close a circle by one of several who share a lock.
    DeadlockByOneOfTwo,
    /// A request waits although one of those who share the lock waits for it: another can make room.
    OtherMakesRoom,
}

impl Witness {
    /// Its bit among what a step has shown.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What must be seen wherever time passes.
pub(super) const SEEN_OF_TIME: &[Witness] = &[
    Witness::TimedOut,
    Witness::HeardTooLate,
    Witness::NobodyBarges,
];

/// What must be seen wherever somebody waits.
pub(super) const ALWAYS_SEEN: &[Witness] = &[
    Witness::GivenInTurn,
    Witness::TwoWait,
    Witness::OneOfTwo,
    Witness::WaitsForItself,
    Witness::WaiterGoes,
    Witness::GrantOfDeadPassedOn,
    Witness::HeardInTime,
];

/// What must be seen where locks have leases.
const SEEN_OF_LEASES: &[Witness] = &[
    Witness::LeaseOver,
    Witness::LeaseHandedOver,
    Witness::LostBeforeHeard,
];

/// Four clients and a key; the others differ from it.
const FOUR: Bounds = Bounds {
    name: "waits-4x1",
    pinned: (2227, 23_335),
    clients: 4,
    keys: 1,
    shards: 1,
    is_punctual: true,
    has_time: true,
    settled_max: 16,
    asks: &[Asks::Now, Asks::NowLeased, Asks::Waits, Asks::WaitsLeased],
    gives: &[],
    witnesses: SEEN_OF_LEASES,
};

/// What must be seen where locks are shared.
const SEEN_OF_SHARES: &[Witness] = &[
    Witness::TwoShare,
    Witness::GivenTogether,
    Witness::ShareIsFull,
    Witness::ShareBehind,
];

/// What is checked.
pub const ALL: &[Bounds] = &[
    Bounds {
        name: "waits-3x1",
        pinned: (546, 4865),
        clients: 3,
        ..FOUR
    },
    FOUR,
    Bounds {
        name: "waits-3x1-late",
        pinned: (1129, 10_331),
        clients: 3,
        is_punctual: false,
        ..FOUR
    },
    Bounds {
        name: "waits-3x1-items",
        pinned: (582, 6781),
        clients: 3,
        asks: &[Asks::Now, Asks::Lock, Asks::Waits, Asks::WaitsForItem],
        gives: &[Gives::Unlock, Gives::DeleteAndUnlock, Gives::Items],
        witnesses: &[Witness::NotFound],
        ..FOUR
    },
    Bounds {
        name: "waits-3x2",
        pinned: (19_360, 252_816),
        clients: 3,
        keys: 2,
        asks: &[Asks::Now, Asks::NowLeased, Asks::Waits, Asks::WaitsLeased],
        gives: &[Gives::UnlockAll],
        witnesses: &[
            Witness::Deadlock,
            Witness::LeaseOver,
            Witness::LeaseHandedOver,
            Witness::LostBeforeHeard,
        ],
        ..FOUR
    },
    Bounds {
        name: "waits-4x2",
        pinned: (3777, 35_441),
        clients: 4,
        keys: 2,
        asks: &[Asks::Waits],
        witnesses: &[Witness::Deadlock],
        ..FOUR
    },
    Bounds {
        name: "waits-3x3",
        pinned: (9409, 82_507),
        clients: 3,
        keys: 3,
        asks: &[Asks::Waits],
        witnesses: &[Witness::Deadlock, Witness::DeadlockOfThree],
        ..FOUR
    },
    Bounds {
        name: "waits-3x2-settled-1",
        pinned: (23_556, 214_509),
        clients: 3,
        keys: 2,
        settled_max: 1,
        asks: &[Asks::Waits],
        gives: &[Gives::UnlockAll],
        witnesses: &[Witness::Deadlock],
        ..FOUR
    },
    Bounds {
        name: "waits-4x3-settled-1",
        pinned: (664_465, 7_470_073),
        clients: 4,
        keys: 3,
        has_time: false,
        settled_max: 1,
        asks: &[Asks::Waits],
        gives: &[Gives::UnlockAll],
        witnesses: &[Witness::Deadlock, Witness::DeadlockOfThree],
        ..FOUR
    },
    Bounds {
        name: "waits-3x2-shards-2",
        pinned: (84_272, 890_693),
        clients: 3,
        keys: 2,
        shards: 2,
        is_punctual: false,
        asks: &[Asks::Waits, Asks::WaitsLeased],
        gives: &[Gives::UnlockAll],
        witnesses: &[
            Witness::Deadlock,
            Witness::LeaseOver,
            Witness::LeaseHandedOver,
            Witness::LostBeforeHeard,
        ],
        ..FOUR
    },
    Bounds {
        name: "waits-3x3-shards-2",
        pinned: (19_248, 177_691),
        clients: 3,
        keys: 3,
        shards: 2,
        asks: &[Asks::Waits],
        gives: &[Gives::UnlockAll],
        witnesses: &[Witness::Deadlock, Witness::DeadlockOfThree],
        ..FOUR
    },
    Bounds {
        name: "shares-3x1",
        pinned: (5900, 76_091),
        clients: 3,
        asks: &[
            Asks::Now,
            Asks::Waits,
            Asks::NowShared,
            Asks::WaitsSharedLeased,
            Asks::WaitsByTwo,
        ],
        witnesses: SEEN_OF_SHARES,
        ..FOUR
    },
    Bounds {
        name: "shares-4x1",
        pinned: (6913, 74_764),
        asks: &[Asks::Waits, Asks::WaitsShared, Asks::WaitsByTwo],
        witnesses: SEEN_OF_SHARES,
        ..FOUR
    },
    Bounds {
        name: "shares-3x1-items",
        pinned: (1412, 21_590),
        clients: 3,
        asks: &[Asks::Lock, Asks::NowByTwo, Asks::Waits, Asks::WaitsShared],
        gives: &[Gives::Unlock, Gives::DeleteAndUnlock, Gives::Items],
        witnesses: &[Witness::TwoShare, Witness::GivenTogether],
        ..FOUR
    },
    Bounds {
        name: "shares-3x2",
        pinned: (27_037, 291_273),
        clients: 3,
        keys: 2,
        asks: &[Asks::Waits, Asks::WaitsByTwo],
        gives: &[Gives::UnlockAll],
        witnesses: &[
            Witness::Deadlock,
            Witness::DeadlockByOneOfTwo,
            Witness::OtherMakesRoom,
        ],
        ..FOUR
    },
    Bounds {
        name: "shares-3x2-settled-1",
        pinned: (257_032, 2_777_697),
        clients: 3,
        keys: 2,
        has_time: false,
        settled_max: 1,
        asks: &[Asks::Waits, Asks::WaitsByTwo],
        gives: &[Gives::UnlockAll],
        witnesses: &[Witness::Deadlock, Witness::DeadlockByOneOfTwo],
        ..FOUR
    },
    Bounds {
        name: "shares-3x2-shards-2",
        pinned: (8862, 105_235),
        clients: 3,
        keys: 2,
        shards: 2,
        has_time: false,
        asks: &[Asks::Waits, Asks::WaitsByTwo],
        gives: &[Gives::UnlockAll],
        witnesses: &[
            Witness::Deadlock,
            Witness::DeadlockByOneOfTwo,
            Witness::OtherMakesRoom,
        ],
        ..FOUR
    },
];
