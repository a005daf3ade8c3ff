//! `Largest`: the longest recent request.

/// A request is remembered for at least this many further ones, and for at most twice as many. With 256, none of the
/// seven traces of PyTorch jobs has a larger footprint than with unlimited memory of requests, to a part in two
/// hundred.
const REMEMBERED: u32 = 256;

/// The longest recent request for a long block. Only searches in the core count, and not requests that a cache served.
#[derive(Debug, Default)]
pub(super) struct Largest {
    now: u32,
    /// The longest of the period before.
    before: u32,
    /// The requests since the period of `now` began.
    requests: u32,
}

impl Largest {
    /// Notes a request.
    pub(super) fn note(&mut self, units: u32) {
        if self.requests == REMEMBERED {
            (self.before, self.now, self.requests) = (self.now, 0, 0);
        }
        self.requests += 1;
        self.now = self.now.max(units);
    }

    /// The longest recent request; 0 if there was none.
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
