//! No sequence of calls makes the log or the reference break a rule of stores.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::store(input));
