//! `Random`: numbers to choose by, the same on every platform.

/// SplitMix64: good enough to choose by, and the same for one seed everywhere. What is drawn from it is whole numbers only,
/// because the logarithms of two platforms may differ in the last bit.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x6A09_E667_F3BC_C909 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // The upper half of the product: no division, and as even as 64 bits allow.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `least` to `most`, both included.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// `true` so many times out of a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A place in a list of weights, the more likely the larger its weight.
    pub(super) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (at, &weight) in weights.iter().enumerate() {
            if left < weight {
                return at;
            }
            left -= weight;
        }
        weights.len() - 1
    }

    /// A number from `least`, which is not 0, to `most`: every doubling between the two is as likely as every other.
    pub(super) fn over_doublings(&mut self, least: u64, most: u64) -> u64 {
        let octave = self.between(u64::from(least.ilog2()), u64::from(most.ilog2()));
        let first = 1 << octave;
        (first + self.below(first)).clamp(least, most)
    }

    /// A number whose logarithm is spread normally about that of `median`: two thirds of all are less than `hundredths`
    /// hundredths of a doubling away from it. At least 1.
    pub(super) fn log_normal(&mut self, median: u64, hundredths: u64) -> u64 {
        // The sum of twelve even numbers has the variance of one of them, times twelve: here 1, in 65536ths.
        let sum: i64 = (0..12).map(|_| (self.next() >> 48) as i64).sum();
        let doublings = (sum - (6 << 16)) * hundredths as i64 / 100;
        // Between two powers of two a straight line: at most 6% above the curve.
        let mantissa = u128::from(median) * (65_536 + (doublings & 0xFFFF) as u128);
        let shifted = match (doublings >> 16).clamp(-40, 40) {
            up @ 0.. => mantissa << up,
            down => mantissa >> -down,
        };
        u64::try_from(shifted >> 16).unwrap_or(u64::MAX).max(1)
    }

    /// The number, up to so many hundredths less or more.
    pub(super) fn near(&mut self, number: u64, hundredths: u64) -> u64 {
        let span = number / 100 * hundredths + number % 100 * hundredths / 100;
        number - span + self.below(2 * span + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_on_every_platform() {
        let mut random = Random::new(7);
        let drawn =
            [random.next(), random.below(1000), random.between(5, 9), random.log_normal(1 << 20, 150)];
        assert_eq!(drawn, [3_153_748_568_015_004_923, 871, 7, 1_726_864]);
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut random = Random::new(1);
        let (mut least, mut most) = (u64::MAX, 0);
        for _ in 0..2000 {
            let drawn = random.between(3, 12);
            (least, most) = (least.min(drawn), most.max(drawn));
            assert!((100..=5000).contains(&random.over_doublings(100, 5000)));
            assert!((80..=120).contains(&random.near(100, 20)));
            assert!(random.weighted(&[0, 5, 0, 1]) % 2 == 1);
        }
        assert_eq!((least, most), (3, 12));
    }

    #[test]
    fn a_normal_logarithm_is_spread_about_its_median() {
        let mut random = Random::new(2);
        let drawn: Vec<u64> = (0..10_000).map(|_| random.log_normal(1 << 20, 100)).collect();
        let part = |least: u64, most: u64| drawn.iter().filter(|&&n| (least..most).contains(&n)).count();
        assert!((4800..5200).contains(&part(0, 1 << 20)), "{}", part(0, 1 << 20));
        // One doubling either way: two thirds.
        assert!((6600..7050).contains(&part(1 << 19, 1 << 21)), "{}", part(1 << 19, 1 << 21));
        assert!(part(1 << 22, u64::MAX) > 100);
    }
}
