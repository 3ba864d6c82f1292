//! Whatever is taken for a file of items is refused whole or read as it was written.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::saved(input));
