//! A client understands any answers of a server in the same way, however they are cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| latchd_fuzz::client(input));
