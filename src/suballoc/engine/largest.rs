//! `Largest`: the longest block that was asked for of late.

/// A request is remembered for so many further ones at least, and for twice as many at most. Of the seven traces of PyTorch jobs
/// none has a larger footprint with 256 than where nothing is forgotten, to a part in two hundred.
const REMEMBERED: u32 = 256;

/// The longest block that was asked for of late. Requests that a cache served do not count: each look into the core for a long
/// block does.
#[derive(Debug, Default)]
pub(super) struct Largest {
    now: u32,
    /// Of the requests before.
    before: u32,
    /// How many there have been since `now` began.
    requests: u32,
}

impl Largest {
    /// One is asked for.
    pub(super) fn note(&mut self, units: u32) {
        if self.requests == REMEMBERED {
            (self.before, self.now, self.requests) = (self.now, 0, 0);
        }
        self.requests += 1;
        self.now = self.now.max(units);
    }

    /// The longest of them; 0 if there was none.
    pub(super) fn longest(&self) -> u32 {
        self.now.max(self.before)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_remembered_for_a_while_and_then_forgotten() {
        for earlier in 0..2 * REMEMBERED {
            let mut largest = Largest::default();
            let mut note = |units| {
                largest.note(units);
                largest.longest()
            };
            (0..earlier).for_each(|_| assert_eq!(note(300), 300));
            assert_eq!(note(1_000_000), 1_000_000);
            let remembered = (0..).take_while(|_| note(300) == 1_000_000).count();
            let (least, most) = (REMEMBERED as usize, 2 * REMEMBERED as usize);
            assert!((least..most).contains(&remembered), "{remembered} requests, after {earlier}");
        }
    }

    #[test]
    fn what_comes_again_and_again_is_never_forgotten() {
        let mut largest = Largest::default();
        for round in 0..20 {
            largest.note(5000);
            assert_eq!(largest.longest(), 5000, "round {round}");
            (1..REMEMBERED).for_each(|units| {
                largest.note(units);
                assert_eq!(largest.longest(), 5000);
            });
        }
    }
}
