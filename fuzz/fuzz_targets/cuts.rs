//! However the network cuts the bytes, the answers are the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::cuts(input));
