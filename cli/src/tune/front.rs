//! `Front`: what nothing else beats in both time and footprint.

use alluvion::recipe::Recipe;

use crate::replay::Outcome;

/// A stack that was tried.
#[derive(Clone, Debug)]
pub(super) struct Point<C> {
    pub(super) candidate: C,
    pub(super) recipe: Recipe,
    pub(super) outcome: Outcome,
}

impl<C> Point<C> {
    /// What the driver would have charged.
    pub(super) fn charged_ns(&self) -> u64 {
        self.outcome.charged_ns.unwrap_or_default()
    }

    /// Neither slower nor larger than the other, and no longer to write down where both are equal.
    fn beats(&self, other: &Self) -> bool {
        let mine = (self.charged_ns(), self.outcome.total.peak_reserved_bytes);
        let theirs = (other.charged_ns(), other.outcome.total.peak_reserved_bytes);
        if mine == theirs {
            let length = |point: &Self| point.recipe.to_string().len();
            return length(self) <= length(other);
        }
        mine.0 <= theirs.0 && mine.1 <= theirs.1
    }
}

/// What nothing else beats in both time and footprint, the fastest first.
#[derive(Clone, Debug)]
pub(super) struct Front<C> {
    points: Vec<Point<C>>,
}

impl<C> Front<C> {
    pub(super) fn new() -> Self {
        Self { points: Vec::new() }
    }

    pub(super) fn points(&self) -> &[Point<C>] {
        &self.points
    }

    /// Takes it in, unless another beats it.
    pub(super) fn offer(&mut self, point: Point<C>) {
        if self.points.iter().any(|other| other.beats(&point)) {
            return;
        }
        self.points.retain(|other| !point.beats(other));
        self.points.push(point);
        self.points.sort_by_key(|point| (point.charged_ns(), point.outcome.total.peak_reserved_bytes));
    }

    /// The one with the least product of time and footprint: half the time is worth twice the memory. `events` is how many the
    /// trace has.
    pub(super) fn balanced(&self, events: usize) -> Option<usize> {
        let product = |point: &Point<C>| {
            let ns = point.charged_ns() as f64 / events.max(1) as f64;
            (ns + OWN_NS_PER_EVENT) * point.outcome.total.peak_reserved_bytes as f64
        };
        let points = &self.points;
        (0..points.len()).min_by(|a, b| product(&points[*a]).total_cmp(&product(&points[*b])))
    }
}

/// What an event takes beside the driver's calls: without it, a stack that asks the driver for nothing would win at any size. A
/// pool's pair of calls takes 30 ns on the host of an H200 (`alluvion bench pair`).
const OWN_NS_PER_EVENT: f64 = 15.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Share;

    fn point(name: &'static str, recipe: &str, charged: u64, reserved: u64) -> Point<&'static str> {
        let outcome = Outcome {
            first_ns_per_event: 1.0,
            ns_per_event: 1.0,
            first_failure: None,
            charged_ns: Some(charged),
            total: Share { peak_live_bytes: 1, peak_reserved_bytes: reserved, ..Share::default() },
            devices: Vec::new(),
        };
        Point { candidate: name, recipe: recipe.parse().unwrap(), outcome }
    }

    fn names(front: &Front<&'static str>) -> Vec<&'static str> {
        front.points().iter().map(|point| point.candidate).collect()
    }

    #[test]
    fn what_is_beaten_is_not_on_the_front() {
        let mut front = Front::new();
        front.offer(point("middle", "pool", 50, 50));
        front.offer(point("worse", "pool", 60, 60));
        front.offer(point("slow", "cuda", 100, 10));
        front.offer(point("fast", "arena", 10, 100));
        front.offer(point("longer to write", "pool | pool", 50, 50));
        assert_eq!(names(&front), ["fast", "middle", "slow"]);
        front.offer(point("shorter to write", "", 50, 50));
        assert_eq!(names(&front), ["fast", "shorter to write", "slow"]);
        front.offer(point("best", "pool", 10, 10));
        assert_eq!(names(&front), ["best"]);
    }

    #[test]
    fn the_balanced_one_has_the_least_product() {
        let mut front = Front::new();
        assert_eq!(front.balanced(1), None);
        front.offer(point("fast", "pool", 0, 1000));
        assert_eq!(front.balanced(1), Some(0));
        front.offer(point("both", "pool", 25, 300));
        front.offer(point("small", "pool", 100_000, 299));
        assert_eq!(front.balanced(1), Some(1));
        assert_eq!(front.balanced(1000), Some(1), "time counts by the event");
    }
}
