//! Wrong variants of the core's rules, each of which a model must find.
//!
//! A proof that finds nothing may be one that looks at nothing. So each variant of [`Bug`] is
//! planted in the core, and the models are searched, in the order of [`SEARCHED`], for the shortest
//! way to see it. Which model finds it, and in how many steps, is pinned.

use latchd_core::Core;
use latchd_core::engine::SeededBug as Bug;

use crate::explore::Explored;
use crate::search::{Offence, shortest_offence};
use crate::setup::Setup;

/// The models that are searched, the small ones first.
const SEARCHED: &[&str] = &[
    "locks-2x1",
    "stampede-2x1",
    "locks-2x2-max-1",
    "locks-2x2-room-2",
    "shards-2x2",
    "commands-2x1",
    "locks-2x2",
];

/// How many states of a model are looked at. Every bug shows long before.
const STATES_MAX: usize = 100_000;

/// A bug, the model that finds it, and the number of steps that it takes to see it.
pub type Pinned = (Bug, &'static str, usize);

/// Every bug.
pub const ALL: &[Pinned] = &[
    (Bug::CloseKeepsLocks, "locks-2x1", 2),
    (Bug::ReleaseAllStopsAtFirst, "locks-2x2-room-2", 5),
    (Bug::UnlockByAnother, "locks-2x1", 5),
    (Bug::RelockSucceeds, "locks-2x1", 4),
    (Bug::LockIsStolen, "locks-2x1", 4),
    (Bug::DeadTakesLock, "locks-2x1", 3),
    (Bug::LocksUnbounded, "locks-2x2-max-1", 5),
    (Bug::LockAndGetForgetsLock, "locks-2x1", 3),
    (Bug::ReadsBlocked, "locks-2x1", 5),
    (Bug::SetIgnoresLock, "locks-2x1", 5),
    (Bug::DeleteIgnoresLock, "locks-2x1", 5),
    (Bug::CountIgnoresLock, "locks-2x1", 5),
    (Bug::TooLargeIgnoresLock, "locks-2x1", 5),
    (Bug::RauIgnoresOwner, "locks-2x1", 3),
    (Bug::RauKeepsLock, "locks-2x1", 4),
    (Bug::RauUnlocksWhenRefused, "locks-2x1", 5),
    (Bug::DeleteLeavesLock, "locks-2x1", 4),
    (Bug::EvictsHeld, "locks-2x2-room-2", 6),
    (Bug::ExpiresHeld, "locks-2x1", 5),
    (Bug::FlushDropsHeld, "locks-2x1", 4),
    (Bug::FlushForgetsHeld, "locks-2x1", 5),
    (Bug::StoreStaysDoomed, "locks-2x1", 5),
    (Bug::FlushIgnoresDelay, "locks-2x1", 2),
    (Bug::NothingExpires, "locks-2x1", 4),
    (Bug::TimeGoesBack, "locks-2x1", 4),
    (Bug::VivifiedWonTwice, "stampede-2x1", 3),
    (Bug::ShortWonTwice, "stampede-2x1", 5),
    (Bug::StaleWonTwice, "locks-2x1", 2),
    (Bug::StoreKeepsWin, "stampede-2x1", 4),
    (Bug::PlainGetTakesWin, "locks-2x1", 4),
    (Bug::MarkKeepsWin, "stampede-2x1", 2),
    (Bug::MarkKeepsVersion, "locks-2x1", 3),
    (Bug::ClearOpensWin, "stampede-2x1", 4),
    (Bug::StaleStoreLooksFresh, "stampede-2x1", 4),
    (Bug::StaleStoreOpensWin, "stampede-2x1", 7),
    (Bug::StaleStoreTakesTtl, "stampede-2x1", 4),
    (Bug::FutureStored, "stampede-2x1", 3),
    (Bug::GuardIgnored, "locks-2x1", 5),
    (Bug::RefusalTakesVersion, "locks-2x1", 2),
    (Bug::VersionGivenTwice, "locks-2x1", 3),
    (Bug::AddOverwrites, "locks-2x1", 3),
    (Bug::AppendMakesItem, "locks-2x1", 2),
    (Bug::MadeNumberLives, "commands-2x1", 2),
    (Bug::KnownIgnored, "commands-2x1", 3),
    (Bug::ListForgetsHeld, "commands-2x1", 4),
    (Bug::ShardsShareVersions, "shards-2x2", 2),
];

/// How a bug was found.
#[derive(Clone, Debug)]
pub struct Caught {
    /// By which model.
    pub setup: &'static Setup,
    /// In which way.
    pub offence: Offence,
}

/// How a bug was found, compared with how it is pinned.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// By that model, in that many steps.
    AsPinned(Caught),
    /// Another way, or not at all.
    Otherwise(Option<Caught>),
}

/// Looks for a bug, and compares how it was found.
#[must_use]
pub fn verdict((bug, name, steps): &Pinned) -> Verdict {
    match catch(*bug) {
        Some(caught) if caught.setup.name == *name && caught.offence.steps.len() == *steps => {
            Verdict::AsPinned(caught)
        }
        other => Verdict::Otherwise(other),
    }
}

/// Looks for a bug in one model after the other.
#[must_use]
pub fn catch(bug: Bug) -> Option<Caught> {
    SEARCHED.iter().find_map(|name| {
        let setup = crate::all()
            .find(|setup| setup.name == *name)
            .expect("it is the name of a model");
        let model = with_bug(setup, bug);
        shortest_offence(&model, STATES_MAX)
            .err()
            .map(|offence| Caught { setup, offence })
    })
}

/// A model on a core that gets one rule wrong.
#[must_use]
pub fn with_bug(setup: &Setup, bug: Bug) -> Explored {
    let cores = (0..setup.shards).map(|shard| {
        let mut config = setup.config(shard);
        config.seeded_bug = Some(bug);
        Core::new(config)
    });
    Explored::with_cores(setup.clone(), cores.collect())
}
