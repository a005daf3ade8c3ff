//! The core against a plain list of intervals.

use super::*;
use crate::stream::{Epoch, StreamId};

#[test]
fn what_a_stream_gives_back_is_one_segment_again() {
    let mut core = Core::new();
    let s = core.enter(StreamId::new(1, 1));
    core.add_segment(0x1000_0000, 1000);
    core.verify();
    let a = core.allocate(s, 10, 1, &[]).unwrap();
    let b = core.allocate(s, 10, 16, &[]).unwrap();
    core.verify();
    core.release(a.address, s, Epoch(1)).unwrap();
    core.verify();
    let mut out = smallvec::SmallVec::new();
    core.allocate_run(s, 100, 16, &mut out).unwrap();
    core.verify();
    for a in out {
        core.release(a, s, Epoch(2)).unwrap();
        core.verify();
    }
    core.release(b.address, Owner::NOBODY, Epoch(2)).unwrap();
    core.verify();
    core.settle(s, Epoch(2));
    core.verify();
    assert_eq!(core.take_segment(2000), Some(Segment { address: 0x1000_0000, units: 1000 }));
    core.verify();
}
