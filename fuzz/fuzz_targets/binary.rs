//! No packets break a connection that speaks binary, or the core behind it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::binary(input));
