//! What each model explores, and what it must show.

use super::{KEYS_MAX, Word};
use crate::frame::witnesses;

/// What one model explores.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name on the command line.
    pub name: &'static str,
    /// States and transitions, as of the last intended change of model or core.
    pub pinned: (usize, usize),
    /// How many clients.
    pub clients: usize,
    /// How many keys.
    pub keys: usize,
    /// Over how many cores the keys are spread, one by one.
    pub shards: usize,
    /// Whether a core is told the time as soon as something is due. If not, a request may come first.
    pub is_punctual: bool,
    /// Whether time passes.
    pub has_time: bool,
    /// How many ended locks, waits and items a call lets go of.
    pub settled_max: usize,
    /// What clients do, besides to open, to close and to hear.
    pub words: &'static [&'static str],
}

impl Bounds {
    /// Whether one call lets go of everything that has ended.
    pub(super) const fn settles_together(&self) -> bool {
        self.settled_max > KEYS_MAX
    }

    pub(super) fn words(&self) -> impl Iterator<Item = Word> {
        self.words.iter().map(|word| Word(word))
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    fn waits_for_locks(&self) -> bool {
        self.words()
            .any(|word| word.verb() == "ml" && word.has("w"))
    }

    fn waits_for_values(&self) -> bool {
        self.words().any(Word::is_get)
    }
}

witnesses! {
    &'static str, Bounds;
    GivenInTurn of "Q2", "a lock is given to a client that has waited for it", Bounds::waits_for_locks;
    TwoWait of "Q2", "two wait for one lock, or one item", |b| b.clients > 2;
    OneOfTwo of "Q2", "the first of two is given the lock, or the win, and the other waits on", |b| b.clients > 2;
    TimedOut of "Q3", "a wait takes too long", |b| b.has_time;
    NotFound of "Q10", "what is waited for is free, and there is no item, which was asked for", |b| b.has("ml w x") || b.has("mg w") || b.has("mg R w B");
    Deadlock of "Q9", "a request would close a cycle of others", |b| b.waits_for_locks() && b.keys > 1;
    DeadlockOfThree of "Q9", "the cycle would be one of three", |b| b.waits_for_locks() && b.keys > 2;
    WaitsForItself of "Q9", "a request would wait for a lock that its own connection holds, or a winner waits for its own item", |_| true;
    NobodyBarges of "Q7", "a newcomer is refused while others wait", |b| b.waits_for_locks() && b.has_time;
    LeaseOver of "Q3", "the lease of a lock ends", |b| b.has("ml w T");
    LeaseHandedOver of "Q3", "the lease of a lock ends, and somebody waits for it", |b| b.has("ml w T");
    WaiterGoes of "Q8", "a waiter goes, and others stay", |b| b.clients > 2;
    GrantOfDeadPassedOn of "Q8", "a connection ends that was given a lock and had not heard of it, and another waits", Bounds::waits_for_locks;
    HeardInTime of "Q10", "a client hears what it was given and has it", |_| true;
    LostBeforeHeard of "Q10", "a client has lost what it was given before it hears of it", |b| b.has("ml w T") || b.waits_for_values();
    HeardTooLate of "Q10", "a client that has waited too long asks once more", |b| b.has_time;
    TwoShare of "L1", "two share a lock", |b| b.keys == 1 && (b.has("ml w S") || b.has("ml w S2"));
    GivenTogether of "Q6", "two waiters are given a share in one call", |b| b.keys == 1 && (b.has("ml w S") || b.has("ml w S2"));
    ShareIsFull of "L1", "a shared lock is full", |b| b.keys == 1 && b.has("ml w S2");
    ShareBehind of "Q7", "a share could be had, if nobody waited before", |b| b.keys == 1 && b.has("ml w S2");
    DeadlockByOneOfTwo of "Q9", "a request would close a cycle by one of several that share a lock", |b| b.keys > 1 && b.has("ml w S2");
    OtherMakesRoom of "Q9", "a request waits although one holder of the share waits for it: another can make room", |b| b.keys > 1 && b.has("ml w S2") && b.settles_together();
    WonInTurn of "Z10", "the win of an item that is there is given to a client that has waited for it", Bounds::waits_for_values;
    MadeInTurn of "Z10", "an item is made for a client that has waited, and the win is its", Bounds::waits_for_values;
    ValueTold of "Z11", "a value is told to a client that has waited for it", Bounds::waits_for_values;
    ToldTogether of "Z8", "two are told the value that one request has stored", |b| b.waits_for_values() && b.clients > 2;
    ExpiresWaited of "Z5", "an item expires that somebody waits for", Bounds::waits_for_values;
    NobodyPasses of "Z9", "a newcomer finds a win that was given to a waiter that has not heard of it", |b| b.waits_for_values() && b.clients > 2;
    WinnerGoes of "Z7", "a winner ends, and nobody waits: the win is open", Bounds::waits_for_values;
    WinnerGoesWaited of "Z7", "a winner ends, and somebody waits", Bounds::waits_for_values;
    UnboundGoes of "Z12", "a winner whose win is not bound ends, and somebody waits on", |b| b.has("mg N");
    GivenToDead of "Z10", "a client ends that was given a win and had not heard of it, and another waits", |b| b.waits_for_values() && b.clients > 2;
    ReopenedStale of "Z7", "the win of a stale item is open again", |b| b.has("mg N") && b.has("md I");
    MadeBehindLock of "Z8", "a winner ends, and with its lock the item: it is made for a waiter", |b| b.waits_for_values() && b.has("ml");
    HeldByAnother of "Z8", "a waiter is told that there is nothing, since another holds the key", |b| b.waits_for_values() && b.has("ml");
    Circle of "Z12", "a connection waits for the item that another computes, which waits for its own", |b| b.waits_for_values() && b.keys > 1;
}

/// Four clients and a key; the other models of locks differ from it.
const FOUR: Bounds = Bounds {
    name: "waits-4x1",
    pinned: (2227, 23_335),
    clients: 4,
    keys: 1,
    shards: 1,
    is_punctual: true,
    has_time: true,
    settled_max: 16,
    words: &["ml", "ml T", "ml w", "ml w T", "mu"],
};

/// Three clients and a key; the other models of values differ from it.
const THREE: Bounds = Bounds {
    name: "gets-3x1",
    pinned: (31_154, 284_145),
    clients: 3,
    words: &[
        "mg",
        "mg N",
        "mg N B",
        "mg w",
        "mg N w",
        "mg N w B",
        "ms",
        "md I",
        "md",
        "flush_all",
        "tick",
    ],
    ..FOUR
};

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
        words: &[
            "ml", "lock", "ml w", "ml w x", "mu", "unlock", "md U", "md", "ms",
        ],
        ..FOUR
    },
    Bounds {
        name: "waits-3x2",
        pinned: (19_360, 252_816),
        clients: 3,
        keys: 2,
        words: &["ml", "ml T", "ml w", "ml w T", "mu", "unlock_all"],
        ..FOUR
    },
    Bounds {
        name: "waits-4x2",
        pinned: (3777, 35_441),
        keys: 2,
        words: &["ml w", "mu"],
        ..FOUR
    },
    Bounds {
        name: "waits-3x3",
        pinned: (9409, 82_507),
        clients: 3,
        keys: 3,
        words: &["ml w", "mu"],
        ..FOUR
    },
    Bounds {
        name: "waits-3x2-settled-1",
        pinned: (23_556, 214_509),
        clients: 3,
        keys: 2,
        settled_max: 1,
        words: &["ml w", "mu", "unlock_all"],
        ..FOUR
    },
    Bounds {
        name: "waits-4x3-settled-1",
        pinned: (664_465, 7_470_073),
        keys: 3,
        has_time: false,
        settled_max: 1,
        words: &["ml w", "mu", "unlock_all"],
        ..FOUR
    },
    Bounds {
        name: "waits-3x2-shards-2",
        pinned: (84_272, 890_693),
        clients: 3,
        keys: 2,
        shards: 2,
        is_punctual: false,
        words: &["ml w", "ml w T", "mu", "unlock_all"],
        ..FOUR
    },
    Bounds {
        name: "waits-3x3-shards-2",
        pinned: (19_248, 177_691),
        clients: 3,
        keys: 3,
        shards: 2,
        words: &["ml w", "mu", "unlock_all"],
        ..FOUR
    },
    Bounds {
        name: "shares-3x1",
        pinned: (5900, 76_091),
        clients: 3,
        words: &["ml", "ml w", "ml S", "ml w S T", "ml w S2", "mu"],
        ..FOUR
    },
    Bounds {
        name: "shares-4x1",
        pinned: (6913, 74_764),
        words: &["ml w", "ml w S", "ml w S2", "mu"],
        ..FOUR
    },
    Bounds {
        name: "shares-3x1-items",
        pinned: (1412, 21_590),
        clients: 3,
        words: &[
            "lock", "ml S2", "ml w", "ml w S", "mu", "unlock", "md U", "md", "ms",
        ],
        ..FOUR
    },
    Bounds {
        name: "shares-3x2",
        pinned: (27_037, 291_273),
        clients: 3,
        keys: 2,
        words: &["ml w", "ml w S2", "mu", "unlock_all"],
        ..FOUR
    },
    Bounds {
        name: "shares-3x2-settled-1",
        pinned: (257_032, 2_777_697),
        clients: 3,
        keys: 2,
        has_time: false,
        settled_max: 1,
        words: &["ml w", "ml w S2", "mu", "unlock_all"],
        ..FOUR
    },
    Bounds {
        name: "shares-3x2-shards-2",
        pinned: (8862, 105_235),
        clients: 3,
        keys: 2,
        shards: 2,
        has_time: false,
        words: &["ml w", "ml w S2", "mu", "unlock_all"],
        ..FOUR
    },
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
        words: &[
            "mg",
            "mg N",
            "mg N B",
            "mg w",
            "mg N w",
            "mg N w B",
            "ms",
            "md I",
            "md",
            "flush_all 1",
        ],
        ..THREE
    },
    Bounds {
        name: "gets-3x1-short",
        pinned: (7256, 59_742),
        words: &[
            "mg", "mg N B", "mg R B", "mg R w B", "mg N w B", "ms T", "touch", "md I",
        ],
        ..THREE
    },
    Bounds {
        name: "gets-3x1-held",
        pinned: (7798, 84_190),
        words: &[
            "mg N B",
            "mg N w B",
            "ms",
            "md",
            "ml",
            "mu",
            "unlock_all",
            "flush_all 1",
        ],
        ..THREE
    },
    Bounds {
        name: "gets-4x1",
        pinned: (262_985, 2_523_334),
        clients: 4,
        words: &[
            "mg",
            "mg N",
            "mg N B",
            "mg w",
            "mg N w",
            "mg N w B",
            "ms",
            "md I",
            "md",
            "flush_all",
        ],
        ..THREE
    },
    Bounds {
        name: "gets-2x2",
        pinned: (125_739, 866_710),
        clients: 2,
        keys: 2,
        words: &["mg N B", "mg w", "mg N w B", "ms", "md I", "flush_all"],
        ..THREE
    },
    Bounds {
        name: "gets-3x2-settled-1",
        pinned: (96_248, 862_888),
        keys: 2,
        settled_max: 1,
        words: &["mg N B", "mg N w", "ms", "flush_all 1"],
        ..THREE
    },
];
