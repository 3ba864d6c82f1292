//! The parts that every layer of verification shares: requests, an oracle that knows the answers,
//! and peers that answer.
//!
//! - The possible events, and the possible replies to each request: [`alphabet`].
//! - The expected results: [`oracle`], which shares no code with the engine; [`lockstep`] plays the
//!   two beside each other.
//! - Random draws of events: [`random`].
//! - How it is written: [`wording`] from a command to bytes, [`transcript`] for people.
//! - The peers that are tested: a [`peer`]; the core in [`memory`], or a server behind a
//!   [`socket`].
//!
//! Order of dependence: core, harness, then the tests. Nothing here knows the server.

pub mod alphabet;
pub mod lockstep;
pub mod memory;
pub mod oracle;
pub mod peer;
pub mod random;
pub mod socket;
pub mod stores;
pub mod transcript;
pub mod wording;
