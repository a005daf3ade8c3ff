//! `Emptying`: which caches are emptied before the suballocator grows?

/// The longest pause, in times that memory runs out, before all caches are emptied again.
const LONGEST_PAUSE: u32 = 64;

/// Selects the caches that are emptied before the suballocator grows: all of them, as long as few of the emptied ones
/// miss soon.
///
/// Else the same memory goes round: an emptying helps until the emptied streams allocate again, and its cost grows with
/// the number of streams. If half of the emptied caches have missed, there is a pause, each time twice as long, in
/// which only idle caches are emptied, and the suballocator grows. Where it cannot grow there is no pause.
#[derive(Debug, Default)]
pub(super) struct Emptying {
    /// How many caches of other streams the last emptying took blocks from.
    emptied: usize,
    /// How many of these have missed since.
    came_back: usize,
    /// How often memory runs out before all caches are emptied again.
    pause: u32,
    /// How long the last pause was.
    length: u32,
    /// The last attempt to grow has failed.
    is_refused: bool,
    /// The cache to look at next.
    next: usize,
    /// The misses of the suballocator when caches were last looked at.
    misses: u64,
}

impl Emptying {
    /// Called when memory has run out. Returns `true` if all caches are to be emptied before it grows.
    pub(super) fn is_for_all(&mut self) -> bool {
        if self.is_refused {
            return true;
        }
        if self.pause == 0 && self.emptied > 0 {
            let is_regretted = 2 * self.came_back >= self.emptied;
            self.length = if is_regretted { (2 * self.length).clamp(1, LONGEST_PAUSE) } else { 0 };
            self.pause = self.length;
            (self.emptied, self.came_back) = (0, 0);
        }
        let is_pause = self.pause > 0;
        self.pause -= u32::from(is_pause);
        !is_pause
    }

    /// Notes that all caches have been emptied, and from how many of other streams blocks were taken.
    pub(super) fn note_emptied(&mut self, caches: usize) {
        (self.emptied, self.came_back) = (caches, 0);
    }

    /// Notes that an emptied cache has missed.
    pub(super) fn note_return(&mut self) {
        self.came_back += 1;
    }

    /// Notes that the suballocator cannot grow, until [`note_growth`](Self::note_growth).
    pub(super) fn note_refusal(&mut self) {
        self.is_refused = true;
    }

    /// Notes that the suballocator has grown.
    pub(super) fn note_growth(&mut self) {
        self.is_refused = false;
    }

    /// The first of `caches` caches to look at, and how many: one for each miss since the last time. So the looks cost
    /// each request a constant, and a stream that allocates in turn with all others has allocated between two looks at
    /// its cache.
    pub(super) fn next_looks(&mut self, caches: usize, misses: u64) -> (usize, usize) {
        let looks = usize::try_from(misses - self.misses).unwrap_or(caches).min(caches);
        let first = if self.next < caches { self.next } else { 0 };
        (self.next, self.misses) = ((first + looks) % caches.max(1), misses);
        (first, looks)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Whether all caches are emptied, each time that memory runs out, if `came_back` of ten caches miss.
    fn history(came_back: usize, times: usize) -> Vec<bool> {
        let mut emptying = Emptying::default();
        let mut time = || {
            let all = emptying.is_for_all();
            if all {
                emptying.note_emptied(10);
                (0..came_back).for_each(|_| emptying.note_return());
            }
            all
        };
        (0..times).map(|_| time()).collect()
    }

    #[test]
    fn all_are_emptied_while_few_come_back() {
        assert!(history(4, 100).into_iter().all(|all| all));
    }

    #[test]
    fn pauses_double_where_those_who_were_robbed_come_back() {
        let history = history(5, 2000);
        let all: Vec<usize> = (0..history.len()).filter(|time| history[*time]).collect();
        let pauses: Vec<usize> = all.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn a_pause_ends_where_nothing_can_grow() {
        let mut emptying = Emptying::default();
        for length in [1, 2, 4] {
            assert!(emptying.is_for_all());
            emptying.note_emptied(1);
            emptying.note_return();
            assert!(!emptying.is_for_all());
            emptying.note_refusal();
            assert!(emptying.is_for_all() && emptying.is_for_all());
            emptying.note_growth();
            assert!((1..length).all(|_| !emptying.is_for_all()), "the rest of the pause");
        }
    }

    #[test]
    fn each_cache_is_looked_at_once_in_as_many_misses() {
        let mut emptying = Emptying::default();
        assert_eq!(emptying.next_looks(0, 7), (0, 0));
        assert_eq!(emptying.next_looks(10, 7), (0, 0));
        assert_eq!(emptying.next_looks(10, 13), (0, 6));
        assert_eq!(emptying.next_looks(10, 19), (6, 6));
        assert_eq!(emptying.next_looks(10, 1000), (2, 10));
        assert_eq!(emptying.next_looks(1, 1001), (0, 1));
    }
}
