//! `Moment`: further data of a log about an event.

/// Further data of a log about an [`Event`](super::Event). A type of its own, because a replay reads only events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds since the midnight before the first row. A new day begins where the time of a row is half a day behind that of
    /// the row before. A row from the last minute before midnight that comes after that belongs to the day before.
    pub microseconds: u64,
    /// Where the block begins.
    pub address: u64,
    /// The bytes reserved at that time, if the log has them.
    pub reserved_bytes: Option<u64>,
    /// The place of the row's tag in [`Trace::tags`](super::Trace::tags).
    pub tag: u32,
}
