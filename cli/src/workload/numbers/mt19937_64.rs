//! `Mt19937_64`: `std::mt19937_64`.

const LENGTH: usize = 312;
const MIDDLE: usize = 156;

/// The 64-bit Mersenne Twister.
#[derive(Clone, Debug)]
pub(crate) struct Mt19937_64 {
    state: [u64; LENGTH],
    next: usize,
}

impl Mt19937_64 {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = [seed; LENGTH];
        for at in 1..LENGTH {
            let before = state[at - 1];
            state[at] =
                (before ^ (before >> 62)).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at as u64);
        }
        Self { state, next: LENGTH }
    }

    #[cold]
    fn twist(&mut self) {
        const UPPER: u64 = !0 << 31;
        for at in 0..LENGTH {
            // Compared and not taken modulo: two divisions a number would be more than all the rest.
            let after = if at + 1 < LENGTH { at + 1 } else { 0 };
            let far = if at < LENGTH - MIDDLE { at + MIDDLE } else { at - (LENGTH - MIDDLE) };
            let word = (self.state[at] & UPPER) | (self.state[after] & !UPPER);
            let odd = if word & 1 == 0 { 0 } else { 0xb502_6f5a_a966_19e9 };
            self.state[at] = self.state[far] ^ (word >> 1) ^ odd;
        }
        self.next = 0;
    }

    #[inline]
    pub(crate) fn draw(&mut self) -> u64 {
        if self.next == LENGTH {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= (word >> 29) & 0x5555_5555_5555_5555;
        word ^= (word << 17) & 0x71d6_7fff_eda6_0000;
        word ^= (word << 37) & 0xfff7_eee0_0000_0000;
        word ^ (word >> 43)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_thousandth_number_of_the_default_seed_is_the_one_that_the_standard_names() {
        let mut engine = Mt19937_64::new(5489);
        let last = (0..10_000).map(|_| engine.draw()).last();
        assert_eq!(last, Some(9_981_545_732_273_789_042));
    }
}
