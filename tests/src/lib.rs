//! What the tests of latchd share.

pub mod differential;
pub mod generate;
pub mod memory;
pub mod oracle;
pub mod peer;
pub mod simulation;
pub mod socket;
pub mod transcript;
pub mod trial;
pub mod wording;
