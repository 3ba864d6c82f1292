//! The models of wins: of all who find that an item is to be made anew, exactly one is told to.

use latchd_harness::alphabet::RequestKind as Kind;

use crate::setup::{Counts, Room, Setup};
use crate::verb::{Manner, Verb, ask};

/// Who asks, and what opens the win.
const WINS: &[Verb] = &[
    Verb::Open,
    Verb::Close,
    ask(Kind::MetaGet),
    ask(Kind::Get),
    ask(Kind::Vivify),
    ask(Kind::Recache),
    ask(Kind::CasElseStale),
    Verb::Ask(Kind::CasElseStale, Manner::Ahead),
    ask(Kind::Cas),
    ask(Kind::Set),
    Verb::Ask(Kind::Set, Manner::Expiring),
    ask(Kind::MarkStale),
    ask(Kind::Clear),
    ask(Kind::ClearAndMarkStale),
    ask(Kind::Delete),
    ask(Kind::Touch),
    Verb::Pass,
    Verb::Tick,
    ask(Kind::FlushAll),
    Verb::Ask(Kind::FlushAll, Manner::Later),
];

/// What else changes an item.
const MORE: &[Verb] = &[
    Verb::Ask(Kind::Set, Manner::Chosen),
    ask(Kind::Add),
    ask(Kind::Replace),
    ask(Kind::Append),
    ask(Kind::Increment),
    ask(Kind::SetTooLarge),
    ask(Kind::DeleteCas),
];

/// Locks, which wins do not look at.
const LOCKS: &[Verb] = &[
    ask(Kind::Lock),
    ask(Kind::Unlock),
    ask(Kind::LockAndGet),
    ask(Kind::ReplaceAndUnlock),
];

/// A model of wins with all that can happen to them; the others differ from it.
const STAMPEDE: Setup = Setup {
    name: "stampede-2x1",
    pinned: Counts {
        states: 1703,
        transitions: 64_402,
    },
    about: "every command that has to do with wins",
    clients: 2,
    keys: 1,
    shards: 1,
    room: Room::Ample,
    ttl_s: 2,
    locks_max: 8,
    settled_max: 16,
    alphabet: &[WINS, MORE],
};

/// The models of wins.
pub(crate) const ALL: &[Setup] = &[
    STAMPEDE,
    Setup {
        name: "stampede-3x1",
        pinned: Counts {
            states: 3995,
            transitions: 226_132,
        },
        clients: 3,
        ..STAMPEDE
    },
    Setup {
        name: "stampede-4x1",
        pinned: Counts {
            states: 7918,
            transitions: 596_876,
        },
        clients: 4,
        ..STAMPEDE
    },
    Setup {
        name: "stampede-2x2",
        pinned: Counts {
            states: 72_521,
            transitions: 3_960_022,
        },
        keys: 2,
        alphabet: &[WINS],
        ..STAMPEDE
    },
    Setup {
        name: "stampede-3x2",
        pinned: Counts {
            states: 306_058,
            transitions: 25_003_004,
        },
        clients: 3,
        keys: 2,
        alphabet: &[WINS],
        ..STAMPEDE
    },
    Setup {
        name: "stampede-2x2-room-1",
        pinned: Counts {
            states: 7563,
            transitions: 390_751,
        },
        about: "wins with room for one item",
        keys: 2,
        room: Room::Items(1),
        alphabet: &[WINS, &[Verb::Pressure]],
        ..STAMPEDE
    },
    Setup {
        name: "everything-2x1",
        pinned: Counts {
            states: 7230,
            transitions: 364_810,
        },
        about: "wins and locks at once",
        alphabet: &[
            WINS,
            MORE,
            LOCKS,
            &[ask(Kind::UnlockAll), ask(Kind::ReplaceAndUnlockCas)],
        ],
        ..STAMPEDE
    },
    Setup {
        name: "everything-3x1",
        pinned: Counts {
            states: 19_621,
            transitions: 1_455_052,
        },
        about: "wins and locks at once",
        clients: 3,
        alphabet: &[
            WINS,
            MORE,
            LOCKS,
            &[ask(Kind::UnlockAll), ask(Kind::ReplaceAndUnlockCas)],
        ],
        ..STAMPEDE
    },
];
