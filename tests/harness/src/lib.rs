//! What every layer of proof shares: something to ask, somebody who knows the answer, and somebody
//! to ask it of.
//!
//! - What can happen, and which request can get which reply: [`alphabet`].
//! - What must come of it: [`oracle`], which shares no code with the engine; [`lockstep`] plays the two
//!   beside each other.
//! - What is drawn of it: [`random`].
//! - How it is written: [`wording`] from a command to bytes, [`transcript`] for people.
//! - Who is asked: a [`peer`]; the core in [`memory`], or a server behind a [`socket`].
//!
//! Order of dependence: core, harness, then whoever tests with it. Nothing here knows the server.

pub mod alphabet;
pub mod lockstep;
pub mod memory;
pub mod oracle;
pub mod peer;
pub mod random;
pub mod socket;
pub mod stores;
pub mod strict;
pub mod transcript;
pub mod wording;
