//! The models of two shards: what a connection does to all of them, step by step.
//!
//! Each shard is a core of its own. A connection is announced to a shard when it first asks
//! something there; `unlock_all`, `flush_all` and the end of the connection visit one shard after
//! the other, and what other clients do comes between. The shell takes all the shards concerned
//! before it changes the first (`shell/src/shards.rs`), so it allows less than these models do, and
//! what holds here holds there.

use latchd_harness::alphabet::RequestKind as Kind;

use crate::setup::{Counts, Room, Setup};
use crate::verb::{Manner, Verb, ask};

/// What visits all shards, and what can come between.
const FAN_OUTS: &[Verb] = &[
    Verb::Open,
    Verb::Close,
    Verb::Walk,
    ask(Kind::Lock),
    ask(Kind::LockAndGet),
    ask(Kind::Unlock),
    ask(Kind::UnlockAll),
    Verb::Late(Kind::Lock),
    ask(Kind::Set),
    ask(Kind::ReplaceAndUnlock),
    ask(Kind::Delete),
    ask(Kind::FlushAll),
];

/// What time does, and a flush that waits for it.
const TIME: &[Verb] = &[
    Verb::Ask(Kind::Set, Manner::Expiring),
    Verb::Ask(Kind::FlushAll, Manner::Later),
    Verb::Pass,
    Verb::Tick,
];

/// Changes that want to know the version.
const VERSIONS: &[Verb] = &[
    ask(Kind::Get),
    ask(Kind::Cas),
    ask(Kind::ReplaceAndUnlockCas),
];

/// The two shards.
const SHARDS: Setup = Setup {
    name: "shards-2x2",
    pinned: Counts {
        states: 86_179,
        transitions: 1_533_249,
    },
    about: "two shards with a key each; fan-outs visit one after the other",
    clients: 2,
    keys: 2,
    shards: 2,
    room: Room::Ample,
    ttl_s: 1,
    locks_max: 8,
    settled_max: 16,
    alphabet: &[FAN_OUTS, TIME],
};

/// The models of shards.
pub(crate) const ALL: &[Setup] = &[
    SHARDS,
    Setup {
        name: "shards-3x2",
        pinned: Counts {
            states: 454_694,
            transitions: 10_397_760,
        },
        clients: 3,
        ..SHARDS
    },
    Setup {
        name: "shards-2x2-versions",
        pinned: Counts {
            states: 23_675,
            transitions: 488_894,
        },
        alphabet: &[FAN_OUTS, VERSIONS],
        ..SHARDS
    },
];
