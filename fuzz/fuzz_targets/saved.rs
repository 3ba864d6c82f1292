//! Any bytes taken for a file of items are refused whole or read as they were written.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::saved(input));
