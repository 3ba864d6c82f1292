//! No sequence of calls makes the log do what a store may not, nor the reference.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::store(input));
