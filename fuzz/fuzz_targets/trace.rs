//! Bytes as logs in RMM's format.

#![no_main]

#[path = "../../tests/support/parsers.rs"]
#[allow(dead_code, reason = "each fuzzer needs a part of it")]
mod parsers;

libfuzzer_sys::fuzz_target!(|log: &[u8]| {
    parsers::trace(log);
});
