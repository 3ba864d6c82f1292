//! The models of locks, of wins, of all requests, and of two shards of items.
//!
//! With two shards, each key is in one of its own, and one lock manager serves both: the rules that a server with several
//! threads runs. A server lets threads take turns between the steps of `engine/shards.rs`;
//! `shell/server/verify/scheduled/` shows its own code under a scheduler.

use crate::setup::{Setup, of};
use crate::verb::{Verb, verbs};

/// Connections come and go, acquire locks and release them.
const OWNERSHIP: &[Verb] = verbs![
    Do(Open Close) Plain(Lock LockAndGet Unlock UnlockAll) Late(Lock)
];

/// Items come, change and go.
const CHANGES: &[Verb] = verbs![
    Plain(Set Add Append Increment ReplaceAndUnlock SetTooLarge Delete)
];

/// An item that is marked stale; locks do not change that. Two clients settle how locks and the
/// mark interact.
const MARK: &[Verb] = verbs![Plain(MarkStale)];

/// Changes that need the version.
const VERSIONS: &[Verb] = verbs![Plain(Get Cas ReplaceAndUnlockCas DeleteCas)];

/// Locks of keys, and requests in their right.
const KEY_LOCKS: &[Verb] = verbs![
    Plain(Acquire AcquireItem Release ReleaseFenced ReleaseGrant SetFenced DeleteFenced SetAndUnlock
    AcquireLeased TakeLeaseOff)
];

/// Requests that concern these, and no others.
const AROUND_KEY_LOCKS: &[Verb] = verbs![
    Do(Open Close) Late(Acquire) Plain(Lock Unlock UnlockAll Set SetTooLarge Delete)
];

/// The effects of time.
const TIME: &[Verb] = verbs![Expiring(Set) Plain(Touch) Do(Pass Tick StepBack)];

/// The effects of a flush, at once or later.
const FLUSH: &[Verb] = verbs![Plain(FlushAll) Later(FlushAll)];

/// A lack of memory.
const PRESSURE: &[Verb] = verbs![Do(Pressure)];

/// Requests for a win, and events that open it.
const WINS: &[Verb] = verbs![
    Do(Open Close) Plain(MetaGet Get Vivify Recache CasElseStale) Ahead(CasElseStale) Plain(Cas
    Set) Expiring(Set) Plain(MarkStale Clear ClearAndMarkStale Delete Touch) Do(Pass Tick)
    Plain(FlushAll) Later(FlushAll)
];

/// Further changes of an item.
const MORE: &[Verb] = verbs![Chosen(Set) Plain(Add Replace Append Increment SetTooLarge DeleteCas)];

/// Locks, which do not affect wins.
const LOCKS: &[Verb] = verbs![Plain(Lock Unlock LockAndGet ReplaceAndUnlock)];

/// Connections come and go, and time passes.
const AROUND: &[Verb] = verbs![
    Do(Open Close) Late(Lock LockAndGet) Do(Pass Tick StepBack WallClock)
];

/// Every kind of request about one item.
const REQUESTS: &[Verb] = verbs![
    Plain(Get Touch LockAndGet MetaGet Vivify Recache Set Cas CasElseStale Add Replace ReplaceCas
    ReplaceAndUnlock ReplaceAndUnlockCas Append AppendCas AppendElseCreate AppendElseCreateCas
    Prepend PrependCas PrependElseCreate PrependElseCreateCas SetTooLarge Delete DeleteCas
    MarkStale MarkStaleCas Clear ClearCas ClearAndMarkStale ClearAndMarkStaleCas Increment
    IncrementCas IncrementElseCreate IncrementElseCreateCas Decrement DecrementCas
    DecrementElseCreate DecrementElseCreateCas Lock Unlock Acquire AcquireItem AcquireLeased TakeLeaseOff Release ReleaseFenced
    ReleaseGrant SetFenced SetAndUnlock DeleteFenced DeleteAndUnlock CountFenced CountAndUnlock)
];

/// Every kind of request about all of them.
const ABOUT_ALL: &[Verb] = verbs![Plain(UnlockAll FlushAll Keys Stats StatsReset)];

/// The same kinds in another manner.
const MANNERS: &[Verb] = verbs![
    Known(MetaGet Vivify Recache SetFenced SetAndUnlock DeleteAndUnlock CountAndUnlock)
    Late(Acquire AcquireItem AcquireLeased) Expiring(Set SetFenced SetAndUnlock MarkStale Clear ClearAndMarkStale) Later(FlushAll)
];

/// Requests that make items, for which there is no room beside a held one.
const MAKING: &[Verb] = verbs![
    Plain(Set Add Vivify AppendElseCreate AppendElseCreateCas PrependElseCreate
    PrependElseCreateCas IncrementElseCreate IncrementElseCreateCas DecrementElseCreate
    DecrementElseCreateCas)
];

/// Requests that make an item longer, for which there is no room at all; or too long, which is no
/// question of room.
const GROWING: &[Verb] = verbs![
    Long(Set Cas CasElseStale Replace ReplaceCas ReplaceAndUnlock ReplaceAndUnlockCas Append
    AppendCas AppendElseCreate AppendElseCreateCas Prepend PrependCas PrependElseCreate
    PrependElseCreateCas Increment IncrementCas)
];

/// Requests for locks and wins, where there is no room.
const HOLDING: &[Verb] = verbs![
    Do(Open Close) Plain(Lock Unlock Get Delete Acquire Release SetFenced SetAndUnlock)
    Long(CountFenced CountAndUnlock)
];

/// Every command that has to do with locks.
const EVERY_LOCK: &[&[Verb]] = &[OWNERSHIP, CHANGES, MARK, VERSIONS, TIME, FLUSH];

/// Every command that has to do with wins.
const EVERY_WIN: &[&[Verb]] = &[WINS, MORE];

/// Wins and locks at once.
const LOCKS_AND_WINS: &[&[Verb]] = &[
    WINS,
    MORE,
    LOCKS,
    verbs![Plain(UnlockAll ReplaceAndUnlockCas)],
];

/// Every kind of request.
const EVERY_REQUEST: &[&[Verb]] = &[AROUND, REQUESTS, ABOUT_ALL, MANNERS];

/// All of them. One with fewer clients than another and the same verbs is there only if it is small: planted bugs are found
/// in it first.
pub(crate) const ALL: &[Setup] = &[
    of("locks-2x1", [2, 1], (703, 26_424), EVERY_LOCK),
    of("locks-3x1", [3, 1], (1603, 84_691), EVERY_LOCK),
    of(
        "locks-2x2-settled-1",
        [2, 2],
        (53_667, 3_767_349),
        &[OWNERSHIP, CHANGES, VERSIONS, TIME, FLUSH],
    )
    .settling_one(),
    of("locks-3x2", [3, 2], (436_202, 46_623_970), EVERY_LOCK),
    of(
        "locks-4x2",
        [4, 2],
        (3695, 312_003),
        &[OWNERSHIP, CHANGES, MARK, TIME, FLUSH],
    ),
    of(
        "locks-4x2-room-1",
        [4, 2],
        (64_496, 7_891_774),
        &[OWNERSHIP, CHANGES, VERSIONS, TIME, FLUSH, PRESSURE],
    )
    .with_room_for(1),
    of(
        "locks-2x2-room-2",
        [2, 2],
        (18_486, 972_184),
        &[
            OWNERSHIP,
            CHANGES,
            TIME,
            FLUSH,
            PRESSURE,
            verbs![Plain(Get)],
        ],
    )
    .with_room_for(2),
    of(
        "key-locks-2x1",
        [2, 1],
        (1413, 65_669),
        &[
            AROUND_KEY_LOCKS,
            KEY_LOCKS,
            VERSIONS,
            TIME,
            FLUSH,
            verbs![Plain(Vivify)],
        ],
    ),
    of(
        "key-locks-4x1",
        [4, 1],
        (379, 21_432),
        &[AROUND_KEY_LOCKS, KEY_LOCKS, TIME, FLUSH],
    ),
    of(
        "key-locks-3x2",
        [3, 2],
        (1067, 89_211),
        &[AROUND_KEY_LOCKS, KEY_LOCKS, TIME],
    ),
    of(
        "locks-2x2-max-1",
        [2, 2],
        (1643, 107_630),
        &[
            OWNERSHIP,
            CHANGES,
            TIME,
            FLUSH,
            verbs![Plain(Acquire AcquireItem AcquireLeased)],
        ],
    )
    .holding_one(),
    of("stampede-2x1", [2, 1], (1733, 65_902), EVERY_WIN).lasting_two(),
    of("stampede-3x1", [3, 1], (4034, 229_018), EVERY_WIN).lasting_two(),
    of("stampede-4x1", [4, 1], (7966, 601_580), EVERY_WIN).lasting_two(),
    of("stampede-3x2", [3, 2], (306_058, 25_003_004), &[WINS]).lasting_two(),
    of(
        "stampede-2x2-room-1",
        [2, 2],
        (15_084, 779_612),
        &[WINS, verbs![Do(Pressure)]],
    )
    .with_room_for(1)
    .lasting_two(),
    of("everything-2x1", [2, 1], (7240, 372_216), LOCKS_AND_WINS).lasting_two(),
    of(
        "everything-3x1",
        [3, 1],
        (19_680, 1_470_659),
        LOCKS_AND_WINS,
    )
    .lasting_two(),
    of("commands-2x1", [2, 1], (6477, 790_902), EVERY_REQUEST),
    of("commands-3x1", [3, 1], (15_507, 2_669_055), EVERY_REQUEST),
    of(
        "commands-2x2-room-1",
        [2, 2],
        (12_341, 1_521_028),
        &[HOLDING, MAKING, GROWING],
    )
    .with_room_for(1),
    of(
        "locks-2x2-shards-2",
        [2, 2],
        (70_169, 5_213_966),
        EVERY_LOCK,
    )
    .over_two_shards(),
    of(
        "locks-2x2-settled-1-shards-2",
        [2, 2],
        (53_667, 3_767_349),
        &[OWNERSHIP, CHANGES, VERSIONS, TIME, FLUSH],
    )
    .settling_one()
    .over_two_shards(),
    of(
        "locks-4x2-shards-2",
        [4, 2],
        (3695, 312_003),
        &[OWNERSHIP, CHANGES, MARK, TIME, FLUSH],
    )
    .over_two_shards(),
    of(
        "locks-2x2-room-2-shards-2",
        [2, 2],
        (16_952, 912_671),
        &[
            OWNERSHIP,
            CHANGES,
            TIME,
            FLUSH,
            PRESSURE,
            verbs![Plain(Get)],
        ],
    )
    .with_room_for(2)
    .over_two_shards(),
    of(
        "locks-2x2-max-1-shards-2",
        [2, 2],
        (1643, 107_630),
        &[
            OWNERSHIP,
            CHANGES,
            TIME,
            FLUSH,
            verbs![Plain(Acquire AcquireItem AcquireLeased)],
        ],
    )
    .holding_one()
    .over_two_shards(),
    of(
        "key-locks-3x2-shards-2",
        [3, 2],
        (4937, 438_985),
        &[AROUND_KEY_LOCKS, KEY_LOCKS, TIME, FLUSH],
    )
    .over_two_shards(),
    of(
        "stampede-2x2-shards-2",
        [2, 2],
        (72_521, 3_960_022),
        &[WINS],
    )
    .lasting_two()
    .over_two_shards(),
];
