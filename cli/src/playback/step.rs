//! `Step`: one thing that happens in a playback.

/// One thing that happens in a playback, and what there is after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) what: What,
    /// As [`Moment::microseconds`](alluvion::trace::Moment::microseconds). Never before that of the step before.
    pub(crate) microseconds: u64,
    /// Numbered as those of the trace.
    pub(crate) thread: u32,
    /// Numbered as those of the trace.
    pub(crate) stream: u32,
    /// The place of the tag in [`Trace::tags`](alluvion::trace::Trace::tags). Of a free, that of the block.
    pub(crate) tag: u32,
    /// In blocks that are out, each rounded up to whole units of 256.
    pub(crate) live_bytes: u64,
    /// Taken from the upstream and not given back. Never less than what is live.
    pub(crate) reserved_bytes: u64,
}

impl Step {
    /// Reserved, and in no block that is out: what is free in segments, and what blocks are longer than was asked for.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.reserved_bytes - self.live_bytes
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A segment is taken from the upstream, in the course of the step that follows. There are none in a playback of what was
    /// recorded.
    SegmentTaken { address: u64, bytes: u64 },
    /// A segment is given back to the upstream, in the course of the step that follows.
    SegmentGiven { address: u64, bytes: u64 },
    /// A block comes. It is numbered as in the trace, and `bytes` is what it was asked for with.
    Allocated { block: u32, address: u64, bytes: u64 },
    /// A block goes.
    Freed { block: u32, address: u64, bytes: u64 },
    /// A block was asked for, and there was none: in the program that wrote the log, or here.
    Failed { bytes: u64 },
}
