//! The models of wins: of all who find that an item is to be made anew, exactly one is told to.

use crate::setup::{Room, Setup};
use crate::verb::{Verb, verbs};

/// Who asks, and what opens the win.
const WINS: &[Verb] = verbs![
    Do(Open Close) Plain(MetaGet Get Vivify Recache CasElseStale) Ahead(CasElseStale) Plain(Cas
    Set) Expiring(Set) Plain(MarkStale Clear ClearAndMarkStale Delete Touch) Do(Pass Tick)
    Plain(FlushAll) Later(FlushAll)
];

/// What else changes an item.
const MORE: &[Verb] = verbs![Chosen(Set) Plain(Add Replace Append Increment SetTooLarge DeleteCas)];

/// Locks, which wins do not look at.
const LOCKS: &[Verb] = verbs![Plain(Lock Unlock LockAndGet ReplaceAndUnlock)];

/// A model of wins with all that can happen to them; the others differ from it.
const STAMPEDE: Setup = Setup {
    name: "stampede-2x1",
    pinned: (1733, 65_902),
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
        pinned: (4034, 229_018),
        clients: 3,
        ..STAMPEDE
    },
    Setup {
        name: "stampede-4x1",
        pinned: (7966, 601_580),
        clients: 4,
        ..STAMPEDE
    },
    Setup {
        name: "stampede-2x2",
        pinned: (72_521, 3_960_022),
        keys: 2,
        alphabet: &[WINS],
        ..STAMPEDE
    },
    Setup {
        name: "stampede-3x2",
        pinned: (306_058, 25_003_004),
        clients: 3,
        keys: 2,
        alphabet: &[WINS],
        ..STAMPEDE
    },
    Setup {
        name: "stampede-2x2-room-1",
        pinned: (15_084, 779_612),
        about: "wins with room for one item",
        keys: 2,
        room: Room::Items(1),
        alphabet: &[WINS, verbs![Do(Pressure)]],
        ..STAMPEDE
    },
    Setup {
        name: "everything-2x1",
        pinned: (7357, 372_684),
        about: "wins and locks at once",
        alphabet: &[
            WINS,
            MORE,
            LOCKS,
            verbs![Plain(UnlockAll ReplaceAndUnlockCas)],
        ],
        ..STAMPEDE
    },
    Setup {
        name: "everything-3x1",
        pinned: (19_797, 1_471_244),
        about: "wins and locks at once",
        clients: 3,
        alphabet: &[
            WINS,
            MORE,
            LOCKS,
            verbs![Plain(UnlockAll ReplaceAndUnlockCas)],
        ],
        ..STAMPEDE
    },
];
