//! What the tests of latchd share.

pub mod generate;
pub mod oracle;
pub mod trial;
