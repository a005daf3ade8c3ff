//! `Uniform`: `std::uniform_int_distribution` as libstdc++ has it.

use super::MinstdRand0;

/// Numbers from `low` to `high`, both included, all equally likely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uniform {
    low: u64,
    /// How far `high` is above `low`.
    range: u64,
}

impl Uniform {
    /// `high` is not below `low`.
    pub(crate) const fn new(low: u64, high: u64) -> Self {
        Self { low, range: high.wrapping_sub(low) }
    }

    #[inline]
    pub(crate) fn draw(self, engine: &mut MinstdRand0) -> u64 {
        self.low.wrapping_add(Self::below(self.range, engine))
    }

    fn below(range: u64, engine: &mut MinstdRand0) -> u64 {
        let given = MinstdRand0::MAX - MinstdRand0::MIN;
        if given > range {
            let scale = given / (range + 1);
            let past = (range + 1) * scale;
            loop {
                let drawn = engine.draw() - MinstdRand0::MIN;
                if drawn < past {
                    return drawn / scale;
                }
            }
        }
        if given == range {
            return engine.draw() - MinstdRand0::MIN;
        }
        loop {
            let high = (given + 1).wrapping_mul(Self::below(range / (given + 1), engine));
            let drawn = high.wrapping_add(engine.draw() - MinstdRand0::MIN);
            if drawn <= range && drawn >= high {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What g++ 12 prints for the thousandth number from 1 to each of these, one after the other from one engine.
    const OF_GPP: [(u64, u64); 6] = [
        (99, 25),
        (999, 757),
        (1 << 20, 11_552),
        (4096 << 20, 1_101_159_986),
        (2_147_483_646, 1_257_801_809),
        (u64::MAX, 16_685_487_024_044_751_227),
    ];

    #[test]
    fn numbers_are_those_of_gpp() {
        let mut engine = MinstdRand0::default();
        for (high, thousandth) in OF_GPP {
            let numbers = Uniform::new(1, high);
            let last = (0..1000).map(|_| numbers.draw(&mut engine)).last();
            assert_eq!(last, Some(thousandth), "1 to {high}");
        }
        let operations = Uniform::new(0, 99);
        assert_eq!((0..1000).map(|_| operations.draw(&mut engine)).last(), Some(79));
        let sizes = Uniform::new(1, 4096 << 20);
        assert_eq!((0..100_000).map(|_| sizes.draw(&mut engine)).sum::<u64>(), 215_300_252_709_624);
    }
}
