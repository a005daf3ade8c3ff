//! The core beside plain data: after random calls, after all short programs, and in the cases that were hard to decide.

mod bounds;
mod decisions;
mod filled;
mod model;
mod programs;
mod ranges;
mod verify;

/// The random programs of a test: 64, and 256 in a night, when `ci/night` sets `PROPTEST_CASES` to 1024.
fn trials() -> u32 {
    (proptest::test_runner::Config::default().cases / 4).max(1)
}
