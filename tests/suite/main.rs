//! The tests of latchd that are not beside the code they test.

mod differential;
mod properties;
mod transcripts;
