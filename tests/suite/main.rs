//! Everything that takes more than one file of latchd to test.

mod properties;
