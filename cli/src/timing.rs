//! Medians of times.

use std::time::Instant;

use crate::failure::Failure;

pub(crate) fn ns_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9
}

/// The middle of an odd number of values; the upper one of the two in the middle of an even number.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median, over seven rounds of `count` operations, of nanoseconds an operation.
pub(crate) fn per_operation(
    count: usize,
    mut operation: impl FnMut() -> Result<(), alluvion::Error>,
) -> Result<f64, Failure> {
    let mut rounds = Vec::with_capacity(7);
    for _ in 0..7 {
        let start = Instant::now();
        for _ in 0..count {
            operation()?;
        }
        rounds.push(ns_since(start) / count as f64);
    }
    Ok(median(rounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert_eq!(median(vec![5.0, 1.0, 3.0]).to_bits(), 3.0_f64.to_bits());
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]).to_bits(), 3.0_f64.to_bits());
        assert!(median(Vec::new()).is_nan());
    }
}
