//! No lines break a connection that speaks meta text, or the core behind it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::meta(input));
