//! Every interleaving of locks and wins, within bounds, on the real core of latchd.
#![warn(missing_docs)]

mod action;
mod beliefs;
mod canonical;
mod client;
pub mod election;
mod expected;
mod frame;
pub mod grants;
pub mod invariants;
pub mod lease;
mod models;
pub mod pairs;
mod reply_seen;
mod rules;
pub mod search;
pub mod sessions;
pub mod setup;
mod snapshot;
mod transcript;
pub mod verb;
pub mod waits;
pub mod world;

pub use frame::{Framed, Named, Offence, Outcome, Shown, rule};
pub use setup::Setup;

/// The models of locks and wins: no request waits.
pub fn unwaited() -> impl Iterator<Item = &'static dyn Framed> {
    models::ALL.iter().map(|setup| setup as &dyn Framed)
}

/// The models of waiting clients: for locks, and for values.
pub fn waited() -> impl Iterator<Item = &'static dyn Framed> {
    waits::ALL.iter().map(|bounds| bounds as &dyn Framed)
}

/// The models of sessions.
pub fn of_sessions() -> impl Iterator<Item = &'static dyn Framed> {
    sessions::ALL.iter().map(|bounds| bounds as &dyn Framed)
}

/// The models of the client's locks on latchd.
pub fn of_grants() -> impl Iterator<Item = &'static dyn Framed> {
    grants::ALL.iter().map(|bounds| bounds as &dyn Framed)
}

/// The names of the models that take less than a minute together, on two processors: at least one of each kind.
pub const QUICK: [&str; 25] = [
    "locks-2x1",
    "locks-3x1",
    "locks-4x2",
    "locks-2x2-max-1",
    "locks-2x2-room-2",
    "key-locks-2x1",
    "key-locks-4x1",
    "key-locks-3x2",
    "stampede-2x1",
    "stampede-3x1",
    "stampede-4x1",
    "everything-2x1",
    "commands-2x1",
    "locks-2x2-max-1-shards-2",
    "key-locks-3x2-shards-2",
    "waits-3x1",
    "waits-4x1",
    "waits-3x2-shards-2",
    "shares-3x2-shards-2",
    "gets-2x1",
    "gets-3x1",
    "sessions-2x2x1",
    "grants-revoked",
    "lease-stopped",
    "election-leaves",
];

/// Every model.
pub fn every() -> impl Iterator<Item = &'static dyn Framed> {
    let leases = lease::ALL.iter().map(|bounds| bounds as &dyn Framed);
    let elections = election::ALL.iter().map(|bounds| bounds as &dyn Framed);
    all().chain(leases).chain(elections)
}

/// Every model but those of leases and elections.
pub fn all() -> impl Iterator<Item = &'static dyn Framed> {
    unwaited()
        .chain(waited())
        .chain(of_sessions())
        .chain(of_grants())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_models_are_of_each_kind() {
        let kind = |name: &'static str| name.split('-').next();
        let quick = || every().filter(|model| QUICK.contains(&model.name()));
        assert_eq!(quick().count(), QUICK.len());
        for model in every() {
            let is_kind = |quick: &dyn Framed| kind(quick.name()) == kind(model.name());
            assert!(quick().any(is_kind), "{}", model.name());
        }
    }
}
