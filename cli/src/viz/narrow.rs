//! `Narrow`: a list of numbers, each in as few bytes as the largest needs.

/// A list of numbers, each in as few bytes as the largest of them needs: it widens when one comes that does not fit.
#[derive(Debug)]
pub(super) enum Narrow {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
}

impl Default for Narrow {
    fn default() -> Self {
        Self::One(Vec::new())
    }
}

impl Narrow {
    pub(super) fn push(&mut self, number: u64) {
        loop {
            let fits = match self {
                Self::One(list) => u8::try_from(number).map(|number| list.push(number)).is_ok(),
                Self::Two(list) => u16::try_from(number).map(|number| list.push(number)).is_ok(),
                Self::Four(list) => u32::try_from(number).map(|number| list.push(number)).is_ok(),
                Self::Eight(list) => {
                    list.push(number);
                    true
                }
            };
            if fits {
                return;
            }
            self.widen();
        }
    }

    fn widen(&mut self) {
        *self = match core::mem::take(self) {
            Self::One(list) => Self::Two(list.into_iter().map(u16::from).collect()),
            Self::Two(list) => Self::Four(list.into_iter().map(u32::from).collect()),
            Self::Four(list) => Self::Eight(list.into_iter().map(u64::from).collect()),
            Self::Eight(list) => Self::Eight(list),
        }
    }

    pub(super) fn at(&self, place: usize) -> u64 {
        match self {
            Self::One(list) => list[place].into(),
            Self::Two(list) => list[place].into(),
            Self::Four(list) => list[place].into(),
            Self::Eight(list) => list[place],
        }
    }

    pub(super) const fn len(&self) -> usize {
        match self {
            Self::One(list) => list.len(),
            Self::Two(list) => list.len(),
            Self::Four(list) => list.len(),
            Self::Eight(list) => list.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_widens_as_far_as_it_must_and_loses_nothing() {
        let mut list = Narrow::default();
        let numbers = [7, 255, 256, 3, 65_535, 65_536, 0, u64::from(u32::MAX), 1 << 32, u64::MAX];
        for (at, number) in numbers.into_iter().enumerate() {
            list.push(number);
            assert_eq!(list.len(), at + 1);
            let width = match &list {
                Narrow::One(_) => 1,
                Narrow::Two(_) => 2,
                Narrow::Four(_) => 4,
                Narrow::Eight(_) => 8,
            };
            assert_eq!(width, [1, 1, 2, 2, 2, 4, 4, 4, 8, 8][at]);
            assert!((0..=at).all(|place| list.at(place) == numbers[place]));
        }
    }
}
