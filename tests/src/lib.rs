//! The shared parts of latchd's tests.

pub mod abuse;
pub mod differential;
pub mod linear;
pub mod simulation;
