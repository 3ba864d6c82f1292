//! No bytes break a connection that speaks classic text, or the core behind it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::classic(input));
