//! The models of two shards: what a connection does to all of them, step by step.
//!
//! Each shard is a core of its own. A connection is announced to a shard when it first asks
//! something there; `unlock_all`, `flush_all` and the end of the connection visit one shard after
//! the other, and what other clients do comes between. The shell takes all the shards concerned
//! before it changes the first (`shell/src/shards.rs`), so it allows less than these models do, and
//! what holds here holds there. That it does is shown on the shell's own code, under a scheduler:
//! `shell/src/scheduled/`.

use crate::setup::{Room, Setup};
use crate::verb::{Verb, verbs};

/// What visits all shards, and what can come between.
const FAN_OUTS: &[Verb] = verbs![
    Do(Open Close Walk) Plain(Lock LockAndGet Unlock UnlockAll) Late(Lock) Plain(Set
    ReplaceAndUnlock Delete FlushAll)
];

/// What time does, and a flush that waits for it.
const TIME: &[Verb] = verbs![Expiring(Set) Later(FlushAll) Do(Pass Tick)];

/// Changes that want to know the version.
const VERSIONS: &[Verb] = verbs![Plain(Get Cas ReplaceAndUnlockCas)];

/// The two shards.
const SHARDS: Setup = Setup {
    name: "shards-2x2",
    pinned: (86_179, 1_533_249),
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
        pinned: (780_449, 17_986_142),
        clients: 3,
        ..SHARDS
    },
    Setup {
        name: "shards-2x2-key-locks",
        pinned: (1087, 21_807),
        about: "locks of keys in two shards, and what is done in their right",
        alphabet: &[verbs![
            Do(Open Close Walk) Plain(Lock UnlockAll Set Delete Acquire Release SetFenced)
            Late(Lock)
        ]],
        ..SHARDS
    },
    Setup {
        name: "shards-2x2-versions",
        pinned: (23_675, 488_894),
        alphabet: &[FAN_OUTS, VERSIONS],
        ..SHARDS
    },
];
