//! `Checksum`: a number that changes when contents do.

/// Words that are mixed side by side: a product takes four cycles, and one begins in each.
const LANES: usize = 8;
const STRIPE: usize = LANES * size_of::<u64>();

/// Odd, so that a product by it loses nothing: of two contents that differ in one word the lanes differ.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finds damage, and no forgery: whoever writes a file can write its checksum. Not a CRC, because contents of gigabytes are read once
/// more for it: 8 lanes of multiplications keep up with memory.
#[derive(Clone, Debug)]
pub(super) struct Checksum {
    lanes: [u64; LANES],
    /// What does not fill a stripe yet.
    rest: [u8; STRIPE],
    filled: usize,
    bytes: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        // Different, so that equal words in different places are told apart.
        let lanes = core::array::from_fn(|lane| FACTOR.wrapping_mul(2 * lane as u64 + 1));
        Self { lanes, rest: [0; STRIPE], filled: 0, bytes: 0 }
    }
}

impl Checksum {
    /// Of these bytes alone.
    pub(super) fn of(bytes: &[u8]) -> u64 {
        let mut sum = Self::default();
        sum.add(bytes);
        sum.value()
    }

    /// The bytes that follow those so far.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let mut bytes = bytes;
        if self.filled > 0 {
            let more = bytes.len().min(STRIPE - self.filled);
            self.rest[self.filled..self.filled + more].copy_from_slice(&bytes[..more]);
            (self.filled, bytes) = (self.filled + more, &bytes[more..]);
            if self.filled < STRIPE {
                return;
            }
            mix(&mut self.lanes, &self.rest);
            self.filled = 0;
        }
        let (stripes, rest) = bytes.as_chunks::<STRIPE>();
        let mut lanes = self.lanes;
        stripes.iter().for_each(|stripe| mix(&mut lanes, stripe));
        self.lanes = lanes;
        self.rest[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    pub(super) fn value(&self) -> u64 {
        let mut lanes = self.lanes;
        let mut rest = [0; STRIPE];
        rest[..self.filled].copy_from_slice(&self.rest[..self.filled]);
        mix(&mut lanes, &rest);
        // The length tells zeros at the end from none.
        lanes.iter().fold(self.bytes, |sum, lane| (sum ^ lane).wrapping_mul(FACTOR).rotate_left(31))
    }
}

#[inline]
fn mix(lanes: &mut [u64; LANES], stripe: &[u8; STRIPE]) {
    let (words, _) = stripe.as_chunks::<8>();
    for (lane, word) in lanes.iter_mut().zip(words) {
        *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 31 + at / 7) as u8).collect()
    }

    #[test]
    fn it_is_of_the_bytes_and_not_of_how_they_came() {
        for bytes in [0, 1, 63, 64, 65, 1000] {
            let (whole, content) = (Checksum::of(&some(bytes)), some(bytes));
            for part in [1, 7, 64, 65, 999] {
                let mut sum = Checksum::default();
                content.chunks(part).for_each(|part| sum.add(part));
                assert_eq!(sum.value(), whole, "{bytes} bytes in parts of {part}");
            }
        }
    }

    #[test]
    fn it_tells_every_changed_byte_every_length_and_every_exchange_of_words() {
        let content = some(200);
        let whole = Checksum::of(&content);
        for at in 0..content.len() {
            for bit in 0..8 {
                let mut damaged = content.clone();
                damaged[at] ^= 1 << bit;
                assert_ne!(Checksum::of(&damaged), whole, "bit {bit} of byte {at}");
            }
        }
        let sums: std::collections::HashSet<u64> =
            (0..300).map(|zeros| Checksum::of(&vec![0; zeros])).collect();
        assert_eq!(sums.len(), 300);
        for (one, other) in [(0, 8), (0, 64), (8, 72)] {
            let mut exchanged = content.clone();
            for at in 0..8 {
                exchanged.swap(one + at, other + at);
            }
            assert_ne!(Checksum::of(&exchanged), whole, "{one} and {other}");
        }
    }
}
