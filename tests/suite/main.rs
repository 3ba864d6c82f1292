//! The tests of latchd that are not beside the code they test.

mod cores;
mod corpus;
mod differential;
mod layout;
mod linear;
mod rows;
mod simulation;
mod transcripts;
mod wording;
