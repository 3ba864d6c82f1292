//! Every interleaving of locks and wins, within bounds, on the real core of latchd.
#![warn(missing_docs)]

mod action;
mod beliefs;
mod canonical;
mod client;
mod commands;
mod expected;
pub mod explore;
pub mod fault;
mod frame;
pub mod gets;
pub mod invariants;
pub mod lease;
mod locks;
pub mod pairs;
mod reply_seen;
pub mod report;
mod rules;
pub mod search;
pub mod setup;
mod shards;
mod snapshot;
mod stampede;
mod transcript;
pub mod verb;
pub mod waits;
pub mod world;

pub use action::Action;
pub use explore::Explored;
pub use frame::{Framed, Outcome};
pub use setup::Setup;
pub use verb::Verb;

/// Every model.
pub fn all() -> impl Iterator<Item = &'static Setup> {
    [locks::ALL, stampede::ALL, commands::ALL, shards::ALL]
        .into_iter()
        .flatten()
}

/// Every model of those who wait: for locks, and for values.
pub fn framed() -> impl Iterator<Item = &'static dyn Framed> {
    let of_locks = waits::ALL.iter().map(|bounds| bounds as &dyn Framed);
    of_locks.chain(gets::ALL.iter().map(|bounds| bounds as &dyn Framed))
}
