//! What the tests of latchd share.

pub mod peer;
pub mod socket;
pub mod transcript;
