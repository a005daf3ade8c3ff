//! `MinstdRand0`: `std::minstd_rand0`, which is g++'s `std::default_random_engine`.

/// A linear congruential engine: x ← 16807 x mod 2³¹ − 1.
#[derive(Clone, Debug)]
pub(crate) struct MinstdRand0(u64);

impl Default for MinstdRand0 {
    fn default() -> Self {
        Self(1)
    }
}

impl MinstdRand0 {
    pub(crate) const MIN: u64 = 1;
    pub(crate) const MAX: u64 = 0x7fff_fffe;

    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0 * 16807 % 0x7fff_ffff;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_thousandth_number_is_the_one_that_the_standard_names() {
        let mut engine = MinstdRand0::default();
        let last = (0..10_000).map(|_| engine.draw()).last();
        assert_eq!(last, Some(1_043_618_065));
    }
}
