//! What must not compile, and what the compiler says then.
//!
//! One folder a kind of promise: `lifetime` (nothing outlives what it names), `access` (who may touch a block),
//! `thread` (what stays on its thread), `transfer` (the host keeps its hands off memory in flight), `stack` (what a
//! stack can be asked for). Each file opens with the sentence of the documentation that it proves. The expected
//! output belongs to the compiler that rust-toolchain.toml names; `TRYBUILD=overwrite cargo test --features testing
//! --test ui` writes it anew, for a person to read.

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/ui/*/*.rs");
}
