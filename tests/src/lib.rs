//! What the tests of latchd share.

pub mod abuse;
pub mod differential;
pub mod linear;
pub mod simulation;
