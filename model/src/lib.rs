//! Every interleaving of locks and wins, within bounds, on the real core of latchd.
#![warn(missing_docs)]

mod action;
mod beliefs;
mod canonical;
mod client;
pub mod election;
mod expected;
mod frame;
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

/// Every model but those of leases and elections.
pub fn all() -> impl Iterator<Item = &'static dyn Framed> {
    unwaited().chain(waited()).chain(of_sessions())
}
