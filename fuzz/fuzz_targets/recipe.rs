//! Lines as recipes.

#![no_main]

#[path = "../../tests/support/parsers.rs"]
#[allow(dead_code, reason = "each fuzzer needs a part of it")]
mod parsers;

libfuzzer_sys::fuzz_target!(|line: &str| {
    parsers::recipe(line);
});
