//! The models of everything that can be asked: every kind of request that there is, so that every
//! pair of a request and a reply is seen in some interleaving.

use latchd_harness::alphabet::RequestKind as Kind;

use crate::setup::{Counts, Room, Setup};
use crate::verb::{Manner, Verb, ask};

/// Connections come and go, and time does.
const AROUND: &[Verb] = &[
    Verb::Open,
    Verb::Close,
    Verb::Late(Kind::Lock),
    Verb::Late(Kind::LockAndGet),
    Verb::Pass,
    Verb::Tick,
    Verb::StepBack,
    Verb::WallClock,
];

/// Every kind of request about one item.
const REQUESTS: &[Verb] = &[
    ask(Kind::Get),
    ask(Kind::Touch),
    ask(Kind::LockAndGet),
    ask(Kind::MetaGet),
    ask(Kind::Vivify),
    ask(Kind::Recache),
    ask(Kind::Set),
    ask(Kind::Cas),
    ask(Kind::CasElseStale),
    ask(Kind::Add),
    ask(Kind::Replace),
    ask(Kind::ReplaceCas),
    ask(Kind::ReplaceAndUnlock),
    ask(Kind::ReplaceAndUnlockCas),
    ask(Kind::Append),
    ask(Kind::AppendCas),
    ask(Kind::AppendElseCreate),
    ask(Kind::AppendElseCreateCas),
    ask(Kind::Prepend),
    ask(Kind::PrependCas),
    ask(Kind::PrependElseCreate),
    ask(Kind::PrependElseCreateCas),
    ask(Kind::SetTooLarge),
    ask(Kind::Delete),
    ask(Kind::DeleteCas),
    ask(Kind::MarkStale),
    ask(Kind::MarkStaleCas),
    ask(Kind::Clear),
    ask(Kind::ClearCas),
    ask(Kind::ClearAndMarkStale),
    ask(Kind::ClearAndMarkStaleCas),
    ask(Kind::Increment),
    ask(Kind::IncrementCas),
    ask(Kind::IncrementElseCreate),
    ask(Kind::IncrementElseCreateCas),
    ask(Kind::Decrement),
    ask(Kind::DecrementCas),
    ask(Kind::DecrementElseCreate),
    ask(Kind::DecrementElseCreateCas),
    ask(Kind::Lock),
    ask(Kind::Unlock),
];

/// Every kind of request about all of them.
const ABOUT_ALL: &[Verb] = &[
    ask(Kind::UnlockAll),
    ask(Kind::FlushAll),
    ask(Kind::Keys),
    ask(Kind::Stats),
    ask(Kind::StatsReset),
];

/// The same kinds in another manner.
const MANNERS: &[Verb] = &[
    Verb::Ask(Kind::MetaGet, Manner::Known),
    Verb::Ask(Kind::Vivify, Manner::Known),
    Verb::Ask(Kind::Recache, Manner::Known),
    Verb::Ask(Kind::Set, Manner::Expiring),
    Verb::Ask(Kind::MarkStale, Manner::Expiring),
    Verb::Ask(Kind::Clear, Manner::Expiring),
    Verb::Ask(Kind::ClearAndMarkStale, Manner::Expiring),
    Verb::Ask(Kind::FlushAll, Manner::Later),
];

/// What makes items, for which there is no room beside one that is held.
const MAKING: &[Verb] = &[
    ask(Kind::Set),
    ask(Kind::Add),
    ask(Kind::Vivify),
    ask(Kind::AppendElseCreate),
    ask(Kind::AppendElseCreateCas),
    ask(Kind::PrependElseCreate),
    ask(Kind::PrependElseCreateCas),
    ask(Kind::IncrementElseCreate),
    ask(Kind::IncrementElseCreateCas),
    ask(Kind::DecrementElseCreate),
    ask(Kind::DecrementElseCreateCas),
];

/// What makes an item longer, for which there is no room at all; or too long, which is no question
/// of room.
const GROWING: &[Verb] = &[
    Verb::Ask(Kind::Set, Manner::Long),
    Verb::Ask(Kind::Cas, Manner::Long),
    Verb::Ask(Kind::CasElseStale, Manner::Long),
    Verb::Ask(Kind::Replace, Manner::Long),
    Verb::Ask(Kind::ReplaceCas, Manner::Long),
    Verb::Ask(Kind::ReplaceAndUnlock, Manner::Long),
    Verb::Ask(Kind::ReplaceAndUnlockCas, Manner::Long),
    Verb::Ask(Kind::Append, Manner::Long),
    Verb::Ask(Kind::AppendCas, Manner::Long),
    Verb::Ask(Kind::AppendElseCreate, Manner::Long),
    Verb::Ask(Kind::AppendElseCreateCas, Manner::Long),
    Verb::Ask(Kind::Prepend, Manner::Long),
    Verb::Ask(Kind::PrependCas, Manner::Long),
    Verb::Ask(Kind::PrependElseCreate, Manner::Long),
    Verb::Ask(Kind::PrependElseCreateCas, Manner::Long),
    Verb::Ask(Kind::Increment, Manner::Long),
    Verb::Ask(Kind::IncrementCas, Manner::Long),
];

/// Who can hold what, where there is no room.
const HOLDING: &[Verb] = &[
    Verb::Open,
    Verb::Close,
    ask(Kind::Lock),
    ask(Kind::Unlock),
    ask(Kind::Get),
    ask(Kind::Delete),
];

/// Everything that can be asked.
const COMMANDS: Setup = Setup {
    name: "commands-2x1",
    pinned: Counts {
        states: 2666,
        transitions: 226_984,
    },
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
        pinned: Counts {
            states: 6106,
            transitions: 749_386,
        },
        clients: 3,
        ..COMMANDS
    },
    Setup {
        name: "commands-2x2-room-1",
        pinned: Counts {
            states: 1134,
            transitions: 102_480,
        },
        about: "what makes and what lengthens items, with room for one",
        keys: 2,
        room: Room::Items(1),
        alphabet: &[HOLDING, MAKING, GROWING],
        ..COMMANDS
    },
];
