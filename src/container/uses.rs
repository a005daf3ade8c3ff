//! `Uses`: the uses of a block by other streams than its home.

use smallvec::SmallVec;

use super::access::Access;
use crate::stream::{Epoch, Stamp, StreamId};

/// A stream that uses the block: another one than the home, or the home while a guard of it is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) stream: StreamId,
    /// Its last use that is over for the host: submitted, and no guard is left.
    pub(super) epoch: Epoch,
    /// Guards that are out, or were leaked. While there is one, the use lasts up to whatever the stream has come to.
    pub(super) open: u32,
    /// One of its uses since it was entered wrote.
    pub(super) wrote: bool,
}

/// The uses that the home stream does not follow yet. The usual program has one: its home computes and another stream
/// copies, or the other way round. Room for more would be moved with every container: 24 bytes each.
pub(super) type Due = SmallVec<[Use; 1]>;

/// More uses than this are looked through for some that are over. Eight are more than a program has streams at work
/// on one block, and few enough to look through at each further use.
const CROWD: usize = 8;

/// The streams that use a block, one entry each. What ended on the home needs none.
#[derive(Debug, Default)]
pub(super) struct Uses {
    entries: Due,
    /// A graph may use the block, at any time.
    pub(super) in_a_graph: bool,
}

impl Uses {
    /// What must come before an access: reads follow writes, writes follow everything.
    pub(super) fn due(&self, access: Access) -> Due {
        self.entries.iter().filter(|used| used.wrote || access == Access::Write).copied().collect()
    }

    /// Enters a use that ended at `stamp`.
    pub(super) fn note(&mut self, stamp: Stamp, access: Access) {
        let used = self.entry(stamp.stream);
        used.epoch = used.epoch.max(stamp.epoch);
        used.wrote |= access == Access::Write;
    }

    /// Enters a use that has no end yet.
    pub(super) fn open(&mut self, stream: StreamId, access: Access) {
        let used = self.entry(stream);
        // Guards can be leaked without end, and a count that came round would let the block go under them.
        used.open = used.open.saturating_add(1);
        used.wrote |= access == Access::Write;
    }

    /// Ends a use that was opened, at `end`; without one, its stream is gone and all of its work over. What ended on the
    /// home needs no entry.
    pub(super) fn close(&mut self, stream: StreamId, end: Option<Epoch>, home: StreamId) {
        let Some(at) = self.entries.iter().position(|used| used.stream == stream) else { return };
        let used = &mut self.entries[at];
        if used.open == u32::MAX {
            // Nobody knows how many there are.
            return;
        }
        used.open = used.open.saturating_sub(1);
        used.epoch = end.map_or(used.epoch, |end| used.epoch.max(end));
        if used.open == 0 && stream == home {
            self.entries.swap_remove(at);
        }
    }

    /// Drops the uses that somebody has waited for who is in here himself, or is the home. One that has gone on since
    /// is kept, and so is one that is open.
    pub(super) fn forget(&mut self, waited: &Due) {
        self.entries.retain(|used| used.open > 0 || !waited.contains(used));
    }

    /// The uses that are not open, if there are many.
    pub(super) fn crowd(&self) -> Due {
        if self.entries.len() <= CROWD {
            return Due::new();
        }
        self.entries.iter().filter(|used| used.open == 0).copied().collect()
    }

    fn entry(&mut self, stream: StreamId) -> &mut Use {
        let at = match self.entries.iter().position(|used| used.stream == stream) {
            Some(at) => at,
            None => {
                self.entries.push(Use { stream, epoch: Epoch(0), open: 0, wrote: false });
                self.entries.len() - 1
            }
        };
        &mut self.entries[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(index: u32, epoch: u64) -> Stamp {
        Stamp { stream: StreamId::new(3, index), epoch: Epoch(epoch) }
    }

    fn streams(due: &Due) -> Vec<u32> {
        due.iter().map(|used| used.stream.index()).collect()
    }

    #[test]
    fn reads_follow_writes_and_writes_follow_everything() {
        let mut uses = Uses::default();
        uses.note(stamp(1, 4), Access::Read);
        uses.note(stamp(2, 5), Access::Write);
        assert_eq!(streams(&uses.due(Access::Read)), [2]);
        assert_eq!(streams(&uses.due(Access::Write)), [1, 2]);
    }

    #[test]
    fn a_stream_that_wrote_and_then_read_still_has_to_be_waited_for() {
        let mut uses = Uses::default();
        uses.note(stamp(1, 4), Access::Write);
        uses.note(stamp(1, 6), Access::Read);
        let due = uses.due(Access::Read);
        assert_eq!((due.len(), due[0].epoch), (1, Epoch(6)));
    }

    #[test]
    fn what_was_waited_for_goes_unless_it_has_gone_on() {
        let mut uses = Uses::default();
        uses.note(stamp(1, 4), Access::Read);
        uses.note(stamp(2, 4), Access::Read);
        let waited = uses.due(Access::Write);
        uses.note(stamp(2, 5), Access::Read);
        uses.forget(&waited);
        assert_eq!(streams(&uses.due(Access::Write)), [2]);
    }

    #[test]
    fn a_crowd_is_more_than_eight() {
        let mut uses = Uses::default();
        uses.open(StreamId::new(3, 0), Access::Read);
        (1..8).for_each(|index| uses.note(stamp(index, 1), Access::Read));
        assert!(uses.crowd().is_empty());
        uses.note(stamp(8, 1), Access::Read);
        assert_eq!(streams(&uses.crowd()), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn an_open_use_is_never_forgotten() {
        let mut uses = Uses::default();
        uses.open(StreamId::new(3, 1), Access::Read);
        uses.forget(&uses.due(Access::Write));
        assert_eq!(uses.due(Access::Write)[0].open, 1);
        uses.close(StreamId::new(3, 1), Some(Epoch(9)), StreamId::new(3, 0));
        let due = uses.due(Access::Write);
        assert_eq!((due[0].open, due[0].epoch), (0, Epoch(9)));
        uses.forget(&due);
        assert!(uses.due(Access::Write).is_empty());
    }

    #[test]
    fn what_ended_on_the_home_needs_no_entry() {
        let (mut uses, home) = (Uses::default(), StreamId::new(3, 1));
        uses.open(home, Access::Read);
        uses.open(home, Access::Write);
        uses.close(home, Some(Epoch(2)), home);
        assert_eq!(uses.due(Access::Write)[0].open, 1);
        uses.close(home, Some(Epoch(2)), home);
        assert!(uses.due(Access::Write).is_empty());
    }

    #[test]
    fn more_guards_than_can_be_counted_stay_for_ever() {
        let (mut uses, stream) = (Uses::default(), StreamId::new(3, 1));
        uses.open(stream, Access::Read);
        uses.entries[0].open = u32::MAX - 1;
        (0..3).for_each(|_| uses.open(stream, Access::Read));
        (0..3).for_each(|_| uses.close(stream, Some(Epoch(1)), StreamId::new(3, 0)));
        assert_eq!(uses.due(Access::Write)[0].open, u32::MAX);
    }
}
