//! `Row`: one line of a log.

use super::Action;

/// One line of a log, unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The line in the file, counted from 1; the heading is line 1.
    pub line: usize,
    /// The number that the operating system had given the thread.
    pub thread: u64,
    /// Microseconds since midnight. Logs have no date, so the next day starts again at 0.
    pub microseconds: u64,
    /// The action.
    pub action: Action,
    /// The address of the block; 0 if there is none.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// The handle of the stream: 0 and 1 are the default stream, 2 that of the thread.
    pub stream: u64,
    /// The number of the device that the block is memory of, if the log has a column for it.
    pub device: Option<u32>,
    /// The path of [tags](crate::tag::Tag), if the log has a column for it. Empty for none.
    pub tag: Box<str>,
    /// The bytes that the suballocator under the log had taken from its upstream, if the log has a column for it.
    pub reserved_bytes: Option<u64>,
}
