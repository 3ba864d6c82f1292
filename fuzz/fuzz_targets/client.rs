//! However the answers of a server are cut, whatever they are, a client understands the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::client(input));
