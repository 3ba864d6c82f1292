//! The answers do not depend on how the network cuts the bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::cuts(input));
