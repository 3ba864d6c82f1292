//! What each model explores.

use latchd_core::command::{Get, TtlStep, TtlSteps};
use latchd_core::key::Key;
use latchd_core::time::Exptime;

use super::KEYS_MAX;
use super::world::{SHORT_S, TTL_S, WAIT_MS};

/// What one model explores.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// How many clients.
    pub clients: usize,
    /// How many keys.
    pub keys: usize,
    /// Whether the core is told the time as soon as something is due; if not, somebody may ask first.
    pub is_punctual: bool,
    /// How many waits, items and locks that are over a call sees to.
    pub settled_max: usize,
    /// In which ways an item is asked for.
    pub gets: &'static [Gets],
    /// What else is done.
    pub does: &'static [Does],
    /// States and transitions, as of the last change of model or core on purpose.
    pub pinned: (usize, usize),
    /// What must be seen at least once, or the proof is about nothing.
    pub witnesses: &'static [Witness],
}

impl Bounds {
    /// Whether everything that is over is seen to in one call.
    pub(super) const fn settles_together(&self) -> bool {
        self.settled_max > KEYS_MAX
    }
}

/// How an item is asked for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Gets {
    /// `mg`.
    Plain,
    /// `mg N`: its win is nobody's when it ends.
    Makes,
    /// `mg N B`.
    MakesBound,
    /// `mg B`.
    Bound,
    /// `mg R B`.
    ShortBound,
    /// `mg w`.
    Waits,
    /// `mg N w`.
    MakesWaits,
    /// `mg N w B`.
    MakesWaitsBound,
    /// `mg R w B`.
    ShortWaitsBound,
}

impl Gets {
    pub(super) const fn waits(self) -> bool {
        match self {
            Self::Waits | Self::MakesWaits | Self::MakesWaitsBound | Self::ShortWaitsBound => true,
            Self::Plain | Self::Makes | Self::MakesBound | Self::Bound | Self::ShortBound => false,
        }
    }

    /// `N`.
    pub(super) const fn makes(self) -> bool {
        match self {
            Self::Makes | Self::MakesBound | Self::MakesWaits | Self::MakesWaitsBound => true,
            Self::Plain | Self::Bound | Self::ShortBound | Self::Waits | Self::ShortWaitsBound => {
                false
            }
        }
    }

    /// `B`.
    pub(super) const fn binds(self) -> bool {
        match self {
            Self::MakesBound
            | Self::Bound
            | Self::ShortBound
            | Self::MakesWaitsBound
            | Self::ShortWaitsBound => true,
            Self::Plain | Self::Makes | Self::Waits | Self::MakesWaits => false,
        }
    }

    /// `R`.
    pub(super) const fn recaches(self) -> bool {
        matches!(self, Self::ShortBound | Self::ShortWaitsBound)
    }

    pub(super) fn command(self, key: Key<'_>) -> Get<'_> {
        let seconds = |seconds| Exptime::In { seconds };
        let steps = if self.makes() {
            TtlSteps::one(TtlStep::Vivify(seconds(TTL_S)))
        } else if self.recaches() {
            TtlSteps::one(TtlStep::Recache(seconds(SHORT_S)))
        } else {
            TtlSteps::NONE
        };
        Get {
            steps,
            recaches: true,
            binds: self.binds(),
            wait_ms: if self.waits() { WAIT_MS } else { 0 },
            ..Get::new(key)
        }
    }
}

/// What is done besides: to an item, to its lock, or to all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Does {
    /// `ms`, which recaches.
    Set,
    /// `ms T`.
    SetExpiring,
    /// `md I`.
    Mark,
    /// `md`.
    Delete,
    /// `touch`, which brings the end of the item nearer.
    Touch,
    /// `ml`.
    Lock,
    /// `mu`.
    Release,
    /// `unlock_all`.
    UnlockAll,
    /// `flush_all`.
    Flush,
    /// `flush_all 1`.
    FlushLater,
    /// A tick.
    Tick,
}

/// Something that must be seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Witness {
    /// The win of an item that is there is given to one who has waited for it.
    WonInTurn,
    /// An item is made for one who has waited, and the win is its.
    MadeInTurn,
    /// A value is told to one who has waited for it.
    ValueTold,
    /// Two are told the value that one request has stored.
    ToldTogether,
    /// Two wait for one item.
    TwoWait,
    /// The first of two is given the win, and the other waits on.
    OneOfTwo,
    /// A wait takes too long.
    TimedOut,
    /// An item is gone, and one who has waited makes none.
    NotFound,
    /// An item expires that somebody waits for.
    ExpiresWaited,
    /// A newcomer finds a win that was given to one who has waited and has not heard of it.
    NobodyPasses,
    /// A winner ends, and nobody waits: the win is open.
    WinnerGoes,
    /// A winner ends, and somebody waits.
    WinnerGoesWaited,
    /// A winner whose win is not bound ends, and somebody waits on.
    UnboundGoes,
    /// One ends who was given a win and had not heard of it, and another waits.
    GivenToDead,
    /// One who waits goes, and others stay.
    WaiterGoes,
    /// A winner waits for its own item.
    WaitsForItself,
    /// Who was given a win hears of it and has it.
    HeardInTime,
    /// Who was given a win has lost it before it hears of it.
    LostBeforeHeard,
    /// Who has waited too long asks once more.
    HeardTooLate,
    /// A win is open again of an item that is stale.
    ReopenedStale,
    /// A winner ends, and with its lock the item: it is made for one who waits.
    MadeBehindLock,
    /// Who waits is told that there is nothing, since another holds the key.
    HeldByAnother,
    /// A connection waits for the item that another computes, which waits for its own.
    Circle,
}

impl Witness {
    /// Its bit among what a step has shown.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What must be seen wherever somebody waits.
pub(super) const ALWAYS_SEEN: &[Witness] = &[
    Witness::MadeInTurn,
    Witness::ValueTold,
    Witness::TimedOut,
    Witness::ExpiresWaited,
    Witness::WinnerGoes,
    Witness::WinnerGoesWaited,
    Witness::WaitsForItself,
    Witness::HeardInTime,
    Witness::LostBeforeHeard,
    Witness::HeardTooLate,
];

/// What three clients can bring about, and two cannot.
pub(super) const SEEN_OF_THREE: &[Witness] = &[
    Witness::ToldTogether,
    Witness::TwoWait,
    Witness::OneOfTwo,
    Witness::GivenToDead,
    Witness::WaiterGoes,
    Witness::NobodyPasses,
];

/// Three clients and a key; the others differ from it.
const THREE: Bounds = Bounds {
    name: "gets-3x1",
    pinned: (31_154, 284_145),
    clients: 3,
    keys: 1,
    is_punctual: true,
    settled_max: 16,
    gets: &[
        Gets::Plain,
        Gets::Makes,
        Gets::MakesBound,
        Gets::Waits,
        Gets::MakesWaits,
        Gets::MakesWaitsBound,
    ],
    does: &[Does::Set, Does::Mark, Does::Delete, Does::Flush, Does::Tick],
    witnesses: &[
        Witness::NotFound,
        Witness::UnboundGoes,
        Witness::ReopenedStale,
        Witness::WonInTurn,
    ],
};

/// What is checked.
pub const ALL: &[Bounds] = &[
    Bounds {
        name: "gets-2x1",
        pinned: (2821, 21_412),
        clients: 2,
        ..THREE
    },
    THREE,
    Bounds {
        name: "gets-3x1-late",
        pinned: (131_617, 1_110_490),
        is_punctual: false,
        does: &[Does::Set, Does::Mark, Does::Delete, Does::FlushLater],
        ..THREE
    },
    Bounds {
        name: "gets-3x1-short",
        pinned: (7256, 59_742),
        gets: &[
            Gets::Plain,
            Gets::MakesBound,
            Gets::ShortBound,
            Gets::ShortWaitsBound,
            Gets::MakesWaitsBound,
        ],
        does: &[Does::SetExpiring, Does::Touch, Does::Mark],
        witnesses: &[Witness::WonInTurn, Witness::NotFound],
        ..THREE
    },
    Bounds {
        name: "gets-3x1-held",
        pinned: (7798, 84_190),
        gets: &[Gets::MakesBound, Gets::MakesWaitsBound],
        does: &[
            Does::Set,
            Does::Delete,
            Does::Lock,
            Does::Release,
            Does::UnlockAll,
            Does::FlushLater,
        ],
        witnesses: &[
            Witness::WonInTurn,
            Witness::MadeBehindLock,
            Witness::HeldByAnother,
        ],
        ..THREE
    },
    Bounds {
        name: "gets-4x1",
        pinned: (262_985, 2_523_334),
        clients: 4,
        does: &[Does::Set, Does::Mark, Does::Delete, Does::Flush],
        ..THREE
    },
    Bounds {
        name: "gets-2x2",
        pinned: (125_739, 866_710),
        clients: 2,
        keys: 2,
        gets: &[Gets::MakesBound, Gets::Waits, Gets::MakesWaitsBound],
        does: &[Does::Set, Does::Mark, Does::Flush],
        witnesses: &[Witness::WonInTurn, Witness::NotFound, Witness::Circle],
        ..THREE
    },
    Bounds {
        name: "gets-3x2-settled-1",
        pinned: (96_248, 862_888),
        keys: 2,
        settled_max: 1,
        gets: &[Gets::MakesBound, Gets::MakesWaits],
        does: &[Does::Set, Does::FlushLater],
        witnesses: &[Witness::WonInTurn, Witness::Circle],
        ..THREE
    },
];
