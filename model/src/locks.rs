//! The models of locks: who holds what, through death, expiry, flushes and want of room.

use crate::setup::{Room, Setup};
use crate::verb::{Verb, verbs};

/// Connections come and go, take locks and give them back.
const OWNERSHIP: &[Verb] = verbs![
    Do(Open Close) Plain(Lock LockAndGet Unlock UnlockAll) Late(Lock)
];

/// Items come, change and go.
const CHANGES: &[Verb] = verbs![
    Plain(Set Add Append Increment ReplaceAndUnlock SetTooLarge Delete)
];

/// An item that is marked stale, which locks have nothing to do with: what a lock has to say to
/// the mark is settled with two clients.
const MARK: &[Verb] = verbs![Plain(MarkStale)];

/// Changes that want to know the version.
const VERSIONS: &[Verb] = verbs![Plain(Get Cas ReplaceAndUnlockCas DeleteCas)];

/// Locks of keys, and what is done in their right.
const KEY_LOCKS: &[Verb] = verbs![
    Plain(Acquire AcquireItem Release ReleaseFenced SetFenced DeleteFenced SetAndUnlock
    AcquireLeased TakeLeaseOff)
];

/// What has to do with these, and nothing else.
const AROUND_KEY_LOCKS: &[Verb] = verbs![
    Do(Open Close) Late(Acquire) Plain(Lock Unlock UnlockAll Set SetTooLarge Delete)
];

/// What time does.
const TIME: &[Verb] = verbs![Expiring(Set) Plain(Touch) Do(Pass Tick StepBack)];

/// What a flush does, at once or later.
const FLUSH: &[Verb] = verbs![Plain(FlushAll) Later(FlushAll)];

/// Want of room.
const PRESSURE: &[Verb] = verbs![Do(Pressure)];

/// A lock model with all the memory there is; the others differ from it.
const LOCKS: Setup = Setup {
    name: "locks-2x1",
    pinned: (720, 26_526),
    about: "every command that has to do with locks",
    clients: 2,
    keys: 1,
    shards: 1,
    room: Room::Ample,
    ttl_s: 1,
    locks_max: 8,
    settled_max: 16,
    alphabet: &[OWNERSHIP, CHANGES, MARK, VERSIONS, TIME, FLUSH],
};

/// The models of locks.
pub(crate) const ALL: &[Setup] = &[
    LOCKS,
    Setup {
        name: "locks-3x1",
        pinned: (1620, 84_810),
        clients: 3,
        ..LOCKS
    },
    Setup {
        name: "locks-2x2",
        pinned: (71_816, 5_277_479),
        keys: 2,
        ..LOCKS
    },
    Setup {
        name: "locks-2x2-settled-1",
        pinned: (45_550, 3_097_594),
        about: "locks that end many at once, and are let go of one at a time",
        keys: 2,
        settled_max: 1,
        alphabet: &[OWNERSHIP, CHANGES, VERSIONS, TIME, FLUSH],
        ..LOCKS
    },
    Setup {
        name: "locks-3x2",
        pinned: (437_849, 46_689_130),
        clients: 3,
        keys: 2,
        ..LOCKS
    },
    Setup {
        name: "locks-4x2",
        pinned: (4030, 320_122),
        about: "who holds what, among four clients",
        clients: 4,
        keys: 2,
        alphabet: &[OWNERSHIP, CHANGES, MARK, TIME, FLUSH],
        ..LOCKS
    },
    Setup {
        name: "locks-4x2-room-1",
        pinned: (64_558, 7_892_394),
        about: "locks with room for one item",
        clients: 4,
        keys: 2,
        room: Room::Items(1),
        alphabet: &[OWNERSHIP, CHANGES, VERSIONS, TIME, FLUSH, PRESSURE],
        ..LOCKS
    },
    Setup {
        name: "locks-2x2-room-2",
        pinned: (16_904, 792_488),
        about: "locks with room for two items: eviction passes over what is held",
        keys: 2,
        room: Room::Items(2),
        alphabet: &[
            OWNERSHIP,
            CHANGES,
            TIME,
            FLUSH,
            PRESSURE,
            verbs![Plain(Get)],
        ],
        ..LOCKS
    },
    Setup {
        name: "key-locks-2x1",
        pinned: (1443, 63_459),
        about: "locks of keys, with an item or without, and what is done in their right",
        alphabet: &[
            AROUND_KEY_LOCKS,
            KEY_LOCKS,
            VERSIONS,
            TIME,
            FLUSH,
            verbs![Plain(Vivify)],
        ],
        ..LOCKS
    },
    Setup {
        name: "key-locks-4x1",
        pinned: (401, 20_688),
        about: "locks of keys, among four clients",
        clients: 4,
        alphabet: &[AROUND_KEY_LOCKS, KEY_LOCKS, TIME, FLUSH],
        ..LOCKS
    },
    Setup {
        name: "key-locks-3x2",
        pinned: (1246, 89_465),
        about: "locks of two keys, among three clients",
        clients: 3,
        keys: 2,
        alphabet: &[AROUND_KEY_LOCKS, KEY_LOCKS, TIME],
        ..LOCKS
    },
    Setup {
        name: "locks-2x2-max-1",
        pinned: (2354, 133_496),
        about: "a connection may hold one lock",
        keys: 2,
        locks_max: 1,
        alphabet: &[
            OWNERSHIP,
            CHANGES,
            TIME,
            FLUSH,
            verbs![Plain(Acquire AcquireItem AcquireLeased)],
        ],
        ..LOCKS
    },
];
