//! `Moment`: what a log says about a step beside the step itself.

/// What a log says about an [`Event`](super::Event) beside the event itself. Apart from it, because a replay reads events and
/// nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds since the midnight before the first row: where a row's time is half a day behind that of the row before,
    /// another day has begun. A row of a minute before midnight that comes after it is of the day before.
    pub microseconds: u64,
    /// Where the block begins.
    pub address: u64,
    /// What was reserved then, if the log tells.
    pub reserved_bytes: Option<u64>,
    /// The place of the row's tag in [`Trace::tags`](super::Trace::tags).
    pub tag: u32,
}
