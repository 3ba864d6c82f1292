//! The models of everything that can be asked: every kind of request that there is, so that every
//! pair of a request and a reply is seen in some interleaving.

use crate::setup::{Room, Setup};
use crate::verb::{Verb, verbs};

/// Connections come and go, and time does.
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
    SetFenced SetAndUnlock DeleteFenced DeleteAndUnlock CountFenced CountAndUnlock)
];

/// Every kind of request about all of them.
const ABOUT_ALL: &[Verb] = verbs![Plain(UnlockAll FlushAll Keys Stats StatsReset)];

/// The same kinds in another manner.
const MANNERS: &[Verb] = verbs![
    Known(MetaGet Vivify Recache SetFenced SetAndUnlock DeleteAndUnlock CountAndUnlock)
    Late(Acquire AcquireItem AcquireLeased) Expiring(Set SetFenced SetAndUnlock MarkStale Clear ClearAndMarkStale) Later(FlushAll)
];

/// What makes items, for which there is no room beside one that is held.
const MAKING: &[Verb] = verbs![
    Plain(Set Add Vivify AppendElseCreate AppendElseCreateCas PrependElseCreate
    PrependElseCreateCas IncrementElseCreate IncrementElseCreateCas DecrementElseCreate
    DecrementElseCreateCas)
];

/// What makes an item longer, for which there is no room at all; or too long, which is no question
/// of room.
const GROWING: &[Verb] = verbs![
    Long(Set Cas CasElseStale Replace ReplaceCas ReplaceAndUnlock ReplaceAndUnlockCas Append
    AppendCas AppendElseCreate AppendElseCreateCas Prepend PrependCas PrependElseCreate
    PrependElseCreateCas Increment IncrementCas)
];

/// Who can hold what, where there is no room.
const HOLDING: &[Verb] = verbs![
    Do(Open Close) Plain(Lock Unlock Get Delete Acquire Release SetFenced SetAndUnlock)
    Long(CountFenced CountAndUnlock)
];

/// Everything that can be asked.
const COMMANDS: Setup = Setup {
    name: "commands-2x1",
    pinned: (6597, 781_180),
    about: "every kind of request that there is",
    clients: 2,
    keys: 1,
    shards: 1,
    room: Room::Ample,
    ttl_s: 1,
    locks_max: 8,
    settled_max: 16,
    alphabet: &[AROUND, REQUESTS, ABOUT_ALL, MANNERS],
};

/// The models of commands.
pub(crate) const ALL: &[Setup] = &[
    COMMANDS,
    Setup {
        name: "commands-3x1",
        pinned: (15_627, 2_632_440),
        clients: 3,
        ..COMMANDS
    },
    Setup {
        name: "commands-2x2-room-1",
        pinned: (10_631, 1_212_798),
        about: "what makes and what lengthens items, with room for one",
        keys: 2,
        room: Room::Items(1),
        alphabet: &[HOLDING, MAKING, GROWING],
        ..COMMANDS
    },
];
