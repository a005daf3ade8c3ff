//! `Refusal`: an allocation that failed.

use super::Moment;

/// An allocation that failed: no [`Event`](super::Event), because nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The number of events before it in [`Trace::events`](super::Trace::events).
    pub after_events: usize,
    /// The stream that the call named, numbered as those of events.
    pub stream: u32,
    /// The thread that called, numbered as those of events.
    pub thread: u32,
    /// The bytes that were asked for.
    pub bytes: u64,
    /// Its time and its tag.
    pub moment: Moment,
}
