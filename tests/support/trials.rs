//! How much is tried: a part each time that the tests run, and all of it in a night.

#![allow(dead_code, reason = "some tests need a part of it")]

use proptest::test_runner::Config;

/// `PROPTEST_CASES` in a night, which `ci/night` sets. proptest itself takes a quarter of that where nobody says otherwise.
const OF_A_NIGHT: u32 = 1024;

/// How many cases a test tries that has so many in a night. Each run draws others, unless its test says otherwise, and a case that has
/// failed is kept in a file and tried first.
pub(crate) fn trials(of_a_night: u32) -> u32 {
    let cases = u64::from(of_a_night) * u64::from(Config::default().cases) / u64::from(OF_A_NIGHT);
    u32::try_from(cases).unwrap_or(u32::MAX).max(1)
}

/// Returns `true` where everything is tried that a night has time for: a test of all programs of a length has no share of them.
pub(crate) fn is_night() -> bool {
    Config::default().cases >= OF_A_NIGHT
}
