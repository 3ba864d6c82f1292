//! No sequence of operations breaks an invariant of the core or gets a reply it cannot get.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::tally::events(input));
