//! `History`: the last accesses to each byte, for the race detector.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::clock::Point;
use super::hazard::{Access, AccessMode};

/// A history is first swept of accesses that can no longer race when it has this many spans, and then each time it has doubled
/// since the last sweep.
const FIRST_SWEEP: usize = 256;

/// Bytes with the same last accesses.
#[derive(Clone, Debug)]
struct HistorySpan {
    end: u64,
    write: Option<Arc<Access>>,
    /// The reads since the last write, none ordered before another.
    reads: SmallVec<[Arc<Access>; 2]>,
}

/// For each byte of a backing, its last write and the reads since.
#[derive(Debug)]
pub(super) struct History {
    spans: BTreeMap<u64, HistorySpan>,
    sweep_at: usize,
}

impl Default for History {
    fn default() -> Self {
        Self { spans: BTreeMap::new(), sweep_at: FIRST_SWEEP }
    }
}

fn is_ordered(access: &Access, ordered: &dyn Fn(Point) -> bool) -> bool {
    access.point.is_none_or(ordered)
}

impl History {
    /// Adds an access. `ordered` says which points it comes after; conflicting accesses that are not ordered are added to `found`,
    /// once.
    pub(super) fn note(
        &mut self,
        start: u64,
        end: u64,
        access: &Arc<Access>,
        ordered: &dyn Fn(Point) -> bool,
        found: &mut Vec<Arc<Access>>,
    ) {
        self.split(start);
        self.split(end);
        if access.mode == AccessMode::Read {
            self.note_read(start, end, access, ordered, found);
        } else {
            self.note_write(start, end, access, ordered, found);
        }
    }

    /// The accesses to the range that are not ordered.
    pub(super) fn unordered(
        &self,
        start: u64,
        end: u64,
        ordered: &dyn Fn(Point) -> bool,
    ) -> Vec<Arc<Access>> {
        let mut found = Vec::new();
        let first = self.spans.range(..=start).next_back().map_or(start, |(&first, _)| first);
        for (_, span) in self.spans.range(first..end).filter(|(_, span)| span.end > start) {
            for access in span.write.iter().chain(&span.reads) {
                add_unordered(access, ordered, &mut found);
            }
        }
        found
    }

    /// Clears the range, for a new owner.
    pub(super) fn clear(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        for key in self.keys(start, end) {
            self.spans.remove(&key);
        }
    }

    /// Removes accesses that all later work is ordered after, if a sweep is due.
    pub(super) fn sweep(&mut self, is_observed: &dyn Fn(Point) -> bool) {
        if self.spans.len() < self.sweep_at {
            return;
        }
        self.remove(&|access| is_ordered(access, is_observed));
        self.sweep_at = FIRST_SWEEP.max(2 * self.spans.len());
    }

    /// Removes the accesses of some work.
    pub(super) fn forget(&mut self, is_meant: &dyn Fn(Point) -> bool) {
        self.remove(&|access| access.point.is_some_and(is_meant));
    }

    fn remove(&mut self, is_meant: &dyn Fn(&Access) -> bool) {
        self.spans.retain(|_, span| {
            span.write.take_if(|access| is_meant(access));
            span.reads.retain(|access| !is_meant(access));
            span.write.is_some() || !span.reads.is_empty()
        });
    }

    fn note_write(
        &mut self,
        start: u64,
        end: u64,
        access: &Arc<Access>,
        ordered: &dyn Fn(Point) -> bool,
        found: &mut Vec<Arc<Access>>,
    ) {
        for key in self.keys(start, end) {
            let Some(span) = self.spans.remove(&key) else { continue };
            for other in span.write.iter().chain(&span.reads) {
                add_unordered(other, ordered, found);
            }
        }
        let write = Some(Arc::clone(access));
        self.spans.insert(start, HistorySpan { end, write, reads: SmallVec::new() });
    }

    fn note_read(
        &mut self,
        start: u64,
        end: u64,
        access: &Arc<Access>,
        ordered: &dyn Fn(Point) -> bool,
        found: &mut Vec<Arc<Access>>,
    ) {
        let fresh = |end| {
            let mut reads = SmallVec::new();
            reads.push(Arc::clone(access));
            HistorySpan { end, write: None, reads }
        };
        let mut at = start;
        for key in self.keys(start, end) {
            if key > at {
                self.spans.insert(at, fresh(key));
            }
            let Some(span) = self.spans.get_mut(&key) else { continue };
            if let Some(write) = &span.write {
                add_unordered(write, ordered, found);
            }
            // Work after this read also comes after the reads before it.
            span.reads.retain(|other| !is_ordered(other, ordered));
            span.reads.push(Arc::clone(access));
            at = span.end;
        }
        if at < end {
            self.spans.insert(at, fresh(end));
        }
    }

    fn keys(&self, start: u64, end: u64) -> SmallVec<[u64; 8]> {
        if start < end {
            self.spans.range(start..end).map(|(&key, _)| key).collect()
        } else {
            SmallVec::new()
        }
    }

    fn split(&mut self, at: u64) {
        if let Some((_, span)) = self.spans.range_mut(..at).next_back()
            && span.end > at
        {
            let tail = span.clone();
            span.end = at;
            self.spans.insert(at, tail);
        }
    }
}

fn add_unordered(access: &Arc<Access>, ordered: &dyn Fn(Point) -> bool, found: &mut Vec<Arc<Access>>) {
    if !is_ordered(access, ordered) && !found.iter().any(|known| known.point == access.point) {
        found.push(Arc::clone(access));
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::LaneId;
    use super::super::hazard::StreamLabel;
    use super::super::process::ProcessId;
    use super::*;

    fn access(lane: u32, mode: AccessMode) -> Arc<Access> {
        Arc::new(Access {
            operation: "test".into(),
            process: ProcessId::FIRST,
            stream: StreamLabel::Host,
            address: 0,
            bytes: 0,
            mode,
            submission: u64::from(lane),
            point: Some(Point { lane: LaneId(lane), sequence: 1 }),
        })
    }

    /// Notes an access of a lane that is ordered after the lanes in `after`; returns the lanes that it races with.
    fn note(
        history: &mut History,
        range: (u64, u64),
        lane: u32,
        mode: AccessMode,
        after: &[u32],
    ) -> Vec<u32> {
        let mut found = Vec::new();
        let ordered = |point: Point| after.contains(&point.lane.0);
        history.note(range.0, range.1, &access(lane, mode), &ordered, &mut found);
        found.iter().map(|access| access.submission as u32).collect()
    }

    #[test]
    fn unordered_writes_race_and_ordered_ones_do_not() {
        let mut history = History::default();
        assert!(note(&mut history, (0, 10), 1, AccessMode::Write, &[]).is_empty());
        assert_eq!(note(&mut history, (9, 20), 2, AccessMode::Write, &[]), [1]);
        assert!(note(&mut history, (10, 20), 3, AccessMode::Write, &[2]).is_empty());
        assert_eq!(note(&mut history, (0, 20), 4, AccessMode::Write, &[]), [1, 2, 3]);
    }

    #[test]
    fn reads_race_with_writes_only() {
        let mut history = History::default();
        assert!(note(&mut history, (0, 10), 1, AccessMode::Read, &[]).is_empty());
        assert!(note(&mut history, (5, 15), 2, AccessMode::Read, &[]).is_empty());
        assert_eq!(note(&mut history, (12, 13), 3, AccessMode::Write, &[]), [2]);
        assert_eq!(note(&mut history, (0, 12), 4, AccessMode::Write, &[1]), [2]);
        assert_eq!(note(&mut history, (0, 13), 5, AccessMode::Read, &[4]), [3]);
    }

    #[test]
    fn a_cleared_range_has_no_past() {
        let mut history = History::default();
        note(&mut history, (0, 30), 1, AccessMode::Write, &[]);
        history.clear(10, 20);
        assert!(note(&mut history, (10, 20), 2, AccessMode::Write, &[]).is_empty());
        assert_eq!(note(&mut history, (0, 10), 3, AccessMode::Read, &[]), [1]);
        let unordered = history.unordered(15, 25, &|point| point.lane.0 == 2);
        assert_eq!(unordered.len(), 1);
    }

    #[test]
    fn a_sweep_keeps_what_can_still_race() {
        let mut history = History::default();
        for index in 0..FIRST_SWEEP as u64 {
            note(&mut history, (2 * index, 2 * index + 1), (index % 2) as u32, AccessMode::Write, &[]);
        }
        history.sweep(&|point| point.lane.0 == 0);
        assert_eq!(history.spans.len(), FIRST_SWEEP / 2);
        assert_eq!(note(&mut history, (0, 4), 7, AccessMode::Read, &[]), [1]);
    }
}
