//! `Sizes`: how large blocks are.

use super::random::Random;

/// A distribution of sizes, in bytes.
#[derive(Clone, Debug)]
pub(super) enum Sizes {
    /// About a median, most of them within some hundredths of a doubling.
    LogNormal { median: u64, hundredths: u64 },
    /// A few sizes again and again, each some hundredths more or less.
    Discrete { sizes: Vec<u64>, hundredths: u64 },
    /// Powers of two.
    Powers { least: u64, most: u64 },
    /// Up to 4 KiB.
    Tiny,
    /// The first so many times out of a hundred, else the second.
    Mixed(Box<(Self, Self)>, u64),
}

impl Sizes {
    /// One of the kinds, mixed at times.
    pub(super) fn any(random: &mut Random) -> Self {
        if random.chance(35) {
            let both = (Self::plain(random), Self::plain(random));
            return Self::Mixed(Box::new(both), random.between(5, 95));
        }
        Self::plain(random)
    }

    fn plain(random: &mut Random) -> Self {
        match random.weighted(&[4, 4, 2, 1]) {
            0 => Self::LogNormal {
                median: random.over_doublings(1 << 10, 8 << 20),
                hundredths: random.between(30, 250),
            },
            1 => {
                let count = random.between(4, 40);
                let most = random.over_doublings(64 << 10, 128 << 20);
                let sizes = (0..count).map(|_| random.over_doublings(512, most)).collect();
                Self::Discrete { sizes, hundredths: random.pick(&[0, 0, 1, 5, 20]) }
            }
            2 => {
                let most = random.between(16, 27);
                Self::Powers { least: 1 << 8, most: 1 << most }
            }
            _ => Self::Tiny,
        }
    }

    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        match self {
            &Self::LogNormal { median, hundredths } => {
                random.log_normal(median, hundredths).min(median.saturating_mul(64))
            }
            Self::Discrete { sizes, hundredths } => {
                let size = sizes[random.below(sizes.len() as u64) as usize];
                random.near(size, *hundredths)
            }
            &Self::Powers { least, most } => {
                1 << random.between(u64::from(least.ilog2()), u64::from(most.ilog2()))
            }
            Self::Tiny => random.between(1, 4096),
            Self::Mixed(both, percent) => {
                if random.chance(*percent) {
                    both.0.draw(random)
                } else {
                    both.1.draw(random)
                }
            }
        }
    }
}
